"""Trace a sample from the building of its pipeline on, where a dataset prepares what it holds.

The pipeline is built once more, in a fork of the probe that has a limit: what its constructor
makes of an array is then part of the sample's way.
"""

from __future__ import annotations

import dataclasses
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlcheck.observation import SampleId, Step
from dlcheck.run import replay
from dlcheck.run.target import build

MOST_SECONDS = 6.0
LIMIT = 12.0
FOLDER = "again"


@dataclass(frozen=True)
class Recipe:
    """How a target was built, and the seconds that it took."""

    name: str
    spec: dict[str, Any]
    seconds: float

    def cheap(self) -> bool:
        """Tell whether building again is worth its time."""
        return self.seconds <= MOST_SECONDS


def drawing(recipe: Recipe, key: str, sample: SampleId) -> Callable[[], Any]:
    """Return a function that builds the target anew and draws a sample as a journey does."""

    def made() -> Any:
        dataset = build(recipe.name, recipe.spec)[key].dataset
        replay.seed_all(0)
        return dataset[sample]

    return made


def prepared(steps: tuple[Step, ...], drawn: tuple[Step, ...]) -> tuple[Step, ...]:
    """Keep, of a way from the building on, what led to the sample and what its draw did.

    Empty when nothing before the draw led to it. `drawn` is the way of the draw alone.
    """
    places = {(step.file, step.line, step.function) for step in drawn}
    of_draw = [(step.file, step.line, step.function) in places for step in steps]
    if not any(step.fields and not draw for step, draw in zip(steps, of_draw, strict=True)):
        return ()
    kept = [n for n, step in enumerate(steps) if step.fields or of_draw[n]]
    place = {number: index for index, number in enumerate(kept)}
    return tuple(
        dataclasses.replace(
            steps[n], sources=tuple(place[s] for s in steps[n].sources if s in place)
        )
        for n in kept
    )


def aside(folder: str) -> None:
    """Let what user code writes to a temporary folder of its own end with the run."""
    place = str(Path(folder) / FOLDER)
    Path(place).mkdir(exist_ok=True)
    os.environ["TMPDIR"] = place
    tempfile.tempdir = place
