"""Lengths are taken of what a pipeline holds, under the user's own names, and run no user code."""

from __future__ import annotations

import collections
import functools
import sys
import types
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dlcheck.observers import roots
from dlcheck.observers.lengths import Lengths

seen_by_everyone: list[int] = []


@pytest.fixture(autouse=True)
def _no_other_tests_among_the_users_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    every, tests = roots.user_modules, str(Path(__file__).parents[1])

    def others_left_out() -> list[types.ModuleType]:
        return [m for m in every() if m.__file__ == __file__ or tests not in str(m.__file__)]

    monkeypatch.setattr(roots, "user_modules", others_left_out)


class Store:
    shared: dict[int, int] = {}  # noqa: RUF012 - a class attribute that grows is what is tested

    def __init__(self) -> None:
        self.cache: dict[int, bytes] = {}
        self.last: collections.deque[int] = collections.deque(maxlen=3)
        self.by_class: dict[str, list[int]] = {"cat": [], "dog": []}
        self.inner = SimpleNamespace(rows=[])
        self.name = "store"


class Hostile:
    """Whose attributes answer with an exception, or with a change."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __len__(self) -> int:
        self.asked.append(1)
        return 5

    @property
    def rows(self) -> list[int]:
        self.asked.append(1)
        return self.asked


class Counted(dict):  # type: ignore[type-arg]
    def __len__(self) -> int:
        raise AssertionError("the user's __len__ ran")


def look_twice(dataset: Any, change: Any, collate: Any = None) -> dict[str, Any]:
    target = SimpleNamespace(
        loader=SimpleNamespace(collate_fn=collate), dataset=dataset, epoch_hook=None
    )
    lengths = Lengths(target)
    lengths.look()
    change()
    lengths.look()
    return {one["path"]: (one["of"], one["lengths"]) for one in lengths.table().values()}


def test_a_dictionary_that_grows_is_named_as_the_user_writes_it() -> None:
    store = Store()
    assert look_twice(store, lambda: store.cache.update({1: b"", 2: b""})) == {
        "self.cache": ("Store", [0, 2])
    }


def test_what_stays_small_and_equal_is_not_told() -> None:
    assert look_twice(Store(), lambda: None) == {}


def test_a_large_container_is_told_though_it_stays() -> None:
    store = Store()
    store.cache = dict.fromkeys(range(5_000), b"")
    assert look_twice(store, lambda: None) == {"self.cache": ("Store", [5_000, 5_000])}


def test_lists_in_a_small_dictionary_count_together() -> None:
    store = Store()
    found = look_twice(store, lambda: store.by_class["dog"].extend([1, 2, 3]))
    assert found == {"self.by_class[...]": ("Store", [0, 3])}


def test_a_bounded_deque_says_its_bound() -> None:
    store = Store()
    target = SimpleNamespace(loader=SimpleNamespace(), dataset=store, epoch_hook=None)
    lengths = Lengths(target)
    lengths.look()
    store.last.extend([1, 2])
    lengths.look()
    assert [(one["lengths"], one["bound"]) for one in lengths.table().values()] == [([0, 2], 3)]


def test_an_attribute_made_later_had_length_zero_before() -> None:
    store = Store()
    assert look_twice(store, lambda: setattr(store, "late", [1, 2])) == {
        "self.late": ("Store", [0, 2])
    }


def test_objects_within_objects_are_followed() -> None:
    store = Store()
    found = look_twice(store, lambda: store.inner.rows.append(1))
    assert [lengths for _, lengths in found.values()] == [[0, 1]]


def test_closures_defaults_and_caches_of_a_collate_are_seen() -> None:
    kept: list[int] = []

    def collate(batch: Any, done: list[int] = []) -> Any:  # noqa: B006 - a default that grows
        done.extend(batch)
        kept.extend(batch)

    found = look_twice(None, lambda: collate([1]), collate)
    assert {path: held for path, (_, held) in found.items()} == {"done": [0, 1], "kept": [0, 1]}


@pytest.fixture
def user_module(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    module = types.ModuleType("somebodys_pipeline")
    module.__file__ = "/home/user/somebodys_pipeline.py"
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


def test_globals_and_class_attributes_of_the_users_modules_are_seen(
    user_module: types.ModuleType,
) -> None:
    class Cats:
        seen: list[int] = []  # noqa: RUF012

    Cats.__module__, Cats.__qualname__ = user_module.__name__, "Cats"
    vars(user_module).update(history=[], Cats=Cats)
    find = functools.lru_cache(maxsize=8)(abs)
    vars(user_module)["find"] = find

    def change() -> None:
        vars(user_module)["history"].append(1)
        Cats.seen.append(1)
        find(-1)

    found = {path: held for path, (_, held) in look_twice(None, change).items()}
    assert found == {"history": [0, 1], "Cats.seen": [0, 1], "find": [0, 1]}


def test_no_code_of_the_user_runs() -> None:
    hostile, store = Hostile(), Store()
    store.cache = Counted()
    vars(store)["hostile"] = hostile
    assert look_twice(store, lambda: None) == {}
    assert hostile.asked == []
