"""Rules and what they say: Severity, Where, Finding, Rule, Report."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from dlcheck.observation import Observation, SampleId


class Severity(enum.IntEnum):
    """Earned: an error was executed or refuted, a warning inferred, a note costs time only."""

    NOTE = 0
    WARNING = 1
    ERROR = 2

    @property
    def label(self) -> str:
        """Lower-case name, as in the JSON report."""
        return self.name.lower()


NOTE, WARNING, ERROR = Severity.NOTE, Severity.WARNING, Severity.ERROR


@dataclass(frozen=True)
class Where:
    """The place of a fault. `file` and `line` are the user's source, `path` the data file."""

    split: str | None = None
    field: str | None = None
    stage: str | None = None
    sample: SampleId | None = None
    file: str | None = None
    line: int | None = None
    attribute: str | None = None
    worker: int | None = None
    path: str | None = None


@dataclass(frozen=True)
class Finding:
    """One fault. A rule gives message, where and evidence; `judge` fills in the rest.

    `explains` holds keys of the Failures that the finding accounts for.
    """

    message: str
    where: Where = Where()
    evidence: dict[str, Any] = field(default_factory=dict)
    severity: Severity | None = None
    fix: str = ""
    explains: frozenset[str] = frozenset()
    code: str = ""
    rule: str = ""


class NotApplicable(Exception):  # noqa: N818 - an outcome of a rule, not an error
    """A rule has nothing to judge here, and that is harmless; the argument says why."""


class Unobserved(Exception):  # noqa: N818 - an outcome of a rule, not an error
    """A rule should have seen something and could not; the argument says why."""


Check = Callable[[Observation], Iterator[Finding]]


@dataclass(frozen=True)
class Rule:
    """A rule with all that is ever said of it: terminal, `explain`, SARIF and pages read this."""

    code: str
    slug: str
    severity: Severity
    needs: str
    title: str
    why: str
    fix: str
    yields_to: tuple[str, ...]
    check: Check
    doc: str = ""


@dataclass(frozen=True)
class RuleState:
    """How a rule ended: ran, not-applicable or unobserved, with the reason for the latter two."""

    rule: str
    state: str
    reason: str = ""


@dataclass(frozen=True)
class Report:
    """What dlcheck says of a run; every format is rendered from it."""

    command: str
    target: str
    verdict: str
    findings: tuple[Finding, ...]
    rules: tuple[RuleState, ...]
    observation: Observation
    fail_on: Severity | None = ERROR


REGISTRY: dict[str, Rule] = {}
SHAPES, LEAK = "shapes", "leak"
# Codes that begin thus belong to `leak`, or to every command; the others to `shapes`.
OF_LEAK = ("DLC5",)
OF_BOTH = ("DLC0", "DLC101", "DLC102", "DLC103", "DLC104", "DLC105", "DLC106", "DLC108", "DLC409")
EVERY_OTHER = "*"
NEEDS = {
    "run": "",
    "loader": "no loader was built",
    "samples": "no sample was read",
    "batches": "no batch was made",
}


def rule(  # noqa: PLR0913 - the parts of a rule stand in one place, by name
    code: str,
    *,
    severity: Severity,
    needs: str,
    title: str,
    why: str,
    fix: str,
    yields_to: Collection[str] = (),
) -> Callable[[Check], Check]:
    """Register a check. Its name with dashes is the slug; its docstring says what it sees."""
    if needs not in NEEDS:
        message = f"{code} needs {needs!r}, which is none of {', '.join(NEEDS)}"
        raise ValueError(message)

    def register(check: Check) -> Check:
        slug = check.__name__.replace("_", "-")
        taken = {known.code for known in REGISTRY.values()} | set(REGISTRY)
        if code in taken or slug in taken:
            message = f"{code} {slug} is registered twice"
            raise ValueError(message)
        REGISTRY[slug] = Rule(
            code, slug, severity, needs, title, why, fix, tuple(yields_to), check,
            (check.__doc__ or "").strip(),
        )  # fmt: skip
        return check

    return register


def find_rule(name: str) -> Rule | None:
    """Look a rule up by slug or by code, in any case."""
    wanted = name.strip().lower()
    return next((r for r in REGISTRY.values() if wanted in (r.slug, r.code.lower())), None)


