"""The rules, one file a family. Importing this package fills `dlcheck.findings.REGISTRY`."""

from __future__ import annotations

from dlcheck.rules import (
    colour,
    contract,
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
    "colour",
    "contract",
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
