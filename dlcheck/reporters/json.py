"""The JSON report, version 1: for other programs, and for `--save`."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any

from dlcheck.findings import NOTE, Finding, Report
from dlcheck.observation import Observation
from dlcheck.reporters.visible import without_surrogates

SCHEMA = "dlcheck/1"


def render(report: Report) -> str:
    """Render as one ASCII JSON document in a fixed order of keys."""
    text = json.dumps(_plain(document(report)), indent=2, allow_nan=False)
    return text + "\n"


def document(report: Report) -> dict[str, Any]:
    """Lay the report out as the schema orders it; values are not yet fit for JSON."""
    return {
        "schema": SCHEMA,
        "command": report.command,
        "target": report.target,
        "verdict": report.verdict,
        "seen": _seen(report.observation),
        "findings": [_finding(finding) for finding in report.findings],
        "rules": [dataclasses.asdict(state) for state in report.rules],
        "observation": report.observation.to_json(),
    }


def _seen(observation: Observation) -> dict[str, Any]:
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


def _finding(finding: Finding) -> dict[str, Any]:
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


def _plain(value: Any) -> Any:
    """Turn what a rule or a user's pipeline gave into what every JSON parser takes."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return _plain_mapping(value)
    if isinstance(value, set | frozenset):
        value = sorted(value, key=lambda item: (type(item).__name__, str(item)))
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return without_surrogates(str(value))


def _plain_mapping(value: Mapping[Any, Any]) -> dict[str, Any]:
    """Keys become text; two that read alike (1 and "1") are both kept."""
    plain: dict[str, Any] = {}
    for key, item in value.items():
        name = without_surrogates(str(key))
        while name in plain:
            name += "'"
        plain[name] = _plain(item)
    return plain
