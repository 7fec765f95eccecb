"""State of one array, tensor or picture: type, dtype, shape, layout, range, scramble.

Nothing here raises for a strange value, changes it, draws random numbers or starts a thread.
"""

from __future__ import annotations

import ctypes
import math
import sys
from typing import Any

from dlcheck.observation import State
from dlcheck.observers.axes import layout_evidence, layout_of, thinned
from dlcheck.observers.scramble import scramble_of

__all__ = ["layout_evidence", "layout_of", "numbers_of", "scramble_of", "state_of"]

MOST_BYTES = 64 << 20
NUMBERS = "biuf"
# What numpy calls the torch dtypes that it can read; bfloat16 is read as its upper half of float32.
READABLE = {
    "bool": "?",
    "uint8": "u1",
    "int8": "i1",
    "uint16": "u2",
    "int16": "i2",
    "uint32": "u4",
    "int32": "i4",
    "uint64": "u8",
    "int64": "i8",
    "float16": "f2",
    "bfloat16": "u2",
    "float32": "f4",
    "float64": "f8",
}
PIL_DTYPES = {"1": "bool", "I": "int32", "F": "float32"}
PIL_BANDS = {"RGB": 3, "RGBA": 4, "RGBX": 4, "RGBa": 4, "CMYK": 4, "YCbCr": 3, "LAB": 3, "HSV": 3}
PIL_PAIRS = ("LA", "La", "PA")


def state_of(value: Any) -> State | None:
    """Describe an array of any kind; None for every other value."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    kind = type(value)
    try:
        if issubclass(kind, getattr(torch, "Tensor", ())):
            return _tensor(torch, numpy, value)
        if issubclass(kind, getattr(numpy, "ndarray", ())):
            return _array(numpy, value)
        if issubclass(kind, getattr(sys.modules.get("PIL.Image"), "Image", ())):
            return _picture(numpy, value)
    except Exception:  # noqa: BLE001 - a subclass may refuse anything
        return State(kind.__name__)
    return None


def numbers_of(value: Any) -> Any:
    """View the numbers of an array of any kind; None where there are none to read."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    kind = type(value)
    found = None
    try:
        if issubclass(kind, getattr(torch, "Tensor", ())):
            with torch._C.DisableTorchFunctionSubclass():  # type: ignore[union-attr]  # noqa: SLF001
                found = _memory(numpy, value.detach(), str(value.dtype).removeprefix("torch."))
        elif not getattr(value, "tile", None):
            found = numpy.asarray(value)  # type: ignore[union-attr]
    except Exception:  # noqa: BLE001 - a subclass may refuse anything
        return None
    return found if found is not None and found.size and found.dtype.kind in NUMBERS else None


def _tensor(torch: Any, numpy: Any, value: Any) -> State:
    name = type(value).__name__
    with torch._C.DisableTorchFunctionSubclass():  # noqa: SLF001 - no user code while looking
        dtype = str(value.dtype).removeprefix("torch.")
        if value.is_nested:
            return State(f"{name}[nested]", dtype)
        shape = tuple(value.shape)
        if value.layout != torch.strided:
            return State(f"{name}[{str(value.layout).removeprefix('torch.')}]", dtype, shape)
        plain = State(name, dtype, shape)
        try:
            read = _memory(numpy, value.detach(), dtype) if numpy else None
        except Exception:  # noqa: BLE001 - fake and wrapped tensors have no memory to point at
            read = None
    return plain if read is None else _filled(numpy, plain, read)


def _memory(numpy: Any, value: Any, dtype: str) -> Any:
    """View a tensor's memory as an array; None where there is none to read.

    `Tensor.numpy()` would mark the user's storage as not resizable.
    """
    readable = value.device.type == "cpu" and dtype in READABLE and value.numel()
    if not readable or value.is_neg() or value.is_quantized or not value.data_ptr():
        return None
    width, steps = value.element_size(), value.stride()
    reach = sum(step * (size - 1) for step, size in zip(steps, value.shape, strict=True)) + 1
    memory = (ctypes.c_char * (reach * width)).from_address(value.data_ptr())
    line = numpy.frombuffer(memory, dtype=READABLE[dtype])
    strides = tuple(step * width for step in steps)
    view = numpy.lib.stride_tricks.as_strided(line, tuple(value.shape), strides, writeable=False)
    if dtype != "bfloat16":
        return view
    part = view if view.nbytes <= MOST_BYTES else thinned(view, -1, MOST_BYTES // 2)
    return (part.astype("u4") << 16).view("f4")


def _array(numpy: Any, value: Any) -> State:
    name = type(value).__name__
    dtype = "structured" if value.dtype.names else str(value.dtype.name)
    strides = tuple(value.strides) if any(step < 0 for step in value.strides) else ()
    plain = State(name, dtype, tuple(value.shape), strides=strides)
    return _filled(numpy, plain, numpy.asarray(value))


def _picture(numpy: Any, value: Any) -> State:
    """Describe a PIL picture; one that is not decoded yet stays so, and has no figures."""
    mode, (width, height) = str(value.mode), value.size
    bands = 2 if mode in PIL_PAIRS else PIL_BANDS.get(mode, 1)
    dtype = "uint16" if mode.startswith("I;") else PIL_DTYPES.get(mode, "uint8")
    shape = (height, width, bands) if bands > 1 else (height, width)
    layout = "HWC" if bands > 1 else "HW"
    plain = State("PIL.Image", dtype, shape, layout)
    if numpy is None or getattr(value, "tile", None):
        return plain
    return _filled(numpy, plain, numpy.asarray(value))


def _filled(numpy: Any, plain: State, array: Any) -> State:
    """Add figures, layout and scramble to a State."""
    if array.dtype.kind not in NUMBERS or not array.size:
        return plain
    with numpy.errstate(all="ignore"):
        low, high, mean, odd = _range(numpy, array)
        layout, scramble = plain.layout, {}
        if not layout and array.shape == plain.shape:
            scramble = scramble_of(array)
            layout = "" if scramble else layout_of(array)
    return State(
        plain.type,
        plain.dtype,
        plain.shape,
        layout,
        low,
        high,
        mean,
        odd,
        plain.strides,
        scramble,
    )


def _range(numpy: Any, array: Any) -> tuple[float | None, float | None, float | None, int]:
    """Low, high and mean of the finite elements, and how many are not finite."""
    part = array if array.nbytes <= MOST_BYTES else thinned(array, -1, MOST_BYTES // 8)
    low, high = float(part.min()), float(part.max())
    if math.isfinite(low) and math.isfinite(high):
        mean = float(part.mean(dtype="f8"))
        return low, high, mean if math.isfinite(mean) else None, 0
    finite = numpy.isfinite(part)
    kept = part[finite]
    odd = int(part.size - kept.size)
    if not kept.size:
        return None, None, None, odd
    return float(kept.min()), float(kept.max()), float(kept.mean(dtype="f8")), odd
