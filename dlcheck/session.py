"""The parent: starts the child, reads what it writes, watches over it, and clears up."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import IO, Any

from dlcheck import guardian, suspects
from dlcheck.config import Config, UserError, locate
from dlcheck.observation import Failure, Observation, Split, failure_from_json
from dlcheck.progress import Progress
from dlcheck.ranks import Peers, Rank, lost
from dlcheck.redraws import illustrated, pictures_for, requests_for
from dlcheck.run.scratch import last_sample
from dlcheck.watchdog import Watchdog, crash_stacks

POLL = 0.02
GRACE = 5.0
TAIL = 16_384
CHUNK = 65_536
OVERTIME = 4.0
PROBE_TIME = 20.0
# Before the user's code runs nothing of theirs can hang; torch from a cold disk takes minutes.
STARTING = ("starting", "importing torch")
STARTING_TIME = 300.0
PROBE_ANSWERS = 4
SHORT_PATH = 60
CHILD = Path(__file__).parent / "run" / "child.py"
NO_TORCH_HINT = (
    "point --python at the interpreter of your training job, or pip install 'dlcheck[torch]'"
)
INTERRUPTS = ("SIGINT", "SIGTERM", "SIGHUP")


class SessionError(RuntimeError):
    """dlcheck itself failed; the message holds what there is to report."""


@dataclass(frozen=True)
class Job:
    """What to run. Seconds for `budget` and `hang_after`; `samples` -1 means all of them."""

    command: str
    config: Config
    python: str
    budget: float = 60.0
    samples: int | None = None
    seed: int | None = None
    hang_after: float = 30.0
    split: str | None = None
    quiet: bool = False
    rank: Rank | None = None
    images: str | None = None
    thumbnails: bool = False
    epochs: int = 0
    epoch_batches: int | None = None
    device: str = ""


@dataclass(frozen=True)
class Outcome:
    """What was seen; `signal` is the one that interrupted the run."""

    observation: Observation
    signal: int | None = None
    stderr: str = ""


@dataclass
class Session:
    """One run of one child."""

    job: Job
    scratch: Path
    watchdog: Watchdog
    progress: Progress
    observation: Observation = field(default_factory=Observation)
    offsets: dict[Path, int] = field(default_factory=dict)
    tail: bytearray = field(default_factory=bytearray)
    doing: str = "starting"
    split: str = ""
    ended: bool = False
    signal: int | None = None
    asked: bool = False
    leader: int = 0
    probe: str = ""
    patience: float = 0.0
    peers: Peers | None = None

    def run(self) -> Outcome:
        """Start the child, follow it to its end and say what was seen."""
        with _handling(self), self._guarded() as guard:
            child = self._start()
            self.leader = child.pid
            guard.write(f"child {child.pid}\n".encode())
            guard.flush()
            relay = threading.Thread(target=self._relay, args=(child.stderr,), daemon=True)
            relay.start()
            try:
                self._follow(child)
                self._join()
                self._explain()
                self._draw()
            finally:
                self.progress.close()
                pids = guardian.processes_of(str(self.scratch))
                guardian.end_session(child.pid)
                child.wait()
                relay.join(GRACE)
                if child.stderr and not relay.is_alive():
                    child.stderr.close()
                guardian.remove_segments(pids | {child.pid}, str(self.scratch))
            self._read()
            self._judge_end(child.returncode)
            if self.peers and self.peers.cut:
                self._cut(self.peers.cut)
        return Outcome(self.observation, self.signal, self._stderr())

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[IO[bytes]]:
        """Keep a process at hand that clears up if this one is killed."""
        command = [sys.executable, "-I", "-S", guardian.__file__, str(self.scratch)]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as guard:  # fmt: skip
            assert guard.stdin is not None  # noqa: S101
            try:
                yield guard.stdin
            finally:
                with contextlib.suppress(OSError):
                    guard.stdin.write(b"done\n")
                    guard.stdin.close()

    def _start(self) -> subprocess.Popen[bytes]:
        job = self.job
        splits = job.config.splits
        if job.split is not None:
            splits = {job.split: splits[job.split]}
        message = {
            "parent": os.getpid(), "scratch": str(self.scratch), "folder": job.config.folder,
            "target": job.config.target, "splits": splits, "budget": job.budget,
            "rank": [job.rank.number, job.rank.of] if job.rank else None,
            "samples": job.samples, "seed": job.seed, "hang_after": job.hang_after,
            "command": job.command, "epochs": job.epochs, "epoch_batches": job.epoch_batches,
            "device": job.device,
        }  # fmt: skip
        path = self.scratch / "job.json"
        path.write_text(json.dumps(message), encoding="utf-8")
        try:
            return subprocess.Popen(
                [job.python, str(CHILD), str(path)], stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            message_ = f"cannot start {job.python}: {error.strerror}"
            raise UserError(message_, "--python wants the path of a Python interpreter") from error

    def _relay(self, stream: IO[bytes]) -> None:
        """Pass on what the user's code prints, and keep the end of it."""
        while True:
            chunk = os.read(stream.fileno(), CHUNK)
            if not chunk:
                return
            self.tail += chunk
            del self.tail[:-TAIL]
            if not self.job.quiet:
                self.progress.pass_on(chunk)

    def _follow(self, child: subprocess.Popen[bytes]) -> None:
        limit = time.monotonic() + OVERTIME * (self.job.budget + self.job.hang_after)
        leave = float("inf")
        patience = time.monotonic() + STARTING_TIME
        while child.poll() is None:
            time.sleep(POLL)
            if self._read() or (self.doing in STARTING and time.monotonic() < patience):
                self.watchdog.alive()
            if self.ended:
                self._ask_probe()
                leave = min(leave, time.monotonic() + GRACE)
            if self.signal is not None or time.monotonic() > leave:
                return
            if self.asked:
                self.asked = False
                self.progress.say(self._seen())
            hang = None if self.ended else self.watchdog.hang()
            if hang is not None:
                self._add_failure(failure_from_json(hang), cut="it hung")
                return
            if self.job.samples != -1 and time.monotonic() > limit:
                self._cut(f"it did not end within {OVERTIME:.0f} x its budget")
                return
            self.progress.show(self._seen())

    def _join(self) -> None:
        """Wait on rank 0 for what the others saw, a short time only once this run is over."""
        if self.peers is None or not self.peers.rank.first:
            return
        self._read()
        while self.peers.waiting(hurry=self.signal is not None):
            time.sleep(POLL)
            self.progress.show("waiting for the other ranks")
        self.observation = self.peers.join(self.observation)

    def _ask_probe(self) -> None:
        """Ask for journeys and redraws, once; of many ranks when all have said what they saw."""
        if self.probe or self.signal is not None or (self.peers and not self.peers.joined):
            return
        requests = requests_for(self.observation, images=self.job.images)
        if self.job.thumbnails:
            requests = illustrated(requests, self.observation)
        there = self.observation.settings.get("probe") == ""
        self.probe = "asked" if requests and there else "none"
        if self.probe == "asked":
            self._request(requests, "ask.json")

    def _request(self, requests: list[dict[str, Any]], name: str) -> None:
        """Hand a list of requests to the probe, which answers them within its time."""
        self._be_patient()
        path = self.scratch / "ask.tmp"
        path.write_text(json.dumps(requests), encoding="utf-8")
        path.replace(self.scratch / name)

    def _be_patient(self) -> None:
        """Give the probe its time once more: it has just been asked, or has just answered."""
        self.patience = time.monotonic() + max(PROBE_TIME, self.job.hang_after)

    def _explain(self) -> None:
        """Wait for the probe's answers; it may die or hang without harm."""
        self._read()
        self._ask_probe()
        end = time.monotonic() + PROBE_ANSWERS * max(PROBE_TIME, self.job.hang_after)
        while self.probe == "asked" and self.signal is None:
            time.sleep(POLL)
            if self._read() and time.monotonic() < end:
                self._be_patient()
            self.progress.show("tracing single samples")
            gone = self._probe_gone()
            if self.probe == "asked" and (gone or time.monotonic() > self.patience):
                reason = "died" if gone else f"did not answer in {self.job.hang_after:.0f} s"
                self._probe_failed(f"the process that traces single samples {reason}")

    def _draw(self) -> None:
        """Wait for the pictures that `--images` asks for; they change no verdict."""
        if self.job.images is None:
            return
        if self.probe != "answered" or self.signal is not None:
            self._say_of_pictures("no sample could be traced")
            return
        self.probe = "drawing"
        self._request(pictures_for(self.observation, self.job.images), "pictures.json")
        while self.probe == "drawing" and self.signal is None:
            time.sleep(POLL)
            self._read()
            self.progress.show("drawing pictures")
            if self._probe_gone() or time.monotonic() > self.patience:
                self._read()
                if self.probe == "drawing":
                    self._say_of_pictures("the process that draws them ended or did not answer")
                return

    def _say_of_pictures(self, why: str) -> None:
        settings = {"pictures_missing": why}
        self.observation = self.observation.merge(Observation(settings=settings))

    def _probe_gone(self) -> bool:
        pid = self.observation.settings.get("probe_pid")
        return isinstance(pid, int) and not guardian.in_session(pid, self.leader)

    def _probe_failed(self, reason: str) -> None:
        self.probe = "failed"
        self.observation = self.observation.merge(Observation(settings={"probe": reason}))

    def _read(self) -> bool:
        """Merge the whole lines written since the last time; True when there were any."""
        news = False
        for path in self.scratch.glob("obs-*.jsonl"):
            with path.open("rb") as file:
                file.seek(self.offsets.get(path, 0))
                data = file.read()
            whole = data[: data.rfind(b"\n") + 1]
            self.offsets[path] = self.offsets.get(path, 0) + len(whole)
            for line in whole.splitlines():
                news = True
                self._take(json.loads(line))
        return news

    def _take(self, line: dict[str, Any]) -> None:
        if "obs" in line:
            self.observation = self.observation.merge(Observation.from_json(line["obs"]))
        elif "doing" in line:
            self.doing, self.split = line["doing"], line.get("split", self.split)
        elif "mistake" in line:
            place = locate(self.job.config, line["split"], line["key"])
            raise UserError(f"{place}: {line['mistake']}", line["hint"])
        elif "no_torch" in line:
            message = f"{line['python']} has no torch ({line['no_torch']})"
            raise UserError(message, NO_TORCH_HINT)
        elif "answered" in line:
            self.probe = "answered"
        elif "probe" in line:
            self._probe_failed(line["probe"])
            self.probe = "asked"
        elif "broken" in line:
            raise SessionError(line["broken"])
        elif "end" in line:
            self.ended = True
        else:
            self._answer_to(line)

    def _answer_to(self, line: dict[str, Any]) -> None:
        """Say what the child wants said, tell it what it wants to know."""
        if "say" in line and not self.job.quiet:
            self.progress.say(line["say"])
        elif "further" in line:
            # What workers wrote before the child asked may stand in files that were read before.
            self._read()
            self._answer(line["answer"], suspects.further(self.observation, line["further"]))

    def _answer(self, name: str, number: int) -> None:
        """Tell the child how many epochs to add."""
        path = self.scratch / f"{name}.tmp"
        path.write_text(json.dumps(number), encoding="utf-8")
        path.replace(self.scratch / name)

    def _judge_end(self, status: int) -> None:
        """Turn an end that the child did not announce into a failure or a cut."""
        if self.signal is not None:
            self._cut(f"interrupted by {signal.Signals(self.signal).name}")
        if self.ended or self.observation.cut:
            return
        detail: dict[str, Any] = {"doing": self.doing, "stderr": self._stderr()[-2000:]}
        sample = last_sample(self.scratch, self.leader)
        if sample is not None:
            detail["last_sample"] = sample
        if status < 0:
            stacks, frames = crash_stacks(self.scratch / f"stacks-{self.leader}.txt")
            name = signal.Signals(-status).name
            detail |= {"signal": -status, "name": name, "stacks": stacks}
            failure = {"phase": "signal", "message": name, "frames": frames, "detail": detail}
        else:
            detail |= {"status": status}
            failure = {"phase": "exit", "message": f"status {status}", "detail": detail}
        self._add_failure(failure_from_json(failure), cut="the process ended early")

    def _add_failure(self, failure: Failure, cut: str) -> None:
        detail = {"stderr": self._stderr()[-2000:], "doing": self.doing} | failure.detail
        failure = dataclasses.replace(failure, detail=detail)
        part = Observation(failures={failure.key: failure}, cut=cut)
        if self.split in self.observation.splits:
            split = Split(failures={failure.key: failure})
            part = Observation(splits={self.split: split}, cut=cut)
        self.observation = self.observation.merge(part)

    def _cut(self, why: str) -> None:
        self.observation = self.observation.merge(Observation(cut=why))

    def _stderr(self) -> str:
        return self.tail.decode("utf-8", "replace")

    def _seen(self) -> str:
        """Say in a few words how far the run is."""
        split = self.observation.splits.get(self.split)
        if self.doing != "reading samples" or split is None:
            return self.doing
        name = f"{self.split}: " if self.split else ""
        of = f" of {split.of:,}" if split.of else ""
        return f"{name}{split.samples + split.spread:,}{of} samples read"


