from __future__ import annotations

import ast
import sys
from typing import Any

import pytest

from dlcheck.observers.held import assigned, held, without


class Store:
    """What a dataset keeps."""

    def __init__(self, items: Any) -> None:
        self.items = items
        self.calls = 0

    @property
    def costly(self) -> int:
        self.calls += 1
        return 1

    def __getitem__(self, index: int) -> int:
        self.calls += 1
        return index


def values(expression: str, self: Any) -> dict[str, Any]:
    i = 1
    body = ast.parse(expression, mode="eval").body
    found = {path: value for path, value, _ in held(body, sys._getframe())}
    assert (i, id(self)) == (1, id(self))
    return found


EXPRESSIONS = {
    "f(self.items[i])": "self.items[i]",
    "self.items[2]['a'] / 255": "self.items[2]['a']",
    "self.items[0].float()": "self.items[0]",
    "{'x': f(self.items[0])[None]}": "self.items[0]",
    "f(self.items[0].copy())[1:]": "self.items[0]",
}


@pytest.mark.parametrize(("expression", "path"), EXPRESSIONS.items(), ids=EXPRESSIONS)
def test_arrays_in_attributes_and_containers_are_read(expression, path):
    np = pytest.importorskip("numpy")
    rows = np.arange(6).reshape(3, 2)
    assert list(values(expression, Store([rows, rows, {"a": rows}]))) == [path]


def test_rows_of_arrays_are_read():
    np = pytest.importorskip("numpy")
    self = Store(np.arange(6).reshape(3, 2))
    assert values("torch.tensor(self.items[i])", self)["self.items[i]"].tolist() == [2, 3]


@pytest.mark.parametrize(
    "expression",
    [
        "f(self.costly)",
        "f(self[i])",
        "f(self.missing)",
        "f(self.items[9])",
        "f(i)",
        "f(self.items)",
        "f(self.items[0])",
        "self.transform(i)",
    ],
)
def test_nothing_that_runs_code_or_fails_is_read(expression):
    self = Store([1])
    assert values(expression, self) == {}
    assert self.calls == 0


def test_what_a_statement_stores_as_attributes_is_found() -> None:
    self = Store([1])
    self.mean = 3
    stored = assigned(ast.parse("self.items, other = self.mean = f()").body[0], sys._getframe())
    assert stored == {"self.items": [1], "self.mean": 3}
    assert assigned(ast.parse("x = self.items").body[0], sys._getframe()) == {}


def test_names_of_stored_attributes_are_left_out_with_what_they_hold() -> None:
    found = {"self.items": 1, "self.items.0": 2, "self.other": 3, "x": 4}
    assert without(found, {"self.items": None}) == {"self.other": 3, "x": 4}
