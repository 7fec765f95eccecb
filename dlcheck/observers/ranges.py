"""The range of an array's or tensor's elements, on one thread and without touching it.

A reduction that torch spreads over threads in the main process starts a pool there, and workers
forked later can deadlock in it; numpy starts none. `Tensor.numpy()` would mark the user's storage
as not resizable, so numpy is given the address.
"""

from __future__ import annotations

import ctypes
import math
import sys
from typing import Any

Range = tuple[float | None, float | None, int]
NOTHING: Range = (None, None, 0)

MOST_ELEMENTS = 1 << 28
ONE_THREAD_GRAIN = 32_768
NUMBERS = "iuf"
BYTE = 8
# The largest finite number of each two-byte float, as its bits.
HALF_LIMITS = {"float16": 0x7BFF, "bfloat16": 0x7F7F}
# What numpy calls the tensors whose memory it can read; `bfloat16` as the bits it consists of.
READABLE = {
    "float32": "f4", "float64": "f8", "float16": "f2", "bfloat16": "i2",
    "uint8": "u1", "int8": "i1", "int16": "i2", "int32": "i4", "int64": "i8",
    "uint16": "u2", "uint32": "u4", "uint64": "u8",
}  # fmt: skip
WITHOUT_AMINMAX = {"uint16", "uint32", "uint64"}


def finite(value: Any) -> float | None:
    """Return a number as a float, without a negative zero; None when it is none or not finite."""
    try:
        number = float(value)
    except (OverflowError, TypeError, ValueError):
        return None
    return number + 0.0 if math.isfinite(number) else None


def scalars_range(values: Any) -> Range:
    """Return least, greatest and the count of non-finite ones of plain Python numbers."""
    low, high = finite(min(values)), finite(max(values))
    if low is not None and high is not None and not any(x != x for x in values):  # noqa: PLR0124
        return low, high, 0
    numbers = [number for x in values if (number := finite(x)) is not None]
    odd = sum(1 for x in values if isinstance(x, float) and not math.isfinite(x))
    return min(numbers, default=None), max(numbers, default=None), odd


def array_range(value: Any) -> Range:
    """Return least and greatest finite element of a real array, and how many are not finite."""
    numpy = sys.modules["numpy"]
    plain = _once(numpy.asarray(value))
    if plain.dtype.kind not in NUMBERS or not 0 < plain.size <= MOST_ELEMENTS:
        return NOTHING
    if plain.dtype.itemsize == 2 and plain.dtype.kind == "f" and plain.dtype.isnative:  # noqa: PLR2004
        return _half_range(plain.view("i2"), "float16")
    return _plain_range(numpy, plain)


def _once(plain: Any) -> Any:
    """Take elements that a broadcast repeats only once."""
    if 0 in plain.strides:
        return plain[tuple(slice(1) if stride == 0 else slice(None) for stride in plain.strides)]
    return plain


def _plain_range(numpy: Any, plain: Any) -> Range:
    axis = 0 if plain.ndim == 1 else None
    low = float(numpy.minimum.reduce(plain, axis))
    high = float(numpy.maximum.reduce(plain, axis))
    if high - low < math.inf:
        return low + 0.0, high + 0.0, 0
    if math.isfinite(low) and math.isfinite(high):
        return low, high, 0
    kept = plain[numpy.isfinite(plain)]
    odd = int(plain.size - kept.size)
    return (finite(kept.min()), finite(kept.max()), odd) if kept.size else (None, None, odd)


def _half_range(bits: Any, name: str) -> Range:
    """Compare two-byte floats as the integers they order like: many times quicker in numpy."""
    order = bits ^ ((bits >> 15) & 0x7FFF)
    low, high, most = int(order.min()), int(order.max()), HALF_LIMITS[name]
    if -most - 1 <= low and high <= most:
        return _half(low, name), _half(high, name), 0
    kept = order[(order >= -most - 1) & (order <= most)]
    odd = int(order.size - kept.size)
    if not kept.size:
        return None, None, odd
    return _half(int(kept.min()), name), _half(int(kept.max()), name), odd


def _half(order: int, name: str) -> float:
    """Turn an integer of that order back into the number."""
    import struct

    bits = (order if order >= 0 else order ^ 0x7FFF) & 0xFFFF
    if name == "bfloat16":
        return float(struct.unpack("<f", struct.pack("<I", bits << 16))[0]) + 0.0
    return float(struct.unpack("<e", struct.pack("<H", bits))[0]) + 0.0


