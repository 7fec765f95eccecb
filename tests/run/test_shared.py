"""Attributes of a shared dataset that the source sets for one split and then for another."""

from __future__ import annotations

import textwrap
from types import SimpleNamespace
from typing import Any

import pytest

from dlcheck.run import shared
from dlcheck.run.shared import lines_in


def told(source: str) -> list[tuple[str, str, str, int, int]]:
    found = lines_in(textwrap.dedent(source).strip(), "data.py")
    return [(o.victim, o.by, o.attribute, o.line, o.first_line) for o, _ in found]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("""
         base = Photos()
         train, val = Subset(base, some), Subset(base, rest)
         train.dataset.transform = flipping
         val.dataset.transform = plain
         """, ("train", "val", "transform", 4, 3)),
        ("""
         full = ImageFolder(root, transform=flipping)
         train, val = torch.utils.data.random_split(full, [0.8, 0.2])
         val.dataset.transform = plain
         """, ("train", "val", "transform", 3, 1)),
        ("""
         def setup(self, stage):
             full = ImageFolder(self.root, transform=self.flipping)
             self.train, self.val = random_split(full, [0.8, 0.2])
             self.val.dataset.transform = self.plain
         """, ("self.train", "self.val", "transform", 4, 2)),
        ("""
         full = ImageFolder(root, transform=flipping)
         train = Subset(full, some)
         full.transform = plain
         val = Subset(full, rest)
         """, ("train", "full", "transform", 3, 1)),
    ],
    ids=["one after the other", "the constructor's", "in a data module", "between two subsets"],
)  # fmt: skip
def test_overwritten_attribute(source: str, expected: tuple[Any, ...]) -> None:
    assert told(source) == [expected]


@pytest.mark.parametrize(
    "source",
    [
        """
        full = ImageFolder(root, transform=flipping)
        train, val = random_split(full, [0.8, 0.2])
        val.dataset = copy.copy(full)
        val.dataset.transform = plain
        """,
        """
        train = Subset(ImageFolder(root, transform=flipping), some)
        val = Subset(ImageFolder(root), rest)
        val.dataset.transform = plain
        """,
        """
        one, other = Photos(transform=flipping), Photos()
        train, val = Subset(one, some), Subset(other, rest)
        val.dataset.transform = plain
        """,
        """
        full = ImageFolder(root)
        train, val = random_split(full, [0.8, 0.2])
        val.dataset.transform = plain
        """,
        """
        full = ImageFolder(root, transform=plain)
        train, val = random_split(full, [0.8, 0.2])
        """,
        """
        full = Photos()
        train, val = random_split(full, [0.8, 0.2])
        train.dataset.transform = plain
        val.dataset.transform = plain
        """,
    ],
    ids=["copied", "two made inside", "two made before", "nothing was lost", "nothing is set",
         "the same one twice"],
)  # fmt: skip
def test_nothing_is_lost(source: str) -> None:
    assert told(source) == []


def test_line_is_left_out_when_the_dataset_holds_something_else(monkeypatch: Any) -> None:
    """A function that nobody called sets nothing."""
    source = textwrap.dedent("""
        full = Photos(transform=flipping)
        train, val = random_split(full, [0.8, 0.2])
        val.dataset.transform = plain
        """)
    module = SimpleNamespace(plain=object(), __file__="data.py")
    monkeypatch.setattr(shared, "_sources", lambda: [(module, source)])
    inner = SimpleNamespace(transform=module.plain)
    split = SimpleNamespace(dataset=inner)
    assert [one.held for one in shared.overwritten(split, inner)] == [True]
    inner.transform = object()
    assert shared.overwritten(split, inner) == []


def test_dataset_that_is_no_part_of_another_is_not_looked_into(monkeypatch: Any) -> None:
    monkeypatch.setattr(shared, "_sources", lambda: pytest.fail("read the source"))
    inner = SimpleNamespace(transform=None)
    assert shared.overwritten(inner, inner) == []
