"""Under dlcheck a pipeline gives what it gives without: same draws, attributes, offsets, order."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("numpy")

ROOT = Path(__file__).resolve().parents[1]
PIPELINE = '''
import os
import random
import zlib

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

LOG = os.environ["LOG"]
HERE = os.path.dirname(os.path.abspath(__file__))


class Mixed(Dataset):
    shared = np.random.RandomState(7)

    def __init__(self):
        self.rng = np.random.default_rng(3)
        self.python = random.Random(5)
        self.count = 0
        self.threads = torch.get_num_threads()

    def __len__(self):
        return 20

    def __getitem__(self, index):
        self.count += 1
        with open(os.path.join(HERE, "data.txt")) as lines:
            text = lines.read()[index]
        return {
            "a": torch.rand(3, 8, 8) + index,
            "b": np.random.rand(4) + self.rng.random(),
            "c": random.random() + self.python.random() + self.shared.rand(),
            "text": text,
            "count": self.count,
        }


class Sequential(Mixed):
    """Reads on from where a handle of its own stands."""

    def __init__(self):
        super().__init__()
        self.handle = open(os.path.join(HERE, "data.txt"))

    def __getitem__(self, index):
        return super().__getitem__(index) | {"next": self.handle.read(1)}


def collate(samples):
    info = get_worker_info()
    name = "main" if info is None else f"worker{info.id}"
    flat = repr([sorted((k, str(v)) for k, v in s.items()) for s in samples])
    with open(f"{LOG}-{name}", "a") as log:
        log.write(f"{zlib.crc32(flat.encode())} {torch.get_num_threads()} {len(samples)}\\n")
    return torch.utils.data.default_collate(samples)


def make_loader():
    torch.manual_seed(1)
    random.seed(2)
    np.random.seed(3)
    workers = int(os.environ["WORKERS"])
    data = Mixed() if workers else Sequential()
    context = os.environ["CONTEXT"] if workers else None
    return DataLoader(
        data, batch_size=3, shuffle=True, num_workers=workers, collate_fn=collate,
        multiprocessing_context=context, persistent_workers=bool(workers),
    )
'''
BARE = """
from pipeline import make_loader
if __name__ == "__main__":
    loader = make_loader()
    for epoch in range(2):
        for batch in loader:
            pass
"""


@pytest.mark.parametrize(("workers", "context"), [(0, "fork"), (2, "fork"), (2, "spawn")])
def test_batches_equal_those_of_a_bare_loop(workers: int, context: str, tmp_path: Path) -> None:
    (tmp_path / "pipeline.py").write_text(PIPELINE)
    (tmp_path / "bare.py").write_text(BARE)
    (tmp_path / "data.txt").write_text("abcdefghijklmnopqrstuvwxyz" * 10)
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    base = {**os.environ, "WORKERS": str(workers), "CONTEXT": context, "PYTHONPATH": paths}
    logs = {}
    for name, command in {
        "bare": [sys.executable, "bare.py"],
        "checked": [
            sys.executable, "-m", "dlcheck", "shapes", "pipeline.py:make_loader",
            "--fail-on", "never", "--format", "json", "--budget", "10m",
        ],
    }.items():  # fmt: skip
        env = {**base, "LOG": str(tmp_path / name)}
        subprocess.run(command, cwd=tmp_path, env=env, check=True, capture_output=True, timeout=120)
        found = sorted(tmp_path.glob(f"{name}-*"))
        logs[name] = {p.name.removeprefix(f"{name}-"): p.read_text().split("\n") for p in found}
    bare, checked = logs["bare"], logs["checked"]
    assert set(bare) <= set(checked)
    for process, lines in bare.items():
        assert lines[:-1] == checked[process][: len(lines) - 1], process
