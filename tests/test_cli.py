from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dlcheck import cli, config, session, streams
from dlcheck.config import Config, UserError
from dlcheck.findings import ERROR, NOTE, REGISTRY, WARNING, Finding, Unobserved, rule
from dlcheck.observation import Observation, Split
from dlcheck.session import Outcome

ROOT = Path(__file__).parents[1]
SEEN = Observation(splits={"": Split(samples=8, of=8, batches=1, epochs=1)})
HEAVY = {"rich", "omegaconf", "psutil", "jinja2", "yaml", "torch", "dlcheck.session"}


@pytest.fixture(autouse=True)
def _rules():
    """Rules that fire, or see nothing, when the Observation's settings say so."""
    importlib.import_module("dlcheck.rules")
    real = dict(REGISTRY)
    REGISTRY.clear()
    for code, severity in (("DLC901", ERROR), ("DLC902", WARNING), ("DLC903", NOTE)):

        def check(obs, severity=severity):
            """Fire on request."""
            if obs.settings.get("blind"):
                raise Unobserved("blind")
            if severity.label in obs.settings.get("fire", ()):
                yield Finding("fired")

        check.__name__ = f"{severity.label}_rule"
        rule(code, severity=severity, needs="run", title="T", why="W", fix="F")(check)
    yield
    REGISTRY.clear()
    REGISTRY.update(real)


@pytest.fixture
def ran(monkeypatch, tmp_path):
    """Replace the run by a recorded one: `ran.outcome` is what it gives, `ran.jobs` what it got."""

    class Ran:
        outcome: Outcome | BaseException = Outcome(SEEN)
        settings: dict = {}  # noqa: RUF012 - set by tests
        jobs: list = []  # noqa: RUF012 - emptied below
        loads: list = []  # noqa: RUF012 - emptied below

    Ran.jobs, Ran.loads = [], []

    def load(target, overrides=(), *, cwd=None):
        Ran.loads.append((target, list(overrides)))
        return Config(target or "dlcheck.yaml", str(tmp_path), None, {"": {}}, Ran.settings, {})

    def run(job):
        Ran.jobs.append(job)
        if isinstance(Ran.outcome, BaseException):
            raise Ran.outcome
        return Ran.outcome

    monkeypatch.setattr(config, "load", load)
    monkeypatch.setattr(session, "run", run)
    monkeypatch.chdir(tmp_path)
    return Ran


def outcome(signal_=None, **settings) -> Outcome:
    return Outcome(Observation(splits=SEEN.splits, settings=settings), signal=signal_)


def dlcheck(*arguments: str, **more) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dlcheck", *arguments]
    env = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "80"} | more.pop("env", {})
    return subprocess.run(
        command, capture_output=True, text=True, env=env, check=False, timeout=60, **more
    )


@pytest.mark.parametrize(
    ("settings", "options", "status"),
    [
        pytest.param({}, [], 0, id="nothing-found"),
        pytest.param({"fire": ["error"]}, [], 1, id="error"),
        pytest.param({"fire": ["warning", "note"]}, [], 0, id="below-the-limit"),
        pytest.param({"fire": ["warning"]}, ["--fail-on", "warning"], 1, id="at-the-limit"),
        pytest.param({"fire": ["note"]}, ["--fail-on", "note"], 1, id="note"),
        pytest.param({"fire": ["error"]}, ["--fail-on", "never"], 0, id="never"),
        pytest.param({"blind": True}, [], 0, id="incomplete"),
        pytest.param({"blind": True}, ["--fail-on-incomplete"], 1, id="incomplete-counts"),
        pytest.param({"fire": ["error"]}, ["--ignore", "error-rule"], 0, id="ignored"),
        pytest.param({"fire": ["error"]}, ["--select", "DLC902,DLC903"], 0, id="not-selected"),
        pytest.param({"fire": ["error"]}, ["--format", "json"], 1, id="whatever-the-format"),
    ],
)
def test_exit_status(ran, settings, options, status):
    ran.outcome = outcome(**settings)
    assert cli.main(["shapes", *options]) == status


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_an_interrupted_run_is_reported_all_the_same(ran, capsys, number, status):
    ran.outcome = outcome(signal_=int(number), fire=["error"])
    assert cli.main(["shapes"]) == status
    assert "fail: 1 error" in capsys.readouterr().out


