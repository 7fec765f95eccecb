"""The JSON Schema of the JSON report, made from the dataclasses that it is written from.

`dlcheck report --schema` prints it; the copy beside this file is what other programs get.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from pathlib import Path
from typing import Any

from dlcheck.findings import Severity, Where
from dlcheck.observation import Observation

FILE = Path(__file__).parent / "report.schema.json"
DIALECT = "https://json-schema.org/draft/2020-12/schema"
# JSON has none of these numbers; they are written as text.
_NO_NUMBERS = ["inf", "-inf", "nan"]
_TYPES: dict[Any, dict[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    bool: {"type": "boolean"},
    float: {"anyOf": [{"type": "number"}, {"enum": _NO_NUMBERS}]},
    type(None): {"type": "null"},
    Any: {},
}


def render() -> str:
    """Render the schema as JSON."""
    return json.dumps(document(), indent=2) + "\n"


def document() -> dict[str, Any]:
    """Lay the schema out: the report is closed, the Observation may grow within version 1."""
    made = _Definitions()
    observation = made.of(Observation)
    return {
        "$schema": DIALECT,
        "title": "The JSON report of dlcheck, version 1",
        **_closed(
            schema={"const": "dlcheck/1"},
            command={"type": "string", "description": "The command that ran: shapes, gate, ..."},
            target={"type": "string"},
            verdict={"enum": ["pass", "fail", "incomplete"]},
            seen=_seen(),
            findings={"type": "array", "items": _finding()},
            rules={"type": "array", "items": _state()},
            observation=observation,
        ),
        "$defs": dict(sorted(made.known.items())),
    }


def _seen() -> dict[str, Any]:
    count = {"type": "integer", "minimum": 0}
    seconds = {"type": "number", "minimum": 0}
    return _closed(
        samples=count,
        of={"type": ["integer", "null"]},
        batches=count,
        epochs=count,
        seconds=seconds,
    )


def _finding() -> dict[str, Any]:
    return _closed(
        code={"type": "string", "pattern": "^[A-Z]*[0-9]*$"},
        rule={"type": "string", "description": "The rule's name, as `dlcheck explain` takes it."},
        severity={"enum": [severity.label for severity in sorted(Severity)]},
        message={"type": "string"},
        where=_where(),
        evidence={"type": "object"},
        fix={"type": "string"},
    )


def _where() -> dict[str, Any]:
    hints = typing.get_type_hints(Where)
    parts = {name: _Definitions().of(hint) for name, hint in hints.items()}
    text = " ".join((Where.__doc__ or "").split())
    return {**_closed(**parts), "description": text}


def _state() -> dict[str, Any]:
    states = {"enum": ["ran", "not-applicable", "unobserved"]}
    return _closed(rule={"type": "string"}, state=states, reason={"type": "string"})


def _closed(**properties: Any) -> dict[str, Any]:
    """Describe an object that has all of these keys and no other."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


class _Definitions:
    """Turns annotations into schemas; each dataclass met is described once."""

    def __init__(self) -> None:
        self.known: dict[str, dict[str, Any]] = {}

    def of(self, hint: Any) -> dict[str, Any]:
        """Describe a value of the annotated type."""
        if hint in _TYPES:
            return dict(_TYPES[hint])
        if dataclasses.is_dataclass(hint):
            return self._object(typing.cast("type", hint))
        origin, args = typing.get_origin(hint), typing.get_args(hint)
        if origin is dict:
            return {"type": "object", "additionalProperties": self.of(args[1])}
        if origin is tuple:
            return {"type": "array", **self._items(args)}
        if origin in {typing.Union, types.UnionType}:
            return {"anyOf": [self.of(arg) for arg in args]}
        raise TypeError(f"no schema for {hint}")

    def _items(self, args: tuple[Any, ...]) -> dict[str, Any]:
        if args[-1] is Ellipsis:
            return {"items": self.of(args[0])}
        return {"prefixItems": [self.of(arg) for arg in args], "minItems": len(args)}

    def _object(self, cls: type) -> dict[str, Any]:
        """Describe a dataclass; a key at its default is left out of the report."""
        name = cls.__name__
        if name not in self.known:
            self.known[name] = {}
            hints = typing.get_type_hints(cls)
            required = [spec.name for spec in dataclasses.fields(cls) if _is_needed(spec)]
            self.known[name] = {
                "description": " ".join((cls.__doc__ or "").split()),
                "type": "object",
                "properties": {key: self.of(hint) for key, hint in hints.items()},
                **({"required": required} if required else {}),
            }
        return {"$ref": f"#/$defs/{name}"}


def _is_needed(spec: dataclasses.Field[Any]) -> bool:
    missing = dataclasses.MISSING
    return spec.default is missing and spec.default_factory is missing
