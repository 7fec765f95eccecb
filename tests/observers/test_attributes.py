"""The walk over attributes: what it counts, what it names, and that it runs no user code."""

from __future__ import annotations

import collections
import functools
import importlib
import sys
import threading
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

np = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")

from dlcheck.observers import roots  # noqa: E402 - torch may be absent
from dlcheck.observers.attributes import Census, Walk  # noqa: E402
from dlcheck.observers.grown import Growth, meter  # noqa: E402
from dlcheck.observers.roots import BETWEEN, Root, roots_of  # noqa: E402
from dlcheck.run.hooks import WorkerInit  # noqa: E402
from dlcheck.run.scratch import Scratch  # noqa: E402
from dlcheck.run.stages import Stages  # noqa: E402
from dlcheck.run.step import Lightning, Numbered  # noqa: E402
from dlcheck.run.target import Again  # noqa: E402
from dlcheck.run.watch import Watch  # noqa: E402


def census(dataset: Any, known: Census | None = None) -> Census:
    return Walk(known).run([Root("dataset", dataset, "dataset")])


@pytest.fixture(autouse=True)
def no_other_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "enumerate", lambda: [threading.main_thread()])


class Data:
    def __init__(self, **held: Any) -> None:
        self.__dict__.update(held)


class Remembering:
    def __init__(self) -> None:
        self.shown: list[bytes] = []

    def step(self, batch: Any) -> None:
        """Stand for a method that is called."""


@pytest.mark.parametrize(
    ("value", "least", "most"),
    [
        pytest.param(lambda: np.zeros(1000), 8_000, 8_300, id="array"),
        pytest.param(lambda: torch.zeros(1000), 4_000, 4_100, id="tensor"),
        pytest.param(lambda: torch.from_numpy(np.zeros(1000)), 8_000, 8_300, id="of numpy"),
        pytest.param(lambda: torch.zeros(1000).numpy(), 4_000, 4_300, id="numpy of a tensor"),
        pytest.param(lambda: torch.zeros(1000, 1000)[0], 4e6, 4.1e6, id="view of a storage"),
        pytest.param(lambda: np.zeros((1000, 1000))[0], 8e6, 8.1e6, id="view of an array"),
        pytest.param(lambda: b"x" * 5_000, 5_000, 5_100, id="bytes"),
        pytest.param(lambda: np.array(["a" * 500, "b" * 500], object), 1_000, 1_300, id="objects"),
        pytest.param(lambda: {n: [n * 1e9] for n in range(100)}, 100 * 80, 100 * 220, id="dict"),
        pytest.param(lambda: collections.deque([b"x" * 1_000]), 1_000, 2_000, id="deque"),
        pytest.param(lambda: np.memmap(__file__, mode="r"), 0, 400, id="file that is mapped"),
        pytest.param(lambda: torch.zeros(1000, device="meta"), 0, 100, id="meta tensor"),
    ],
)  # fmt: skip
def test_bytes_count_each_block_of_memory_once(value: Any, least: float, most: float) -> None:
    held = value()
    found = census(Data(held=held, again=held, third=[held])).totals("bytes")["dataset"]
    assert least <= found <= most + 1_500


def test_what_grew_is_named_at_the_container_that_grew_and_not_above() -> None:
    data = Data(settings={"a": 1}, stats={"loss": [], "names": ["x"]})
    first = census(data)
    data.stats["loss"] += [f"loss {n}" * 20 for n in range(50)]
    second = census(data, first)
    (grown,) = Growth([first, second], "bytes").found()
    assert grown.node.full == "dataset.stats['loss']"
    assert grown.lengths == [0, 50]


def test_a_chain_of_links_is_one_name() -> None:
    data = Data(last=None)
    for _ in range(3):
        data.last = Data(last=data.last, value=np.zeros(100))
    first = census(data)
    for _ in range(50):
        data.last = Data(last=data.last, value=np.zeros(100))
    (grown,) = Growth([first, census(data, first)], "bytes").found()
    assert grown.node.full == "dataset.last"


def test_views_show_what_they_use_and_what_they_keep() -> None:
    data = Data(rows=[])
    first = census(data)
    data.rows += [np.zeros((128, 100))[0] for _ in range(4)]
    (grown,) = Growth([first, census(data, first)], "bytes").found()
    assert (grown.used, grown.whole) == (4 * 800, 4 * 800 * 128)


def test_a_large_container_that_did_not_change_is_not_walked_again() -> None:
    data = Data(words=[f"word {n}" for n in range(30_000)])
    first = census(data)
    assert first.nodes["dataset.words"].objects == pytest.approx(30_001, rel=0.001)
    data.words.sort()
    assert census(data, first).nodes["dataset.words"].bytes == first.nodes["dataset.words"].bytes


