"""What a folder holds that could be checked, read from the source without running it."""

from __future__ import annotations

import ast
import os
import shlex
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MOST_ENTRIES = 20_000
MOST_FILES = 400
MOST_BYTES = 500_000
SHOWN = 10
SKIPPED = {
    "__pycache__", "build", "dist", "env", "node_modules", "site-packages", "venv", "wandb",
    "mlruns", "outputs", "lightning_logs",
}  # fmt: skip
DATASETS = {"Dataset", "IterableDataset", "DatasetFolder", "ImageFolder", "VisionDataset"}
MODULES = {"LightningDataModule", "DataModule"}
LOADERS = ("DataLoader", "DataLoaders", "WebLoader")
EXAMPLE = """\
write a dlcheck.yaml such as
  dataset: {_target_: cats.data.Cats, root: data}
  transform:
    - {_target_: torchvision.transforms.v2.ToImage}
    - {_target_: torchvision.transforms.v2.Resize, size: [224, 224]}
  loader: {batch_size: 32, shuffle: true, num_workers: 4}
`dlcheck demo` shows a run."""


@dataclass(frozen=True)
class Found:
    """Something to check. `name` is empty when it cannot be run by name; `needs` are arguments."""

    path: Path
    line: int
    kind: str
    name: str = ""
    needs: tuple[str, ...] = ()


RANK = {"function": 0, "loader": 1, "datamodule": 2, "Dataset": 3, "builder": 4, "script": 5}


def advise(folder: Path, here: Path) -> tuple[str, str]:
    """Return what stands in `folder` for the end of an error message, and a hint."""
    found = [one for path in _sources(folder) for one in scan(path)]
    if not found:
        return "", EXAMPLE
    found.sort(key=lambda one: (_aside(one.path, folder), RANK[one.kind], one.path, one.line))
    hint = "" if any(_runs(one) for one in found) else EXAMPLE
    return f". Found:\n{listing(found, here)}", hint


def listing(found: list[Found], here: Path) -> str:
    """Render one line for each, with the command that checks it."""
    lines = [_line(one, here) for one in found[:SHOWN]]
    if len(found) > SHOWN:
        lines.append(f"  ... and {len(found) - SHOWN} more")
    return "\n".join(lines)


def _runs(one: Found) -> bool:
    return bool(one.name) and not one.needs and one.kind != "builder"


def _line(one: Found, here: Path) -> str:
    relative = os.path.relpath(one.path, here)
    shown = str(one.path) if relative.startswith("..") else relative
    command = f"  dlcheck shapes {shlex.quote(f'{shown}:{one.name}')}"
    needs = ", ".join(one.needs)
    if one.kind == "script":
        return f"  {shown}:{one.line} makes a DataLoader when run: move it into a function"
    if one.kind == "builder":
        return f"  {shown}:{one.line} {one.name} makes a DataLoader: let a function return it"
    what = f"the {one.kind} on line {one.line}"
    if needs:
        return f"{command}   # {what} needs {needs}: give them in a dlcheck.yaml"
    return f"{command}   # {what}"


def _aside(path: Path, folder: Path) -> tuple[bool, int]:
    """Sort key: tests last, and what lies deep after what lies near."""
    parts = path.relative_to(folder).parts
    tests = any(part in {"test", "tests"} or part.startswith("test_") for part in parts)
    return tests, len(parts)


def _sources(folder: Path) -> Iterator[Path]:
    """Walk nearest first; a data folder of a million files must not hold up an error message."""
    waiting = deque([folder])
    entries = files = 0
    while waiting:
        try:
            batch = []
            with os.scandir(waiting.popleft()) as scanned:
                for entry in scanned:
                    batch.append(entry)
                    entries += 1
                    if entries >= MOST_ENTRIES:
                        break
        except OSError:
            continue
        for entry in sorted(batch, key=lambda e: e.name):
            if entry.is_dir(follow_symlinks=False):
                if not _skipped(entry) and entries < MOST_ENTRIES:
                    waiting.append(Path(entry.path))
            elif entry.name.endswith(".py") and files < MOST_FILES and entry.is_file():
                files += 1
                yield Path(entry.path)


