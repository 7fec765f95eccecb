"""Options of the benchmarks, and the folder they read."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment in which a benchmark's process finds us, the pipelines and the JPEGs."""
    pytest.importorskip("torch")
    pytest.importorskip("cv2")
    folder = tmp_path_factory.mktemp("jpegs")
    sys.path.insert(0, str(HERE))
    try:
        from pipelines import draw
    finally:
        sys.path.remove(str(HERE))
    draw(folder)
    paths = [str(ROOT), str(HERE), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "DLCHECK_BENCH_DATA": str(folder),
    }


@pytest.fixture(scope="session")
def pace() -> str:
    """`full`, or `quick` for a look at fewer and shorter runs: DLCHECK_BENCH_QUICK=1."""
    return "quick" if os.environ.get("DLCHECK_BENCH_QUICK") else "full"
