"""Imports run one way: what may import what, read from the source, and what a start loads."""

from __future__ import annotations

import ast
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "dlcheck"

# Each layer with the layers that it may import. A module that stands in no layer fails the test.
MAY_IMPORT = {
    "observation": set(),
    "findings": {"observation"},
    "growth": {"observation"},
    "rules": {"findings", "growth", "observation"},
    "run": {"observation", "observers"},
    "observers": {"observation", "run"},
    "config": set(),
    "explain": {"config", "findings", "rules"},
    "reporters": {"findings", "growth", "observation"},
    "session": {"config", "findings", "growth", "observation", "rules", "run"},
    "cli": {"config", "explain", "findings", "observation", "reporters", "rules", "session"},
    "live": {"cli", "config", "findings", "observation", "reporters", "run"},
    "pytest_plugin": {"findings", "live", "package", "reporters"},
    "package": {"cli", "config", "findings", "live", "observation", "session"},
}
# Modules of a layer that do not bear its name.
LAYER_OF = {
    "__init__": "package",
    "__main__": "package",
    "amend": "config",
    "baseline": "cli",
    "contract": "config",
    "demo": "cli",
    "discover": "config",
    "document": "config",
    "footprint": "growth",
    "freeze": "cli",
    "gate": "cli",
    "guardian": "session",
    "inference": "cli",
    "interpolation": "config",
    "judging": "cli",
    "options": "cli",
    "output": "cli",
    "progress": "session",
    "ranks": "session",
    "redraws": "session",
    "saved": "cli",
    "schema": "config",
    "streams": "cli",
    "suspects": "session",
    "watchdog": "session",
}

STANDARD = set(sys.stdlib_module_names)
# The parent's third-party names, and the only layer or module that may import each.
PARENT_ONLY = {
    "click": {"cli"},
    "jinja2": {"reporters"},
    "markupsafe": {"reporters"},
    "omegaconf": {"config"},
    "psutil": {"session"},
    "pytest": {"pytest_plugin"},
    "rich": {"reporters.terminal", "progress"},
    "yaml": {"config"},
}
CHILD_MAY = STANDARD | {"dlcheck", "torch", "numpy"}
# What a module of the child may use besides, where the user's environment has it.
WHERE_THERE = {
    "observers.counters": {"psutil"},
    "observers.handles": {"psutil"},
    "run.canvas": {"PIL", "cv2"},
}
# Pictures are drawn with what the user's environment has of these; the module says which.
DRAWS_WITH = {"PIL", "cv2"}
MOST_LINES = 450
MOST_FUNCTION_LINES = 45


def modules() -> dict[str, ast.Module]:
    """Every module of the package but the examples, by dotted name without `dlcheck.`."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        if parts[0] in {"examples", "sample_configs"}:
            continue
        name = ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)
        found[name] = ast.parse(path.read_text(), str(path))
    return found


MODULES = modules()


def layer(module: str) -> str:
    first = module.partition(".")[0]
    return LAYER_OF.get(first, first)


def imported(tree: ast.AST) -> Iterator[str]:
    """Absolute dotted names; `from a import b` gives a.b where that is a module of ours."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole.removeprefix("dlcheck.") in MODULES else node.module
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            yield from (a.value for a in node.args[:1] if isinstance(a, ast.Constant))


def at_import(tree: ast.Module) -> Iterator[str]:
    """What importing the module imports by itself: no function's body, no block for typing."""
    later = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    queue: list[ast.AST] = list(tree.body)
    while queue:
        node = queue.pop()
        typing_only = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        if isinstance(node, later) or typing_only:
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from imported(node)
        queue.extend(ast.iter_child_nodes(node))


def ours(names: Iterator[str]) -> set[str]:
    """The modules of dlcheck among the names, without `dlcheck.`."""
    short = {name.removeprefix("dlcheck.") for name in names if name.startswith("dlcheck.")}
    return {name for name in short if name in MODULES}


EDGES = {module: ours(imported(tree)) for module, tree in MODULES.items()}


