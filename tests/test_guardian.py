"""After a run no process, segment or folder of ours is left, and nobody else's is touched."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dlcheck import guardian

pytestmark = pytest.mark.skipif(not hasattr(os, "getsid"), reason="sessions")

FORKS = (
    "import os, time\n"
    "if os.fork() == 0:\n"
    "    time.sleep(60)\n"
    "print('ready', flush=True)\n"
    "time.sleep(60)\n"
)


def leader() -> subprocess.Popen[str]:
    """Start a session of two processes."""
    child = subprocess.Popen(
        [sys.executable, "-c", FORKS], start_new_session=True, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child


def test_a_session_is_ended_with_all_its_members() -> None:
    child = leader()
    assert len(guardian.session_members(child.pid)) == 2
    guardian.end_session(child.pid)
    assert guardian.session_members(child.pid) == []
    assert child.wait() == -9
    child.stdout.close()


def test_a_session_that_lost_its_leader_is_ended_too() -> None:
    child = leader()
    child.kill()
    child.wait()
    child.stdout.close()
    assert len(guardian.session_members(child.pid)) == 1
    guardian.end_session(child.pid)
    assert guardian.session_members(child.pid) == []


def test_other_sessions_are_left_alone() -> None:
    ours, other = leader(), leader()
    guardian.end_session(ours.pid)
    assert other.poll() is None
    guardian.end_session(other.pid)
    for child in (ours, other):
        child.wait()
        child.stdout.close()


def test_only_segments_of_these_processes_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["torch_12_345_0", "torch_13_345_0", "torch_x", "other_12", "torch_"]
    for name in names:
        (tmp_path / name).touch()
    monkeypatch.setattr(guardian, "SHM", str(tmp_path))
    guardian.remove_segments({12}, str(tmp_path / "none"))
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names[1:])


def test_segments_that_python_code_of_the_run_made_are_removed_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shm, scratch = tmp_path / "shm", tmp_path / "scratch"
    for folder in (shm, scratch):
        folder.mkdir()
    for name in ("tiles_0", "tiles_1", "somebody_elses"):
        (shm / name).touch()
    (tmp_path / "outside").touch()
    (scratch / "segments-12").write_text("tiles_0\ntiles_9\n../outside\n")
    (scratch / "segments-13").write_text("tiles_1\n")
    monkeypatch.setattr(guardian, "SHM", str(shm))
    guardian.remove_segments(set(), str(scratch))
    assert [path.name for path in shm.iterdir()] == ["somebody_elses"]
    assert (tmp_path / "outside").exists()


def test_processes_are_named_by_what_they_wrote(tmp_path: Path) -> None:
    for name in ("obs-12.jsonl", "pulse-13", "stacks-12.txt", "job.json", "obs-x.jsonl"):
        (tmp_path / name).touch()
    assert guardian.processes_of(str(tmp_path)) == {12, 13}
    assert guardian.processes_of(str(tmp_path / "none")) == set()


def guard(scratch: Path, *lines: str) -> None:
    """Run the guardian as a session does, with these lines, and wait for its end."""
    command = [sys.executable, "-I", "-S", guardian.__file__, str(scratch)]
    subprocess.run(command, input="".join(lines), text=True, timeout=30, check=True)


def test_when_the_parent_is_gone_session_and_folder_go(tmp_path: Path) -> None:
    child = leader()
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    guard(scratch, f"child {child.pid}\n")
    assert child.wait(timeout=10) == -9
    child.stdout.close()
    assert not scratch.exists()


def test_when_the_parent_is_done_nothing_is_touched(tmp_path: Path) -> None:
    child = leader()
    guard(tmp_path, f"child {child.pid}\n", "done\n")
    time.sleep(0.1)
    assert child.poll() is None
    assert tmp_path.exists()
    guardian.end_session(child.pid)
    child.wait()
    child.stdout.close()
