"""Counts of what was seen, with the first few samples that showed it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

SampleId = int | str
EXAMPLES = 3
MOST_SHAPES = 48
REST = "..."
MOST_VALUES = 64


def sample_order(sample: SampleId) -> tuple[bool, int, str]:
    """Sort key that puts indexes before names, so that examples do not depend on arrival."""
    return (True, 0, sample) if isinstance(sample, str) else (False, sample, "")


@dataclass(frozen=True)
class Tally:
    """How often something was seen, with the first few samples that showed it."""

    n: int = 0
    at: tuple[SampleId, ...] = ()

    def merge(self, other: Tally) -> Tally:
        """Add the counts and keep the smallest examples of both."""
        at = sorted({*self.at, *other.at}, key=sample_order)[:EXAMPLES]
        return Tally(self.n + other.n, tuple(at))


def merge_tallies(a: Mapping[str, Tally], b: Mapping[str, Tally], most: int) -> dict[str, Tally]:
    """Join two counters; of more than `most` keys the later ones are counted under `...`.

    Later in the alphabet, not in time: what is kept must not depend on the order of merging.
    """
    joined = dict(a)
    for key, tally in b.items():
        joined[key] = joined[key].merge(tally) if key in joined else tally
    if len(joined) > most:
        rest = joined.pop(REST, Tally())
        for key in sorted(joined)[most:]:
            rest = rest.merge(joined.pop(key))
        if rest.n:
            joined[REST] = rest
    return joined


@dataclass(frozen=True)
class Leaf:
    """One leaf of one sample. `shape` is None where the type has none."""

    type: str
    dtype: str | None = None
    shape: tuple[int, ...] | None = None

    def text(self) -> str:
        """Render as `float32 3x64x64`, `str`, `None`."""
        if self.shape is None:
            return self.type
        return f"{self.dtype or self.type} {shape_text(self.shape)}"


def shape_text(shape: Iterable[int]) -> str:
    """Render a shape: `3x64x64`, or `scalar` for the empty one."""
    return "x".join(str(size) for size in shape) or "scalar"


def shape_of(text: str) -> tuple[int, ...] | None:
    """Read what `shape_text` wrote; None for the bucket of further shapes."""
    if text == "scalar":
        return ()
    return None if text == REST else tuple(int(size) for size in text.split("x"))


@dataclass(frozen=True)
class Runs:
    """How the values of an integer field follow one another inside batches, in drawn order.

    `single` counts the batches that hold one value only, `same` the neighbours that are equal.
    """

    batches: int = 0
    single: int = 0
    pairs: int = 0
    same: int = 0

    def merge(self, other: Runs) -> Runs:
        """Add the counts."""
        return Runs(
            self.batches + other.batches,
            self.single + other.single,
            self.pairs + other.pairs,
            self.same + other.same,
        )


@dataclass(frozen=True)
class Field:
    """All that was seen of one field, over many samples (or many batches).

    `values` counts the samples that hold each integer, of fields that hold few different ones (of
    large arrays some hundred elements were read). `constant` counts arrays of many elements
    that are all equal.
    """

    types: dict[str, Tally] = field(default_factory=dict)
    dtypes: dict[str, Tally] = field(default_factory=dict)
    shapes: dict[str, Tally] = field(default_factory=dict)
    low: float | None = None
    high: float | None = None
    nonfinite: Tally = Tally()
    grad: Tally = Tally()
    values: dict[str, Tally] = field(default_factory=dict)
    constant: Tally = Tally()
    runs: Runs = Runs()

    @property
    def n(self) -> int:
        """How many samples (or batches) had the field."""
        return sum(tally.n for tally in self.types.values())

    def merge(self, other: Field) -> Field:
        """Join what two processes saw of the field."""
        lows = [x for x in (self.low, other.low) if x is not None]
        highs = [x for x in (self.high, other.high) if x is not None]
        return Field(
            types=merge_tallies(self.types, other.types, MOST_SHAPES),
            dtypes=merge_tallies(self.dtypes, other.dtypes, MOST_SHAPES),
            shapes=merge_tallies(self.shapes, other.shapes, MOST_SHAPES),
            low=min(lows, default=None),
            high=max(highs, default=None),
            nonfinite=self.nonfinite.merge(other.nonfinite),
            grad=self.grad.merge(other.grad),
            values=merge_tallies(self.values, other.values, MOST_VALUES),
            constant=self.constant.merge(other.constant),
            runs=self.runs.merge(other.runs),
        )
