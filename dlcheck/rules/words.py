"""How rules put names, counts and samples into a sentence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dlcheck.observation import SampleId


def bare(name: str | None) -> str:
    """Cut `cats.data.Cats` down to `Cats`, as it stands in the user's source."""
    return (name or "").rpartition(".")[2]


def base(file: str | None) -> str:
    """Return the last part of a path of any system."""
    return (file or "").replace("\\", "/").rpartition("/")[2]


def named(field: str) -> str:
    return f"`{field}`" if field else "the sample"


def joined(items: Iterable[object]) -> str:
    return ", ".join(str(item) for item in items)


def some(count: int, ids: Sequence[SampleId]) -> str:
    """Render `1 sample: 12`, or `5 samples, e.g. 3`."""
    text = f"{count} sample" if count == 1 else f"{count} samples"
    if not ids:
        return text
    return f"{text}: {ids[0]}" if count == 1 else f"{text}, e.g. {ids[0]}"


def number(value: float | None) -> str:
    """Render a figure in four digits, whole ones without a point."""
    return "unknown" if value is None else f"{value:.4g}"
