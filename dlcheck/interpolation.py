"""`${...}` in a config: OmegaConf's interpolations, and `${obj:name}` for an object."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from dlcheck.document import DEEPEST, MOST_NODES, Mistake, join, nearest

OBJECT = "\0obj:"
# The user's own process may have a resolver called obj; ours comes and goes under another name.
RESOLVER = "dlcheck_obj"


def resolve(values: dict[str, Any]) -> dict[str, Any]:
    """Replace every interpolation; `${obj:torch.float32}` becomes {"_obj_": "torch.float32"}.

    Raises:
        Mistake: an unknown key, variable or resolver, a circle, a value still missing (`???`).
    """
    if not _any_text(values, lambda text: "${" in text or text == "???"):
        return values
    from omegaconf import OmegaConf

    rewritten = _rewrite(values, lambda text: text.replace("${obj:", f"${{{RESOLVER}:"))
    _check_grammar(rewritten, "")
    _register(OmegaConf)
    try:
        walk = _Walk(list(_paths(values, "")))
        resolved: dict[str, Any] = walk.value(OmegaConf.create(rewritten), "")
    finally:
        OmegaConf.clear_resolver(RESOLVER)
    return resolved


def _register(conf: Any) -> None:
    with warnings.catch_warnings():
        # OmegaConf 2.4 renames the function; 2.2's function of the new name is another one.
        warnings.simplefilter("ignore")
        register = getattr(conf, "register_new_resolver", None) or conf.register_resolver
        register(RESOLVER, lambda *names: f"{OBJECT}{','.join(map(str, names))}\0", replace=True)


def _any_text(value: Any, test: Callable[[str], bool]) -> bool:
    if isinstance(value, dict):
        return any(_any_text(item, test) for item in value.values())
    if isinstance(value, list):
        return any(_any_text(item, test) for item in value)
    return isinstance(value, str) and test(value)


def _rewrite(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, dict):
        return {key: _rewrite(item, change) for key, item in value.items()}
    if isinstance(value, list):
        return [_rewrite(item, change) for item in value]
    return change(value) if isinstance(value, str) else value


def _paths(value: Any, path: str) -> Iterator[str]:
    if path:
        yield path
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _paths(item, join(path, key))


def _check_grammar(value: Any, path: str) -> None:
    """Find the key of a `${` that does not parse, which OmegaConf refuses as a whole."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        where = join(path, key)
        if isinstance(item, dict | list):
            _check_grammar(item, where)
        elif isinstance(item, str) and "${" in item:
            try:
                OmegaConf.create({"x": item})
            except OmegaConfBaseException as error:
                shown = item.replace(RESOLVER, "obj")
                hint = "write ${other.key}, ${oc.env:NAME,default} or ${obj:torch.float32}"
                raise Mistake(where, f"{shown!r} is no interpolation", hint) from error


class _Walk:
    """Reads an OmegaConf container to plain values, key by key, so that errors have one."""

    def __init__(self, paths: list[str]) -> None:
        self.count = 0
        self.paths = paths

    def value(self, node: Any, path: str, depth: int = 0) -> Any:
        from omegaconf import DictConfig, ListConfig

        self.count += 1
        if depth > DEEPEST or self.count > MOST_NODES:
            raise Mistake(path, "circular interpolation: the value holds itself")
        if isinstance(node, DictConfig):
            return {
                str(key): self.value(self.item(node, key, path), join(path, str(key)), depth + 1)
                for key in node
            }
        if isinstance(node, ListConfig):
            return [
                self.value(self.item(node, number, path), join(path, number), depth + 1)
                for number in range(len(node))
            ]
        return self.leaf(node, path)

    def item(self, node: Any, key: Any, path: str) -> Any:
        from omegaconf.errors import OmegaConfBaseException

        try:
            return node[key]
        except (OmegaConfBaseException, RecursionError) as error:
            message, hint = _say(error, self.paths)
            raise Mistake(join(path, key), message, hint) from error

    def leaf(self, value: Any, path: str) -> Any:
        if value is None or isinstance(value, bool | int | float):
            return value
        if not isinstance(value, str):
            raise Mistake(path, f"the interpolation gives a {type(value).__name__}, not plain data")
        if value.startswith(OBJECT) and value.count("\0") == len("\0\0"):
            return {"_obj_": value[len(OBJECT) : -1]}
        if "\0" in value:
            raise Mistake(path, "${obj:...} stands for an object: nothing else fits in the value")
        return value.replace(RESOLVER, "obj")


def _say(error: Exception, paths: list[str]) -> tuple[str, str]:
    """Say what OmegaConf found, in one line."""
    text = str(error).split("\n", 1)[0]
    if isinstance(error, RecursionError) or re.search(r"Recursive|parent node", text):
        return "circular interpolation", ""
    if "issing" in text and "mandatory" in text.lower():
        return "`???` stands for a value that is still to be given", "give it here or as key=value"
    if variable := re.search(r"Environment variable '(.*?)' not found", text):
        name = variable[1]
        hint = f"set it, or give a default: ${{oc.env:{name},default}}"
        return f"the environment variable {name} is not set", hint
    if key := re.search(r"Interpolation key '(.*?)' not found", text):
        hint = "an interpolation names a key from the top of the file, as in ${loader.batch_size}"
        return f"${{{key[1]}}} names no key of this config{nearest(key[1], paths)}", hint
    if kind := re.search(r"Unsupported interpolation type (\S+)", text):
        return f"there is no resolver {kind[1]!r}", "use oc.env, oc.decode, oc.select or obj"
    return text.replace(RESOLVER, "obj"), ""
