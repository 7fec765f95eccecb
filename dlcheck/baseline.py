"""Findings that were there before: accepted by a file, so that a gate speaks of new ones only."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlcheck.config import UserError
from dlcheck.findings import NOTE, Finding, Report, Severity, verdict
from dlcheck.reporters import source
from dlcheck.reporters.visible import visible

SCHEMA = "dlcheck-baseline/1"
# What these find keeps the other rules from seeing anything: accepting it would accept all.
NEVER = "DLC0"
MOST_MESSAGE = 200
DIGITS = 20
INSTALLED = ("site-packages", "dist-packages")


@dataclass(frozen=True)
class Entry:
    """One accepted fault: its key, how often it was found, how severe it was, and words for it."""

    key: str
    rule: str
    severity: str
    count: int = 1
    where: str = ""
    message: str = ""


def key_of(finding: Finding, report: Report, folder: str) -> str:
    """Name a fault so that moved lines, other samples and other figures leave the name alone.

    Rule, split, field and attribute, and the text of the guilty line with its file; `folder` is
    the config's, so that a checkout may lie anywhere. Where no line is named the stage counts.
    """
    where = finding.where
    text = source.line(where.file, where.line, report.observation) if where.file else ""
    words = " ".join(text.split())
    parts = [
        finding.rule, where.split, where.field, where.attribute,
        _relative(where.file, folder) if where.file else None,
        words or where.stage,
    ]  # fmt: skip
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:DIGITS]


def read(path: Path) -> list[Entry]:
    """Read a baseline.

    Raises:
        UserError: there is none, or it is none.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["schema"] != SCHEMA:
            message = f"{path}: its schema is {data['schema']!r}, wanted {SCHEMA!r}"
            raise UserError(message, "write it anew with --update-baseline")
        return [_entry(one) for one in data["findings"]]
    except FileNotFoundError as error:
        hint = "write it with --update-baseline once the findings are accepted"
        raise UserError(f"there is no baseline {path}", hint) from error
    except OSError as error:
        raise UserError(f"cannot read the baseline {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        message = f"{path} is no baseline: {type(error).__name__}: {error}"
        raise UserError(message, "write it anew with --update-baseline") from error


def _entry(data: dict[str, Any]) -> Entry:
    one = Entry(**data)
    Severity[one.severity.upper()]
    if not isinstance(one.count, int):
        raise TypeError(f"count is {one.count!r}")
    return one


def entries(report: Report, folder: str, before: Iterable[Entry] = ()) -> list[Entry]:
    """List what a report finds as a baseline; the words of what was known stay as they were."""
    known = {one.key: one for one in before}
    found: dict[str, Entry] = {}
    for finding in report.findings:
        if finding.code.startswith(NEVER):
            continue
        key = key_of(finding, report, folder)
        if key in found:
            count = found[key].count + 1
            worst = max(_level(finding), Severity[found[key].severity.upper()])
            found[key] = dataclasses.replace(found[key], count=count, severity=worst.label)
            continue
        old = known.get(key)
        found[key] = Entry(
            key, finding.rule, _level(finding).label, 1, _place(finding, folder),
            old.message if old else visible(finding.message.splitlines()[0])[:MOST_MESSAGE],
        )  # fmt: skip
    return sorted(found.values(), key=lambda one: (one.rule, one.where, one.key))


def write(path: Path, listed: Iterable[Entry]) -> None:
    """Write a baseline whole, for people to review as a diff.

    Raises:
        UserError: it cannot be written.
    """
    data = {"schema": SCHEMA, "findings": [dataclasses.asdict(one) for one in listed]}
    draft = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        draft.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8", newline="\n")
        draft.replace(path)
    except OSError as error:
        raise UserError(f"cannot write the baseline {path}: {error.strerror}") from error


def without_known(report: Report, listed: Iterable[Entry], folder: str, name: str) -> Report:
    """Take what a baseline accepts out of a report, and write into it how much that was.

    A fault that got more severe, or is found more often than it was accepted, is new.
    """
    room = {one.key: one for one in listed}
    met: Counter[str] = Counter()
    new: list[Finding] = []
    for finding in report.findings:
        key = key_of(finding, report, folder)
        one = room.get(key)
        if one and met[key] < one.count and _level(finding) <= Severity[one.severity.upper()]:
            met[key] += 1
        else:
            new.append(finding)
    ran = {state.rule for state in report.rules if state.state == "ran"}
    gone = [one.key for key, one in room.items() if not met[key] and one.rule in ran]
    facts = {"file": name, "known": met.total(), "gone": gone}
    seen = report.observation
    seen = dataclasses.replace(seen, settings={**seen.settings, "baseline": facts})
    result = verdict(new, report.rules, report.fail_on)
    return dataclasses.replace(report, findings=tuple(new), verdict=result, observation=seen)


def _level(finding: Finding) -> Severity:
    return NOTE if finding.severity is None else finding.severity


def _relative(file: str, folder: str) -> str:
    """Name a file alike on every machine: from the config, or from site-packages."""
    parts = Path(file).parts
    inside = next((n for n in range(len(parts) - 1, -1, -1) if parts[n] in INSTALLED), None)
    if inside is not None:
        return "/".join(parts[inside + 1 :])
    try:
        return Path(os.path.relpath(file, folder)).as_posix()
    except ValueError:  # another drive
        return Path(file).name


def _place(finding: Finding, folder: str) -> str:
    where = finding.where
    file = _relative(where.file, folder) if where.file else None
    parts = (where.split, where.field, where.attribute or where.stage, file)
    return visible(" ".join(part for part in parts if part))
