"""What joins the ranks of a run: a process beside each, which sends what was seen to rank 0.

torch.distributed stays out of the parent, which never imports torch, and out of the child, which
may crash. The group is formed at once, so that a rank that dies is noticed by its connection.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

MINE, JOINED, BROKEN = "mine.json", "joined", "broken.txt"
POLL = 0.02
FORMING = 120.0
LONG = timedelta(days=30)
LENGTH, ACKNOWLEDGED = 1, 2
LOOPBACK = "lo"
MOST_TEXT = 300


def join(job: dict[str, Any]) -> None:
    """Take part in the group until what this rank saw is with rank 0."""
    folder, (number, of) = Path(job["scratch"]), job["rank"]
    try:
        distributed = _form(number, of)
        (folder / JOINED).touch()
        if number == 0:
            for other in range(1, of):
                _receive(distributed, other, folder)
        else:
            _send(distributed, folder)
    except Exception as error:  # noqa: BLE001 - no group, a lost connection: the parent says so
        with contextlib.suppress(OSError):
            (folder / BROKEN).write_text(f"{type(error).__name__}: {error}", encoding="utf-8")
    # Ending the group politely would wait for ranks that are gone.
    os._exit(0)


def _form(number: int, of: int) -> Any:
    from torch import distributed

    if os.environ.get("LOCAL_WORLD_SIZE") == str(of):
        # All on this machine: its host name need not be known to anybody.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", LOOPBACK)
    patience = timedelta(seconds=FORMING)
    store, _, _ = next(distributed.rendezvous("env://", number, of, timeout=patience))
    # A group of the user's own may use the same store.
    distributed.init_process_group(
        "gloo", store=distributed.PrefixStore("dlcheck", store), rank=number, world_size=of,
        timeout=patience,
    )  # fmt: skip
    return distributed


def part(number: int) -> str:
    """Name the file with what a rank sent."""
    return f"rank-{number}.json"


def gone(number: int) -> str:
    """Name the file that says why a rank sent nothing."""
    return f"gone-{number}.txt"


def _receive(distributed: Any, other: int, folder: Path) -> None:
    """Wait for what another rank saw, however long it reads."""
    import torch

    try:
        size = torch.zeros(1, dtype=torch.int64)
        distributed.irecv(size, other, tag=LENGTH).wait(LONG)
        data = torch.zeros(int(size), dtype=torch.uint8)
        distributed.irecv(data, other, tag=LENGTH).wait(LONG)
        draft = folder / f"{part(other)}.tmp"
        draft.write_bytes(data.numpy().tobytes())
        draft.replace(folder / part(other))
        distributed.isend(torch.ones(1), other, tag=ACKNOWLEDGED).wait(LONG)
    except RuntimeError as error:
        (folder / gone(other)).write_text(_plainly(error), encoding="utf-8")


def _plainly(error: Exception) -> str:
    """Leave out where in gloo it was noticed, and gloo's advice."""
    text = re.sub(r"^\[[^]]*\]\s*", "", str(error).strip()).partition(" This is typically")[0]
    return text.splitlines()[0][:MOST_TEXT] if text else type(error).__name__


def _send(distributed: Any, folder: Path) -> None:
    """Wait for the parent to hand over what it saw, and send it."""
    import torch

    mine = folder / MINE
    while not mine.exists():
        if not folder.exists():
            return
        time.sleep(POLL)
    data = torch.frombuffer(bytearray(mine.read_bytes()), dtype=torch.uint8)
    distributed.isend(torch.tensor([len(data)]), 0, tag=LENGTH).wait(LONG)
    distributed.isend(data, 0, tag=LENGTH).wait(LONG)
    distributed.irecv(torch.zeros(1), 0, tag=ACKNOWLEDGED).wait(LONG)
