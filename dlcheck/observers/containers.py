"""Known containers of stages, and how a stage is named.

A container runs its stages in a loop of its own, with the stage at work in a local variable: the
table says which. A version that is not known shows as one change, made by the container.
"""

from __future__ import annotations

import builtins
import enum
import functools
import inspect
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import Any, NamedTuple

from dlcheck.observers.lineage import own_attributes

MOST_PARAMETERS = 120
# module -> function -> names that the stage's variable has had; a number is its index.
TABLE: dict[str, dict[str, tuple[str, ...]]] = {
    "torchvision.transforms.transforms": {"__call__": ("t", "i"), "forward": ("t",)},
    "torchvision.transforms.v2._container": {"forward": ("transform",)},
    "torch.nn.modules.container": {"forward": ("module",)},
    "albumentations.core.composition": {
        "__call__": ("t", "transform"),
        "_apply_child": ("transform",),
        "_apply_unactivated_node": ("transform",),
        "_apply_unactivated_compiled_transforms": ("transform",),
    },
    "monai.transforms.compose": {"execute_compose": ("_transform",), "__call__": ("_transform",)},
    "kornia.augmentation.container.base": {"transform_inputs": ("module",)},
    "kornia.augmentation.container.augment": {"forward": ("module",)},
    "kornia.augmentation.container.image": {"forward": ("module",)},
    "kornia.augmentation.container.patch": {"forward": ("module",)},
    "kornia.augmentation.container.video": {"forward": ("module",)},
    "fasttransform.transform": {"compose_tfms": ("f",)},
    "fastcore.transform": {"compose_tfms": ("f",)},
    "audiomentations.core.composition": {"__call__": ("transform",)},
    "torch_audiomentations.core.composition": {"forward": ("transform",)},
    "torchio.transforms.augmentation.composition": {"apply_transform": ("transform",)},
    "dlcheck.run.stages": {"__call__": ("stage",), "_by_name": ("stage",)},
}
OWNERS = ("self", "container", "one_of", "some_of", "one_or_other", "selective", "compose")
SEQUENCES = ("transforms", "stages", "fs", "augmentations", "_modules")
PACKAGES = frozenset(name.partition(".")[0] for name in TABLE)
# What says most about a shape goes first.
FIRST = (
    "size", "height", "width", "spatial_size", "roi_size", "output_size", "max_size", "min_size",
    "padding", "pad", "scale", "ratio", "degrees", "k", "axes", "mean", "std", "dtype", "p", "prob",
)  # fmt: skip
# Variables of containers that hold drawn parameters, no sample.
SETTINGS = frozenset({"self", "params", "param", "extra_args", "overrides", "invocation"})
NEVER = frozenset({"training", "transforms"})


class Stage(NamedTuple):
    """A stage at work: its name, its parameters in short, its container and place there."""

    name: str
    parameters: str
    container: str
    position: int | None
    variable: str


def stage_variables(frame: FrameType) -> tuple[str, ...]:
    """Name the variables that hold the stage in this frame; empty for no container."""
    module = frame.f_globals.get("__name__")
    if not isinstance(module, str) or module.partition(".")[0] not in PACKAGES:
        return ()
    names = TABLE.get(module, {}).get(frame.f_code.co_name, ())
    return tuple(name for name in names if name in frame.f_code.co_varnames)


def stage_in(frame: FrameType, variables: tuple[str, ...]) -> Stage | None:
    """Read the stage at work in a container's frame; None before the first."""
    inside = frame.f_locals
    for variable in variables:
        if variable in inside:
            stage = inside[variable]
            owner = _owner(frame, stage)
            position = _position(owner, inside, stage)
            if isinstance(stage, int):
                position, stages = stage, attribute(owner, "transforms")
                if not isinstance(stages, list | tuple) or not 0 <= stage < len(stages):
                    return None
                stage = stages[stage]
            container = "" if owner is None else type(owner).__name__
            return Stage(name_of(stage), parameters_of(stage), container, position, variable)
    return None


def _owner(frame: FrameType, stage: Any) -> Any:
    outer = frame.f_back
    for place in (frame, outer) if outer is not None else (frame,):
        for name in OWNERS:
            owner = place.f_locals.get(name)
            if owner is not None and owner is not stage and not isinstance(owner, type):
                return owner
    return None


def attribute(owner: Any, name: str) -> Any:
    """Read an attribute without running a property or __getattr__ of the owner."""
    inside = own_attributes(owner)
    if name in inside:
        return inside[name]
    modules = inside.get("_modules")
    return modules.get(name) if isinstance(modules, dict) else None


