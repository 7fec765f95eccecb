"""What a chain is made of: its stages, and the findings that they bear."""

from __future__ import annotations

from dataclasses import dataclass

from dlcheck.observation.pictures import Picture


@dataclass(frozen=True)
class Blame:
    """A finding that speaks of a stage: its number in the report, rule and severity."""

    number: int
    rule: str
    severity: str


@dataclass(frozen=True)
class Stage:
    """One box of the chain. `kind` is file, sample, stage, raised, batch, model, refused or gap.

    `looks` is (shape, dtype, layout, range) and `changed` tells which of them this stage changed.
    `share` is its part in the time of the whole way.
    """

    kind: str
    title: str
    looks: tuple[str, str, str, str] = ("", "", "", "")
    changed: tuple[bool, bool, bool, bool] = (False, False, False, False)
    detail: str = ""
    place: str = ""
    code: str = ""
    file: str = ""
    line: int = 0
    seconds: float = 0.0
    share: float = 0.0
    picture: Picture | None = None
    blames: tuple[Blame, ...] = ()


@dataclass(frozen=True)
class Chain:
    """The way of one field of one sample."""

    title: str
    stages: tuple[Stage, ...]
    note: str = ""

    @property
    def blames(self) -> set[int]:
        """The numbers of the findings that one of its stages bears."""
        return {blame.number for stage in self.stages for blame in stage.blames}
