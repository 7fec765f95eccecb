"""The parent reads whole lines, merges them, and turns every end into an Observation."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dlcheck import suspects
from dlcheck.config import Config, UserError
from dlcheck.observation import Observation
from dlcheck.progress import Progress
from dlcheck.run.scratch import Scratch
from dlcheck.session import Job, Session, SessionError, run, scratch_folder
from dlcheck.watchdog import Watchdog

EXIT = "import os\nos._exit(3)\n"
LIST = """
import sys
import torch
print("a word from the user", file=sys.stderr)

def make_loader():
    return [torch.zeros(4, 3), torch.zeros(4, 3)]
"""


def job(folder: Path, splits: dict[str, Any] | None = None, **more: Any) -> Job:
    splits = splits or {"": {"object": "pipeline:make_loader", "role": "train"}}
    config = Config("pipeline:make_loader", str(folder), None, splits, {}, {})
    options = {"python": sys.executable, "quiet": True, "hang_after": 20.0, "budget": 5.0}
    return Job("shapes", config, **(options | more))


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return Session(job(tmp_path), tmp_path, Watchdog(tmp_path, 10), Progress(quiet=True))


def line(**content: Any) -> bytes:
    return json.dumps(content).encode() + b"\n"


SEEN = {"obs": {"splits": {"": {"samples": 4}}}}


def test_a_line_is_read_when_it_is_whole(session: Session, tmp_path: Path) -> None:
    path = tmp_path / "obs-7.jsonl"
    whole = line(**SEEN)
    path.write_bytes(whole + whole[:9])
    assert session._read()
    assert session.observation.splits[""].samples == 4
    assert not session._read()
    with path.open("ab") as file:
        file.write(whole[9:])
    assert session._read()
    assert session.observation.splits[""].samples == 8


def test_the_files_of_all_processes_are_joined(session: Session, tmp_path: Path) -> None:
    for pid in (7, 8, 9):
        (tmp_path / f"obs-{pid}.jsonl").write_bytes(line(**SEEN) * 2)
    session._read()
    assert session.observation.splits[""].samples == 24


def test_what_a_process_writes_the_parent_reads(session: Session, tmp_path: Path) -> None:
    Scratch(str(tmp_path)).write(doing="reading samples", split="val")
    Scratch(str(tmp_path)).write(end=True)
    session._read()
    assert (session.doing, session.split, session.ended) == ("reading samples", "val", True)


def test_a_question_is_answered_by_all_that_was_written_before_it(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker's file may have been read just before its last line came, and the question after."""

    def further(seen: Observation, split: str) -> int:
        return seen.splits[split].samples

    monkeypatch.setattr(suspects, "further", further)
    asking = {"further": "", "answer": "further.json"}

    def main_last() -> Iterator[Path]:
        yield tmp_path / "obs-8.jsonl"
        with (tmp_path / "obs-8.jsonl").open("ab") as worker:
            worker.write(line(**SEEN))
        (tmp_path / "obs-7.jsonl").write_bytes(line(**asking))
        yield tmp_path / "obs-7.jsonl"

    (tmp_path / "obs-8.jsonl").write_bytes(line(**SEEN))
    passes = iter([main_last(), iter([tmp_path / "obs-7.jsonl", tmp_path / "obs-8.jsonl"])])
    monkeypatch.setattr(Path, "glob", lambda *_: next(passes))
    session._read()
    assert json.loads((tmp_path / "further.json").read_text()) == 8


def test_a_mistake_of_the_config_names_its_line(session: Session) -> None:
    mistake = {"mistake": "no such class", "hint": "try Cat", "split": "", "key": "dataset"}
    with pytest.raises(UserError, match="no such class") as caught:
        session._take(mistake)
    assert caught.value.hint == "try Cat"


def test_an_interpreter_without_torch_is_the_users_mistake(session: Session) -> None:
    with pytest.raises(UserError, match="/x/python has no torch") as caught:
        session._take({"no_torch": "ModuleNotFoundError", "python": "/x/python"})
    assert "--python" in caught.value.hint


