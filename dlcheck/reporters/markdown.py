"""Markdown, for a step's summary, a comment or a wiki: GitHub's flavour, readable elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from dlcheck.findings import Finding, Report
from dlcheck.observation import Split
from dlcheck.reporters import batch, counted, device, evidence, journey, memory, prose, source
from dlcheck.reporters.asides import asides
from dlcheck.reporters.marks import block, code, details, table, text

MOST_ROWS = 40
# GitHub takes a mebibyte from a step, and nothing of a step that wrote more.
MOST_SUMMARY = 1 << 20
_MARKS = {
    "error": "\N{CROSS MARK}",
    "warning": "\N{WARNING SIGN}",
    "note": "\N{INFORMATION SOURCE}",
}
_VERDICTS = {"pass": "\N{WHITE HEAVY CHECK MARK}", "fail": "\N{CROSS MARK}"}


def render(report: Report) -> str:
    """Render the whole report."""
    return _joined([_header(report), *_findings(report), *_seen(report), _rules(report)])


def summary(report: Report, room: int) -> str:
    """Render what fits into `room` bytes: the head, then finding by finding."""
    whole = render(report)
    if len(whole.encode("utf-8", "backslashreplace")) <= room:
        return whole
    findings = list(_findings(report))
    kept: list[list[str]] = [_header(report)]
    for number, lines in enumerate(findings):
        rest = [f"... and {len(findings) - number} more; this summary is full."]
        if len(_joined([*kept, lines, rest]).encode("utf-8", "backslashreplace")) > room:
            cut = _joined([*kept, rest])
            return cut if len(cut.encode("utf-8", "backslashreplace")) <= room else ""
        kept.append(lines)
    return _joined(kept)


def _joined(parts: list[list[str]]) -> str:
    return "\n\n".join("\n".join(lines) for lines in parts if lines) + "\n"


def _header(report: Report) -> list[str]:
    counts = Counter(map(prose.level, report.findings))
    levels = ("error", "warning", "note")
    words = [counted.count(counts[level], level) for level in levels if counts[level]]
    mark = _VERDICTS.get(report.verdict, _MARKS["warning"])
    lines = [
        f"## {mark} dlcheck {text(report.command)} {code(report.target)}: {text(report.verdict)}",
        "",
        f"**{', '.join(words) or 'nothing found'}**",
        "",
        *_looked_at(report),
    ]
    for aside in asides(report.observation):
        lines += ["", text(aside)]
    if report.observation.cut:
        lines += ["", f"Ended early: {text(report.observation.cut)}"]
    return lines


def _looked_at(report: Report) -> list[str]:
    """Say what was read, a line a split."""
    splits = report.observation.splits
    if not splits:
        return ["Nothing was read."]
    return [
        f"- {code(name)}: {counted.seen(split)}" if name else f"Looked at {counted.seen(split)}."
        for name, split in splits.items()
    ]


def _findings(report: Report) -> Iterator[list[str]]:
    for finding in report.findings:
        yield _finding(finding, report)


def _finding(finding: Finding, report: Report) -> list[str]:
    level = prose.level(finding)
    first, *rest = prose.message(finding)
    lines = [
        f"### {_MARKS[level]} {level} {text(finding.code)} {text(finding.rule)}",
        "",
        text(first),
    ]
    if rest:
        lines += ["", *block(rest, "text")]
    lines += ["", *_place(finding, report)]
    if cure := prose.fix(finding):
        lines += ["", f"**Fix:** {text(cure)}"]
    if why := prose.why(finding):
        lines += ["", f"**Why:** {text(why)}"]
    if facts := list(_facts(finding)):
        lines += ["", *details("evidence", facts)]
    return lines


def _place(finding: Finding, report: Report) -> list[str]:
    where = finding.where
    words = [code(prose.at(finding))] if where.file else []
    if rest := evidence.place(where):
        words.append(text(rest))
    lines = [f"At {', '.join(words)}"] if words else []
    quoted = source.line(where.file or "", where.line, report.observation).strip()
    return [*lines, "", *block([quoted.expandtabs(4)], "python")] if quoted else lines


def _facts(finding: Finding) -> Iterator[str]:
    for label, value in prose.facts(finding):
        if len(value) == 1:
            yield f"- {text(label)}: {code(value[0])}"
    for label, value in prose.facts(finding):
        if len(value) > 1:
            yield from ("", f"{text(label)}:", "", *block(value, "text"))


def _seen(report: Report) -> Iterator[list[str]]:
    for name, split in report.observation.splits.items():
        of = f" of {code(name)}" if name else ""
        yield _batch(split, of)
        if tables := memory.tables(split):
            title = memory.title(split).capitalize()
            yield [f"**{text(title)}{of}**", "", *table(memory.HEAD, map(_cells, tables[0]))]
        for section in device.sections(split):
            yield _section(section, of)
        if ways := list(_ways(split)):
            yield details("how a sample is made", ways)


def _batch(split: Split, of: str) -> list[str]:
    rows = batch.rows(split)
    if not rows:
        return []
    title = "The batch" if split.batch_fields else "The samples (no batch was made)"
    left = ["", f"... and {len(rows) - MOST_ROWS:,} more"] if len(rows) > MOST_ROWS else []
    return [f"**{title}{of}**", "", *table(batch.HEAD, map(_cells, rows[:MOST_ROWS])), *left]


def _section(section: device.Section, of: str) -> list[str]:
    lines = [f"**{text(section.title)}{of}**", ""]
    if section.rows:
        lines += [*table(section.head, map(_cells, section.rows)), ""]
    return [*lines, *(f"- {text(line)}" for line in section.lines)]


def _cells(row: Sequence[str]) -> list[str]:
    return [code(cell) for cell in row]


def _ways(split: Split) -> Iterator[str]:
    for way in journey.ways(split):
        rows = map(_cells, way.rows)
        yield from ("", f"**{text(way.title)}**", "", *table(journey.HEAD, rows))
        if way.parts:
            yield from ("", "\\* from here on samples differ in size")


def _rules(report: Report) -> list[str]:
    states = Counter(state.state for state in report.rules)
    words = [
        f"{n} {state}" for state, n in sorted(states.items(), key=lambda item: item[0] != "ran")
    ]
    rows = [
        [code(state.rule), text(state.state), text(state.reason)]
        for state in report.rules
        if state.state != "ran"
    ]
    if not rows:
        return [f"Rules: {', '.join(words)}."] if words else []
    return details(f"rules: {', '.join(words)}", table(("rule", "state", "reason"), rows))
