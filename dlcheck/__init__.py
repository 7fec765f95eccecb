"""Check a PyTorch input pipeline before, and while, it feeds a model."""

from __future__ import annotations

import importlib
from typing import Any

_HOMES = {
    "Finding": "dlcheck.findings",
    "FindingsError": "dlcheck.live",
    "LiveReport": "dlcheck.live",
    "Observation": "dlcheck.observation",
    "Report": "dlcheck.findings",
    "Rule": "dlcheck.findings",
    "Severity": "dlcheck.findings",
    "UserError": "dlcheck.config",
    "Where": "dlcheck.findings",
    "check": "dlcheck.live",
    "judge": "dlcheck.findings",
}

__all__ = [  # noqa: PLE0604 - the names are resolved by __getattr__
    "__version__",
    *_HOMES,
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return _version()
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    message = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(message)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _version() -> str:
    from importlib import metadata  # costs 20 ms, and most commands never ask

    try:
        return metadata.version("dlcheck")
    except metadata.PackageNotFoundError:
        return "0.0.0+unknown"
