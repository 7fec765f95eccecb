"""DLC107 on recorded Observations: what is said, where, and where nothing is."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

import dlcheck.rules  # noqa: F401 - fills the registry
from dlcheck.findings import ERROR, WARNING, Finding, RuleState, judge
from dlcheck.observation import (
    Failure,
    Field,
    Journey,
    Loader,
    ModelRun,
    Observation,
    Split,
    State,
    Step,
    Tally,
)

LOADER = Loader(cls="DataLoader", file="train.py", line=90, kind="map", batch_size=8,
                default_collate=True, collate="default_collate", dataset="data.Cats")  # fmt: skip
IMAGENET = "mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225]"
HALVES = "mean=[0.5, 0.5, 0.5], std=[0.5, 0.5, 0.5]"


def image(
    shape: str = "3x64x64", dtype: str = "float32", low: float = -2.1, high: float = 2.6
) -> Field:
    seen = Tally(40, (0, 1, 2))
    return Field({"Tensor": seen}, {dtype: seen}, {shape: seen}, low, high)


def labels(*values: int) -> Field:
    tallies = {str(value): Tally(10, (value,)) for value in values}
    return Field({"int": Tally(40)}, {}, {}, min(values), max(values), values=tallies)


def step(stage: str = "Normalize", parameters: str = "", line: int = 41, **known: Any) -> Step:
    at = {"file": "data.py", "function": "__getitem__", "text": "self.tf(x)", "variable": "x"}
    state = State("Tensor", "float32", (3, 64, 64), "CHW", -2.1, 2.6)
    given = {"before": state, "after": state, "fields": ("image",)} | known
    return Step(line=line, stage=stage, parameters=parameters, **at, **given)


def ways(*steps: Step, layout: str = "CHW") -> dict[str, Journey]:
    state = State("Tensor", "float32", (3, 64, 64), layout)
    return {str(n): Journey(n, steps, {"image": state}, returned=("data.py", 49)) for n in range(3)}


def stacked(seen: Field) -> Field:
    """A field of samples as it stands in a batch of eight."""
    shapes = {f"8x{text}".replace("xscalar", ""): tally for text, tally in seen.shapes.items()}
    return dataclasses.replace(seen, shapes=shapes)


def split(seen: Field | None = None, **known: Any) -> Split:
    fields = {"image": seen or image(), "label": labels(0, 1)}
    fields |= known.pop("fields", {})
    base: dict[str, Any] = {
        "loader": LOADER, "samples": 40, "of": 40, "batches": 5, "finished_epochs": 1,
        "fields": fields, "batch_fields": {path: stacked(seen) for path, seen in fields.items()},
    }  # fmt: skip
    return Split(**base | known)


def found(*splits: Split, **named: Split) -> list[Finding]:
    several = {str(n) if n else "": one for n, one in enumerate(splits)} | named
    return list(judge(Observation(splits=several), select=["contract-mismatch"])[0])


def state(*splits: Split) -> RuleState:
    observation = Observation(splits={"": splits[0]} if splits else {})
    states = judge(observation, select=["contract-mismatch"])[1]
    return next(one for one in states if one.rule == "contract-mismatch")


def expecting(seen: Field | None = None, field: str = "image", **said: Any) -> list[Finding]:
    return found(split(seen, given={"expect": {field: said}}))


def test_shape_names_expected_seen_sample_and_the_stage_that_made_it() -> None:
    crop = step("RandomResizedCrop", "size=56", 38,
                before=State("Tensor", "uint8", (3, 96, 96), "CHW"),
                after=State("Tensor", "uint8", (3, 56, 56), "CHW"))  # fmt: skip
    given = {"expect": {"image": {"shape": [3, 64, 64]}}}
    (finding,) = found(split(image("3x56x56"), given=given, journeys=ways(crop, step())))
    assert finding.severity == ERROR
    where = finding.where
    assert (where.field, where.line, where.stage, where.sample) == (
        "image", 38, "RandomResizedCrop(size=56)", 0,
    )  # fmt: skip
    assert (finding.evidence["expected"], finding.evidence["seen"]) == (
        "[3, 64, 64]",
        "[3, 56, 56]",
    )


@pytest.mark.parametrize("open_size", [None, -1, "?", "*"])
def test_open_size_fits_any(open_size: Any) -> None:
    assert expecting(shape=[3, open_size, 64]) == []
    assert expecting(shape=[open_size, 3, 64, 64])


@pytest.mark.parametrize("wanted", ["float32", {"_obj_": "torch.float32"}, ["float16", "float32"]])
def test_dtype_in_any_spelling(wanted: Any) -> None:
    assert expecting(dtype=wanted) == []
    (finding,) = expecting(image(dtype="float64"), dtype=wanted)
    assert finding.evidence["seen"] == "float64"


def test_python_int_is_the_int64_that_a_batch_makes_of_it() -> None:
    batches = {
        "image": image("8x3x64x64"),
        "label": Field({"Tensor": Tally(5)}, {"int64": Tally(5)}),
    }
    given = {"expect": {"label": {"dtype": "int64"}}}
    assert found(split(batch_fields=batches, given=given)) == []


def test_values_beyond_the_range_by_more_than_rounding() -> None:
    assert expecting(image(low=-1.0001, high=1.0001), range=[-1, 1]) == []
    (finding,) = expecting(image(low=-1.2, high=1.0), range=[-1, 1])
    assert "-1.2..1" in finding.message


def test_random_erasing_may_leave_the_range() -> None:
    erased = ways(step("Normalize", HALVES), step("RandomErasing", "value=random"))
    given = {"expect": {"image": {"range": [-1, 1]}}}
    assert found(split(image(low=-2.5, high=2.4), given=given, journeys=erased)) == []


def test_uint8_batch_of_a_step_is_scaled_later() -> None:
    given = {"expect": {"image": {"range": [0, 1], "dtype": "float32"}}, "step": "train:step"}
    assert found(split(image(dtype="uint8", low=0, high=255), given=given)) == []


def test_distinct_values() -> None:
    mask = {"fields": {"label": labels(0, 1, 255)}}
    given = {"expect": {"label": {"values": [0, 1]}}}
    (finding,) = found(split(**mask, given=given))
    assert (finding.evidence["seen"], finding.where.sample) == ("255", 255)
    given["expect"]["label"]["ignore_index"] = 255  # type: ignore[assignment]
    assert found(split(**mask, given=given)) == []


def test_pattern_speaks_of_every_field_that_fits() -> None:
    fields = {"views.0": image("3x32x32"), "views.1": image("3x48x48")}
    given = {"expect": {"views.*": {"shape": [3, 32, 32]}}}
    (finding,) = found(split(fields=fields, given=given))
    assert finding.where.field == "views.1"


@pytest.mark.parametrize(
    ("sizes", "broken"),
    [([(64, 64)] * 3, False), ([(16, 16)] * 3, False), ([(64, 60)] * 3, True),
     ([(64, 64), (64, 64), (32, 32)], True)],
    ids=["equal", "a stride of 4", "other width", "one sample at another scale"],
)  # fmt: skip
def test_size_of_a_declared_pair(sizes: list[tuple[int, int]], broken: bool) -> None:  # noqa: FBT001
    picture = State("Tensor", "float32", (3, 64, 64), "CHW")
    journeys = {
        str(n): Journey(n, (), {"image": picture, "mask": State("Tensor", "int64", size, "HW")})
        for n, size in enumerate(sizes)
    }
    fields = {"mask": Field({"Tensor": Tally(40)}, {"int64": Tally(40)}, {"64x64": Tally(40)})}
    given = {"expect": {"mask": {"pairs_with": "image"}}}
    findings = found(split(fields=fields, journeys=journeys, given=given))
    assert bool(findings) == broken
    assert all("that of `image`, 64x64" in finding.message for finding in findings)


def test_field_that_nobody_saw_and_the_nearest() -> None:
    (finding,) = expecting(field="images", dtype="float32")
    assert finding.where.field == "images"
    assert "the nearest is `image`" in finding.message


def test_custom_collate_is_judged_by_its_batches() -> None:
    """Samples of any size that the collate pads to what is expected are right."""
    padding = dataclasses.replace(LOADER, default_collate=False, collate="data.pad")
    batches = {"image": image("8x3x64x64")}
    given = {"expect": {"image": {"shape": [3, 64, 64]}}}
    assert found(split(image("3x50x60"), loader=padding, batch_fields=batches, given=given)) == []
    batches = {"image": image("8x3x50x60")}
    (finding,) = found(split(image(), loader=padding, batch_fields=batches, given=given))
    assert finding.evidence["seen"] == "[3, 50, 60]"


def test_normalisation_other_than_declared() -> None:
    given = {"expect": {"image": {"normalize": "imagenet"}}}
    assert found(split(given=given, journeys=ways(step(parameters=IMAGENET)))) == []
    (finding,) = found(split(given=given, journeys=ways(step(parameters=HALVES))))
    assert "mean [0.485, 0.456, 0.406]" in finding.message
    assert finding.evidence["seen"] == "mean [0.5, 0.5, 0.5] std [0.5, 0.5, 0.5]"


def test_means_of_bytes_are_those_of_shares() -> None:
    caffe = "mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375]"
    given = {"expect": {"image": {"normalize": "imagenet"}}}
    assert found(split(given=given, journeys=ways(step(parameters=caffe)))) == []


def test_declared_normalisation_that_nothing_applies() -> None:
    given = {"expect": {"image": {"normalize": "imagenet"}}}
    journeys = ways(step("ToTensor"))
    (finding,) = found(split(image(low=0, high=1), given=given, journeys=journeys))
    assert "nothing normalised" in finding.message
    assert found(split(image(low=-0.4, high=1), given=given, journeys=journeys)) == []


def test_stronger_rule_speaks_alone() -> None:
    """A batch of H,W,C breaks the declared shape; hwc-image says it better."""
    hwc = State("Tensor", "float32", (64, 64, 3), "HWC")
    journeys = {"0": Journey(0, (step(after=hwc, before=hwc),), {"image": hwc})}
    given = {"expect": {"image": {"shape": [3, 64, 64]}}}
    one = split(image("64x64x3"), given=given, journeys=journeys)
    assert {f.rule for f in judge(Observation(splits={"": one}))[0]} == {"hwc-image"}


def refused(**known: Any) -> ModelRun:
    failure = Failure("model", "RuntimeError", "Invalid channel dimensions")
    base: dict[str, Any] = {
        "field": "image", "dtype": "float32", "shape": (8, 1, 64, 64), "failure": failure,
        "layer": "conv1", "kind": "Conv2d", "wanted": "3", "got": "1", "about": "channels",
    }  # fmt: skip
    return ModelRun(**base | known)


def test_layer_that_refuses_is_named_with_what_it_wanted_and_got() -> None:
    given = {"model": {"_target_": "torchvision.models.resnet18"}}
    (finding,) = found(split(image("1x64x64"), given=given, model_run=refused()))
    assert finding.severity == ERROR
    assert "resnet18" in finding.message
    assert "Conv2d `conv1` wants 3 channels and got 1" in finding.message
    assert finding.where.file == "train.py"


def test_model_that_could_not_be_tried_says_why_and_accuses_nobody() -> None:
    run = ModelRun(field="image", reason="a uint8 batch may yet be cast on the device")
    assert found(split(model_run=run)) == []
    assert (state(split(model_run=run)).state, state(split(model_run=run)).reason) == (
        "not-applicable", "a uint8 batch may yet be cast on the device",
    )  # fmt: skip


def test_dtype_that_expect_declares_is_cast_on_the_way() -> None:
    run = refused(about="dtype", wanted="float32", got="float64", dtype="float64")
    given = {"expect": {"image": {"dtype": "float64"}}}
    assert found(split(image(dtype="float64"), given=given, model_run=run)) == []


def test_nothing_to_compare_with() -> None:
    assert state(split()).state == "not-applicable"


def test_field_that_only_a_collate_makes_is_not_missed_before_there_is_a_batch() -> None:
    given = {"expect": {"lengths": {"dtype": "int64"}}}
    assert found(split(given=given, batches=0, batch_fields={})) == []
    assert found(split(given=given))


def test_failed_samples_hide_no_field() -> None:
    failed = {"a": Failure("collate", "RuntimeError")}
    given = {"expect": {"mask": {"dtype": "int64"}}}
    assert found(split(given=given, failures=failed)) == []


def both(train: Split, val: Split) -> list[Finding]:
    return found(train=train, val=dataclasses.replace(val, role="eval"))


def test_other_normalisation_names_both_splits_and_both_figures() -> None:
    train = split(journeys=ways(step(parameters=IMAGENET)))
    val = split(journeys=ways(step(parameters=HALVES, line=55)))
    (finding,) = both(train, val)
    assert finding.severity == WARNING
    assert (finding.where.split, finding.where.field, finding.where.line) == ("val", "image", 55)
    assert "mean [0.5, 0.5, 0.5]" in finding.message
    assert "mean [0.485, 0.456, 0.406]" in finding.message
    assert both(train, train) == []


def test_figures_of_bytes_and_of_shares_are_the_same() -> None:
    bytes_ = "mean=(123.675, 116.28, 103.53), std=(58.395, 57.12, 57.375), max_pixel_value=1.0"
    train, val = (split(journeys=ways(step(parameters=p))) for p in (IMAGENET, bytes_))
    assert both(train, val) == []


def by_hand(scale: float, offset: float) -> Split:
    known = {"scale": (scale,) * 3, "offset": (offset,) * 3}
    raw = State("Tensor", "uint8", (3, 64, 64), "CHW", 0, 255)
    return split(journeys=ways(step("(x - MEAN) / STD", before=raw, **known)))


def test_normalisation_by_hand_is_read_from_the_numbers() -> None:
    half, other = by_hand(2 / 255, -1.0), by_hand(4 / 255, -2.0)
    assert both(half, by_hand(2 / 255, -1.0)) == []
    (finding,) = both(half, other)
    assert "mean [0.5, 0.5, 0.5] std [0.25, 0.25, 0.25] in split val" in finding.message


def test_split_that_is_not_normalised_at_all() -> None:
    train = split(journeys=ways(step(parameters=IMAGENET)))
    val = split(image(low=0, high=1), journeys=ways(step("ToTensor")))
    (finding,) = both(train, val)
    assert "not at all in split val (0..1)" in finding.message


def test_random_shift_of_one_split_is_no_normalisation() -> None:
    """Brightness moves the numbers by other amounts in each sample."""
    journeys = ways(step("ColorJitter", scale=(1.0,), offset=(0.1,)))
    journeys["1"] = ways(step("ColorJitter", scale=(1.0,), offset=(-0.3,)))["1"]
    train = split(image(low=-0.6, high=1.2), journeys=journeys)
    assert both(train, split(image(low=0, high=1), journeys=ways(step("ToTensor")))) == []


def test_collate_of_one_split_may_normalise() -> None:
    other = dataclasses.replace(LOADER, default_collate=False, collate="data.normalise")
    train = split(journeys=ways(step(parameters=IMAGENET)))
    val = split(image(low=0, high=1), journeys=ways(step("ToTensor")), loader=other)
    assert both(train, val) == []


def test_sizes_and_ranges_may_differ() -> None:
    train = split(image("3x176x176", low=-2.9), journeys=ways(step(parameters=IMAGENET)))
    val = split(image("3x224x224"), journeys=ways(step(parameters=IMAGENET)))
    assert both(train, val) == []


def labelled(*values: int, **known: Field) -> Split:
    return split(fields={"label": labels(*values)} | known)


def test_class_that_training_never_has() -> None:
    (finding,) = both(labelled(0, 1, 2), labelled(0, 1, 2, 3))
    assert (finding.where.field, finding.where.sample) == ("label", 3)
    assert "holds 3 (sample 3), which split train never has" in finding.message


def test_labels_that_count_from_one_in_one_split() -> None:
    (finding,) = both(labelled(0, 1, 2), labelled(1, 2, 3))
    assert finding.evidence["differs"] == "label offset"


def test_validation_with_fewer_classes_is_small_not_wrong() -> None:
    assert both(labelled(0, 1, 2, 3), labelled(0, 2)) == []


def test_disjoint_classes_are_by_design() -> None:
    """Re-identification and few-shot learning validate on classes of their own."""
    assert both(labelled(0, 1, 2, 3), labelled(10, 11, 12)) == []


def test_part_of_a_training_split_proves_no_class_missing() -> None:
    train = dataclasses.replace(labelled(0, 1), of=100_000, finished_epochs=0)
    assert both(train, labelled(0, 1, 2)) == []


def test_soft_labels_of_training_are_no_other_dtype() -> None:
    soft = Field({"Tensor": Tally(40)}, {"float32": Tally(40)}, {"3": Tally(40)}, 0, 1)
    assert both(split(fields={"label": soft}), labelled(0, 1, 2)) == []


def test_other_layout() -> None:
    train, val = split(journeys=ways(step())), split(journeys=ways(step(), layout="HWC"))
    findings = both(train, val)
    assert [f.evidence["differs"] for f in findings] == ["layout"]
