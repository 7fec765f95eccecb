"""User code that crashes, hangs, exits, prints and closes: a right verdict, and nothing left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

LINUX = sys.platform == "linux"
ROOT = Path(__file__).resolve().parents[1]
HEAD = """
import ctypes, os, signal, sys, time
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

class Numbers(Dataset):
    def __len__(self):
        return 24
    def __getitem__(self, index):
        if index == 13:
            trouble()
        return torch.full((3, 4), float(index)), index

def trouble():
    pass

def make_loader():
    return DataLoader(Numbers(), batch_size=4)
"""
WORKERS = """
def make_loader():
    return DataLoader(Numbers(), batch_size=4, num_workers=2)
"""


@dataclass
class Case:
    """User code, how to run it, and what must be said of it."""

    body: str
    verdict: str = "fail"
    says: tuple[str, ...] = ()
    rule: str | None = "pipeline-error"
    options: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    status: int | None = None


def trouble(body: str) -> str:
    return "def trouble():\n" + textwrap.indent(textwrap.dedent(body).strip(), "    ") + "\n"


SEGFAULT = trouble("ctypes.string_at(0)")
CASES = {
    "segfault": Case(SEGFAULT, says=("SIGSEGV", "13")),
    "segfault-in-worker": Case(SEGFAULT + WORKERS, says=("13",)),
    "exit-0": Case(trouble("os._exit(0)"), says=("status 0", "13")),
    "exit-7": Case(trouble("os._exit(7)"), says=("status 7", "13")),
    "exit-at-import": Case("os._exit(0)", says=("status 0",)),
    "killed": Case(trouble("os.kill(os.getpid(), signal.SIGKILL)"), says=("SIGKILL", "13")),
    "sys-exit": Case(trouble("sys.exit('enough')"), rule=None, says=("SystemExit", "enough")),
    "sys-exit-at-import": Case("sys.exit(3)", says=("SystemExit",)),
    "keyboard-interrupt": Case(trouble("raise KeyboardInterrupt"), rule=None),
    "hang-at-import": Case("time.sleep(600)", says=("time.sleep(600)|pipeline.py",)),
    "hang-in-sample": Case(trouble("time.sleep(600)"), says=("13", "pipeline.py")),
    "hang-in-worker": Case(trouble("time.sleep(600)") + WORKERS, says=("13", "pipeline.py")),
    "endless-stream": Case(
        """
class Endless(IterableDataset):
    def __iter__(self):
        while True:
            yield torch.zeros(3)
def make_loader():
    return DataLoader(Endless(), batch_size=4)
""",
        verdict="pass",
        rule=None,
        options=("--budget", "2s"),
        status=0,
    ),
    "prints": Case(
        "for _ in range(100):\n    print('x' * 1_000_000)\n", verdict="pass", rule=None, status=0
    ),
    "closed-streams": Case(
        "sys.stdout.close()\nsys.stderr.close()\nos.close(1)\nos.close(2)\n",
        verdict="pass",
        rule=None,
    ),
    "closed-everything": Case("os.closerange(3, 256)\n" + SEGFAULT, says=("SIGSEGV", "13")),
    "changed-directory": Case("os.chdir('/')\n", verdict="pass", rule=None),
    "replaced-print": Case(
        "import builtins\nbuiltins.print = None\nbuiltins.open = None\n",
        verdict="pass",
        rule=None,
    ),
    "signal-handlers": Case(
        """
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGALRM):
    signal.signal(number, signal.SIG_IGN)
sys.excepthook = None
sys.unraisablehook = None
"""
        + trouble("raise ValueError('no')"),
        rule=None,
        says=("ValueError",),
    ),
    "signals-ignored-and-hang": Case(
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + trouble("time.sleep(600)"),
        says=("13",),
    ),
    "recursion": Case(trouble("return trouble()"), rule=None, says=("RecursionError",)),
    "str-raises": Case(
        """
class Odd(Exception):
    def __str__(self):
        raise RuntimeError('no words')
"""
        + trouble("raise Odd()"),
        rule=None,
        says=("Odd",),
    ),
    "repr-exits": Case(
        """
class Odd(Exception):
    def __str__(self):
        sys.exit(4)