def judge(
    observation: Observation,
    *,
    select: Collection[str] = (),
    ignore: Collection[str] = (),
    severities: Mapping[str, Severity] | None = None,
    command: str = "",
) -> tuple[tuple[Finding, ...], tuple[RuleState, ...]]:
    """Run the rules of a command (all, without one) over an Observation.

    Rules are named by slug or code.
    """
    found: list[Finding] = []
    states: list[RuleState] = []
    for one in sorted(REGISTRY.values(), key=lambda r: r.code):
        names = {one.slug, one.code}
        if names & set(ignore) or (select and not names & set(select)):
            states.append(RuleState(one.slug, "not-applicable", "not selected"))
            continue
        other = belongs_elsewhere(one.code, command)
        if other:
            states.append(RuleState(one.slug, "not-applicable", f"belongs to `{other}`"))
            continue
        findings, state = _run(one, observation)
        level = (severities or {}).get(one.slug, (severities or {}).get(one.code))
        found += [_complete(f, one, level) for f in findings]
        states.append(state)
    kept = [f for f in found if not _silenced(f, found)]
    kept.sort(key=_order)
    return tuple(kept), tuple(states)


def belongs_elsewhere(code: str, command: str) -> str:
    """Name the command that a rule belongs to where it is another; empty where it runs."""
    owner = LEAK if code.startswith(OF_LEAK) else SHAPES
    one_family = command in (SHAPES, LEAK) and not code.startswith(OF_BOTH)
    return owner if one_family and owner != command else ""


def verdict(
    findings: Collection[Finding], states: Collection[RuleState], fail_on: Severity | None
) -> str:
    """`fail` for a finding at or above fail_on, else `incomplete` when a rule saw nothing."""
    if fail_on is not None and any((f.severity or NOTE) >= fail_on for f in findings):
        return "fail"
    return "incomplete" if any(s.state == "unobserved" for s in states) else "pass"


def _run(one: Rule, observation: Observation) -> tuple[list[Finding], RuleState]:
    missing = _missing(one.needs, observation)
    try:
        findings = [] if missing else list(one.check(observation))
    except NotApplicable as outcome:
        return [], RuleState(one.slug, "not-applicable", str(outcome))
    except Unobserved as outcome:
        return [], RuleState(one.slug, "unobserved", str(outcome))
    if findings:
        return findings, RuleState(one.slug, "ran")
    reason = missing or observation.cut
    return [], RuleState(one.slug, "unobserved" if reason else "ran", reason)


def _missing(needs: str, observation: Observation) -> str:
    """Why a rule that needs `needs` cannot judge the run; empty when it can."""
    splits = list(observation.splits.values())
    seen = {
        "run": True,
        "loader": any(s.loader for s in splits),
        "samples": any(s.samples or s.failures for s in splits),
        "batches": any(s.batches or s.failures for s in splits),
    }[needs]
    return "" if seen else observation.cut or NEEDS[needs]


def _complete(finding: Finding, one: Rule, level: Severity | None) -> Finding:
    severity = level if level is not None else finding.severity
    return dataclasses.replace(
        finding,
        code=one.code,
        rule=one.slug,
        severity=one.severity if severity is None else severity,
        fix=finding.fix or one.fix,
    )


def _silenced(finding: Finding, found: list[Finding]) -> bool:
    """Tell whether a stronger rule speaks of the same failure (or, with none, the same field)."""
    stronger = REGISTRY[finding.rule].yields_to
    for other in found:
        if other.rule == finding.rule:
            continue
        if other.rule not in stronger and EVERY_OTHER not in stronger:
            continue
        if finding.rule in REGISTRY[other.rule].yields_to and _weight(finding) > _weight(other):
            continue
        if finding.explains:
            if finding.explains <= other.explains:
                return True
        elif (finding.where.split, finding.where.field) == (other.where.split, other.where.field):
            return True
    return False


def _weight(finding: Finding) -> tuple[Severity, str]:
    """Order two rules that yield to each other: one of them must speak."""
    return finding.severity or NOTE, finding.code


def _order(finding: Finding) -> tuple[int, str, str, str, str]:
    where = finding.where
    place = f"{where.file or ''}:{where.line or 0:08d}"
    level = -(finding.severity or NOTE)
    return (level, finding.code, where.split or "", where.field or "", place + finding.message)
