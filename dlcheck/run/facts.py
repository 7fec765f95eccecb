"""What a loader and its dataset are, read without iterating them."""

from __future__ import annotations

import ast
import contextlib
import inspect
import linecache
from typing import Any

from dlcheck.run import torch_private

DEEPEST = 6
MOST_ATTRIBUTES = 200


def loader_facts(loader: Any, made_at: tuple[str, int] | None, notes: list[str]) -> dict[str, Any]:
    """Return a Loader in JSON; what cannot be read stays at its default."""
    dataset = quiet(getattr, loader, "dataset", None)
    facts: dict[str, Any] = {"cls": name_of(type(loader)), "length": length_of(loader)}
    if made_at:
        facts |= {"file": made_at[0], "line": made_at[1]}
    if dataset is not None:
        facts |= dataset_facts(dataset)
    if torch_private.is_loader(loader):
        facts |= _torch_facts(loader, dataset)
    return {key: value for key, value in facts.items() if value is not None} | {"notes": notes}


def _torch_facts(loader: Any, dataset: Any) -> dict[str, Any]:
    collate = quiet(getattr, loader, "collate_fn", None)
    context = quiet(getattr, loader, "multiprocessing_context", None)
    workers = quiet(getattr, loader, "num_workers", 0) or 0
    return {
        "kind": "iterable" if torch_private.is_iterable_dataset(dataset) else "map",
        "batch_size": quiet(getattr, loader, "batch_size", None),
        "drop_last": bool(quiet(getattr, loader, "drop_last", None)),
        "sampler": class_of(quiet(getattr, loader, "sampler", None)),
        "batch_sampler": class_of(quiet(getattr, loader, "batch_sampler", None)),
        "collate": name_of(collate),
        "default_collate": collate is torch_private.default_collate(),
        "num_workers": workers,
        "context": start_method(context) if workers else None,
    }


def start_method(context: Any) -> str | None:
    """Name the start method that the loader's workers get."""
    if context is None:
        import multiprocessing

        return multiprocessing.get_start_method()
    method = quiet(context.get_start_method)
    return method if isinstance(method, str) else None


def dataset_facts(dataset: Any) -> dict[str, Any]:
    """Return the parts of a Loader that speak of its dataset."""
    inner = innermost(dataset)
    file, line = class_place(type(inner))
    return {
        "dataset": name_of(type(inner)),
        "dataset_file": file,
        "dataset_line": line,
        "dataset_length": length_of(dataset),
        "empty_attributes": empty_attributes(inner),
    }


def innermost(dataset: Any) -> Any:
    """Follow `.dataset` of Subset and other wrappers down to the dataset that reads."""
    for _ in range(DEEPEST):
        inside = quiet(vars, dataset)
        inner = inside.get("dataset") if isinstance(inside, dict) else None
        if inner is None or isinstance(inner, list | tuple | dict | str):
            return dataset
        dataset = inner
    return dataset


def empty_attributes(dataset: Any) -> list[tuple[str, int | None]]:
    """List containers of the dataset that hold nothing, with the line that fills them."""
    inside = quiet(vars, dataset)
    if not isinstance(inside, dict):
        return []
    empty = [
        name
        for name, value in list(inside.items())[:MOST_ATTRIBUTES]
        if isinstance(value, list | tuple | dict | set) and not value and not name.startswith("__")
    ]
    lines = assignment_lines(type(dataset)) if empty else {}
    return [(name, lines.get(name)) for name in empty]


def assignment_lines(cls: type) -> dict[str, int]:
    """Map attribute names to the line of the class's source that assigns `self.name`."""
    found: dict[str, int] = {}
    with contextlib.suppress(Exception):
        source, first = inspect.getsourcelines(cls)
        tree = ast.parse(inspect.cleandoc("\n" + "".join(source)))
        for node in ast.walk(tree):
            targets = node.targets if isinstance(node, ast.Assign) else []
            if isinstance(node, ast.AnnAssign):
                targets = [node.target]
            for target in targets:
                if isinstance(target, ast.Attribute):
                    found.setdefault(target.attr, first + node.lineno - 1)  # type: ignore[attr-defined]
    return found


def class_place(cls: type) -> tuple[str | None, int | None]:
    """Return the file and first line of a class, where it has source."""
    with contextlib.suppress(Exception):
        file = inspect.getsourcefile(cls)
        if file and linecache.getline(file, 1) is not None:
            return file, inspect.findsource(cls)[1] + 1
    return None, None


def length_of(value: Any) -> int | None:
    """Return len(value) where it has one; it is user code and may raise."""
    length = quiet(len, value)
    return length if isinstance(length, int) else None


def name_of(value: Any) -> str:
    """Name a class or function as `module.qualname`; objects by their class."""
    name = getattr(value, "__qualname__", None)
    if not isinstance(name, str):
        if value is not None and hasattr(value, "func"):
            return f"partial({name_of(value.func)})"
        return name_of(type(value)) if value is not None else ""
    module = getattr(value, "__module__", None)
    return name if module in (None, "builtins") else f"{module}.{name}"


def class_of(value: Any) -> str | None:
    """Return the bare class name of an object; None for None."""
    return None if value is None else type(value).__name__


def quiet(function: Any, *args: Any) -> Any:
    """Call what may be user code; None when it raises."""
    try:
        return function(*args)
    except Exception:  # noqa: BLE001 - a property or __len__ of the user's may raise anything
        return None
