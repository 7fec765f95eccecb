from __future__ import annotations

import re

import pytest

from dlcheck.findings import ERROR, Finding, Report, Where
from dlcheck.observation import Loader, Observation, Split
from dlcheck.reporters import terminal
from dlcheck.reporters.github import harmless, render

LINE = re.compile(r"::(error|warning|notice) ([^:]*)::(.*)")


def parsed(line: str) -> tuple[str, dict[str, str], str]:
    """Read a workflow command as the runner does."""
    match = LINE.fullmatch(line)
    assert match, line
    properties = dict(part.split("=", 1) for part in match[2].split(","))
    for words, character in (
        ("%2C", ","),
        ("%3A", ":"),
        ("%0A", "\n"),
        ("%0D", "\r"),
        ("%25", "%"),
    ):
        properties = {key: value.replace(words, character) for key, value in properties.items()}
    message = match[3].replace("%0A", "\n").replace("%0D", "\r").replace("%25", "%")
    return match[1], properties, message


def only(finding: Finding, split: Split | None = None):
    observation = Observation(splits={"": split or Split()})
    (line,) = render(Report("shapes", "t", "fail", (finding,), (), observation)).splitlines()
    return parsed(line)


def commands(text: str) -> list[str]:
    """What the runner would take for a command: `::` at a line's start, `##[` anywhere."""
    lines = re.split(r"\r\n|\r|\n", text)
    return [line for line in lines if line.lstrip().startswith("::") or "##[" in line]


def test_a_line_a_finding_with_its_place_and_its_cure(report):
    error, warning, note = map(parsed, render(report).splitlines())
    assert error[:2] == ("error", {"file": "data.py", "line": "6", "title": "DLC101 ragged-batch"})
    assert error[2].splitlines() == [
        "samples of one batch differ in shape, and default_collate cannot stack them",
        "split train, field image, sample 41",
        "fix: Resize to a pair: Resize((64, 64)).",
    ]
    assert (warning[0], note[0]) == ("warning", "notice")


def test_files_are_named_from_the_workspace(tmp_path, monkeypatch):
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    where = Where(file=str(tmp_path / "sub" / "a,b:c%.py"), line=3)
    assert only(Finding("m", where))[1]["file"] == "sub/a,b:c%.py"


def test_a_file_outside_the_checkout_is_named_in_the_message(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _, properties, message = only(Finding("m", Where(file="/opt/lib.py", line=3)))
    assert "file" not in properties
    assert message == "m\nat /opt/lib.py:3"


def test_without_a_line_it_stands_where_the_loader_was_made(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    split = Split(loader=Loader(file=str(tmp_path / "train.py"), line=9))
    assert only(Finding("m"), split)[1] == {"file": "train.py", "line": "9", "title": ""}


def test_hostile_text_stays_in_its_own_command(hostile_report):
    lines = render(hostile_report).split("\n")
    assert lines.pop() == ""
    assert [parsed(line)[0] for line in lines] == ["error", "warning", "notice"]
    assert all(set(parsed(line)[1]) <= {"file", "line", "title"} for line in lines)
    "\n".join(lines).encode()


def test_hostile_text_in_a_table_is_no_command(hostile_report):
    assert commands(harmless(terminal.render(hostile_report, width=40, verbosity=1))) == []


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("::add-mask::x", "\\x3a:add-mask::x"),
        ("a\n \t::debug::x", "a\n \t\\x3a:debug::x"),
        ("a ##[error]x", "a #\\x23[error]x"),
        ("std::vector a::b", "std::vector a::b"),
        (": a", ": a"),
    ],
)
def test_only_commands_are_changed(text, shown):
    assert harmless(text) == shown
    assert commands(shown) == []


def test_no_finding_no_line():
    assert render(Report("shapes", "t", "pass", (), (), Observation())) == ""
    assert only(Finding("m", severity=ERROR))[0] == "error"