def test_our_own_failure_is_no_finding(session: Session) -> None:
    with pytest.raises(SessionError, match="Traceback"):
        session._take({"broken": "Traceback ..."})


class TestEnds:
    def test_an_end_that_was_announced_is_none(self, session: Session) -> None:
        session.ended = True
        session._judge_end(0)
        assert session.observation == Observation()

    def test_a_status_is_a_failure(self, session: Session) -> None:
        session._judge_end(7)
        (failure,) = session.observation.failures.values()
        assert (failure.phase, failure.detail["status"]) == ("exit", 7)
        assert session.observation.cut

    @pytest.mark.skipif(sys.platform == "win32", reason="signals")
    def test_a_signal_is_a_failure_with_the_last_sample(
        self, session: Session, tmp_path: Path
    ) -> None:
        scratch = Scratch(str(tmp_path))
        scratch.begin()
        scratch.ask(41)
        session.leader = scratch.pid
        session.split = "val"
        session._take({"obs": {"splits": {"val": {"samples": 4}}}})
        session._judge_end(-signal.SIGSEGV)
        (failure,) = session.observation.splits["val"].failures.values()
        assert (failure.phase, failure.detail["name"]) == ("signal", "SIGSEGV")
        assert failure.detail["last_sample"] == 41

    def test_an_interruption_is_a_cut_and_no_failure(self, session: Session) -> None:
        session.signal = signal.SIGINT
        session._judge_end(-9)
        assert session.observation.failures == {}
        assert session.observation.cut == "interrupted by SIGINT"


def test_how_far_the_run_is_in_few_words(session: Session) -> None:
    assert session._seen() == "starting"
    session._take({"doing": "reading samples", "split": "val"})
    session._take({"obs": {"splits": {"val": {"samples": 1200, "spread": 34, "of": 50000}}}})
    assert session._seen() == "val: 1,234 of 50,000 samples read"


def test_a_long_tmpdir_gives_a_short_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("x" * 100)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    folder = scratch_folder()
    try:
        assert len(str(folder)) < 40
    finally:
        folder.rmdir()


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A short temporary folder of the test's own, so that other runs' folders are not counted."""
    with tempfile.TemporaryDirectory(prefix="own-") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)


def test_an_interpreter_that_does_not_start_is_the_users_mistake(
    tmp_path: Path, temporary: Path
) -> None:
    with pytest.raises(UserError, match="cannot start"):
        run(job(tmp_path, python=str(tmp_path / "none")))
    assert list(temporary.iterdir()) == []


def test_an_early_exit_is_reported_and_nothing_left(tmp_path: Path, temporary: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "pipeline.py").write_text(EXIT)
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    outcome = run(job(tmp_path))
    (failure,) = outcome.observation.failures.values()
    assert failure.detail["status"] == 3
    assert failure.detail["doing"] == "building the loader"
    assert outcome.signal is None
    assert list(temporary.iterdir()) == []
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == handlers


def test_from_a_thread_a_run_works_too(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "pipeline.py").write_text(LIST)
    outcomes = []
    thread = threading.Thread(target=lambda: outcomes.append(run(job(tmp_path))))
    thread.start()
    thread.join()
    (outcome,) = outcomes
    split = outcome.observation.splits[""]
    assert (split.samples, split.batches, split.finished_epochs) == (8, 4, 2)
    assert outcome.observation.failures == {}
    assert "a word from the user" in outcome.stderr


def test_only_the_chosen_split_is_run(tmp_path: Path) -> None:
    splits = {"train": {"object": "no:such"}, "val": {"object": "pipeline:make_loader"}}
    session = Session(
        job(tmp_path, splits, split="val", python=os.devnull), tmp_path,
        Watchdog(tmp_path, 10), Progress(quiet=True),
    )  # fmt: skip
    with pytest.raises(UserError):
        session._start()
    assert list(json.loads((tmp_path / "job.json").read_text())["splits"]) == ["val"]
