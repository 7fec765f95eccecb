"""The smallest leak of a worker that `dlcheck leak` finds, beside what its USS would have shown.

Images of many sizes, 2 persistent workers, 300 samples, 3 epochs, as `dlcheck leak` is used.
"""

from __future__ import annotations

import itertools
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.benchmark, pytest.mark.slow]

KINDS = ("objects", "numpy", "torch", "malloc")
SIZES = (64, 256, 1024, 65_536)
SURE = 256
RUNS = 20
EPOCHS = 3
LEAKS = {"host-leak", "cache-growth", "storage-pinned-by-view"}


def leak(environment: dict[str, str], folder: Path, kind: str, size: int) -> tuple[set[str], float]:
    """Run `dlcheck leak` once: the rules it reports, and by how much USS grew, bytes an epoch."""
    uss = folder / "uss"
    uss.unlink(missing_ok=True)
    command = [
        sys.executable, "-m", "dlcheck", "leak", "leaky:make_pages", "--epochs", str(EPOCHS),
        "--format", "json", "--fail-on", "never", "-q",
    ]  # fmt: skip
    given = {"DLCHECK_BENCH_LEAK": kind, "DLCHECK_BENCH_BYTES": str(size)}
    done = subprocess.run(
        command, env=environment | given | {"DLCHECK_BENCH_USS": str(uss)}, cwd=folder,
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    found = {f["rule"] for f in report["findings"] if f["severity"] != "note"}
    return found, slope(uss)


def slope(uss: Path) -> float:
    """Return the growth of USS an epoch, of the worker that grew most, first epoch left out."""
    workers: dict[str, list[int]] = {}
    for line in uss.read_text().splitlines():
        pid, size = line.split()
        workers.setdefault(pid, []).append(int(size))
    steps = [
        statistics.median(b - a for a, b in itertools.pairwise(sizes[:EPOCHS]))
        for sizes in workers.values()
        if len(sizes) >= EPOCHS
    ]
    return max(steps, default=0.0)


@pytest.fixture
def runs(pace: str) -> int:
    return 1 if pace == "quick" else RUNS


def test_clean_runs_are_silent(
    environment: dict[str, str], tmp_path: Path, runs: int, capsys: pytest.CaptureFixture[str]
) -> None:
    told = [leak(environment, tmp_path, "none", 0) for _ in range(runs)]
    with capsys.disabled():
        print(f"\nclean: USS grows by up to {max(grown for _, grown in told) / 1024:,.0f} KiB")
    assert [found for found, _ in told] == [set()] * runs


@pytest.mark.parametrize("kind", KINDS)
def test_leaks_are_found(
    kind: str, environment: dict[str, str], tmp_path: Path, runs: int,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    shares = {}
    for size in SIZES:
        told = [leak(environment, tmp_path, kind, size) for _ in range(runs)]
        shares[size] = sum(bool(found & LEAKS) for found, _ in told)
        grown = statistics.median(grown for _, grown in told)
        with capsys.disabled():
            print(
                f"\n{kind}, {size:,} bytes a sample: found in {shares[size]} of {runs} runs; "
                f"USS grew by {grown / 1024:,.0f} KiB an epoch, the leak by {size * 150 // 1024:,}"
            )
    assert all(share == runs for size, share in shares.items() if size >= SURE)
