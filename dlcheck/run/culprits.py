"""Who keeps what: the probe's answer to a request of kind `leak`.

Each pass runs in a fork of the probe, from the state before anything was drawn, within its time.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import multiprocessing
import os
import select
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from dlcheck.observation import plain
from dlcheck.observation.memory import Culprit
from dlcheck.observers.handles import SHM, follow_segments
from dlcheck.run import accusing, passes
from dlcheck.run.passes import OF, Data, Job
from dlcheck.run.rounds import unhooked
from dlcheck.run.scratch import Scratch
from dlcheck.run.watch import die_with_parent

SECONDS = 60.0
LEAST_SECONDS = 4.0
OVERTIME = 1.5
STARTING = 20.0
HEAVY = ("torch._dynamo",)
SILENCE = 4.0
MOST_MESSAGE = 1 << 24
KEEPING = set(OF)
Alive = Callable[[], None]
ALONE: dict[str, Callable[[Job], Data]] = {
    "peak": passes.spend, "cycles": passes.collect, "shared": passes.share,
}  # fmt: skip


def answer(request: Data, target: Any, scratch: Scratch) -> None:
    """Explain each resource in each role, and write the culprits as they are found."""
    follow_segments(scratch.folder)
    begun = time.time()
    alive = partial(scratch.write, obs={})
    roles = [role for role in ("main", "worker") if role in request.get("roles", ("main",))]
    for role in roles:
        for key, culprit in _explained(request, role, target, len(roles), alive):
            told = {key: plain(culprit)}
            scratch.write(obs={"splits": {request["split"]: {"culprits": told}}})
    _clear_segments(scratch.folder, begun)


def _explained(
    request: Data, role: str, target: Any, roles: int, alive: Alive
) -> Iterator[tuple[str, Culprit]]:
    resources = tuple(request.get("resources") or ("heap",))
    keeping = tuple(one for one in resources if one in KEEPING)
    alone = [one for one in resources if one in ALONE]
    parts = roles * (len(alone) + 3 * bool(keeping) + ("view" in keeping))
    seconds = max(LEAST_SECONDS, float(request.get("seconds") or SECONDS) / max(1, parts))
    job = Job(target, role, keeping, int(request.get("batches") or 0), seconds)
    if keeping:
        kept = forked(partial(passes.keep, job), seconds, alive)
        kept |= {"rows": []}
        if set(accusing.ALLOCATED) & set(keeping):
            kept["rows"] = forked(partial(passes.allocate, job), seconds, alive).get("rows", [])
        names = _names(kept, keeping)
        followed = forked(partial(passes.lines, job, names), seconds, alive)
        native: Data = {}
        if "heap" in keeping and accusing.unexplained(kept):
            native = forked(partial(passes.stay, job), seconds, alive)
        followed |= {"stayed": native.get("stayed", []), "native": native}
        for resource in keeping:
            found = accusing.kept(resource, role, kept, followed)
            if resource == "view":
                shipped = forked(partial(passes.ship, job), seconds, alive)
                found = [*found, *accusing.shipped(role, shipped)]
            yield from _ranked(resource, role, found or [accusing.nothing(resource, role, kept)])
    for resource in alone:
        told = forked(partial(ALONE[resource], job), seconds, alive)
        found = accusing.ALONE[resource](role, told)
        yield from _ranked(resource, role, found or [accusing.nothing(resource, role, told)])


def _ranked(resource: str, role: str, found: list[Culprit]) -> Iterator[tuple[str, Culprit]]:
    for rank, culprit in enumerate(found[: accusing.MOST_RANKS]):
        yield f"{resource}:{role}:{rank}", culprit


def _names(kept: Data, resources: tuple[str, ...]) -> list[str]:
    """List the names whose storing lines are wanted, those of each resource in turn."""
    found: list[str] = []
    for rank in range(accusing.MOST_RANKS):
        for resource in resources:
            rows = accusing.grown(resource, kept)
            found += [row["full"] for row in rows[rank : rank + 1]]
    return list(dict.fromkeys(found))


def forked(work: Callable[[], Data], seconds: float, alive: Alive) -> Data:
    """Run a pass in a process of its own; empty when it failed or did not end in its time.

    `alive` is called now and then, so that the parent waits.
    """
    if not hasattr(os, "fork"):
        return {}
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pid = os.fork()
    if pid == 0:
        try:
            os.close(reading)
            os.setpgid(0, 0)
            die_with_parent()
            passes.settle()
            unhooked()
            told = work() | {"imported": [name for name in HEAVY if name in sys.modules]}
            data = json.dumps(told, default=str).encode() + b"\n"
            while data:
                data = data[os.write(writing, data) :]
        finally:
            with contextlib.suppress(BaseException):
                _leave()
            os._exit(0)
    os.close(writing)
    try:
        told = _received(reading, time.monotonic() + OVERTIME * seconds + STARTING, alive)
    finally:
        os.close(reading)
        _end(pid)
    # What one pass had to import first, the next ones need not.
    for name in told.pop("imported", ()):
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    return told


def _received(reading: int, deadline: float, alive: Alive) -> Data:
    """Read one line of JSON; other processes may hold the pipe open, so its end is no sign."""
    data = b""
    while not data.endswith(b"\n") and len(data) < MOST_MESSAGE:
        left = deadline - time.monotonic()
        if left <= 0:
            return {}
        if not select.select([reading], [], [], min(left, SILENCE))[0]:
            alive()
            continue
        part = os.read(reading, 1 << 16)
        if not part:
            return {}
        data += part
    found: Data = json.loads(data)
    return found


def _end(pid: int) -> None:
    """End a pass and the workers of its group."""
    limit = time.monotonic() + 1.0
    while time.monotonic() < limit:
        with contextlib.suppress(ChildProcessError):
            if os.waitpid(pid, os.WNOHANG)[0]:
                break
        time.sleep(0.005)
    with contextlib.suppress(OSError):
        os.killpg(pid, signal.SIGKILL)
    with contextlib.suppress(OSError):
        os.waitpid(pid, os.WNOHANG)


def _leave() -> None:
    """End the workers, and let torch's manager of shared memory clear up."""
    for child in multiprocessing.active_children():
        child.terminate()


def _clear_segments(folder: str, begun: float) -> None:
    """Remove the shared memory that the passes made by name."""
    for path in Path(folder).glob("segments-*"):
        with contextlib.suppress(OSError):
            if path.stat().st_mtime >= begun:
                for name in path.read_text("utf-8", "replace").split():
                    with contextlib.suppress(OSError):
                        (Path(SHM) / name).unlink()
