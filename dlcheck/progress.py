"""One line on stderr that says how far a run is, and what the user's code prints around it."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import threading
import time

QUIET_SECONDS = 2.0
REDRAW = 0.2
LINE_EVERY = 10.0


class Progress:
    """Shows nothing in the first two seconds; a line every ten where there is no terminal."""

    def __init__(self, *, quiet: bool) -> None:
        self.quiet = quiet
        self.begun = self.shown = time.monotonic()
        drawable = os.environ.get("TERM") != "dumb"
        self.terminal = drawable and sys.stderr is not None and sys.stderr.isatty()
        self.drawn = False
        self.lock = threading.Lock()

    def show(self, text: str) -> None:
        """Show where the run is, if it is time."""
        now = time.monotonic()
        pause = REDRAW if self.terminal else LINE_EVERY
        if self.quiet or now - self.begun < QUIET_SECONDS or now - self.shown < pause:
            return
        self.shown = now
        line = f"dlcheck: {text}, {now - self.begun:.0f} s"
        if not self.terminal:
            self._write(f"{line}\n".encode())
            return
        width = shutil.get_terminal_size().columns - 1
        with self.lock:
            self.drawn = True
            self._write(f"\r{line[:width]}\x1b[K".encode())

    def say(self, text: str) -> None:
        """Say something now, on a line of its own."""
        with self.lock:
            self._clear()
            self._write(f"dlcheck: {text}\n".encode())

    def pass_on(self, chunk: bytes) -> None:
        """Write what the user's code printed."""
        with self.lock:
            self._clear()
            self._write(chunk)

    def close(self) -> None:
        """Take the line away."""
        with self.lock:
            self._clear()

    def _clear(self) -> None:
        if self.drawn:
            self.drawn = False
            self._write(b"\r\x1b[K")

    @staticmethod
    def _write(data: bytes) -> None:
        with contextlib.suppress(OSError, ValueError, AttributeError):
            sys.stderr.buffer.write(data)
            sys.stderr.buffer.flush()
