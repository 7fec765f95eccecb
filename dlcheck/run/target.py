"""From a split's plain values to loaders, in the user's interpreter."""

from __future__ import annotations

import functools
import inspect
import io
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

from dlcheck.run import step as steps
from dlcheck.run.instantiate import ConfigMistake, bind, call, called, instantiate, is_node, join
from dlcheck.run.stages import compose

__all__ = ["ConfigMistake", "NoPipeline", "Target", "build"]

WANTED = "wanted a DataLoader, a Dataset, an iterable of batches, or a function that returns one"
EVALUATION = {"val", "valid", "validation", "test", "eval"}
BARE_BATCH = 8
DATA: tuple[type, ...] = (
    str, bytes, bytearray, tuple, list, Mapping, set, frozenset, range,
    io.IOBase, os.PathLike, ModuleType, FunctionType,
)  # fmt: skip


class NoPipeline(Exception):  # noqa: N818 - an outcome that a rule reports
    """The target is nothing that yields batches."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


@dataclass
class Target:
    """One loader to drive. `bare_dataset`: dlcheck made the loader, so no rule judges it."""

    loader: Any
    dataset: Any = None
    role: str = "train"
    epoch_hook: Callable[..., Any] | None = None
    step: Callable[[Any], Any] | None = None
    bare_dataset: bool = False


def build(name: str, spec: dict[str, Any]) -> dict[str, Target]:
    """Build one split; a function that returns several loaders gives several.

    Raises:
        ConfigMistake: a name or an argument of the config that cannot be used.
        NoPipeline: what was named yields no batches.
    """
    _need_torch()
    hook = _hook(spec.get("epoch_hook"))
    step = steps.load(spec)
    if isinstance(step, steps.Lightning):
        hook = step.hook(hook)
    if "object" in spec:
        found = _called(instantiate(spec["object"], "object"), "object")
        targets = dict(_targets(name, found, spec["object"]))
    elif spec.get("datamodule") is not None:
        targets = _from_datamodule(name, spec)
    else:
        targets = _from_parts(name, spec)
    for target in targets.values():
        target.epoch_hook = hook
    _with_roles(targets, name, spec.get("role", "train"))
    for target in targets.values():
        # A step that trains is not made for the batches of a loader that evaluates.
        target.step = step if target.role == spec.get("role", "train") else None
    return targets


def targets_of(found: Any, role: str) -> dict[str, Target]:
    """Name the loaders in a live object: a loader, a Dataset, or several of them.

    Raises:
        NoPipeline: it yields no batches.
    """
    return _with_roles(dict(_targets("", found, "what was given", role)), "", role)


def _with_roles(targets: dict[str, Target], name: str, role: str) -> dict[str, Target]:
    """Set the role of each target; of several the name tells evaluation."""
    for key, target in targets.items():
        target.role = role
        if key != name and _first_word(key.removeprefix(name)) in EVALUATION:
            target.role = "eval"
    return targets


def _need_torch() -> None:
    import importlib.util

    if importlib.util.find_spec("torch") is None:
        message = f"{sys.executable} has no torch"
        raise ConfigMistake("", message, "--python names the interpreter that runs your training")


def _hook(value: Any) -> Callable[..., Any] | None:
    if value is None:
        return None
    hook = instantiate(value, "epoch_hook")
    if not callable(hook):
        message = f"a {type(hook).__name__} cannot be called with (loader, epoch)"
        raise ConfigMistake("epoch_hook", message)
    return hook  # type: ignore[no-any-return]


def _first_word(name: str) -> str:
    words: list[str] = re.findall(r"[a-z]+", name.lower())
    return words[0] if words else ""


def _from_parts(name: str, spec: dict[str, Any]) -> dict[str, Target]:
    dataset = _dataset(spec) if spec.get("dataset") is not None else None
    loader = spec.get("loader")
    if loader is None:
        return dict(_targets(name, dataset, "dataset"))
    if isinstance(loader, str):
        return dict(_targets(name, _called(instantiate(loader, "loader"), "loader"), loader))
    if is_node(loader):
        made = _custom_loader(loader, dataset)
        return dict(
            _targets(name, made, loader.get("_target_") or loader.get("class_path", "loader"))
        )
    if not hasattr(dataset, "__getitem__") and not hasattr(dataset, "__iter__"):
        raise NoPipeline(f"dataset gives {_what(dataset)}, which has no samples")
    return {name: Target(_torch_loader(loader, dataset), dataset)}


def _dataset(spec: dict[str, Any]) -> Any:
    """Make the dataset, its transform passed as the argument that takes it."""
    node, takes = spec["dataset"], spec.get("transform_arg") or "transform"
    extra = {}
    if spec.get("transform") is not None:
        extra[takes] = _transform(spec["transform"])
    if is_node(node) and "_obj_" not in node:
        try:
            return instantiate(node, "dataset", **extra)
        except ConfigMistake as mistake:
            at = "dataset.init_args" if "class_path" in node else "dataset"
            if takes in extra and mistake.key == join(at, takes):
                raise _not_taken(mistake, spec) from None
            raise
    found = instantiate(node, "dataset")
    if isinstance(found, type) or _is_function(found):
        return call(found, [], extra, "dataset")
    if extra:
        message = f"{_shown(node)} is made already, so it takes no transform"
        raise ConfigMistake("transform", message, "name its class with _target_")
    return found


def _not_taken(mistake: ConfigMistake, spec: dict[str, Any]) -> ConfigMistake:
    key = "transform_arg" if spec.get("transform_arg") else "transform"
    hint = mistake.hint
    if "takes:" in hint:
        hint += "; transform_arg names the one for the transform"
    return ConfigMistake(key, mistake.message, hint)


def _transform(value: Any) -> Any:
    made = instantiate(value, "transform")
    return compose(made, "transform") if isinstance(value, list) else made


def _shown(node: Any) -> str:
    return node if isinstance(node, str) else str(node.get("_obj_", node))


def _torch_loader(given: dict[str, Any], dataset: Any) -> Any:
    from torch.utils.data import DataLoader

    offer = {"data_source": dataset, "dataset": dataset}
    arguments = {}
    for name, value in given.items():
        key = join("loader", name)
        if name in {"sampler", "batch_sampler"}:
            arguments[name] = _sampler(value, key, offer)
        else:
            arguments[name] = instantiate(value, key)
    return call(DataLoader, [dataset], arguments, "loader")


def _sampler(value: Any, key: str, offer: Mapping[str, Any]) -> Any:
    """Make a sampler; a class or function is called with the dataset where it asks for it."""
    made = instantiate(value, key, offer)
    if not isinstance(made, type) and not _is_function(made):
        return made
    return instantiate({"_target_": value["_obj_"] if is_node(value) else value}, key, offer)


def _custom_loader(node: dict[str, Any], dataset: Any) -> Any:
    if "_obj_" in node:
        return _called(instantiate(node, "loader"), "loader")
    offer = {} if dataset is None else {"data_source": dataset, "dataset": dataset}
    given = node.get("init_args") or {} if "class_path" in node else node
    if dataset is None or "dataset" in given or node.get("_args_"):
        return instantiate(node, "loader", offer)
    from dlcheck.run.instantiate import find

    by = "_target_" if "_target_" in node else "class_path"
    made = find(node[by], join("loader", by))
    first = _first_parameter(made)
    if first is not None and first not in given:
        return instantiate(node, "loader", offer, **{first: dataset})
    return instantiate(node, "loader", offer)


def _first_parameter(function: Any) -> str | None:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return "dataset"
    for parameter in parameters:
        if parameter.kind in {parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY}:
            return parameter.name
    return "dataset"


def _from_datamodule(name: str, spec: dict[str, Any]) -> dict[str, Target]:
    module = instantiate(spec["datamodule"], "datamodule")
    if isinstance(module, type) or _is_function(module):
        module = call(module, [], {}, "datamodule")
    if not _is_datamodule(module):
        message = f"{_what(module)} is no LightningDataModule: it has no train_dataloader"
        raise ConfigMistake("datamodule", message)
    return dict(_targets(name, module, "datamodule", spec.get("role", "train")))


def _is_datamodule(found: Any) -> bool:
    return not isinstance(found, type) and all(
        callable(getattr(found, method, None)) for method in ("train_dataloader", "setup")
    )


def _loaders_of(module: Any, name: str, role: str) -> Any:
    """Call a datamodule as `Trainer.fit`, `validate` or `test` would."""
    test = _first_word(name) == "test"
    if callable(getattr(module, "prepare_data", None)):
        module.prepare_data()
    module.setup("test" if test else "fit")
    if test:
        return module.test_dataloader()
    return module.val_dataloader() if role == "eval" else module.train_dataloader()


def _is_function(found: Any) -> bool:
    return inspect.isroutine(found) or isinstance(found, functools.partial)


class Again:
    """The batches of a generator function, from the start at each epoch."""

    def __init__(self, function: Callable[[], Iterator[Any]]) -> None:
        self.function = function

    def __iter__(self) -> Iterator[Any]:
        return self.function()


def _called(found: Any, key: str) -> Any:
    """Call a function or class; an object that is a loader or dataset already stays."""
    if inspect.isgeneratorfunction(found):
        bind(found, [], {}, key)
        return Again(found)
    if isinstance(found, type) or _is_function(found):
        try:
            return call(found, [], {}, key)
        except ConfigMistake as mistake:
            hint = f"{mistake.hint}; write a function that takes none, or a dlcheck.yaml"
            raise ConfigMistake(key, f"{mistake.message}, and none is given", hint) from None
    if callable(found) and not _yields(found):
        return call(found, [], {}, key)
    return found


def _yields(found: Any) -> bool:
    return _is_datamodule(found) or any(
        hasattr(found, method) for method in ("__iter__", "__getitem__", "train")
    )


def _targets(
    name: str, found: Any, source: str, role: str = "train"
) -> Iterator[tuple[str, Target]]:
    """Name the loaders in what the user's code gave."""
    if _is_datamodule(found):
        found = _loaders_of(found, name, role)
    several = _several(found)
    if several is not None:
        yield from _each(name, several, source)
    elif _is_dataset(found):
        from torch.utils.data import DataLoader

        yield (
            name,
            Target(
                DataLoader(found, batch_size=BARE_BATCH, num_workers=0), found, bare_dataset=True
            ),
        )
    elif _is_loader(found):
        yield name, Target(found, _dataset_of(found))
    else:
        raise NoPipeline(f"{source} gives {_what(found)}; {WANTED}")


