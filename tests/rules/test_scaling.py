from __future__ import annotations

from typing import Any

import pytest

import dlcheck.rules  # noqa: F401 - fills the registry
from dlcheck.findings import ERROR, Finding, judge
from dlcheck.observation import Field, Journey, Observation, Split, State, Step, Tally

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
IMAGENET = "mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225), inplace=False"
SHAPE = (3, 64, 64)


def state(low: float, high: float, mean: float | None = None, dtype: str = "float32") -> State:
    middle = (low + high) / 2 if mean is None else mean
    return State("Tensor", dtype, SHAPE, "CHW", low, high, middle)


def step(stage: str, before: State | None, after: State, line: int, **more: Any) -> Step:
    known = {"file": "data.py", "function": "__getitem__", "text": "", "variable": "x"}
    return Step(**known, stage=stage, before=before, after=after, line=line, **more)


def affine(
    before: State, scale: Any, offset: Any, line: int, stage: str = "/", **more: Any
) -> Step:
    """A step that really scales and shifts, with the range that this gives."""
    ends = [
        s * x + o for s, o in zip(scale, offset, strict=True) for x in (before.low, before.high)
    ]
    mean = sum(s * before.mean + o for s, o in zip(scale, offset, strict=True)) / len(scale)
    after = state(min(ends), max(ends), mean)
    return step(stage, before, after, line, scale=tuple(scale), offset=tuple(offset), **more)


def normalise(
    before: State,
    line: int,
    mean: Any = MEAN,
    std: Any = STD,
    stage: str = "Normalize",
    **more: Any,
) -> Step:
    scale = [1 / s for s in std]
    offset = [-m / s for m, s in zip(mean, std, strict=True)]
    return affine(before, scale, offset, line, stage, **more)


def divide(before: State, line: int, by: float = 255, stage: str = "ToTensor", **more: Any) -> Step:
    return affine(before, (1 / by,), (0.0,), line, stage, **more)


BYTES = state(0, 255, 110, "uint8")
FLOATS = state(0, 255, 110)
UNIT = state(0, 1, 0.43)
LOAD = step("cv2.imread", None, BYTES, 10)


def chained(*steps: Step, field: str = "image", sample: int = 0) -> Journey:
    linked = [
        Step(**{**vars(one), "fields": (field,), "sources": (n - 1,) if n else ()})
        for n, one in enumerate(steps)
    ]
    return Journey(sample, tuple(linked), {field: steps[-1].after}, returned=("data.py", 30))


def seen(*journeys: Journey, batch: Journey | None = None, **given: Any) -> Observation:
    known = {str(j.sample): j for j in journeys}
    if batch is not None:
        known["batch"] = Journey("batch", batch.steps, batch.fields)
    fields = given.pop("fields", {})
    split = Split(samples=8, batches=1, journeys=known, given=given, fields=fields,
                  batch_fields=fields)  # fmt: skip
    return Observation(splits={"": split})


def found(obs: Observation, *rules: str) -> list[Finding]:
    findings, _ = judge(obs, select=rules or ("not-scaled", "double-scaled"))
    return list(findings)


UNSCALED = {
    "floats into ToTensor": (
        step("np.load", None, FLOATS, 10),
        step("ToTensor", FLOATS, FLOATS, 11),
        normalise(FLOATS, 12, parameters=IMAGENET),
    ),
    "by hand": (LOAD, step("astype", BYTES, FLOATS, 11), normalise(FLOATS, 12, stage="/")),
    "one channel": (LOAD, step("float", BYTES, FLOATS, 11), normalise(FLOATS, 12, [0.5], [0.5])),
    "only the parameters are known": (
        LOAD,
        step("float", BYTES, FLOATS, 11),
        step("Normalize", FLOATS, state(-2, 1134, 480), 12, parameters=IMAGENET),
    ),
}


@pytest.mark.parametrize("steps", UNSCALED.values(), ids=UNSCALED)
def test_statistics_of_0_to_1_on_0_to_255_are_an_error_at_the_stage_before(steps):
    (finding,) = found(seen(chained(*steps)))
    assert (finding.rule, finding.severity, finding.where.line) == ("not-scaled", ERROR, 11)
    assert "0 to 255" in finding.message
    assert finding.evidence["should_have_scaled"]


def test_statistics_of_0_to_255_on_0_to_1_are_an_error_at_normalize():
    caffe = normalise(UNIT, 12, (123.7, 116.3, 103.5), (58.4, 57.1, 57.4))
    (finding,) = found(seen(chained(LOAD, divide(BYTES, 11), caffe)))
    assert (finding.rule, finding.where.line) == ("not-scaled", 12)


def test_one_sample_that_was_not_scaled_is_named():
    right = chained(LOAD, divide(BYTES, 11), normalise(UNIT, 12), sample=1)
    wrong = chained(LOAD, step("float", BYTES, FLOATS, 14), normalise(FLOATS, 12), sample=7)
    (finding,) = found(seen(right, wrong))
    assert finding.where.sample == 7
    assert "of 2 samples traced 1 are so" in finding.message


