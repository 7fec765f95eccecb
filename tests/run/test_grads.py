"""What of a dataset requires a gradient, and the line that asks for it."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn
from torch.utils.data import Subset, TensorDataset

from dlcheck.run.grads import MOST_FOUND, asking_line, grads_of


class Holder:
    def __init__(self, **held: Any) -> None:
        vars(self).update(held)


def needing() -> torch.Tensor:
    return torch.zeros(3, requires_grad=True)


def test_a_tensor_is_found_through_subsets_by_its_path() -> None:
    dataset = Subset(TensorDataset(torch.zeros(3), needing()), [0, 1])
    assert list(grads_of(dataset)) == [("dataset.dataset.tensors[1]", "Tensor", (3,))]


def test_a_trained_module_is_found_and_a_frozen_one_is_not() -> None:
    frozen = nn.Linear(2, 2).requires_grad_(requires_grad=False)
    found = list(grads_of(Holder(a=frozen, b=nn.Linear(2, 2))))
    assert found == [("dataset.b", "Linear", ())]


def test_containers_are_looked_into_and_cycles_end() -> None:
    dataset = Holder(maps={"x": [needing()]})
    dataset.self = dataset
    assert [path for path, _, _ in grads_of(dataset)] == ["dataset.maps['x'][0]"]


def test_plain_datasets_hold_nothing() -> None:
    assert list(grads_of(TensorDataset(torch.zeros(3)))) == []


def test_a_few_are_enough() -> None:
    assert len(list(grads_of(Holder(many=[needing() for _ in range(20)])))) == MOST_FOUND


@pytest.mark.parametrize(
    ("line", "asks"),
    [
        ("x = x.requires_grad_()", True),
        ("x.requires_grad = True", True),
        ("w = nn.Parameter(x)", True),
        ("x.requires_grad_(False)", False),
        ("# x.requires_grad_()", False),
    ],
)
def test_the_line_that_asks_is_read_from_the_source(
    line: str,
    asks: bool,  # noqa: FBT001 - a column of the table
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = tmp_path / "points.py"
    file.write_text(f"import torch\n{line}\n")
    module = types.ModuleType("points")
    module.__file__ = str(file)
    others = {name: one for name, one in sys.modules.items() if not _is_test(one)}
    monkeypatch.setattr(sys, "modules", {**others, "points": module})
    assert asking_line() == ((str(file), 2, line) if asks else ("", 0, ""))


def _is_test(module: Any) -> bool:
    return "/tests/" in str(getattr(module, "__file__", None))
