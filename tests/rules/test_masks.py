from __future__ import annotations

import dataclasses
from typing import Any

import pytest

import dlcheck.rules  # noqa: F401 - fills the registry
from dlcheck.findings import ERROR, WARNING, Finding, judge
from dlcheck.observation import Field, Journey, Observation, Split, State, Step, Tally

SMALL = (64, 64)
IMAGE = State("Tensor", "float32", (3, 64, 64), "CHW", 0.0, 1.0, 0.4)


def labels(
    *ids: float, dtype: str = "uint8", shape: Any = SMALL, type_: str = "ndarray", mean: float = 1.0
) -> State:
    return State(type_, dtype, shape, "HW", min(ids), max(ids), mean, ids=tuple(map(float, ids)))


FILE = labels(0, 1, 4, 7, shape=(96, 96))


def step(stage: str, before: State | None, after: State, line: int, **more: Any) -> Step:
    known = {"file": "data.py", "function": "__getitem__", "variable": "mask"}
    text = more.pop("text", f"mask = {stage}(mask)")
    return Step(**known, text=text, stage=stage, before=before, after=after, line=line, **more)


LOAD = step("cv2.imread", None, FILE, 10)


def chained(*steps: Step, field: str = "mask", sample: int = 0) -> Journey:
    linked = [
        dataclasses.replace(one, fields=(field,), sources=(n - 1,) if n else ())
        for n, one in enumerate(steps)
    ]
    sides = steps[-1].after.shape[-2:]
    fields = {
        "image": dataclasses.replace(IMAGE, shape=(3, *sides)),
        field: steps[-1].after,
    }
    return Journey(sample, tuple(linked), fields, returned=("data.py", 30))


def seen(*ways: Journey, field: Field | None = None, **given: Any) -> Observation:
    fields = {} if field is None else {"mask": field}
    split = Split(samples=40, batches=1, journeys={str(j.sample): j for j in ways}, given=given,
                  fields=fields)  # fmt: skip
    return Observation(splits={"": split})


def found(obs: Observation) -> list[Finding]:
    return list(judge(obs, select=["mask-values"])[0])


def whole(state: State) -> Step:
    return step(
        "torch.from_numpy", state, dataclasses.replace(state, type="Tensor", dtype="int64"), 14
    )


BLENDED = labels(0, 1, 2, 3, 4, 5, 6, 7)
MANY = State("ndarray", "float32", SMALL, "HW", 0.0, 7.0, 1.0)
INTERPOLATED = {
    "ids between": (LOAD, step("cv2.resize", FILE, BLENDED, 12), whole(BLENDED)),
    "no new id, but out of place": (
        LOAD, step("pil.resize", FILE, labels(0, 1, 4, 7), 12, invented=0.05),
        whole(labels(0, 1, 4, 7)),
    ),
    "more values than can be listed": (LOAD, step("F.interpolate", FILE, MANY, 12)),
    "a rotation": (
        LOAD, step("cv2.warpAffine", FILE, dataclasses.replace(BLENDED, shape=(96, 96)), 12),
    ),
}  # fmt: skip


@pytest.mark.parametrize("steps", INTERPOLATED.values(), ids=INTERPOLATED)
def test_a_stage_that_blends_ids_is_an_error(steps):
    (finding,) = found(seen(chained(*steps)))
    assert (finding.where.field, finding.where.line, finding.severity) == ("mask", 12, ERROR)
    assert finding.evidence["ids_before"] == [0, 1, 4, 7]


