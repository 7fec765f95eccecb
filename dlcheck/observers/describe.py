"""Describe any sample or batch: its containers, and of each leaf type, dtype, shape and range.

Nothing here raises for a strange value, changes it, starts a thread or runs the user's code:
mappings and sequences that are not Python's own stay closed, since reading them may draw random
numbers or load files.
"""

from __future__ import annotations

import collections
import contextlib
import sys
import types
from collections.abc import Callable
from typing import Any, NamedTuple

from dlcheck.observers.ranges import (
    NOTHING,
    array_range,
    finite,
    line_of,
    line_range,
    scalars_range,
    tensor_range,
)
from dlcheck.run.torch_private import plain_tensors

MOST_LEAVES = 512
MOST_ITEMS = 64
DEEPEST = 12
TOP_LEVEL_NUMBERS = 8
SCALARS = frozenset({int, float, bool, str, bytes, type(None), complex})
NUMBERS = frozenset({int, float, bool})
OWN_SEQUENCES: tuple[type[Any], ...] = (list, tuple, collections.deque)
EXACT = 1 << 53
BASES: tuple[type[Any], ...] = (int, float, complex, str, bytes)
TEXTS = {"U": "str", "S": "bytes", "T": "str"}
PLAIN_MODULES = (None, "builtins", "pathlib", "pathlib._local", "datetime", "decimal")


Names = tuple[str, ...]


class Described(NamedTuple):
    """A leaf or a container of a sample. `low` and `high` are finite or None."""

    path: str
    type: str
    dtype: str | None = None
    shape: tuple[int, ...] | None = None
    low: float | None = None
    high: float | None = None
    nonfinite: int = 0
    grad: bool = False

    @property
    def signature(self) -> tuple[str, str, str | None, tuple[int, ...] | None]:
        """All but the values: equal for samples that stack."""
        return self[:4]


def describe(
    value: Any, *, values: bool = True, names: Names = (), look: Look | None = None
) -> list[Described]:
    """List containers and leaves of a sample in order; with values, the range of each leaf.

    `names` are the user's names for the items of a tuple sample of that length. `look` is shown
    each array and tensor with what was found of it, and its memory as one line (see `line_of`)
    where that was read.
    """
    out: list[Described] = []
    if type(value) is not tuple or not _flat(out, value, names, look, values=values):
        _Walk(out, values=values, names=names, look=look).visit(value, "", ())
    return out


Look = Callable[[Described, Any, Any], None]


_ARRAYS: tuple[Any, Any, Any] | None = None


def _arrays() -> tuple[Any, Any, Any]:
    """Return Tensor, ndarray and numpy's scalars; empty where the package is not imported yet."""
    global _ARRAYS  # noqa: PLW0603 - looked up for each sample
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    found = (
        getattr(torch, "Tensor", ()), getattr(numpy, "ndarray", ()), getattr(numpy, "generic", ()),
    )  # fmt: skip
    if all(found):
        _ARRAYS = found
    return found


_PLACES = tuple(map(str, range(TOP_LEVEL_NUMBERS)))
_HEADS = tuple(Described("", "tuple", None, (n,)) for n in range(TOP_LEVEL_NUMBERS + 1))


def _flat(
    out: list[Described], items: tuple[Any, ...], names: Names, look: Look | None, *, values: bool
) -> bool:
    """Describe the commonest sample, a tuple of a few tensors and numbers, with no detour.

    Returns False, with nothing done, for any other; what it gives is what `_Walk` gives.
    """
    count = len(items)
    tensor_type = (_ARRAYS or _arrays())[0]
    if not 0 < count <= TOP_LEVEL_NUMBERS:
        return False
    for item in items:
        if type(item) is not tensor_type and type(item) not in SCALARS:
            return False
    torch = sys.modules.get("torch")
    out.append(_HEADS[count])
    for path, item in zip(names if len(names) == count else _PLACES, items, strict=False):
        kind = type(item)
        if kind in SCALARS:
            out.append(scalar(item, kind, path))
            continue
        leaf, line = _tensor(torch, item, "Tensor", path, values=values)
        out.append(leaf)
        if look is not None:
            look(leaf, item, line)
    return True


