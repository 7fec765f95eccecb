"""A finding as plain lines, user text made harmless: what SARIF, JUnit and annotations share."""

from __future__ import annotations

import itertools

from dlcheck.findings import NOTE, REGISTRY, Finding, Report
from dlcheck.reporters import evidence, source
from dlcheck.reporters.visible import visible, visible_lines

MOST_EVIDENCE = 12


def level(finding: Finding) -> str:
    """Return the name of its severity."""
    return (NOTE if finding.severity is None else finding.severity).label


def message(finding: Finding) -> list[str]:
    """Return its message, line by line; of a long one both ends."""
    first, *rest = visible_lines(finding.message.strip("\n"))
    return [first, *evidence.ends(rest)]


def at(finding: Finding) -> str:
    """Return `data.py:6`, or nothing when no source is named."""
    where = finding.where
    if not where.file:
        return ""
    return visible(source.short(where.file)) + (f":{where.line}" if where.line else "")


def facts(finding: Finding) -> list[tuple[str, list[str]]]:
    """Return the evidence: a label with the lines of its value."""
    items = [(k, v) for k, v in finding.evidence.items() if evidence.worth_saying(v)]
    shown = [
        (visible(evidence.label(key)), _value(value))
        for key, value in itertools.islice(items, MOST_EVIDENCE)
    ]
    left = len(items) - MOST_EVIDENCE
    return [*shown, ("more", [f"{left} in the JSON report"])] if left > 0 else shown


def why(finding: Finding) -> str:
    """Return the reason of its rule, when this version knows the rule."""
    rule = REGISTRY.get(finding.rule)
    return rule.why if rule else ""


def lines(finding: Finding, report: Report) -> list[str]:
    """Return all that is said of a finding: place, source, evidence, reason, cure."""
    said = message(finding)
    place = at(finding)
    if place:
        said.append(f"at {place}")
        quoted = source.line(finding.where.file or "", finding.where.line, report.observation)
        said += [f"    {visible(quoted.strip().expandtabs(4))}"] if quoted.strip() else []
    where = visible(evidence.place(finding.where))
    said += [where] if where else []
    for label, value in facts(finding):
        single = len(value) == 1
        said += [f"{label}: {value[0]}"] if single else [f"{label}:", *(f"  {x}" for x in value)]
    said += [f"why: {reason}"] if (reason := why(finding)) else []
    said += [f"fix: {cure}"] if (cure := fix(finding)) else []
    return said


def fix(finding: Finding) -> str:
    """Return the cure in one line."""
    return " ".join(visible_lines(finding.fix.strip()))


def _value(value: object) -> list[str]:
    if isinstance(value, str) and "\n" in value.strip("\n"):
        return evidence.ends(visible_lines(value))
    return [visible(evidence.short(value))]
