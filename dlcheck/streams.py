"""Standard streams that may be closed, piped, or unable to take a character."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys

import click

from dlcheck.reporters.visible import visible_lines

_STREAMS = 3


def write(text: str) -> None:
    """Write to stdout; a reader that left early (`| head`) is no fault."""
    out = sys.stdout
    if out is None:
        return
    encoding = getattr(out, "encoding", None) or "utf-8"
    try:
        out.write(text.encode(encoding, "backslashreplace").decode(encoding))
        out.flush()
    except BrokenPipeError:
        abandon_stdout()


def write_error(text: str) -> None:
    """Write to stderr as it is; a closed stderr is no fault."""
    with contextlib.suppress(OSError, ValueError):
        click.echo(text, nl=False, err=True)


def flushed(status: int) -> int:
    """Flush stdout while a broken pipe can still be caught, and pass the status on."""
    if sys.stdout is not None:
        sys.stdout.flush()
    return status


def abandon_stdout() -> None:
    """Send what is left to nowhere, or the interpreter complains while it ends."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def complain(message: str) -> None:
    """Write a message of ours to stderr; a closed stderr is no fault."""
    lines = visible_lines(message)
    with contextlib.suppress(OSError, ValueError):
        click.echo("\n".join([f"dlcheck: {lines[0]}", *(f"  {x}" for x in lines[1:])]), err=True)


def claim_streams() -> None:
    """Open what the caller closed: else the next file opened is taken for stdout."""
    for number in range(_STREAMS):
        if not _is_open(number):
            with contextlib.suppress(OSError):
                os.open(os.devnull, os.O_RDWR)


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def width() -> int:
    """Return the columns of the terminal, or COLUMNS, or 80."""
    return shutil.get_terminal_size((80, 24)).columns


def takes_boxes() -> bool:
    """Tell whether stdout can encode more than ASCII."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        "─…".encode(encoding)
    except (LookupError, UnicodeEncodeError):
        return False
    return True


def wants_color(choice: str) -> bool:
    """Decide on ANSI colours: the option, then NO_COLOR, FORCE_COLOR, CI, TERM, the terminal."""
    if choice != "auto":
        return choice == "always"
    environment = os.environ
    if environment.get("NO_COLOR"):
        return False
    if environment.get("FORCE_COLOR"):
        return environment["FORCE_COLOR"] not in ("0", "false")
    if environment.get("CI") or environment.get("TERM") == "dumb":
        return False
    return sys.stdout is not None and sys.stdout.isatty()
