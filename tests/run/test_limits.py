"""The memory there is: the machine's, or the lowest limit of the cgroups around the process."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dlcheck.run import limits


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc and /sys")
def test_this_machine_has_memory_and_handles() -> None:
    known = limits.observed()
    assert int(known["memory"]) > 1 << 28
    assert known["memory_from"] in {"machine", "cgroup"}
    assert int(known.get("handles", 64)) >= 64


def test_the_lowest_limit_of_the_groups_around_counts(tmp_path: Path) -> None:
    inner = tmp_path / "job" / "step"
    inner.mkdir(parents=True)
    (inner / "memory.max").write_text("max\n")
    (tmp_path / "job" / "memory.max").write_text("2147483648\n")
    (tmp_path / "memory.max").write_text("9223372036854771712\n")
    assert limits._upwards(tmp_path, "/job/step", "memory.max") == [2 << 30]
