"""The batch that fits a device, margins included."""

from __future__ import annotations

import dataclasses

import pytest

from dlcheck.footprint import CONTEXT, largest_batch, needed
from dlcheck.observation import Budget

MIB, GIB = 1 << 20, 1 << 30
BUDGET = Budget(
    peak=1324 * MIB, parameters=100 * MIB, optimizer_state=200 * MIB, fixed=300 * MIB,
    per_sample=32 * MIB, batch=32,
)  # fmt: skip


def test_margins_are_a_tenth_and_the_context() -> None:
    assert needed(BUDGET) == round(1324 * MIB * 1.1) + CONTEXT


@pytest.mark.parametrize("room", [2 * GIB, 4 * GIB, 8 * GIB])
def test_the_largest_batch_fits_and_one_more_does_not(room: int) -> None:
    batch = largest_batch(BUDGET, room)
    assert batch

    def peak(size: int) -> int:
        return BUDGET.fixed + size * BUDGET.per_sample

    fits, over = (dataclasses.replace(BUDGET, peak=peak(n)) for n in (batch, batch + 1))
    assert needed(fits) <= room + 1
    assert needed(over) > room


def test_what_is_held_without_a_batch_decides_first() -> None:
    assert largest_batch(BUDGET, 900 * MIB) == 0


def test_no_figure_where_the_batch_is_no_matter() -> None:
    assert largest_batch(dataclasses.replace(BUDGET, per_sample=0), GIB) is None
