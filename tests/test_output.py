from __future__ import annotations

import json
from importlib.util import find_spec
from xml.etree import ElementTree as ET

import pytest

from dlcheck import output
from dlcheck.config import UserError
from dlcheck.findings import ERROR, Finding, Report
from dlcheck.observation import Observation
from dlcheck.options import FORMATS

OPTIONS = {"quiet": False, "verbose": 0, "format_": "table", "color": "never"}


def report(message: str = "fault") -> Report:
    finding = Finding(message, severity=ERROR, code="DLC901", rule="some-rule")
    return Report("shapes", "t", "fail", (finding,), (), Observation())


@pytest.fixture
def on_github(monkeypatch, tmp_path):
    """A step of GitHub Actions; returns the file of its summary."""
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    return tmp_path / "summary.md"


@pytest.mark.parametrize("format_", FORMATS)
def test_each_format_has_its_reporter(format_):
    assert "some-rule" in output.render(report(), format_)


def test_any_number_of_files_in_any_format(tmp_path, capsys):
    files = [(format_, tmp_path / format_) for format_ in FORMATS]
    output.deliver(report(), files, OPTIONS)
    for format_, file in files:
        look = {"width": output.FILE_WIDTH} if format_ == "table" else {}
        assert file.read_text() == output.render(report(), format_, **look)
    assert "some-rule" in capsys.readouterr().out


def test_elsewhere_nothing_is_annotated(monkeypatch, capsys):
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    output.deliver(report(), [], OPTIONS)
    assert capsys.readouterr().err == ""


def test_github_gets_annotations_on_stderr_and_a_summary(on_github, capsys):
    on_github.write_text("of an earlier command\n")
    output.deliver(report(), [], OPTIONS)
    captured = capsys.readouterr()
    assert captured.err == "::error title=DLC901 some-rule::fault\n"
    assert "::error" not in captured.out
    summary = on_github.read_text()
    assert summary.startswith("of an earlier command\n## ")
    assert "DLC901" in summary


def test_annotations_asked_for_on_stdout_come_once(on_github, capsys):
    output.deliver(report(), [], OPTIONS | {"format_": "github"})
    captured = capsys.readouterr()
    assert captured.out == "::error title=DLC901 some-rule::fault\n"
    assert captured.err == ""
    assert on_github.exists()


def test_json_on_github_is_still_all_that_stdout_holds(on_github, capsys):
    output.deliver(report(), [], OPTIONS | {"format_": "json"})
    assert capsys.readouterr().out == output.render(report(), "json")


def test_a_table_on_github_obeys_nobody(on_github, capsys):
    output.deliver(report("::add-mask::x\n##[debug]y"), [], OPTIONS)
    out = capsys.readouterr().out
    assert "\\x3a:add-mask" in out
    assert "##[" not in out


def test_a_full_summary_stays_as_it_is(on_github):
    on_github.write_text("x" * (1 << 20))
    output.deliver(report(), [], OPTIONS)
    assert on_github.stat().st_size == 1 << 20


def test_a_summary_that_cannot_be_written_is_said(on_github, monkeypatch, capsys):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(on_github.parent / "no" / "folder"))
    output.deliver(report(), [], OPTIONS)
    assert "no summary of this step" in capsys.readouterr().err


def test_a_file_that_cannot_be_written_does_not_cost_the_report(tmp_path, capsys):
    with pytest.raises(UserError, match="cannot write"):
        output.deliver(report(), [("json", tmp_path / "gone" / "x.json")], OPTIONS)
    assert "some-rule" in capsys.readouterr().out


def test_one_file_is_not_written_in_two_formats(tmp_path):
    files = [("json", tmp_path / "x"), ("junit", tmp_path / "x")]
    with pytest.raises(UserError, match="cannot be json and junit at once"):
        output.planned({"output": files})
    assert output.planned({"output": [files[0], files[0]]})


WORDS = "\x1b[31m]]><script> ::error::x\n::stop-commands::y\n##[add-path]z [bold]@a {0} `\udc80"


@pytest.mark.skipif(find_spec("torch") is None, reason="needs the torch extra")
def test_a_real_run_of_hostile_names_and_exceptions_is_text_in_every_format(run_dlcheck, tmp_path):
    folder = tmp_path / "a [red]%0A,::b <i>"
    folder.mkdir()
    (folder / "pipe.py").write_text(
        "from torch.utils.data import DataLoader, Dataset\n"
        "class Data(Dataset):\n"
        "    def __len__(self): return 4\n"
        f"    def __getitem__(self, i): raise ValueError({WORDS!r})\n"
        "def make_loader(): return DataLoader(Data(), batch_size=2)\n"
    )
    options = [f"--output={format_}:{tmp_path / format_}" for format_ in FORMATS]
    github = {"GITHUB_ACTIONS": "true"}
    done = run_dlcheck("shapes", "pipe.py:make_loader", *options, cwd=folder, env=github)
    assert done.returncode == 1, done.stderr
    assert "ValueError" in done.stdout
    assert not [x for x in done.stdout.splitlines() if x.lstrip().startswith("::") or "##[" in x]
    for format_ in FORMATS:
        text = (tmp_path / format_).read_text(encoding="utf-8")
        assert "ValueError" in text
        assert "\x1b" not in text
    (run,) = json.loads((tmp_path / "sarif").read_text())["runs"]
    assert run["results"]
    assert list(ET.parse(tmp_path / "junit").iter("failure"))
    commands = (tmp_path / "github").read_text().splitlines()
    assert len(commands) == len(run["results"])
    assert all(command.startswith(("::error ", "::warning ", "::notice ")) for command in commands)
    assert "<script> ::" not in (tmp_path / "html").read_text()
