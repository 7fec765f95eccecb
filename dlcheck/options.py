"""The options that every command which runs a pipeline has, and the types of their values."""

from __future__ import annotations

import math
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

FORMATS = ("table", "json", "sarif", "junit", "github", "markdown", "html")
# The longer ending first: .sarif.json is SARIF.
SUFFIXES = {
    ".sarif.json": "sarif",
    ".sarif": "sarif",
    ".json": "json",
    ".xml": "junit",
    ".md": "markdown",
    ".html": "html",
    ".txt": "table",
}
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


def _interpreter(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    """Find an interpreter, or that of an environment's folder; links stay as they are."""
    if value is None:
        return None
    path = Path(value).expanduser()
    inner = next((p for p in ("bin/python", "Scripts/python.exe") if (path / p).exists()), None)
    # A bare name is looked up in PATH, so it must not become `./name`.
    found = shutil.which(str(path / inner) if inner else str(path))
    if not found:
        raise click.BadParameter(f"there is no interpreter {value!r}")
    return os.path.abspath(found)  # noqa: PTH100 - Path.absolute keeps `..`


def _outputs(
    _ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]
) -> list[tuple[str, Path]]:
    return [_output(value) for value in values]


def _output(value: str) -> tuple[str, Path]:
    """Return format and absolute path of report.json, json:FILE."""
    start, colon, rest = value.partition(":")
    if colon and start in FORMATS:
        format_, file = start, rest
    else:
        endings = (format_ for end, format_ in SUFFIXES.items() if value.lower().endswith(end))
        format_, file = next(endings, ""), value
    if format_ and file:
        return format_, _absolute(file)
    raise click.BadParameter(
        f"no format goes with {value!r}; end it in {', '.join(SUFFIXES)}, "
        f"or write FORMAT:FILE with one of {', '.join(FORMATS)}"
    )


def _save(_ctx: click.Context, _param: click.Parameter, value: str | None) -> Path | None:
    return _absolute(value) if value else None


def _folder(_ctx: click.Context, _param: click.Parameter, value: str | None) -> Path | None:
    """Make the folder now: a run may take minutes."""
    if not value:
        return None
    folder = _absolute(value)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        writable = os.access(folder, os.W_OK)
    except (OSError, ValueError):
        writable = False
    if not writable:
        raise click.BadParameter(f"{value!r} is no folder that can be written to")
    return folder


def _absolute(file: str) -> Path:
    return Path(file).expanduser().absolute()


def _seconds(_ctx: click.Context, _param: click.Parameter, value: str) -> float:
    """Read 30, 30s, 2m, 1.5h."""
    words = value.strip().lower()
    number = words.rstrip("smh")
    try:
        seconds = float(number) * _UNITS[words[len(number) :]]
    except (KeyError, ValueError):
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise click.BadParameter(f"{value!r} is no duration; write 30, 30s, 2m or 1h")
    return seconds


def _samples(_ctx: click.Context, _param: click.Parameter, value: str | None) -> int | None:
    """Read a count, or `all`, which is -1."""
    if value is None:
        return None
    words = value.strip().lower().replace("_", "").replace(",", "")
    if words == "all":
        return -1
    if not (words.isascii() and words.isdigit() and int(words[:18]) > 0):
        raise click.BadParameter(f"{value!r} is neither a number of samples nor `all`")
    return int(words[:18])


def _device(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    if value is None or re.fullmatch(r"auto|cpu|cuda(:\d{1,3})?", value.strip().lower()):
        return value and value.strip().lower()
    raise click.BadParameter(f"{value!r} is none of auto, cpu and cuda:0, cuda:1, ...")


def _loud(ctx: click.Context, _param: click.Parameter, value: int) -> int:
    """Remember -v where `main` finds it when something breaks."""
    ctx.ensure_object(dict)["verbose"] = value > 0
    return value


verbose = click.option(
    "-v", "--verbose", count=True, callback=_loud,
    help="List the rules that did not run; show our own tracebacks.",
)  # fmt: skip

_RUN: list[Callable[[Any], Any]] = [
    click.option(
        "--python", callback=_interpreter, metavar="PATH",
        help="Interpreter of the training environment; dlcheck need not be installed there.  "
        "[default: the one that runs dlcheck]",
    ),
    click.option(
        "--device", callback=_device, metavar="auto|cpu|cuda:N",
        help="Move each batch there, as the job does, and read its memory.  "
        "[default: none, unless the step starts one]",
    ),
    click.option("--split", metavar="NAME", help="Check this split only."),
    click.option(
        "--samples", callback=_samples, metavar="N|all",
        help="Read N samples, or all of them.  [default: what the budget allows]",
    ),
    click.option(
        "--budget", callback=_seconds, default="60s", metavar="TIME",
        help="Wall time to spend: 30, 30s, 2m.  [default: 60s]",
    ),
    click.option("--seed", type=int, metavar="N", help="Seed the pipeline's random generators."),
    click.option(
        "--hang-after", callback=_seconds, default="30s", metavar="TIME",
        help="Call it a hang when no sample came for this long.  [default: 30s]",
    ),
    click.option(
        "--images", callback=_folder, metavar="DIR",
        help="Write contact sheets (PNG) there: a row a stage, the batch as the model sees it.",
    ),
    click.option(
        "--save", callback=_save, metavar="RUN.json",
        help="Save the run, to render or judge it again.",
    ),
]  # fmt: skip

_EPOCHS: list[Callable[[Any], Any]] = [
    click.option(
        "--epochs", type=click.IntRange(2, 100), default=3, metavar="N",
        help="Compare N epochs.  [default: 3]",
    ),
    click.option(
        "--epoch-batches", type=click.IntRange(1), metavar="M",
        help="Let an epoch end after M batches: for endless and huge loaders.",
    ),
]  # fmt: skip

_REPORT: list[Callable[[Any], Any]] = [
    click.option(
        "--format", "format_", type=click.Choice(FORMATS), default="table",
        help="What to write to stdout.  [default: table]",
    ),
    click.option(
        "--output", callback=_outputs, multiple=True, metavar="FILE",
        help=f"Write the report to FILE too, in the format of its suffix ({', '.join(SUFFIXES)}) "
        "or as in junit:FILE. May be repeated.",
    ),
    click.option(
        "--fail-on", type=click.Choice(("error", "warning", "note", "never")), default="error",
        help="Exit 1 for findings at or above this.  [default: error]",
    ),
    click.option(
        "--fail-on-incomplete", is_flag=True, help="Exit 1 when a rule could not be judged too."
    ),
    click.option("--select", multiple=True, metavar="RULES", help="Run these rules only."),
    click.option("--ignore", multiple=True, metavar="RULES", help="Leave these rules out."),
    click.option("-q", "--quiet", is_flag=True, help="Findings and verdict only, no progress."),
    verbose,
    click.option(
        "--color", type=click.Choice(("auto", "always", "never")), default="auto",
        help="auto follows the terminal, NO_COLOR, FORCE_COLOR, TERM=dumb and CI.",
    ),
]  # fmt: skip


def common(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that every command which runs a pipeline has."""
    return _with([*_RUN, *_REPORT], function)


def epochs(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a command that compares epochs."""
    return _with(_EPOCHS, function)


def reporting(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a command that only reports."""
    return _with(_REPORT, function)


def _with(options: list[Callable[[Any], Any]], function: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(options):
        function = option(function)
    return function
