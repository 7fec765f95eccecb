from __future__ import annotations

from typing import Any

import pytest

import dlcheck.rules  # noqa: F401 - fills the registry
from dlcheck.findings import ERROR, WARNING, Finding, RuleState, judge
from dlcheck.observation import (
    Failure,
    Field,
    Journey,
    Loader,
    Observation,
    Split,
    State,
    Step,
    Tally,
)

FILE = "pipeline.py"
LOADER = Loader(file=FILE, line=40, kind="map", length=5, batch_size=8, default_collate=True)
LAYOUT_RULES = ["hwc-image", "layout-flip", "reshape-scramble"]


def state(layout: str, *shape: int, dtype: str = "float32", **more: Any) -> State:
    return State(more.pop("type", "Tensor"), dtype, shape, layout, **more)


def step(stage: str, before: State | None, after: State, line: int = 20, **more: Any) -> Step:
    known = {"fields": ("image",), "function": "__getitem__", "text": f"x = {stage}(x)"}
    return Step(FILE, line, variable="x", stage=stage, before=before, after=after, **known | more)


def journey(
    *steps: Step, sample: int | str = 0, final: State | None = None, **more: Any
) -> Journey:
    fields = {"image": final or steps[-1].after}
    return Journey(sample, steps, fields, returned=(FILE, 30), **more)


def field(shape: str, dtype: str) -> Field:
    return Field({"Tensor": Tally(8)}, {dtype: Tally(8)}, {shape: Tally(8)})


def split(*journeys: Journey, batch: bool = True, **more: Any) -> Split:
    """A split whose batches stack the field as the first journey finished it."""
    fields, batches = {}, {}
    if journeys:
        final = journeys[0].fields["image"]
        shape = "x".join(map(str, final.shape or ()))
        fields = {"image": field(shape, final.dtype or "")}
        batches = {"image": field(f"8x{shape}", final.dtype or "")} if batch else {}
    known = {
        "loader": LOADER,
        "samples": 40,
        "batches": 5,
        "epochs": 1,
        "fields": fields,
        "batch_fields": batches,
        "journeys": {str(j.sample): j for j in journeys},
    }
    return Split(**{**known, **more})


def found(one: Split, **settings: Any) -> list[Finding]:
    """What the rules of this file say; others judge the same contract."""
    findings = judge(Observation(splits={"": one}, settings=settings))[0]
    return [finding for finding in findings if finding.rule in LAYOUT_RULES]


def rules(one: Split, **settings: Any) -> list[str]:
    return [finding.rule for finding in found(one, **settings)]


def outcome(one: Split, slug: str, **settings: Any) -> RuleState:
    states = judge(Observation(splits={"": one}, settings=settings))[1]
    return next(s for s in states if s.rule == slug)


ARRAY = state("HWC", 64, 48, 3, dtype="uint8", type="ndarray")
HWC = state("HWC", 64, 48, 3)
CHW = state("CHW", 3, 64, 48)
HCW = state("HCW", 64, 3, 48)
READ = step("imread", None, ARRAY, 18)
TO_TENSOR = step("from_numpy", ARRAY, HWC, 22)
LEFT_LAST = journey(READ, TO_TENSOR)


