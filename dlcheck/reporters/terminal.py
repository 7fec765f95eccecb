"""The report for a person: what was seen, what is wrong, why, and what to change."""

from __future__ import annotations

import io
import itertools
from collections import Counter
from collections.abc import Iterable

from rich.box import SIMPLE_HEAD, Box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dlcheck.findings import NOTE, REGISTRY, Finding, Report, RuleState, Severity
from dlcheck.observation import Observation, Split
from dlcheck.reporters import batch, device, evidence, journey, memory, source
from dlcheck.reporters.asides import asides
from dlcheck.reporters.counted import count, seen
from dlcheck.reporters.visible import visible, visible_lines

WIDTH = 80
NARROWEST = 24
MOST_ROWS = 20
MOST_EVIDENCE = 8

_ASCII_HEAD = Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)
_VERDICTS = {"pass": "bold green", "fail": "bold red", "incomplete": "bold yellow"}
_SEVERITIES = {"error": "bold red", "warning": "bold yellow", "note": "bold cyan"}


def render(
    report: Report,
    *,
    width: int | None = None,
    color: bool = False,
    ascii_only: bool = False,
    verbosity: int = 0,
) -> str:
    """Render for a terminal `width` columns wide.

    Args:
        report: what to say.
        width: None for a pipe.
        color: write ANSI colours.
        ascii_only: for an output that takes no other characters.
        verbosity: -1 leaves the batch out, 1 lists every rule that did not run.
    """
    page = Page(max(width or WIDTH, NARROWEST), color, ascii_only)
    _header(page, report)
    if verbosity >= 0:
        for name, split in report.observation.splits.items():
            _batch(page, name, split)
            _journeys(page, name, split)
            _memory(page, name, split)
            _device(page, name, split)
    for finding in report.findings:
        _finding(page, finding, report.observation)
    _ending(page, report, verbosity)
    return page.text()


class Page:
    """Collects lines that are wrapped with a hanging indent; user text is made harmless here."""

    def __init__(self, width: int, color: bool, ascii_only: bool) -> None:  # noqa: FBT001
        self.width = width
        self.color = color
        self.ascii_only = ascii_only
        self._out = io.StringIO()
        self._console = Console(
            file=self._out, width=width, height=WIDTH, force_terminal=color, no_color=not color,
            color_system="standard" if color else None, legacy_windows=False, highlight=False,
            markup=False, emoji=False, force_jupyter=False,
        )  # fmt: skip

    def say(self, *words: str | tuple[str, str], indent: int = 0, hang: int = 2) -> None:
        """Print words, each plain or (text, style), wrapped."""
        line = Text()
        for word in words:
            text, style = (word, "") if isinstance(word, str) else word
            line.append(visible(text, ascii_only=self.ascii_only), style)
        room = max(self.width - indent - hang, 8)
        wrapped = line.wrap(self._console, room, overflow="fold")
        for number, part in enumerate(wrapped):
            part.rstrip()
            self._line(Text(" " * (indent + (hang if number else 0))).append_text(part))

    def quote(self, words: str, style: str = "", indent: int = 0) -> None:
        """Print one line as it is, cut off at the right edge."""
        text = Text(" " * indent).append(visible(words, ascii_only=self.ascii_only), style)
        if cell_len(text.plain) > self.width:
            text.truncate(self.width - 3, overflow="crop")
            text.append("...")
        self._line(text)

    def blank(self) -> None:
        """Print an empty line."""
        self._line(Text())

    def table(
        self, head: tuple[str, ...], rows: list[tuple[str, ...]], above: str = "", gap: int = 3
    ) -> bool:
        """Print a table, `gap` blanks between columns, or nothing and return False if too wide."""
        rows = [tuple(visible(cell, ascii_only=self.ascii_only) for cell in row) for row in rows]
        columns = list(zip(head, *rows, strict=True))
        widths = [max(map(cell_len, column)) for column in columns]
        if sum(widths) + gap * (len(widths) - 1) > self.width:
            return False
        if above:
            self.say((above, "bold"))
        table = Table(
            box=_ASCII_HEAD if self.ascii_only else SIMPLE_HEAD, show_edge=False,
            pad_edge=False, padding=(0, gap - 1, 0, 0), header_style="bold",
        )  # fmt: skip
        for title in head:
            table.add_column(title, no_wrap=True)
        for row in rows:
            table.add_row(*(Text(cell) for cell in row))
        self._console.print(table)
        return True

    def text(self) -> str:
        """All that was printed, without spaces at the ends of lines."""
        lines = (line.rstrip() for line in self._out.getvalue().split("\n"))
        return "\n".join(lines).rstrip("\n") + "\n"

    def _line(self, text: Text) -> None:
        self._console.print(text, no_wrap=True, overflow="ignore", crop=False)


