"""Parts of a process's life join to one, in any order, and stay few however long it is."""

from __future__ import annotations

import itertools

from dlcheck.observation import Held, Mark, Point, Process
from dlcheck.observation.memory import MOST_MARKS, MOST_POINTS


def life(epochs: range, batches: int = 10) -> Process:
    marks, points = [], []
    for epoch, batch in itertools.product(epochs, range(batches)):
        done = epoch * batches + batch + 1
        at = {0: "begin", batches - 1: "end"}.get(batch, "within")
        marks.append(Mark(epoch, at, done, done))
        points.append(Point(epoch, done, heap=done))
    held = {"dataset.kept": Held("self.kept", "list", lengths=tuple(range(epochs.stop + 1)))}
    return Process(pid=1, marks=tuple(marks), points=tuple(points), held=held)


def test_parts_join_in_any_order() -> None:
    parts = [life(range(2)), life(range(2, 3)), life(range(3, 5))]
    whole = [order[0].merge(order[1]).merge(order[2]) for order in itertools.permutations(parts)]
    assert all(one == whole[0] for one in whole)
    assert [mark.batches for mark in whole[0].marks] == list(range(1, 51))
    assert whole[0].held["dataset.kept"].lengths == (0, 1, 2, 3, 4, 5)


def test_very_many_marks_leave_the_ends_of_epochs() -> None:
    joined = life(range(30), 20).merge(life(range(30, 60), 20))
    assert len(joined.marks) <= MOST_MARKS
    assert [mark.epoch for mark in joined.marks if mark.at == "end"] == list(range(60))


def test_very_many_points_are_thinned_evenly_to_the_last() -> None:
    joined = life(range(30), 20).merge(life(range(30, 60), 20))
    samples = [point.samples for point in joined.points]
    assert len(samples) <= MOST_POINTS
    assert (samples[0], samples[-1]) == (1, 1200)
    assert max(b - a for a, b in itertools.pairwise(samples)) <= 8
