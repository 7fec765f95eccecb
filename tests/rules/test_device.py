"""Memory of the device: growth that goes on, growth that ends, and what a step would need."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

import dlcheck
import dlcheck.rules
from dlcheck.findings import ERROR, WARNING, Finding, RuleState, judge
from dlcheck.observation import (
    Allocation,
    Budget,
    Device,
    Failure,
    Frame,
    Loader,
    Observation,
    Reading,
    Split,
)

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
RULES = ["DLC512", "DLC513"]
RECORDINGS = Path(__file__).parents[1] / "recordings"
EXAMPLES = Path(dlcheck.__file__).parent / "examples"
LOADER = Loader(file="/job/data.py", line=40, batch_size=32)
KEPT = Allocation(
    "/job/train.py",
    31,
    "step",
    "outputs.append(out)",
    ("/job/train.py:50 main",),
    MIB,
    90 * MIB,
    64,
)
BUDGET = Budget(
    "resnet50", "CrossEntropyLoss", "AdamW", 32, peak=3 * GIB, moment="backward",
    parameters=100 * MIB, optimizer_state=200 * MIB, activations=2600 * MIB, inputs=20 * MIB,
    temporaries=152 * MIB, fixed=300 * MIB, per_sample=85 * MIB,
)  # fmt: skip


def run(
    live: Callable[[int, int], int], epochs: int = 3, steps: int = 20, *, first: int = 1
) -> tuple[Reading, ...]:
    """Readings of `epochs` epochs: `live` gives the bytes from epoch and step of the epoch."""
    return tuple(
        Reading(
            e, first + e * steps + s, live(e, s), 4 * GIB, live(e, s) + GIB, 5 * GIB, stepped=True
        )
        for e in range(epochs)
        for s in range(steps)
    )


def on(readings: Iterable[Reading] = (), **more: Any) -> Device:
    about: dict[str, Any] = {
        "asked": "auto", "name": "cuda:0", "model": "NVIDIA A10", "total": 22 * GIB,
        "free": 21 * GIB, "before": GIB // 2,
    }  # fmt: skip
    return Device(**about | {"readings": tuple(readings)} | more)


def judged(split: Split, **settings: Any) -> tuple[list[Finding], dict[str, RuleState]]:
    split = dataclasses.replace(split, loader=LOADER, samples=64, batches=2, epochs=3)
    findings, states = judge(Observation({"": split}, settings=settings), select=RULES)
    return list(findings), {s.rule: s for s in states if s.reason != "not selected"}


def found(split: Split, **settings: Any) -> list[Finding]:
    return judged(split, **settings)[0]


def leaking(readings: tuple[Reading, ...], **more: Any) -> list[Finding]:
    return [f for f in found(Split(device=on(readings, **more))) if f.rule == "device-leak"]


def test_outputs_kept_in_a_list_are_named_with_their_line() -> None:
    device = run(lambda e, s: GIB + (e * 20 + s) * MIB)
    (one,) = leaking(device, allocations={"a": KEPT})
    assert one.severity == ERROR
    assert (one.where.file, one.where.line) == ("/job/train.py", 31)
    assert one.evidence["bytes_per_step"] == MIB
    assert one.evidence["bytes_per_epoch"] == 20 * MIB
    assert one.evidence["frames"] == ["/job/train.py:50 main"]
    assert (one.evidence["allocated"], one.evidence["reserved"], one.evidence["driver"]) == (
        "1.06 GiB", "4 GiB", "5 GiB",
    )  # fmt: skip
    assert "1 MiB more on cuda:0" in one.message
    assert "full after 21,445 more steps" in one.message


def test_a_leak_without_a_line_is_told_all_the_same() -> None:
    (one,) = leaking(run(lambda e, s: GIB + (e * 20 + s) * MIB))
    assert one.where.file is None


@pytest.mark.parametrize(
    ("why", "live"),
    [
        ("nothing grows", lambda e, s: GIB),
        ("sizes vary from batch to batch", lambda e, s: GIB + (s * 7919 % 13) * 16 * MIB),
        ("the optimizer makes its state in the first epoch", lambda e, s: GIB * (1 + (e > 0))),
        ("a cache fills and is full", lambda e, s: GIB + min(e * 20 + s, 25) * 16 * MIB),
        ("outputs are cleared at each epoch's end", lambda e, s: GIB + s * 16 * MIB * (s < 19)),
        ("a scalar a step is logged", lambda e, s: GIB + (e * 20 + s) * 512),
    ],
)
def test_what_levels_off_is_no_leak(why: str, live: Callable[[int, int], int]) -> None:
    assert leaking(run(live)) == [], why


def test_reserved_memory_that_grows_is_no_leak() -> None:
    readings = [
        dataclasses.replace(reading, reserved=GIB + n * 64 * MIB, driver=2 * GIB + n * 64 * MIB)
        for n, reading in enumerate(run(lambda e, s: GIB))
    ]
    assert leaking(tuple(readings)) == []


def test_one_epoch_alone_earns_a_warning() -> None:
    """What grows within it may be cleared at its end."""
    (one,) = leaking(run(lambda e, s: GIB + s * MIB, epochs=1, steps=40))
    assert one.severity == WARNING


def test_a_step_up_between_two_epochs_is_no_leak() -> None:
    """A buffer that the second epoch's first batch makes stays."""
    assert leaking(run(lambda e, s: GIB + e * 64 * MIB, epochs=2)) == []


def test_two_epochs_that_grow_all_along_are_a_leak() -> None:
    (one,) = leaking(run(lambda e, s: GIB + (e * 20 + s) * MIB, epochs=2))
    assert one.severity == ERROR


