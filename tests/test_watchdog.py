"""A hang is told from slow work, and the stacks speak of the right process and thread."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dlcheck import watchdog
from dlcheck.run.scratch import Scratch
from dlcheck.watchdog import Watchdog, crash_stacks, frames_in, same_stacks

ROOT = Path(__file__).resolve().parents[1]
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="stacks by signal")

STACKS = """Thread 0x00007f01 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 320 in wait
  File "/usr/lib/python3.11/queue.py", line 171 in get

Current thread 0x00007f02 (most recent call first):
  File "/home/me/cats/data.py", line 12 in __getitem__
  File "/usr/lib/python3/site-packages/torch/utils/data/_utils/fetch.py", line 52 in <listcomp>
  File "/home/me/cats/train.py", line 3 in <module>
"""


def test_frames_are_those_of_the_thread_in_user_code_outermost_first() -> None:
    frames = frames_in(STACKS)
    assert [(frame["line"], frame["function"]) for frame in frames] == [
        (3, "<module>"),
        (52, "<listcomp>"),
        (12, "__getitem__"),
    ]
    assert [frame["user"] for frame in frames] == [True, False, True]


def test_without_user_code_the_first_thread_speaks() -> None:
    assert [f["function"] for f in frames_in(STACKS.partition("Current")[0])] == ["get", "wait"]
    assert frames_in("") == []


def test_a_crash_shows_the_thread_that_crashed(tmp_path: Path) -> None:
    path = tmp_path / "stacks-1.txt"
    path.write_text(STACKS + "\nFatal Python error: Segmentation fault\n\n" + STACKS)
    text, frames = crash_stacks(path)
    assert text.startswith("Fatal Python error: Segmentation fault")
    assert frames[-1]["function"] == "__getitem__"


@pytest.mark.parametrize("text", ["", STACKS, None])
def test_stacks_that_were_asked_for_are_no_crash(text: str | None, tmp_path: Path) -> None:
    path = tmp_path / "stacks-1.txt"
    if text is not None:
        path.write_text(text)
    assert crash_stacks(path) == ("", [])


def test_same_lines_in_two_dumps_are_the_same_stacks() -> None:
    assert same_stacks([STACKS, STACKS + "\n"])
    assert not same_stacks([STACKS, STACKS.replace("line 12", "line 13")])
    assert same_stacks([])
    assert same_stacks([STACKS])


def test_a_sample_asked_for_is_a_sign_of_life(tmp_path: Path) -> None:
    scratch = Scratch(str(tmp_path))
    dog = Watchdog(tmp_path, 10.0)
    dog.last -= 8
    assert dog.silent_for() >= 8
    scratch.begin()
    scratch.ask(3)
    assert dog.silent_for() < 1
    dog.last -= 8
    assert dog.silent_for() >= 8
    scratch.ask(4)
    assert dog.silent_for() < 1


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Any]:
    """Start a process that writes to the scratch folder and then runs some lines."""
    started = []

    def start(body: str) -> subprocess.Popen[str]:
        path = tmp_path.parent / f"{tmp_path.name}-user.py"
        path.write_text(
            "import sys, time\n"
            "from dlcheck.run.scratch import Scratch\n"
            f"scratch = Scratch({str(tmp_path)!r})\n"
            "scratch.begin()\nscratch.ask('s7')\nprint('ready', flush=True)\n" + body
        )
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        child = subprocess.Popen(
            [sys.executable, str(path)], stdout=subprocess.PIPE, text=True, env=environment
        )
        started.append(child)
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        return child

    yield start
    for child in started:
        child.kill()
        child.wait()
        child.stdout.close()


def watched(folder: Path, seconds: float, hang_after: float = 0.4) -> dict[str, Any] | None:
    dog = Watchdog(folder, hang_after)
    dog.silent_for()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        hang = dog.hang()
        if hang is not None:
            return hang
        time.sleep(0.05)
    return None


@linux
def test_a_process_that_sleeps_at_one_line_hangs(run: Any, tmp_path: Path) -> None:
    run("def wait():\n    time.sleep(60)\nwait()\n")
    hang = watched(tmp_path, 10)
    assert hang is not None
    assert hang["phase"] == "hang"
    assert hang["detail"]["last_sample"] == "s7"
    assert hang["frames"][-1]["text"] == "time.sleep(60)"


@linux
def test_a_process_that_computes_at_one_line_is_given_time(run: Any, tmp_path: Path) -> None:
    run("sum(range(10**12))\n")
    hang = watched(tmp_path, 20, hang_after=0.8)
    assert hang is not None, "but not for ever"
    assert hang["detail"]["seconds"] >= watchdog.STUCK_LIMIT * 0.8


@linux
def test_a_process_that_does_not_listen_is_not_signalled(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        try:
            (tmp_path / f"stacks-{child.pid}.txt").write_text("")
            assert not watchdog.listens(str(child.pid))
            Watchdog(tmp_path, 1).ask_for_stacks()
            time.sleep(0.1)
            assert child.poll() is None
        finally:
            child.kill()


def test_work_of_a_process_that_is_gone_is_nothing() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
    assert watchdog.work_of(str(child.pid)) == (0.0, 0.0, 0)
