"""Cycles among garbage: found, grouped, weighed and named."""

from __future__ import annotations

from typing import Any

import pytest

np = pytest.importorskip("numpy")

from dlcheck.observers.cycles import components, pinned  # noqa: E402 - numpy may be absent


class Node:
    def __init__(self) -> None:
        self.other: Any = None
        self.data = np.zeros(1000)


def ring(size: int) -> list[Node]:
    nodes = [Node() for _ in range(size)]
    for before, after in zip(nodes, [*nodes[1:], nodes[0]], strict=True):
        before.other = after
    return nodes


def test_components_are_the_cycles_and_not_what_hangs_on_them() -> None:
    first, second = ring(3), ring(1)
    tail = Node()
    first[0].tail = tail  # type: ignore[attr-defined]
    known = {id(one): one for one in [*first, *second, tail]}
    # Attributes of an object stand in a dict of its own before Python 3.11.
    known |= {id(vars(one)): vars(one) for one in list(known.values())}
    found = sorted(sum(isinstance(known[i], Node) for i in part) for part in components(known))
    assert found == [1, 3]


def test_a_chain_longer_than_the_recursion_limit_is_searched() -> None:
    chain: list[Any] = []
    known = {}
    for _ in range(20_000):
        chain = [chain]
        known[id(chain)] = chain
    assert components(known) == []


def test_cycles_of_a_kind_are_one_row_with_the_bytes_that_they_pin() -> None:
    garbage = [one for _ in range(5) for one in ring(2)]
    garbage += [vars(one) for one in garbage]
    (row,) = pinned(garbage)
    assert (row.cycles, row.attribute, row.type) == (5, "self.other", "Node")
    assert row.bytes == pytest.approx(10 * 8_000, rel=0.2)
    assert row.file == __file__
    # The line that gives it `None` is not what closes the cycle, but all that the class shows.
    assert row.line > 0
