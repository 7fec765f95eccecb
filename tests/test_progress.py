"""Progress is one line that stays out of the way of the user's prints."""

from __future__ import annotations

import io
from typing import Any

import pytest

from dlcheck import progress
from dlcheck.progress import Progress


class Stream(io.StringIO):
    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self.buffer = io.BytesIO()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A Progress on a stream of ours, with a clock that the test moves."""

    def made(*, terminal: bool, quiet: bool = False) -> Any:
        stream = Stream(terminal=terminal)
        monkeypatch.setattr("sys.stderr", stream)
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("COLUMNS", "40")
        clock = [0.0]
        monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
        shown = Progress(quiet=quiet)
        return shown, clock, lambda: stream.buffer.getvalue().decode()

    return made


def test_the_first_two_seconds_are_silent(make: Any) -> None:
    shown, clock, written = make(terminal=True)
    clock[0] = 1.9
    shown.show("reading")
    assert written() == ""
    clock[0] = 2.1
    shown.show("reading")
    assert "dlcheck: reading, 2 s" in written()


def test_a_terminal_has_one_line_cut_to_its_width(make: Any) -> None:
    shown, clock, written = make(terminal=True)
    for second in (3, 4, 5):
        clock[0] = second
        shown.show("x" * 100)
    text = written()
    assert "\n" not in text
    lines = text.split("\r")[1:]
    assert len(lines) == 3
    assert all(len(line.removesuffix("\x1b[K")) <= 39 for line in lines)


def test_elsewhere_a_line_comes_every_ten_seconds(make: Any) -> None:
    shown, clock, written = make(terminal=False)
    for tenth in range(350):
        clock[0] = tenth / 10
        shown.show("reading")
    assert written().count("\n") == 3
    assert "\x1b" not in written()


def test_the_users_prints_take_the_line_away(make: Any) -> None:
    shown, clock, written = make(terminal=True)
    clock[0] = 3
    shown.show("reading")
    shown.pass_on(b"epoch 1\n")
    assert written().endswith("\r\x1b[Kepoch 1\n")


def test_quiet_shows_nothing_but_says_what_it_is_asked(make: Any) -> None:
    shown, clock, written = make(terminal=True, quiet=True)
    clock[0] = 100
    shown.show("reading")
    assert written() == ""
    shown.say("reading")
    assert written() == "dlcheck: reading\n"


def test_nothing_is_left_on_the_line(make: Any) -> None:
    shown, clock, written = make(terminal=True)
    clock[0] = 3
    shown.show("reading")
    shown.close()
    assert written().endswith("\r\x1b[K")


@pytest.mark.parametrize("stream", [None, io.StringIO()])
def test_a_stderr_that_is_closed_or_odd_is_no_crash(
    stream: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if stream is not None:
        stream.close = lambda: None
    monkeypatch.setattr("sys.stderr", stream)
    shown = Progress(quiet=False)
    shown.begun -= 100
    shown.shown -= 100
    shown.show("reading")
    shown.say("x")
    shown.pass_on(b"x")
    shown.close()
