"""The probe where fork is not to be had: a process of its own that builds the pipeline itself."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dlcheck.run import rebuilt, replay
from dlcheck.run.scratch import Scratch
from dlcheck.run.target import Target, build

JOB = "job.json"
OURS = "probe.json"
# Kept, since a Popen that is dropped while its process runs complains.
_started: list[subprocess.Popen[bytes]] = []


def start(scratch: Scratch) -> str:
    """Start the probe beside the child; returns why there is none, or an empty string."""
    folder = Path(scratch.folder)
    child = Path(__file__).with_name("child.py")
    try:
        job = json.loads((folder / JOB).read_text(encoding="utf-8"))
        ours = folder / OURS
        ours.write_text(json.dumps(job | {"parent": os.getpid(), "probe": True}), encoding="utf-8")
        process = subprocess.Popen(
            [sys.executable, str(child), str(ours)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, ValueError) as error:
        return f"this system has no fork, and no probe was started: {error}"
    _started.append(process)
    scratch.write(obs={"settings": {"probe_pid": process.pid}})
    return ""


def built_again(
    job: dict[str, Any], names_of: Callable[[dict[str, Any]], tuple[str, ...]]
) -> tuple[dict[str, Target], dict[str, tuple[str, ...]], dict[str, rebuilt.Recipe]]:
    """Build in silence what the child builds: targets, names of fields, and how it was done."""
    if job["seed"] is not None:
        replay.seed_all(job["seed"])
    targets: dict[str, Target] = {}
    names: dict[str, tuple[str, ...]] = {}
    recipes: dict[str, rebuilt.Recipe] = {}
    for name, spec in job["splits"].items():
        begun = time.monotonic()
        # What goes wrong is seen, and told, by the child.
        with contextlib.suppress(BaseException):
            made = build(name, spec)
            targets |= made
            names |= dict.fromkeys(made, names_of(spec))
            recipes |= dict.fromkeys(made, rebuilt.Recipe(name, spec, time.monotonic() - begun))
    return targets, names, recipes
