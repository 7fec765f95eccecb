"""The counters of a process: exact for what it keeps, cheap, and quiet about themselves."""

from __future__ import annotations

import gc
import os
import threading
import types
from array import array
from pathlib import Path
from typing import Any

import pytest

from dlcheck.observers import counters, handles
from dlcheck.observers.memory import Meter, bytes_of, kept

LINUX = Path("/proc/self/smaps_rollup").exists()
KIB, MIB = 1 << 10, 1 << 20
on_linux = pytest.mark.skipif(not LINUX, reason="/proc is Linux's")


@pytest.mark.skipif(counters.heap_reader() is None, reason="this libc does not count its heap")
def test_the_heap_grows_by_what_is_allocated_and_no_more() -> None:
    before = counters.heap() or 0
    block = bytearray(5 * MIB)
    assert (counters.heap() or 0) - before == pytest.approx(5 * MIB, abs=64 * KIB)
    del block
    assert (counters.heap() or 0) - before == pytest.approx(0, abs=64 * KIB)


@on_linux
def test_the_peak_forgets_what_came_before_its_reset() -> None:
    assert counters.reset_peak()
    resident = counters.status()["VmRSS"]
    del [bytearray(b"x" * (32 * MIB))][0]
    assert counters.status()["VmHWM"] - resident > 28 * MIB
    assert counters.reset_peak()
    assert counters.status()["VmHWM"] - counters.status()["VmRSS"] < 4 * MIB


@on_linux
def test_handles_are_counted_by_kind(tmp_path: Path) -> None:
    before = handles.handle_kinds() or {}
    with (tmp_path / "file").open("w"):
        read, write = os.pipe()
        after = handles.handle_kinds() or {}
        os.close(read)
        os.close(write)
    added = {kind: n - before.get(kind, 0) for kind, n in after.items()}
    assert {kind: n for kind, n in added.items() if n} == {"file": 1, "pipe": 2}


@on_linux
def test_a_thread_counts() -> None:
    done = threading.Event()
    before = counters.status()["Threads"]
    thread = threading.Thread(target=done.wait)
    thread.start()
    assert counters.status()["Threads"] == before + 1
    done.set()
    thread.join()


@pytest.mark.skipif(not hasattr(os, "fork") or not LINUX, reason="children are read from /proc")
def test_a_child_counts_until_it_is_waited_for() -> None:
    before = handles.children() or 0
    pid = os.posix_spawn("/bin/true", ["true"], {})
    assert handles.children() == before + 1
    os.waitpid(pid, 0)
    assert handles.children() == before


def test_early_batches_all_get_a_point_and_later_ones_ever_fewer() -> None:
    assert all(kept(n) for n in range(1, 129))
    assert sum(kept(n) for n in range(129, 1_000_001)) < 1_000


def metered() -> tuple[Meter, list[dict[str, Any]]]:
    parts: list[dict[str, Any]] = []
    meter = Meter(parts.append, {"role": "main"})
    meter.begin_epoch(0)
    return meter, parts


def test_points_wait_in_plain_numbers_until_they_are_written() -> None:
    meter, parts = metered()
    for _ in range(20):
        meter.made(2)
        meter.point()
    assert isinstance(meter.points, array)
    meter.flush()
    points = [point for part in parts for point in part["points"]]
    assert [point["samples"] for point in points] == list(range(2, 42, 2))
    assert not meter.points


def test_reading_leaves_nothing_in_the_heap() -> None:
    meter, _ = metered()
    for _ in range(4):
        meter.made(1)
        meter.point()
        meter.mark("within")
    heaps = [meter.read("within").get("heap", 0) for _ in range(4)]
    assert max(heaps[1:]) - min(heaps[1:]) < 4 * KIB


@on_linux
def test_smaps_is_read_at_both_ends_of_a_worker_and_at_an_epochs_end_in_the_main_process() -> None:
    def read(role: str) -> list[str]:
        parts: list[dict[str, Any]] = []
        meter = Meter(parts.append, {"role": role})
        meter.begin_epoch(0)
        for at in ("begin", "within", "end"):
            meter.made(1)
            meter.mark(at)
        marks = [mark for part in parts for mark in part["marks"]]
        return [mark["at"] for mark in marks if "private_dirty" in mark]

    assert read("worker") == ["begin", "end"]
    assert read("main") == ["end"]


def test_an_epoch_ends_once() -> None:
    meter, parts = metered()
    meter.made(1)
    meter.end()
    meter.end()
    assert [mark["at"] for part in parts for mark in part["marks"]] == ["end"]


@on_linux
def test_what_waits_for_the_collector_is_read_before_anything_of_ours_sets_it_off() -> None:
    meter, parts = metered()
    meter.lengths = types.SimpleNamespace(look=gc.collect, table=dict)
    meter.made(1)
    gc.collect()
    ring: list[Any] = [bytearray(MIB)]
    ring.append(ring)
    del ring
    meter.end()
    (mark,) = (mark for part in parts for mark in part["marks"])
    assert mark["heap_before"] - mark["heap"] > MIB - 64 * KIB


def test_the_bytes_of_a_batch_are_those_it_uses_and_those_it_ships() -> None:
    torch = pytest.importorskip("torch")
    whole = torch.zeros(1000)
    batch = {"view": whole[:10], "same": whole[10:20], "ids": ["ab", "c"], "raw": (b"1234",)}
    assert bytes_of(batch) == (2 * 10 * 4 + 3 + 4, 1000 * 4 + 3 + 4)
