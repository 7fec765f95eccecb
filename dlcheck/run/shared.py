"""Splits that share one dataset object, and the lines that set its transform for one of them.

`random_split` and `Subset` keep the dataset that they were given: `val.dataset.transform = ...`
changes the training split as well. The objects tell that they are shared; who set what, and
when, stands in the source of the function that made them.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import itertools
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dlcheck.observation import Overwrite, plain
from dlcheck.run.facts import innermost
from dlcheck.run.failures import is_user

PARTS = ("Subset", "random_split")
MOST_FILES = 200
MOST_BYTES = 400_000
MOST_FOUND = 4
ABSENT = object()
Functions = ast.FunctionDef | ast.AsyncFunctionDef


def note_shared(watch: Any, targets: Mapping[str, Any]) -> None:
    """Write for each split which others read the same dataset object, and what was overwritten."""
    objects = {name: innermost(t.dataset) for name, t in targets.items() if t.dataset is not None}
    for name, inner in objects.items():
        others = [o for o, other in objects.items() if o != name and other is inner]
        found = overwritten(targets[name].dataset, inner)
        if others or found:
            watch.split = name
            watch.note(shared_with=others, overwritten=[plain(one) for one in found])


def overwritten(dataset: Any, inner: Any) -> list[Overwrite]:
    """Find attributes of a split's shared dataset that were set for one split, then for another."""
    if dataset is inner:
        return []
    found: list[Overwrite] = []
    with contextlib.suppress(Exception):
        for module, source in _sources():
            for one, value in lines_in(source, module.__file__ or ""):
                held = _held(inner, one.attribute, value, module)
                if held is not None:
                    found.append(dataclasses.replace(one, held=held))
    return found[:MOST_FOUND]


def _sources() -> Iterator[tuple[Any, str]]:
    """Yield the user's modules that part a dataset, with their source."""
    mine = [
        module
        for module in list(sys.modules.values())
        if isinstance(file := getattr(module, "__file__", None), str) and is_user(file)
    ]
    for module in mine[:MOST_FILES]:
        path = Path(str(module.__file__))
        with contextlib.suppress(OSError, UnicodeDecodeError):
            if path.suffix == ".py" and path.stat().st_size <= MOST_BYTES:
                source = path.read_text(encoding="utf-8")
                if any(part in source for part in PARTS):
                    yield module, source


def _held(inner: Any, attribute: str, value: ast.expr, module: Any) -> bool | None:
    """Tell whether the dataset holds what the line set last: yes, cannot be told, or None: no."""
    try:
        now = _own_attribute(inner, attribute)
    except AttributeError:
        return None
    wanted = _global(value, module)
    if wanted is not ABSENT:
        return True if now is wanted else None
    if isinstance(value, ast.Call):
        name = ast.unparse(value.func).rpartition(".")[2]
        if type(now).__name__ == name:
            return True
        return None if name[:1].isupper() else _of(inner, module)
    return _of(inner, module)


def _of(inner: Any, module: Any) -> bool | None:
    """Tell that it may well be this module that made the dataset, as its class is known there."""
    known = getattr(module, type(inner).__name__, None) is type(inner)
    package = type(inner).__module__.partition(".")[0]
    return False if known or hasattr(module, package) else None


def _own_attribute(value: Any, name: str) -> Any:
    """Return an attribute of an object's own without running a property of the user's."""
    inside = vars(value)
    if name not in inside:
        raise AttributeError(name)
    return inside[name]


def _global(value: ast.expr, module: Any) -> Any:
    if isinstance(value, ast.Name):
        return vars(module).get(value.id, ABSENT)
    if isinstance(value, ast.Constant):
        return value.value
    return ABSENT


@dataclass
class _Set:
    """A line that sets an attribute of a dataset: for which split, or for none in particular."""

    owner: str
    attribute: str
    value: ast.expr
    line: int
    text: str


@dataclass
class _Base:
    """A dataset object in one function: the splits that were made of it, and what was set."""

    splits: list[str] = field(default_factory=list)
    sets: list[_Set] = field(default_factory=list)


def lines_in(source: str, file: str) -> Iterator[tuple[Overwrite, ast.expr]]:
    """Find, function by function, attributes of shared datasets that were overwritten."""
    tree = ast.parse(source)
    lines = source.splitlines()
    scopes: list[Functions | ast.Module] = [tree]
    scopes += [node for node in ast.walk(tree) if isinstance(node, Functions)]
    for scope in scopes:
        name = scope.name if isinstance(scope, Functions) else "<module>"
        for base in _Scope(lines).read(scope):
            clash = _clash(base)
            if clash is None:
                continue
            first, last, victim = clash
            yield (
                Overwrite(
                    attribute=last.attribute, by=last.owner, victim=victim, function=name,
                    file=file, line=last.line, text=last.text,
                    first_line=first.line, first_text=first.text,
                ),
                last.value,
            )  # fmt: skip


