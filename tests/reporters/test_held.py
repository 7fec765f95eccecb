"""Plots of processes: one life a worker number, epochs marked, what never moved in words."""

from __future__ import annotations

from dlcheck.observation import Mark, Process, Split
from dlcheck.observation.device import Device, Reading
from dlcheck.reporters.held import MOST_PROCESSES, held, on_device

MIB = 1 << 20


def marks(epochs, heap, handles=9):
    return tuple(
        Mark(epoch, at, samples=10 * epoch + (10 if at == "end" else 1),
             heap=heap + epoch * MIB, handles=handles)
        for epoch in epochs for at in ("begin", "end")
    )  # fmt: skip


def test_workers_started_again_are_one_life_whose_samples_go_on():
    lives = {f"e{n}w0": Process("worker", 0, born=n, marks=marks([0], 50 * MIB)) for n in range(3)}
    (one,), left = held(Split(processes=lives))
    assert one.title == "worker 0, started again each epoch"
    assert [x for x, _ in one.plots[0].lines[0].points] == [1, 10, 11, 20, 21, 30]
    assert left == 0


def test_epochs_are_marked_where_they_end_but_the_last():
    (one,), _ = held(Split(processes={"main": Process(marks=marks(range(3), 50 * MIB))}))
    assert one.plots[0].bounds == [10.0, 20.0]


def test_a_count_that_never_moved_is_a_word_and_no_plot():
    (one,), _ = held(Split(processes={"main": Process(marks=marks(range(3), 50 * MIB))}))
    assert one.still == "9 handles"
    assert [plot.title for plot in one.plots] == ["live heap"]


def test_of_many_workers_those_that_grew_most_are_shown():
    workers = {
        f"w{n}": Process("worker", n, marks=marks(range(n + 2), 50 * MIB), persistent=True)
        for n in range(10)
    }
    shown, left = held(Split(processes={"main": Process(marks=marks([0], MIB)), **workers}))
    assert [one.title for one in shown][:2] == ["main process", "worker 9"]
    assert (len(shown), left) == (MOST_PROCESSES, 11 - MOST_PROCESSES)


def test_a_device_shows_its_peak_allocated_and_reserved_memory():
    readings = tuple(Reading(n // 4, n, MIB, 4 * MIB, 3 * MIB) for n in range(8))
    one = on_device(Device("cuda:0", "cuda:0", "H200", total=141 << 30, readings=readings))
    assert one is not None
    assert one.plots[0].lines[0].name == "peak within a batch"
    assert one.plots[0].bounds == [4.0]
    assert "141 GiB" in one.still
    assert on_device(Device("cpu")) is None