class _Walk:
    __slots__ = ("array", "generic", "look", "names", "out", "tensor", "values")

    def __init__(
        self, out: list[Described], *, values: bool, names: Names, look: Look | None
    ) -> None:
        self.out = out
        self.look = look
        self.names = names
        self.values = values
        self.tensor, self.array, self.generic = _ARRAYS or _arrays()

    def visit(self, value: Any, path: str, above: tuple[int, ...]) -> None:
        kind = type(value)
        if kind in SCALARS:
            self.out.append(scalar(value, kind, path))
        elif self.tensor and issubclass(kind, self.tensor):
            self.keep(*tensor(value, path, values=self.values), value)
        elif self.array and issubclass(kind, self.array):
            self.keep(array(value, path, values=self.values), None, value)
        elif len(self.out) >= MOST_LEAVES or len(above) >= DEEPEST or id(value) in above:
            self.out.append(Described(path, "cycle" if id(value) in above else "..."))
        else:
            self.inside(value, kind, path, (*above, id(value)))

    def keep(self, leaf: Described, line: Any, value: Any) -> None:
        self.out.append(leaf)
        if self.look is not None:
            self.look(leaf, value, line)

    def inside(self, value: Any, kind: type[Any], path: str, above: tuple[int, ...]) -> None:
        if kind is tuple or kind is list:
            self.sequence(value, kind, path, above)
            return
        prefix = f"{path}." if path else ""
        items = _own_items(value, kind)
        if items is not None:
            self.out.append(Described(path, "dict"))
            self.children([(f"{prefix}{_key(k)}", v) for k, v in items], above)
        elif issubclass(kind, OWN_SEQUENCES):
            base = next(base for base in OWN_SEQUENCES if issubclass(kind, base))
            self.sequence(list(base.__iter__(value)), kind, path, above)
        elif isinstance(_static(kind, "__dataclass_fields__"), dict):
            self.out.append(Described(path, f"dataclass:{kind.__name__}"))
            self.children([(prefix + n, v) for n, v in _own_fields(value, kind)], above)
        else:
            self.out.append(self.other(value, kind, path))

    def sequence(self, items: Any, kind: type[Any], path: str, above: tuple[int, ...]) -> None:
        is_tuple = kind is tuple or issubclass(kind, tuple)
        names = _static(kind, "_fields") if is_tuple and kind is not tuple else None
        if items and type(items[0]) in SCALARS and not names:
            kinds = set(map(type, items))
            if kinds <= SCALARS and (path or len(items) > TOP_LEVEL_NUMBERS):
                outer = "tuple" if is_tuple else "list"
                self.out.append(numbers(items, kinds, path, outer, values=self.values))
                return
        if names:
            self.out.append(Described(path, f"namedtuple:{kind.__name__}"))
        else:
            outer = "tuple" if is_tuple else "list"
            self.out.append(Described(path, outer, None, (len(items),)))
        given = self.names if not path and len(self.names) == len(items) else ()
        keys = names or given or range(len(items) if is_tuple else min(len(items), MOST_ITEMS))
        prefix = f"{path}." if path else ""
        self.children([(f"{prefix}{k}", v) for k, v in zip(keys, items, strict=False)], above)

    def children(self, pairs: list[tuple[str, Any]], above: tuple[int, ...]) -> None:
        out = self.out
        for count, (path, value) in enumerate(pairs):
            if len(out) >= MOST_LEAVES:
                out.append(Described("...", "more", shape=(len(pairs) - count,)))
                return
            self.visit(value, path, above)

    def other(self, value: Any, kind: type[Any], path: str) -> Described:
        if self.generic and issubclass(kind, self.generic) and not issubclass(kind, str):
            return numpy_scalar(value, path)
        for base in BASES:
            if issubclass(kind, base):
                return scalar(_plain(value, base), base, path)
        image = getattr(sys.modules.get("PIL.Image"), "Image", ())
        if image and issubclass(kind, image):
            with contextlib.suppress(Exception):  # a lazy image may be closed by now
                return Described(path, "PIL.Image", str(value.mode), tuple(value.size)[::-1])
            return Described(path, "PIL.Image")
        return Described(path, class_name(kind))


