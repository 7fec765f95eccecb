"""Whether the model takes what the loader gives, tried on the meta device: no memory, no time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dlcheck.observers.describe import Described
from dlcheck.run import torch_private
from dlcheck.run.facts import length_of
from dlcheck.run.failures import failure_of, safe_text
from dlcheck.run.instantiate import instantiate

BATCHNORM_REFUSES = "Expected more than 1 value per channel when training"
IMAGE_AXES = 4


def note_batchnorm(
    watch: Any, drives: Mapping[str, Any], specs: Mapping[str, Mapping[str, Any]]
) -> None:
    """Run the model of each split that leaves one sample over on such a batch, in training."""
    for name, drive in drives.items():
        spec = specs[name]
        shaped = _first_input(drive.leaves)
        if spec.get("model") is None or shaped is None or not leaves_one(drive.target, spec):
            continue
        watch.split = name
        try:
            _train_on_one(spec["model"], shaped)
        except ValueError as error:
            if BATCHNORM_REFUSES in safe_text(error):
                watch.note(batchnorm=failure_of(error, "model"))
            else:
                _say_why_not(watch, name, error)
        except BaseException as error:  # noqa: BLE001 - the model is the user's, and may need more
            _say_why_not(watch, name, error)


def leaves_one(target: Any, spec: Mapping[str, Any]) -> bool:
    """Tell whether an epoch of training ends in a batch of one sample."""
    loader = target.loader
    if target.role != "train" or not torch_private.is_loader(loader) or loader.drop_last:
        return False
    size = loader.batch_size or 1
    full = spec.get("full_length")
    length = full if isinstance(full, int) else length_of(loader.sampler)
    return size > 1 and length is not None and length % size == 1


def _first_input(leaves: list[Described]) -> Described | None:
    """Choose what a model would take: the first float batch of images, else the first float one."""
    floats = [
        leaf for leaf in leaves if leaf.shape and len(leaf.shape) > 1 and _is_float(leaf.dtype)
    ]
    images = [leaf for leaf in floats if leaf.shape and len(leaf.shape) >= IMAGE_AXES]
    return next(iter(images or floats), None)


def _is_float(dtype: str | None) -> bool:
    return dtype is not None and dtype.startswith(("float", "bfloat"))


def _train_on_one(node: Any, shaped: Described) -> None:
    import torch

    with torch.device("meta"), torch.no_grad():
        model = instantiate(node, "model")
        if isinstance(model, type):
            model = model()
        model.train()
        shape = (1, *(shaped.shape or ())[1:])
        model(torch.empty(shape, dtype=getattr(torch, shaped.dtype or "float32")))


def _say_why_not(watch: Any, name: str, error: BaseException) -> None:
    reason = f"{type(error).__name__}: {safe_text(error)[:300]}"
    watch.scratch.write(obs={"settings": {f"model not run on meta: {name}": reason}})
