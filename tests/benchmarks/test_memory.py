"""Reading everything takes no more memory than reading ten thousand samples."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.benchmark, pytest.mark.slow]

MIB = 1 << 20
FROM = 10_000
MOST_GROWTH = 20 * MIB
SIDES = ("parent", "child")


def samples_read(child_pid: int) -> int:
    """How many samples the child asked for, as its pulse says."""
    from dlcheck.run.scratch import read_pulse

    for path in Path(os.environ.get("TMPDIR", "/tmp")).glob(f"dlcheck-*/pulse-{child_pid}"):
        return read_pulse(path)[0]
    return 0


def test_memory_is_flat(
    environment: dict[str, str], pace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    psutil = pytest.importorskip("psutil")
    samples = 50_000 if pace == "quick" else 200_000
    environment = environment | {"DLCHECK_BENCH_SAMPLES": str(samples)}
    command = [
        sys.executable, "-m", "dlcheck", "shapes", "pipelines:make_synthetic",
        "--samples", "all", "--budget", "5s", "--format", "json",
    ]  # fmt: skip
    sizes: dict[str, list[int]] = {side: [] for side in SIDES}
    most = 0
    with subprocess.Popen(
        command, env=environment, cwd=Path(__file__).parent, stdout=subprocess.DEVNULL
    ) as run:
        parent = psutil.Process(run.pid)
        while run.poll() is None:
            time.sleep(0.05)
            try:
                workers = [p for p in parent.children() if "child.py" in " ".join(p.cmdline())]
                asked = samples_read(workers[0].pid) if workers else 0
                most = max(most, asked)
                if FROM <= asked < samples:
                    for side, process in zip(SIDES, (parent, workers[0]), strict=True):
                        sizes[side].append(process.memory_info().rss)
            except psutil.Error:
                continue
    assert most >= samples
    growth = {side: max(seen) - seen[0] for side, seen in sizes.items()}
    with capsys.disabled():
        told = ", ".join(
            f"{side} {seen[0] / MIB:.1f} MiB, grew {growth[side] / MIB:.1f}"
            for side, seen in sizes.items()
        )
        print(f"\n{most:,} samples, {len(sizes['child'])} looks from the 10,000th on: {told}")
    assert max(growth.values()) <= MOST_GROWTH
