"""A YAML file, or an override, as plain values that remember their lines."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import yaml

Place = tuple[str, int]

MOST_BYTES = 1_000_000
MOST_NODES = 50_000
DEEPEST = 60
TAG = "tag:yaml.org,2002:"


class Mistake(Exception):  # noqa: N818 - becomes a UserError once its line is known
    """Something wrong under the dotted key `key`; `place` is given where no key has a line."""

    def __init__(self, key: str, message: str, hint: str = "", place: Place | None = None) -> None:
        super().__init__(message)
        self.key = key
        self.message = message
        self.hint = hint
        self.place = place


@dataclass
class Document:
    """`lines` gives the place of each dotted key; line 0 stands for an override."""

    values: dict[str, Any] = field(default_factory=dict)
    lines: dict[str, Place] = field(default_factory=dict)


def join(path: str, key: str | int) -> str:
    """Append a key to a dotted path."""
    return f"{path}.{key}" if path else str(key)


def read(path: Path, shown: str) -> Document:
    """Read a config file; its errors name it as `shown`.

    Raises:
        Mistake: no file, no YAML, no mapping.
    """
    nodes = _Nodes(shown)
    root = _compose(_text(path, shown), shown)
    if root is None:
        raise Mistake("", "the file is empty", EMPTY_HINT, (shown, 1))
    values = nodes.value(root, "")
    if not isinstance(values, dict):
        line = root.start_mark.line + 1
        found = f"found {describe(values)}; wanted keys with values"
        raise Mistake("", found, EMPTY_HINT, (shown, line))
    return Document(values, nodes.lines)


EMPTY_HINT = (
    "a config gives dataset, loader or datamodule, as in "
    "`dataset: {_target_: cats.data.Cats, root: data}`"
)


def _text(path: Path, shown: str) -> str:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise Mistake("", f"cannot be read: {error.strerror}", place=(shown, 0)) from error
    if len(data) > MOST_BYTES:
        raise Mistake("", f"is no config: {len(data):,} bytes", place=(shown, 0))
    if data[:2] in {b"\xff\xfe", b"\xfe\xff"}:
        raise Mistake("", "the file is UTF-16", "save it as UTF-8", (shown, 1))
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        message = f"byte 0x{data[error.start]:02x} is not UTF-8"
        raise Mistake("", message, "save the file as UTF-8", (shown, line)) from error


@cache
def _loader() -> type[yaml.SafeLoader]:
    import yaml

    class Loader(yaml.SafeLoader):
        """YAML 1.1, but 1e-3 is a number, as in Hydra."""

    Loader.add_implicit_resolver(
        f"{TAG}float",
        re.compile(r"^[-+]?[0-9][0-9_]*(?:\.[0-9_]*)?[eE][-+]?[0-9]+$"),
        list("-+0123456789"),
    )
    return Loader


def _compose(text: str, shown: str, line: int | None = None) -> yaml.Node | None:
    """Parse; `line` is the line to report where the text has none of its own."""
    import yaml

    try:
        return yaml.compose(text, Loader=_loader())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        found = mark.line + 1 if mark else 1
        message, hint = _parse_error(error, text, found)
        raise Mistake("", message, hint, (shown, found if line is None else line)) from error
    except yaml.reader.ReaderError as error:
        found = text[: error.position].count("\n") + 1
        message = f"the character {chr(error.character)!a} is not allowed in YAML"
        raise Mistake("", message, place=(shown, found if line is None else line)) from error
    except RecursionError as error:
        message = f"nested more than {DEEPEST} levels deep"
        raise Mistake("", message, place=(shown, 1 if line is None else line)) from error


def _parse_error(error: yaml.MarkedYAMLError, text: str, line: int) -> tuple[str, str]:
    lines = text.splitlines() or [""]
    source = lines[min(line, len(lines)) - 1]
    indent = source[: len(source) - len(source.lstrip())]
    problem = error.problem or "not understood"
    if "\t" in indent or "'\\t'" in problem:
        return "a tab where YAML takes only spaces", "indent with spaces"
    if "expected a single document" in (error.context or ""):
        return "a second document starts here", "a config is one document: remove the `---`"
    if "mapping values are not allowed" in problem:
        hint = "quote text that holds a colon and a space, and indent keys of one level alike"
        return "a second `:` in one value, or a wrong indent", hint
    opened = error.context_mark
    if opened is not None and opened.line + 1 != line:
        return f"bad YAML: {problem} (what line {opened.line + 1} opened is not closed)", ""
    return f"bad YAML: {problem}", ""


class _Nodes:
    """Turns YAML nodes into plain values and notes the line of every key."""

    def __init__(self, shown: str, line: int | None = None) -> None:
        self.shown = shown
        self.line = line
        self.lines: dict[str, Place] = {}
        self.open: list[int] = []
        self.count = 0

    def place(self, node: yaml.Node) -> Place:
        return self.shown, node.start_mark.line + 1 if self.line is None else self.line

    def value(self, node: yaml.Node, path: str) -> Any:
        import yaml

        self.count += 1
        if self.count > MOST_NODES:
            message = f"more than {MOST_NODES:,} values: aliases that multiply?"
            raise Mistake(path, message, place=self.place(node))
        if id(node) in self.open:
            raise Mistake(path, "the alias stands for a value that holds itself")
        if len(self.open) > DEEPEST:
            message = f"nested more than {DEEPEST} levels deep"
            raise Mistake(path, message, place=self.place(node))
        if isinstance(node, yaml.ScalarNode):
            return self.scalar(node, path)
        self.open.append(id(node))
        try:
            if isinstance(node, yaml.MappingNode) and node.tag == f"{TAG}map":
                return self.mapping(node, path)
            if isinstance(node, yaml.SequenceNode) and node.tag == f"{TAG}seq":
                return self.sequence(node, path)
        finally:
            self.open.pop()
        raise Mistake(path, f"the YAML tag {_tag(node)} is not taken", place=self.place(node))

    def sequence(self, node: yaml.SequenceNode, path: str) -> list[Any]:
        items = []
        for number, item in enumerate(node.value):
            where = join(path, number)
            self.lines[where] = self.place(item)
            items.append(self.value(item, where))
        return items

    def mapping(self, node: yaml.MappingNode, path: str) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        own: dict[str, Any] = {}
        for key_node, item in node.value:
            if key_node.tag == f"{TAG}merge":
                self.merge(merged, item, path)
        for key_node, item in node.value:
            if key_node.tag == f"{TAG}merge":
                continue
            key = self.key(key_node, path)
            where = join(path, key)
            if key in own:
                message = f"given twice, first on line {self.lines[where][1]}"
                raise Mistake(where, message, place=self.place(key_node))
            self.lines[where] = self.place(key_node)
            own[key] = self.value(item, where)
        return {**merged, **own}

    def merge(self, into: dict[str, Any], node: yaml.Node, path: str) -> None:
        """Take over the keys of `<<: *alias`; of a list of aliases the first wins."""
        import yaml

        parts = node.value if isinstance(node, yaml.SequenceNode) else [node]
        for part in parts:
            found = self.value(part, path)
            if not isinstance(found, dict):
                message = f"`<<` merges mappings, found {describe(found)}"
                raise Mistake(path, message, place=self.place(node))
            for key, value in found.items():
                into.setdefault(key, value)

    def key(self, node: yaml.Node, path: str) -> str:
        """Return the key as it is written: `1.0` is a field's name, not a number."""
        import yaml

        if isinstance(node, yaml.ScalarNode):
            return str(node.value)
        raise Mistake(path, "a list or mapping cannot be a key", place=self.place(node))

    def scalar(self, node: yaml.ScalarNode, path: str) -> Any:
        from yaml.constructor import SafeConstructor

        make = SafeConstructor()
        kinds: dict[str, Any] = {
            "null": make.construct_yaml_null,
            "bool": make.construct_yaml_bool,
            "int": make.construct_yaml_int,
            "float": make.construct_yaml_float,
        }
        kind = node.tag.removeprefix(TAG)
        # A date stays text, as in OmegaConf: no argument of a pipeline is one.
        if kind in {"str", "timestamp", "value", "merge"}:
            return node.value
        if kind not in kinds:
            raise Mistake(path, f"the YAML tag {_tag(node)} is not taken", place=self.place(node))
        try:
            return kinds[kind](node)
        except (ValueError, KeyError, IndexError) as error:
            message = f"{node.value[:40]!r} is no {kind}"
            raise Mistake(path, message, place=self.place(node)) from error


