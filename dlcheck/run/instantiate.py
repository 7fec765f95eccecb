"""Makes the objects that a config names, as Hydra (`_target_`) and LightningCLI (`class_path`) do.

Whatever the user's code raises passes through untouched; ConfigMistake is only for what the
config itself gets wrong: a name that does not exist, arguments that cannot be bound.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import importlib.util
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType, TracebackType
from typing import Any

NAMED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
OBJECT_KEYS = {
    "loader", "collate_fn", "worker_init_fn", "sampler", "batch_sampler", "step", "epoch_hook",
    "dataset", "datamodule", "transform", "model", "loss", "optimizer", "object", "generator",
    "multiprocessing_context",
}  # fmt: skip
NODE_KEYS = {"_target_", "_args_", "_partial_", "_convert_", "_recursive_"}


class ConfigMistake(Exception):  # noqa: N818 - the user's mistake, not an error of ours
    """The config asks for what cannot be had; `key` is dotted and relative to the split."""

    def __init__(self, key: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.key = key
        self.message = message
        self.hint = hint


def join(key: str, part: str | int) -> str:
    """Append to a dotted key."""
    return f"{key}.{part}" if key else str(part)


def is_node(value: Any) -> bool:
    """Tell whether a value says how to make an object."""
    return isinstance(value, dict) and not {"_target_", "class_path", "_obj_"}.isdisjoint(value)


def instantiate(value: Any, key: str, offer: Mapping[str, Any] | None = None, **extra: Any) -> Any:
    """Make what `value` describes; plain values come back as they are.

    Args:
        value: a node, a name, or plain data with nodes anywhere in it.
        key: where it stands in the config, for errors.
        offer: given to whatever has a required parameter of that name, left unfilled.
        extra: keyword arguments for the outermost call, unless the node gives them.

    Raises:
        ConfigMistake: a name that does not exist, or arguments that cannot be bound.
    """
    offer = offer or {}
    if isinstance(value, list):
        return [instantiate(one, join(key, index), offer) for index, one in enumerate(value)]
    if isinstance(value, str):
        return _text(value, key)
    if not isinstance(value, dict):
        return value
    if not is_node(value):
        return {name: instantiate(one, join(key, name), offer) for name, one in value.items()}
    if "_obj_" in value:
        return find(value["_obj_"], key)
    return _make(value, key, offer, extra)


def _make(
    node: dict[str, Any], key: str, offer: Mapping[str, Any], extra: Mapping[str, Any]
) -> Any:
    named_by = "_target_" if "_target_" in node else "class_path"
    made = find(node[named_by], join(key, named_by))
    if named_by == "_target_":
        given, at = {k: v for k, v in node.items() if k not in NODE_KEYS}, key
    else:
        given, at = dict(node.get("init_args") or {}), join(key, "init_args")
    positional = node.get("_args_") or []
    if node.get("_recursive_", True):
        positional = instantiate(positional, join(key, "_args_"), offer)
        given = {k: instantiate(v, join(at, k), offer) for k, v in given.items()}
    given = {**extra, **given}
    if node.get("_partial_"):
        bind(made, positional, given, at, partial=True)
        return functools.partial(made, *positional, **given)
    for name in _unfilled(made, positional, given):
        if name in offer:
            given[name] = offer[name]
    return call(made, positional, given, at)


def _text(value: str, key: str) -> Any:
    """Look up `module:attribute` where a key takes an object, or where it plainly is one."""
    last = key.rpartition(".")[2]
    if not NAMED.fullmatch(value):
        return value
    if last in OBJECT_KEYS or last.endswith("_fn"):
        return find(value, key)
    module, _, attribute = value.partition(":")
    if not _exists(module.partition(".")[0]):
        return value
    try:
        return find(value, key)
    except ConfigMistake:
        names = dir(sys.modules[module]) if module in sys.modules else []
        if difflib.get_close_matches(attribute, names, n=1, cutoff=0.75):
            raise
        return value


def _exists(module: str) -> bool:
    try:
        return module in sys.modules or importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def find(name: str, key: str) -> Any:
    """Return the object called `package.module.Class`, `module:attribute` or a module's own name.

    Raises:
        ConfigMistake: no such module or attribute.
    """
    module, colon, attributes = name.partition(":")
    if colon:
        return _descend(import_module(module, key), attributes.split("."), key)
    first, *rest = name.split(".")
    return _descend(import_module(first, key), rest, key)


def _descend(owner: Any, parts: list[str], key: str) -> Any:
    for part in parts:
        try:
            owner = getattr(owner, part)
        except AttributeError as error:
            if not _is_ours(error.__traceback__):
                raise
            if not hasattr(owner, "__path__"):
                raise _no_attribute(owner, part, key) from None
            owner = _submodule(owner, part, key)
    return owner


def _submodule(package: ModuleType, part: str, key: str) -> Any:
    name = f"{package.__name__}.{part}"
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name or not _is_ours(error.__traceback__):
            raise
        raise _no_attribute(package, part, key) from None


def _no_attribute(owner: Any, part: str, key: str) -> ConfigMistake:
    names = [name for name in dir(owner) if not name.startswith("_")]
    if isinstance(owner, ModuleType):
        names += _modules_in(getattr(owner, "__path__", ()))
        what = f"the module {owner.__name__}"
    else:
        what = getattr(owner, "__qualname__", type(owner).__name__)
    hint = ""
    if isinstance(owner, ModuleType) and _belongs_to_user(owner):
        own = [
            n for n in names if getattr(getattr(owner, n, None), "__module__", "") == owner.__name__
        ]
        hint = f"it defines: {', '.join(own[:12])}" if own else ""
    return ConfigMistake(key, f"{what} has no {part!r}{nearest(part, names)}", hint)


def nearest(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean x?` for the nearest spelling, or nothing."""
    by_lower = {one.lower(): one for one in known}
    found = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    return f"; did you mean {by_lower[found[0]]}?" if found else ""