@contextlib.contextmanager
def _handling(session: Session) -> Iterator[None]:
    """Take the signals that end a run, so that what was seen is printed; then give them back."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        del frame
        session.signal = number

    def ask(number: int, frame: FrameType | None) -> None:
        del number, frame
        session.asked = True

    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for name in (*INTERRUPTS, "SIGUSR1"):
            number = getattr(signal, name, None)
            if number is not None:
                before[number] = signal.signal(number, ask if name == "SIGUSR1" else interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def scratch_folder() -> Path:
    """Make the folder that the processes of a run write to; a short path whatever TMPDIR says."""
    base = tempfile.gettempdir()
    if len(base) > SHORT_PATH and Path("/tmp").is_dir():  # noqa: S108
        base = "/tmp"  # noqa: S108
    return Path(tempfile.mkdtemp(prefix="dlcheck-", dir=base))


def run(job: Job) -> Outcome:
    """Run a job to its end, or to its interruption.

    Raises:
        UserError: the config does not fit the code it names, or there is no torch.
        SessionError: dlcheck itself failed.
    """
    scratch = scratch_folder()
    progress = Progress(quiet=job.quiet)
    peers = Peers.start(job.rank, job.python, scratch) if job.rank else None
    try:
        session = Session(job, scratch, Watchdog(scratch, job.hang_after), progress, peers=peers)
        if job.config.settings.get("machine"):
            settings = {"machine": job.config.settings["machine"]}
            session.observation = Observation(settings=settings)
        outcome = _told(peers, session.run)
        if peers and not peers.rank.first:
            peers.give(outcome.observation)
        return outcome
    finally:
        if peers:
            peers.close()
        shutil.rmtree(scratch, ignore_errors=True)


def _told(peers: Peers | None, run_: Callable[[], Outcome]) -> Outcome:
    """Let rank 0 report what keeps another rank from running at all."""
    try:
        return run_()
    except (UserError, SessionError) as error:
        if peers is None or peers.rank.first:
            raise
        return Outcome(lost(error))