def _tag(node: yaml.Node) -> str:
    return str(node.tag).replace(TAG, "!!")


KEY = re.compile(r"[^\s=.+~]+(\.[^\s=.]+)*")


def override(document: Document, text: str) -> None:
    """Apply one `dotted.key=value` of the command line; the value is YAML.

    Raises:
        Mistake: no such form, bad YAML, or a path through something that has no keys.
    """
    place = (f"override {text!r}", 0)
    key, equals, value = text.partition("=")
    if key[:1] in {"+", "~"}:
        hint = "key=value sets a key, whether the config has it or not; key=null clears it"
        raise Mistake("", f"{key[0]!r} is Hydra's, not taken here", hint, place)
    key = re.sub(r"\[(\w+)\]", r".\1", key)
    if not equals or not KEY.fullmatch(key):
        raise Mistake("", "wanted key=value, as in loader.batch_size=8", place=place)
    nodes = _Nodes(*place)
    node = _compose(value, *place)
    path = _set(document, key.split("."), place)
    new = None if node is None else nodes.value(node, path)
    stale = [at for at in document.lines if at.startswith(f"{path}.")]
    for at in stale:
        del document.lines[at]
    parents = path.split(".")
    for size in range(1, len(parents)):
        document.lines.setdefault(".".join(parents[:size]), place)
    document.lines.update({**nodes.lines, path: place})
    owner, last = _owner(document, path)
    owner[last] = new


