"""What a pipeline did, as plain data: numbers and strings, no tensors, no judgement.

Every process of a run writes Observations of what it saw since its last line; the parent merges
them. `merge` does not depend on the order, so runs split over machines join the same way.
"""

from __future__ import annotations

import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dlcheck.observation.contents import Boxes, Contents
from dlcheck.observation.device import Allocation, Budget, Device, Grad, Reading, Touch
from dlcheck.observation.failures import (
    Failure,
    Frame,
    SampleLeaves,
)
from dlcheck.observation.journeys import (
    Journey,
    Mix,
    Opened,
    State,
    Step,
)
from dlcheck.observation.jsonlike import (
    build,
    plain,
)
from dlcheck.observation.memory import Culprit, Held, Mark, Point, Process
from dlcheck.observation.splits import (
    MOST_FAILURES,
    MOST_FIELDS,
    MOST_STRUCTURES,
    Loader,
    ModelRun,
    Overwrite,
    Repeat,
    Split,
    Structure,
    merge_known,
)
from dlcheck.observation.steps import Line, Look, Meeting, Optimizer, Steps, Trial
from dlcheck.observation.tallies import (
    EXAMPLES,
    MOST_SHAPES,
    Field,
    Leaf,
    Runs,
    SampleId,
    Tally,
    merge_tallies,
    sample_order,
    shape_of,
    shape_text,
)

__all__ = [
    "EXAMPLES",
    "MOST_FAILURES",
    "MOST_FIELDS",
    "MOST_SHAPES",
    "MOST_STRUCTURES",
    "Allocation",
    "Boxes",
    "Budget",
    "Contents",
    "Culprit",
    "Device",
    "Failure",
    "Field",
    "Frame",
    "Grad",
    "Held",
    "Journey",
    "Leaf",
    "Line",
    "Loader",
    "Look",
    "Mark",
    "Meeting",
    "Mix",
    "ModelRun",
    "Observation",
    "Opened",
    "Optimizer",
    "Overwrite",
    "Point",
    "Process",
    "Reading",
    "Repeat",
    "Runs",
    "SampleId",
    "SampleLeaves",
    "Split",
    "State",
    "Step",
    "Steps",
    "Structure",
    "Tally",
    "Touch",
    "Trial",
    "failure_from_json",
    "merge_tallies",
    "plain",
    "sample_order",
    "shape_of",
    "shape_text",
]


@dataclass(frozen=True)
class Observation:
    """A whole run. `cut` says why it ended before its plan was done; empty when it was."""

    splits: dict[str, Split] = field(default_factory=dict)
    failures: dict[str, Failure] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    cut: str = ""

    def merge(self, other: Observation) -> Observation:
        """Join two Observations of one run."""
        splits = dict(self.splits)
        for name, split in other.splits.items():
            splits[name] = splits[name].merge(split) if name in splits else split
        return Observation(
            splits=splits,
            failures=merge_known(self.failures, other.failures, MOST_FAILURES),
            versions={**self.versions, **other.versions},
            settings={**self.settings, **other.settings},
            cut=self.cut or other.cut,
        )

    def to_json(self) -> dict[str, Any]:
        """Plain dicts and lists for `json`; defaults are left out."""
        return typing.cast("dict[str, Any]", plain(self))

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Observation:
        """Read what `to_json` wrote.

        Raises:
            TypeError: a key that this version does not know.
        """
        return build(cls, data)


def failure_from_json(data: Mapping[str, Any]) -> Failure:
    """Read one Failure as a process wrote it."""
    return build(Failure, data)
