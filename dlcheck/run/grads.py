"""Tensors of a dataset that require a gradient, and the line that may have asked for it."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dlcheck.observation import Grad, plain
from dlcheck.run.failures import is_user

DEEPEST = 5
MOST_ITEMS = 32
MOST_SEEN = 400
MOST_FOUND = 4
MOST_FILES = 40
MOST_BYTES = 400_000
ASKS = re.compile(r"requires_grad_\(\s*(?:True)?\s*\)|requires_grad\s*=\s*True|\bParameter\(")


def note_grads(watch: Any, dataset: Any) -> None:
    """Write down which attributes of a dataset hold tensors that require a gradient."""
    with contextlib.suppress(Exception):
        found = list(grads_of(dataset))
        if not found:
            return
        file, line, text = asking_line()
        notes = {
            path: plain(Grad(path, kind, shape, file, line, text)) for path, kind, shape in found
        }
        watch.note(grads=notes)


def grads_of(dataset: Any) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """Find (path, type, shape) of tensors and trained modules that a dataset reaches."""
    torch: Any = sys.modules["torch"]
    queue: list[tuple[str, Any, int]] = [("dataset", dataset, 0)]
    seen: set[int] = set()
    found = 0
    while queue and len(seen) < MOST_SEEN and found < MOST_FOUND:
        path, value, depth = queue.pop(0)
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, torch.Tensor):
            if value.requires_grad:
                found += 1
                yield path, type(value).__name__, tuple(value.shape)
        elif isinstance(value, torch.nn.Module):
            if any(p.requires_grad for p in value.parameters()):
                found += 1
                yield path, type(value).__name__, ()
        elif depth < DEEPEST:
            queue += [(inner, one, depth + 1) for inner, one in _parts(path, value)]


def _parts(path: str, value: Any) -> list[tuple[str, Any]]:
    if type(value) in {list, tuple}:
        return [(f"{path}[{index}]", one) for index, one in enumerate(value[:MOST_ITEMS])]
    if type(value) is dict:
        return [(f"{path}[{key!r:.40}]", one) for key, one in list(value.items())[:MOST_ITEMS]]
    held = _attributes(value)
    return [(f"{path}.{name}", one) for name, one in list(held.items())[:MOST_ITEMS]]


def _attributes(value: Any) -> dict[str, Any]:
    if isinstance(value, type) or (callable(value) and hasattr(value, "__code__")):
        return {}
    try:
        held = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return held if isinstance(held, dict) else {}


def asking_line() -> tuple[str, int, str]:
    """Find the one line of the user's files that asks for a gradient; nothing when there are more.

    Read from the source: the tensor itself does not tell who made it.
    """
    found = []
    files = {str(getattr(module, "__file__", None) or "") for module in list(sys.modules.values())}
    for file in sorted(one for one in files if one.endswith(".py") and is_user(one))[:MOST_FILES]:
        with contextlib.suppress(OSError, ValueError):
            path = Path(file)
            if path.stat().st_size > MOST_BYTES:
                continue
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
            found += [
                (file, number, line.strip())
                for number, line in enumerate(lines, start=1)
                if ASKS.search(line.partition("#")[0])
            ]
    return found[0] if len(found) == 1 else ("", 0, "")
