"""What stands between loader and step: it moves, hands over, lets go and reads, in that order."""

from __future__ import annotations

import gc
import json
import weakref
from typing import Any

import pytest

from dlcheck.observation import Device
from dlcheck.observers.device import EACH, FIRST_LOOK, Figures, Live, OnDevice, census, grown

USER = ("/job/train.py", 12, "step")
LIBRARY = ("/env/lib/python3.11/site-packages/torch/nn/functional.py", 90, "relu")


class Recorded:
    """An accelerator that answers from a list of figures, and remembers what was asked of it."""

    name = "cuda:0"

    def __init__(self, allocated: list[int] | None = None, *, holds: bool = True) -> None:
        self.allocated = allocated or []
        self.model_is_here = holds
        self.calls: list[str] = []
        self.live: list[Live] = []

    def facts(self) -> Device:
        return Device(name=self.name, total=100)

    def move(self, batch: Any) -> tuple[Any, int]:
        self.calls.append("move")
        return Batch(f"{batch.name} there"), 7

    def figures(self) -> Figures:
        self.calls.append("read")
        live = self.allocated.pop(0) if self.allocated else 0
        return Figures(live, live + 1, live + 2, None)

    def blocks(self) -> list[Live]:
        self.calls.append("blocks")
        return self.live

    def holds(self, step: Any) -> bool:
        return self.model_is_here

    def stop(self) -> None:
        self.calls.append("stop")


class Batch:
    def __init__(self, name: str) -> None:
        self.name = name


class Notes(list[dict[str, Any]]):
    def all(self) -> Device:
        found = Device()
        for part in self:
            from dlcheck.observation import Observation

            line = json.loads(json.dumps({"splits": {"": {"device": part}}}))
            device = Observation.from_json(line).splits[""].device
            assert device is not None
            found = found.merge(device)
        return found


def test_the_device_is_read_when_the_moved_batch_is_gone() -> None:
    notes, device, moved = Notes(), Recorded([5]), []

    def step(batch: Batch) -> None:
        device.calls.append("step")
        moved.append(weakref.ref(batch))

    def read() -> Figures:
        gc.collect()
        assert moved[0]() is None
        return Figures(5, 6, 7, 8)

    device.figures = read  # type: ignore[method-assign]
    OnDevice(notes.append, device).give(Batch("b"), step)
    assert device.calls == ["move", "step"]
    (reading,) = notes.all().readings
    assert (reading.allocated, reading.reserved, reading.peak, reading.driver) == (5, 6, 7, 8)
    assert (notes.all().moved, notes.all().stepped) == (7, True)


@pytest.mark.parametrize(("holds", "given"), [(True, "b there"), (False, "b")])
def test_the_step_gets_the_batch_where_its_model_is(
    holds: bool,  # noqa: FBT001 - a column of the table
    given: str,
) -> None:
    """A step whose model stays on the CPU must not fail for our moving."""
    got = []
    OnDevice(Notes().append, Recorded(holds=holds)).give(Batch("b"), lambda b: got.append(b.name))
    assert got == [given]


def test_batches_are_moved_without_a_step_too() -> None:
    notes, device = Notes(), Recorded([5])
    OnDevice(notes.append, device).give(Batch("b"), None)
    assert device.calls == ["move", "read"]
    assert not notes.all().stepped


def test_without_a_device_the_step_gets_the_very_batch_and_nothing_is_written() -> None:
    notes, got, batch = Notes(), [], Batch("b")
    follower = OnDevice(notes.append, waiting=lambda: None)
    follower.give(batch, got.append)
    follower.give(batch, None)
    follower.finish()
    assert got == [batch]
    assert notes == []


def test_a_device_that_the_step_starts_is_read_from_then_on_and_nothing_is_moved() -> None:
    notes, device, there = Notes(), Recorded([3, 4]), []
    follower = OnDevice(notes.append, waiting=lambda: device if there else None)
    follower.give(Batch("b"), lambda _: None)
    follower.give(Batch("b"), there.append)
    follower.give(Batch("b"), lambda _: None)
    assert "move" not in device.calls
    assert [(r.batch, r.allocated) for r in notes.all().readings] == [(2, 3), (3, 4)]
    assert notes.all().total == 100


def test_what_the_step_raises_passes_through() -> None:
    def step(batch: Batch) -> None:
        raise ValueError("the user's")

    with pytest.raises(ValueError, match="the user's"):
        OnDevice(Notes().append, Recorded()).give(Batch("b"), step)


def test_long_epochs_are_read_ever_more_rarely() -> None:
    notes, device = Notes(), Recorded()
    follower = OnDevice(notes.append, device)
    for _ in range(4 * EACH):
        follower.give(Batch("b"), None)
    read = [reading.batch for reading in notes.all().readings]
    assert read[:EACH] == list(range(1, EACH + 1))
    assert read[EACH : EACH + 2] == [EACH + 2, EACH + 4]
    assert len(read) < 2.5 * EACH


def test_lines_that_hold_more_than_after_the_first_epoch_are_told() -> None:
    notes, device = Notes(), Recorded()
    follower = OnDevice(notes.append, device)
    device.live = [Live(100, (USER,))]
    follower.give(Batch("b"), None, epoch=0)
    follower.give(Batch("b"), None, epoch=1)
    device.live = [Live(100, (USER,)), Live(50, (LIBRARY, USER))]
    follower.finish()
    (one,) = notes.all().allocations.values()
    assert (one.file, one.line, one.function) == USER
    assert (one.first, one.last, one.blocks) == (100, 150, 2)
    assert device.calls[-1] == "stop"


def test_the_first_epoch_with_a_step_is_what_later_ones_are_compared_with() -> None:
    notes, device = Notes(), Recorded()
    follower = OnDevice(notes.append, device)
    for epoch, size in enumerate((0, 100, 150)):
        follower.give(Batch("b"), (lambda _: None) if epoch else None, epoch)
        device.live = [Live(size, (USER,))]
    follower.finish()
    assert [(one.first, one.last) for one in notes.all().allocations.values()] == [(100, 150)]


def test_one_epoch_is_compared_with_its_first_batches() -> None:
    notes, device = Notes(), Recorded()
    follower = OnDevice(notes.append, device)
    for _ in range(FIRST_LOOK + 1):
        follower.give(Batch("b"), None)
    device.live = [Live(50, (USER,))]
    follower.finish()
    assert [one.last for one in notes.all().allocations.values()] == [50]


def test_blocks_without_a_line_of_the_users_are_nobodys() -> None:
    assert census([Live(1, ()), Live(2, (LIBRARY,))]) == {}


def test_the_most_grown_line_comes_first_and_what_shrank_is_left_out() -> None:
    other, less = ("/job/train.py", 20, "log"), ("/job/train.py", 30, "fit")
    first = census([Live(10, (USER,)), Live(90, (less,))])
    last = census([Live(20, (USER,)), Live(70, (other,)), Live(80, (less,))])
    assert [(one.line, one.first, one.last) for _, one in grown(first, last)] == [
        (20, 0, 70),
        (12, 10, 20),
    ]
