"""CUDA behind its interface, over a simulated allocator; which device is chosen, and by whom."""

from __future__ import annotations

import functools
import json
import os
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from dlcheck.observation import Observation
from dlcheck.observers.device import Figures
from dlcheck.run import device, nvml, torch_private
from tests import simulated
from tests.simulated import CONTEXT, GIB, MIB, Allocator, Moved

NO_GPU = torch.cuda.device_count() == 0


@pytest.fixture
def allocator(monkeypatch: pytest.MonkeyPatch) -> Allocator:
    made = Allocator()
    simulated.installed(made, monkeypatch)
    return made


def test_figures_are_those_of_the_allocator_and_of_the_driver(allocator: Allocator) -> None:
    cuda = device.Cuda(0, "auto", GIB)
    kept, brief = allocator.alloc(3 * MIB), allocator.alloc(40 * MIB)
    allocator.free(brief)
    used = GIB + CONTEXT + 60 * MIB
    assert cuda.figures() == Figures(3 * MIB, 60 * MIB, 43 * MIB, used)
    assert cuda.figures().peak == 3 * MIB, "the peak starts anew at each reading"
    allocator.free(kept)


def test_facts_say_what_was_free_before_the_first_batch(allocator: Allocator) -> None:
    facts = device.Cuda(0, "cuda:0", GIB).facts()
    assert (facts.name, facts.model, facts.asked) == ("cuda:0", "Simulated 8 GiB", "cuda:0")
    assert (facts.total, facts.free, facts.before) == (8 * GIB, 7 * GIB - CONTEXT, GIB)


