"""What samples held: equal arrays, and boxes with their faults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dlcheck.observation.tallies import SampleId, Tally, merge_tallies, sample_order

MOST_CONTENTS = 16_384
MOST_EQUAL = 8
MOST_FAULTS = 24
BUCKET = 2
MOST_IN_BUCKET = MOST_CONTENTS // 16**BUCKET


@dataclass(frozen=True)
class Contents:
    """What arrays a field held, by a hash of each, with the smallest few samples that held it.

    Of very many the smallest hashes are kept: a fair sample of the different ones, so that equal
    arrays of two processes meet. They stand in buckets by the end of the hash, since a merge
    copies what it changes.
    """

    n: int = 0
    buckets: dict[str, dict[str, tuple[SampleId, ...]]] = field(default_factory=dict)

    @classmethod
    def of(cls, seen: Mapping[str, tuple[SampleId, ...]], n: int | None = None) -> Contents:
        """Make one of hashes and the samples that held them."""
        buckets: dict[str, dict[str, tuple[SampleId, ...]]] = {}
        for key, ids in seen.items():
            buckets.setdefault(key[-BUCKET:], {})[key] = tuple(ids)
        return cls(sum(map(len, seen.values())) if n is None else n, buckets)

    @property
    def seen(self) -> dict[str, tuple[SampleId, ...]]:
        """All hashes with the samples that held them."""
        return {key: ids for bucket in self.buckets.values() for key, ids in bucket.items()}

    def merge(self, other: Contents) -> Contents:
        """Join what two processes saw."""
        joined = dict(self.buckets)
        for end, theirs in other.buckets.items():
            bucket = dict(joined.get(end, {}))
            for key, ids in theirs.items():
                bucket[key] = _few(bucket.get(key), ids)
            if len(bucket) > 2 * MOST_IN_BUCKET:
                bucket = {key: bucket[key] for key in sorted(bucket)[:MOST_IN_BUCKET]}
            joined[end] = bucket
        return Contents(self.n + other.n, joined)


def _few(known: tuple[SampleId, ...] | None, ids: tuple[SampleId, ...]) -> tuple[SampleId, ...]:
    if known is None or known == ids:
        return ids
    return tuple(sorted({*known, *ids}, key=sample_order)[:MOST_EQUAL])


@dataclass(frozen=True)
class Boxes:
    """What is amiss with the boxes of a field, read in each of the usual formats.

    `faults` counts samples, `boxes` the boxes, by `format.fault`: `xyxy.inverted` (x2 < x1),
    `xyxy.flat`, `xyxy.outside` (by more than a pixel), the same for xywh and cxcywh. `worst` holds
    the first box of each with its image: (a, b, c, d, width, height). `formats` are those that the
    tensors themselves name. `n` counts boxes, `sized` those whose image is known, `unit` the
    arrays that lie within 0 and 1, `empty` the arrays without a box.
    """

    n: int = 0
    arrays: int = 0
    sized: int = 0
    unit: int = 0
    empty: int = 0
    high: float = 0.0
    faults: dict[str, Tally] = field(default_factory=dict)
    boxes: dict[str, int] = field(default_factory=dict)
    formats: dict[str, Tally] = field(default_factory=dict)
    worst: dict[str, tuple[float, ...]] = field(default_factory=dict)

    def merge(self, other: Boxes) -> Boxes:
        """Join what two processes saw; the example is that of the smaller sample."""
        worst = dict(other.worst)
        for key, box in self.worst.items():
            mine, theirs = self.faults[key].at, other.faults.get(key, Tally()).at
            if key not in worst or not theirs or sample_order(mine[0]) <= sample_order(theirs[0]):
                worst[key] = box
        counts = {
            key: self.boxes.get(key, 0) + other.boxes.get(key, 0)
            for key in dict.fromkeys([*self.boxes, *other.boxes])
        }
        return Boxes(
            n=self.n + other.n,
            arrays=self.arrays + other.arrays,
            sized=self.sized + other.sized,
            unit=self.unit + other.unit,
            empty=self.empty + other.empty,
            high=max(self.high, other.high),
            faults=merge_tallies(self.faults, other.faults, MOST_FAULTS),
            boxes=counts,
            formats=merge_tallies(self.formats, other.formats, MOST_FAULTS),
            worst=worst,
        )
