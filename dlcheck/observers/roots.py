"""Where the user's objects begin, and what each of them holds by name. No code of theirs runs."""

from __future__ import annotations

import contextlib
import functools
import gc
import sys
import threading
import types
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dlcheck.observers.sizes import is_a
from dlcheck.run.failures import is_user

OPAQUE = (type, types.ModuleType, types.CodeType, types.BuiltinFunctionType)
OURS, EXAMPLES = "dlcheck.", "dlcheck.examples."
# Of our own, these stand between the pipeline and what the user's config names.
BETWEEN = frozenset({
    "dlcheck.run.stages.Stages", "dlcheck.run.step.Numbered", "dlcheck.run.step.Lightning",
    "dlcheck.run.target.Again", "dlcheck.run.hooks.WorkerInit",
})  # fmt: skip


@dataclass
class Root:
    """Where a walk begins. `name` is how the user writes it: `self` for the dataset."""

    full: str
    value: Any
    owner: str
    name: str = "self"
    kind: str = ""
    key: Any = None
    holder: Any = None


def thread_name(thread: threading.Thread) -> str:
    """Name a thread by its class, or by what it runs."""
    if type(thread) is not threading.Thread:
        return type(thread).__name__
    target = getattr(thread, "_target", None)
    return str(getattr(target, "__qualname__", "") or thread.name.partition("-")[0])


def is_opaque(value: Any) -> bool:
    """Tell modules, classes and code, which hold what others hold too, and objects of our own."""
    if is_a(value, OPAQUE):
        return True
    kind = type(value)
    module = str(kind.__module__)
    if not module.startswith(OURS) or module.startswith(EXAMPLES):
        return False
    return f"{module}.{kind.__qualname__}" not in BETWEEN


def referents(value: Any) -> list[Any]:
    """List what an object refers to; of functions only what their closures hold."""
    if is_a(value, types.FunctionType):
        return [*(value.__closure__ or ()), *(value.__defaults__ or ())]
    if is_a(value, types.MethodType):
        return [value.__self__]
    return gc.get_referents(value)


def vars_of(value: Any) -> dict[str, Any]:
    """Return an object's own attributes, without running a property or `__getattr__`."""
    found = dict_of(value)
    return {} if found is None else dict(found)


def dict_of(value: Any) -> dict[str, Any] | None:
    try:
        found = object.__getattribute__(value, "__dict__")
    except Exception:  # noqa: BLE001 - a __dict__ property may raise anything
        return None
    return found if isinstance(found, dict) else None


def inside(value: Any) -> Iterator[tuple[str, Any, Any, str]]:
    """Yield the named parts of an object: (kind, key, value, as written)."""
    if is_a(value, types.MethodType):
        yield "self", None, value.__self__, "self"
        value = value.__func__
    if is_a(value, types.FunctionType):
        yield from _of_function(value)
    elif is_a(value, types.GeneratorType):
        frame = value.gi_frame
        for name, inner in dict(frame.f_locals if frame is not None else {}).items():
            yield "local", name, inner, name
    elif is_a(value, functools.partial):
        yield "partial", "func", value.func, "func"
        for number, inner in enumerate(value.args):
            yield "partial", number, inner, f"args[{number}]"
        for name, inner in value.keywords.items():
            yield "partial", name, inner, name
    else:
        for name, inner in vars_of(value).items():
            yield "attribute", name, inner, str(name)
        for name, inner in _slots(value):
            yield "attribute", name, inner, name


def _of_function(function: types.FunctionType) -> Iterator[tuple[str, Any, Any, str]]:
    code = function.__code__
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=False):
        with contextlib.suppress(ValueError):
            yield "cell", cell, cell.cell_contents, name
    defaults = function.__defaults__ or ()
    takers = code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount]
    for name, inner in [*zip(takers, defaults, strict=False), *_keywords(function)]:
        yield "default", name, inner, name
    for name, inner in dict(vars(function)).items():
        if name != "__wrapped__":
            yield "attribute", name, inner, f"{function.__name__}.{name}"
        elif is_a(inner, types.FunctionType):
            yield from _of_function(inner)


def _keywords(function: types.FunctionType) -> list[tuple[str, Any]]:
    return list((function.__kwdefaults__ or {}).items())


def _slots(value: Any) -> Iterator[tuple[str, Any]]:
    for base in type(value).__mro__:
        slots = base.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else tuple(slots or ()):
            member = base.__dict__.get(name)
            if isinstance(member, types.MemberDescriptorType):
                with contextlib.suppress(AttributeError):
                    yield name, member.__get__(value)


def roots_of(target: Any, step: Any = None, iterator: Any = None) -> list[Root]:
    """List where the user's objects begin: the pipeline's parts, the user's modules."""
    loader = target.loader
    found = [Root("dataset", target.dataset, "dataset")] if target.dataset is not None else []
    parts = {
        "collate_fn": "collate", "sampler": "sampler", "batch_sampler": "sampler",
        "worker_init_fn": "loader", "generator": "loader",
    }  # fmt: skip
    for name, owner in parts.items():
        part = vars_of(loader).get(name)
        if part is not None:
            found.append(Root(name, part, owner))
    if step is not None:
        found.append(Root("step", step, "step"))
    if target.epoch_hook is not None:
        found.append(Root("epoch_hook", target.epoch_hook, "loader"))
    for module in user_modules():
        found += _of_module(module)
    found.append(Root("loader", loader, "loader"))
    if iterator is not None:
        found.append(Root("iterator", iterator, "loader"))
    return [root for root in found if not is_a(root.value, OPAQUE)]


def user_modules() -> list[types.ModuleType]:
    """List the modules that are the user's own files."""
    names = _users(len(sys.modules), next(reversed(sys.modules)))
    return [sys.modules[name] for name in names if name in sys.modules]


@functools.lru_cache(maxsize=1)
def _users(count: int, last: str) -> tuple[str, ...]:
    """Name them, anew when modules came or went: to look at each copies its page in a worker."""
    del count, last
    return tuple(
        name
        for name, module in list(sys.modules.items())
        if is_a(module, types.ModuleType)
        and isinstance(getattr(module, "__file__", None), str)
        and is_user(str(module.__file__))
    )


def _of_module(module: types.ModuleType) -> Iterator[Root]:
    """Yield globals of a user's module, attributes of its classes, and its functions' own state."""
    for name, value in list(vars(module).items()):
        if name.startswith("__") or is_a(value, types.ModuleType):
            continue
        if is_a(value, type):
            if value.__module__ == module.__name__:
                yield from _of_class(value, module.__name__)
            continue
        elsewhere = getattr(value, "__module__", None) not in (None, module.__name__)
        if is_a(value, types.FunctionType) and elsewhere:
            continue
        full = f"{module.__name__}.{name}"
        yield Root(full, value, "module", name, "global", name, module)


def _of_class(kind: type, module: str) -> Iterator[Root]:
    for name, value in list(vars(kind).items()):
        if name.startswith("__") and not is_a(value, types.FunctionType):
            continue
        shown = f"{kind.__name__}.{name}"
        inner = value
        if is_a(value, staticmethod | classmethod):
            inner = value.__func__
        elif is_a(value, property):
            inner = value.fget
        elif is_a(value, functools.cached_property):
            inner = value.func
        if inner is not None:
            yield Root(f"{module}.{shown}", inner, "module", shown, "class", name, kind)


def items_of(value: Any) -> Iterator[Any]:
    """Iterate over a container as its built-in type does."""
    for base in (list, tuple, set, frozenset, deque):
        if is_a(value, base):
            return iter(base.__iter__(value))
    return iter(())