class TestHwcImage:
    def test_names_field_shapes_and_the_line_that_made_the_tensor(self) -> None:
        (finding,) = found(split(journey(READ, TO_TENSOR, step("Normalize", HWC, HWC, 25))))
        assert finding.rule == "hwc-image"
        assert "64x48x3 a sample (8x64x48x3 as a batch)" in finding.message
        where = finding.where
        assert (where.field, where.stage, where.file, where.line) == (
            "image",
            "from_numpy",
            FILE,
            22,
        )

    def test_is_a_warning_while_nobody_is_seen_to_want_it_otherwise(self) -> None:
        (finding,) = found(split(LEFT_LAST))
        assert finding.severity == WARNING

    @pytest.mark.parametrize(
        ("given", "who"),
        [
            ({"expect": {"image": {"shape": [3, 64, 48]}}}, "expect says shape 3, 64, 48"),
            ({"expect": {"image": {"shape": [3, None, None]}}}, "expect says shape"),
            ({"expect": {"image": {"layout": "CHW"}}}, "expect says layout CHW"),
            ({"fields": {"image": {"layout": "CHW"}}}, "fields says layout CHW"),
            ({"model": {"_target_": "torchvision.models.resnet18"}}, "resnet18 takes"),
        ],
    )
    def test_is_an_error_where_it_is_refuted(self, given: dict[str, Any], who: str) -> None:
        (finding,) = found(split(LEFT_LAST, given=given))
        assert finding.severity == ERROR
        assert who in finding.message

    def test_a_declared_shape_is_enough_where_pixels_tell_nothing(self) -> None:
        """Seven by seven patches of four bands: no evidence but the contract."""
        patch = journey(step("as_tensor", None, state("", 7, 7, 4)))
        assert rules(split(patch)) == []
        (finding,) = found(split(patch, given={"expect": {"image": {"shape": [4, 7, 7]}}}))
        assert (finding.rule, finding.severity) == ("hwc-image", ERROR)

    def test_a_declared_shape_is_enough_without_journeys(self) -> None:
        seen = {"image": field("7x7x4", "float32")}
        batches = {"image": field("8x7x7x4", "float32")}
        given = {"expect": {"image": {"shape": [4, 7, 7]}}}
        one = split(fields=seen, batch_fields=batches, given=given)
        (finding,) = found(one)
        assert (finding.where.file, finding.where.line) == (FILE, 40)

    @pytest.mark.parametrize(
        ("final", "given"),
        [
            pytest.param(CHW, {}, id="channels first"),
            pytest.param(HWC, {"fields": {"image": {"layout": "HWC"}}}, id="declared"),
            pytest.param(HWC, {"expect": {"image": {"shape": [64, 48, 3]}}}, id="expected"),
            pytest.param(
                state("HWC", 64, 48, 3, dtype="uint8"),
                {"step": "train:step"},
                id="uint8 with a step that may permute on the device",
            ),
            pytest.param(state("THWC", 8, 64, 48, 3, dtype="uint8"), {}, id="video"),
            pytest.param(state("HWC", 3, 64, 3), {}, id="tiny height"),
            pytest.param(state("HWC", 64, 4, 3), {}, id="tiny width"),
            pytest.param(state("", 100, 64, 3), {}, id="time series of three axes"),
            pytest.param(state("", 1024, 3), {}, id="point cloud"),
            pytest.param(state("", 64, 48, 3), {}, id="noise, layout unknown"),
            pytest.param(state("HWC", 64, 48, 3, dtype="int64"), {}, id="one-hot mask"),
            pytest.param(
                state("CHW", 4, 7, 7),
                {"expect": {"image": {"shape": [7, 4, 7]}}},
                id="layout known, contract of another shape",
            ),
        ],
    )
    def test_is_silent_on(self, final: State, given: dict[str, Any]) -> None:
        assert rules(split(journey(step("to_tensor", None, final)), given=given)) == []

    def test_a_float_batch_with_a_step_is_still_worth_a_warning(self) -> None:
        (finding,) = found(split(LEFT_LAST, given={"step": "train:step"}))
        assert finding.severity == WARNING

    def test_is_silent_where_the_collate_moves_the_channels(self) -> None:
        assert rules(split(LEFT_LAST, batch_fields={"image": field("8x3x64x48", "float32")})) == []

    def test_is_silent_where_journeys_disagree(self) -> None:
        other = journey(step("from_numpy", ARRAY, CHW), sample=1)
        assert rules(split(LEFT_LAST, other)) == []

    def test_a_journey_that_cannot_tell_has_no_vote(self) -> None:
        blank = journey(step("from_numpy", None, state("", 64, 48, 3)), sample=1)
        assert rules(split(LEFT_LAST, blank)) == ["hwc-image"]

    def test_what_the_drive_did_not_see_is_no_evidence(self) -> None:
        assert rules(split(journey(READ, TO_TENSOR, reproduced=False))) == []


