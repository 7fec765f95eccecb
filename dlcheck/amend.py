"""Values put into the text of a YAML file, the rest of which stays as the user wrote it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dlcheck.document import Mistake

if TYPE_CHECKING:
    import yaml

STEP = 2
PLAIN = re.compile(r"[A-Za-z_][\w.-]*")
# Words that YAML 1.1 reads as something else, in any case.
TAKEN = {"null", "true", "false", "yes", "no", "on", "off", "y", "n", "nan", "inf"}


def put(text: str, path: Sequence[str], value: Any) -> str:
    """Set the value at a path of keys, making the mappings on the way.

    Raises:
        Mistake: the path goes through something that is no mapping, or the text is no YAML.
    """
    root = _compose(text)
    if root is None or _is_null(root):
        return text.rstrip() + ("\n" if text.strip() else "") + _block(path, value, 0) + "\n"
    node, rest = _found(root, path)
    if not rest or _is_null(node):
        return _replace(text, node, _nested(rest, value))
    if not _is_mapping(node):
        raise Mistake(".".join(path), "stands in something that has no keys")
    return _insert(text, node, rest, value)


def drop(text: str, path: Sequence[str]) -> str:
    """Remove a key with its value, where it is there.

    Raises:
        Mistake: the text is no YAML.
    """
    root = _compose(text)
    if root is None:
        return text
    owner, rest = _found(root, path[:-1])
    pair = None if rest or not _is_mapping(owner) else _pair(owner, path[-1])
    if pair is None:
        return text
    if owner.flow_style or len(owner.value) == 1:
        left = {key.value: _plain(text, value) for key, value in owner.value if key is not pair[0]}
        inner = ", ".join(f"{scalar(key)}: {raw}" for key, raw in left.items())
        return _replace(text, owner, "{" + inner + "}")
    start = text.rindex("\n", 0, pair[0].start_mark.index) + 1 if pair[0].start_mark.line else 0
    return text[:start] + text[_line_end(text, _end(pair[1])) :].removeprefix("\n")


def flow(value: Any) -> str:
    """Render a value on one line: `{shape: [3, 64, 64], dtype: float32}`."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{scalar(str(k))}: {flow(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(flow(item) for item in value) + "]"
    if value is None or isinstance(value, bool | int):
        return json.dumps(value)
    if isinstance(value, float):
        special = {math.inf: ".inf", -math.inf: "-.inf"}.get(value, ".nan")
        return _float(value) if math.isfinite(value) else special
    return scalar(str(value))


def scalar(text: str) -> str:
    """Render text, in quotes where YAML would take it for something else."""
    if PLAIN.fullmatch(text) and text.lower() not in TAKEN:
        return text
    return json.dumps(text, ensure_ascii=False)


def _float(value: float) -> str:
    """Render a float that YAML 1.1 reads as one: 1e-07 has no point there."""
    text = repr(value)
    mantissa, e, exponent = text.partition("e")
    if not e:
        return text
    sign = "" if exponent[0] in "+-" else "+"
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}e{sign}{exponent}"


def _compose(text: str) -> yaml.Node | None:
    import yaml

    try:
        return yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise Mistake("", f"bad YAML: {error}") from error


def _found(node: yaml.Node, path: Sequence[str]) -> tuple[Any, list[str]]:
    """Go down as far as there are keys; returns the node and what is left of the path."""
    rest = list(path)
    while rest and _is_mapping(node):
        pair = _pair(node, rest[0])
        if pair is None:
            break
        node, rest = pair[1], rest[1:]
    return node, rest


def _pair(node: Any, key: str) -> tuple[Any, Any] | None:
    return next((pair for pair in node.value if pair[0].value == key), None)


def _is_mapping(node: Any) -> bool:
    return node.id == "mapping" if hasattr(node, "id") else False


def _is_null(node: Any) -> bool:
    return str(node.tag) == "tag:yaml.org,2002:null"


def _nested(path: Sequence[str], value: Any) -> str:
    for key in reversed(path):
        value = {key: value}
    return flow(value)


def _block(path: Sequence[str], value: Any, column: int) -> str:
    """Render keys a line each, and what stands under the last of them a line an item."""
    lines = [f"{' ' * (column + STEP * n)}{scalar(key)}:" for n, key in enumerate(path)]
    deeper = column + STEP * len(path)
    if isinstance(value, dict) and any(isinstance(item, dict) for item in value.values()):
        lines += [f"{' ' * deeper}{scalar(str(k))}: {flow(v)}" for k, v in value.items()]
    else:
        lines[-1] += f" {flow(value)}"
    return "\n".join(lines)


def _replace(text: str, node: Any, new: str) -> str:
    start, end = node.start_mark.index, _end(node)
    # An empty value begins right after its colon.
    space = " " if start == end and text[:start].endswith(":") else ""
    return text[:start] + space + new + text[end:]


def _insert(text: str, owner: Any, path: Sequence[str], value: Any) -> str:
    if owner.flow_style:
        close = owner.end_mark.index - 1
        comma = ", " if owner.value and not text[:close].rstrip().endswith(",") else ""
        key, rest = path[0], path[1:]
        before = text[:close].rstrip()
        return f"{before}{comma}{scalar(key)}: {_nested(rest, value)}{text[close:]}"
    at = _line_end(text, _end(owner))
    new = _block(path, value, owner.start_mark.column)
    return f"{text[:at]}\n{new}{text[at:] or chr(10)}"


def _end(node: Any) -> int:
    """Return where a node's own text ends: a block's end mark lies behind its comments."""
    if node.id == "scalar" or node.flow_style or not node.value:
        return _scalar_end(node)
    last = node.value[-1]
    return _end(last[1] if isinstance(last, tuple) else last)


def _scalar_end(node: Any) -> int:
    text = node.end_mark.buffer
    end = int(node.end_mark.index)
    if text is None or getattr(node, "style", None) not in ("|", ">"):
        return end
    return len(str(text)[:end].rstrip())


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def _plain(text: str, node: Any) -> str:
    return text[node.start_mark.index : _end(node)]
