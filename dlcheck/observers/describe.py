"""Describe any sample or batch: its containers, and of each leaf type, dtype, shape and range.

Nothing here raises for a strange value, changes it, starts a thread or runs the user's code:
mappings and sequences that are not Python's own stay closed, since reading them may draw random
numbers or load files.
"""

from __future__ import annotations

import collections
import ctypes
import math
import sys
from typing import Any, NamedTuple

MOST_LEAVES = 512
MOST_ITEMS = 64
DEEPEST = 12
TOP_LEVEL_NUMBERS = 8
MOST_ELEMENTS = 1 << 28
ONE_THREAD_GRAIN = 32_768
SCALARS = frozenset({int, float, bool, str, bytes, type(None), complex})
NUMBERS = frozenset({int, float, bool})
OWN_MAPPINGS = (dict, collections.UserDict)
OWN_SEQUENCES = (list, tuple, collections.deque)
NUMPY_NUMBERS = "iuf"
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


def describe(value: Any, *, values: bool = True, names: Names = ()) -> list[Described]:
    """List containers and leaves of a sample in order; with values, the range of each leaf.

    `names` are the user's names for the items of a tuple sample of that length.
    """
    out: list[Described] = []
    _Walk(out, values=values, names=names).visit(value, "", ())
    return out


class _Walk:
    def __init__(self, out: list[Described], *, values: bool, names: Names) -> None:
        self.out = out
        self.names = names
        self.values = values
        torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
        self.tensor = getattr(torch, "Tensor", ())
        self.array = getattr(numpy, "ndarray", ())
        self.generic = getattr(numpy, "generic", ())

    def visit(self, value: Any, path: str, above: tuple[int, ...]) -> None:
        kind = type(value)
        if kind in SCALARS:
            self.out.append(scalar(value, path))
        elif self.tensor and issubclass(kind, self.tensor):
            self.out.append(tensor(value, path, values=self.values))
        elif self.array and issubclass(kind, self.array):
            self.out.append(array(value, path, values=self.values))
        elif len(self.out) >= MOST_LEAVES or len(above) >= DEEPEST or id(value) in above:
            self.out.append(Described(path, "cycle" if id(value) in above else "..."))
        else:
            self.inside(value, path, (*above, id(value)))

    def inside(self, value: Any, path: str, above: tuple[int, ...]) -> None:
        prefix = f"{path}." if path else ""
        if isinstance(value, OWN_MAPPINGS):
            self.out.append(Described(path, "dict"))
            self.children([(f"{prefix}{_key(k)}", v) for k, v in value.items()], above)
        elif isinstance(value, OWN_SEQUENCES):
            self.sequence(value, path, prefix, above)
        elif hasattr(type(value), "__dataclass_fields__"):
            names = type(value).__dataclass_fields__
            self.out.append(Described(path, f"dataclass:{type(value).__name__}"))
            inner = vars(value) if hasattr(value, "__dict__") else {}
            self.children([(prefix + n, inner[n]) for n in names if n in inner], above)
        else:
            self.out.append(self.other(value, path))

    def sequence(self, value: Any, path: str, prefix: str, above: tuple[int, ...]) -> None:
        names = getattr(type(value), "_fields", None)
        kinds = set(map(type, value))
        flat = bool(kinds) and kinds <= SCALARS and not names
        if flat and (path or len(value) > TOP_LEVEL_NUMBERS):
            self.out.append(numbers(value, kinds, path, values=self.values))
            return
        if names:
            self.out.append(Described(path, f"namedtuple:{type(value).__name__}"))
        elif isinstance(value, tuple):
            self.out.append(Described(path, "tuple", shape=(len(value),)))
        else:
            self.out.append(Described(path, "list", shape=(len(value),)))
        given = self.names if not path and len(self.names) == len(value) else ()
        keys = names or given or range(len(value))
        pairs = [(f"{prefix}{k}", v) for k, v in zip(keys, value, strict=False)]
        self.children(pairs if names or isinstance(value, tuple) else pairs[:MOST_ITEMS], above)

    def children(self, pairs: list[tuple[str, Any]], above: tuple[int, ...]) -> None:
        for count, (path, value) in enumerate(pairs):
            if len(self.out) >= MOST_LEAVES:
                rest = len(pairs) - count
                self.out.append(Described("...", "more", shape=(rest,)))
                return
            self.visit(value, path, above)

    def other(self, value: Any, path: str) -> Described:
        if self.generic and isinstance(value, self.generic):
            return numpy_scalar(value, path)
        image = getattr(sys.modules.get("PIL.Image"), "Image", ())
        if image and isinstance(value, image):
            size = tuple(getattr(value, "size", ()))[::-1]
            return Described(path, "PIL.Image", str(getattr(value, "mode", "")), size)
        return Described(path, class_name(value))