def _header(page: Page, report: Report) -> None:
    style = _VERDICTS.get(report.verdict, "bold")
    page.say(
        ("dlcheck ", "bold"), (report.command, "bold"), " ", report.target, ": ",
        (report.verdict, style),
    )  # fmt: skip
    splits = report.observation.splits
    for name, split in splits.items():
        page.say(f"{name}: " if name else "", seen(split), indent=2)
        for note in split.loader.notes if split.loader else ():
            page.say("note: ", note, indent=2)
    if not splits:
        page.say("nothing was read", indent=2)
    if report.observation.cut:
        page.say("ended early: ", report.observation.cut, indent=2)
    for aside in asides(report.observation):
        page.say(aside, indent=2)


def _batch(page: Page, name: str, split: Split) -> None:
    rows = batch.rows(split)
    if not rows:
        return
    title = "the batch" if split.batch_fields else "the samples (no batch was made)"
    page.blank()
    page.say((title, "bold"), f" of {name}" if name else "")
    shown = rows[:MOST_ROWS]
    if not page.table(batch.HEAD, shown):
        for field, *cells in shown:
            page.say((field, "bold"), ": ", ", ".join(filter(None, cells)), indent=2)
    if len(rows) > MOST_ROWS:
        page.say(f"... and {len(rows) - MOST_ROWS:,} more", indent=2)


def _journeys(page: Page, name: str, split: Split) -> None:
    """Print one sample's way; a page too narrow for the table loses columns, then gets a list."""
    of = f" of {name}" if name else ""
    for way in journey.ways(split):
        page.blank()
        tables = journey.tables(way)
        if not any(page.table(head, rows, title + of, gap=2) for title, head, rows in tables):
            page.say((way.title + of, "bold"))
            for stage, at, *cells in way.rows:
                place = (f" {at}", "cyan") if at else ""
                page.say((stage, "bold"), place, ": ", ", ".join(filter(None, cells)), indent=2)
        if way.parts:
            page.say("* from here on samples differ in size", indent=2)


def _memory(page: Page, name: str, split: Split) -> None:
    """Print what the processes held; a narrow page loses the course, then gets a list."""
    tables = memory.tables(split, ascii_only=page.ascii_only)
    if not tables:
        return
    page.blank()
    above = memory.title(split) + (f", of {name}" if name else "")
    if any(page.table(memory.HEAD[: len(t[0])], t, above, gap=2) for t in tables):
        return
    page.say((above, "bold"))
    for process, what, *cells in tables[-1]:
        page.say((f"{process} {what}", "bold"), ": ", ", ".join(cells), indent=2)


def _device(page: Page, name: str, split: Split) -> None:
    """Print what an accelerator held, or a step would hold on one."""
    for section in device.sections(split):
        page.blank()
        above = section.title + (f", of {name}" if name else "")
        if not section.rows or not page.table(section.head, list(section.rows), above, gap=2):
            page.say((above, "bold"))
            for first, *cells in section.rows:
                page.say((first, "bold"), ": ", ", ".join(cells), indent=2)
        for line in section.lines:
            page.say(line, indent=2)


