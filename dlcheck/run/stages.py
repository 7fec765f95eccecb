"""A list of transforms as one: the Compose of their package, or the stages in turn."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from dlcheck.run.instantiate import ConfigMistake, called, join

PACKAGES = ("torchvision.transforms.v2", "torchvision.transforms", "albumentations", "monai")


def package_of(stage: Any) -> str:
    """Return the package whose Compose takes the stage; a subclass counts with its base."""
    cls = stage if isinstance(stage, type) else type(stage)
    for base in cls.__mro__:
        for package in PACKAGES:
            if f"{base.__module__}.".startswith(f"{package}."):
                return package
    return ""


def compose(stages: Sequence[Any], key: str) -> Any:
    """Join stages that are already made.

    Raises:
        ConfigMistake: a stage that cannot be called.
    """
    for index, stage in enumerate(stages):
        if not callable(stage):
            what = called(stage)
            raise ConfigMistake(join(key, index), f"{what} is no transform: it cannot be called")
        if isinstance(stage, type):
            message = f"{called(stage)} is a class: write {{_target_: ...}} to make one"
            raise ConfigMistake(join(key, index), message)
    packages = {package_of(stage) for stage in stages}
    if len(packages) != 1 or packages == {""}:
        return Stages(stages)
    package = packages.pop()
    name = "monai.transforms" if package == "monai" else package
    return sys.modules[name].Compose(list(stages))


class Stages:
    """Stages in turn, with the calling convention of torchvision's Compose.

    Albumentations' own are called with image=, which is all that they take.
    """

    def __init__(self, stages: Sequence[Any]) -> None:
        self.stages = list(stages)

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        if named:
            return self._by_name(named)
        unpack = len(inputs) > 1
        for stage in self.stages:
            if package_of(stage) == "albumentations" and not unpack:
                outputs = stage(image=inputs[0])["image"]
            else:
                outputs = stage(*inputs)
            inputs = outputs if unpack else (outputs,)
        return inputs if unpack else inputs[0]

    def _by_name(self, named: dict[str, Any]) -> dict[str, Any]:
        for stage in self.stages:
            if package_of(stage) == "albumentations":
                named = stage(**named)
            else:
                named = {**named, "image": stage(named["image"])}
        return named

    def __repr__(self) -> str:
        inner = "".join(f"\n    {stage!r}" for stage in self.stages)
        return f"Stages({inner}\n)"
