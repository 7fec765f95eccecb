"""SARIF 2.1.0, for code scanning: what GitHub, GitLab, Azure and editors read."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote_from_bytes

from dlcheck.findings import REGISTRY, Finding, Report, Rule, RuleState
from dlcheck.reporters import evidence, prose, source
from dlcheck.reporters.json import plain, seen
from dlcheck.reporters.visible import visible

SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
ROOT = "%SRCROOT%"
FINGERPRINT = "dlcheckPlace/v1"
_PROBLEM = {"error": "error", "warning": "warning", "note": "recommendation"}


def render(report: Report) -> str:
    """Render as one log with one run."""
    log = {"$schema": SCHEMA, "version": "2.1.0", "runs": [_run(report)]}
    return json.dumps(log, indent=2, allow_nan=False) + "\n"


def _run(report: Report) -> dict[str, Any]:
    from dlcheck import __version__

    target = source.within(report.target) or report.target
    rules = _rules(report)
    index = {rule["id"]: number for number, rule in enumerate(rules)}
    return {
        "tool": {"driver": {"name": "dlcheck", "version": __version__, "rules": rules}},
        # Runs of several commands or targets in one upload are told apart by it.
        "automationDetails": {"id": f"dlcheck/{report.command}/{visible(target).strip('/')}/"},
        "originalUriBaseIds": {ROOT: {"uri": source.root().as_uri().rstrip("/") + "/"}},
        "invocations": [_invocation(report)],
        "results": _results(report, index),
        "properties": {
            "verdict": report.verdict,
            "command": report.command,
            "target": plain(report.target),
            "seen": seen(report.observation),
        },
    }


def _rules(report: Report) -> list[dict[str, Any]]:
    """Describe every rule of this version, and those that a saved run brings along."""
    known = sorted(REGISTRY.values(), key=lambda rule: rule.code)
    codes = {rule.code for rule in known}
    strange = {f.code: _strange(f) for f in report.findings}
    return [*map(_rule, known), *(rule for code, rule in strange.items() if code not in codes)]


def _rule(rule: Rule) -> dict[str, Any]:
    level = rule.severity.label
    more = f"`dlcheck explain {rule.slug}` shows an example."
    return {
        "id": rule.code,
        "name": rule.slug,
        "shortDescription": _text([rule.title]),
        "fullDescription": _text([rule.why]),
        "help": {
            **_text([rule.why, f"Cure: {rule.fix}", more]),
            "markdown": _literal(f"{rule.why}\n\n**Cure:** {rule.fix}\n\n{more}"),
        },
        "defaultConfiguration": {"level": level},
        "properties": {"tags": ["pytorch", "data loading"], "problem.severity": _PROBLEM[level]},
    }


def _strange(finding: Finding) -> dict[str, Any]:
    """Describe a rule that another version has: GitHub takes none without these texts."""
    title = [finding.rule or finding.code]
    return {
        "id": finding.code,
        "name": visible(finding.rule),
        "shortDescription": _text(title),
        "fullDescription": _text(["A rule of another version of dlcheck."]),
        "help": _text([finding.fix] if finding.fix else title),
    }


def _invocation(report: Report) -> dict[str, Any]:
    """Say whether the run reached its end, and which rules saw nothing."""
    cut = report.observation.cut
    notes = [_notification(state) for state in report.rules if state.state == "unobserved"]
    if cut:
        notes.insert(0, {"level": "warning", "message": _text([f"ended early: {cut}"])})
    return {"executionSuccessful": not cut, "toolExecutionNotifications": notes}


def _notification(state: RuleState) -> dict[str, Any]:
    rule = REGISTRY.get(state.rule)
    about: dict[str, Any] = {"associatedRule": {"id": rule.code}} if rule else {}
    return {
        "level": "warning",
        "message": _text([f"{state.rule} was not observed: {state.reason or 'no reason given'}"]),
        **about,
    }


def _results(report: Report, index: dict[str, int]) -> list[dict[str, Any]]:
    prints = fingerprints(report.findings)
    return [
        _result(finding, report, index[finding.code], fingerprint)
        for finding, fingerprint in zip(report.findings, prints, strict=True)
    ]


def _result(finding: Finding, report: Report, rule: int, fingerprint: str) -> dict[str, Any]:
    where = finding.where
    values = {name: value for name, value in vars(where).items() if value is not None}
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": rule,
        "level": prose.level(finding),
        "message": _text(_message(finding)),
        "locations": [_location(finding, report)],
        "partialFingerprints": {FINGERPRINT: fingerprint},
        "properties": plain({"where": values, "evidence": finding.evidence, "fix": finding.fix}),
    }
    if where.path:
        about = "the data file" + ("" if where.sample is None else f" of sample {where.sample}")
        physical = {"artifactLocation": _artifact(where.path)}
        result["relatedLocations"] = [{"physicalLocation": physical, "message": _text([about])}]
    return result


def _message(finding: Finding) -> list[str]:
    place = evidence.place(finding.where)
    cure = prose.fix(finding)
    said = [*prose.message(finding), *([f"({place})"] if place else [])]
    return [*said, f"Fix: {cure}"] if cure else said


def _location(finding: Finding, report: Report) -> dict[str, Any]:
    """Name the source line, or what comes nearest: viewers drop results without a file."""
    location: dict[str, Any] = {}
    place = source.place(finding, report)
    if place:
        file, line = place
        physical: dict[str, Any] = {"artifactLocation": _artifact(file)}
        if line and line > 0:
            text = visible(source.line(file, line, report.observation).expandtabs(4))
            snippet = {"snippet": {"text": text}} if text else {}
            physical["region"] = {"startLine": line, **snippet}
        location["physicalLocation"] = physical
    where = finding.where
    names = [part for part in (where.split, where.field, where.stage) if part]
    if names:
        name = "/".join(map(visible, names))
        location["logicalLocations"] = [{"fullyQualifiedName": name, "kind": "object"}]
    return location


def _artifact(file: str) -> dict[str, str]:
    inside = source.within(file)
    if inside is not None:
        return {"uri": _uri(inside), "uriBaseId": ROOT}
    absolute = os.path.abspath(file) if "\0" not in file else file  # noqa: PTH100 - links stay
    return {"uri": f"file://{_uri(absolute)}"}


def _uri(path: str) -> str:
    """Percent-encode all but what no parser takes for more than a name."""
    try:
        raw = os.fsencode(path)
    except UnicodeEncodeError:
        raw = path.encode("utf-8", "backslashreplace")
    return quote_from_bytes(raw, safe="/-._~")


def fingerprints(findings: Iterable[Finding]) -> list[str]:
    """Return what stays the same for each finding when lines move and figures change."""
    met: Counter[str] = Counter()
    prints = []
    for finding in findings:
        where = finding.where
        file = (source.within(where.file) or Path(where.file).name) if where.file else None
        parts = [finding.code, where.split, where.field, where.stage, where.attribute, file]
        words = json.dumps(parts)
        met[words] += 1
        prints.append(hashlib.sha256(f"{words}{met[words]}".encode()).hexdigest()[:32])
    return prints


def _text(lines: Iterable[str]) -> dict[str, str]:
    return {"text": _literal("\n".join(map(visible, lines)))}


def _literal(text: str) -> str:
    """Keep a viewer from seeing a placeholder {0} or a link [a](b) in the text."""
    return text.replace("{", "{{").replace("}", "}}").replace("](", "] (")