ROT90 = step("rot90", CHW, HCW, 27)
MADE = step("transpose", ARRAY, CHW, 26)


class TestLayoutFlip:
    def test_names_stage_line_before_after_and_where_the_channels_are(self) -> None:
        (finding,) = found(split(journey(MADE, ROT90)))
        assert (finding.rule, finding.severity) == ("layout-flip", ERROR)
        assert "rot90 turns `image` from C,H,W (3x64x48) into H,C,W (64x3x48)" in finding.message
        assert "C is now axis 1" in finding.message
        assert (finding.where.stage, finding.where.file, finding.where.line) == ("rot90", FILE, 27)

    def test_channels_that_went_last_draw_this_rule_and_not_hwc_image(self) -> None:
        back = step("ToNumpy", CHW, HWC, 28)
        assert rules(split(journey(MADE, back))) == ["layout-flip"]

    def test_totensor_on_what_is_stored_channels_first(self) -> None:
        stored = state("CHW", 3, 64, 64, dtype="uint8", type="ndarray")
        flip = step("ToTensor", stored, state("WCH", 64, 3, 64), parameters="")
        assert rules(split(journey(flip))) == ["layout-flip"]

    def test_points_at_the_flip_that_stayed(self) -> None:
        there, back, again = (
            step("A", CHW, HWC, 27),
            step("B", HWC, CHW, 28),
            step("C", CHW, HWC, 29),
        )
        (finding,) = found(split(journey(MADE, there, back, again)))
        assert finding.where.line == 29

    @pytest.mark.parametrize(
        "way",
        [
            pytest.param(journey(MADE), id="H,W,C to C,H,W is the healthy way"),
            pytest.param(journey(MADE, step("A", CHW, HWC), step("B", HWC, CHW)), id="turned back"),
            pytest.param(
                journey(step("A", CHW, HWC), final=CHW), id="turned back where no step tells"
            ),
            pytest.param(
                journey(step("A", CHW, HWC), step("permute", HWC, state("", 3, 64, 48)), final=CHW),
                id="turned back, evidence lost on the way",
            ),
            pytest.param(
                journey(step("A", CHW, HWC), step("permute", HWC, state("", 3, 64, 48))),
                id="turned back by the sizes",
            ),
            pytest.param(
                journey(step("stack", state("TCHW", 8, 3, 64, 48), state("CTHW", 3, 8, 64, 48))),
                id="video, time and channels exchanged",
            ),
            pytest.param(journey(step("squeeze", CHW, state("HW", 64, 48))), id="channels dropped"),
            pytest.param(journey(step("A", CHW, state("", 64, 3, 48))), id="after unknown"),
        ],
    )
    def test_is_silent_on(self, way: Journey) -> None:
        assert rules(split(way)) == []

    def test_is_silent_where_channels_last_are_declared(self) -> None:
        way = journey(MADE, step("A", CHW, HWC))
        assert rules(split(way, given={"fields": {"image": {"layout": "HWC"}}})) == []
        assert rules(split(way, given={"expect": {"image": {"shape": [64, 48, 3]}}})) == []

    def test_is_silent_where_the_collate_turns_it_back(self) -> None:
        batches = {"image": field("8x3x64x48", "float32")}
        assert rules(split(journey(MADE, ROT90), batch_fields=batches)) == []

    def test_transpose_of_all_axes_exchanges_height_and_width(self) -> None:
        turned = state("CHW", 3, 48, 64)
        way = journey(step("T", ARRAY, turned, text="x = torch.from_numpy(img.T.copy())"))
        (finding,) = found(split(way))
        assert (finding.rule, finding.severity) == ("layout-flip", WARNING)
        assert "C,W,H" in finding.message
        expect = {"expect": {"image": {"shape": [3, 64, 48]}}}
        assert found(split(way, given=expect))[0].severity == ERROR

    def test_an_augmentation_that_transposes_is_no_flip(self) -> None:
        turned = state("HWC", 48, 64, 3, dtype="uint8", type="ndarray")
        way = journey(
            READ,
            step("D4", ARRAY, turned),
            step("permute", turned, state("CHW", 3, 48, 64), text="x.permute(2, 0, 1)"),
        )
        assert rules(split(way)) == []


