"""One run on many ranks, as torchrun starts them: each reads its part, rank 0 reports for all."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import json
import os
import subprocess
import time
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dlcheck.observation import Failure, Observation, Split
from dlcheck.run import ranks as group

CHILD = Path(__file__).parent / "run" / "child.py"
POLL = 0.02
GRACE = 5.0
ORDER = "order:"
STATES = "states"
SEEN = "seen"


@dataclass(frozen=True)
class Rank:
    """Which of the processes of a run this is.

    All ranks seed alike where the user gives no seed: their samplers must give one order.
    """

    number: int
    of: int
    seed: int = 0

    @property
    def first(self) -> bool:
        """Tell whether this rank reports for all."""
        return self.number == 0


def rank_of(environment: Mapping[str, str]) -> Rank | None:
    """Read what torchrun says; None when it did not start us, or started one process."""
    try:
        number, of = int(environment["RANK"]), int(environment["WORLD_SIZE"])
    except (KeyError, ValueError):
        return None
    run = environment.get("TORCHELASTIC_RUN_ID")
    if run is None or of < 2:  # noqa: PLR2004 - one alone has nobody to share with
        return None
    return Rank(number, of, zlib.crc32((run + environment.get("MASTER_PORT", "")).encode()))


@dataclass
class Peers:
    """The other ranks, as this one sees them through the process that joins them."""

    rank: Rank
    scratch: Path
    helper: subprocess.Popen[bytes]
    cut: str = ""
    joined: bool = False
    late: float = field(default=float("inf"))

    @classmethod
    def start(cls, rank: Rank, python: str, scratch: Path) -> Peers:
        """Start the process that joins the ranks, in a folder of its own in the scratch folder."""
        folder = scratch / "ranks"
        folder.mkdir()
        job = {"parent": os.getpid(), "scratch": str(folder), "rank": [rank.number, rank.of]}
        path = folder / "job.json"
        path.write_text(json.dumps(job), encoding="utf-8")
        with (folder / "stderr").open("wb") as aside:
            helper = subprocess.Popen(
                [python, str(CHILD), str(path)], stdin=subprocess.DEVNULL,
                stdout=aside, stderr=aside, start_new_session=True,
            )  # fmt: skip
        return cls(rank, folder, helper)

    def give(self, seen: Observation) -> None:
        """Send what this rank saw to rank 0, with the random states that its failures need."""
        states = {}
        for name in _states(seen):
            with contextlib.suppress(OSError):
                data = (self.scratch.parent / name).read_bytes()
                states[name] = base64.b64encode(data).decode("ascii")
        draft = self.scratch / f"{group.MINE}.tmp"
        draft.write_text(json.dumps({SEEN: seen.to_json(), STATES: states}), encoding="utf-8")
        draft.replace(self.scratch / group.MINE)
        self.helper.wait()

    def waiting(self, *, hurry: bool) -> bool:
        """Tell whether some rank has neither sent its part nor is known to be gone."""
        if hurry:
            self.late = min(self.late, time.monotonic() + GRACE)
        ended = self.helper.poll() is not None
        left = [number for number in self.others() if not self._heard(number)]
        return bool(left) and not ended and time.monotonic() < self.late

    def others(self) -> range:
        """Return the numbers of the ranks above 0."""
        return range(1, self.rank.of)

    def _heard(self, number: int) -> bool:
        files = (group.part(number), group.gone(number))
        return any((self.scratch / name).exists() for name in files)

    def join(self, mine: Observation) -> Observation:
        """Merge what all ranks saw as if one had read it; a rank that is gone is a failure."""
        self.joined = True
        seen, finished = mine, [mine]
        for number in self.others():
            other = self._part(number)
            if other is None:
                failure = self._gone(number)
                seen = seen.merge(Observation(failures={failure.key: failure}))
                self.cut = self.cut or f"rank {number} was lost"
                continue
            self.cut = self.cut or (f"rank {number}: {other.cut}" if other.cut else "")
            finished.append(other)
            seen = seen.merge(_apart(other, seen))
        if _differ(seen):
            self.cut = self.cut or "the ranks drew batches in different orders"
        splits = {name: _whole(name, split, finished) for name, split in seen.splits.items()}
        settings = {k: v for k, v in seen.settings.items() if not k.startswith(ORDER)}
        settings["ranks"] = self.rank.of
        return dataclasses.replace(seen, splits=splits, settings=settings)

    def _part(self, number: int) -> Observation | None:
        """Read what a rank sent; its random states go where the probe looks for them."""
        path = self.scratch / group.part(number)
        if not path.exists():
            return None
        data = json.loads(path.read_text(encoding="utf-8"))
        for name, state in data[STATES].items():
            (self.scratch.parent / _renamed(name, number)).write_bytes(base64.b64decode(state))
        return _from(Observation.from_json(data[SEEN]), number)

    def _gone(self, number: int) -> Failure:
        """Describe a rank that sent nothing."""
        why = next(
            (text for text in map(self._text, (group.gone(number), group.BROKEN)) if text), ""
        )
        doing = "joined" if (self.scratch / group.JOINED).exists() else "starting"
        message = f"rank {number} of {self.rank.of} ended without a report"
        if doing == "starting":
            message = f"rank {number} of {self.rank.of} was lost before the ranks had met"
        detail: dict[str, Any] = {"rank": number, "cause": why, "doing": doing}
        return Failure("rank", message=message, detail=detail)

    def _text(self, name: str) -> str:
        with contextlib.suppress(OSError):
            return (self.scratch / name).read_text(encoding="utf-8", errors="replace").strip()
        return ""

    def close(self) -> None:
        """End the process that joins the ranks."""
        self.helper.kill()
        self.helper.wait()


def lost(error: Exception) -> Observation:
    """Describe a rank on which nothing could be run, for rank 0 to report."""
    failure = Failure("rank", type(error).__name__, str(error))
    return Observation(failures={failure.key: failure}, cut=str(error))


def _states(seen: Observation) -> Iterator[str]:
    for split in seen.splits.values():
        for failure in split.failures.values():
            if isinstance(failure.detail.get("state"), str):
                yield failure.detail["state"]


def _renamed(state: str, number: int) -> str:
    return f"{state}-of-rank-{number}"


def _from(seen: Observation, number: int) -> Observation:
    """Say of each failure which rank met it."""

    def told(failure: Failure) -> Failure:
        detail = failure.detail | {"rank": number}
        if isinstance(detail.get("state"), str):
            detail["state"] = _renamed(detail["state"], number)
        return dataclasses.replace(failure, detail=detail)

    splits = {
        name: dataclasses.replace(
            split, failures={key: told(one) for key, one in split.failures.items()}
        )
        for name, split in seen.splits.items()
    }
    failures = {key: told(one) for key, one in seen.failures.items()}
    return dataclasses.replace(seen, splits=splits, failures=failures)


def _apart(other: Observation, seen: Observation) -> Observation:
    """Leave out what is the rank's own affair; its seconds passed beside those of the others."""
    splits = {}
    for name, split in other.splits.items():
        known = seen.splits.get(name, Split())
        splits[name] = dataclasses.replace(split, seconds=max(0.0, split.seconds - known.seconds))
    settings = {key: value for key, value in other.settings.items() if key.startswith(ORDER)}
    return dataclasses.replace(other, splits=splits, settings=settings, cut="")


def _whole(name: str, split: Split, parts: list[Observation]) -> Split:
    """Count as finished only the epochs that every rank finished."""
    finished = [one.splits[name].finished_epochs for one in parts if _driven(one, name)]
    return dataclasses.replace(split, finished_epochs=min(finished, default=0))


def _driven(seen: Observation, name: str) -> bool:
    split = seen.splits.get(name)
    return split is not None and bool(split.epochs)


def _differ(seen: Observation) -> bool:
    orders: dict[str, set[Any]] = {}
    for key, value in seen.settings.items():
        if key.startswith(ORDER):
            orders.setdefault(key.rpartition(":")[0], set()).add(value)
    return any(len(values) > 1 for values in orders.values())
