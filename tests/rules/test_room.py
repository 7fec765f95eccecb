"""Sizes as people write them, and how long growth takes to fill the room there is."""

from __future__ import annotations

import pytest

from dlcheck.observation import Observation
from dlcheck.rules.room import bytes_of, duration, filled, room, size


@pytest.mark.parametrize(
    ("said", "meant"),
    [("24GiB", 24 << 30), ("512 MB", 512_000_000), ("1.5k", 1500), (64, 64), ("lots", None)],
)
def test_sizes_are_read(said: object, meant: int | None) -> None:
    assert bytes_of(said) == meant


def test_sizes_are_rendered_in_three_digits() -> None:
    assert [size(n) for n in (12, 1536, 300 << 20, -(5 << 30))] == [
        "12 bytes", "1.5 KiB", "300 MiB", "-5 GiB",
    ]  # fmt: skip


def test_the_declared_machine_goes_before_the_one_that_runs_us() -> None:
    limits = {"memory": 8 << 30, "memory_from": "cgroup", "shm": 1 << 30, "handles": 1024}
    assert room(Observation(settings={"limits": limits})).where == "this container"
    declared = Observation(settings={"limits": limits, "machine": {"memory": "64GiB"}})
    assert (room(declared).memory, room(declared).where) == (64 << 30, "`machine`")
    assert room(declared).handles == 1024


def test_room_is_full_after_epochs_and_hours() -> None:
    assert filled(100, 10, 720) == "after 10 epochs, about 2 hours"
    assert filled(100, 40, None) == "after 2.5 epochs"
    assert filled(1e12, 1, 60) == ""
    assert duration(3 * 86_400) == "3 days"
