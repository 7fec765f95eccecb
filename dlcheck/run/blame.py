"""Who refused a batch inside a step: the layer or the loss, read from the exception's frames."""

from __future__ import annotations

import os
import re
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any

from dlcheck.observers.meetings import CLASSES, LOSSES, Parts, bare
from dlcheck.run.failures import safe_text
from dlcheck.run.refusal import DTYPES, SIZES, quarrel

FUNCTIONAL = os.path.join("torch", "nn", "functional.py")  # noqa: PTH118
TARGETS = re.compile(
    r"for target with class probabilities|multi-target|0D or 1D target|Target size|"
    r"Expected target size|Expected input batch_size|spatial targets|same as input size",
    re.IGNORECASE,
)
OUT_OF_BOUNDS = re.compile(r"Target (-?\d+) is out of bounds|index out of range", re.IGNORECASE)
# What a machine without the job's devices or other processes cannot do.
ELSEWHERE = re.compile(
    r"NVIDIA driver|CUDA|\bcudnn|HIP GPUs|\bMPS\b|XPU|process group has not been initialized|"
    r"not attached to a `Trainer`",
    re.IGNORECASE,
)


@dataclass
class Blame:
    """What a refusal tells: see Trial."""

    layer: str = ""
    kind: str = ""
    wanted: str = ""
    got: str = ""
    about: str = ""
    loss: str = ""
    field: str | None = None
    shape: tuple[int, ...] = ()
    dtype: str = ""
    other: tuple[int, ...] = ()


def unable(error: BaseException) -> str:
    """Say why a step cannot run here through no fault of its own; empty where it is one."""
    if not isinstance(error, RuntimeError | AssertionError | ValueError):
        return ""
    text = " ".join(safe_text(error).split())
    if not ELSEWHERE.search(text) or "out of memory" in text or SIZES.search(text):
        return ""
    import torch

    if torch.cuda.is_available() and "Trainer" not in text:
        return ""
    return f"the step needs what this machine lacks: {text}"[:200]


def blame(error: BaseException, parts: Parts) -> Blame:
    """Find the innermost layer or loss at work when the step failed."""
    text = safe_text(error)
    found = Blame()
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    in_loss = [f for f in frames if _is_loss(f)]
    calls = list(_calls(frames))
    if in_loss:
        _of_loss(found, in_loss[-1], text, parts)
    elif calls:
        _of_layer(found, calls, text, parts)
    if not found.about:
        sized = SIZES.search(text) or TARGETS.search(text)
        found.about = "size" if sized else "dtype" if DTYPES.search(text) else ""
    return found


def _is_loss(frame: FrameType) -> bool:
    code = frame.f_code
    return code.co_name in LOSSES and code.co_filename.endswith(FUNCTIONAL)


def _of_loss(found: Blame, frame: FrameType, text: str, parts: Parts) -> None:
    found.loss = frame.f_code.co_name
    given: Any = frame.f_locals.get("input")
    target: Any = frame.f_locals.get("target")
    bounds = OUT_OF_BOUNDS.search(text)
    if hasattr(given, "shape"):
        found.other = tuple(given.shape)
    if hasattr(target, "shape"):
        found.field = parts.field(target)
        found.shape, found.dtype = tuple(target.shape), bare(target.dtype)
    if bounds and found.loss in CLASSES:
        found.about = "classes"
        found.got = str(bounds[1] or "")
        found.wanted = str(found.other[1]) if len(found.other) > 1 else ""


def _calls(frames: list[FrameType]) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """Yield the modules whose forward was at work, outermost first, with their arguments."""
    import torch

    for frame in frames:
        code = frame.f_code
        module = frame.f_locals.get("self")
        if code.co_name != "forward" or not issubclass(type(module), torch.nn.Module):
            continue
        names = code.co_varnames[1 : code.co_argcount]
        yield module, tuple(frame.f_locals.get(name) for name in names)


def _of_layer(
    found: Blame, calls: list[tuple[Any, tuple[Any, ...]]], text: str, parts: Parts
) -> None:
    outer, given = calls[0]
    layer, inputs = calls[-1]
    found.kind = type(layer).__name__
    found.layer = next((name for name, one in outer.named_modules() if one is layer), "")
    found.about, found.wanted, found.got = quarrel(layer, inputs)
    rows = getattr(layer, "num_embeddings", None)
    if rows is not None and OUT_OF_BOUNDS.search(text) and hasattr(inputs[0], "max"):
        found.about, found.wanted, found.got = "index", str(rows), str(int(inputs[0].max()))
    arrays = [one for one in given if hasattr(one, "shape") and hasattr(one, "dtype")]
    if arrays:
        array = arrays[0]
        found.field = parts.field(array)
        found.shape, found.dtype = tuple(array.shape), bare(array.dtype)
    numbers = re.search(r"Input (?:image )?(?:height|width|size) \((\d+)\).*?model \((\d+)", text)
    if numbers and not found.wanted:
        found.about, found.got, found.wanted = "size", numbers[1], numbers[2]
