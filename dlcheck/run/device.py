"""CUDA behind one small interface: which device, what is on it, and who started it.

Nothing here starts a context unless --device asks for one.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType, MethodType
from typing import Any

from dlcheck.observation import Device, Touch, plain
from dlcheck.observers.device import Figures, Live, OnDevice
from dlcheck.run import nvml, torch_private
from dlcheck.run.failures import caller

DEEPEST = 5
MOST_REACHED = 400


class Cuda:
    """One CUDA (or ROCm) device of this process."""

    def __init__(self, index: int, asked: str, before: int | None) -> None:
        import torch

        self.cuda: Any = torch.cuda
        self.index = index
        self.name = f"cuda:{index}"
        self.asked = asked
        self.before = before
        self.missing: tuple[str, ...] = ()
        self.recording = False
        self._record()

    def _record(self) -> None:
        """Have the allocator remember who asked for each live block."""
        try:
            self.recording = torch_private.begin_history()
        except Exception as error:  # noqa: BLE001 - a private name of torch
            self.missing = (f"memory history: {type(error).__name__}: {error}"[:200],)

    def facts(self) -> Device:
        """Say what the device is, and what was free on it before the first batch."""
        free, total = self.cuda.mem_get_info(self.index)
        model = self.cuda.get_device_name(self.index)
        return Device(
            asked=self.asked, name=self.name, model=model, total=int(total), free=int(free),
            before=self.before, missing=self.missing,
        )  # fmt: skip

    def move(self, batch: Any) -> tuple[Any, int]:
        """Move every tensor, non-blocking as jobs do; pinned where the loader pins."""
        moved = [0]

        def one(tensor: Any) -> Any:
            there = tensor.to(self.name, non_blocking=True)
            moved[0] += there.numel() * there.element_size()
            return there

        return moved_all(batch, one), moved[0]

    def figures(self) -> Figures:
        """Read the allocator's counters and the driver's, and start the peak anew."""
        stats = self.cuda.memory_stats(self.index)
        free, total = self.cuda.mem_get_info(self.index)
        self.cuda.reset_peak_memory_stats(self.index)
        return Figures(
            int(stats.get("allocated_bytes.all.current", 0)),
            int(stats.get("reserved_bytes.all.current", 0)),
            int(stats.get("allocated_bytes.all.peak", 0)),
            int(total - free),
        )

    def blocks(self) -> list[Live]:
        """List the live blocks of this device, from the memory history."""
        with contextlib.suppress(Exception):
            return live_blocks(torch_private.memory_snapshot(), self.index)
        return []

    def holds(self, step: Any) -> bool:
        """Tell whether a module that the step reaches has its parameters here.

        A Lightning module is brought here first, as its Trainer does.
        """
        owner = getattr(step, "owner", None)
        if isinstance(owner, sys.modules["torch"].nn.Module):
            owner.to(self.name)
        first = (next(module.parameters(), None) for module in reached_modules(step))
        return any(one is not None and one.is_cuda for one in first)

    def stop(self) -> None:
        """Stop the history, if we began it."""
        if self.recording:
            with contextlib.suppress(Exception):
                torch_private.end_history()


def live_blocks(snapshot: Mapping[str, Any], index: int) -> list[Live]:
    """Read the live blocks of one device out of torch's memory snapshot."""
    found = []
    for segment in snapshot.get("segments", ()):
        if segment.get("device", index) != index:
            continue
        for block in segment.get("blocks", ()):
            if block.get("state") != "active_allocated":
                continue
            frames = block.get("frames")
            if frames is None:
                frames = (block.get("history") or [{}])[0].get("frames", ())
            where = tuple((f["filename"], int(f["line"]), f["name"]) for f in frames)
            found.append(Live(int(block.get("requested_size", block["size"])), where))
    return found


def choose(asked: str) -> tuple[Cuda | None, str]:
    """Find the device that --device names; the reason why there is none, in one line."""
    if asked in {"", "cpu"}:
        return None, "" if not asked else "batches stayed on the CPU"
    count, why = visible_devices()
    index = 0 if asked in {"auto", "cuda"} else int(asked.partition(":")[2])
    if asked == "auto" and os.environ.get("LOCAL_RANK", "").isdigit():
        index = int(os.environ["LOCAL_RANK"]) % max(count, 1)
    if not count:
        return None, why
    if index >= count:
        return None, f"there is no {asked}: {count} CUDA device{'s' * (count > 1)} can be seen"
    used = nvml.used(index)
    try:
        import torch

        torch.zeros(1, device=f"cuda:{index}")
        return Cuda(index, asked, used), ""
    except Exception as error:  # noqa: BLE001 - the driver's own refusals
        text = " ".join(str(error).split())[:160]
        return None, f"cuda:{index} cannot be used: {type(error).__name__}: {text}"


