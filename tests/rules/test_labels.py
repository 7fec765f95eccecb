"""DLC306: labels that are no class, and batches of one class; and what only looks like them."""

from __future__ import annotations

from typing import Any

import pytest

import dlcheck.rules  # noqa: F401 - fills the registry
from dlcheck.findings import ERROR, WARNING, Finding, judge
from dlcheck.observation import Contents, Field, Loader, Observation, Runs, Split, Tally

SORTED = Runs(batches=10, single=10, pairs=150, same=150)
MIXED = Runs(batches=10, single=0, pairs=150, same=30)
FIVE = {"expect": {"label": {"classes": 5}}}
FLIPPED = {"0": Contents.of({"a": (1,), "b": (1,), "c": (2,), "d": (2,), "e": (3,)})}


def label(*values: int, runs: Runs = MIXED, n: int = 32, **more: Any) -> Field:
    known = {
        "types": {"int": Tally(160)},
        "low": float(min(values)),
        "high": float(max(values)),
        "values": {str(v): Tally(n, (10 * abs(v),)) for v in values},
        "runs": runs,
    }
    return Field(**known | more)


def judged(seen: Field, name: str = "", **more: Any) -> tuple[Finding, ...]:
    known = {
        "loader": Loader(kind="map", sampler="SequentialSampler", batch_sampler="BatchSampler"),
        "samples": 160,
        "epochs": 1,
        "fields": {"image": Field({"Tensor": Tally(160)}), "label": seen},
    }
    split = Split(**known | more)
    return judge(Observation(splits={name: split}), select=["label-range"])[0]


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (label(0, 1, 2, 3, 4, 5), "gives 5 classes, 0 to 4"),
        (label(1, 2, 3, 4, 5), "run from 1 to 5"),
        (label(-1, 0, 1, 2), "holds -1"),
        (label(0, 1, 200), "holds 200"),
    ],
)
def test_values_past_the_declared_classes_are_errors_with_a_sample(seen: Field, words: str) -> None:
    (found,) = judged(seen, given=FIVE)
    assert found.severity == ERROR
    assert words in found.message
    assert found.where.sample is not None


def test_the_model_tells_how_many_classes_there_are() -> None:
    model = {"model": {"_target_": "torchvision.models.resnet18", "num_classes": 3}}
    (found,) = judged(label(0, 1, 2, 3), given=model)
    assert "resnet18" in found.message


@pytest.mark.parametrize(
    ("why", "seen", "given"),
    [
        ("in range", label(0, 1, 2, 3, 4), FIVE),
        ("255 is void", label(0, 1, 4, 255), FIVE),
        ("-100 has no loss", label(-100, 0, 1), FIVE),
        (
            "a declared ignore index", label(-1, 0, 1),
            {"expect": {"label": {"classes": 5, "ignore_index": -1}}},
        ),
        ("unlabelled samples, nothing declared", label(-1, 0, 1, 2), {}),
        ("a hinge loss", label(-1, 1), {}),
        ("one-based, but nothing declared", label(1, 2, 3), {}),
        (
            "an embedding of 3 for metric learning", label(0, 1, 2, 3, 4),
            {"model": {"_target_": "torch.nn.Linear", "in_features": 9, "out_features": 3}},
        ),
    ],
)  # fmt: skip
def test_silent_on_values(why: str, seen: Field, given: dict[str, Any]) -> None:
    assert judged(seen, given=given) == (), why


def test_sorted_training_batches_of_one_class_are_a_warning() -> None:
    (found,) = judged(label(0, 1, 2, 3, 4, runs=SORTED), "train")
    assert found.severity == WARNING
    assert "10 of 10 training batches hold one class" in found.message
    assert found.evidence["sampler"] == "SequentialSampler"


def test_samples_that_change_between_epochs_show_that_it_trains() -> None:
    assert judged(label(0, 1, 2, 3, runs=SORTED), contents=FLIPPED)


SHUFFLED = Loader(kind="map", sampler="RandomSampler", batch_sampler="BatchSampler")
STREAM = Loader(kind="iterable", sampler="_InfiniteConstantSampler")
BUCKETS = Loader(kind="map", sampler="SequentialSampler", batch_sampler="BucketBatchSampler")


@pytest.mark.parametrize(
    ("why", "seen", "more"),
    [
        ("evaluation", label(0, 1, 2, runs=SORTED), {"role": "eval", "given": {"step": "a:b"}}),
        ("nobody says that it trains", label(0, 1, 2, runs=SORTED), {}),
        ("shuffled", label(0, 1, 2, runs=SORTED), {"loader": SHUFFLED, "contents": FLIPPED}),
        ("a stream in shards", label(0, 1, runs=SORTED), {"loader": STREAM, "contents": FLIPPED}),
        ("a batch sampler", label(0, 1, runs=SORTED), {"loader": BUCKETS, "contents": FLIPPED}),
        ("one class alone", label(0, runs=SORTED), {"contents": FLIPPED}),
        ("mixed batches", label(0, 1, 2, runs=MIXED), {"contents": FLIPPED}),
        ("few batches", label(0, 1, runs=Runs(3, 3, 45, 45)), {"contents": FLIPPED}),
        (
            "rare positives",
            label(0, 1, runs=Runs(10, 9, 150, 148), values={"0": Tally(159), "1": Tally(1)}),
            {"contents": FLIPPED},
        ),
    ],
)
def test_silent_on_order(why: str, seen: Field, more: dict[str, Any]) -> None:
    assert judged(seen, **more) == (), why
