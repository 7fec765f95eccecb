"""Graphs and accelerators in workers: what breaks there, and what is right where it stands."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

import dlcheck.rules  # noqa: F401 - fills the registry
from dlcheck.findings import ERROR, Finding, judge
from dlcheck.observation import (
    Device,
    Failure,
    Field,
    Frame,
    Grad,
    Loader,
    Observation,
    Split,
    Tally,
    Touch,
)

LOADER = Loader(file="/job/data.py", line=40, num_workers=2, context="fork", kind="map")
WITH_GRAD = Field(types={"Tensor": Tally(8)}, grad=Tally(8, (3, 4)))
STACK = (
    "stack(): functions with out=... arguments don't support automatic differentiation, but one "
    "of the arguments requires grad."
)
REINIT = (
    "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must "
    "use the 'spawn' start method"
)
FRAMES = (Frame("/job/data.py", 17, "__getitem__", "return x.cuda(), y", user=True),)


def failing(message: str, phase: str = "collate", **more: Any) -> dict[str, Failure]:
    failure = Failure(phase, "RuntimeError", message, worker=0, **more)
    return {failure.key: failure}


def found(split: Split, **loader: Any) -> list[Finding]:
    split = dataclasses.replace(split, loader=dataclasses.replace(LOADER, **loader), samples=8)
    return [f for f in judge(Observation({"": split}))[0] if f.rule == "autograd-in-worker"]


def test_a_tensor_of_the_dataset_that_requires_grad_is_named_with_its_line() -> None:
    held = Grad("dataset.tensors[0]", "Tensor", (320, 3), "/job/data.py", 12, "x.requires_grad_()")
    failures = failing(STACK)
    split = Split(fields={"0": WITH_GRAD}, failures=failures, grads={held.path: held})
    (one,) = found(split)
    assert (one.severity, one.where.field, one.where.sample) == (ERROR, "0", 3)
    assert (one.where.line, one.where.attribute) == (12, "dataset.tensors[0]")
    assert one.explains == set(failures)


def test_a_queue_that_refuses_the_graph_and_hangs_is_explained() -> None:
    """The worker's feeder thread says it on stderr alone, and the loader waits for ever."""
    detail = {"stderr": "RuntimeError: Cowardly refusing to serialize non-leaf tensor which ..."}
    failures = failing("", "hang", detail=detail)
    (one,) = found(Split(fields={"0": WITH_GRAD}, failures=failures))
    assert one.explains == set(failures)


def test_a_batch_that_keeps_its_graph_is_told_although_it_came_through() -> None:
    (one,) = found(Split(fields={"0": WITH_GRAD}, batch_fields={"0": WITH_GRAD}, batches=3))
    assert (one.where.file, one.where.line) == ("/job/data.py", 40)


def test_the_main_process_may_return_what_requires_grad() -> None:
    """As networks that are told of physics do: the graph never leaves the process."""
    split = Split(fields={"0": WITH_GRAD}, batch_fields={"0": WITH_GRAD}, batches=3)
    assert found(split, num_workers=0, context=None) == []


def test_a_collate_that_detaches_is_right() -> None:
    assert found(Split(fields={"0": WITH_GRAD}, batch_fields={"0": Field()}, batches=3)) == []


def test_another_failure_beside_a_graph_is_none_of_ours() -> None:
    other = failing("index 9 is out of bounds")
    assert found(Split(fields={"0": WITH_GRAD}, failures=other)) == []


def test_a_step_that_meets_the_same_words_is_judged_by_others() -> None:
    """In the main process graphs are in their place."""
    failure = Failure("step", "RuntimeError", STACK)
    split = Split(fields={"0": WITH_GRAD}, failures={failure.key: failure})
    assert found(split) == []


@pytest.mark.parametrize("message", [REINIT, "Found no NVIDIA driver on your system. Please check"])
def test_a_forked_worker_that_moves_its_samples_is_named_at_the_line(message: str) -> None:
    failures = failing(message, "sample", frames=FRAMES, at=(5,))
    main = Touch(None, "", "/job/train.py", 3, "<module>", "model.cuda()")
    (one,) = found(Split(failures=failures, device=Device(touches={"main": main})))
    assert (one.severity, one.where.line, one.where.sample, one.where.worker) == (ERROR, 17, 5, 0)
    assert "the main process had started it at train.py:3" in one.message
    assert one.explains == set(failures)
    assert "spawn" in one.fix


def test_no_driver_in_the_main_process_is_left_to_others() -> None:
    failure = Failure("sample", "RuntimeError", "Found no NVIDIA driver on your system", FRAMES)
    assert found(Split(failures={failure.key: failure}), num_workers=0, context=None) == []


def test_a_context_in_each_forked_worker_is_told_before_it_fails() -> None:
    touches = {f"w{n}": Touch(n, "fork", "/job/data.py", 17, "__getitem__") for n in (0, 1)}
    (one,) = found(Split(device=Device(touches=touches)))
    assert one.where.line == 17
    assert one.evidence["workers"] == [0, 1]


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_spawned_workers_may_use_the_accelerator(method: str) -> None:
    touches = {"w0": Touch(0, method, "/job/data.py", 17, "__getitem__")}
    assert found(Split(device=Device(touches=touches)), context=method) == []


def test_the_main_process_may_use_the_accelerator() -> None:
    touches = {"main": Touch(None, "", "/job/train.py", 3, "<module>")}
    assert found(Split(device=Device(touches=touches))) == []