def _finding(page: Page, finding: Finding, observation: Observation) -> None:
    level = (NOTE if finding.severity is None else finding.severity).label
    page.blank()
    page.say((level, _SEVERITIES[level]), " ", (f"{finding.code} {finding.rule}", "bold"))
    first, *rest = finding.message.strip("\n").split("\n")
    page.say(first, indent=2, hang=0)
    for line in evidence.ends(rest):
        page.say("| ", line, indent=4)
    where = finding.where
    if where.file:
        place = source.short(where.file) + (f":{where.line}" if where.line else "")
        page.say("at ", (place, "cyan"), indent=2)
        line = source.line(where.file, where.line, observation)
        if line:
            _quoted(page, where.line or 0, line)
    _details(page, finding)
    rule = REGISTRY.get(finding.rule)
    if rule:
        page.say(("why: ", "bold"), rule.why, indent=2)
    if finding.fix:
        page.say(("fix: ", "bold green"), finding.fix, indent=2)


def _quoted(page: Page, number: int, line: str) -> None:
    margin = f"{number} | "
    bar = "| ".rjust(len(margin))
    shown = line.strip().expandtabs(4)
    page.quote(margin + shown, indent=4)
    page.quote(bar + "^", "bold red", indent=4)


def _details(page: Page, finding: Finding) -> None:
    """Say the rest of the place and the evidence, a short line each."""
    place = evidence.place(finding.where)
    if place:
        page.say(place, indent=2)
    items = {key: value for key, value in finding.evidence.items() if evidence.worth_saying(value)}
    for key, value in itertools.islice(items.items(), MOST_EVIDENCE):
        if isinstance(value, str) and "\n" in value.strip("\n"):
            page.say(f"{evidence.label(key)}:", indent=2)
            for line in evidence.ends(visible_lines(value)):
                page.say((line, "dim"), indent=4)
        else:
            page.say(f"{evidence.label(key)}: ", evidence.short(value), indent=2)
    left = len(items) - MOST_EVIDENCE
    if left > 0:
        page.say(f"... and {left} more (--format json has all)", indent=2)


def _ending(page: Page, report: Report, verbosity: int) -> None:
    states = Counter(state.state for state in report.rules)
    page.blank()
    if report.verdict == "incomplete" or verbosity > 0:
        _reasons(page, report.rules, "unobserved")
    if verbosity > 0:
        _reasons(page, report.rules, "not-applicable")
    counts = [f"{count(states['ran'], 'rule')} ran"]
    counts += [f"{states[s]} {s}" for s in ("unobserved", "not-applicable") if states[s]]
    more = "" if verbosity > 0 or len(counts) == 1 else " (-v lists them)"
    page.say(f"{', '.join(counts)}{more}")
    page.say(
        (report.verdict, _VERDICTS.get(report.verdict, "bold")), ": ", _by_severity(report.findings)
    )
    pointer = next((finding.rule for finding in report.findings if finding.rule), None)
    if pointer:
        page.say(f"`dlcheck explain {pointer}` says more, with an example")


def _reasons(page: Page, states: Iterable[RuleState], wanted: str) -> None:
    """List the rules that ended as `wanted`, together where the reason is the same."""
    groups: dict[str, list[str]] = {}
    for state in states:
        if state.state == wanted:
            groups.setdefault(state.reason, []).append(state.rule)
    for reason, rules in groups.items():
        page.say(wanted, f" ({reason})" if reason else "", ": ", ", ".join(rules))


def _by_severity(findings: Iterable[Finding]) -> str:
    levels = Counter(NOTE if f.severity is None else f.severity for f in findings)
    parts = [count(levels[level], level.label) for level in sorted(Severity, reverse=True)]
    return ", ".join(part for part in parts if not part.startswith("0 ")) or "nothing found"
