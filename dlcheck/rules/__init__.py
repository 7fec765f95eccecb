"""The rules, one file a family. Importing this package fills `dlcheck.findings.REGISTRY`."""

from __future__ import annotations

from dlcheck.rules import colour, layout, pairs, reading, run, shapes, strides

__all__ = ["colour", "layout", "pairs", "reading", "run", "shapes", "strides"]
