"""A batch made again from its leaves: what goes to the model, and what to the loss."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dlcheck.observers.describe import Described, batch_length
from dlcheck.run.refusal import first_input

TARGETS = ("labels", "label", "targets", "target", "y", "masks", "mask", "classes", "class")
NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
PLACED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.POSITIONAL_ONLY)


class Parts(NamedTuple):
    """Leaves for the model's arguments, by place and by name, and those left for the loss."""

    placed: tuple[Described, ...]
    named: dict[str, Described]
    targets: tuple[Described, ...]


def parts_of(leaves: Sequence[Described], forward: Any) -> Parts | None:
    """Share the arrays of a batch out, as a training loop would; None when it holds none."""
    arrays = [leaf for leaf in leaves if leaf.shape and leaf.dtype]
    first = first_input(list(leaves))
    if not arrays or (first is None and len(arrays) > 1 and not _is_mapping(leaves)):
        first = arrays[0] if arrays else None
    if not arrays:
        return None
    if _is_mapping(leaves):
        named = _by_name(arrays, forward)
        if named:
            rest = [leaf for leaf in arrays if leaf.path not in named]
            return Parts((), named, tuple(_targets(rest)))
    main = first or arrays[0]
    others = [leaf for leaf in arrays if leaf is not main]
    more = max(len(required(forward)) - 1, 0)
    return Parts((main, *others[:more]), {}, tuple(_targets(others[more:])))


def resized(leaf: Described, seen: int, wanted: int) -> tuple[int, ...]:
    """Shape of a leaf in a batch of `wanted` samples, where the one seen had `seen`."""
    shape = tuple(leaf.shape or ())
    if not seen or not shape or shape[0] % seen:
        return shape
    return (shape[0] // seen * wanted, *shape[1:])


def length(leaves: Sequence[Described]) -> int:
    """How many samples the batch held."""
    return batch_length(list(leaves))


def required(function: Any) -> list[str]:
    """Name the parameters that a call by place must fill."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    return [p.name for p in parameters if p.default is p.empty and p.kind in PLACED]


def _is_mapping(leaves: Sequence[Described]) -> bool:
    return any(leaf.path == "" and leaf.type in {"dict", "BatchEncoding"} for leaf in leaves)


def _by_name(arrays: Sequence[Described], forward: Any) -> dict[str, Described]:
    """Match keys of the batch with parameters of forward, where all that must be filled are."""
    try:
        parameters: Mapping[str, inspect.Parameter] = inspect.signature(forward).parameters
    except (TypeError, ValueError):
        return {}
    known = {name for name, one in parameters.items() if one.kind in NAMED}
    named = {leaf.path: leaf for leaf in arrays if leaf.path in known}
    return named if named and set(required(forward)) <= set(named) else {}


def _targets(leaves: Sequence[Described]) -> list[Described]:
    """Put what is called a target first."""

    def rank(leaf: Described) -> int:
        name = leaf.path.rpartition(".")[2].lower()
        return TARGETS.index(name) if name in TARGETS else len(TARGETS)

    return sorted(leaves, key=rank)