"""
        + trouble("raise Odd()"),
        rule=None,
        says=("Odd",),
    ),
    "non-daemon-thread": Case(
        "import threading\nthreading.Thread(target=time.sleep, args=(600,)).start()\n",
        verdict="pass",
        rule=None,
    ),
    "exits-at-exit": Case(
        "import atexit\natexit.register(os._exit, 9)\n", verdict="pass", rule=None
    ),
    "sub-process": Case(
        "import subprocess\nsubprocess.Popen(['sleep', '600'])\n", verdict="pass", rule=None
    ),
    "forks": Case("if os.fork() == 0:\n    time.sleep(600)\n", verdict="pass", rule=None),
}


def environment(tmp_path: Path, **more: str) -> dict[str, str]:
    (tmp_path / "t").mkdir(exist_ok=True)
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(p for p in paths if p),
        "TMPDIR": str(tmp_path / "t"),
        "DLCHECK_TEST": uuid.uuid4().hex,
        **more,
    }


def start(tmp_path: Path, env: dict[str, str], *options: str) -> subprocess.Popen[str]:
    command = [
        sys.executable, "-m", "dlcheck", "shapes", "pipeline.py:make_loader",
        "--format", "json", "--hang-after", "3", *options,
    ]  # fmt: skip
    process = subprocess.Popen(
        command, cwd=tmp_path, env=env, text=True, errors="replace",
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    SEEN[env["DLCHECK_TEST"]] = set()
    threading.Thread(target=remember, args=(process, env), daemon=True).start()
    return process


# The processes that each run was seen to start, by its mark.
SEEN: dict[str, set[str]] = {}


def remember(process: subprocess.Popen[str], env: dict[str, str]) -> None:
    """Keep the numbers of a run's processes, which its segments carry in their names."""
    mark = marked(env)
    known: set[str] = set()
    while process.returncode is None:
        there = {path.name for path in Path("/proc").glob("[0-9]*")}
        for pid in there - known:
            try:
                if mark in Path("/proc", pid, "environ").read_bytes():
                    SEEN[env["DLCHECK_TEST"]].add(pid)
                    known.add(pid)
                elif time.time() - Path("/proc", pid).stat().st_ctime > SETTLED:
                    known.add(pid)
            except OSError:
                continue
        time.sleep(0.05)


# A process that was just forked may not have its own environment yet.
SETTLED = 2.0


def segments() -> set[str]:
    return {p.name for p in Path("/dev/shm").iterdir()} if LINUX else set()


def marked(env: dict[str, str]) -> bytes:
    return f"DLCHECK_TEST={env['DLCHECK_TEST']}".encode()


def ours(env: dict[str, str]) -> list[str]:
    """List the live processes that were started with this environment."""
    mark = marked(env)
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            state = (path / "stat").read_bytes().rpartition(b")")[2].split()[0]
            if mark in (path / "environ").read_bytes() and state != b"Z":
                found.append((path / "cmdline").read_bytes().decode(errors="replace"))
        except OSError:
            continue
    return found


def of_run(name: str, env: dict[str, str]) -> bool:
    """Tell whether a segment is this run's: another test beside us makes and leaves its own."""
    if name.startswith("torch_"):
        return name.split("_")[1] in SEEN[env["DLCHECK_TEST"]]
    return name.startswith("psm_")


def assert_nothing_left(tmp_path: Path, env: dict[str, str], before: set[str]) -> None:
    deadline = time.monotonic() + 8
    while time.monotonic() < deadline:
        if not ours(env) and not list((tmp_path / "t").glob("dlcheck-*")):
            break
        time.sleep(0.1)
    assert ours(env) == []
    assert list((tmp_path / "t").glob("dlcheck-*")) == []
    assert SEEN[env["DLCHECK_TEST"]]
    assert {name for name in segments() - before if of_run(name, env)} == set()


def finding_text(report: dict[str, Any]) -> str:
    return json.dumps(report["findings"])


