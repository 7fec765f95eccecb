from __future__ import annotations

from typing import Any

import pytest

import dlcheck.rules  # noqa: F401 - fills the registry
from dlcheck.findings import ERROR, Finding, judge
from dlcheck.observation import (
    Failure,
    Field,
    Frame,
    Journey,
    Leaf,
    Loader,
    Observation,
    Opened,
    SampleLeaves,
    Split,
    State,
    Step,
    Tally,
)
from dlcheck.rules.reading import channel_mix

FILE = "pipeline.py"
LOADER = Loader(file=FILE, line=70, kind="map", batch_size=8, default_collate=True)
BROADCAST = "output with shape [1, 64, 64] doesn't match the broadcast shape [3, 64, 64]"


def split(*failures: Failure, **more: Any) -> Split:
    known = {"samples": 30, "batches": 2, "epochs": 1, "loader": LOADER}
    return Split(failures={f.key: f for f in failures}, **{**known, **more})


def found(*failures: Failure, **more: Any) -> list[Finding]:
    return list(judge(Observation(splits={"": split(*failures, **more)}))[0])


def only(*failures: Failure, **more: Any) -> Finding:
    findings = found(*failures, **more)
    assert len(findings) == 1, findings
    return findings[0]


def rules_of(*failures: Failure, **more: Any) -> list[str]:
    return [finding.rule for finding in found(*failures, **more)]


GETITEM = Frame("pipeline.py", 20, "__getitem__", "image = imread(self.paths[i])", user=True)
APPLY = Frame("pipeline.py", 22, "__getitem__", "return self.transform(image)", user=True)
STAGE = Frame("augment.py", 9, "to_tensor", "return image.transpose(2, 0, 1)", user=True)
COMPOSE = Frame("site-packages/torchvision/transforms/v2/_container.py", 51, "forward")


def sample_failure(*frames: Frame, at: tuple[int, ...] = (5,), **more: Any) -> Failure:
    known = {"exception": "ValueError", "message": "axes don't match array", "count": len(at)}
    return Failure(phase="sample", frames=frames, at=at, **{**known, **more})


class TestTransformError:
    def test_names_samples_exception_line_and_how_many_of_how_many(self) -> None:
        finding = only(sample_failure(APPLY, STAGE, at=(5, 23), worker=1))
        assert finding.rule == "transform-error"
        assert "2 samples, e.g. 5 raised ValueError: axes don't match array" in finding.message
        assert "30 others could be read" in finding.message
        where = finding.where
        assert (where.sample, where.file, where.line, where.worker) == (5, "augment.py", 9, 1)
        assert finding.evidence["samples"] == [5, 23]
        assert (finding.evidence["failed"], finding.evidence["read"]) == (2, 30)

    def test_is_one_finding_a_line_whatever_the_words(self) -> None:
        failures = [
            sample_failure(GETITEM, at=(i,), exception="OSError", message=f"{name}: truncated")
            for i, name in ((3, "cat"), (7, "dog"))
        ]
        assert len(found(*failures)) == 1
        assert len(found(*failures, sample_failure(APPLY, STAGE))) == 2

    def test_a_sample_drawn_twice_counts_once(self) -> None:
        assert only(sample_failure(GETITEM, at=(5,), count=2)).evidence["failed"] == 1

    @pytest.mark.parametrize("seen", [{"samples": 30}, {"samples": 0, "spread": 4}])
    def test_fires_where_other_samples_were_read(self, seen: dict[str, int]) -> None:
        assert rules_of(sample_failure(GETITEM), **seen) == ["transform-error"]

    @pytest.mark.parametrize("frames", [(APPLY, STAGE), (GETITEM, COMPOSE), (APPLY, COMPOSE)])
    def test_fires_below_a_transform_even_if_no_sample_was_read(
        self, frames: tuple[Frame, ...]
    ) -> None:
        assert rules_of(sample_failure(*frames), samples=0) == ["transform-error"]

    @pytest.mark.parametrize(
        "frames",
        [(GETITEM,), (APPLY,), (GETITEM, Frame("PIL/Image.py", 1, "open")), ()],
        ids=["in __getitem__", "the transform is None", "in a reader", "no frames"],
    )
    def test_leaves_a_dataset_that_always_fails_to_pipeline_error(
        self, frames: tuple[Frame, ...]
    ) -> None:
        assert rules_of(sample_failure(*frames), samples=0) == ["pipeline-error"]

    def test_an_exception_without_words_is_named_alone(self) -> None:
        assert (
            "raised StopIteration;"
            in only(sample_failure(GETITEM, exception="StopIteration", message="")).message
        )


