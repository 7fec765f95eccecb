"""A model with BatchNorm refuses a last batch of one, on the meta device and in training only."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader, TensorDataset  # noqa: E402 - torch may be absent

from dlcheck.observers.describe import describe  # noqa: E402
from dlcheck.run import contract  # noqa: E402
from dlcheck.run.target import Target  # noqa: E402

Image = (3, 8, 8)


class Net(torch.nn.Sequential):
    def __init__(self) -> None:
        pool = torch.nn.AdaptiveAvgPool2d(1)
        super().__init__(pool, torch.nn.Flatten(), torch.nn.BatchNorm1d(3))


class Plain(torch.nn.Module):
    def forward(self, image: Any) -> Any:
        return image.mean((2, 3))


class Item(torch.nn.Module):
    def forward(self, image: Any) -> Any:
        return image * image.mean().item()


class Two(torch.nn.Module):
    def forward(self, image: Any, mask: Any) -> Any:
        return image


def noted(model: Any, n: int = 9, role: str = "train", **loader: Any) -> list[dict[str, Any]]:
    made = DataLoader(TensorDataset(torch.zeros(n, *Image)), batch_size=4, **loader)
    notes: list[dict[str, Any]] = []
    watch = SimpleNamespace(
        note=lambda **part: notes.append(part),
        scratch=SimpleNamespace(write=lambda **line: notes.append(line)),
        split="",
    )
    leaves = describe(next(iter(made)), values=False)
    drive = SimpleNamespace(target=Target(made, made.dataset, role), leaves=leaves)
    spec = {"model": {"_obj_": f"{__name__}.{model}"}} if isinstance(model, str) else model
    contract.note_batchnorm(watch, {"": drive}, {"": spec})
    return notes


@pytest.fixture(autouse=True)
def found_by_name(monkeypatch: Any) -> None:
    by_name = globals()
    find = lambda node, key: by_name[node["_obj_"].rpartition(".")[2]]  # noqa: E731
    monkeypatch.setattr(contract, "instantiate", find)


def test_a_batchnorm_that_refuses_is_noted() -> None:
    (note,) = noted("Net")
    assert note["batchnorm"]["phase"] == "model"
    assert note["batchnorm"]["exception"] == "ValueError"


@pytest.mark.parametrize(
    "more",
    [{"drop_last": True}, {"n": 8}, {"role": "eval"}],
    ids=["drop_last", "no batch of one", "evaluation"],
)
def test_without_a_training_batch_of_one_no_model_is_built(more: Any) -> None:
    assert noted("Net", **more) == []


def test_full_length_counts_in_place_of_the_dataset() -> None:
    spec = {"model": {"_obj_": "x.Net"}, "full_length": 101}
    assert "batchnorm" in noted(spec, n=8)[0]
    assert noted({**spec, "full_length": 100}, n=9) == []


def test_a_model_that_takes_one_sample_is_not_accused() -> None:
    assert noted("Plain") == []


@pytest.mark.parametrize("model", ["Item", "Two"])
def test_a_model_that_cannot_run_on_meta_is_no_accusation(model: str) -> None:
    (line,) = noted(model)
    assert list(line["obs"]["settings"]) == ["model not run on meta: "]


def test_no_model_no_note() -> None:
    assert noted({}) == []
