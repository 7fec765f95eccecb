"""The rows that describe a batch: field, kind, shape, dtype, range."""

from __future__ import annotations

from collections.abc import Iterable

from dlcheck.observation import Field, Split, shape_of

HEAD = ("field", "kind", "shape", "dtype", "range")
MOST_VARIANTS = 3

_CONTAINERS = ("dict", "tuple", "list")
_CONTAINER_STARTS = ("namedtuple:", "dataclass:")


def rows(split: Split) -> list[tuple[str, ...]]:
    """One row a leaf, of the batches, or of the samples when no batch was made."""
    shown = split.batch_fields or split.fields
    parents = {name.rpartition(".")[0] for name in shown if name}
    return [
        (
            name or "(whole)",
            split.kinds.get(name, ""),
            shape(field),
            _joined(field.dtypes or field.types),
            _range(split.fields.get(name), field),
        )
        for name, field in shown.items()
        if not (name in parents and _is_container(field))
    ]


def shape(field: Field) -> str:
    """Join the shapes seen; `3 x 48-72 x 64`, with `?` when not all were kept."""
    known = [shape_of(text) for text in field.shapes]
    by_rank: dict[int, list[tuple[int, ...]]] = {}
    for one in known:
        if one is not None:
            by_rank.setdefault(len(one), []).append(one)
    complete = None not in known
    return _listed(_axes(same, complete=complete) for same in by_rank.values())


def _axes(shapes: list[tuple[int, ...]], *, complete: bool) -> str:
    if not shapes[0]:
        return "scalar"
    axes = []
    for sizes in zip(*shapes, strict=True):
        low, high = min(sizes), max(sizes)
        spread = f"{low}-{high}" if complete else "?"
        axes.append(str(low) if low == high else spread)
    return ("x" if all(axis.isdigit() for axis in axes) else " x ").join(axes)


def _range(samples: Field | None, batches: Field) -> str:
    field = samples if samples and samples.low is not None else batches
    words = ""
    if field.low is not None and field.high is not None:
        low, high = _number(field.low), _number(field.high)
        words = low if low == high else f"{low} to {high}"
    bad = max(field.nonfinite.n, batches.nonfinite.n)
    return f"{words} (NaN or inf in {bad:,})".lstrip() if bad else words


def _number(value: float) -> str:
    return f"{value:.0f}" if abs(value) < 1e15 and value == int(value) else f"{value:.4g}"  # noqa: PLR2004


def _joined(names: Iterable[str]) -> str:
    return _listed(sorted(names))


def _listed(parts: Iterable[str]) -> str:
    every = list(parts)
    more = [] if len(every) <= MOST_VARIANTS else ["..."]
    return " or ".join(every[:MOST_VARIANTS] + more)


def _is_container(field: Field) -> bool:
    return all(name in _CONTAINERS or name.startswith(_CONTAINER_STARTS) for name in field.types)