def image(channels: int, size: int = 64) -> State:
    return State("Tensor", "float32", (channels, size, size), "CHW")


def normalised(before: State) -> Step:
    return Step(
        FILE, 60, "__getitem__", "return self.transform(im), label", "im", "Normalize", image(3),
        before, container="Compose", position=3, fields=("0",),
    )  # fmt: skip


def opened(sample: int, mode: str) -> Opened:
    return Opened(f"data/IMG_{2300 + sample}.jpg", "PIL.Image.open", mode, "RGB", None, FILE, 51)


def usual(sample: int) -> Journey:
    return Journey(
        sample, (normalised(image(3)),), {"0": image(3)}, (opened(sample, "RGB"),),
        returned=(FILE, 60),
    )  # fmt: skip


def failed(sample: int, given: State, mode: str = "L", **more: Any) -> Journey:
    failure = sample_failure(APPLY, exception="RuntimeError", message=BROADCAST, at=(sample,))
    known = {
        "failure": failure,
        "failed_stage": "Normalize",
        "failed_parameters": "mean=(0.5, 0.5, 0.5)",
        "failed_state": given,
        "opened": (opened(sample, mode),),
    }
    return Journey(sample, **{**known, **more})


def journeys(*every: Journey) -> dict[str, Journey]:
    return {str(journey.sample): journey for journey in every}


class TestTransformErrorWithJourneys:
    def refused(self, message: str = "Crop size (64, 64) exceeds (48, 92)") -> Failure:
        return sample_failure(APPLY, COMPOSE, exception="CropSizeError", message=message, at=(43,))

    def way(self, **more: Any) -> Journey:
        small = State("ndarray", "uint8", (48, 92, 3), "HWC")
        known = {
            "failure": self.refused(),
            "failed_stage": "RandomCrop",
            "failed_parameters": "height=64, width=64",
            "failed_state": small,
            "opened": (Opened("data/00043_1.png", "cv2.imread"),),
        }
        return Journey(43, **{**known, **more})

    def test_names_stage_what_it_was_given_and_the_data_file(self) -> None:
        finding = only(self.refused(), journeys=journeys(self.way()))
        assert finding.rule == "transform-error"
        assert "in RandomCrop(height=64, width=64)" in finding.message
        assert "given uint8 48x92x3 HWC" in finding.message
        assert finding.where.stage == "RandomCrop(height=64, width=64)"
        assert finding.where.path == "data/00043_1.png"
        assert finding.evidence["redrawn"] == ""

    @pytest.mark.parametrize(
        "other",
        [
            pytest.param({"reproduced": False}, id="it came out otherwise"),
            pytest.param({"failure": sample_failure(exception="KeyError")}, id="another error"),
            pytest.param({"failure": None}, id="it could be made"),
        ],
    )
    def test_names_no_stage_when_it_is_not_the_same(self, other: dict[str, Any]) -> None:
        finding = only(self.refused(), journeys=journeys(self.way(**other)))
        assert (finding.where.stage, finding.where.path) == (None, None)

    def test_says_that_it_was_not_reproduced(self) -> None:
        finding = only(self.refused(), journeys=journeys(self.way(reproduced=False)))
        assert finding.evidence["redrawn"] == "not reproduced"


