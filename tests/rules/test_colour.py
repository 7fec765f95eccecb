from __future__ import annotations

from typing import Any

import pytest

import dlcheck.rules  # noqa: F401 - fills the registry
from dlcheck.findings import WARNING, Finding, RuleState, judge
from dlcheck.observation import Field, Journey, Observation, Opened, Split, State, Step, Tally

IMAGE = State("Tensor", "float32", (3, 64, 64), "CHW")
REVERSED = {"rgb": 0.61, "bgr": 0.99}
STRAIGHT = {"rgb": 0.99, "bgr": 0.61}
IMAGENET = "mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225]"
SEEN = {"image": Field(shapes={"3x64x64": Tally(8)}, dtypes={"float32": Tally(8)})}


def way(
    sample: int, colours: dict[str, float], parameters: str = IMAGENET, order: str = "BGR"
) -> Journey:
    known = {"file": "pipeline.py", "function": "__getitem__", "variable": "img"}
    step = Step(
        **known, line=48, text="self.transform(img)", stage="Normalize", before=IMAGE, after=IMAGE,
        parameters=parameters, fields=("image",),
    )  # fmt: skip
    opened = Opened(
        f"data/{sample}.jpg", "cv2.imread", "RGB", order, (64, 64, 3), "pipeline.py", 44
    )
    return Journey(
        sample, (step,), {"image": IMAGE}, (opened,), ("pipeline.py", 49),
        colours={"image": colours} if colours else {},
    )  # fmt: skip


def observed(*journeys: Journey, **given: Any) -> Observation:
    known = {"samples": 40, "batches": 5, "fields": SEEN, "given": given}
    return Observation(
        splits={"": Split(**known, journeys={str(j.sample): j for j in journeys})},
    )


def found(*journeys: Journey, **given: Any) -> list[Finding]:
    findings = judge(observed(*journeys, **given))[0]
    return [finding for finding in findings if finding.rule == "bgr-order"]


def test_names_field_loading_line_and_correlation() -> None:
    (finding,) = found(way(0, REVERSED), way(7, REVERSED))
    assert finding.severity == WARNING
    where = finding.where
    assert (where.field, where.file, where.line, where.path) == (
        "image",
        "pipeline.py",
        44,
        "data/0.jpg",
    )
    assert finding.evidence["correlation"] == {"RGB": 0.61, "BGR": 0.99}
    assert "cv2.imread" in finding.message
    assert "Normalize uses the RGB mean of ImageNet" in finding.message


@pytest.mark.parametrize(
    "given",
    [
        {"expect": {"image": {"normalize": "imagenet"}}},
        {"expect": {"image": {"normalize": {"mean": [0.485, 0.456, 0.406]}}}},
        {"model": {"_target_": "torchvision.models.resnet18"}},
        {"fields": {"image": {"colour": "RGB"}}},
    ],
)
def test_fires_where_the_config_wants_red_first(given: dict[str, Any]) -> None:
    assert found(way(0, REVERSED, ""), **given)
    assert not found(way(0, STRAIGHT, "", "RGB"), **given)


@pytest.mark.parametrize(
    "parameters",
    [
        "mean=(123.675, 116.28, 103.53), std=(58.395, 57.12, 57.375)",
        "mean=[0.48145466, 0.4578275, 0.40821073]",
        "mean=tensor([0.4914, 0.4822, 0.4465])",
    ],
)
def test_knows_published_means(parameters: str) -> None:
    assert found(way(0, REVERSED, parameters))


@pytest.mark.parametrize(
    ("journeys", "given"),
    [
        pytest.param([way(0, STRAIGHT)], {}, id="red first"),
        pytest.param([way(0, REVERSED)], {"fields": {"image": {"colour": "BGR"}}}, id="declared"),
        pytest.param(
            [way(0, REVERSED, "mean=[103.939, 116.779, 123.68]")], {}, id="Caffe means, blue first"
        ),
        pytest.param(
            [way(0, REVERSED, "mean=[0.406, 0.456, 0.485]")], {}, id="ImageNet means, blue first"
        ),
        pytest.param([way(0, REVERSED, "mean=[0.5, 0.5, 0.5]")], {}, id="means of no order"),
        pytest.param([way(0, REVERSED, "")], {}, id="nobody wants red first"),
        pytest.param([way(0, {}), way(1, {})], {}, id="grey pictures that cannot tell"),
        pytest.param([way(0, {"rgb": 0.98, "bgr": 0.99})], {}, id="too close to tell"),
        pytest.param([way(0, REVERSED), way(1, STRAIGHT)], {}, id="journeys disagree"),
        pytest.param(
            [way(0, REVERSED), way(1, STRAIGHT), way(2, STRAIGHT)], {}, id="channel shuffle"
        ),
    ],
)
def test_is_silent_on(journeys: list[Journey], given: dict[str, Any]) -> None:
    assert found(*journeys, **given) == []


def test_a_dead_probe_leaves_it_unobserved() -> None:
    one = Observation(splits={"": Split(batches=2)}, settings={"probe": "timed out"})
    states = {s.rule: s for s in judge(one)[1]}
    assert states["bgr-order"] == RuleState("bgr-order", "unobserved", "timed out")
