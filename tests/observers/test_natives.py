"""What a line adds to the heap is taken off again when it is freed, the nearest size first."""

from __future__ import annotations

import pytest

from dlcheck.observers.allocations import kept
from dlcheck.observers.natives import _taken
from dlcheck.observers.starters import Place

A, B = Place("a.py", 1, "f"), Place("a.py", 2, "f")


@pytest.mark.parametrize(
    ("freed", "left"),
    [
        pytest.param(1000, [(B, 300), (A, 5000)], id="the same size, latest first"),
        pytest.param(310, [(A, 1000), (A, 5000)], id="nearly the same size"),
        pytest.param(5800, [(A, 200), (B, 300)], id="the largest, then a part of the next"),
        pytest.param(100_000, [], id="more than is known"),
    ],
)
def test_what_is_freed_is_taken_from_what_was_remembered(freed: int, left: list[object]) -> None:
    entries = [(A, 1000), (B, 300), (A, 5000)]
    _taken(entries, freed)
    assert entries == left


def test_lines_that_grew_at_each_look_come_before_those_that_grew_once() -> None:
    once, steady, flat = ("a.py", 1), ("a.py", 2), ("a.py", 3)
    helds = [
        {flat: (9000, 9)},
        {once: (50_000, 1), steady: (1000, 1), flat: (9000, 9)},
        {once: (50_000, 1), steady: (2000, 2), flat: (9000, 9)},
    ]
    assert kept(helds) == [(steady, [1000, 1000], 2), (once, [50_000, 0], 1)]
