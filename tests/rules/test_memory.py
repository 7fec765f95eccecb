"""Memory that is kept: by whom, how fast, until when; and what only looks like it."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

import dlcheck.rules  # noqa: F401 - fills the registry
from dlcheck.findings import ERROR, WARNING, Finding, judge
from dlcheck.observation import Culprit, Process, Split
from tests.lives import KIB, MIB, process, seen, split_of, steady

LIST = Culprit(
    "heap", "worker", "self.results", "transform", "list", "pipe.py", 37, "img = layer(img)",
    "__call__", stored_line=42, stored_text="self.results.append(img)", grew=3 * MIB, samples=300,
    batches=30, items=213, whole=9 * MIB, detail={"class": "PaperSequence", "length": [71, 213]},
)  # fmt: skip
CACHE = dataclasses.replace(
    LIST, attribute="self.cache", owner="dataset", type="dict", items=250, grew=30 * MIB,
    whole=250 * 100 * KIB, detail={"class": "Folder", "length": [160, 250]},
)  # fmt: skip
VIEW = dataclasses.replace(
    LIST, resource="view", attribute="self.calib", type="deque", items=600 * KIB, grew=75 * MIB,
    whole=75 * MIB + 600 * KIB, detail={"class": "Sensor", "bound": 200},
)  # fmt: skip
RULES = ["DLC501", "DLC502", "DLC509"]


def found(split: Split, **settings: Any) -> list[Finding]:
    return list(judge(seen(split, **settings), select=RULES)[0])


def workers(size: int = 200 * KIB, **more: Any) -> list[Process]:
    return [process("worker", steady(size), number=n, seed=n, **more) for n in (0, 1)]


def test_a_list_that_grows_is_named_with_line_and_projection() -> None:
    (one,) = found(split_of(*workers(), culprits=(LIST,)))
    assert (one.rule, one.severity) == ("host-leak", ERROR)
    assert (one.where.file, one.where.line, one.where.attribute) == ("pipe.py", 42, "self.results")
    assert "`self.results` (list) of PaperSequence" in one.message
    assert "2.93 MiB more with every epoch (20 KiB a sample)" in one.message
    assert "are full after" in one.message
    assert one.evidence["made_at"] == "pipe.py:37: img = layer(img)"


def test_a_leak_is_told_although_nobody_was_found_to_keep_it() -> None:
    (one,) = found(split_of(*workers()))
    assert (one.rule, one.where.file, one.where.line) == ("host-leak", "data.py", 40)


def test_a_full_length_makes_the_projection() -> None:
    (small,) = found(split_of(*workers(), culprits=(LIST,)))
    (large,) = found(split_of(*workers(), culprits=(LIST,)), full_length={"": 1_281_167})
    assert small.evidence["epoch_of_the_job"] == "5.86 MiB"
    assert large.evidence["epoch_of_the_job"] == "24.4 GiB"


def test_a_mapping_of_the_dataset_is_a_cache_projected_to_all_of_it() -> None:
    (one,) = found(split_of(*workers(), culprits=(CACHE,)))
    assert (one.rule, one.severity) == ("cache-growth", WARNING)
    assert "100 KiB of every sample" in one.message
    assert one.evidence["projected"] == "58.6 MiB"


def test_a_cache_that_exceeds_the_memory_is_an_error() -> None:
    split = split_of(*workers(), culprits=(CACHE,))
    assert found(split, full_length={"": 1_000_000})[0].severity == ERROR
    assert found(split, machine={"memory": "32MiB"})[0].severity == ERROR


def test_a_cache_that_fills_is_told_once_the_probe_has_named_it() -> None:
    fills = [process("worker", lambda e, *_: MIB // 2**e, number=n, seed=n) for n in (0, 1)]
    assert found(split_of(*fills)) == []
    assert [one.rule for one in found(split_of(*fills, culprits=(CACHE,)))] == ["cache-growth"]


@pytest.mark.parametrize(
    ("graphs", "rule"), [(0, "cache-growth"), (166, "host-leak")], ids=["samples", "graphs"]
)
def test_what_slows_down_is_a_cache_unless_it_holds_graphs(graphs: int, rule: str) -> None:
    slower = process(adds=lambda e, *_: MIB // 2**e)
    total = dataclasses.replace(
        CACHE, role="main", attribute="trainer.total", owner="module", type="Tensor", items=0,
        detail={"class": "Trainer", "graphs": graphs},
    )  # fmt: skip
    assert [one.rule for one in found(split_of(slower, culprits=(total,)))] == [rule]


def test_a_cache_of_workers_that_end_with_their_epoch_is_told() -> None:
    lives = [w for e in range(3) for w in workers(MIB, epochs=1, born=e)]
    (one,) = found(split_of(*lives, culprits=(CACHE,)))
    assert one.rule == "cache-growth"
    assert "thrown away" in one.message


@pytest.mark.parametrize(
    "detail",
    [{"bound": 64}, {"windows": [9 * MIB, 200 * KIB, 0]}],
    ids=["an lru_cache with a maxsize", "levels off before it holds every sample"],
)
def test_what_is_bounded_is_silent(detail: dict[str, Any]) -> None:
    bounded = dataclasses.replace(CACHE, items=64, detail=detail)
    assert found(split_of(*workers(), culprits=(bounded,))) == []


def test_jumps_that_the_probe_could_not_repeat_are_silent() -> None:
    jumps = process(adds=lambda *at: MIB if at[2] in (20, 40) else 0)
    assert found(split_of(jumps)) == []


def test_a_few_floats_a_batch_of_a_step_are_silent() -> None:
    floats = process(adds=lambda *_: 100, batches=200, noise=50)
    assert found(split_of(floats, given={"step": "train:step"})) == []
    assert len(found(split_of(floats))) == 1


def test_objects_alone_are_a_leak_where_they_are_many() -> None:
    many = process(counts=lambda made: {"blocks": 100_000 + 2000 * made})
    (one,) = found(split_of(many, given={"step": "train:step"}))
    assert "more Python objects with every epoch" in one.message


def test_a_view_is_told_in_place_of_a_leak_and_although_it_is_bounded() -> None:
    keeper = dataclasses.replace(VIEW, resource="heap", whole=75 * MIB)
    (one,) = found(split_of(*workers(5 * MIB), culprits=(keeper, VIEW)))
    assert one.rule == "storage-pinned-by-view"
    assert "shows 600 KiB and keeps 75.6 MiB alive" in one.message
    assert one.where.attribute == "self.calib"


def test_whole_arrays_are_no_views() -> None:
    whole = dataclasses.replace(VIEW, items=75 * MIB, whole=75 * MIB)
    rules = [one.rule for one in found(split_of(*workers(), culprits=(LIST, whole)))]
    assert rules == ["host-leak"]


def test_a_field_of_the_batch_may_be_a_view() -> None:
    field = dataclasses.replace(
        VIEW, attribute="", detail={"field": "image"}, items=2 * MIB, whole=32 * MIB
    )
    (one,) = found(split_of(process("worker", number=0), culprits=(field,)))
    assert (one.rule, one.where.field) == ("storage-pinned-by-view", "image")
