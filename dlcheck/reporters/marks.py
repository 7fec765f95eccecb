"""User text inside Markdown: read as text by every parser, GitHub's additions included."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence

from dlcheck.reporters.visible import visible

_PUNCTUATION = re.compile(r"[\\`*_\[\]<>&|~$!]")
_LINE_START = re.compile(r"^(\s*)([#+=:-]|\d+(?=[.)]))")
# Rules quote with a pair of backticks. The rest is what GitHub makes a link, a mention, a reference
# or a picture of, escaped or not.
_SPANS = re.compile(
    r"`[^`]+`"
    r"|(?:\b\w+://|\bmailto:|\bwww\.)\S+"
    r"|[\w.+-]*@[\w.-]+"
    r"|[\w./-]*#\d+"
    r"|\bGH-\d+"
    r"|:[a-z+-][\w+-]*:",
    re.IGNORECASE,
)
# A table is cut into cells before spans of code are seen.
_PIPE = re.compile(r"(?<!\\)\|")
_RUNS = re.compile("`+")


def text(words: object) -> str:
    """Write words so that they are shown as they are, in a paragraph or a table's cell."""
    shown = visible(words)
    parts = []
    last = 0
    for match in _SPANS.finditer(shown):
        parts += [_escaped(shown[last : match.start()], at_start=last == 0), _span(match[0])]
        last = match.end()
    parts.append(_escaped(shown[last:], at_start=last == 0))
    return "".join(parts)


def code(words: object) -> str:
    """Write words as a span of code."""
    shown = visible(words)
    if not shown.strip():
        return ""
    fence = "`" * (_longest_run(shown) + 1)
    pad = " " if shown[0] in "` " or shown[-1] in "` " else ""
    return f"{fence}{pad}{shown}{pad}{fence}"


def block(lines: Iterable[str], language: str = "") -> list[str]:
    """Write lines as a block of code that none of them can end."""
    shown = [visible(line) for line in lines]
    fence = "`" * max(3, max(map(_longest_run, shown), default=0) + 1)
    return [f"{fence}{language}", *shown, fence]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Write a table; its cells are Markdown already."""
    lines = [
        head,
        ["---"] * len(head),
        *([_PIPE.sub(r"\\|", cell) for cell in row] for row in rows),
    ]
    return [f"| {' | '.join(cells)} |" for cells in lines]


def details(summary: str, lines: Sequence[str]) -> list[str]:
    """Write lines, Markdown already, that are folded away under a summary of plain words."""
    shown = html.escape(visible(summary))
    return [f"<details><summary>{shown}</summary>", "", *lines, "", "</details>"]


def _span(found: str) -> str:
    return code(found[1:-1] if found[0] == "`" else found) or found.replace("`", "\\`")


def _escaped(words: str, *, at_start: bool) -> str:
    quoted = _PUNCTUATION.sub(r"\\\g<0>", words)
    if not at_start:
        return quoted
    return _LINE_START.sub(lambda m: f"{m[1]}{_first(m[2])}", quoted.lstrip())


def _first(mark: str) -> str:
    """Escape what would begin a heading, a list or a rule; a number cannot be, its dot can."""
    return f"{mark}\\" if mark.isdigit() else f"\\{mark}"


def _longest_run(words: str) -> int:
    return max((len(run) for run in _RUNS.findall(words)), default=0)