def visible_devices() -> tuple[int, str]:
    """Count the CUDA devices without starting one; with none, say why."""
    import torch

    if torch.version.cuda is None and getattr(torch.version, "hip", None) is None:
        return 0, "this torch is built without CUDA"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        count = int(torch.cuda.device_count())
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    if not count and hidden is not None:
        return 0, f"CUDA_VISIBLE_DEVICES={hidden!r} shows none"
    return count, "" if count else "no CUDA device can be seen (no NVIDIA driver, or no device)"


def started() -> Cuda | None:
    """Return the device that the user's code has started in this process, once it has."""
    cuda: Any = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return None
    with contextlib.suppress(Exception):
        return Cuda(int(cuda.current_device()), "", None)
    return None


def follow(watch: Any, asked: str, chosen: Cuda | None, reason: str) -> OnDevice:
    """Make what stands between loader and step of the current split."""
    split = watch.split

    def note(part: dict[str, Any]) -> None:
        watch.scratch.write(obs={"splits": {split: {"device": part}}})

    if asked:
        note(plain(Device(asked=asked, reason=reason)))
    return OnDevice(note, chosen, waiting=None if asked else started)


def note_touches(watch: Any) -> None:
    """Write down the line of the user's that starts CUDA, here and in forked workers."""
    main = os.getpid()

    def record() -> None:
        with contextlib.suppress(Exception):
            worker = torch_private.worker_number()
            if worker is None and os.getpid() != main:
                return
            watch.follow()
            touch = touch_here(worker)
            key = "main" if worker is None else f"w{worker}"
            watch.note(device={"touches": {key: plain(touch)}})

    with contextlib.suppress(Exception):
        torch_private.on_cuda_start(record)


def touch_here(worker: int | None) -> Touch:
    """Describe the user's line that is running now."""
    import linecache
    import multiprocessing

    method = ""
    if worker is not None:
        method = type(multiprocessing.current_process()).__name__.removesuffix("Process").lower()
        method = method or multiprocessing.get_start_method()
    frame = caller()
    if frame is None:
        return Touch(worker, method)
    file, line = frame.f_code.co_filename, frame.f_lineno
    text = linecache.getline(file, line).strip()
    return Touch(worker, method, file, line, frame.f_code.co_name, text)


def moved_all(value: Any, move: Callable[[Any], Any]) -> Any:
    """Rebuild a batch with its tensors moved, the containers as the user made them.

    Objects with a `to` of their own (BatchEncoding, PackedSequence, graphs) stay as they are.
    """
    if hasattr(value, "untyped_storage"):
        return move(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(moved_all(one, move) for one in value))
    if type(value) in {list, tuple}:
        return type(value)(moved_all(one, move) for one in value)
    if isinstance(value, dict):
        moved = {key: moved_all(one, move) for key, one in value.items()}
        with contextlib.suppress(Exception):
            return moved if type(value) is dict else type(value)(moved)
        return moved
    return value


def reached_modules(step: Any) -> Iterator[Any]:
    """Modules that a step reaches: its owner's, those in its closure, those of its module."""
    import torch

    seen: set[int] = set()
    queue: list[tuple[Any, int]] = [(step, 0)]
    while queue and len(seen) < MOST_REACHED:
        one, depth = queue.pop(0)
        if id(one) in seen:
            continue
        seen.add(id(one))
        if issubclass(type(one), torch.nn.Module):
            yield one
        elif depth < DEEPEST:
            queue += [(inner, depth + 1) for inner in _parts(one)]


def _parts(value: Any) -> list[Any]:
    """List what a function, a method, a partial or an object holds; runs no user code."""
    kind = type(value)
    if kind is functools.partial:
        return [value.func, *value.args, *value.keywords.values()]
    if kind is MethodType:
        return [value.__self__, value.__func__]
    if kind is FunctionType:
        return _reached_by(value)
    if issubclass(kind, dict) or kind in {list, tuple}:
        return list(dict.values(value) if issubclass(kind, dict) else value)
    try:
        held = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return []
    return list(held.values()) if isinstance(held, dict) else []


def _reached_by(function: FunctionType) -> list[Any]:
    """List the globals that a function names, and what its closure holds."""
    names = function.__globals__
    found = [names[name] for name in function.__code__.co_names if name in names]
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):
            found.append(cell.cell_contents)
    return found
