"""What counts as growth: not warm-up, not a jump, not what levels off, not noise."""

from __future__ import annotations

import random

import pytest

from dlcheck.growth import (
    COPYING,
    FLAT,
    GROWING,
    SATURATING,
    UNKNOWN,
    Growth,
    growth_of,
    growths,
    slope,
)
from dlcheck.observation import Process
from tests.lives import KIB, MIB, nothing, process, split_of, steady


def heap(*processes: Process) -> Growth:
    found = growth_of(split_of(*processes), "heap", processes[0].role)
    assert found is not None
    return found


def test_256_bytes_a_sample_are_growth() -> None:
    found = heap(*(process("worker", steady(2560), number=n, seed=n) for n in (0, 1)))
    assert (found.state, found.sure, found.processes) == (GROWING, True, 2)
    assert found.per_sample == pytest.approx(256)
    assert found.per_epoch == 15 * 2560


def test_twenty_clean_runs_are_flat() -> None:
    runs = [heap(process(seed=seed, noise=6000)) for seed in range(20)]
    assert {run.state for run in runs} == {FLAT}


def test_warm_up_of_the_first_epoch_is_no_growth() -> None:
    assert heap(process(adds=lambda epoch, *_: 0 if epoch else MIB)).state == FLAT


def test_one_late_jump_is_flat_and_asks_for_more_epochs() -> None:
    found = heap(process(adds=lambda *at: 3 * MIB if at[2] == 40 else 0))
    assert (found.state, found.late) == (FLAT, True)


def test_a_jump_in_each_epoch_is_not_sure() -> None:
    found = heap(process(adds=lambda *at: MIB if at[2] in (20, 40) else 0))
    assert (found.state, found.sure) == (GROWING, False)


def test_every_seventh_batch_is_growth_and_sure() -> None:
    keeps = lambda *at: 300 * KIB if at[2] % 7 == 0 else 0  # noqa: E731
    found = heap(process(adds=keeps, batches=30))
    assert (found.state, found.sure) == (GROWING, True)


def test_what_halves_from_epoch_to_epoch_saturates() -> None:
    found = heap(process(adds=lambda epoch, *_: MIB // 2**epoch))
    assert (found.state, found.sure) == (SATURATING, False)


def test_one_release_among_many_epochs_is_tolerated() -> None:
    dropped = lambda *at: -40 * KIB if at[2] == 50 else 4 * KIB  # noqa: E731
    assert heap(process(adds=dropped, epochs=6)).state == GROWING


def test_growth_below_the_scatter_of_batches_is_noise() -> None:
    found = heap(process(adds=steady(KIB), noise=200 * KIB))
    assert found.state == FLAT
    assert found.noise > 15 * KIB


def test_workers_of_one_epoch_are_judged_inside_their_lives() -> None:
    lives = [
        process("worker", steady(MIB), epochs=1, born=epoch, number=n, seed=n)
        for epoch in range(3)
        for n in range(2)
    ]
    found = heap(*lives)
    assert (found.state, found.within, found.of) == (GROWING, True, 6)
    assert found.per_sample == pytest.approx(MIB / 10)


def test_what_each_generation_inherits_is_not_its_own() -> None:
    """The main process leaks, and every new worker starts from what it holds."""
    lives = []
    for epoch in range(3):
        life = process("worker", epochs=1, born=epoch, number=0, seed=epoch)
        grown = tuple(
            type(m)(**{**vars(m), "heap": (m.heap or 0) + epoch * 30 * MIB}) for m in life.marks
        )
        lives.append(Process("worker", 0, epoch, marks=grown, points=life.points))
    assert heap(*lives).state == FLAT


def test_the_warm_up_of_a_short_life_is_no_growth() -> None:
    opens = lambda *at: 2 * MIB if at[1] < 3 else 0  # noqa: E731
    lives = [process("worker", opens, epochs=1, born=e, number=0, seed=e) for e in range(3)]
    assert heap(*lives).state == FLAT


def test_private_pages_of_a_worker_that_holds_no_more_are_copies() -> None:
    def pages(made: int) -> dict[str, int]:
        return {"private_dirty": 20 * MIB + made * MIB, "anonymous": 300 * MIB}

    found = growth_of(split_of(process("worker", number=0, counts=pages)), "copied", "worker")
    assert found is not None
    assert found.state == COPYING


def test_private_pages_of_what_is_newly_held_are_no_copies() -> None:
    def pages(made: int) -> dict[str, int]:
        return {"private_dirty": 20 * MIB + made * MIB, "anonymous": 300 * MIB + made * MIB}

    found = growth_of(split_of(process("worker", number=0, counts=pages)), "copied", "worker")
    assert found is not None
    assert found.state == FLAT


def test_each_handle_more_counts() -> None:
    leaking = process(counts=lambda made: {"handles": 10 + made // 15})
    (found,) = [g for g in growths(split_of(leaking)) if g.resource == "handles"]
    assert (found.state, found.sure, found.per_epoch) == (GROWING, True, 1)


def test_one_epoch_of_a_process_with_one_mark_is_unknown() -> None:
    whole = process(epochs=1)
    assert heap(Process("main", marks=whole.marks[:1])).state == UNKNOWN


def test_a_slope_is_not_bent_by_outliers() -> None:
    chance = random.Random(0)
    line = [(n, 5 * n + (1000 if chance.random() < 0.2 else 0)) for n in range(60)]
    assert slope(line) == pytest.approx(5, abs=1)


def test_nothing_is_judged_where_nothing_was_read() -> None:
    assert growths(split_of(Process("main"))) == []
    assert growth_of(split_of(process(adds=nothing)), "heap", "worker") is None