def test_a_torch_without_a_history_reads_all_but_the_lines(
    allocator: Allocator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone() -> bool:
        raise AttributeError("_record_memory_history")

    monkeypatch.setattr(torch_private, "begin_history", gone)
    cuda = device.Cuda(0, "auto", None)
    assert "_record_memory_history" in cuda.facts().missing[0]
    assert cuda.figures().allocated == 0


def test_a_history_that_the_user_began_is_not_stopped(
    allocator: Allocator, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = []
    monkeypatch.setattr(torch_private, "begin_history", lambda: False)
    monkeypatch.setattr(torch_private, "end_history", lambda: stopped.append(1))
    device.Cuda(0, "auto", None).stop()
    assert stopped == []


def test_live_blocks_come_with_their_lines_and_of_one_device_alone() -> None:
    frames = [{"filename": "/job/train.py", "line": 3, "name": "step"}]
    block = {"size": 1024, "requested_size": 900, "state": "active_allocated", "frames": frames}
    old = {"size": 512, "state": "active_allocated", "history": [{"frames": frames}]}
    idle = {"size": 2048, "state": "inactive", "frames": []}
    segments = [{"device": 0, "blocks": [block, idle, old]}, {"device": 1, "blocks": [block]}]
    found = device.live_blocks({"segments": segments}, 0)
    assert [live.size for live in found] == [900, 512]
    assert {live.frames for live in found} == {(("/job/train.py", 3, "step"),)}


class Pair(NamedTuple):
    image: Any
    label: Any


def test_a_batch_is_moved_in_its_own_containers(allocator: Allocator) -> None:
    cuda = device.Cuda(0, "auto", None)
    tensor = functools.partial(Moved, allocator, (4,))
    batch = {"pair": Pair(tensor(), 3), "more": [tensor(), ("name", tensor())], "none": None}
    moved, size = cuda.move(batch)
    assert size == 3 * 4 * 4
    assert type(moved["pair"]) is Pair
    assert (moved["pair"].label, moved["more"][1][0], moved["none"]) == (3, "name", None)
    assert allocator.allocated == 3 * 512
    del moved
    assert allocator.allocated == 0


@pytest.mark.parametrize("kind", ["bad", "good"])
def test_recordings_are_what_this_code_writes(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`python -m tests.simulated` writes them anew."""
    kept = json.loads((simulated.RECORDINGS / f"device-leak-{kind}.json").read_text("utf-8"))
    assert simulated.record(kind, monkeypatch) == kept


@pytest.mark.skipif(not NO_GPU, reason="there is a device here")
@pytest.mark.parametrize("asked", ["auto", "cuda", "cuda:3"])
def test_no_device_is_a_reason_and_no_error(asked: str) -> None:
    found, why = device.choose(asked)
    assert found is None
    assert "\n" not in why
    assert "CUDA" in why
    assert not torch.cuda.is_initialized()


def test_hidden_devices_are_said_to_be_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert device.choose("auto") == (None, "CUDA_VISIBLE_DEVICES='' shows none")


def test_a_torch_of_the_cpu_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(torch.version, "hip", None)
    assert device.choose("auto") == (None, "this torch is built without CUDA")


def test_a_number_too_high_is_told_with_the_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "visible_devices", lambda: (2, ""))
    assert device.choose("cuda:2") == (None, "there is no cuda:2: 2 CUDA devices can be seen")


@pytest.mark.parametrize("asked", ["", "cpu"])
def test_nothing_is_looked_for_unless_asked(asked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "visible_devices", lambda: pytest.fail("looked for a device"))
    assert device.choose(asked)[0] is None


@pytest.mark.skipif(not NO_GPU, reason="there is a device here")
def test_a_device_that_cannot_be_used_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "visible_devices", lambda: (1, ""))
    found, why = device.choose("auto")
    assert found is None
    assert why.startswith("cuda:0 cannot be used: ")


net = nn.Linear(2, 2)


def by_global(batch: Any) -> Any:
    return net(batch)


def by_closure() -> Callable[[Any], Any]:
    inner = nn.Linear(2, 2)

    def step(batch: Any) -> Any:
        return inner(batch)

    return step


class Trainer:
    def __init__(self) -> None:
        self.parts = {"model": nn.Linear(2, 2)}

    def step(self, batch: Any) -> Any:
        return self.parts["model"](batch)


@pytest.mark.parametrize(
    "step", [by_global, by_closure(), Trainer().step, functools.partial(Trainer().step)],
    ids=["global", "closure", "method", "partial"],
)  # fmt: skip
def test_the_model_of_a_step_is_found(step: Callable[[Any], Any]) -> None:
    assert [type(module) for module in device.reached_modules(step)][:1] == [nn.Linear]


def test_what_a_step_holds_is_looked_at_without_running_it() -> None:
    class Hostile:
        def __getattribute__(self, name: str) -> Any:
            raise RuntimeError(name)

    holder = types.SimpleNamespace(bad=Hostile(), model=nn.Linear(2, 2))
    assert len(list(device.reached_modules(holder))) == 1


def test_the_line_that_starts_cuda_is_written(
    monkeypatch: pytest.MonkeyPatch, watch: Any, tmp_path: Any
) -> None:
    queued: list[Callable[[], None]] = []
    monkeypatch.setattr(torch_private, "on_cuda_start", queued.append)
    device.note_touches(watch)
    code = compile("def go(start):\n    start()\n", str(tmp_path / "train.py"), "exec")
    names: dict[str, Any] = {}
    exec(code, names)
    names["go"](queued[0])
    (line,) = (tmp_path / "scratch" / f"obs-{os.getpid()}.jsonl").read_text().splitlines()
    seen = Observation.from_json(json.loads(line)["obs"]).splits[""].device
    assert seen is not None
    touch = seen.touches["main"]
    assert (touch.worker, touch.line, touch.function) == (None, 2, "go")


@pytest.mark.parametrize(
    ("shown", "index", "name"),
    [(None, 1, "1"), ("3,5", 1, "5"), ("GPU-8932f937, GPU-5c17", 1, "GPU-5c17")],
)
def test_hidden_devices_change_the_number_that_the_driver_knows(
    shown: str | None, index: int, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if shown is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown)
    assert nvml.visible(index) == name


def test_without_the_driver_nothing_is_known_of_other_processes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nvml, "LIBRARY", "no-such-library.so")
    assert nvml.used(0) is None


@pytest.mark.parametrize(
    "name",
    [
        "memory_stats", "mem_get_info", "reset_peak_memory_stats", "get_device_name",
        "is_initialized", "current_device", "device_count", "_lazy_call",
        "memory._record_memory_history", "memory._snapshot",
    ],
)  # fmt: skip
def test_torch_has_the_names_that_are_used(name: str) -> None:
    found: Any = torch.cuda
    for part in name.split("."):
        found = getattr(found, part)
    assert callable(found)


def test_the_drive_reads_the_device_after_each_batch_of_each_epoch(
    allocator: Allocator, watch: Any, tmp_path: Any
) -> None:
    """The way of a real run: what is written merges to an Observation that the rules read."""
    from torch.utils.data import DataLoader, TensorDataset

    from dlcheck.run.drive import Drive, Plan
    from dlcheck.run.target import Target
    from tests.run.conftest import read

    kept = []

    def step(batch: Any) -> None:
        kept.append(allocator.alloc(MIB, ("/job/train.py", 7, "step")))

    loader = DataLoader(TensorDataset(torch.zeros(32, 2)), batch_size=4)
    drive = Drive(watch, Target(loader, loader.dataset), Plan(20.0, None, 0))
    cuda = device.Cuda(0, "auto", GIB)
    cuda.move = lambda batch: (batch, 32)  # type: ignore[method-assign]
    drive.step, drive.device = step, device.follow(watch, "auto", cuda, "")
    for epoch in range(3):
        assert drive.epoch(epoch, float("inf"))
    drive.device.finish()
    seen = read(tmp_path / "scratch").splits[""].device
    assert seen is not None
    assert [(r.epoch, r.allocated // MIB) for r in seen.readings] == [
        (n // 8, n + 1) for n in range(24)
    ]
    assert [(a.line, a.first // MIB, a.last // MIB) for a in seen.allocations.values()] == [
        (7, 8, 24)
    ]
    assert (seen.moved, seen.stepped, seen.asked) == (32, True, "auto")
