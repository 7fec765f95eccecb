"""Where a report goes: stdout, files and, on GitHub Actions, annotations and the step's summary."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlcheck import streams

if TYPE_CHECKING:
    from dlcheck.findings import Report

FILE_WIDTH = 100

Outputs = list[tuple[str, Path]]


def planned(options: dict[str, Any]) -> Outputs:
    """Join --output and --save, and find out now whether each file can be written.

    Raises:
        UserError: a file cannot be written; a run may take minutes.
    """
    from dlcheck.config import UserError

    save = options.get("save")
    outputs = [*options["output"], *([("json", save)] if save else [])]
    formats: dict[Path, str] = {}
    for format_, file in outputs:
        if formats.setdefault(file, format_) != format_:
            raise UserError(f"{file} cannot be {formats[file]} and {format_} at once")
        _check_writable(file)
    return outputs


def wants_pictures(options: dict[str, Any]) -> bool:
    """Tell whether some report shows thumbnails, or a saved run may yet be rendered as one."""
    formats = {options["format_"], *(format_ for format_, _ in options["output"])}
    return "html" in formats or bool(options.get("save"))


def deliver(report: Report, outputs: Outputs, options: dict[str, Any]) -> None:
    """Show the report, then write it to each file; a full disk must not cost the reader the run.

    Raises:
        UserError: a file could not be written.
    """
    _show(report, options)
    for format_, file in outputs:
        write(file, render(report, format_, width=FILE_WIDTH))
    if on_github():
        _tell_github(report, shown=options["format_"])


def render(report: Report, format_: str, **look: Any) -> str:
    """Render in one of `options.FORMATS`; `look` is for the table alone."""
    if format_ == "table":
        from dlcheck.reporters import terminal

        return terminal.render(report, **look)
    # A format's module bears its name.
    text: str = importlib.import_module(f"dlcheck.reporters.{format_}").render(report)
    return text


def write(file: Path, text: str) -> None:
    """Write a whole file.

    Raises:
        UserError: it could not be written.
    """
    try:
        file.write_text(text, encoding="utf-8", errors="backslashreplace", newline="\n")
    except (OSError, ValueError) as error:
        raise _not_writable(file, error) from error


def show(text: str, format_: str) -> None:
    """Write to stdout; on GitHub a table is kept from being read as commands to the runner."""
    if format_ == "table" and on_github():
        from dlcheck.reporters import github

        text = github.harmless(text)
    streams.write(text)


def look(options: dict[str, Any]) -> dict[str, Any]:
    """Say how a table looks on this stdout with these options."""
    return {
        "width": streams.width(),
        "color": streams.wants_color(options["color"]),
        "ascii_only": not streams.takes_boxes(),
    }


def on_github() -> bool:
    """Tell whether a step of GitHub Actions runs us."""
    return os.environ.get("GITHUB_ACTIONS") == "true"


def _show(report: Report, options: dict[str, Any]) -> None:
    verbosity = -1 if options["quiet"] else options["verbose"]
    format_ = options["format_"]
    show(render(report, format_, **look(options), verbosity=verbosity), format_)


def _tell_github(report: Report, *, shown: str) -> None:
    """Annotate on stderr, so that stdout stays what was asked for, and add to the summary."""
    from dlcheck.reporters import github, markdown

    if shown != "github":
        streams.write_error(github.render(report))
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if not summary:
        return
    try:
        with Path(summary).open("ab") as file:
            room = markdown.MOST_SUMMARY - file.tell()
            file.write(markdown.summary(report, room).encode("utf-8", "backslashreplace"))
    except (OSError, ValueError) as error:
        streams.complain(f"no summary of this step: {error}")


def _check_writable(file: Path) -> None:
    try:
        if file.exists() and not file.is_file() and not file.is_dir():
            return
        fresh = not file.exists()
        with file.open("ab"):
            pass
        if fresh:
            file.unlink()
    except (OSError, ValueError) as error:
        raise _not_writable(file, error) from error


def _not_writable(file: Path, error: Exception) -> Exception:
    from dlcheck.config import UserError

    return UserError(f"cannot write {file}: {getattr(error, 'strerror', None) or error}")
