"""What a config may hold: every key, its type, its values.

A check takes a value and its dotted path, and raises Mistake.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from dlcheck.document import Mistake, describe, join, nearest

Check = Callable[[Any, str], None]

NAMED_OBJECT = re.compile(r"[A-Za-z_][\w-]*(\.[\w-]+)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
DOTTED = re.compile(r"[A-Za-z_][\w-]*(\.[A-Za-z_][\w-]*)*(:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*)?")
NODE_KEYS = ("_target_", "_args_", "_partial_", "_convert_", "_recursive_")
PATH_KEYS = ("class_path", "init_args")


def wrong(value: Any, path: str, wanted: str, hint: str = "") -> Mistake:
    """Build the error for a value of another type or outside what is allowed."""
    if isinstance(value, str) and re.fullmatch(r"[-+.\d]+(e[-+]?\d+)?", value) and not hint:
        hint = "it is text: take away the quotes, or wrap ${oc.env:...} in ${oc.decode:...}"
    return Mistake(path, f"found {describe(value)}; wanted {wanted}", hint)


def is_number(value: Any) -> bool:
    """Tell whether it is a number; true and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_whole(value: Any) -> bool:
    """Tell whether it is an int; true and false are none."""
    return isinstance(value, int) and not isinstance(value, bool)


def _when(test: Callable[[Any], bool], wanted: str) -> Check:
    def check(value: Any, path: str) -> None:
        if not test(value):
            raise wrong(value, path, wanted)

    return check


def nullable(check: Check) -> Check:
    """Allow null too, which is how an argument is set to None."""
    return lambda value, path: None if value is None else check(value, path)


text = _when(lambda v: isinstance(v, str) and v != "", "text")
flag = _when(lambda v: isinstance(v, bool), "true or false")
whole = _when(is_whole, "a whole number")
number = _when(is_number, "a number")
positive = _when(lambda v: is_number(v) and v > 0, "a number above 0")
count = _when(lambda v: is_whole(v) and v > 0, "a whole number above 0")


def one_of(*names: str, wanted: str = "") -> Check:
    """Allow these words only."""

    def check(value: Any, path: str) -> None:
        if value in names and isinstance(value, str):
            return
        near = nearest(value, names) if isinstance(value, str) else ""
        raise Mistake(path, f"found {describe(value)}; wanted {wanted or _listed(names)}{near}")

    return check


