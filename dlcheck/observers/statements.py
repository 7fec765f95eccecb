"""What a line of source says: its statement, the names it reads, the function it calls.

Read from the source with `ast`; where there is none, the names come from the bytecode.
"""

from __future__ import annotations

import ast
import dis
import linecache
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType
from typing import Any

MOST_NAME = 60
MOST_PARAMETERS = 120
BODIES = ("body", "orelse", "handlers", "finalbody", "cases")
INNER: dict[str, type[ast.Lambda | ast.GeneratorExp]] = {
    "<lambda>": ast.Lambda,
    "<genexpr>": ast.GeneratorExp,
}
ASKED = frozenset({
    "shape", "size", "ndim", "dtype", "device", "height", "width", "nbytes", "strides", "dim",
    "stride", "mode", "new_zeros", "new_ones", "new_full", "new_empty",
})  # fmt: skip
OPERATORS = {
    "Add": "+", "Sub": "-", "Mult": "*", "Div": "/", "FloorDiv": "//", "Mod": "%", "Pow": "**",
    "MatMult": "@", "BitAnd": "&", "BitOr": "|", "BitXor": "^", "LShift": "<<", "RShift": ">>",
    "USub": "-", "UAdd": "+", "Invert": "~", "Not": "not",
}  # fmt: skip


@dataclass(frozen=True)
class Statement:
    """One statement (of a compound one, its header) or the expression of a lambda.

    `names` are what it reads, in order; None when that is unknown: then it may read anything.
    `keys` are the constants that it subscripts with and the attributes that it names.
    """

    first: int
    text: str = ""
    node: ast.AST | None = None
    names: tuple[str, ...] | None = None
    keys: frozenset[str] = frozenset()

    def part(self, path: str) -> Statement:
        """Narrow to the expression that makes `path`, where a literal shows it.

        In `return {"image": f(x), "mask": y}` the part `return.image` is `f(x)`.
        """
        if self.node is None:
            return self
        root, *keys = path.split(".")
        whole = _named(self.node, root)
        node = _inside(whole, keys)
        if node is None or isinstance(self.node, ast.AugAssign):
            return self
        names, found = _reads([node])
        first = self.first if node is value_of(self.node) else int(node.lineno)
        return Statement(first, self.text, node, names, found)


@lru_cache(maxsize=256)
def tree(file: str) -> ast.Module | None:
    """Parse a file of the user's; None where it is no Python."""
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError, RecursionError):
        return None


@lru_cache(maxsize=256)
def _lines(file: str) -> dict[int, ast.stmt]:
    """Map each line to the innermost statement that holds it."""
    parsed = tree(file)
    found: dict[int, ast.stmt] = {}
    for node in ast.walk(parsed) if parsed else ():
        if isinstance(node, ast.stmt):
            last = node.end_lineno or node.lineno
            bodies = [getattr(node, name, None) for name in BODIES]
            inner = [_first_line(body[0]) for body in bodies if body]
            last = max(node.lineno, min([last, *(line - 1 for line in inner)]))
            found.update(dict.fromkeys(range(node.lineno, last + 1), node))
    return found


def _first_line(node: Any) -> int:
    return int(getattr(node, "lineno", 0) or node.pattern.lineno)


def statement_at(code: CodeType, line: int) -> Statement:
    """Find the statement of this code that the line belongs to."""
    file = code.co_filename
    node: ast.AST | None = _lines(file).get(line)
    if code.co_name in INNER:
        node = _expression(file, code, line) or node
    text = linecache.getline(file, getattr(node, "lineno", line)).strip()
    if node is None:
        return Statement(line, text, None, _loaded(code, line))
    names, keys = _reads(_own(node))
    first = int(getattr(node, "lineno", line))
    return Statement(first, text, node, names, keys)


def _expression(file: str, code: CodeType, line: int) -> ast.AST | None:
    parsed = tree(file)
    found: list[ast.AST] = []
    for node in ast.walk(parsed) if parsed else ():
        if not isinstance(node, INNER[code.co_name]):
            continue
        if not node.lineno <= line <= (node.end_lineno or 0):
            continue
        if isinstance(node, ast.Lambda):
            names = tuple(a.arg for a in (*node.args.posonlyargs, *node.args.args))
            if names == code.co_varnames[: code.co_argcount]:
                found.append(node.body)
        else:
            found.append(node.elt)
    return found[-1] if found else None


def _own(node: ast.AST) -> list[ast.AST]:
    """List the parts of a statement that run with it: not the bodies of a compound one."""
    if not isinstance(node, ast.stmt) or isinstance(node, ast.AugAssign):
        return [node]
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return []
    parts: list[ast.AST] = []
    for name, value in ast.iter_fields(node):
        items = value if isinstance(value, list) else [value]
        if name not in BODIES:
            parts.extend(item for item in items if isinstance(item, ast.AST))
    return parts


def _reads(nodes: list[ast.AST]) -> tuple[tuple[str, ...], frozenset[str]]:
    """Collect the names whose values are read, not only asked for their shape, and the keys."""
    names: dict[str, None] = {}
    keys = set()
    queue = list(nodes)
    for node in queue:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            names[node.id] = None
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            names[node.target.id] = None
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            keys.add(str(node.slice.value))
        elif isinstance(node, ast.Attribute):
            keys.add(node.attr)
        if not _asks_only(node):
            queue.extend(ast.iter_child_nodes(node))
    return tuple(names), frozenset(keys)


def _asks_only(node: ast.AST) -> bool:
    """Tell `img.shape`, `len(img)` and `np.zeros_like(img)` from what reads the elements."""
    if isinstance(node, ast.Attribute):
        return node.attr in ASKED and isinstance(node.value, ast.Name | ast.Attribute)
    if isinstance(node, ast.Call):
        name = dotted(node.func).rpartition(".")[2]
        return name in ("len", "type", "isinstance") or name.endswith("_like")
    return False


