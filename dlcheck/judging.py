"""From what was seen to a Report: which rules run, which are ignored and until when."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timezone
from typing import Any

from dlcheck.config import Config
from dlcheck.explain import all_rules, named
from dlcheck.findings import Report, RuleState, Severity, judge, verdict
from dlcheck.observation import Observation
from dlcheck.rules.kinds import GUESS, kinds


@dataclass(frozen=True)
class Ignore:
    """A rule that the config leaves out, and why; `until` is the last day, empty for good."""

    rule: str
    reason: str
    until: str = ""
    file: str | None = None
    line: int | None = None

    def expired(self, today: date) -> bool:
        """Tell whether the last day is over."""
        return bool(self.until) and date.fromisoformat(self.until) < today


@dataclass(frozen=True)
class Choice:
    """Which rules run and how severe they are, by slug; `ignores` are the config's.

    `left_out` holds rules that do not judge such a run, each with the reason.
    """

    select: frozenset[str] = frozenset()
    ignore: frozenset[str] = frozenset()
    ignores: tuple[Ignore, ...] = ()
    severities: Mapping[str, Severity] = dataclasses.field(default_factory=dict)
    left_out: Mapping[str, str] = dataclasses.field(default_factory=dict)


def choice(
    loaded: Config, options: Mapping[str, Any], left_out: Mapping[str, str] | None = None
) -> Choice:
    """Join what the options and the config say of rules.

    Raises:
        UserError: there is no rule of a name.
    """
    all_rules()
    rules = loaded.settings.get("rules") or {}
    return Choice(
        select=rule_names(options["select"]),
        ignore=rule_names(options["ignore"]),
        ignores=tuple(_ignore(loaded, name, said) for name, said in _said(rules, "ignore")),
        severities={
            named(name).slug: Severity[level.upper()] for name, level in _said(rules, "severity")
        },
        left_out=left_out or {},
    )


def judged(command: str, loaded: Config, seen: Observation, chosen: Choice, limit: str) -> Report:
    """Run the rules; `limit` is the severity that fails a run, or `never`."""
    today = datetime.now(tz=timezone.utc).date()
    active = [one for one in chosen.ignores if not one.expired(today)]
    seen = _with_kinds(_with_ignores(seen, chosen.ignores, today, command))
    reasons = {one.rule: f"ignored: {one.reason}" for one in active} | dict(chosen.left_out)
    findings, states = judge(
        seen,
        select=chosen.select,
        ignore=chosen.ignore | set(reasons),
        severities=chosen.severities,
        command=command,
    )
    states = tuple(_explained(state, reasons) for state in states)
    fail_on = None if limit == "never" else Severity[limit.upper()]
    result = verdict(findings, states, fail_on)
    return Report(command, loaded.target, result, findings, states, seen, fail_on=fail_on)


def _with_kinds(seen: Observation) -> Observation:
    """Write down what each field is, where that is known, for the reports to show."""
    splits = {
        name: dataclasses.replace(
            split, kinds={f: k.name for f, k in kinds(split).items() if k.confidence >= GUESS}
        )
        for name, split in seen.splits.items()
    }
    return dataclasses.replace(seen, splits=splits)


def rule_names(values: Collection[str]) -> frozenset[str]:
    """Read names of rules, separated by commas or repeated, as slugs.

    Raises:
        UserError: there is no rule of a name.
    """
    words = [word.strip() for value in values for word in value.split(",")]
    return frozenset(named(word).slug for word in words if word)


def _said(rules: Mapping[str, Any], key: str) -> list[tuple[str, Any]]:
    return list((rules.get(key) or {}).items())


def _ignore(loaded: Config, name: str, said: Any) -> Ignore:
    file, line = loaded.lines.get(f"rules.ignore.{name}", (None, 0))
    # An override stands on no line of a file.
    place = (loaded.source, line) if file and line else (None, None)
    slug = named(name).slug
    if isinstance(said, Mapping):
        return Ignore(slug, str(said["reason"]), str(said.get("until") or ""), *place)
    return Ignore(slug, str(said), "", *place)


def _with_ignores(
    seen: Observation, ignores: Collection[Ignore], today: date, command: str
) -> Observation:
    """Write down what became of each ignore, which a rule judges like all else that was seen."""
    if not ignores:
        return seen
    findings, states = judge(seen, select=[one.rule for one in ignores], command=command)
    fired = {finding.rule for finding in findings}
    ran = {state.rule for state in states if state.state == "ran"}
    facts = {
        one.rule: {
            "reason": one.reason,
            "until": one.until,
            "expired": one.expired(today),
            # A rule that saw nothing says nothing of its ignore.
            "used": True if one.rule in fired else False if one.rule in ran else None,
            "file": one.file,
            "line": one.line,
        }
        for one in ignores
    }
    return dataclasses.replace(seen, settings={**seen.settings, "ignores": facts})


def _explained(state: RuleState, reasons: Mapping[str, str]) -> RuleState:
    if state.rule not in reasons:
        return state
    return dataclasses.replace(state, reason=reasons[state.rule])