def line_of(value: Any, dtype: str) -> Any:
    """View the memory of a contiguous tensor as one numpy array of its numbers.

    None where it has no memory of its own in this process, or numpy does not know the dtype
    (`bfloat16` is given as the bits it consists of). The array is good as long as the tensor is.
    """
    code, numpy = READABLE.get(dtype), sys.modules.get("numpy")
    if code is None or numpy is None or not value.is_cpu:
        return None
    if not value.is_contiguous() or value.is_neg():
        return None
    size, address = value.numel(), value.data_ptr()
    if not address or not 0 < size <= MOST_ELEMENTS:
        return None
    memory = (ctypes.c_char * (size * int(code[1]))).from_address(address)
    return numpy.frombuffer(memory, code)


def line_range(line: Any, dtype: str) -> Range:
    """Return the range of what `line_of` gave: two passes of numpy beat one of torch's aminmax."""
    if dtype in HALF_LIMITS:
        return _half_range(line.view("i2"), dtype)
    return _plain_range(sys.modules["numpy"], line)


def tensor_range(torch: Any, value: Any, dtype: str) -> Range:
    """Return the range of a dense tensor in this process's memory; nothing for complex and bool."""
    small = dtype.startswith("float8") and value.numel() <= ONE_THREAD_GRAIN
    if dtype not in READABLE and not small:
        return NOTHING
    plain = value.detach() if value.requires_grad else value
    dense = plain.is_contiguous()
    plain = plain.view(-1) if dense else _in_line(torch, _unrepeated(plain))
    size = plain.numel()
    if not 0 < size <= MOST_ELEMENTS:
        return NOTHING
    if small:
        return _torch_range(torch, plain.float())
    line = line_of(plain, dtype)
    if line is not None:
        return line_range(line, dtype)
    if dtype in WITHOUT_AMINMAX or (size > ONE_THREAD_GRAIN and torch.get_num_threads() > 1):
        return _read_by_numpy(torch, plain, dtype)
    return _torch_range(torch, plain)


def _unrepeated(plain: Any) -> Any:
    """Take elements that an expand repeats only once."""
    for axis, stride in enumerate(plain.stride()):
        if stride == 0 and plain.shape[axis] > 1:
            plain = plain.narrow(axis, 0, 1)
    return plain


def _in_line(torch: Any, plain: Any) -> Any:
    """View the elements as one line where they lie densely in any order of axes.

    Reading in memory order is several times quicker than in the order of a permuted view.
    """
    ordered = sorted(
        (stride, size) for stride, size in zip(plain.stride(), plain.shape, strict=True) if size > 1
    )
    step = 1
    for stride, length in ordered:
        if stride != step:
            return plain
        step *= length
    return torch.as_strided(plain, (plain.numel(),), (1,), plain.storage_offset())


def _torch_range(torch: Any, flat: Any) -> Range:
    low, high = map(finite, torch.aminmax(flat))
    if low is not None and high is not None:
        return low, high, 0
    kept = flat[torch.isfinite(flat)]
    odd = flat.numel() - kept.numel()
    return (finite(kept.min()), finite(kept.max()), odd) if kept.numel() else (None, None, odd)


def _read_by_numpy(torch: Any, plain: Any, dtype: str) -> Range:
    numpy = sys.modules.get("numpy")
    if numpy is None or plain.is_neg():
        return _piece_by_piece(torch, plain)
    code = READABLE[dtype]
    width = int(code[1])
    strides = plain.stride()
    span = 1 + sum((n - 1) * step for n, step in zip(plain.shape, strides, strict=True))
    memory = (ctypes.c_char * (span * width)).from_address(plain.data_ptr())
    view = numpy.ndarray(plain.shape, code, memory, strides=[step * width for step in strides])
    return line_range(view, dtype)


def _piece_by_piece(torch: Any, plain: Any) -> Range:
    """Go through a tensor in pieces that torch leaves to one thread."""
    if plain.dim() != 1 or plain.numel() <= ONE_THREAD_GRAIN:
        return _torch_range(torch, plain) if plain.numel() <= ONE_THREAD_GRAIN else NOTHING
    found = [_torch_range(torch, piece) for piece in plain.split(ONE_THREAD_GRAIN)]
    lows = [low for low, _, _ in found if low is not None]
    highs = [high for _, high, _ in found if high is not None]
    return min(lows, default=None), max(highs, default=None), sum(odd for _, _, odd in found)
