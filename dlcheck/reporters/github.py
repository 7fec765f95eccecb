"""Annotations for GitHub Actions: workflow commands, one a finding."""

from __future__ import annotations

import re

from dlcheck.findings import Finding, Report
from dlcheck.reporters import evidence, prose, source
from dlcheck.reporters.visible import visible

_COMMANDS = {"error": "error", "warning": "warning", "note": "notice"}
_DATA = {"%": "%25", "\r": "%0D", "\n": "%0A"}
_PROPERTY = {**_DATA, ":": "%3A", ",": "%2C"}
# The runner takes `::` at a line's start, after blanks, and `##[` anywhere, for a command.
_COMMAND = re.compile(r"^([^\S\n]*):(?=:)", re.MULTILINE)


def render(report: Report) -> str:
    """Render a line a finding, the worst first: GitHub shows ten of each kind a step."""
    return "".join(f"{_annotation(finding, report)}\n" for finding in report.findings)


def harmless(text: str) -> str:
    """Keep the runner from obeying what user text in a table tells it."""
    return _COMMAND.sub(r"\1\\x3a", text).replace("##[", "#\\x23[")


def _annotation(finding: Finding, report: Report) -> str:
    title = f"{finding.code} {finding.rule}".strip()
    properties = {"title": visible(title)}
    place = source.place(finding, report)
    inside = source.within(place[0]) if place else None
    if place and inside is not None:
        line = {"line": str(place[1])} if place[1] and place[1] > 0 else {}
        properties = {"file": visible(inside), **line, **properties}
    words = ",".join(f"{name}={_escaped(text, _PROPERTY)}" for name, text in properties.items())
    message = _escaped("\n".join(_message(finding, named=inside is not None)), _DATA)
    return f"::{_COMMANDS[prose.level(finding)]} {words}::{message}"


def _message(finding: Finding, *, named: bool) -> list[str]:
    said = prose.message(finding)
    place = prose.at(finding)
    if place and not named:
        said.append(f"at {place}")
    where = visible(evidence.place(finding.where))
    said += [where] if where else []
    cure = prose.fix(finding)
    return [*said, f"fix: {cure}"] if cure else said


def _escaped(text: str, escapes: dict[str, str]) -> str:
    return "".join(escapes.get(character, character) for character in text)