def _static(kind: type[Any], name: str) -> Any:
    """Read a class attribute past metaclasses and descriptors, which are user code."""
    return next((vars(base)[name] for base in kind.__mro__ if name in vars(base)), None)


def _own_items(value: Any, kind: type[Any]) -> list[tuple[Any, Any]] | None:
    """Return what a dict or UserDict itself holds, whatever its class makes of it."""
    if issubclass(kind, collections.OrderedDict):
        return list(collections.OrderedDict.items(value))
    if issubclass(kind, dict):
        return list(dict.items(value))
    if collections.UserDict in kind.__mro__:
        data = _own_attributes(value).get("data")
        return None if data is None or data is value else _own_items(data, type(data))
    return None


def _own_attributes(value: Any) -> dict[str, Any]:
    try:
        inside = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return inside if type(inside) is dict else {}


def _own_fields(value: Any, kind: type[Any]) -> list[tuple[str, Any]]:
    """Return the fields of a dataclass from its dict or its slots."""
    inside = _own_attributes(value)
    found = []
    for name in _static(kind, "__dataclass_fields__"):
        slot = _static(kind, name)
        if name in inside:
            found.append((name, inside[name]))
        elif isinstance(slot, types.MemberDescriptorType):
            with contextlib.suppress(AttributeError):
                found.append((name, slot.__get__(value, kind)))
    return found


def _plain(value: Any, base: type[Any]) -> Any:
    """Take an int, float, str, ... out of its subclass (enumerations among them)."""
    read = {int: "__int__", float: "__float__", complex: "__complex__"}.get(base)
    return getattr(base, read)(value) if read else value


def class_name(kind: type[Any]) -> str:
    """Name a class as users write it: `PosixPath`, `shapely.geometry.Point`."""
    abc = sys.modules["collections.abc"]
    name = str(type.__getattribute__(kind, "__qualname__"))
    with contextlib.suppress(Exception):  # __subclasshook__ is user code
        if issubclass(kind, abc.Mapping):
            return f"mapping:{name}"
        if issubclass(kind, abc.Sequence) and not issubclass(kind, bytearray | memoryview):
            return f"sequence:{name}"
    module = type.__getattribute__(kind, "__module__")
    known = isinstance(module, str) and module not in PLAIN_MODULES
    return f"{module}.{name}" if known else name


def _key(key: Any) -> str:
    kind = type(key)
    if kind is str:
        return str(key)
    if issubclass(kind, str):
        return str.__str__(key)
    if kind in SCALARS:
        return repr(key) if kind is bytes else str(key)
    if kind is tuple and set(map(type, key)) <= SCALARS:
        return repr(key)
    return class_name(kind)


def scalar(value: Any, kind: type[Any], path: str) -> Described:
    """Describe a plain Python scalar."""
    if kind is int or kind is float:
        number = value + 0.0 if -EXACT < value < EXACT else finite(value)
        odd = 1 if number is None and kind is float else 0
        return Described(path, kind.__name__, None, None, number, number, odd)
    return Described(path, kind.__name__)


def numpy_scalar(value: Any, path: str) -> Described:
    """Describe np.float32(3.0) and the like: type `numpy`, the dtype, shape ()."""
    try:
        kind, dtype = value.dtype.kind, _array_dtype(value.dtype)
    except Exception:  # noqa: BLE001 - subclasses of numpy's scalars may be made
        return Described(path, "numpy")
    number = finite(value) if kind in "iuf" else None
    odd = int(number is None and kind == "f")
    return Described(path, "numpy", dtype, (), number, number, odd)


def numbers(
    items: list[Any], kinds: set[type], path: str, outer: str, *, values: bool
) -> Described:
    """Describe a sequence of plain scalars as one leaf: `list[int]` of shape (n,)."""
    inner = kinds - {int, bool} if float in kinds and kinds <= NUMBERS else kinds
    name = f"{outer}[{'|'.join(sorted(k.__name__ for k in inner))}]"
    low, high, odd = scalars_range(items) if values and kinds <= NUMBERS else NOTHING
    return Described(path, name, None, (len(items),), low, high, odd)