@pytest.mark.skipif(not LINUX, reason="reads /proc")
@pytest.mark.parametrize("name", CASES)
def test_verdict_is_right_and_nothing_is_left(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    (tmp_path / "pipeline.py").write_text(HEAD + textwrap.dedent(case.body))
    env = environment(tmp_path, **case.env)
    before = segments()
    process = start(tmp_path, env, *case.options)
    out, _ = process.communicate(timeout=90)
    report = json.loads(out)
    assert report["verdict"] == case.verdict, finding_text(report)
    assert process.returncode == (1 if case.verdict == "fail" else 0)
    if case.verdict == "fail":
        assert report["findings"]
    if case.rule is not None:
        assert {f["rule"] for f in report["findings"]} & {case.rule, "worker-crash", "worker-hang"}
    text = finding_text(report)
    for words in case.says:
        assert any(word in text for word in words.split("|")), text
    assert_nothing_left(tmp_path, env, before)


LONG = "x" * 60


@pytest.mark.skipif(not LINUX, reason="reads /proc")
@pytest.mark.parametrize(("body", "verdict"), [("", "pass"), (WORKERS, None)])
def test_long_temporary_folder(body: str, verdict: str | None, tmp_path: Path) -> None:
    """With workers torch itself cannot share tensors there: that hang is the user's, and said."""
    (tmp_path / "pipeline.py").write_text(HEAD + body)
    folder = tmp_path / LONG / "yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy"
    folder.mkdir(parents=True)
    assert len(str(folder)) > 100
    env = environment(tmp_path, TMPDIR=str(folder))
    before = segments()
    process = start(tmp_path, env)
    out, _ = process.communicate(timeout=90)
    report = json.loads(out)
    if verdict is not None:
        assert report["verdict"] == verdict
    else:
        assert report["verdict"] in ("pass", "fail")
        assert report["verdict"] == "pass" or "TMPDIR" in finding_text(report)
    assert_nothing_left(tmp_path, env, before)
    assert list(folder.glob("dlcheck-*")) == []


SLOW = (
    trouble("pass")
    + """
class Slow(Numbers):
    def __len__(self):
        return 100_000
    def __getitem__(self, index):
        time.sleep(0.05)
        return super().__getitem__(index)
def make_loader():
    return DataLoader(Slow(), batch_size=4, num_workers=2)
"""
)


def wait_for_workers(env: dict[str, str]) -> None:
    deadline = time.monotonic() + 60
    while len([c for c in ours(env) if "child.py" in c]) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    time.sleep(1.0)


@pytest.mark.skipif(not LINUX, reason="reads /proc")
@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_interrupted_run_prints_what_it_saw(number: int, status: int, tmp_path: Path) -> None:
    (tmp_path / "pipeline.py").write_text(HEAD + SLOW)
    env = environment(tmp_path)
    before = segments()
    process = start(tmp_path, env)
    wait_for_workers(env)
    process.send_signal(number)
    out, _ = process.communicate(timeout=30)
    report = json.loads(out)
    assert process.returncode == status
    assert report["seen"]["samples"] > 0
    assert report["verdict"] == "incomplete"
    assert_nothing_left(tmp_path, env, before)


@pytest.mark.skipif(not LINUX, reason="reads /proc")
def test_killed_parent_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "pipeline.py").write_text(HEAD + SLOW)
    env = environment(tmp_path)
    before = segments()
    process = start(tmp_path, env)
    wait_for_workers(env)
    process.kill()
    process.communicate(timeout=30)
    assert_nothing_left(tmp_path, env, before)


@pytest.mark.skipif(not LINUX, reason="reads /proc")
def test_killed_child_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "pipeline.py").write_text(HEAD + SLOW)
    env = environment(tmp_path)
    before = segments()
    process = start(tmp_path, env)
    wait_for_workers(env)
    mark = f"DLCHECK_TEST={env['DLCHECK_TEST']}".encode()
    children = [
        int(p.name)
        for p in Path("/proc").glob("[0-9]*")
        if b"child.py" in (p / "cmdline").read_bytes() and mark in (p / "environ").read_bytes()
    ]
    os.kill(min(children), signal.SIGKILL)
    out, _ = process.communicate(timeout=30)
    report = json.loads(out)
    assert (report["verdict"], process.returncode) == ("fail", 1)
    assert "SIGKILL" in finding_text(report)
    assert_nothing_left(tmp_path, env, before)


@pytest.mark.skipif(not LINUX, reason="reads /proc")
def test_sigusr1_says_how_far_it_is_and_goes_on(tmp_path: Path) -> None:
    (tmp_path / "pipeline.py").write_text(HEAD + SLOW)
    env = environment(tmp_path)
    command = [
        sys.executable, "-m", "dlcheck", "shapes", "pipeline.py:make_loader", "--budget", "12s",
    ]  # fmt: skip
    process = subprocess.Popen(
        command, cwd=tmp_path, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    wait_for_workers(env)
    process.send_signal(signal.SIGUSR1)
    _, err = process.communicate(timeout=60)
    assert "samples read" in err
    assert process.returncode == 0