LAGS = {"lag1": 0.61, "lag3": 0.97}


class TestReshapeScramble:
    def test_names_line_and_lag_figures(self) -> None:
        torn = state("", 3, 64, 48, scramble=LAGS)
        after = step("Normalize", torn, torn, 28)
        (finding,) = found(split(journey(READ, step("view", HWC, torn, 26), after)))
        assert (finding.rule, finding.severity) == ("reshape-scramble", ERROR)
        assert (finding.where.stage, finding.where.line) == ("view", 26)
        assert finding.evidence["lags"] == LAGS
        assert "lag3 0.97" in finding.message

    def test_silences_what_follows_from_it(self) -> None:
        torn = state("HCW", 64, 3, 48, scramble=LAGS)
        before = step("reshape", CHW, torn)
        assert rules(split(journey(MADE, before))) == ["reshape-scramble"]

    @pytest.mark.parametrize(
        "way",
        [
            pytest.param(
                journey(step("view", state("HW", 64, 48), state("CHW", 1, 64, 48))),
                id="one channel",
            ),
            pytest.param(
                journey(step("view", state("", 64, 48, 3), state("", 3, 64, 48))), id="noise"
            ),
            pytest.param(
                journey(step("view", HWC, state("", 3, 64, 48, scramble=LAGS)), final=CHW),
                id="viewed back",
            ),
            pytest.param(
                journey(
                    step("Crop", *[state("", 3, 64, 48, scramble=LAGS)] * 2),
                    final=state("", 3, 64, 48, scramble=LAGS),
                ),
                id="stored so, no step to blame",
            ),
        ],
    )
    def test_is_silent_on(self, way: Journey) -> None:
        assert rules(split(way)) == []


class TestOutcome:
    @pytest.mark.parametrize("slug", LAYOUT_RULES)
    def test_a_probe_that_died_leaves_the_rules_unobserved(self, slug: str) -> None:
        state = outcome(split(), slug, probe="the probe was killed by SIGSEGV")
        assert (state.state, state.reason) == ("unobserved", "the probe was killed by SIGSEGV")

    @pytest.mark.parametrize("slug", LAYOUT_RULES)
    def test_without_journeys_they_do_not_apply(self, slug: str) -> None:
        assert outcome(split(), slug).state == "not-applicable"

    @pytest.mark.parametrize("slug", LAYOUT_RULES)
    def test_a_probe_that_died_late_spoils_nothing(self, slug: str) -> None:
        assert outcome(split(journey(MADE)), slug, probe="late").state == "ran"

    def test_samples_without_an_image_are_no_case_for_them(self) -> None:
        tokens = journey(step("encode", None, state("", 128, dtype="int64")))
        assert outcome(split(tokens), "hwc-image").state == "not-applicable"

    def test_a_finding_outweighs_a_dead_probe(self) -> None:
        given = {"expect": {"image": {"shape": [4, 7, 7]}}}
        seen = {"image": field("7x7x4", "float32")}
        one = split(fields=seen, batch_fields={"image": field("8x7x7x4", "float32")}, given=given)
        assert rules(one, probe="died") == ["hwc-image"]

    def test_a_run_without_batches_is_unobserved(self) -> None:
        failed = Failure("import", "ImportError", "no module named cats")
        states = judge(Observation(failures={failed.key: failed}))[1]
        assert {s.state for s in states if s.rule in LAYOUT_RULES} == {"unobserved"}
