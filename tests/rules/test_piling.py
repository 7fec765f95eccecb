"""Segments, handles, threads and processes: every one that stays counts, once."""

from __future__ import annotations

from typing import Any

import dlcheck.rules  # noqa: F401 - fills the registry
from dlcheck.findings import ERROR, Finding, judge
from dlcheck.observation import Culprit, Loader, Process, Split
from tests.lives import KIB, MIB, process, seen, split_of

RULES = ["DLC504", "DLC505", "DLC510"]
OPENER = Culprit("handles", "worker", "", "dataset", "", "pages.py", 12, "f = open(path)", "read",
                 grew=30, unit="handles", detail={"kind": "file", "paths": ["a.bin"]})  # fmt: skip
KEEPER = Culprit("heap", "main", "Log.seen", "step", "list", "train.py", 20, "", "step",
                 stored_line=20, stored_text="Log.seen.append(x)", grew=900, items=45)  # fmt: skip


def found(split: Split, **settings: Any) -> list[Finding]:
    return list(judge(seen(split, **settings), select=RULES)[0])


def with_counts(role: str = "main", **per_batch: float) -> Process:
    def counts(made: int) -> dict[str, int]:
        return {name: 8 + int(each * made) for name, each in per_batch.items()}

    return process(role, number=0 if role == "worker" else None, counts=counts)


def test_a_file_left_open_for_each_batch_is_told_with_its_line() -> None:
    (one,) = found(split_of(with_counts("worker", handles=1), culprits=(OPENER,)))
    assert (one.rule, one.severity, one.where.line) == ("fd-leak", ERROR, 12)
    assert "15 more handles with every epoch" in one.message
    assert "limit of 1,024 is reached after" in one.message
    assert one.evidence["paths"] == ["a.bin"]


def test_tensors_kept_from_the_loader_are_handles_of_who_keeps_them() -> None:
    both = with_counts(handles=1, mapped=KIB)
    (one,) = found(split_of(both, culprits=(KEEPER,)))
    assert (one.rule, one.where.attribute, one.where.line) == ("fd-leak", "Log.seen", 20)


def test_large_tensors_fill_shared_memory_before_the_handles_run_out() -> None:
    both = with_counts(handles=1, mapped=4 * MIB)
    (one,) = found(split_of(both, culprits=(KEEPER,)), machine={"shm": "1GiB"})
    assert one.rule == "shm-growth"
    assert "1 GiB of /dev/shm are full after" in one.message


def test_segments_that_nobody_unlinks_are_told_with_who_makes_them() -> None:
    maker = Culprit("shm", "worker", "", "collate", "", "tiles.py", 28, "SharedMemory(...)",
                    grew=30, detail={"names": ["tiles_9_0"]})  # fmt: skip
    (one,) = found(split_of(with_counts(shm=192 * KIB), culprits=(maker,)))
    assert (one.rule, one.where.line) == ("shm-growth", 28)
    assert one.evidence["names"] == ["tiles_9_0"]


def test_batches_in_flight_must_fit_the_shared_memory_declared() -> None:
    large = process()
    points = tuple(type(p)(**{**vars(p), "returned": 20 * MIB}) for p in large.points)
    large = Process("main", marks=large.marks, points=points)
    loader = Loader(num_workers=4, file="data.py", line=3)
    (one,) = found(split_of(large, loader=loader))
    assert (one.rule, one.where.attribute) == ("shm-growth", "num_workers")
    assert "need 160 MiB" in one.message
    assert found(split_of(large, loader=loader), machine={"shm": "1GiB"}) == []


def test_threads_that_pile_up_are_told_and_their_pipes_are_not() -> None:
    starter = Culprit("threads", "worker", "self.pools", "collate", "list", "pool.py", 27,
                      "pool = ThreadPool(2)", grew=30, unit="threads", items=30)  # fmt: skip
    (one,) = found(split_of(with_counts("worker", threads=5, handles=1), culprits=(starter,)))
    assert (one.rule, one.where.line) == ("worker-pile-up", 27)
    assert "75 more threads after every epoch" in one.message


def test_one_thread_an_epoch_is_enough() -> None:
    (one,) = found(split_of(with_counts(threads=1 / 15)))
    assert one.rule == "worker-pile-up"


def test_one_process_that_is_started_late_is_no_pile() -> None:
    late = process(counts=lambda made: {"children": int(made > 20), "threads": 3, "handles": 9})
    assert found(split_of(late)) == []


def test_a_handle_opened_lazily_is_no_leak() -> None:
    lives = [
        process("worker", epochs=1, born=epoch, number=0,
                counts=lambda made: {"handles": 9 + min(made, 2)})
        for epoch in range(3)
    ]  # fmt: skip
    assert found(split_of(*lives)) == []
