"""The rules, one file a family. Importing this package fills `dlcheck.findings.REGISTRY`."""

from __future__ import annotations

from dlcheck.rules import run, shapes

__all__ = ["run", "shapes"]
