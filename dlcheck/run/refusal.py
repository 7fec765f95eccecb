"""Which layer of the model refuses what the loader gives: run on the meta device, nothing trained.

Only a refusal that speaks of sizes, channels or dtypes counts; whatever else goes wrong without
real weights and values says nothing about the data.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import re
from collections.abc import Iterator, Mapping
from typing import Any

from dlcheck.observation import ModelRun, failure_from_json, plain
from dlcheck.observers.describe import Described
from dlcheck.run.failures import failure_of, safe_text
from dlcheck.run.instantiate import ConfigMistake, instantiate
from dlcheck.run.replay import unchanged_random

IMAGE_AXES = 4
MOST_REASON = 200
# Words with which torch, timm and others refuse a size, a number of channels or of axes.
SIZES = re.compile(
    r"channels|shapes cannot be multiplied|size mismatch|normalized_shape|doesn't match|"
    r"does not match|must match|mismatch|wrong (?:image|input) size|divisible|"
    r"expected \d(?:d|-dimensional)|dimension|smaller than kernel|size of tensor|"
    r"sizes? of tensors|invalid for input of size|same number of|size is too small|"
    r"greater than actual input size|reduction dim|expected \d+,? but got|input height|input size",
    re.IGNORECASE,
)
DTYPES = re.compile(r"same dtype|same type|expected scalar type|data type|dtype", re.IGNORECASE)
# What fails for want of values or of a device, not for what was given.
OTHER = re.compile(r"meta|device|fake|\.item\(\)|data-dependent|not implemented", re.IGNORECASE)
# What the meta device cannot do and a processor can.
NO_KERNEL = re.compile(
    r"meta|\.item\(\)|data-dependent|not implemented|NotImplemented", re.IGNORECASE
)
MOST_WEIGHTS = 128_000_000
FEW = 2
KINDS = (RuntimeError, ValueError, AssertionError, IndexError)
Call = tuple[str, Any, tuple[Any, ...]]


def note_refusal(
    watch: Any, drives: Mapping[str, Any], specs: Mapping[str, Mapping[str, Any]]
) -> None:
    """Give each split's model a batch of the split's shapes, and write down who refused it."""
    for name, drive in drives.items():
        node = specs[name].get("model")
        if node is None or not drive.leaves:
            continue
        watch.split = name
        run = run_model(node, drive.leaves, stepped=specs[name].get("step") is not None)
        watch.note(model_run=plain(run))


def run_model(node: Any, leaves: list[Described], *, stepped: bool = False) -> ModelRun:
    """Run a model of the config on the meta device; never raises."""
    shaped = first_input(leaves)
    if shaped is None:
        return ModelRun(reason="the batch holds no array that a model could take")
    shape = tuple(shaped.shape or ())
    given: dict[str, Any] = {"field": shaped.path, "dtype": shaped.dtype or "", "shape": shape}
    if stepped:
        return ModelRun(**given, reason="the step feeds the model, and may prepare the batch")
    if not (shaped.dtype or "").startswith(("float", "bfloat")):
        return ModelRun(**given, reason=f"a {shaped.dtype} batch may yet be cast on the device")
    reason = ""
    for device in ("meta", "cpu"):
        try:
            with unchanged_random():
                run = _run(node, shaped, given, device)
        except BaseException as error:  # noqa: BLE001 - the model is the user's, and may need more
            run = ModelRun(**given, reason=_why(error))
        reason = reason or run.reason
        if not NO_KERNEL.search(run.reason) or not _small(node):
            break
    return dataclasses.replace(run, reason=reason) if run.reason else run


def _small(node: Any) -> bool:
    """Tell whether the model can be built for real without much memory or time."""
    import torch

    with contextlib.suppress(Exception), torch.device("meta"):
        model = instantiate(node, "model")
        model = model() if isinstance(model, type) else model
        return bool(sum(p.numel() for p in model.parameters()) <= MOST_WEIGHTS)
    return False


def first_input(leaves: list[Described]) -> Described | None:
    """Choose what a model takes first: the batch itself, the first item, `image`.

    Only an array of two axes or more that comes first, or the only image, is taken for it.
    """
    arrays = [leaf for leaf in leaves if leaf.shape and len(leaf.shape) > 1 and leaf.dtype]
    images = [leaf for leaf in arrays if len(leaf.shape or ()) >= IMAGE_AXES]
    floats = [leaf for leaf in images if _is_float(leaf)]
    for choice in (floats, images, arrays):
        if choice:
            alone = len(choice) == 1 or choice[0] is arrays[0]
            return choice[0] if alone else None
    return None


def _is_float(leaf: Described) -> bool:
    return (leaf.dtype or "").startswith(("float", "bfloat"))


def _run(node: Any, shaped: Described, given: dict[str, Any], device: str) -> ModelRun:
    import torch

    with torch.device(device), torch.no_grad():
        model = instantiate(node, "model")
        if isinstance(model, type):
            model = model()
        if not isinstance(model, torch.nn.Module):
            return ModelRun(**given, reason=f"the model is a {type(model).__name__}, no Module")
        if _takes_more(model):
            return ModelRun(**given, reason="the model takes more than one input")
        model.eval()
        shape = tuple(shaped.shape or ())
        if device != "meta":
            # A real forward computes: two samples tell as much as a batch.
            shape = (min(shape[0], FEW), *shape[1:])
        batch = torch.zeros(shape, dtype=getattr(torch, str(shaped.dtype)))
        at_work: list[Call] = []
        begun: list[Call] = []
        with _followed(model, at_work, begun):
            try:
                model(batch)
            except KINDS as error:
                return _refused(error, at_work, given)
    return _double(begun, given) or ModelRun(**given)


def _double(begun: list[Call], given: dict[str, Any]) -> ModelRun | None:
    """Find the layer that refuses float64: the meta device lets it pass, no other does."""
    for path, layer, inputs in begun:
        about, wanted, got = quarrel(layer, inputs)
        if about == "dtype" and got == "float64" and given["dtype"] == got:
            return ModelRun(
                **given, layer=path, kind=type(layer).__name__, wanted=wanted, got=got, about=about
            )
    return None


def _takes_more(model: Any) -> bool:
    """Tell a forward with several required arguments."""
    parameters = inspect.signature(model.forward).parameters.values()
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [p for p in parameters if p.default is p.empty and p.kind in positional]
    keywords = [
        p for p in parameters if p.default is p.empty and p.kind is inspect.Parameter.KEYWORD_ONLY
    ]
    return len(needed) > 1 or bool(keywords)


@contextlib.contextmanager
def _followed(model: Any, at_work: list[Call], begun: list[Call]) -> Iterator[None]:
    """Keep in `at_work` the modules whose forward has begun and not ended."""

    def hooks(path: str) -> tuple[Any, Any]:
        def begin(module: Any, inputs: tuple[Any, ...]) -> None:
            at_work.append((path, module, inputs))
            begun.append(at_work[-1])

        def end(module: Any, inputs: tuple[Any, ...], output: Any) -> None:
            del module, inputs, output
            at_work.pop()

        return begin, end

    handles = []
    for path, module in model.named_modules():
        begin, end = hooks(path)
        handles.append(module.register_forward_pre_hook(begin))
        handles.append(module.register_forward_hook(end))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _refused(error: BaseException, at_work: list[Call], given: dict[str, Any]) -> ModelRun:
    text = safe_text(error)
    if not at_work or OTHER.search(text):
        return ModelRun(**given, reason=_why(error))
    path, layer, inputs = at_work[-1]
    about, wanted, got = quarrel(layer, inputs)
    if not about:
        about = "size" if SIZES.search(text) else "dtype" if DTYPES.search(text) else ""
    if not about:
        return ModelRun(**given, reason=_why(error))
    failure = failure_from_json(failure_of(error, "model"))
    return ModelRun(
        **given, failure=failure, layer=path, kind=type(layer).__name__,
        wanted=wanted, got=got, about=about,
    )  # fmt: skip


def quarrel(layer: Any, inputs: tuple[Any, ...]) -> tuple[str, str, str]:
    """Say what a known layer wanted and got: (channels | features | dtype, wanted, got)."""
    array = next((one for one in inputs if hasattr(one, "shape")), None)
    if array is None:
        return "", "", ""
    shape = tuple(array.shape)
    for name, axis, word in (
        ("in_channels", 1, "channels"), ("num_features", 1, "channels"),
        ("in_features", -1, "features"),
    ):  # fmt: skip
        wanted = getattr(layer, name, None)
        if isinstance(wanted, int) and len(shape) > 1 and shape[axis] != wanted:
            return word, str(wanted), str(shape[axis])
    weight = getattr(layer, "weight", None)
    dtype = getattr(weight, "dtype", None)
    if dtype is not None and dtype != array.dtype:
        return "dtype", _bare(dtype), _bare(array.dtype)
    return "", "", ""


def _bare(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _why(error: BaseException) -> str:
    if isinstance(error, ConfigMistake):
        return f"the model could not be built: {error.message}"[:MOST_REASON]
    text = " ".join(safe_text(error).split())
    return f"the model could not be tried: {type(error).__name__}: {text}"[:MOST_REASON]