class TestChannelCountVaries:
    def refused(self, message: str = BROADCAST, **more: Any) -> Failure:
        known = {"exception": "RuntimeError", "at": (37,)}
        return sample_failure(APPLY, COMPOSE, message=message, **{**known, **more})

    def test_names_sample_file_mode_and_the_line_that_loads(self) -> None:
        drawn = journeys(failed(37, image(1)), usual(0), usual(20))
        finding = only(self.refused(), journeys=drawn)
        assert (finding.rule, finding.severity) == ("channel-count-varies", ERROR)
        where = finding.where
        assert (where.sample, where.path, where.line) == (37, "data/IMG_2337.jpg", 51)
        assert "from IMG_2337.jpg of mode L, other files RGB" in finding.message
        assert finding.evidence["channels"] == {"1": 1, "3": 2}

    def test_needs_no_journey_where_the_message_has_both_counts(self) -> None:
        finding = only(self.refused())
        assert (finding.rule, finding.where.line) == ("channel-count-varies", 22)

    @pytest.mark.parametrize(
        "message",
        [
            (
                "The size of tensor a (4) must match the size of tensor b (3) at non-singleton "
                "dimension 0"
            ),
            "operands could not be broadcast together with shapes (64,64,4) (3,) ",
        ],
    )
    def test_reads_what_torch_and_numpy_say_of_alpha(self, message: str) -> None:
        assert rules_of(self.refused(message)) == ["channel-count-varies"]

    @pytest.mark.parametrize(
        "message",
        [
            "axes don't match array",
            "not enough values to unpack (expected 3, got 2)",
            "Input image tensor permitted channel values are 1 or 3, but found 4",
        ],
    )
    def test_what_the_stage_was_given_decides_where_words_do_not(self, message: str) -> None:
        grey = State("ndarray", "uint8", (64, 64), "HW")
        way = failed(37, grey, failure=self.refused(message))
        assert rules_of(self.refused(message), journeys=journeys(way, usual(0))) == [
            "channel-count-varies"
        ]
        assert rules_of(self.refused(message)) == ["transform-error"]

    @pytest.mark.parametrize(
        ("message", "given"),
        [
            pytest.param("Crop size exceeds image dimensions", image(1), id="too small, and grey"),
            pytest.param("axes don't match array", image(3), id="as many channels as others"),
            pytest.param("axes don't match array", image(13), id="multispectral"),
            pytest.param("image file is truncated", image(1), id="another reason"),
        ],
    )
    def test_leaves_other_failures_to_transform_error(self, message: str, given: State) -> None:
        way = failed(37, given, failure=self.refused(message))
        drawn = journeys(way, usual(0))
        assert rules_of(self.refused(message), journeys=drawn) == ["transform-error"]

    def test_is_silent_where_every_sample_fails(self) -> None:
        assert "channel-count-varies" not in rules_of(self.refused(), samples=0)

    def collated(self, *shapes: tuple[int, ...]) -> Failure:
        samples = tuple(
            SampleLeaves(i, {"": Leaf("tuple", shape=(1,)), "0": Leaf("Tensor", "float32", shape)})
            for i, shape in enumerate(shapes)
        )
        return Failure(
            "collate", "RuntimeError", "stack expects each tensor to be equal size",
            samples=samples, batch=tuple(range(len(shapes))), detail={"default_collate": True},
        )  # fmt: skip

    @pytest.mark.parametrize(
        "shapes",
        [
            ((3, 64, 64), (3, 64, 64), (1, 64, 64)),
            ((64, 64, 3), (64, 64, 3), (64, 64, 4)),
            ((64, 64, 3), (64, 64, 3), (64, 64)),
        ],
    )
    def test_batches_of_mixed_counts_are_no_ragged_batches(
        self, shapes: tuple[tuple[int, ...], ...]
    ) -> None:
        odd, other = (
            Journey(
                sample,
                fields={"0": State("Tensor", "float32", shapes[sample])},
                opened=(opened(sample, mode),),
                returned=(FILE, 60),
            )
            for sample, mode in ((2, "L"), (0, "RGB"))
        )
        finding = only(self.collated(*shapes), journeys=journeys(odd, other))
        assert finding.rule == "channel-count-varies"
        assert (finding.where.field, finding.where.sample, finding.where.line) == ("0", 2, 51)

    def test_a_mix_that_the_pipeline_made_points_at_its_stage(self) -> None:
        def greyed(count: int) -> Step:
            return Step(
                FILE, 33, "augment", "x = maybe_grey(x)", "x", "RandomApply", image(count),
                image(3), fields=("0",),
            )  # fmt: skip

        ways = journeys(
            Journey(0, (greyed(3),), {"0": image(3)}), Journey(1, (greyed(1),), {"0": image(1)})
        )
        finding = only(self.collated((3, 64, 64), (3, 64, 64), (1, 64, 64)), journeys=ways)
        assert finding.rule == "channel-count-varies"

    @pytest.mark.parametrize(
        "shapes",
        [
            pytest.param(((3, 64, 64), (1, 64, 48)), id="sizes differ as well"),
            pytest.param(((8, 64, 64), (13, 64, 64)), id="multispectral"),
            pytest.param(((1, 16000), (3, 16000)), id="audio"),
        ],
    )
    def test_leaves_other_shapes_to_ragged_batch(self, shapes: tuple[tuple[int, ...], ...]) -> None:
        assert rules_of(self.collated(*shapes)) == ["ragged-batch"]

    def test_a_number_of_frames_is_no_channel_count(self) -> None:
        """Some samples of the run have 2 or 7 of them, though this batch has 1 and 3."""
        seen = {"0": Field(shapes={"7x64x64": Tally(4), "3x64x64": Tally(9)})}
        failure = self.collated((3, 64, 64), (1, 64, 64))
        assert rules_of(failure, fields=seen) == ["ragged-batch"]

    def test_four_channels_by_design_are_no_mix(self) -> None:
        assert channel_mix([(4, 48, 48)]) == {}
        assert channel_mix([(3, 3, 3), (4, 3, 3)]) == {}
