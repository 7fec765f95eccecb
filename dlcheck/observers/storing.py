"""Lines of the user's source that store into a name, or read it."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator

from dlcheck.observers.statements import tree

ADDS = {
    "append", "appendleft", "extend", "extendleft", "add", "update", "insert", "setdefault", "put",
    "put_nowait", "push", "write", "register", "subscribe",
}  # fmt: skip
MOST_LINES = 20_000
Functions = ast.FunctionDef | ast.AsyncFunctionDef


def _tree(file: str) -> ast.Module | None:
    return tree(file) if len(linecache.getlines(file)) <= MOST_LINES else None


def stores(file: str, name: str) -> list[tuple[int, str]]:
    """List (line, function) where something is put into `name`, those in `__init__` last."""
    parsed = _tree(file)
    found = [] if parsed is None else list(_in(parsed, "", name))
    return sorted(set(found), key=lambda one: (one[1].endswith("__init__") or not one[1], one[0]))


def _in(node: ast.AST, function: str, name: str) -> Iterator[tuple[int, str]]:
    for child in ast.iter_child_nodes(node):
        inner = function
        if isinstance(child, Functions | ast.ClassDef):
            inner = f"{function}.{child.name}".lstrip(".")
        elif _stores(child, name):
            yield child.lineno, function  # type: ignore[attr-defined]
        yield from _in(child, inner, name)


def _stores(node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr in ADDS and _leads_to(node.func.value, name)
    if isinstance(node, ast.AugAssign):
        return _leads_to(node.target, name)
    if isinstance(node, ast.Assign):
        for target in _flat_targets(node.targets):
            if isinstance(target, ast.Subscript) and _leads_to(target.value, name):
                return True
            if _is(target, name):
                return any(_is(one, name) for one in ast.walk(node.value))
    return False


def _flat_targets(targets: list[ast.expr]) -> Iterator[ast.expr]:
    """Yield what is assigned to, `out, self.hidden = ...` taken apart."""
    for target in targets:
        if isinstance(target, ast.Tuple | ast.List):
            yield from _flat_targets(target.elts)
        else:
            yield target


def _leads_to(node: ast.AST, name: str) -> bool:
    while isinstance(node, ast.Subscript):
        node = node.value
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return _leads_to(node.func.value, name)
    return _is(node, name)


def _is(node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr == name
    return isinstance(node, ast.Name) and node.id == name


def assigned(file: str, name: str, first: int = 0, last: int = 1 << 30) -> list[tuple[int, bool]]:
    """List lines that assign to `name` or `x.name`, and whether it is given `self`."""
    parsed = _tree(file)
    found = []
    for node in ast.walk(parsed) if parsed is not None else ():
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.NamedExpr):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if first <= node.lineno <= last and any(_is(t, name) for t in targets):
                value = node.value
                found.append((node.lineno, isinstance(value, ast.Name) and value.id == "self"))
        elif isinstance(node, ast.ExceptHandler) and first <= node.lineno <= last:
            found += [(node.lineno, False)] if node.name == name else []
    return sorted(found)


def reads(file: str, name: str) -> list[int]:
    """List the lines that read `x.name` or the global `name`."""
    parsed = _tree(file)
    return sorted(
        {
            node.lineno
            for node in (ast.walk(parsed) if parsed is not None else ())
            if isinstance(node, ast.Attribute | ast.Name)
            and isinstance(node.ctx, ast.Load)
            and _is(node, name)
        }
    )


def around(file: str, line: int) -> str:
    """Return the source of the class, else of the function, that a line stands in."""
    parsed = _tree(file)
    holds = [
        node
        for node in (ast.walk(parsed) if parsed is not None else ())
        if isinstance(node, Functions | ast.ClassDef)
        and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    if not holds:
        return ""
    classes = [node for node in holds if isinstance(node, ast.ClassDef)]
    chosen = (classes or holds)[0]
    return "".join(linecache.getlines(file)[chosen.lineno - 1 : chosen.end_lineno])
