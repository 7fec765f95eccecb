"""Where and why, in short words."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from dlcheck.findings import Where
from dlcheck.observation import shape_text

MOST_CHARACTERS = 160
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
        if depth and "count" in value:
            return _counted(value)
        inner = ", ".join(_items([_pair(key, item, depth + 1) for key, item in value.items()]))
        return f"{{{inner}}}" if depth else inner
    if isinstance(value, list | tuple | set | frozenset):
        inner = ", ".join(_items([_flat(item, depth + 1) for item in value]))
        return f"[{inner}]" if depth else inner
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _pair(key: object, value: Any, depth: int) -> str:
    if isinstance(value, Mapping) and "count" in value:
        return f"{key} ({value['count']})"
    return f"{key}: {_flat(value, depth)}"


def _counted(value: Mapping[Any, Any]) -> str:
    """Write `{shape: [3, 48, 64], count: 2, ...}` as `3x48x64 (2)`."""
    thing = next((item for key, item in value.items() if key != "count"), "")
    if isinstance(thing, list | tuple) and all(isinstance(size, int) for size in thing):
        thing = shape_text(thing)
    return f"{_flat(thing, 1)} ({value['count']})"


def _items(parts: list[str]) -> list[str]:
    left = len(parts) - MOST_ITEMS
    return [*parts[:MOST_ITEMS], f"and {left:,} more"] if left > 0 else parts