def _clash(base: _Base) -> tuple[_Set, _Set, str] | None:
    """Return the set that was lost, the one that stays, and the split that lost it."""
    for attribute in dict.fromkeys(one.attribute for one in base.sets):
        sets = [one for one in base.sets if one.attribute == attribute]
        last = sets[-1]
        value = ast.dump(last.value)
        for first in sets[-2::-1]:
            if first.owner == last.owner or ast.dump(first.value) == value or _nothing(first):
                continue
            others = [split for split in base.splits if split != last.owner]
            victim = first.owner or next(iter(others), "")
            if last.owner and victim:
                return first, last, victim
    return None


def _nothing(one: _Set) -> bool:
    return isinstance(one.value, ast.Constant) and one.value.value is None


class _Scope:
    """Reads the statements of one function in order."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self.bases: dict[str, _Base] = {}
        self.of: dict[str, str] = {}
        self.fresh = itertools.count()

    def read(self, scope: Functions | ast.Module) -> list[_Base]:
        """Return the datasets of which two splits or more were made."""
        for node in _statements(scope):
            if isinstance(node, ast.Assign) and len(node.targets) == 1:
                self.assign(node.targets[0], node.value, node)
            elif isinstance(node, ast.AnnAssign) and node.value is not None:
                self.assign(node.target, node.value, node)
        return [base for base in self.bases.values() if len(base.splits) > 1]

    def assign(self, target: ast.expr, value: ast.expr, node: ast.stmt) -> None:
        """Follow one assignment."""
        if isinstance(target, ast.Tuple):
            names = [ast.unparse(item) for item in target.elts]
            if isinstance(value, ast.Tuple) and len(value.elts) == len(names):
                for item, one in zip(target.elts, value.elts, strict=True):
                    self.assign(item, one, node)
            elif (made_of := _made_of(value, "random_split")) is not None:
                for name in names:
                    self.split(name, made_of)
            return
        name = ast.unparse(target)
        made_of = _made_of(value, "Subset")
        if made_of is not None:
            self.split(name, made_of)
        elif isinstance(target, ast.Attribute) and not self.replaced(target, value):
            self.set(target, value, node)
            self.construct(name, value, node)
        elif not isinstance(target, ast.Attribute):
            self.construct(name, value, node)

    def split(self, name: str, base: str) -> None:
        """Note that a split was made of a dataset; a call in its place makes one of its own."""
        self.of[name] = base
        known = self.bases.setdefault(base, _Base())
        if name != "_" and name not in known.splits:
            known.splits.append(name)

    def replaced(self, target: ast.Attribute, value: ast.expr) -> bool:
        """Follow `val.dataset = copy(val.dataset)`: then the split has an object of its own."""
        owner = ast.unparse(target.value)
        if target.attr != "dataset" or owner not in self.of:
            return False
        old = self.bases.get(self.of[owner])
        if old is not None and owner in old.splits:
            old.splits.remove(owner)
        self.split(owner, ast.unparse(value) if isinstance(value, ast.Name) else self.own())
        return True

    def own(self) -> str:
        return f"own {next(self.fresh)}"

    def set(self, target: ast.Attribute, value: ast.expr, node: ast.stmt) -> None:
        """Note `val.dataset.transform = ...` and `full.transform = ...`."""
        owner, held = "", target.value
        text = ast.unparse(held)
        if isinstance(held, ast.Attribute) and held.attr == "dataset":
            owner = ast.unparse(held.value)
            base = self.bases.get(self.of.get(owner, ""))
        else:
            base = self.bases.get(text)
            owner = "" if base is None or len(base.splits) == 0 else text
        if base is not None:
            line = self.lines[node.lineno - 1].strip()
            base.sets.append(_Set(owner, target.attr, value, node.lineno, line))

    def construct(self, name: str, value: ast.expr, node: ast.stmt) -> None:
        """Note what a dataset is given when it is made; a name that is bound anew starts anew."""
        self.of.pop(name, None)
        self.bases[name] = _Base()
        line = self.lines[node.lineno - 1].strip()
        for keyword in value.keywords if isinstance(value, ast.Call) else ():
            if keyword.arg is not None:
                self.bases[name].sets.append(
                    _Set("", keyword.arg, keyword.value, keyword.value.lineno, line)
                )


def _made_of(value: ast.expr, function: str) -> str | None:
    """Return the dataset that a `Subset(...)` or `random_split(...)` call parts."""
    if not isinstance(value, ast.Call):
        return None
    given = [*value.args, *(k.value for k in value.keywords if k.arg == "dataset")]
    if ast.unparse(value.func).rpartition(".")[2] != function or not given:
        return None
    base = given[0]
    return ast.unparse(base) if isinstance(base, ast.Name | ast.Attribute) else f"call {id(value)}"


def _statements(scope: Functions | ast.Module) -> Iterator[ast.stmt]:
    """Yield the statements of a scope in order, those of inner functions left out."""
    queue: list[ast.stmt] = list(scope.body)
    while queue:
        node = queue.pop(0)
        if isinstance(node, Functions | ast.ClassDef):
            continue
        yield node
        inner = [getattr(node, name, []) for name in ("body", "orelse", "handlers", "finalbody")]
        for block in reversed(inner):
            for one in reversed(block):
                body = one.body if isinstance(one, ast.ExceptHandler) else [one]
                queue[:0] = body