def _modules_in(path: Iterable[str]) -> list[str]:
    import pkgutil

    return [module.name for module in pkgutil.iter_modules(list(path))]


def _folder() -> str:
    """Return the import root: the parent puts the target's folder first."""
    return os.path.realpath(sys.path[0] if sys.path else "")


def _belongs_to_user(module: ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    return file is not None and os.path.realpath(file).startswith(_folder() + os.sep)


def import_module(name: str, key: str) -> ModuleType:
    """Import by name; only "there is no such module" is a ConfigMistake.

    Raises:
        ConfigMistake: no such module, or another one has taken its name.
    """
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        asked = name == missing or name.startswith(f"{missing}.")
        if not missing or not asked or not _is_ours(error.__traceback__):
            raise
        _refuse_shadowed(name, key)
        raise _no_module(missing, key) from None
    _refuse_shadowed(name, key)
    return module


def _no_module(missing: str, key: str) -> ConfigMistake:
    parent, _, last = missing.rpartition(".")
    path = getattr(sys.modules.get(parent), "__path__", ()) if parent else [_folder()]
    near = nearest(last, _modules_in(path))
    if near and parent:
        near = near.replace("did you mean ", f"did you mean {parent}.")
    message = f"there is no module {missing!r}{near}"
    if parent and not path:
        message = f"{parent!r} is a module, not a package: it holds no module {last!r}"
    hint = f"modules are looked for in {_folder()} and in {sys.executable}'s packages"
    return ConfigMistake(key, message, hint)


def _refuse_shadowed(name: str, key: str) -> None:
    """Refuse a name that another file took before the user's could: `types`, `test`, `random`."""
    first = name.partition(".")[0]
    own = [os.path.join(_folder(), *tail) for tail in ((f"{first}.py",), (first, "__init__.py"))]  # noqa: PTH118
    wanted = next((path for path in own if os.path.isfile(path)), None)  # noqa: PTH113
    module = sys.modules.get(first)
    if wanted is None or module is None:
        return
    taken = getattr(module, "__file__", None)
    if taken is not None and os.path.realpath(taken) in {os.path.realpath(path) for path in own}:
        return
    other = taken or "built into Python"
    message = f"{wanted} cannot be imported: the name {first!r} is taken by another module"
    raise ConfigMistake(key, message, f"rename the file; {first} is {other}")


def _is_ours(trace: TracebackType | None) -> bool:
    """Tell whether an import or a look-up itself failed, not code that it ran."""
    here = {__file__, importlib.__file__}
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if file not in here and not file.startswith("<frozen importlib"):
            return False
        trace = trace.tb_next
    return True


def _signatures(function: Callable[..., Any]) -> list[inspect.Signature]:
    """Return what the function says it takes, and what a decorator around it takes."""
    found = []
    for follow in (True, False):
        try:
            found.append(inspect.signature(function, follow_wrapped=follow))
        except (ValueError, TypeError):
            continue
    return found


def _unfilled(
    function: Callable[..., Any], positional: list[Any], given: dict[str, Any]
) -> list[str]:
    signatures = _signatures(function)
    if not signatures:
        return []
    left = list(signatures[0].parameters.values())
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [
        parameter.name
        for index, parameter in enumerate(left)
        if parameter.kind in named
        and parameter.default is parameter.empty
        and parameter.name not in given
        and (parameter.kind is named[1] or index >= len(positional))
    ]


def bind(
    function: Callable[..., Any],
    positional: list[Any],
    given: dict[str, Any],
    key: str,
    *,
    partial: bool = False,
) -> None:
    """Raise ConfigMistake when no signature of the function takes these arguments."""
    if not callable(function):
        raise ConfigMistake(key, f"{called(function)} is a {type(function).__name__}, not callable")
    refused: TypeError | None = None
    signatures = _signatures(function)
    for signature in signatures:
        try:
            (signature.bind_partial if partial else signature.bind)(*positional, **given)
        except TypeError as error:
            refused = refused or error
        else:
            return
    if refused is not None:
        raise _refusal(function, signatures[0], given, key, refused) from None


def _refusal(
    function: Callable[..., Any],
    signature: inspect.Signature,
    given: dict[str, Any],
    key: str,
    refused: TypeError,
) -> ConfigMistake:
    named = [
        parameter.name
        for parameter in signature.parameters.values()
        if parameter.kind in {parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY}
    ]
    hint = f"it takes: {', '.join(named)}" if named else "it takes no arguments"
    for name in given:
        if name not in named and f"'{name}'" in str(refused):
            message = f"{called(function)} takes no argument {name!r}{nearest(name, named)}"
            return ConfigMistake(join(key, name), message, hint)
    missing = re.search(r"missing a required (?:\S+ )?argument: '(\w+)'", str(refused))
    if missing:
        return ConfigMistake(key, f"{called(function)} needs an argument {missing[1]!r}", hint)
    return ConfigMistake(key, f"{called(function)}: {refused}", hint)


def called(function: Any) -> str:
    """Return the short name of a class or function."""
    return str(getattr(function, "__qualname__", None) or type(function).__qualname__)


def call(
    function: Callable[..., Any], positional: list[Any], given: dict[str, Any], key: str
) -> Any:
    """Call it; wrong arguments are a ConfigMistake, what it raises itself is not.

    Raises:
        ConfigMistake: the arguments cannot be bound.
    """
    bind(function, positional, given, key)
    try:
        return function(*positional, **given)
    except TypeError as error:
        trace = error.__traceback__
        # Refused before a line of it ran: built-in, or a constructor that hides its signature.
        if trace is not None and trace.tb_next is None and not _signatures(function):
            raise ConfigMistake(key, f"{called(function)}: {error}") from error
        raise
