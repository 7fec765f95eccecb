"""Predictions and targets of different shapes that meet in a loss, seen as torch calls it."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from dlcheck.observation.steps import Line, Meeting
from dlcheck.observers.describe import Described, describe
from dlcheck.run.failures import caller, frame_at

# Losses that join input and target element by element, and broadcast them or refuse to.
ELEMENTWISE = {
    "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy",
    "binary_cross_entropy_with_logits", "kl_div", "poisson_nll_loss", "soft_margin_loss",
    "multilabel_soft_margin_loss", "multilabel_margin_loss",
}  # fmt: skip
CLASSES = {"cross_entropy", "nll_loss", "multi_margin_loss"}
LOSSES = ELEMENTWISE | CLASSES
# What custom losses join them with: differences, products (Dice, weights), quotients.
JOINS = {
    "sub", "__sub__", "rsub", "__rsub__", "subtract", "mul", "__mul__", "__rmul__", "multiply",
    "div", "__truediv__", "true_divide",
}  # fmt: skip
# What gives a prediction another shape on purpose.
RESHAPED = (
    "Unsqueeze",
    "View",
    "Reshape",
    "Select",
    "Slice",
    "Permute",
    "Expand",
    "Index",
    "Transpose",
)
MOST_MEETINGS = 8
PAIR = 2


class Parts:
    """The arrays of a batch, found again in a step by their memory."""

    def __init__(self, batch: Any, names: tuple[str, ...] = ()) -> None:
        self.paths: dict[int, str] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.dtypes: dict[str, str] = {}

        def look(leaf: Any, value: Any, line: Any) -> None:
            del line
            self.shapes[leaf.path] = tuple(leaf.shape or ())
            self.dtypes[leaf.path] = leaf.dtype or ""
            with contextlib.suppress(Exception):
                self.paths[value.untyped_storage().data_ptr()] = leaf.path

        describe(batch, values=True, names=names, look=look)

    @classmethod
    def of(cls, leaves: Sequence[Described]) -> Parts:
        """Know the arrays of a batch by their sizes alone."""
        parts = cls(None)
        parts.shapes = {leaf.path: leaf.shape for leaf in leaves if leaf.shape and leaf.dtype}
        parts.dtypes = {leaf.path: leaf.dtype or "" for leaf in leaves if leaf.path in parts.shapes}
        return parts

    def field(self, tensor: Any) -> str | None:
        """Return the part of the batch that a tensor shares its memory or its size with."""
        with contextlib.suppress(Exception):
            known = self.paths.get(tensor.untyped_storage().data_ptr())
            if known is not None:
                return known
        shape = tuple(tensor.shape)
        same = [path for path, one in self.shapes.items() if one == shape]
        alike = same or [p for p, one in self.shapes.items() if math.prod(one) == math.prod(shape)]
        return alike[0] if len(alike) == 1 else None


def pair_of(args: Any, kwargs: Any) -> tuple[Any, Any] | None:
    """Return prediction and target of a call; the one that needs a gradient is the prediction."""
    given = [*args, *(kwargs[name] for name in ("input", "target") if name in kwargs)][:PAIR]
    if len(given) < PAIR or not all(hasattr(one, "requires_grad") for one in given):
        return None
    first, second = given
    if second.requires_grad and not first.requires_grad:
        return second, first
    return first, second


def broadcast(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape that two make together; empty where they do not fit."""
    made = []
    for n in range(1, max(len(a), len(b)) + 1):
        x, y = (one[-n] if n <= len(one) else 1 for one in (a, b))
        if x != y and 1 not in (x, y):
            return ()
        made.append(max(x, y) if 0 not in (x, y) else 0)
    return tuple(reversed(made))


class Meetings:
    """Follows torch's functions while a step runs."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.found: list[Meeting] = []

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """See every call of a torch function until the end of the block."""
        from torch.overrides import TorchFunctionMode

        meet = self.meet

        class Seeing(TorchFunctionMode):  # type: ignore[misc]
            def __torch_function__(
                self, function: Any, types: Any, args: Any = (), kwargs: Any = None
            ) -> Any:
                del types
                with contextlib.suppress(Exception):
                    meet(getattr(function, "__name__", ""), args, kwargs or {})
                return function(*args, **(kwargs or {}))

        with Seeing():
            yield

    def meet(self, name: str, args: Any, kwargs: Any) -> None:
        """Note two arrays that a loss is about to join, where their shapes differ."""
        if name not in ELEMENTWISE and name not in JOINS:
            return
        pair = pair_of(args, kwargs)
        if pair is None or len(self.found) >= MOST_MEETINGS:
            return
        prediction, target = (tuple(one.shape) for one in pair)
        made = broadcast(prediction, target)
        if prediction == target or not made:
            return
        if name in JOINS and not self.crossed(*pair, made):
            return
        frame = caller(sys._getframe(1))  # noqa: SLF001
        at = None
        if frame is not None:
            told = frame_at(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
            at = Line(told["file"], told["line"], told["function"], told["text"])
        one = Meeting(
            name, prediction, target, bare(pair[0].dtype), bare(pair[1].dtype), made,
            self.parts.field(pair[1]), at,
        )  # fmt: skip
        if one not in self.found:
            self.found.append(one)

    def crossed(self, prediction: Any, target: Any, made: tuple[int, ...]) -> bool:
        """Tell (B, 1) that meets (B,) by mistake: a model's output, and the batch's own target."""
        one, two = tuple(prediction.shape), tuple(target.shape)
        longer, shorter = (one, two) if len(one) > len(two) else (two, one)
        alike = longer[:1] + longer[PAIR:] == shorter and longer[1:PAIR] == (1,)
        if not alike or made[0] < PAIR or made[:1] != made[1:PAIR]:
            return False
        if not prediction.requires_grad or target.requires_grad:
            return False
        history = type(prediction.grad_fn).__name__
        direct = longer is two or not history.startswith(RESHAPED)
        return direct and two in self.parts.shapes.values()


def bare(dtype: Any) -> str:
    """Return float32 for torch.float32."""
    return str(dtype).removeprefix("torch.")