def _listed(names: Collection[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last


def every(check: Check, wanted: str) -> Check:
    """Allow a list whose items pass."""

    def each(value: Any, path: str) -> None:
        if not isinstance(value, list):
            raise wrong(value, path, wanted)
        for index, item in enumerate(value):
            check(item, join(path, index))

    return each


def keyed(keys: Mapping[str, Check], wanted: str = "") -> Check:
    """Allow a mapping of these keys."""
    wanted = wanted or f"a mapping of {', '.join(keys)}"

    def check(value: Any, path: str) -> None:
        if not isinstance(value, dict):
            raise wrong(value, path, wanted)
        for key, item in value.items():
            if key not in keys:
                raise unknown(key, path, keys)
            keys[key](item, join(path, key))

    return check


def unknown(key: str, path: str, known: Collection[str]) -> Mistake:
    """Build the error for a key that does not belong."""
    return Mistake(
        join(path, key), f"unknown key{nearest(key, known)}", f"allowed here: {', '.join(known)}"
    )


def named(check: Check, wanted: str) -> Check:
    """Allow a mapping from any name to what passes."""

    def each(value: Any, path: str) -> None:
        if not isinstance(value, dict):
            raise wrong(value, path, wanted)
        for key, item in value.items():
            if not key:
                raise Mistake(path, "found an empty name")
            check(item, join(path, key))

    return each


def is_node(value: Any) -> bool:
    """Tell whether a value says how to make an object."""
    return isinstance(value, dict) and not {"_target_", "class_path", "_obj_"}.isdisjoint(value)


def free(value: Any, path: str) -> None:
    """Allow anything; what makes an object in it is checked."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            free(item, join(path, index))
    elif isinstance(value, dict):
        if is_node(value):
            _node_keys(value, path)
        for key, item in value.items():
            free(item, join(path, key))


def _node_keys(value: dict[str, Any], path: str) -> None:
    if "_target_" in value and "class_path" in value:
        message = "found _target_ and class_path; wanted one of them"
        raise Mistake(join(path, "class_path"), message)
    if "_obj_" in value:
        keyed({"_obj_": _dotted})(value, path)
    elif "class_path" in value:
        keyed({"class_path": _dotted, "init_args": nullable(_arguments)})(value, path)
    else:
        for key, item in value.items():
            if re.fullmatch(r"_[a-z]+_", key) and key not in NODE_KEYS:
                raise unknown(key, path, NODE_KEYS)
            _TARGET.get(key, _anything)(item, join(path, key))


def _anything(value: Any, path: str) -> None:
    """Leave an argument to the user's code."""


def _dotted(value: Any, path: str) -> None:
    if isinstance(value, str) and value.endswith(".py"):
        raise wrong(value, path, "a name such as cats.data.Cats, not a file")
    if not isinstance(value, str) or not DOTTED.fullmatch(value):
        raise wrong(value, path, "a name such as cats.data.Cats")


_arguments = named(_anything, "a mapping of arguments")
_TARGET: dict[str, Check] = {
    "_target_": _dotted,
    "_args_": every(_anything, "a list of arguments"),
    "_partial_": flag,
    "_recursive_": flag,
    "_convert_": one_of("none", "partial", "object", "all"),
}


def node(value: Any, path: str) -> None:
    """Allow a mapping with _target_ or class_path, or the name of an object."""
    if isinstance(value, str):
        name(value, path, "a mapping with _target_, or module:attribute")
        return
    if not isinstance(value, dict):
        raise wrong(value, path, "a mapping with _target_, or module:attribute")
    if not is_node(value):
        raise _no_target(value, path)
    free(value, path)


def _no_target(value: dict[str, Any], path: str) -> Mistake:
    for key in value:
        near = nearest(key, ("_target_", "class_path"))
        if near:
            return Mistake(join(path, key), f"unknown key{near}")
    hint = "as in {_target_: cats.data.Cats, root: data} or {class_path: ..., init_args: {...}}"
    return Mistake(path, "no _target_ (nor class_path) says what to make", hint)


def name(value: str, path: str, wanted: str) -> None:
    """Allow `module:attribute`."""
    module, colon, attribute = value.rpartition(":")
    if module.endswith(".py"):
        shown = module.removesuffix(".py").replace("/", ".").lstrip(".")
        raise wrong(value, path, f"a module's name; did you mean {shown}:{attribute}?")
    if NAMED_OBJECT.fullmatch(value):
        return
    near = ""
    if not colon and re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", value):
        near = "; did you mean {}:{}?".format(*value.rsplit(".", 1))
    raise wrong(value, path, f"{wanted}{near}")


optional_node = nullable(node)


def transform(value: Any, path: str) -> None:
    """Allow one object, or a list that becomes a Compose."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            node(item, join(path, index))
    elif value is not None:
        node(value, path)


def _sampler(value: Any, path: str) -> None:
    if isinstance(value, list):
        free(value, path)
    else:
        optional_node(value, path)


def _context(value: Any, path: str) -> None:
    if isinstance(value, str):
        one_of("fork", "spawn", "forkserver")(value, path)
    else:
        optional_node(value, path)


LOADER: dict[str, Check] = {
    "batch_size": nullable(whole),
    "shuffle": nullable(flag),
    "sampler": _sampler,
    "batch_sampler": _sampler,
    "num_workers": whole,
    "collate_fn": optional_node,
    "pin_memory": flag,
    "drop_last": flag,
    "timeout": number,
    "worker_init_fn": optional_node,
    "multiprocessing_context": _context,
    "generator": optional_node,
    "prefetch_factor": nullable(whole),
    "persistent_workers": flag,
    "pin_memory_device": text,
    "in_order": flag,
}
_loader_arguments = keyed(LOADER, "DataLoader's arguments, or module:attribute")


def loader(value: Any, path: str) -> None:
    """Allow DataLoader's arguments, a function's name, or another class with its own."""
    if isinstance(value, str) or is_node(value):
        node(value, path)
    elif value is not None:
        _loader_arguments(value, path)
