"""Memory that is copied, needed for a moment, or left to the collector; and what is usual."""

from __future__ import annotations

import dataclasses
from typing import Any

import dlcheck.rules  # noqa: F401 - fills the registry
from dlcheck.findings import WARNING, Finding, judge
from dlcheck.observation import Culprit, Process, Split
from tests.lives import BASE, MIB, process, seen, split_of

RULES = ["DLC503", "DLC508", "DLC511"]
WORDS = Culprit("shared", "worker", "self.words", "dataset", "list", "caps.py", 20,
                "t = self.words[k]", "__getitem__", grew=30 * MIB, items=400_000, whole=40 * MIB,
                detail={"objects": 400_000, "item": "str"})  # fmt: skip
ONE_HOT = Culprit("peak", "worker", "", "collate", "", "seg.py", 20, "onehot = one_hot(m)",
                  "smooth_collate", grew=110 * MIB,
                  detail={"lines": [["seg.py", 20, "onehot = one_hot(m)", 37 * MIB]]})  # fmt: skip
CYCLE = Culprit("cycles", "main", "", "step", "ActivationMap", "cam.py", 25, "self.save = save",
                "__init__", grew=40 * MIB, items=24,
                chain=("ActivationMap", "function", "cell", "ActivationMap"))  # fmt: skip


def found(split: Split) -> list[Finding]:
    return list(judge(seen(split), select=RULES)[0])


def pages(each: int) -> Any:
    return lambda made: {"private_dirty": 9 * MIB + each * made, "anonymous": 300 * MIB}


def with_peak(role: str, peak: int) -> Process:
    return process(role, number=0, counts=lambda _: {"peak": peak})


def test_a_list_of_many_objects_is_copied_by_each_worker() -> None:
    split = split_of(process("worker", number=0, counts=pages(MIB)), culprits=(WORDS,))
    (one,) = found(split)
    assert (one.rule, one.severity, one.where.line) == ("copy-on-write", WARNING, 20)
    assert "`self.words` (list) is 400,000 Python objects (str)" in one.message
    assert one.evidence["projected"] == "80 MiB"


def test_a_small_index_is_no_copy_worth_telling() -> None:
    few = dataclasses.replace(WORDS, items=900, detail={"objects": 900})
    worker = process("worker", number=0, counts=pages(MIB))
    assert found(split_of(worker, culprits=(few,))) == []
    assert found(split_of(worker)) == []


def test_a_peak_many_times_what_is_returned_is_told_with_its_line() -> None:
    (one,) = found(split_of(with_peak("worker", 113 * MIB), culprits=(ONE_HOT,)))
    assert (one.rule, one.where.line) == ("peak-temporaries", 20)
    assert "2 workers at once: 226 MiB" in one.message
    assert one.evidence["lines"] == ["seg.py:20: onehot = one_hot(m) (37 MiB)"]


def test_a_peak_of_the_first_epoch_alone_is_warm_up() -> None:
    worker = with_peak("worker", 113 * MIB)
    marks = tuple(m if m.epoch == 0 else dataclasses.replace(m, peak=MIB) for m in worker.marks)
    assert found(split_of(dataclasses.replace(worker, marks=marks), culprits=(ONE_HOT,))) == []


def test_the_activations_of_a_training_step_are_not_the_loaders() -> None:
    assert found(split_of(with_peak("main", 900 * MIB), given={"step": "train:step"})) == []


def test_what_grew_by_then_is_no_peak() -> None:
    def grows(made: int) -> dict[str, int]:
        return {"peak": 45 * MIB, "rss": BASE + 3 * MIB * made}

    assert found(split_of(process("worker", number=0, counts=grows), culprits=(ONE_HOT,))) == []


def collected(*freed: int) -> Process:
    marks = process(epochs=len(freed)).marks
    by_epoch = dict(enumerate(freed))
    return Process("main", marks=tuple(
        dataclasses.replace(m, heap_before=(m.heap or 0) + by_epoch[m.epoch])
        if m.at == "end" else m
        for m in marks
    ))  # fmt: skip


def test_memory_that_only_the_collector_frees_is_told_with_the_cycle() -> None:
    (one,) = found(split_of(collected(40 * MIB, 12 * MIB, 25 * MIB), culprits=(CYCLE,)))
    assert (one.rule, one.where.line) == ("gc-cycles", 25)
    assert "frees up to 40 MiB" in one.message
    assert "ActivationMap -> function -> cell -> ActivationMap" in one.message


def test_what_imports_leave_behind_once_is_no_cycle_of_the_loop() -> None:
    assert found(split_of(collected(40 * MIB, 0, 0), culprits=(CYCLE,))) == []


def test_cycles_that_a_library_makes_are_told_where_they_are_many() -> None:
    chain = ("frame of _handle_not_found_lookup_error", "NotFoundLookupError", "traceback")
    library = Culprit("cycles", "main", type=chain[0], grew=8 * MIB, items=1195, chain=chain)
    few, many = collected(2 * MIB, 3 * MIB, 3 * MIB), collected(20 * MIB, 22 * MIB, 19 * MIB)
    assert found(split_of(few, culprits=(library,))) == []
    (one,) = found(split_of(many, culprits=(library,)))
    assert "NotFoundLookupError -> traceback" in one.message


def test_a_little_left_to_the_collector_is_usual() -> None:
    assert found(split_of(collected(MIB, MIB, MIB))) == []