def _owner(document: Document, path: str) -> tuple[Any, Any]:
    """Find the container and key of a path that `_set` has made."""
    owner: Any = document.values
    rest = path.split(".")
    while True:
        key, rest = _step(owner, rest)
        if not rest:
            return owner, key
        owner = owner[key]


def _set(document: Document, segments: list[str], place: Place) -> str:
    """Make the containers on the way; return the path in the document's own keys."""
    owner: Any = document.values
    path, rest = "", segments
    while rest:
        if not isinstance(owner, dict | list):
            message = f"{path} is {describe(owner)}, so it has no {rest[0]!r}"
            raise Mistake(".".join(segments), message, place=place)
        key, rest = _step(owner, rest)
        path = join(path, key)
        if isinstance(owner, list) and not (isinstance(key, int) and key < len(owner)):
            last = len(owner) - 1
            message = f"a list with items 0 to {last}" if owner else "an empty list"
            raise Mistake(path, f"no item {key!r}: {message}", place=place)
        if isinstance(owner, dict) and owner.get(key) is None:
            owner[key] = {} if rest else None
        owner = owner[key]
    return path


def _step(owner: Any, rest: list[str]) -> tuple[str | int, list[str]]:
    """Take the next key, preferring one that the document has: field names hold dots."""
    if isinstance(owner, list):
        number = rest[0]
        return (int(number) if number.isdecimal() else number), rest[1:]
    for size in range(len(rest), 0, -1):
        key = ".".join(rest[:size])
        if key in owner:
            return key, rest[size:]
    return rest[0], rest[1:]


def nearest(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean x?` for the nearest spelling, or nothing."""
    by_lower = {one.lower(): one for one in known}
    found = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    return f"; did you mean {by_lower[found[0]]}?" if found else ""


def describe(value: Any) -> str:
    """Say what a value is, for an error message."""
    if value is None:
        return "nothing (null)"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"the number {value}" if len(str(value)) < SHOWN else "a huge number"
    if isinstance(value, str):
        return f"the text {value!r}" if len(value) <= SHOWN else f"the text {value[:SHOWN]!r}..."
    return "a mapping" if isinstance(value, dict) else "a list"


SHOWN = 50
