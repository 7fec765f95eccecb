"""JUnit XML, for CI servers: a test case a rule, a failure where --fail-on says so."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from xml.etree import ElementTree as ET

from dlcheck.findings import NOTE, Finding, Report, RuleState
from dlcheck.reporters import prose
from dlcheck.reporters.json import seen
from dlcheck.reporters.visible import visible

_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(report: Report) -> str:
    """Render as one suite; a finding below --fail-on stands in the output of a case that passed."""
    cases = list(_cases(report))
    kinds = Counter(child.tag for case in cases for child in case)
    counts = {"tests": str(len(cases)), "failures": str(kinds["failure"]), "errors": "0"}
    time = f"{seen(report.observation)['seconds']:.3f}"
    suite = ET.Element(
        "testsuite",
        {
            "name": _safe(f"dlcheck {report.command} {report.target}"),
            **counts,
            "skipped": str(kinds["skipped"]),
            "time": time,
        },
    )
    suite.append(_properties(report))
    suite.extend(cases)
    suites = ET.Element("testsuites", {"name": "dlcheck", **counts, "time": time})
    suites.append(suite)
    ET.indent(suites)
    text = ET.tostring(suites, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _properties(report: Report) -> ET.Element:
    from dlcheck import __version__

    fail_on = "never" if report.fail_on is None else report.fail_on.label
    values = {"version": __version__, "verdict": report.verdict, "fail-on": fail_on}
    values |= seen(report.observation)
    if report.observation.cut:
        values["ended early"] = report.observation.cut
    properties = ET.Element("properties")
    for name, value in values.items():
        attributes = {"name": name, "value": "" if value is None else _safe(value)}
        ET.SubElement(properties, "property", attributes)
    return properties


def _cases(report: Report) -> Iterator[ET.Element]:
    """Yield a case for each rule, several for one with several findings.

    The first has the rule's name alone, so that its history stays one when it fails.
    """
    by_rule: dict[str, list[Finding]] = {state.rule: [] for state in report.rules}
    for finding in report.findings:
        by_rule.setdefault(finding.rule, []).append(finding)
    states = {state.rule: state for state in report.rules}
    for rule, findings in by_rule.items():
        for number, finding in enumerate(findings, start=1):
            name = rule if number == 1 else f"{rule} #{number}"
            yield _found(finding, report, name)
        if not findings:
            yield _unfound(states[rule], report)


def _found(finding: Finding, report: Report, name: str) -> ET.Element:
    case = _case(report, name)
    text = _safe("\n".join(prose.lines(finding, report)), lines=True)
    level = prose.level(finding)
    if report.fail_on is None or (finding.severity or NOTE) < report.fail_on:
        ET.SubElement(case, "system-out").text = f"{level}: {text}"
        return case
    place = prose.at(finding)
    first = prose.message(finding)[0]
    message = _safe(f"{place}: {first}" if place else first)
    failure = ET.SubElement(case, "failure", {"type": f"{level} {_safe(finding.code)}"})
    failure.set("message", message)
    failure.text = text
    return case


def _unfound(state: RuleState, report: Report) -> ET.Element:
    case = _case(report, state.rule)
    if state.state != "ran":
        reason = f"{state.state}: {state.reason}" if state.reason else state.state
        ET.SubElement(case, "skipped", {"message": _safe(reason)})
    return case


def _case(report: Report, name: str) -> ET.Element:
    attributes = {"classname": _safe(f"dlcheck.{report.command}"), "name": _safe(name), "time": "0"}
    return ET.Element("testcase", attributes)


def _safe(value: object, *, lines: bool = False) -> str:
    """Escape what XML cannot hold at all; the writer escapes its own characters."""
    words = str(value)
    shown = "\n".join(map(visible, words.split("\n"))) if lines else visible(words)
    return _NO_XML.sub(lambda match: f"\\u{ord(match[0]):04x}", shown)