def _position(owner: Any, inside: Mapping[str, Any], stage: Any) -> int | None:
    lists = [attribute(owner, name) for name in SEQUENCES]
    lists += [inside.get(name) for name in ("transforms", "tfms", "named_modules")]
    for stages in lists:
        held = stages
        if type(held).__name__ == "ModuleList":
            held = attribute(held, "_modules")
        if isinstance(held, Mapping):
            held = list(held.values())
        elif type(held).__name__ == "L":
            held = attribute(held, "items")
        if isinstance(held, list | tuple):
            found = next((i for i, item in enumerate(held) if item is stage), None)
            if found is not None:
                return found
    return None


def name_of(stage: Any) -> str:
    """Name a stage as users do: the class of an object, the name of a function."""
    while isinstance(stage, functools.partial):
        stage = stage.func
    if inspect.isroutine(stage) or isinstance(stage, type):
        name = str(getattr(stage, "__name__", type(stage).__name__))
        return "lambda" if name == "<lambda>" else name
    return type(stage).__name__


def parameters_of(stage: Any) -> str:
    """List a stage's plain public attributes as `size=256, p=0.5`, what shapes first."""
    found: dict[str, str] = {}
    if isinstance(stage, functools.partial):
        found = {str(k): text for k, v in stage.keywords.items() if (text := _short(v))}
    elif not inspect.isroutine(stage) and not isinstance(stage, type):
        found = _attributes(stage)
        # MONAI's dictionary transforms keep their sizes in the array transform that they wrap.
        for inner in list(own_attributes(stage).values()):
            if type(inner).__module__.startswith("monai.transforms."):
                wrapped = _attributes(inner)
                found.update({k: v for k, v in wrapped.items() if k in FIRST and k not in found})
    order = {name: place for place, name in enumerate(FIRST)}
    names = sorted(found, key=lambda name: order.get(name, len(FIRST)))
    return _joined([f"{name}={found[name]}" for name in names])


def _joined(parts: list[str]) -> str:
    text = ""
    for part in parts:
        longer = f"{text}, {part}" if text else part
        if len(longer) > MOST_PARAMETERS:
            return text or part[: MOST_PARAMETERS - 3] + "..."
        text = longer
    return text


def _attributes(stage: Any) -> dict[str, str]:
    inside = own_attributes(stage)
    items = list(inside.items())
    flags = inside.get("flags")
    if isinstance(flags, dict):
        # kornia keeps the size and the like of an augmentation in `flags`.
        items += flags.items()
    names = {str(n): v for n, v in items if not str(n).startswith("_") and n not in NEVER}
    return {name: text for name, value in names.items() if (text := _short(value))}


def _short(value: Any) -> str:
    """Render a plain value, or nothing."""
    text = ""
    if isinstance(value, enum.Enum):
        text = value.name
    elif isinstance(value, str):
        text = str(value)
    elif isinstance(value, float):
        text = f"{value:.4g}"
    elif isinstance(value, int) or type(value).__name__ == "dtype":
        text = str(value)
    elif isinstance(value, list | tuple) and 0 < len(value) <= len(FIRST):
        parts = [_short(item) for item in value]
        text = f"({', '.join(parts)})" if all(parts) else ""
    elif inspect.isroutine(value):
        text = name_of(value)
    return text if len(text) <= MOST_PARAMETERS // 2 else ""


def resolve(names: Sequence[str], inside: Mapping[str, Any], outside: Mapping[str, Any]) -> Any:
    """Find what `self.transform` is, given ["self", "transform"]; None when it is not plain."""
    if not names or not names[0]:
        return None
    found = inside.get(names[0], outside.get(names[0]))
    for name in names[1:]:
        found = attribute(found, name)
    return found


def called_name(names: Sequence[str], inside: Mapping[str, Any], outside: Mapping[str, Any]) -> str:
    """Name the function that `names` call; empty for an object, whose code may call anything."""
    if len(names) > 1 and not names[0]:
        # A method of a result: what made the result is a call of its own.
        return names[-1]
    owner = resolve(names[:-1], inside, outside) if len(names) > 1 else None
    found = resolve(names, inside, outside)
    if found is None and owner is not None:
        found = inspect.getattr_static(type(owner), names[-1], None)
    if found is None and len(names) == 1:
        found = getattr(builtins, names[0], None) if names[0] else None
    if isinstance(found, staticmethod | classmethod):
        found = found.__func__
    if isinstance(found, type):
        return found.__name__
    return str(getattr(found, "__name__", names[-1])) if inspect.isroutine(found) else ""
