"""Arrays that an expression reads from attributes and containers: `self.images[i]`, `self.mean`.

Only what reading cannot change is followed: plain attributes, Python's own containers, arrays at
whole indexes. Properties, indexers and whatever else runs code are left alone.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

from dlcheck.observers.lineage import own_attributes

MOST = 8
NOTHING = object()


def held(node: ast.AST | None, frame: FrameType) -> Iterator[tuple[str, Any, Any]]:
    """Yield the arrays that chains of attributes and indexes in an expression lead to.

    Each as what is written, the array, and what it was taken from by an index (else None).
    """
    queue: list[ast.AST] = [] if node is None else [node]
    found = 0
    for outer in queue:
        if isinstance(outer, ast.Attribute | ast.Subscript):
            root = _root(outer)
            value = _value(outer, frame) if isinstance(root, ast.Name) else NOTHING
            if _may_be_array(value) and found < MOST:
                found += 1
                whole = _value(outer.value, frame) if isinstance(outer, ast.Subscript) else None
                yield ast.unparse(outer), value, whole if _may_be_array(whole) else None
            queue.extend([] if isinstance(root, ast.Name) else [root])
        elif isinstance(outer, ast.Call):
            # Of `self.transform(x)` and `x.float()` only what is called upon may be an array.
            queue.extend([outer.func.value] if isinstance(outer.func, ast.Attribute) else [])
            queue.extend([*outer.args, *(keyword.value for keyword in outer.keywords)])
        elif not isinstance(outer, ast.Lambda):
            queue.extend(ast.iter_child_nodes(outer))


def assigned(node: ast.AST | None, frame: FrameType) -> dict[str, Any]:
    """Return what a statement that has run stored as attributes: `self.images = ...`."""
    targets = [getattr(node, "target", None), *(getattr(node, "targets", None) or ())]
    flat = [
        item
        for target in targets
        for item in (target.elts if isinstance(target, ast.Tuple | ast.List) else [target])
    ]
    named = [item for item in flat if isinstance(item, ast.Attribute)]
    found = {ast.unparse(item): _value(item, frame) for item in named}
    return {path: value for path, value in found.items() if value is not NOTHING}


def without(found: dict[str, Any], stored: dict[str, Any]) -> dict[str, Any]:
    """Leave out what lies under the names of stored attributes: no variable is called so."""
    return {
        path: one
        for path, one in found.items()
        if not any(path == name or path.startswith(f"{name}.") for name in stored)
    }


def _root(node: ast.AST) -> ast.AST:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node


def _may_be_array(value: Any) -> bool:
    kind = type(value)
    return hasattr(kind, "shape") or hasattr(kind, "getbands")


def _value(node: ast.AST, frame: FrameType) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return frame.f_locals.get(node.id, frame.f_globals.get(node.id, NOTHING))
    if isinstance(node, ast.Attribute):
        base = _value(node.value, frame)
        return NOTHING if base is NOTHING else own_attributes(base).get(node.attr, NOTHING)
    if isinstance(node, ast.Subscript):
        base, index = _value(node.value, frame), _value(node.slice, frame)
        return NOTHING if base is NOTHING or index is NOTHING else _item(base, index)
    return NOTHING


def _item(base: Any, index: Any) -> Any:
    """Index a plain container or array; nothing where that may run code or copy."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    whole = type(index) is int or isinstance(index, getattr(numpy, "integer", ()))
    kind = type(base)
    try:
        if kind is dict:
            return base.get(index, NOTHING) if whole or type(index) is str else NOTHING
        if not whole:
            return NOTHING
        if kind in (list, tuple) or kind is getattr(numpy, "ndarray", None):
            return base[index]
        if kind is getattr(torch, "Tensor", None):
            return base.detach()[index]
    except (IndexError, KeyError, TypeError):
        return NOTHING
    return NOTHING