def test_an_interrupt_before_the_run_is_130(ran, capsys):
    ran.outcome = KeyboardInterrupt()
    assert cli.main(["shapes"]) == 130
    assert capsys.readouterr().err.endswith("dlcheck: interrupted\n")


def test_a_mistake_of_the_user_is_one_short_message(ran, capsys):
    ran.outcome = UserError("dlcheck.yaml:3: no key 'lodaer'\x1b[2J", "did you mean loader?\n  - b")
    assert cli.main(["shapes", "-v"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == (
        "dlcheck: dlcheck.yaml:3: no key 'lodaer'\\x1b[2J\n  did you mean loader?\n    - b\n"
    )


@pytest.mark.parametrize("verbose", [False, True])
def test_a_failure_of_ours_shows_its_traceback_on_request(ran, capsys, verbose):
    ran.outcome = RuntimeError("scratch folder vanished")
    assert cli.main(["shapes", *(["-v"] if verbose else [])]) == 3
    err = capsys.readouterr().err
    assert err.startswith("dlcheck: dlcheck itself failed: RuntimeError: scratch folder vanished\n")
    assert ("Traceback" in err) is verbose
    assert ("run again with -v" in err) is not verbose


@pytest.mark.parametrize(
    "arguments",
    [
        ["shapes", "--no-such-option"],
        ["no-such-command"],
        ["shapes", "--budget", "soon"],
        ["shapes", "--budget", "0"],
        ["shapes", "--budget", "inf"],
        ["shapes", "--budget", "-5s"],
        ["shapes", "--samples", "some"],
        ["shapes", "--samples", "0"],
        ["shapes", "--samples", "-1"],
        ["shapes", "--python", "/no/such/python"],
        ["shapes", "--output", "report.docx"],
        ["shapes", "--output", "json:"],
        ["shapes", "--output", "/no/such/folder/report.json"],
        ["shapes", "--save", "."],
        ["shapes", "--select", "no-such-rule"],
        ["shapes", "--ignore", "error-rule,no-such-rule"],
        ["shapes", "a.yaml", "b.yaml"],
        ["explain", "no-such-rule"],
        [],
    ],
)
def test_wrong_usage_is_2_and_nothing_runs(ran, capsys, arguments):
    assert cli.main(arguments) == 2
    assert capsys.readouterr().err
    assert not ran.jobs


@pytest.mark.parametrize(
    ("words", "seconds"), [("30", 30), ("30s", 30), ("2m", 120), ("1.5h", 5400), (" 2M ", 120)]
)
def test_durations(ran, words, seconds):
    assert cli.main(["shapes", "--budget", words, "--hang-after", words]) == 0
    assert (ran.jobs[0].budget, ran.jobs[0].hang_after) == (seconds, seconds)


@pytest.mark.parametrize(("words", "count"), [("all", -1), ("100", 100), ("1,000", 1000)])
def test_samples(ran, words, count):
    assert cli.main(["shapes", "--samples", words]) == 0
    assert ran.jobs[0].samples == count


def test_defaults_of_a_job(ran):
    assert cli.main(["shapes"]) == 0
    job = ran.jobs[0]
    assert (job.command, job.python, job.budget, job.hang_after) == (
        "shapes", sys.executable, 60.0, 30.0,
    )  # fmt: skip
    assert (job.samples, job.seed, job.split, job.quiet) == (None, None, None, False)


def test_python_may_be_the_folder_of_an_environment(ran, tmp_path):
    """Its link is kept: resolved, the interpreter would forget the environment."""
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    (tmp_path / "venv" / "bin" / "python").symlink_to(sys.executable)
    for name in ("venv", "venv/bin/python"):
        assert cli.main(["shapes", "--python", name]) == 0
        assert ran.jobs.pop().python == str(tmp_path / "venv" / "bin" / "python")


@pytest.mark.parametrize(
    ("arguments", "target", "overrides"),
    [
        ([], None, []),
        (["a.yaml"], "a.yaml", []),
        (["loader.batch_size=8"], None, ["loader.batch_size=8"]),
        (["a.yaml", "x=1", "y=a=b"], "a.yaml", ["x=1", "y=a=b"]),
        (["odd=name.yaml", "x=1"], "odd=name.yaml", ["x=1"]),
    ],
)
def test_target_and_overrides(ran, tmp_path, arguments, target, overrides):
    (tmp_path / "odd=name.yaml").touch()
    assert cli.main(["shapes", *arguments]) == 0
    assert ran.loads == [(target, overrides)]


def test_json_is_all_that_stdout_holds(ran, capsys):
    assert cli.main(["shapes", "--format", "json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["schema"] == "dlcheck/1"
    assert captured.err == ""


def test_output_and_save_write_files_while_stdout_shows_the_table(ran, capsys, tmp_path):
    ran.outcome = outcome(fire=["error"])
    files = ["--output", "a.json", "--output", "json:b.out", "--output", "c.txt"]
    assert cli.main(["shapes", *files, "--save", "run", "--color", "always"]) == 1
    assert "error DLC901 error-rule" in capsys.readouterr().out.replace("\x1b[1m", "").replace(
        "\x1b[0m", ""
    ).replace("\x1b[1;31m", "")
    saved = (tmp_path / "run").read_text()
    assert json.loads(saved)["verdict"] == "fail"
    assert (tmp_path / "a.json").read_text() == (tmp_path / "b.out").read_text() == saved
    assert "error DLC901 error-rule\n  fired\n" in (tmp_path / "c.txt").read_text()


def test_a_file_is_left_alone_when_nothing_ran(ran, tmp_path):
    (tmp_path / "old.json").write_text("old")
    ran.outcome = RuntimeError("x")
    assert cli.main(["shapes", "--output", "old.json", "--output", "new.json"]) == 3
    assert (tmp_path / "old.json").read_text() == "old"
    assert not (tmp_path / "new.json").exists()


def test_the_config_may_ignore_rules_and_change_severities(ran, capsys):
    ran.outcome = outcome(fire=["error", "warning", "note"])
    ran.settings = {"rules": {"ignore": {"DLC901": "known"}, "severity": {"warning-rule": "error"}}}
    assert cli.main(["shapes", "--format", "json"]) == 1
    data = json.loads(capsys.readouterr().out)
    found = {finding["rule"]: finding["severity"] for finding in data["findings"]}
    assert found == {"warning-rule": "error", "note-rule": "note"}
    assert data["rules"][0] == {
        "rule": "error-rule", "state": "not-applicable", "reason": "ignored: known",
    }  # fmt: skip


def test_an_unknown_rule_in_the_config_is_the_users_mistake(ran, capsys):
    ran.settings = {"rules": {"ignore": {"eror-rule": "typo"}}}
    assert cli.main(["shapes"]) == 2
    assert "Did you mean error-rule (DLC901)?" in capsys.readouterr().err
    assert not ran.jobs


def test_quiet_and_verbose(ran, capsys):
    ran.outcome = outcome(blind=True)
    assert cli.main(["shapes", "-q"]) == 0
    assert ran.jobs[0].quiet
    assert cli.main(["shapes", "-v", "--ignore", "DLC901"]) == 0
    assert "not-applicable (not selected): error-rule" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("choice", "environment", "tty", "color"),
    [
        ("auto", {}, True, True),
        ("auto", {}, False, False),
        ("auto", {"NO_COLOR": "1"}, True, False),
        ("auto", {"NO_COLOR": "", "TERM": "xterm"}, True, True),
        ("auto", {"FORCE_COLOR": "1"}, False, True),
        ("auto", {"FORCE_COLOR": "0"}, True, False),
        ("auto", {"FORCE_COLOR": "1", "NO_COLOR": "1"}, True, False),
        ("auto", {"TERM": "dumb"}, True, False),
        ("auto", {"CI": "true"}, True, False),
        ("auto", {"CI": "true", "FORCE_COLOR": "1"}, False, True),
        ("always", {"NO_COLOR": "1", "TERM": "dumb"}, False, True),
        ("never", {"FORCE_COLOR": "1"}, True, False),
    ],
)
def test_color(monkeypatch, choice, environment, tty, color):
    for name in ("NO_COLOR", "FORCE_COLOR", "CI", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: tty, raising=False)
    assert streams.wants_color(choice) is color


def test_the_sample_runs_in_a_copy_that_is_removed(ran, monkeypatch, capsys, tmp_path):
    folder = tmp_path / "sample"
    folder.mkdir()
    (folder / "dlcheck.yaml").touch()
    monkeypatch.setattr("dlcheck.demo.sample_folder", lambda: folder)
    places = []

    def run(job):
        places.append(Path.cwd())
        assert (Path.cwd() / "sample" / "dlcheck.yaml").is_file()
        return outcome(fire=["error"])

    monkeypatch.setattr(session, "run", run)
    assert cli.main(["demo", "--output", "demo.json"]) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith("$ dlcheck shapes sample\n")
    assert f"cp -r {folder} ." in captured.err
    assert Path.cwd() == tmp_path
    assert not places[0].exists()
    assert (tmp_path / "demo.json").exists()


def test_a_missing_sample_is_said(monkeypatch, capsys):
    monkeypatch.setattr(Path, "is_file", lambda _self: False)
    assert cli.main(["demo"]) == 2
    assert "the sample did not come" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--help"], ["shapes", "--help"], ["explain", "DLC101"]])
def test_what_needs_no_run_imports_nothing_heavy(arguments):
    """The start is quick as long as these stay out; a figure in seconds would be flaky."""
    done = dlcheck_importing(arguments)
    assert done.returncode == 0, done.stderr
    loaded = {line.split("|")[-1].strip() for line in done.stderr.splitlines() if "|" in line}
    assert not {name for name in loaded if name in HEAVY or name.split(".")[0] in HEAVY}


def dlcheck_importing(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-X", "importtime", "-m", "dlcheck", *arguments]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(command, capture_output=True, text=True, env=env, check=False, timeout=60)


@pytest.mark.parametrize("command", ["shapes", "demo", "explain", "report", "rules"])
def test_every_command_has_help_with_an_example(command):
    done = dlcheck(command, "--help")
    assert done.returncode == 0
    assert f"\n    dlcheck {command}" in done.stdout


def test_version():
    assert dlcheck("--version").stdout.startswith("dlcheck ")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_crash(closed):
    line = f'"{sys.executable}" -m dlcheck rules {closed}'
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(["sh", "-c", line], env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_reader_that_left_early_is_no_crash():
    line = f'("{sys.executable}" -m dlcheck rules --markdown; echo $? >&2) | true'
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(["sh", "-c", line], env=env, capture_output=True, text=True, check=False)
    assert done.stderr == "0\n"


def test_an_ascii_terminal_gets_ascii(ran):
    script = (
        "import sys; from dlcheck import cli, config, session, observation as o;"
        "field = o.Field(types={'Tensor': o.Tally(1)});"
        "seen = o.Observation(splits={'\\u732b': o.Split(batch_fields={'\\u732b': field})});"
        "config.load = lambda *_: config.Config('t', '.', None, {});"
        "session.run = lambda _: session.Outcome(seen);"
        "sys.exit(cli.main(['shapes', '--select', 'DLC002']))"
    )
    env = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    assert b"\\u732b" in done.stdout
    assert b"----" in done.stdout
