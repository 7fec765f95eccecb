from __future__ import annotations

import dataclasses
import io
import json

import pytest

from dlcheck import cli
from dlcheck.findings import ERROR, WARNING, Finding, Report, RuleState, Where
from dlcheck.observation import Failure, Frame, Observation, Split
from dlcheck.reporters import json as report_json

CRASH = Failure("sample", "KeyError", "'x'", (Frame("d.py", 3, "f", "d[k]", user=True),), at=(4,))
SEEN = Observation({"": Split(samples=8, of=8, epochs=1, failures={CRASH.key: CRASH})})
STATES = (RuleState("ragged-batch", "ran"), RuleState("bgr-order", "ran"))
RAGGED = Finding("ragged", Where(field="x"), {}, ERROR, "pad", code="DLC101", rule="ragged-batch")
BLUE = Finding("blue", Where(field="x"), {}, WARNING, "swap", code="DLC204", rule="bgr-order")


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def save(name: str, *findings: Finding, verdict: str = "fail", observation=SEEN) -> str:
    report = Report("shapes", "t", verdict, findings, STATES, observation)
    with open(name, "w", encoding="utf-8") as file:  # noqa: PTH123 - a name in the current folder
        file.write(report_json.render(report))
    return name


def shown(capsys) -> dict:
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("findings", "verdict", "options", "status"),
    [
        pytest.param([RAGGED], "fail", [], 1, id="as-saved"),
        pytest.param([BLUE], "fail", [], 1, id="it-failed-on-a-warning-then"),
        pytest.param([RAGGED], "pass", [], 0, id="it-never-failed-then"),
        pytest.param([BLUE], "pass", [], 0, id="a-warning-passed-then"),
        pytest.param([BLUE], "pass", ["--fail-on", "warning"], 1, id="stricter-now"),
        pytest.param([BLUE], "fail", ["--fail-on", "error"], 0, id="milder-now"),
        pytest.param([RAGGED], "fail", ["--fail-on", "never"], 0, id="never"),
        pytest.param([RAGGED], "fail", ["--ignore", "ragged-batch"], 0, id="ignored-now"),
        pytest.param([RAGGED, BLUE], "fail", ["--select", "DLC204"], 0, id="selected-now"),
        pytest.param([], "incomplete", [], 0, id="incomplete"),
        pytest.param([], "incomplete", ["--fail-on-incomplete"], 1, id="incomplete-counts"),
    ],
)
def test_exit_status_whatever_the_format(findings, verdict, options, status):
    save("run.json", *findings, verdict=verdict)
    for format_ in ("table", "json", "sarif", "junit", "github", "markdown"):
        assert cli.main(["report", "run.json", "--format", format_, *options]) == status


def test_a_saved_run_is_the_same_json_again(capsys):
    save("run.json", RAGGED)
    assert cli.main(["report", "run.json", "--format", "json"]) == 1
    with open("run.json", encoding="utf-8") as file:  # noqa: PTH123
        assert capsys.readouterr().out == file.read()


def test_a_saved_run_comes_from_stdin_too(capsys, monkeypatch):
    with open(save("run.json", RAGGED), encoding="utf-8") as file:  # noqa: PTH123
        monkeypatch.setattr("sys.stdin", io.StringIO(file.read()))
    assert cli.main(["report", "-"]) == 1
    assert "error DLC101 ragged-batch" in capsys.readouterr().out


def test_rules_of_today_judge_a_saved_run(capsys):
    """And what the config ignored then is left out again."""
    states = (*STATES, RuleState("transform-error", "not-applicable", "ignored: known"))
    report = Report("shapes", "t", "pass", (), states, SEEN)
    with open("run.json", "w", encoding="utf-8") as file:  # noqa: PTH123
        file.write(report_json.render(report))
    assert cli.main(["report", "run.json", "--rejudge", "--format", "json"]) == 1
    data = shown(capsys)
    assert [finding["rule"] for finding in data["findings"]] == ["pipeline-error"]
    states_now = {state["rule"]: state["reason"] for state in data["rules"]}
    assert states_now["transform-error"] == "ignored: known"


