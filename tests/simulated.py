"""A CUDA device without one: the caching allocator's rules, and the names of torch.cuda over them.

`python -m tests.simulated` writes tests/recordings anew: what dlcheck's own code writes of the
examples' steps when their blocks are asked for here. No device has been near these files;
tests/gpu_run.py makes real ones.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dlcheck

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
EXAMPLES = Path(dlcheck.__file__).parent / "examples"
RECORDINGS = Path(__file__).parent / "recordings"
SMALL, SMALL_SEGMENT, LARGE_SEGMENT, LARGE = MIB, 2 * MIB, 20 * MIB, 10 * MIB
CONTEXT = 400 * MIB
Frames = tuple[tuple[str, int, str], ...]


@dataclass
class Block:
    size: int
    frames: Frames
    segment: int


@dataclass
class Allocator:
    """The rules of torch's caching allocator, without fragments.

    Sizes are rounded up to 512 bytes. What is below 1 MiB comes out of segments of 2 MiB, what is
    below 10 MiB out of segments of 20 MiB; larger blocks have segments of their own.
    """

    total: int = 8 * GIB
    others: int = GIB
    live: dict[int, Block] = field(default_factory=dict)
    segments: list[list[int]] = field(default_factory=list)
    peak: int = 0
    made: int = 0

    def alloc(self, size: int, *frames: tuple[str, int, str]) -> int:
        size = -(-size // 512) * 512
        number = self._segment(size)
        self.segments[number][1] += size
        self.made += 1
        self.live[self.made] = Block(size, frames, number)
        self.peak = max(self.peak, self.allocated)
        return self.made

    def free(self, *keys: int) -> None:
        for key in keys:
            block = self.live.pop(key)
            self.segments[block.segment][1] -= block.size

    @property
    def allocated(self) -> int:
        return sum(block.size for block in self.live.values())

    @property
    def reserved(self) -> int:
        return sum(size for size, _ in self.segments)

    def _segment(self, size: int) -> int:
        small = size <= SMALL
        for number, (whole, used) in enumerate(self.segments):
            if (whole == SMALL_SEGMENT) == small and whole - used >= size:
                return number
        whole = -(-size // SMALL_SEGMENT) * SMALL_SEGMENT
        self.segments.append(
            [SMALL_SEGMENT if small else LARGE_SEGMENT if size < LARGE else whole, 0]
        )
        return len(self.segments) - 1

    def memory_stats(self, device: Any = None) -> dict[str, int]:
        return {
            "allocated_bytes.all.current": self.allocated,
            "allocated_bytes.all.peak": self.peak,
            "reserved_bytes.all.current": self.reserved,
        }

    def mem_get_info(self, device: Any = None) -> tuple[int, int]:
        return self.total - self.others - CONTEXT - self.reserved, self.total

    def reset_peak_memory_stats(self, device: Any = None) -> None:
        self.peak = self.allocated

    def get_device_name(self, device: Any = None) -> str:
        return "Simulated 8 GiB"

    def is_initialized(self) -> bool:
        return True

    def current_device(self) -> int:
        return 0

    def snapshot(self) -> dict[str, Any]:
        """The live blocks in the form of torch.cuda.memory._snapshot()."""
        blocks = [
            {
                "size": block.size,
                "requested_size": block.size,
                "state": "active_allocated",
                "frames": [
                    {"filename": file, "line": line, "name": name}
                    for file, line, name in block.frames
                ],
            }
            for block in self.live.values()
        ]
        idle = {"size": 4 * KIB, "requested_size": 0, "state": "inactive", "frames": []}
        return {"segments": [{"device": 0, "blocks": [*blocks, idle]}], "device_traces": []}


NAMES = (
    "memory_stats", "mem_get_info", "reset_peak_memory_stats", "get_device_name",
    "is_initialized", "current_device",
)  # fmt: skip


def installed(allocator: Allocator, patch: Any) -> None:
    """Let torch.cuda, and the private names that dlcheck uses, answer from the allocator."""
    import torch

    from dlcheck.run import torch_private

    for name in NAMES:
        patch.setattr(torch.cuda, name, getattr(allocator, name))
    patch.setattr(torch_private, "begin_history", lambda: True)
    patch.setattr(torch_private, "end_history", lambda: None)
    patch.setattr(torch_private, "memory_snapshot", allocator.snapshot)


class Moved:
    """A tensor, as far as moving and the sizes of its blocks go."""

    def __init__(
        self, allocator: Allocator, shape: tuple[int, ...], *, there: bool = False
    ) -> None:
        self.allocator = allocator
        self.shape = shape
        self.key = allocator.alloc(self.numel() * 4) if there else None

    def untyped_storage(self) -> None:
        return None

    def numel(self) -> int:
        count = 1
        for size in self.shape:
            count *= size
        return count

    def element_size(self) -> int:
        return 4

    def to(self, device: str, *, non_blocking: bool) -> Moved:
        assert device.startswith("cuda")
        assert non_blocking
        return Moved(self.allocator, self.shape, there=True)

    def __del__(self) -> None:
        if self.key is not None:
            self.allocator.free(self.key)


def line_of(example: Path, text: str) -> int:
    lines = enumerate(example.read_text("utf-8").splitlines(), start=1)
    return next(number for number, line in lines if text in line)


def step_of(kind: str, allocator: Allocator) -> Any:
    """The step of the device-leak example, as the blocks that it asks for."""
    example = EXAMPLES / "device-leak" / f"{kind}.py"
    user = str(example)
    conv = ("/env/torch/nn/modules/conv.py", 553, "forward")
    model = line_of(example, "output = model(images)")
    back = line_of(example, "loss.backward()")
    for size in (3456, 128, 128, 4):
        allocator.alloc(size, (user, line_of(example, "model = nn"), "<module>"))
    gradients: list[int] = []

    def step(batch: Any) -> None:
        allocator.free(*gradients)
        gradients.clear()
        hidden = 8 * 32 * 96 * 96 * 4
        acts = [allocator.alloc(n, conv, (user, model, "step")) for n in (hidden, hidden)]
        output = allocator.alloc(8 * 96 * 96 * 4, conv, (user, model, "step"))
        wide = [allocator.alloc(hidden, (user, back, "step")) for _ in range(2)]
        gradients.extend(allocator.alloc(n, (user, back, "step")) for n in (3456, 128, 128, 4))
        allocator.free(*acts, *wide)
        if kind == "bad":
            keep = line_of(example, "predictions.append")
            allocator.alloc(8 * 96 * 96 * 4, (user, keep, "step"))
        allocator.free(output)

    return step


def record(kind: str, patch: Any, *, epochs: int = 3, batches: int = 8) -> dict[str, Any]:
    """What dlcheck writes of a run of the device-leak example on a simulated device."""
    from dlcheck.observation import Loader, Observation, Split, plain
    from dlcheck.observers.device import OnDevice
    from dlcheck.run.device import Cuda

    example = EXAMPLES / "device-leak" / f"{kind}.py"
    allocator = Allocator()
    installed(allocator, patch)
    parts: list[dict[str, Any]] = []
    follower = OnDevice(parts.append, Cuda(0, "auto", GIB))
    step = step_of(kind, allocator)
    for epoch in range(epochs):
        for _ in range(batches):
            batch = (Moved(allocator, (8, 3, 96, 96)), Moved(allocator, (8, 1, 96, 96)))
            follower.give(batch, step, epoch)
    follower.finish()
    loader = Loader(file=str(example), line=line_of(example, "return DataLoader"), batch_size=8)
    seen = Observation(
        {"": Split(loader=loader, samples=64, again=128, batches=24, epochs=3, finished_epochs=3)}
    )
    for part in parts:
        seen = seen.merge(Observation.from_json({"splits": {"": {"device": part}}}))
    found: dict[str, Any] = json.loads(
        json.dumps(plain(seen)).replace(json.dumps(str(example))[1:-1], "{example}")
    )
    return found


if __name__ == "__main__":
    import pytest

    for kind_ in ("bad", "good"):
        with pytest.MonkeyPatch.context() as patch_:
            text = json.dumps(record(kind_, patch_), indent=1)
        (RECORDINGS / f"device-leak-{kind_}.json").write_text(text + "\n", encoding="utf-8")
