"""What a reader must know of a run besides its findings: who read it, and what is not shown."""

from __future__ import annotations

from collections.abc import Mapping

from dlcheck.observation import Observation


def asides(observation: Observation) -> list[str]:
    """Say it in a line each; user text in them is not yet harmless."""
    found = []
    ranks = observation.settings.get("ranks")
    if ranks:
        found.append(f"read by {ranks} ranks")
    accepted = observation.settings.get("baseline")
    if isinstance(accepted, Mapping):
        found.append(_accepted(accepted))
    return found


def _accepted(facts: Mapping[str, object]) -> str:
    known, gone, file = facts.get("known", 0), facts.get("gone", ()), facts.get("file", "")
    text = f"{known} known {'finding' if known == 1 else 'findings'} left out, as {file} says"
    count = len(gone) if isinstance(gone, list | tuple) else 0
    if count:
        entries = "1 of its entries is" if count == 1 else f"{count} of its entries are"
        text += f"; {entries} found no more (--update-baseline drops them)"
    return text