def test_a_junit_file_of_a_run_that_failed_on_warnings_has_the_failure(tmp_path):
    save("run.json", BLUE)
    assert cli.main(["report", "run.json", "-q", "--output", "a.xml"]) == 1
    assert 'failures="1"' in (tmp_path / "a.xml").read_text()


@pytest.mark.parametrize(
    ("before", "after", "options", "status"),
    [
        pytest.param([RAGGED], [RAGGED], [], 0, id="nothing-new"),
        pytest.param([], [RAGGED], [], 1, id="new"),
        pytest.param([RAGGED], [], [], 0, id="cured"),
        pytest.param([], [BLUE], [], 0, id="new-below-the-limit"),
        pytest.param([], [BLUE], ["--fail-on", "warning"], 1, id="new-at-the-limit"),
        pytest.param([], [RAGGED], ["--fail-on", "never"], 0, id="never"),
        pytest.param([], [RAGGED], ["--ignore", "ragged-batch"], 0, id="ignored"),
    ],
)
def test_new_findings_alone_decide_on_two_runs(before, after, options, status):
    save("a.json", *before)
    save("b.json", *after)
    for format_ in ("table", "json", "markdown"):
        assert cli.main(["report", "a.json", "b.json", "--format", format_, *options]) == status


def test_two_runs_go_to_stdout_and_to_files(capsys, tmp_path):
    faster = dataclasses.replace(SEEN.splits[""], seconds=2.0, samples=80)
    slow = Observation({"": dataclasses.replace(faster, samples=8)})
    files = [save("a.json", RAGGED, observation=slow), save("b.json", BLUE)]
    save("b.json", BLUE, observation=Observation({"": faster}))
    assert cli.main(["report", *files, "--output", "c.json", "--output", "c.md"]) == 0
    out = capsys.readouterr().out
    assert "1 new, 1 cured, 0 unchanged" in out
    assert "samples a second   4.0      40.0 (+900%)" in out
    assert json.loads((tmp_path / "c.json").read_text())["schema"] == "dlcheck-comparison/1"
    assert "### cured" in (tmp_path / "c.md").read_text()


@pytest.mark.parametrize("format_", ["sarif", "junit", "github", "html"])
def test_a_comparison_has_no_format_that_knows_one_run_only(capsys, format_):
    files = [save("a.json"), save("b.json")]
    assert cli.main(["report", *files, "--format", format_]) == 2
    assert cli.main(["report", *files, "--output", f"{format_}:x"]) == 2
    assert f"a comparison has no {format_}" in capsys.readouterr().err


def test_the_schema_is_printed(capsys):
    assert cli.main(["report", "--schema"]) == 0
    assert shown(capsys)["title"] == "The JSON report of dlcheck, version 1"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "cannot read run.json: No such file or directory"),
        ("{", "run.json is no JSON"),
        ("{}", "run.json is no report of dlcheck"),
        ('{"schema": "dlcheck/9"}', "has the schema 'dlcheck/9'"),
        ('{"schema": "dlcheck/1", "\\ud800": 1}', "is no whole report"),
    ],
)
def test_what_is_no_saved_run_is_the_users_mistake(tmp_path, capsys, text, words):
    if text is not None:
        (tmp_path / "run.json").write_text(text)
    assert cli.main(["report", "run.json"]) == 2
    assert words in capsys.readouterr().err


def test_a_file_that_is_no_text_is_the_users_mistake(tmp_path, capsys):
    (tmp_path / "run.json").write_bytes(b"\xff\xfe\x00")
    assert cli.main(["report", "run.json"]) == 2
    assert cli.main(["report", str(tmp_path)]) == 2


@pytest.mark.parametrize("arguments", [[], ["a.json", "b.json", "c.json"]])
def test_no_run_or_three_is_wrong_usage(arguments):
    assert cli.main(["report", *arguments]) == 2
