"""The JSON report, version 1: for other programs, for `--save`, and read back."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any

from dlcheck.findings import NOTE, Finding, Report, RuleState, Severity, Where
from dlcheck.observation import Observation
from dlcheck.reporters.visible import without_surrogates

SCHEMA = "dlcheck/1"


def render(report: Report) -> str:
    """Render as one ASCII JSON document in a fixed order of keys."""
    text = json.dumps(plain(document(report)), indent=2, allow_nan=False)
    return text + "\n"


def read(text: str) -> Report:
    """Read what `render` wrote; Failures that a finding explains are not kept there.

    Raises:
        ValueError: it is no report of this version; the message says what is amiss.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"is no JSON: {error}") from error
    schema = data.get("schema") if isinstance(data, dict) else None
    if schema != SCHEMA:
        found = f"has the schema {schema!r}" if schema else "is no report of dlcheck"
        raise ValueError(f"{found}; {SCHEMA!r} can be read")
    try:
        return _report(data)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise ValueError(f"is no whole report: {type(error).__name__}: {error}") from error


def _report(data: dict[str, Any]) -> Report:
    return Report(
        command=str(data["command"]),
        target=str(data["target"]),
        verdict=str(data["verdict"]),
        findings=tuple(_read_finding(finding) for finding in data["findings"]),
        rules=tuple(
            RuleState(str(state["rule"]), str(state["state"]), str(state["reason"]))
            for state in data["rules"]
        ),
        observation=Observation.from_json(data["observation"]),
    )


def _read_finding(data: dict[str, Any]) -> Finding:
    where = Where(**data["where"])
    if not isinstance(where.line, int | None):
        raise TypeError(f"the line {where.line!r} is no number")
    return Finding(
        message=str(data["message"]),
        where=where,
        evidence=dict(data["evidence"]),
        severity=Severity[data["severity"].upper()],
        fix=str(data["fix"]),
        code=str(data["code"]),
        rule=str(data["rule"]),
    )


def document(report: Report) -> dict[str, Any]:
    """Lay the report out as the schema orders it; values are not yet fit for JSON."""
    return {
        "schema": SCHEMA,
        "command": report.command,
        "target": report.target,
        "verdict": report.verdict,
        "seen": seen(report.observation),
        "findings": [finding_json(finding) for finding in report.findings],
        "rules": [dataclasses.asdict(state) for state in report.rules],
        "observation": report.observation.to_json(),
    }


def seen(observation: Observation) -> dict[str, Any]:
    """Sum over splits; `of` is null when one split does not know its length."""
    splits = observation.splits.values()
    known = [split.of for split in splits if split.of is not None]
    return {
        "samples": sum(split.samples for split in splits),
        "of": sum(known) if known and len(known) == len(splits) else None,
        "batches": sum(split.batches for split in splits),
        "epochs": max((split.epochs for split in splits), default=0),
        "seconds": round(sum(split.seconds for split in splits), 3),
    }


def finding_json(finding: Finding) -> dict[str, Any]:
    severity = NOTE if finding.severity is None else finding.severity
    return {
        "code": finding.code,
        "rule": finding.rule,
        "severity": severity.label,
        "message": finding.message,
        "where": dataclasses.asdict(finding.where),
        "evidence": finding.evidence,
        "fix": finding.fix,
    }


def plain(value: Any) -> Any:
    """Turn what a rule or a user's pipeline gave into what every JSON parser takes."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return _mapping(value)
    if isinstance(value, set | frozenset):
        value = sorted(value, key=lambda item: (type(item).__name__, str(item)))
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return without_surrogates(str(value))


def _mapping(value: Mapping[Any, Any]) -> dict[str, Any]:
    """Keys become text; two that read alike (1 and "1") are both kept."""
    taken: dict[str, Any] = {}
    for key, item in value.items():
        name = without_surrogates(str(key))
        while name in taken:
            name += "'"
        taken[name] = plain(item)
    return taken
