from __future__ import annotations

from typing import Any

import pytest

import dlcheck.rules  # noqa: F401 - fills the registry
from dlcheck.findings import ERROR, WARNING, Finding, judge
from dlcheck.observation import Field, Journey, Observation, Split, State, Step, Tally, shape_text

FILE = "pipeline.py"


def state(*shape: int, dtype: str = "float32", layout: str = "", **more: Any) -> State:
    return State(more.pop("type", "Tensor"), dtype, shape, layout, **more)


def step(
    stage: str, before: State | None, after: State, line: int, field: str, **more: Any
) -> Step:
    text, variable = more.pop("text", f"{stage}(x)"), more.pop("variable", "x")
    return Step(
        FILE, line, "__getitem__", text, variable, stage, after, before, fields=(field,), **more
    )


def way(*steps: Step, sample: int = 0, **fields: State) -> Journey:
    return Journey(sample, steps, fields, returned=(FILE, 49))


def field(state: State) -> Field:
    shape = shape_text(state.shape or ())
    return Field({"Tensor": Tally(8)}, {state.dtype or "": Tally(8)}, {shape: Tally(8)})


def observed(*journeys: Journey, seen: dict[str, State] | None = None, **given: Any) -> Observation:
    fields = seen or (journeys[0].fields if journeys else {})
    split = Split(
        samples=40, batches=5, given=given, fields={name: field(s) for name, s in fields.items()},
        journeys={str(j.sample): j for j in journeys},
    )  # fmt: skip
    return Observation(splits={"": split})


def found(*journeys: Journey, **more: Any) -> list[Finding]:
    findings = judge(observed(*journeys, **more))[0]
    return [finding for finding in findings if finding.rule == "misaligned-pair"]


def declared(kind: str = "mask") -> dict[str, Any]:
    return {"mask": {"kind": kind, "pairs_with": "image"}}


IMAGE = state(3, 64, 64, layout="CHW")
MASK = state(96, 96, dtype="int64")
OPENED = State("PIL.Image", "RGB", (96, 96))
RESIZED = State("PIL.Image", "RGB", (64, 64))
LABEL = State("PIL.Image", "P", (96, 96))
KEPT_BIG = way(
    step("open", None, OPENED, 44, "image"),
    step("resize", OPENED, RESIZED, 45, "image"),
    step("open", None, LABEL, 46, "mask"),
    step("ToTensor", RESIZED, IMAGE, 47, "image"),
    step("from_numpy", LABEL, MASK, 48, "mask"),
    image=IMAGE,
    mask=MASK,
)


class TestSizes:
    def test_names_both_fields_both_sizes_and_the_stage_that_treated_them_apart(self) -> None:
        (finding,) = found(KEPT_BIG, fields=declared())
        assert finding.severity == ERROR
        assert "`image` is 64x64 and `mask` is 96x96" in finding.message
        assert (finding.where.field, finding.where.stage, finding.where.line) == (
            "mask",
            "resize",
            45,
        )
        assert finding.evidence["sizes"] == {"image": [64, 64], "mask": [96, 96]}

    def test_is_a_warning_where_the_pair_is_only_guessed(self) -> None:
        (finding,) = found(KEPT_BIG)
        assert finding.severity == WARNING

    def test_needs_no_journeys_where_each_field_has_one_size(self) -> None:
        assert found(seen={"image": IMAGE, "mask": MASK})
        assert found(seen={"0": IMAGE, "1": state(1, 96, 96, dtype="int64")})

    def test_a_declared_mask_must_be_of_the_images_size(self) -> None:
        seen = {"image": IMAGE, "mask": state(16, 16, dtype="int64")}
        assert found(seen=seen) == []
        assert found(seen=seen, fields=declared("mask"))
        assert found(seen=seen, fields=declared("target")) == []

    @pytest.mark.parametrize(
        "seen",
        [
            pytest.param({"image": IMAGE, "mask": state(64, 64, dtype="int64")}, id="they fit"),
            pytest.param(
                {"lr": state(3, 24, 24), "hr": state(3, 96, 96)}, id="super-resolution pair"
            ),
            pytest.param({"image": state(3, 96, 72), "1": state(4, 24, 18)}, id="heatmaps"),
            pytest.param(
                {"image": state(3, 65, 65), "mask": state(17, 17, dtype="int64")},
                id="stride four, rounded up",
            ),
            pytest.param({"image": IMAGE, "tokens": state(20, 4, dtype="int64")}, id="tokens"),
            pytest.param({"image": IMAGE, "boxes": state(70, 4)}, id="boxes"),
            pytest.param({"image": IMAGE, "label": state(dtype="int64")}, id="a class"),
            pytest.param({"image": IMAGE, "depth": state(1, 50, 50)}, id="a float map"),
            pytest.param(
                {"image": IMAGE, "thumb": state(40, 40, dtype="uint8")}, id="a grey thumbnail"
            ),
            pytest.param(
                {"left": IMAGE, "right": state(3, 60, 60), "mask": MASK}, id="two views, no names"
            ),
        ],
    )
    def test_is_silent_on(self, seen: dict[str, State]) -> None:
        assert found(seen=seen) == []

    def test_images_of_many_sizes_are_compared_sample_by_sample(self) -> None:
        ways = [
            way(image=state(3, size, 64), mask=state(size, 64, dtype="int64"), sample=size)
            for size in (64, 96)
        ]
        assert found(*ways) == []

    def test_a_network_without_padding_has_smaller_targets(self) -> None:
        whole, cut = state(188, 188, dtype="int64"), state(100, 100, dtype="int64")
        centre = way(step("CenterCrop", whole, cut, 20, "mask"), image=state(3, 188, 188), mask=cut)
        assert found(centre) == []
        assert found(centre, fields=declared())