def _several(found: Any) -> dict[str, Any] | None:
    """Return the loaders of a container by name, None when it is one pipeline."""
    if _from_package(found, "fastai") and hasattr(found, "loaders"):
        loaders = list(found.loaders)
        names = ["train", "valid", *map(str, range(2, len(loaders)))]
        return dict(zip(names, loaders, strict=False))
    if isinstance(found, Mapping):
        return {str(key): one for key, one in found.items() if _pipeline(one)} or None
    if isinstance(found, tuple | list):
        names = [str(name) for name in getattr(found, "_fields", range(len(found)))]
        # A function may return more than loaders: `return train, val, num_classes`.
        loaders_in = {n: one for n, one in zip(names, found, strict=True) if _pipeline(one)}
        return loaders_in or None
    return None


def _each(name: str, several: dict[str, Any], source: str) -> Iterator[tuple[str, Target]]:
    if len(several) == 1:
        yield from _targets(name, next(iter(several.values())), source)
        return
    for key, one in several.items():
        yield from _targets(f"{name}.{key}" if name else key, one, source)


def _pipeline(found: Any) -> bool:
    """Tell a loader or dataset inside a container from batches, samples and settings."""
    if isinstance(found, str | bytes | tuple | list | Mapping | set | frozenset | range):
        return False
    return _is_dataset(found) or _is_loader(found)


