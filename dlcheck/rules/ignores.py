"""DLC003: what the config's own ignores have come to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dlcheck.findings import NOTE, WARNING, Finding, NotApplicable, Where, rule
from dlcheck.observation import Observation


@rule(
    "DLC003",
    severity=WARNING,
    needs="run",
    title="An ignore of the config has expired, or ignores nothing",
    why="An ignore that outlives its reason hides the next fault of the same kind.",
    fix="Remove the ignore; where the fault is still there and still accepted, give it a later "
    "`until`.",
)
def stale_ignore(obs: Observation) -> Iterator[Finding]:
    """Fire for each ignore whose `until` is over, and (a note) whose rule found nothing to ignore.

    A rule that could not be judged says nothing of its ignore.
    """
    ignores = obs.settings.get("ignores") or {}
    if not ignores:
        raise NotApplicable("the config ignores no rule")
    for slug, facts in ignores.items():
        if facts["expired"]:
            yield _expired(slug, facts)
        elif facts["used"] is False:
            yield _unused(slug, facts)


def _expired(slug: str, facts: Mapping[str, Any]) -> Finding:
    gone = "; it finds nothing any more" if facts["used"] is False else ""
    message = f"the ignore of {slug} ended on {facts['until']} ({facts['reason']}){gone}"
    return Finding(message, _where(facts), {"ignored": slug, **facts}, WARNING)


def _unused(slug: str, facts: Mapping[str, Any]) -> Finding:
    message = f"{slug} is ignored ({facts['reason']}) and found nothing"
    return Finding(message, _where(facts), {"ignored": slug, **facts}, NOTE)


def _where(facts: Mapping[str, Any]) -> Where:
    return Where(file=facts.get("file"), line=facts.get("line"))
