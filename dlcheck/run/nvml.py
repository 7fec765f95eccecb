"""The driver's figure of a device before anything of ours is on it, as nvidia-smi reads it."""

from __future__ import annotations

import contextlib
import ctypes
import os

LIBRARY = "libnvidia-ml.so.1"


class _Memory(ctypes.Structure):
    _fields_ = (
        ("total", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    )


def used(index: int) -> int | None:
    """Bytes in use on the device, by all processes; no context is made. None without NVML."""
    with contextlib.suppress(OSError, AttributeError, ValueError, IndexError):
        library = ctypes.CDLL(LIBRARY)
        if library.nvmlInit_v2():
            return None
        try:
            handle = _handle(library, index)
            memory = _Memory()
            if handle is None or library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)):
                return None
            return int(memory.used)
        finally:
            library.nvmlShutdown()
    return None


def _handle(library: ctypes.CDLL, index: int) -> ctypes.c_void_p | None:
    """Find the device that CUDA numbers `index`: NVML numbers those that are hidden too."""
    handle = ctypes.c_void_p()
    name = visible(index)
    if name.isdigit():
        failed = library.nvmlDeviceGetHandleByIndex_v2(int(name), ctypes.byref(handle))
    else:
        failed = library.nvmlDeviceGetHandleByUUID(name.encode(), ctypes.byref(handle))
    return None if failed else handle


def visible(index: int) -> str:
    """Return the number or UUID of the device that CUDA calls `index`.

    Raises:
        IndexError: CUDA_VISIBLE_DEVICES shows fewer.
    """
    shown = os.environ.get("CUDA_VISIBLE_DEVICES")
    return str(index) if shown is None else shown.split(",")[index].strip()