_DTYPES: dict[Any, str] = {}


def tensor(value: Any, path: str, *, values: bool) -> tuple[Described, Any]:
    """Describe a tensor of any layout, device and subclass; returns the line it was read as too."""
    torch = sys.modules["torch"]
    if type(value) is torch.Tensor:
        return _tensor(torch, value, "Tensor", path, values=values)
    with plain_tensors():
        return _tensor(torch, value, type(value).__name__, path, values=values)


def _tensor(torch: Any, value: Any, name: str, path: str, *, values: bool) -> tuple[Described, Any]:
    try:
        kind = value.dtype
        layout, nested, grad = value.layout, value.is_nested, value.requires_grad
        shape = None if nested else tuple(value.shape)
    except Exception:  # noqa: BLE001 - a subclass's property may raise
        return _by_its_base(torch, value, path, name), None
    dtype = _DTYPES.get(kind) or _DTYPES.setdefault(kind, str(kind).removeprefix("torch."))
    strided = layout is torch.strided
    if not strided:
        name = f"{name}[{str(layout).removeprefix('torch.')}]"
    if nested:
        return Described(path, f"{name}[nested]", dtype, None, grad=grad), None
    (low, high, odd), line = NOTHING, None
    if values and strided and (name == "Tensor" or not _dispatches(torch, type(value))):
        try:
            line = line_of(value, dtype)
            if line is not None:
                low, high, odd = line_range(line, dtype)
            elif value.is_cpu:
                low, high, odd = tensor_range(torch, value, dtype)
        except Exception:  # noqa: BLE001, S110 - no memory of its own, or none that is read
            pass
    return Described(path, name, dtype, shape, low, high, odd, grad), line


def _dispatches(torch: Any, kind: type[Any]) -> bool:
    """Tell subclasses that answer each operation themselves: that would be user code."""
    if kind is torch.Tensor:
        return False
    return _static(kind, "__torch_dispatch__") is not _static(torch.Tensor, "__torch_dispatch__")


def _by_its_base(torch: Any, value: Any, path: str, name: str) -> Described:
    with contextlib.suppress(Exception):
        base = torch.Tensor
        dtype = str(base.dtype.__get__(value)).removeprefix("torch.")
        shape = tuple(base.shape.__get__(value))
        return Described(path, name, dtype, shape, grad=bool(base.requires_grad.__get__(value)))
    return Described(path, name)


def array(value: Any, path: str, *, values: bool) -> Described:
    """Describe an array of any dtype; only real numbers have a range."""
    name = type(value).__name__
    numpy = sys.modules["numpy"]
    try:
        plain = value if type(value) is numpy.ndarray else numpy.asarray(value)
        dtype, shape = _array_dtype(plain.dtype), tuple(plain.shape)
    except Exception:  # noqa: BLE001 - a dtype of the user's may refuse anything
        return Described(path, name)
    low, high, odd = NOTHING
    if values:
        with contextlib.suppress(Exception):
            low, high, odd = array_range(plain)
    return Described(path, name, dtype, shape, low, high, odd)


def _array_dtype(dtype: Any) -> str:
    """Name a dtype; without the width of text, which differs from sample to sample."""
    if dtype.names is not None:
        return "structured"
    return TEXTS.get(dtype.kind) or str(dtype.name)


def batch_length(leaves: list[Described]) -> int:
    """Guess how many samples a ready-made batch holds: the length that its leaves share.

    One leaf alone counts when it has at least two axes and is no single image (C,H,W).
    """
    listed = ("list[", "tuple[")
    sizes = [
        leaf.shape[0]
        for leaf in leaves
        if leaf.shape and (leaf.dtype or leaf.type.startswith(listed))
    ]
    if len(sizes) > 1:
        top, votes = collections.Counter(sizes).most_common(1)[0]
        return top if votes > 1 else 1
    lone = next((leaf for leaf in leaves if leaf.shape and leaf.dtype), None)
    if lone is not None and lone.shape and len(lone.shape) in (2, 4, 5):
        return lone.shape[0]
    return 1
