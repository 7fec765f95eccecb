"""The child: runs in the user's own interpreter, started by its path.

Spawned workers load this file again as their main module, which is what makes `dlcheck`
importable in them when it is not installed beside the user's packages.
"""

from __future__ import annotations

import os
import sys


def _make_importable() -> None:
    """Register the package that this file belongs to, without opening its folder to imports."""
    import importlib.util

    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
    package = os.path.dirname(here)  # noqa: PTH120
    sys.path[:] = [p for p in sys.path if not p or os.path.abspath(p) != here]  # noqa: PTH100
    if "dlcheck" in sys.modules:
        return
    start = os.path.join(package, "__init__.py")  # noqa: PTH118
    spec = importlib.util.spec_from_file_location(
        "dlcheck", start, submodule_search_locations=[package]
    )
    assert spec is not None  # noqa: S101
    assert spec.loader is not None  # noqa: S101
    module = importlib.util.module_from_spec(spec)
    sys.modules["dlcheck"] = module
    spec.loader.exec_module(module)


if __name__ in ("__main__", "__mp_main__"):
    _make_importable()
if __name__ == "__main__":
    from dlcheck.run.errand import main

    main(sys.argv[1])
