"""The device in plain words, with the run's own figures."""

from __future__ import annotations

import dataclasses

import pytest

from dlcheck.findings import Report
from dlcheck.observation import Budget, Device, Observation, Reading, Split
from dlcheck.reporters import terminal
from dlcheck.reporters.device import sections

MIB, GIB = 1 << 20, 1 << 30
READINGS = tuple(
    Reading(e, 1 + e * 4 + s, GIB, 3 * GIB, 2 * GIB + s * MIB, 4 * GIB, stepped=True)
    for e in range(2)
    for s in range(4)
)
DEVICE = Device("auto", "cuda:0", "NVIDIA A10", 22 * GIB, 21 * GIB, 512 * MIB, readings=READINGS)
BUDGET = Budget(
    "resnet50", "CrossEntropyLoss", "AdamW", 32, peak=3 * GIB, moment="step",
    parameters=100 * MIB, activations=2972 * MIB, fixed=300 * MIB, per_sample=85 * MIB,
    assumed=("no autocast",),
)  # fmt: skip


def page(split: Split, width: int = 80) -> str:
    seen = Observation({"": split})
    return terminal.render(Report("leak", "job", "pass", (), (), seen), width=width)


def test_each_tool_is_explained_with_the_figures_of_this_run() -> None:
    (one,) = sections(Split(device=DEVICE))
    assert one.title == "device cuda:0: NVIDIA A10, 22 GiB (21 GiB free at the start)"
    assert one.rows[1] == ("1", "5-8", "1 GiB", "3 GiB", "2 GiB", "4 GiB")
    said = " ".join(one.lines)
    assert "allocated, 1 GiB, is what live tensors take, as in memory_summary()" in said
    assert "reserved, 3 GiB, is what PyTorch keeps of the device, and 2 GiB of it is free" in said
    assert "nvidia-smi shows 4 GiB: reserved, 512 MiB for the CUDA context" in said
    assert "and 512 MiB that other processes held before" in said
    assert "empty_cache() would give at most 2 GiB back" in said
    assert "is the most that a step held at once" in said


def test_without_the_drivers_figure_from_before_others_are_not_told_apart() -> None:
    (one,) = sections(Split(device=dataclasses.replace(DEVICE, before=None)))
    assert "for the CUDA context and its libraries and other processes" in " ".join(one.lines)


def test_batches_that_no_step_took_are_not_called_steps() -> None:
    unstepped = tuple(dataclasses.replace(reading, stepped=False) for reading in READINGS)
    (one,) = sections(Split(device=dataclasses.replace(DEVICE, readings=unstepped)))
    assert "a batch (no step ran) held at once" in " ".join(one.lines)


def test_no_device_is_one_line() -> None:
    device = Device("auto", reason="this torch is built without CUDA")
    (one,) = sections(Split(device=device))
    assert (one.title, one.rows) == ("device (--device auto)", ())
    assert one.lines == ("this torch is built without CUDA; nothing was measured",)


@pytest.mark.parametrize("split", [Split(), Split(device=Device()), Split(budget=Budget())])
def test_where_nobody_asked_nothing_is_said(split: Split) -> None:
    assert sections(split) == []


def test_a_foreseen_step_is_shown_by_its_parts_and_the_batches_that_fit() -> None:
    (one,) = sections(Split(budget=BUDGET))
    assert "resnet50 + CrossEntropyLoss + AdamW" in one.title
    assert "3 GiB" in one.title
    assert one.rows == (
        ("parameters", "100 MiB", "3%"),
        ("activations", "2.9 GiB", "97%"),
    )
    assert "in the optimizer's step, with a batch of 32" in one.lines[0]
    assert "78 in 8 GiB" in one.lines[1]
    assert one.lines[-1] == "no autocast"


def test_a_step_that_cannot_be_foreseen_says_why() -> None:
    (one,) = sections(Split(budget=Budget("Net", reason="the model is a Net, no Module")))
    assert one.lines == ("the model is a Net, no Module",)


@pytest.mark.parametrize("width", [80, 40, 24])
def test_every_width_holds_the_figures(width: int) -> None:
    text = page(Split(device=DEVICE, budget=BUDGET), width)
    assert max(map(len, text.splitlines())) <= width
    assert "2.9 GiB" in " ".join(text.split())