FLIP = step("RandomHorizontalFlip", IMAGE, IMAGE, 30, "image", container="Compose", position=1)
FITTING = state(64, 64, dtype="int64")


class TestRandomStages:
    def test_a_mask_read_after_the_image_was_flipped_had_no_part_in_it(self) -> None:
        apart = way(FLIP, step("imread", None, FITTING, 31, "mask"), image=IMAGE, mask=FITTING)
        (finding,) = found(apart, fields=declared())
        assert (finding.where.stage, finding.where.line) == ("RandomHorizontalFlip", 30)
        assert "`mask`" in finding.message

    def test_a_call_that_takes_the_image_alone_leaves_the_mask_behind(self) -> None:
        text = "img = self.augment(img)"
        apart = way(
            step("imread", None, IMAGE, 27, "image", variable="img"),
            step("imread", None, FITTING, 28, "mask", variable="mask"),
            step("RandomRotation", IMAGE, IMAGE, 30, "image", text=text, variable="img"),
            image=IMAGE,
            mask=FITTING,
        )
        assert found(apart, fields=declared())

    @pytest.mark.parametrize(
        ("image_step", "mask_steps"),
        [
            pytest.param(
                FLIP, [step("imread", None, FITTING, 28, "mask")], id="one call may take both"
            ),
            pytest.param(
                step("ColorJitter", IMAGE, IMAGE, 30, "image"),
                [step("imread", None, FITTING, 31, "mask")],
                id="colours do not move pixels",
            ),
            pytest.param(
                FLIP,
                [
                    step("imread", None, FITTING, 31, "mask"),
                    step("hflip", FITTING, FITTING, 32, "mask"),
                ],
                id="flipped by hand, later",
            ),
            pytest.param(
                FLIP,
                [
                    step("open", None, FITTING, 31, "mask"),
                    step("ToTensor", FITTING, FITTING, 32, "mask", container="Compose"),
                ],
                id="through a Compose of its own, with the same seed perhaps",
            ),
            pytest.param(FLIP, [], id="nothing is known of the mask"),
        ],
    )
    def test_is_silent_unless_it_is_proven(self, image_step: Step, mask_steps: list[Step]) -> None:
        order = sorted([image_step, *mask_steps], key=lambda one: one.line)
        assert found(way(*order, image=IMAGE, mask=FITTING), fields=declared()) == []


def test_samples_without_pairs_are_no_case_for_it() -> None:
    states = judge(observed(seen={"image": IMAGE}))[1]
    (state,) = [s for s in states if s.rule == "misaligned-pair"]
    assert state.state == "not-applicable"