def test_epochs_before_the_first_step_do_not_hide_a_leak() -> None:
    """As in `gate`, whose first epoch calls no step."""
    before = [dataclasses.replace(r, allocated=0, stepped=False) for r in run(lambda e, s: 0, 1)]
    after = run(lambda e, s: 4 * GIB + (e * 20 + s) * MIB, first=21)
    later = [dataclasses.replace(r, epoch=r.epoch + 1) for r in after]
    (one,) = leaking((*before, *later))
    assert one.evidence["bytes_per_step"] == MIB


def test_too_few_steps_say_nothing() -> None:
    assert leaking(run(lambda e, s: GIB + s * MIB, epochs=1, steps=6)) == []


def test_no_device_is_not_applicable_with_the_reason() -> None:
    _, states = judged(Split(device=Device(asked="auto", reason="no CUDA device can be seen")))
    leak = states["device-leak"]
    assert (leak.state, leak.reason) == ("not-applicable", "no CUDA device can be seen")


def test_a_certain_device_that_is_not_there_is_unobserved() -> None:
    _, states = judged(Split(device=Device(asked="cuda:3", reason="there is no cuda:3")))
    assert states["device-leak"].state == "unobserved"


@pytest.mark.parametrize("kind", ["bad", "good"])
def test_the_example_is_judged_from_its_recording(kind: str) -> None:
    """No device here: what a run of the example writes on one is kept beside the tests."""
    example = EXAMPLES / "device-leak" / f"{kind}.py"
    text = (RECORDINGS / f"device-leak-{kind}.json").read_text("utf-8")
    seen = Observation.from_json(json.loads(text.replace("{example}", str(example))))
    findings, states = judge(seen, select=RULES)
    marked = [
        ("device-leak", number)
        for number, line in enumerate(example.read_text("utf-8").splitlines(), start=1)
        if "# expect: device-leak" in line
    ]
    assert [(f.rule, f.where.line) for f in findings] == marked
    assert {s.state for s in states if s.rule == "device-leak"} == {"ran"}
    if kind == "bad":
        quoted = example.read_text("utf-8").splitlines()[findings[0].where.line - 1].strip()
        assert findings[0].evidence["code"] == quoted


def test_a_foreseen_step_that_does_not_fit_names_the_largest_batch() -> None:
    (one,) = found(Split(budget=BUDGET), machine={"device": "2GiB"})
    assert (one.rule, one.severity) == ("device-budget", WARNING)
    assert (one.where.file, one.where.line) == ("/job/data.py", 40)
    assert one.evidence["largest_batch"] == 12
    assert one.evidence["activations"] == "2.54 GiB"
    assert "the largest batch that fits is 12 (85 MiB a sample)" in one.message


def test_the_margin_is_stated_where_it_decides() -> None:
    (one,) = found(Split(budget=BUDGET), machine={"device": "3.5GiB"})
    assert "its margins included" in one.message
    assert one.evidence["with_margins"].startswith("3.8 GiB (10 % and 512 MiB")


def test_a_model_too_large_for_any_batch_says_so() -> None:
    budget = dataclasses.replace(BUDGET, parameters=GIB, optimizer_state=2 * GIB, peak=6 * GIB)
    (one,) = found(Split(budget=budget), machine={"device": "3GiB"})
    assert one.evidence["largest_batch"] == 0
    assert "no batch fits" in one.message


def test_a_step_that_fits_is_silent() -> None:
    findings, states = judged(Split(budget=BUDGET), machine={"device": "24GiB"})
    assert findings == []
    assert states["device-budget"].state == "ran"


@pytest.mark.parametrize(
    ("split", "settings", "reason"),
    [
        (Split(budget=BUDGET), {}, "`machine: {device: 24GiB}` names none"),
        (Split(), {"machine": {"device": "8GiB"}}, "no model in the config"),
        (Split(budget=Budget(reason="no Module")), {"machine": {"device": "8GiB"}}, "no Module"),
        (Split(budget=BUDGET), {"machine": {"memory": "8GiB"}}, "names none"),
    ],
)
def test_without_device_or_model_nothing_is_judged(
    split: Split, settings: dict[str, Any], reason: str
) -> None:
    findings, states = judged(split, **settings)
    assert findings == []
    assert states["device-budget"].state == "not-applicable"
    assert reason in states["device-budget"].reason


def test_a_measured_peak_over_the_machine_is_an_error() -> None:
    device = on(run(lambda e, s: GIB))
    (one,) = found(Split(device=device, budget=BUDGET), machine={"device": "1.5GiB"})
    assert (one.rule, one.severity) == ("device-budget", ERROR)
    assert one.evidence["measured_peak"] == "2 GiB"


def test_what_was_measured_goes_before_what_was_foreseen() -> None:
    assert (
        found(Split(device=on(run(lambda e, s: GIB)), budget=BUDGET), machine={"device": "2.5GiB"})
        == []
    )


@pytest.mark.parametrize(
    "message",
    [
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 22 GiB",
        "HIP out of memory. Tried to allocate 2.00 GiB",
        "CUDA error: out of memory",
    ],
)
def test_a_step_that_ran_out_of_memory_is_an_error_at_its_line(message: str) -> None:
    frames = (Frame("/job/train.py", 20, "step", "loss.backward()", user=True),)
    failure = Failure("step", "OutOfMemoryError", message, frames)
    split = Split(device=on(), failures={failure.key: failure})
    findings, _ = judged(split)
    assert [(f.rule, f.severity, f.where.line) for f in findings] == [("device-budget", ERROR, 20)]
    assert findings[0].explains == {failure.key}


def test_a_host_that_ran_out_of_memory_is_none_of_the_devices() -> None:
    failure = Failure(
        "sample", "RuntimeError", "DefaultCPUAllocator: can't allocate memory: out of memory"
    )
    assert found(Split(failures={failure.key: failure})) == []
