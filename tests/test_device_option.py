"""`--device` on a machine with no accelerator: one line says so, and the rest goes on."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from dlcheck.cli import cli
from tests import gpu_run

WHY = gpu_run.missing_device()
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")

JOB = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(32, 512), nn.ReLU(), nn.Linear(512, 2))

def make_loader():
    return DataLoader(TensorDataset(torch.zeros(64, 32), torch.arange(64) % 2), batch_size=16)
"""
CONFIG = {
    "loader": "job:make_loader",
    "model": {"_target_": "job.Net"},
    "loss": {"_target_": "torch.nn.CrossEntropyLoss"},
    "optimizer": {"_target_": "torch.optim.AdamW", "lr": 0.001},
    "machine": {"device": "1MiB"},
}


@needs_torch
@pytest.mark.skipif(not WHY, reason="there is a device here")
def test_leak_goes_on_without_a_device_and_foresees_the_step(run_dlcheck, tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(JOB)
    (tmp_path / "dlcheck.yaml").write_text(json.dumps(CONFIG))
    saved = tmp_path / "run.json"
    done = run_dlcheck("leak", "--epochs", "3", "--device", "auto", "--save", saved)
    assert done.returncode == 0, done.stderr
    (said,) = (line for line in done.stderr.splitlines() if "--device auto" in line)
    assert said.endswith("; the rest goes on")
    split = json.loads(saved.read_text())["observation"]["splits"][""]
    reason = split["device"]["reason"]
    assert reason in said
    shown = " ".join(done.stdout.split())
    assert f"device (--device auto) {reason}; nothing was measured" in shown
    assert "a training step of Net + CrossEntropyLoss + AdamW, foreseen without a device" in shown
    assert "main heap" in shown
    assert split["budget"]["optimizer_state"] > 2 * split["budget"]["parameters"] > 0
    assert "DLC513 device-budget" in shown


@pytest.mark.parametrize("value", ["gpu", "cuda:x", "cuda:", "1", "cuda:0,1"])
def test_a_device_of_another_name_is_a_mistake(value: str) -> None:
    done = CliRunner().invoke(cli, ["leak", "--device", value])
    assert done.exit_code == 2
    assert "is none of auto, cpu and cuda:0" in done.output
