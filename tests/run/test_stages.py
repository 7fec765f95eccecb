from __future__ import annotations

import pickle
from typing import Any

import pytest

from dlcheck.run.instantiate import ConfigMistake, instantiate
from dlcheck.run.stages import Stages, compose

torch = pytest.importorskip("torch")


def stages(*nodes: dict[str, Any]) -> Any:
    return compose(instantiate(list(nodes), "transform"), "transform")


@pytest.mark.parametrize(
    ("package", "item"),
    [
        ("torchvision.transforms.v2", {"_target_": "torchvision.transforms.v2.ToImage"}),
        ("torchvision.transforms", {"_target_": "torchvision.transforms.ToTensor"}),
        ("albumentations", {"_target_": "albumentations.HorizontalFlip"}),
        ("monai.transforms", {"_target_": "monai.transforms.Flip"}),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_a_list_becomes_the_compose_of_its_package(
    monkeypatch: pytest.MonkeyPatch, package: str, item: dict[str, Any]
) -> None:
    monkeypatch.setenv("NO_ALBUMENTATIONS_UPDATE", "1")
    module = pytest.importorskip(package, exc_type=ImportError)
    assert type(stages(item, item)) is module.Compose


def test_a_mixed_list_is_called_in_turn_and_pickles() -> None:
    identity = {"_target_": "torch.nn.Identity"}
    made = stages(identity, {"_target_": "torch.nn.ReLU"}, identity)
    assert isinstance(made, Stages)
    assert pickle.loads(pickle.dumps(made))(torch.tensor([-1.0, 2.0])).tolist() == [0.0, 2.0]


def test_stages_pass_a_pair_on_as_torchvision_does() -> None:
    swap = Stages([lambda a, b: (b, a), lambda a, b: (b, a), lambda a, b: (a + 1, b)])
    assert swap(1, 2) == (2, 2)
    assert Stages([lambda a: (a, a), lambda pair: pair])(1) == (1, 1)
    assert Stages([lambda a: a + 1])(image=1, label=2) == {"image": 2, "label": 2}


def test_a_mixed_list_calls_albumentations_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_ALBUMENTATIONS_UPDATE", "1")
    pytest.importorskip("albumentations", exc_type=ImportError)
    numpy = pytest.importorskip("numpy")
    flip = instantiate({"_target_": "albumentations.HorizontalFlip", "p": 1.0}, "transform.0")
    made = Stages([flip, numpy.ascontiguousarray])
    image = numpy.arange(12, dtype=numpy.uint8).reshape(2, 2, 3)
    assert made(image)[0, 0].tolist() == [3, 4, 5]
    assert made(image=image)["image"][0, 0].tolist() == [3, 4, 5]


def test_a_class_in_the_list_is_a_mistake_with_its_number() -> None:
    with pytest.raises(ConfigMistake) as caught:
        compose([torch.nn.Identity(), torch.nn.ReLU], "transform")
    assert caught.value.key == "transform.1"
