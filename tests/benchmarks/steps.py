"""The peak of two training steps with Adam on the CPU: `profiled` really, `foreseen` without.

Prints one line of JSON: bytes, and seconds of CPU.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

ROOT = Path(__file__).resolve().parents[2]


def block(before: int, after: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for width in (before, after):
        layers += [nn.Conv2d(width, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU()]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """Three levels, 16 channels at the top, two classes."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        widths = [width, 2 * width, 4 * width]
        self.down = nn.ModuleList(map(block, [3, *widths], widths))
        self.middle = block(4 * width, 8 * width)
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, 2) for w in reversed(widths))
        self.join = nn.ModuleList(block(2 * w, w) for w in reversed(widths))
        self.head = nn.Conv2d(width, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = []
        for down in self.down:
            x = down(x)
            kept.append(x)
            x = nn.functional.max_pool2d(x, 2)
        x = self.middle(x)
        for up, join in zip(self.up, self.join, strict=True):
            x = join(torch.cat([up(x), kept.pop()], 1))
        return self.head(x)


def profiled(name: str, images: list[int], labels: list[int]) -> int:
    """Bytes at the peak, by the memory events of torch.profiler; nothing is held before."""
    from torch.profiler import ProfilerActivity, profile

    module, _, made = name.rpartition(".")
    model_class = getattr(importlib.import_module(module), made)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        model = model_class()
        loss, optimizer = nn.CrossEntropyLoss(), torch.optim.Adam(model.parameters())
        x, y = torch.rand(images), torch.zeros(labels, dtype=torch.int64)
        for _ in range(2):
            optimizer.zero_grad()
            loss(model(x), y).backward()
            optimizer.step()
    events = profiler.profiler.kineto_results.events()
    memory = sorted((e for e in events if e.name() == "[memory]"), key=lambda e: e.start_ns())
    now = peak = 0
    for event in memory:
        now += event.nbytes()
        peak = max(peak, now)
    return peak


def foreseen(name: str, images: list[int], labels: list[int]) -> int:
    """Bytes at the peak as dlcheck foresees it, parameters updated one by one as on the CPU."""
    sys.path.insert(0, str(ROOT))
    from dlcheck.observers.describe import Described
    from dlcheck.run.budget import foresee

    spec = {
        "model": {"_target_": name},
        "loss": {"_target_": "torch.nn.CrossEntropyLoss"},
        "optimizer": {"_target_": "torch.optim.Adam"},
    }
    leaves = [
        Described("", "tuple", None, (2,)),
        Described("0", "Tensor", "float32", tuple(images)),
        Described("1", "Tensor", "int64", tuple(labels)),
    ]
    found = foresee(spec, leaves, foreach=False)
    assert not found.reason, found.reason
    return found.peak


def main(kind: str, case: str) -> dict[str, Any]:
    begun = time.process_time()
    peak = (profiled if kind == "profiled" else foreseen)(*json.loads(case))
    return {"peak": peak, "seconds": time.process_time() - begun}


if __name__ == "__main__":
    sys.modules["steps"] = sys.modules["__main__"]
    print(json.dumps(main(*sys.argv[1:])))