def reachable(*starts: str) -> set[str]:
    """The modules that begin with one of the names, and all that they import, however late."""
    queue = [m for m in MODULES if any(m == s or m.startswith(f"{s}.") for s in starts)]
    seen: set[str] = set()
    while queue:
        module = queue.pop()
        if module not in seen:
            seen.add(module)
            queue.extend(EDGES[module])
    return seen


CHILD_SIDE = sorted(reachable("run", "observers"))


@pytest.mark.parametrize("module", MODULES)
def test_module_imports_only_what_its_layer_may(module):
    here = layer(module)
    assert here in MAY_IMPORT, f"{module} stands in no layer"
    wrong = {m for m in EDGES[module] if layer(m) not in {here, *MAY_IMPORT[here]}}
    assert not wrong


def test_no_import_cycle():
    """Not even between imports at the top and late ones, within a layer or across."""
    done: set[str] = set()

    def visit(module: str, above: tuple[str, ...]) -> None:
        assert module not in above, " -> ".join((*above[above.index(module) :], module))
        if module not in done:
            for other in sorted(EDGES[module] - {module}):
                visit(other, (*above, module))
            done.add(module)

    for module in MODULES:
        visit(module, ())


@pytest.mark.parametrize("module", CHILD_SIDE)
def test_child_side_needs_the_standard_library_only(module):
    """The user's interpreter may hold nothing else; torch and numpy only once it is running."""
    tree = MODULES[module]
    allowed = CHILD_MAY | WHERE_THERE.get(module, set())
    foreign = {name.partition(".")[0] for name in imported(tree)} - allowed
    assert not foreign
    at_once = {name.partition(".")[0] for name in at_import(tree)} - STANDARD - {"dlcheck"}
    assert not at_once


def test_rules_need_the_standard_library_only():
    names = {n.partition(".")[0] for m in reachable("rules") for n in imported(MODULES[m])}
    assert not names - STANDARD - {"dlcheck"}


@pytest.mark.parametrize("module", [m for m in MODULES if m not in CHILD_SIDE])
def test_parent_never_imports_torch_and_each_dependency_has_its_place(module):
    names = {name.partition(".")[0] for name in imported(MODULES[module])}
    foreign = names - STANDARD - {"dlcheck"}
    places = {name: PARENT_ONLY.get(name, set()) for name in foreign}
    assert not {name for name, allowed in places.items() if not {module, layer(module)} & allowed}


def loaded_by(statement: str) -> set[str]:
    """Top-level names in sys.modules after the statement, in a fresh interpreter."""
    code = f"{statement}\nimport sys\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return set(done.stdout.split())


def test_parent_starts_without_torch_and_numpy():
    parent = (
        "cli",
        "config",
        "explain",
        "rules",
        "session",
        "reporters.json",
        "reporters.terminal",
    )
    loaded = loaded_by("import " + ", ".join(f"dlcheck.{name}" for name in parent))
    assert not loaded & {"torch", "numpy", "torchvision", "cv2"}


@pytest.mark.parametrize(
    ("statement", "too_much"),
    [
        ("import dlcheck", {"click", "rich", "omegaconf", "yaml", "psutil", "asyncio"}),
        ("import dlcheck.cli", {"rich", "omegaconf", "yaml", "psutil", "jinja2", "asyncio"}),
    ],
)
def test_start_loads_what_it_needs_only(statement, too_much):
    assert not loaded_by(statement) & too_much


@pytest.mark.parametrize("module", CHILD_SIDE)
def test_child_side_module_imports_in_a_bare_interpreter(module):
    """Without site-packages, as in a training environment that has nothing of ours."""
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import dlcheck.{module}"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: p.name)
def test_file_is_short_enough_to_read(path):
    assert len(path.read_text().splitlines()) <= MOST_LINES


def test_functions_are_short():
    """At the ninetieth percentile, docstrings included."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    lengths = [
        node.end_lineno - node.lineno + 1
        for tree in MODULES.values()
        for node in ast.walk(tree)
        if isinstance(node, kinds) and node.end_lineno
    ]
    assert statistics.quantiles(lengths, n=10)[-1] <= MOST_FUNCTION_LINES
