"""The rules, one file a family. Importing this package fills `dlcheck.findings.REGISTRY`."""

from __future__ import annotations

from dlcheck.rules import (
    boxes,
    colour,
    contract,
    dtypes,
    equal,
    finite,
    labels,
    layout,
    masks,
    mixing,
    overflow,
    pairs,
    reading,
    run,
    scaling,
    shapes,
    splits,
    strides,
)

__all__ = [
    "boxes",
    "colour",
    "contract",
    "dtypes",
    "equal",
    "finite",
    "labels",
    "layout",
    "masks",
    "mixing",
    "overflow",
    "pairs",
    "reading",
    "run",
    "scaling",
    "shapes",
    "splits",
    "strides",
]
