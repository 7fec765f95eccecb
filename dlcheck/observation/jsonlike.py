"""These dataclasses as plain dicts and lists, and back."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

T = TypeVar("T")

_READERS: dict[type, dict[str, Any]] = {}


def plain(value: Any) -> Any:
    """Turn any of these dataclasses into plain dicts and lists; defaults are left out."""
    if dataclasses.is_dataclass(value):
        return {
            spec.name: plain(item)
            for spec in dataclasses.fields(value)
            if (item := getattr(value, spec.name)) != _default(spec)
        }
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def _default(spec: dataclasses.Field[Any]) -> Any:
    if spec.default_factory is not dataclasses.MISSING:
        return spec.default_factory()
    return spec.default


def build(cls: type[T], data: Mapping[str, Any]) -> T:
    """Read what `plain` wrote.

    Raises:
        TypeError: a key that this version does not know.
    """
    readers = _READERS.get(cls)
    if readers is None:
        hints = typing.get_type_hints(cls)
        readers = _READERS[cls] = {name: _reader(hint) for name, hint in hints.items()}
    unknown = set(data) - set(readers)
    if unknown:
        message = f"{cls.__name__} has no {', '.join(sorted(unknown))}"
        raise TypeError(message)
    return cls(**{name: readers[name](value) for name, value in data.items()})


def _number(value: Any) -> Any:
    """Read a number; one that JSON lacks (inf, nan) was saved as text."""
    return float(value) if isinstance(value, str) else value


def _reader(hint: Any) -> Any:
    """Return a function that turns plain JSON into the annotated type."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if dataclasses.is_dataclass(hint):
        return lambda value: build(typing.cast("type[Any]", hint), value)
    if origin is dict:
        inner = _reader(args[1])
        return lambda value: {key: inner(item) for key, item in value.items()}
    if origin is tuple:
        inner = _reader(args[0]) if args[-1] is Ellipsis else (lambda item: item)
        return lambda value: tuple(inner(item) for item in value)
    if hint is float or float in args:
        return _number
    classes = [arg for arg in args if dataclasses.is_dataclass(arg) or typing.get_origin(arg)]
    if classes:
        inner = _reader(classes[0])
        return lambda value: None if value is None else inner(value)
    return lambda value: value