def test_no_code_of_the_user_runs() -> None:  # noqa: C901 - a class that tells of each call
    called: list[str] = []

    class Spy:
        def __init__(self) -> None:
            self.real = [1]

        @property  # type: ignore[misc]
        def __class__(self) -> type:
            called.append("__class__")
            return Spy

        def __getattr__(self, name: str) -> Any:
            called.append(name)
            raise AttributeError(name)

        def __len__(self) -> int:
            called.append("len")
            return 0

        def __eq__(self, other: object) -> bool:
            called.append("eq")
            return False

        def __hash__(self) -> int:
            called.append("hash")
            return 0

        def __sizeof__(self) -> int:
            called.append("sizeof")
            return 0

        def __repr__(self) -> str:
            called.append("repr")
            return ""

        @property
        def lazy(self) -> None:
            called.append("lazy")

    class Words(dict):  # type: ignore[type-arg]
        def items(self) -> Any:
            called.append("items")
            return super().items()

    data = Data(spy=Spy(), list=[Spy()], words=Words(a=Spy()), keyed={Spy: 1, 2: Spy()})
    found = census(data)
    assert found.nodes["dataset.spy.real"].length == 1
    assert called == []


def test_nothing_is_kept_alive_by_the_figures() -> None:
    data = Data(rows=[Data()])
    gone = weakref.ref(data.rows[0])
    found = Growth([census(data), census(data)], "bytes").totals
    data.rows.clear()
    assert gone() is None
    assert found


def make_counter() -> Any:
    seen: list[int] = []

    def collate(items: list[int], kept: list[int] = []) -> int:  # noqa: B006 - what is found
        seen.extend(items)
        return len(kept)

    return collate


@functools.lru_cache(maxsize=8)
def cached(n: int) -> list[int]:
    return [n]


def test_names_are_given_to_closures_defaults_caches_and_generators() -> None:
    def stream() -> Any:
        met = {1, 2, 3}
        yield met

    running = stream()
    next(running)
    cached.cache_clear()
    cached(1)
    found = Walk().run([
        Root("collate_fn", make_counter(), "collate"),
        Root("cached", cached, "module", "cached", "global"),
        Root("iterator", running, "loader"),
    ]).nodes  # fmt: skip
    assert found["collate_fn.seen"].name == "seen"
    assert found["collate_fn.kept"].kind == "default"
    assert (found["cached"].length, found["cached"].bound) == (1, 8)
    assert found["iterator.met"].length == 3


def test_each_kind_of_name_can_be_read_again() -> None:
    data = Data(rows=[], inner={"a": []})
    counter = make_counter()
    found = (
        Walk().run([Root("dataset", data, "dataset"), Root("collate_fn", counter, "collate")]).nodes
    )
    places = ["dataset.rows", "dataset.inner['a']", "collate_fn.seen", "collate_fn.kept"]
    reads = [meter(found[place]) for place in places]
    before = [read() for read in reads]
    data.rows.append(1)
    data.inner["a"].append(1)
    counter([1])
    counter.__defaults__[0].append(1)
    assert [read() for read in reads] == [one + 1 for one in before]


@pytest.mark.parametrize(
    "stand",
    [
        lambda one: Stages([one]),
        lambda one: Numbered(one.step),
        Lightning,
        lambda one: Again(one.step),
        lambda one: WorkerInit(Watch(Scratch("")), one.step),
    ],
    ids=["stages", "numbered", "lightning", "again", "worker_init"],
)
def test_what_the_user_made_is_reached_through_what_stands_before_it(stand: Any) -> None:
    one = Remembering()
    held = stand(one)
    first = Walk().run([Root("step", held, "step")])
    one.shown += [bytes(4_000), bytes(4_000)]
    (grown,) = Growth([first, Walk().run([Root("step", held, "step")])], "bytes").found()
    assert (grown.name, grown.node.cls) == ("self.shown", "Remembering")


def test_the_rest_of_our_own_is_not_the_users() -> None:
    walk = Walk()
    walk.run([Root("step", walk.census, "step"), Root("dataset", Stages([walk.census]), "dataset")])
    assert not any("nodes" in name for name in walk.census.nodes)


def test_what_stands_before_the_users_objects_exists() -> None:
    for name in BETWEEN:
        module, _, kind = name.rpartition(".")
        assert isinstance(vars(importlib.import_module(module))[kind], type)


def test_roots_are_the_parts_of_the_pipeline_and_the_users_modules(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = SimpleNamespace(__name__="cats", __file__=__file__)
    monkeypatch.setattr(roots, "user_modules", list)
    loader = SimpleNamespace(collate_fn=make_counter(), sampler=[1], worker_init_fn=None)
    target = SimpleNamespace(loader=loader, dataset=Data(), epoch_hook=None)
    found = roots_of(target, step=module)
    assert [root.full for root in found] == ["dataset", "collate_fn", "sampler", "step", "loader"]


def test_a_module_of_the_users_is_met_as_soon_as_it_is_there_and_no_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {module.__name__ for module in roots.user_modules()}
    (tmp_path / "late_users.py").write_text("kept = []\n")
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("late_users")
    assert {m.__name__ for m in roots.user_modules()} - before == {"late_users"}
    del sys.modules[module.__name__]
    assert {m.__name__ for m in roots.user_modules()} == before