def test_samples_beyond_those_traced_are_known_by_their_range():
    ways = [chained(LOAD, divide(BYTES, 11), sample=n) for n in range(3)]
    field = Field(dtypes={"float32": Tally(500)}, low=0, high=255)
    (finding,) = found(seen(*ways, fields={"image": field}))
    assert (finding.rule, finding.where.line) == ("not-scaled", 11)
    wide = Field(dtypes={"float32": Tally(500)}, low=0, high=3.5)
    assert found(seen(*ways, fields={"image": wide})) == []


def test_bytes_as_floats_are_refuted_by_a_small_range_wanted():
    way = chained(LOAD, step("float", BYTES, FLOATS, 11))
    field = Field(dtypes={"float32": Tally(8)}, low=0, high=255)
    wanted = {"image": {"range": [0, 1]}}
    (finding,) = found(seen(way, fields={"image": field}, expect=wanted))
    assert (finding.rule, finding.where.line) == ("not-scaled", 11)
    assert found(seen(way, fields={"image": field})) == []
    assert found(seen(way, fields={"image": field}, expect={"image": {"range": [0, 255]}})) == []


CENTRED = state(-2.1, 2.6, -0.1)
TWICE = {
    "normalised in two stages": ((LOAD, divide(BYTES, 11), normalise(UNIT, 12),
                                  normalise(CENTRED, 13)), 13),
    "-1..1 and then ImageNet": ((LOAD, affine(FLOATS, (1 / 127.5,), (-1.0,), 11),
                                 normalise(state(-1, 1, -0.1), 13)), 13),
    "divided twice": ((LOAD, divide(BYTES, 11), divide(UNIT, 13, stage="/")), 13),
    "divided what was 0..1": ((step("imread", None, UNIT, 10), divide(UNIT, 13, stage="/")), 13),
    "albumentations on 0..1": ((LOAD, divide(BYTES, 11), normalise(
        UNIT, 13, [m * 255 for m in MEAN], [s * 255 for s in STD],
        parameters="mean=(0.485, 0.456, 0.406), max_pixel_value=255",
    )), 13),
}  # fmt: skip


@pytest.mark.parametrize(("steps", "line"), TWICE.values(), ids=TWICE)
def test_two_stages_that_do_the_same_are_an_error_at_the_second(steps, line):
    (finding,) = found(seen(chained(*steps)))
    assert (finding.rule, finding.severity, finding.where.line) == ("double-scaled", ERROR, line)


def test_the_collates_stage_counts_with_those_of_the_dataset():
    way = chained(LOAD, divide(BYTES, 11), normalise(UNIT, 12, parameters=IMAGENET))
    again = normalise(CENTRED, 40)
    batch = chained(step("default_collate", None, CENTRED, 39), again)
    (finding,) = found(seen(way, batch=batch))
    assert (finding.rule, finding.where.line) == ("double-scaled", 40)
    assert "collate" in finding.message
    assert "Normalize" in finding.evidence["first"]["stage"]


DARK = state(0, 3, 1, "uint8")
HEALTHY = {
    "scaled and normalised": (LOAD, divide(BYTES, 11), normalise(UNIT, 12)),
    "bytes left for the step": (LOAD,),
    "0..255 floats": (LOAD, step("float", BYTES, FLOATS, 11)),
    "Caffe means": (LOAD, step("float", BYTES, FLOATS, 11), normalise(
        FLOATS, 12, (123.7, 116.3, 103.5), (1.0, 1.0, 1.0))),
    "-1..1": (LOAD, affine(FLOATS, (1 / 127.5,), (-1.0,), 11)),
    "a dark image": (step("imread", None, DARK, 10), divide(DARK, 11)),
    "16 bit": (step("imread", None, state(0, 65535, 2000), 10),
               divide(state(0, 65535, 2000), 11, by=257), divide(state(0, 255, 8), 12)),
    "undone in between": (LOAD, divide(BYTES, 11), normalise(UNIT, 12),
                          affine(CENTRED, STD, MEAN, 13), normalise(UNIT, 14)),
    "HU": (step("dcm", None, state(-1000, 1500, -300), 10),
           normalise(state(-1000, 1500, -300), 11, [-600.0], [800.0])),
    "a z-score of its own after": (LOAD, divide(BYTES, 11), normalise(UNIT, 12),
                                   normalise(CENTRED, 13, [-0.1], [1.1])),
    "decibels": (step("stft", None, state(-80, 20, -40), 10),
                 normalise(state(-80, 20, -40), 11, [-40.0], [15.0])),
    "brightness": (LOAD, divide(BYTES, 11), affine(UNIT, (1.3,), (0.0,), 12),
                   normalise(state(0, 1.3, 0.55), 13)),
}  # fmt: skip


@pytest.mark.parametrize("steps", HEALTHY.values(), ids=HEALTHY)
def test_nothing_is_said_of(steps):
    ways = [chained(*steps, sample=n) for n in range(2)]
    assert found(seen(*ways)) == []


def test_short_vectors_are_no_images():
    bad = chained(LOAD, step("float", BYTES, FLOATS, 11), normalise(FLOATS, 12))
    flat = Journey(0, bad.steps, {"image": State("Tensor", "float32", (64,), low=0, high=1100)})
    assert found(seen(flat)) == []