def _loaded(code: CodeType, line: int) -> tuple[str, ...] | None:
    """Names that the bytecode of a line loads: LOAD_FAST and its many kin, alone or in pairs."""
    names: dict[str, None] = {}
    current, seen = 0, False
    for instruction in dis.get_instructions(code):
        starts = instruction.starts_line
        if starts is not None and starts is not False:
            current = getattr(instruction, "line_number", None) or int(starts)
        if current != line:
            continue
        seen = True
        loads = "LOAD_FAST" in instruction.opname or "LOAD_DEREF" in instruction.opname
        if loads or "LOAD_CLOSURE" in instruction.opname:
            value = instruction.argval
            names.update(dict.fromkeys(value if isinstance(value, tuple) else (value,)))
    return tuple(names) if seen else None


def value_of(node: ast.AST | None) -> ast.AST | None:
    """Return the expression whose value a statement hands on; an expression is its own."""
    if isinstance(node, ast.expr) and not isinstance(node, ast.Yield | ast.Await):
        return node
    if isinstance(node, ast.For | ast.AsyncFor):
        return node.iter
    if isinstance(node, ast.If | ast.While):
        return node.test
    inner = getattr(node, "value", None)
    return value_of(inner) if isinstance(inner, ast.AST) else inner


def _named(node: ast.AST, root: str) -> ast.AST | None:
    """Find the part of `a, b = f(), g()` that makes `root`."""
    value = value_of(node)
    target = node.targets[0] if isinstance(node, ast.Assign) and len(node.targets) == 1 else None
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for name, item in zip(target.elts, value.elts, strict=False):
            if isinstance(name, ast.Name) and name.id == root:
                return item
    return value


def _inside(node: ast.AST | None, keys: list[str]) -> Any:
    """Follow keys into a literal; the deepest expression that still makes the whole rest."""
    for key in keys:
        inner: ast.AST | None = None
        if isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            inner = next((v for k, v in pairs if getattr(k, "value", None) == key), None)
        elif isinstance(node, ast.Tuple | ast.List):
            plain = not any(isinstance(item, ast.Starred) for item in node.elts)
            if plain and key.isdigit() and int(key) < len(node.elts):
                inner = node.elts[int(key)]
        elif isinstance(node, ast.Call):
            inner = next((k.value for k in node.keywords if k.arg == key), None)
            inner = inner if getattr(node.func, "id", "") == "dict" else None
        if inner is None:
            return node
        node = inner
    return node


def calls(node: ast.AST | None) -> Iterator[ast.Call]:
    """List the calls of an expression, outermost first."""
    queue: list[ast.AST] = [] if node is None else list(_own(node))
    for outer in queue:
        if isinstance(outer, ast.Call):
            yield outer
        if not isinstance(outer, ast.Lambda):
            queue.extend(ast.iter_child_nodes(outer))


def dotted(node: ast.AST) -> str:
    """Name what is called: `np.rot90`, `torch.from_numpy().permute`, `self.steps[0]`."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    if isinstance(node, ast.Call):
        return f"{dotted(node.func)}()"
    if isinstance(node, ast.Subscript):
        text = ast.unparse(node)
        return text if len(text) <= MOST_NAME else f"{dotted(node.value)}[]"
    return ""


def operator_of(node: ast.AST | None) -> str:
    """Name what is done where nothing is called: `/=`, `*`, `[..., ::-1]`, `.T`."""
    if isinstance(node, ast.AugAssign):
        return OPERATORS.get(type(node.op).__name__, "") + "="
    value = value_of(node)
    if isinstance(value, ast.BinOp | ast.UnaryOp):
        return OPERATORS.get(type(value.op).__name__, "")
    if isinstance(value, ast.Subscript):
        return _brackets(value)
    if isinstance(value, ast.Attribute):
        return f".{value.attr}"
    target = node.targets[0] if isinstance(node, ast.Assign) else None
    if isinstance(target, ast.Subscript) and not isinstance(target.slice, ast.Constant):
        return f"{_brackets(target)} ="
    return ""


def _brackets(node: ast.Subscript) -> str:
    return ast.unparse(node)[len(ast.unparse(node.value)) :][:MOST_NAME]


def arguments(call: ast.Call) -> str:
    """Render the arguments that are written out: `k=1`, `2, 0, 1`, `cv2.COLOR_BGR2RGB`."""
    parts = [ast.unparse(item) for item in call.args if _written(item)]
    parts += [
        f"{k.arg}={ast.unparse(k.value)}" for k in call.keywords if k.arg and _written(k.value)
    ]
    text = ", ".join(parts)
    return text if len(text) <= MOST_PARAMETERS else text[: MOST_PARAMETERS - 3] + "..."


def _written(node: ast.AST) -> bool:
    if isinstance(node, ast.Tuple | ast.List):
        return all(map(_written, node.elts))
    if isinstance(node, ast.UnaryOp):
        return _written(node.operand)
    if isinstance(node, ast.Attribute):
        return node.attr.isupper() or getattr(node.value, "id", "") in ("np", "numpy", "torch")
    return isinstance(node, ast.Constant)


def raises(node: ast.AST | None) -> bool:
    """Tell whether a statement raises by itself: what it calls is only the exception."""
    return isinstance(node, ast.Raise | ast.Assert)


def chain(node: ast.AST) -> list[str]:
    """Split what is called into its names; an empty one stands for a result or an item."""
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.Attribute):
        return [*chain(node.value), node.attr]
    return [""]