BINARY = labels(0, 255, shape=(96, 96))
SOFT = State("ndarray", "float32", SMALL, "HW", 0.0, 1.0, 0.3)
NEAREST = labels(0, 1, 4, 7)
HEALTHY = {
    "nearest": (LOAD, step("cv2.resize", FILE, NEAREST, 12), whole(NEAREST)),
    "ids mapped": (
        LOAD, step("lut", FILE, labels(0, 1, 2, 255, shape=(96, 96)), 12, text="lut[mask]"),
    ),
    "a border that is ignored": (LOAD, step("pad", FILE, labels(0, 1, 4, 7, 255), 12)),
    "a crop without one class": (LOAD, step("crop", FILE, labels(0, 4), 12)),
    "a soft mask": (step("imread", None, BINARY, 10), step("cv2.resize", BINARY, SOFT, 12)),
    "a threshold after": (
        step("imread", None, BINARY, 10), step("cv2.resize", BINARY, SOFT, 12),
        step(">", SOFT, labels(0, 1, dtype="bool"), 13),
    ),
    "0..255 to 0..1": (step("imread", None, BINARY, 10),
                       step("ToTensor", BINARY, labels(0, 1, shape=(96, 96)), 12)),
    "a map of distances": (LOAD, step("distanceTransform", FILE, dataclasses.replace(
        MANY, shape=(96, 96), high=40.0), 12)),
}  # fmt: skip


@pytest.mark.parametrize("steps", HEALTHY.values(), ids=HEALTHY)
def test_nothing_is_said_of(steps):
    assert found(seen(chained(*steps))) == []


def test_blended_edges_are_an_error_where_two_classes_are_wanted():
    way = chained(step("imread", None, BINARY, 10), step("cv2.resize", BINARY, SOFT, 12))
    (finding,) = found(seen(way, expect={"mask": {"values": [0, 1]}}))
    assert finding.where.line == 12


def test_class_ids_divided_by_255_are_an_error():
    after = labels(0, 1 / 255, 4 / 255, 7 / 255, dtype="float32", shape=(1, 96, 96))
    (finding,) = found(seen(chained(LOAD, step("ToTensor", FILE, after, 12))))
    assert "by 255" in finding.message
    assert finding.where.line == 12


def test_an_ignore_index_that_is_declared_must_not_vanish():
    before = labels(0, 1, 255, shape=(96, 96))
    way = chained(
        step("imread", None, before, 10),
        step("np.where", before, labels(0, 1, shape=(96, 96)), 12),
    )
    (finding,) = found(seen(way, expect={"mask": {"ignore_index": 255}}))
    assert "255" in finding.message
    assert found(seen(way)) == []


def test_0_and_255_are_an_error_where_classes_are_wanted_and_none_where_255_is_ignored():
    final = dataclasses.replace(BINARY, type="Tensor", dtype="int64")
    way = chained(step("imread", None, BINARY, 10), step("long", BINARY, final, 12))
    (finding,) = found(seen(way, expect={"mask": {"classes": 2}}))
    assert finding.severity == ERROR
    assert found(seen(way, expect={"mask": {"classes": 2, "ignore_index": 255}})) == []


def test_0_and_255_alone_are_a_warning_when_they_fill_the_masks_of_many_samples():
    final = dataclasses.replace(BINARY, type="Tensor", dtype="int64", mean=80.0)
    way = chained(step("imread", None, BINARY, 10), step("long", BINARY, final, 12))
    field = Field(types={"Tensor": Tally(40)}, dtypes={"int64": Tally(40)},
                  values={"0": Tally(40), "255": Tally(40)})  # fmt: skip
    (finding,) = found(seen(way, field=field))
    assert finding.severity == WARNING
    assert found(seen(way, field=field, step="train:step")) == []
    with_class = dataclasses.replace(field, values={**field.values, "1": Tally(2)})
    assert found(seen(way, field=with_class)) == []


def test_a_field_is_a_mask_by_name_and_company_only():
    blended = (LOAD, step("cv2.resize", FILE, BLENDED, 12))
    assert found(seen(chained(*blended, field="depth"))) == []
    assert found(seen(chained(*blended), fields={"mask": {"kind": "other"}})) == []
    assert found(seen(chained(*blended, field="x"), fields={"x": {"kind": "mask"}})) != []
    alone = chained(*blended)
    alone = dataclasses.replace(alone, fields={"mask": alone.fields["mask"]})
    assert found(seen(alone)) == []