def _is_dataset(found: Any) -> bool:
    from torch.utils.data import DataLoader, Dataset

    if isinstance(found, DataLoader):
        return False
    if isinstance(found, Dataset):
        # webdataset's WebLoader is an IterableDataset that yields batches.
        return not any(base.__name__.endswith("Loader") for base in type(found).__mro__)
    by_index = hasattr(found, "__getitem__") and hasattr(found, "__len__")
    named = any(base.__name__ == "Dataset" for base in type(found).__mro__)
    return by_index and not _plain(found) and (named or not hasattr(found, "__iter__"))


def _is_loader(found: Any) -> bool:
    from torch.utils.data import DataLoader

    if isinstance(found, DataLoader):
        return True
    if isinstance(found, list):
        return bool(found) and not isinstance(found[0], str | bytes | int | float | None)
    return hasattr(found, "__iter__") and not _plain(found) and not isinstance(found, type)


def _plain(found: Any) -> bool:
    """Tell data, models and files, which can be iterated too, from a loader."""
    if isinstance(found, DATA):
        return True
    known = {("torch", "Tensor"), ("torch.nn.modules.module", "Module"), ("numpy", "ndarray")}
    return any((base.__module__, base.__name__) in known for base in type(found).__mro__)


def _from_package(found: Any, package: str) -> bool:
    return any(base.__module__.partition(".")[0] == package for base in type(found).__mro__)


def _dataset_of(loader: Any) -> Any:
    try:
        return loader.dataset
    except Exception:  # noqa: BLE001 - a property of the user's may raise anything
        return None


def _what(found: Any) -> str:
    if found is None:
        return "None"
    if isinstance(found, ModuleType):
        return f"the module {found.__name__}"
    if isinstance(found, bool | int | float | str):
        return f"the {type(found).__name__} {found!r:.40}"
    if isinstance(found, Mapping | tuple | list) and not found:
        return f"an empty {type(found).__name__}"
    return f"an object of {type(found).__module__}.{called(type(found))}"