def class_name(value: Any) -> str:
    """Name the class of a value as users write it: `PosixPath`, `shapely.geometry.Point`."""
    kind = type(value)
    abc = sys.modules["collections.abc"]
    name = str(kind.__qualname__)
    if isinstance(value, abc.Mapping):
        return f"mapping:{name}"
    if isinstance(value, abc.Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        return f"sequence:{name}"
    module = getattr(kind, "__module__", None)
    return name if module in PLAIN_MODULES else f"{module}.{name}"


def _key(key: Any) -> str:
    return key if type(key) is str else str(key) if type(key) in SCALARS else class_name(key)


def _finite(value: Any) -> float | None:
    try:
        number = float(value)
    except (OverflowError, TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def scalar(value: Any, path: str) -> Described:
    """Describe a plain Python scalar."""
    kind = type(value)
    if kind is int or kind is float:
        number = _finite(value)
        odd = int(number is None and kind is float)
        return Described(path, kind.__name__, None, None, number, number, odd)
    return Described(path, kind.__name__)


def numpy_scalar(value: Any, path: str) -> Described:
    """Describe np.float32(3.0) and the like: type `float32`, no shape."""
    number = _finite(value) if value.dtype.kind in NUMPY_NUMBERS else None
    odd = int(number is None and value.dtype.kind == "f")
    return Described(path, "numpy", value.dtype.name, (), number, number, odd)


def numbers(value: Any, kinds: set[type], path: str, *, values: bool) -> Described:
    """Describe a sequence of plain scalars as one leaf: `list[int]` of shape (n,)."""
    inner = kinds - {int, bool} if float in kinds and kinds <= NUMBERS else kinds
    outer = "tuple" if isinstance(value, tuple) else "list"
    name = f"{outer}[{'|'.join(sorted(k.__name__ for k in inner))}]"
    low = high = None
    if values and kinds <= NUMBERS:
        low, high = _finite(min(value)), _finite(max(value))
    return Described(path, name, None, (len(value),), low, high)


_DTYPES: dict[Any, str] = {}


def tensor(value: Any, path: str, *, values: bool) -> Described:
    """Describe a tensor of any layout, device and subclass."""
    torch = sys.modules["torch"]
    name = type(value).__name__
    try:
        with torch._C.DisableTorchFunctionSubclass():  # noqa: SLF001
            dtype = _DTYPES.get(value.dtype) or _DTYPES.setdefault(
                value.dtype, str(value.dtype).removeprefix("torch.")
            )
            grad = value.requires_grad
            if value.layout != torch.strided:
                layout = str(value.layout).removeprefix("torch.")
                name = f"{name}[{layout}]"
                if value.is_nested:
                    return Described(path, f"{name}[nested]", dtype, None, grad=grad)
                return Described(path, name, dtype, tuple(value.shape), grad=grad)
            if value.is_nested:
                return Described(path, f"{name}[nested]", dtype, None, grad=grad)
            shape = tuple(value.shape)
            low = high = None
            odd = 0
            if values and value.device.type == "cpu" and 0 < value.numel() <= MOST_ELEMENTS:
                low, high, odd = _tensor_range(torch, value)
    except Exception:  # noqa: BLE001 - a tensor subclass may refuse anything
        return Described(path, name)
    return Described(path, name, dtype, shape, low, high, odd, grad)


def _tensor_range(torch: Any, value: Any) -> tuple[float | None, float | None, int]:
    if value.dtype.is_complex or value.dtype == torch.bool or value.is_quantized:
        return None, None, 0
    flat = _flat(torch, value)
    low, high = _extremes(torch, flat)
    if math.isfinite(low) and math.isfinite(high):
        return low, high, 0
    finite = torch.isfinite(flat)
    odd = flat.numel() - int(finite.sum())
    kept = flat[finite]
    if not kept.numel():
        return None, None, odd
    return float(kept.min()), float(kept.max()), odd


def _flat(torch: Any, value: Any) -> Any:
    """View the elements as one line where they lie densely in any order of axes.

    Reading in memory order is several times quicker than in the order of a permuted view.
    """
    plain = value.detach()
    if plain.is_contiguous():
        return plain.view(-1)
    size = plain.numel()
    ordered = sorted(
        ((st, sz) for st, sz in zip(plain.stride(), plain.shape, strict=True) if sz > 1)
    )
    step = 1
    for stride, length in ordered:
        if stride != step:
            return plain
        step *= length
    return torch.as_strided(plain, (size,), (1,), plain.storage_offset())


_READABLE = {"torch.float32": "f4", "torch.float64": "f8", "torch.uint8": "u1", "torch.int64": "i8"}


def _extremes(torch: Any, flat: Any) -> tuple[float, float]:
    """Minimum and maximum on one thread.

    A reduction that torch spreads over threads in the main process starts a pool there, and
    workers forked later can deadlock in it; numpy starts none. `Tensor.numpy()` would mark the
    user's storage as not resizable, so numpy is given the address.
    """
    if flat.numel() <= ONE_THREAD_GRAIN or torch.get_num_threads() == 1:
        low, high = torch.aminmax(flat)
        return float(low), float(high)
    numpy = sys.modules.get("numpy")
    code = _READABLE.get(str(flat.dtype))
    if numpy and code and flat.is_contiguous():
        size = flat.numel() * int(code[1])
        memory = (ctypes.c_char * size).from_address(flat.data_ptr())
        view = numpy.frombuffer(memory, dtype=code)
        return float(view.min()), float(view.max())
    pairs = [torch.aminmax(part) for part in flat.reshape(-1).split(ONE_THREAD_GRAIN)]
    lows, highs = [float(p[0]) for p in pairs], [float(p[1]) for p in pairs]
    if any(map(math.isnan, lows)):
        return math.nan, math.nan
    return min(lows), max(highs)


def array(value: Any, path: str, *, values: bool) -> Described:
    """Describe an array of any dtype; only real numbers have a range."""
    name = type(value).__name__
    try:
        dtype = value.dtype.name if value.dtype.names is None else "structured"
        shape = tuple(value.shape)
        if not values or value.dtype.kind not in NUMPY_NUMBERS:
            return Described(path, name, dtype, shape)
        if not 0 < value.size <= MOST_ELEMENTS:
            return Described(path, name, dtype, shape)
        low, high, odd = _array_range(value)
    except Exception:  # noqa: BLE001 - an array subclass may refuse anything
        return Described(path, name)
    return Described(path, name, dtype, shape, low, high, odd)


def _array_range(value: Any) -> tuple[float | None, float | None, int]:
    numpy = sys.modules["numpy"]
    plain = numpy.asarray(value)
    low, high = float(plain.min()), float(plain.max())
    if math.isfinite(low) and math.isfinite(high):
        return low, high, 0
    finite = numpy.isfinite(plain)
    odd = int(plain.size - finite.sum())
    kept = plain[finite]
    if not kept.size:
        return None, None, odd
    return float(kept.min()), float(kept.max()), odd


def batch_length(leaves: list[Described]) -> int:
    """Guess how many samples a ready-made batch holds: the length that its leaves share.

    One leaf alone counts when it has at least two axes and is no single image (C,H,W).
    """
    sizes = [leaf.shape[0] for leaf in leaves if leaf.shape and leaf.dtype]
    if len(sizes) > 1:
        top, votes = collections.Counter(sizes).most_common(1)[0]
        return top if votes > 1 else 1
    lone = next((leaf for leaf in leaves if leaf.shape and leaf.dtype), None)
    if lone is not None and lone.shape and len(lone.shape) in (2, 4, 5):
        return lone.shape[0]
    return 1