def _skipped(entry: os.DirEntry[str]) -> bool:
    if entry.name.startswith(".") or entry.name in SKIPPED or entry.name.endswith(".egg-info"):
        return True
    return Path(entry.path, "pyvenv.cfg").exists() or Path(entry.path, "conda-meta").exists()


def scan(path: Path) -> list[Found]:
    """Find datasets and loaders in one file; none in a file that does not parse."""
    try:
        if path.stat().st_size > MOST_BYTES:
            return []
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    found: list[Found] = []
    bases = _bases(tree)
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            found.extend(_of_class(path, node, bases))
        elif isinstance(node, ast.FunctionDef):
            found.extend(_of_function(path, node))
        else:
            found.extend(_of_statement(path, node))
    return found


def _last(node: ast.expr | None) -> str:
    """Return the last part of a dotted name: `data.Dataset[int]` gives Dataset."""
    if isinstance(node, ast.Subscript):
        return _last(node.value)
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _bases(tree: ast.Module) -> dict[str, list[str]]:
    return {
        node.name: [_last(base) for base in node.bases]
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    }


def _of_class(path: Path, node: ast.ClassDef, bases: dict[str, list[str]]) -> Iterator[Found]:
    ancestors: set[str] = set()
    waiting = list(bases[node.name])
    while waiting:
        base = waiting.pop()
        if base not in ancestors:
            ancestors.add(base)
            waiting.extend(bases.get(base, ()))
    if ancestors & MODULES:
        kind = "datamodule"
    elif ancestors & DATASETS or any(base.endswith("Dataset") for base in ancestors):
        kind = "Dataset"
    else:
        return
    yield Found(path, node.lineno, kind, node.name, _needs(_constructor(node)))


def _constructor(node: ast.ClassDef) -> ast.FunctionDef | None:
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and item.name == "__init__":
            return item
    return None


def _needs(function: ast.FunctionDef | None, *, method: bool = True) -> tuple[str, ...]:
    """Name the arguments without a default."""
    if function is None:
        return ()
    given = function.args
    positional = [*given.posonlyargs, *given.args]
    required = positional[: len(positional) - len(given.defaults)][1 if method else 0 :]
    pairs = zip(given.kwonlyargs, given.kw_defaults, strict=True)
    keyword = [argument for argument, default in pairs if default is None]
    return tuple(argument.arg for argument in [*required, *keyword])


def _own(node: ast.AST) -> Iterator[ast.AST]:
    """Walk a body without the functions and classes defined in it."""
    waiting = deque(ast.iter_child_nodes(node))
    while waiting:
        inner = waiting.popleft()
        if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            continue
        yield inner
        waiting.extend(ast.iter_child_nodes(inner))


def _makes_loader(node: ast.AST | None) -> bool:
    inner = [] if node is None else [node, *_own(node)]
    return any(isinstance(one, ast.Call) and _last(one.func).endswith(LOADERS) for one in inner)


def _of_function(path: Path, node: ast.FunctionDef) -> Iterator[Found]:
    inner = list(_own(node))
    held = {
        name
        for one in inner
        if isinstance(one, ast.Assign | ast.AnnAssign) and _makes_loader(one.value)
        for name in _names(one)
    }
    returned = [one.value for one in inner if isinstance(one, ast.Return) and one.value]
    returns = any(_makes_loader(value) or _mentions(value, held) for value in returned)
    if returns or _last(node.returns).endswith(LOADERS):
        yield Found(path, node.lineno, "function", node.name, _needs(node, method=False))
    elif _makes_loader(node):
        yield Found(path, node.lineno, "builder", node.name)


def _names(node: ast.Assign | ast.AnnAssign) -> list[str]:
    """Name what is assigned to: variables, or the one that is indexed or unpacked into."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [
        inner.id for target in targets for inner in ast.walk(target) if isinstance(inner, ast.Name)
    ]


def _mentions(node: ast.expr, names: set[str]) -> bool:
    return any(isinstance(one, ast.Name) and one.id in names for one in ast.walk(node))


def _of_statement(path: Path, node: ast.stmt) -> Iterator[Found]:
    if not _makes_loader(node):
        return
    if isinstance(node, ast.Assign | ast.AnnAssign):
        for name in _names(node):
            yield Found(path, node.lineno, "loader", name)
    else:
        yield Found(path, node.lineno, "script")
