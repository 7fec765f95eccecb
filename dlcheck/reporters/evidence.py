"""Where and why, in short words."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from dlcheck.findings import Where

MOST_CHARACTERS = 240
MOST_LINES = 12
MOST_ITEMS = 6

_ELSEWHERE = ("file", "line")


def place(where: Where) -> str:
    """Name the parts of the place but the source line: `split train, field image, sample 41`."""
    parts = {
        spec.name: getattr(where, spec.name)
        for spec in dataclasses.fields(where)
        if spec.name not in _ELSEWHERE
    }
    return ", ".join(
        f"{name} {value if value != '' else '(whole)'}"
        for name, value in parts.items()
        if value is not None and (name, value) != ("split", "")
    )


def label(key: object) -> str:
    """Write a key of the evidence as words: `batch_size` is `batch size`."""
    return cut(str(key).replace("_", " "), 60)


def short(value: Any) -> str:
    """Write a value in a line or two; the JSON report has all of it."""
    return cut(_flat(value), MOST_CHARACTERS)


def cut(words: str, most: int) -> str:
    """Leave the end out where it is longer than `most` characters."""
    return words if len(words) <= most else words[: most - 3] + "..."


def ends(lines: list[str]) -> list[str]:
    """Keep both ends: a traceback has its cause last, a dump of stacks has it first."""
    kept = [line for line in lines if line.strip()]
    half = MOST_LINES // 2
    return [*kept[:half], "...", *kept[-half:]] if len(kept) > MOST_LINES else kept


def worth_saying(value: Any) -> bool:
    """Tell whether there is a value at all; 0 and False are."""
    return value is not None and value not in ("", [], (), {})


def _flat(value: Any, depth: int = 0) -> str:
    if isinstance(value, Mapping):
        inner = ", ".join(_items(f"{key}: {_flat(item, depth + 1)}" for key, item in value.items()))
        return f"{{{inner}}}" if depth else inner
    if isinstance(value, list | tuple | set | frozenset):
        inner = ", ".join(_items(_flat(item, depth + 1) for item in value))
        return f"[{inner}]" if depth else inner
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)


def _items(parts: Any) -> list[str]:
    every = list(parts)
    return (
        [*every[:MOST_ITEMS], f"and {len(every) - MOST_ITEMS:,} more"][: MOST_ITEMS + 1]
        if (len(every) > MOST_ITEMS)
        else every
    )
