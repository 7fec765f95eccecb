"""A Comparison of two runs as a table, as Markdown and as JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator

from dlcheck.findings import Finding, Report
from dlcheck.reporters import marks, prose
from dlcheck.reporters.comparison import Change, Comparison
from dlcheck.reporters.json import finding_json, plain
from dlcheck.reporters.terminal import WIDTH, Page

SCHEMA = "dlcheck-comparison/1"
HEAD = ("what", "before", "after")
_TITLES = {
    "run": "the runs",
    "batch": "the batch",
    "memory": "memory",
    "device": "device memory",
    "speed": "speed",
}
_STYLES = {"new": "bold red", "cured": "bold green", "no longer judged": "bold yellow"}


def table(
    both: Comparison, *, width: int | None = None, color: bool = False, ascii_only: bool = False
) -> str:
    """Render for a terminal `width` columns wide."""
    page = Page(width or WIDTH, color, ascii_only)
    page.say(("dlcheck report", "bold"), f": {_named(both.before)} -> {_named(both.after)}")
    for title, findings in _groups(both):
        page.blank()
        page.say((title, _STYLES[title]))
        for finding, why in findings:
            place = prose.at(finding)
            page.say(
                f"{prose.level(finding)} ", (f"{finding.code} {finding.rule}", "bold"),
                f" at {place}" if place else "", indent=2,
            )  # fmt: skip
            page.say(prose.message(finding)[0], indent=4)
            if why:
                page.say(f"({why})", indent=4)
    for name, changes in both.changes.items():
        if changes:
            page.blank()
            _changes(page, _TITLES[name], changes)
    page.blank()
    page.say(_counts(both))
    return page.text()


def _changes(page: Page, title: str, changes: Iterable[Change]) -> None:
    rows: list[tuple[str, ...]] = [(c.what, c.before or "none", c.after or "none") for c in changes]
    if page.table(HEAD, rows, title):
        return
    page.say((title, "bold"))
    for what, before, after in rows:
        page.say((what, "bold"), f": {before} -> {after}", indent=2)


def markdown(both: Comparison) -> str:
    """Render for a comment or a step's summary."""
    lines = [f"## dlcheck: {marks.text(_named(both.before))} → {marks.text(_named(both.after))}"]
    lines += ["", f"{_counts(both)}."]
    for title, findings in _groups(both):
        lines += ["", f"### {title}", ""]
        lines += [_item(finding, why) for finding, why in findings]
    for name, changes in both.changes.items():
        if changes:
            rows = [[marks.code(x or "none") for x in (c.what, c.before, c.after)] for c in changes]
            lines += ["", f"### {_TITLES[name]}", "", *marks.table(HEAD, rows)]
    return "\n".join(lines) + "\n"


def as_json(both: Comparison) -> str:
    """Render as one JSON document."""
    document = {
        "schema": SCHEMA,
        "before": _head(both.before),
        "after": _head(both.after),
        "new": _listed(both.new),
        "cured": _listed(both.cured),
        "unjudged": [{**finding_json(finding), "reason": why} for finding, why in both.unjudged],
        "unchanged": _listed(both.unchanged),
        "changes": {
            name: [dataclasses.asdict(change) for change in changes]
            for name, changes in both.changes.items()
        },
    }
    return json.dumps(plain(document), indent=2, allow_nan=False) + "\n"


def _groups(both: Comparison) -> Iterator[tuple[str, list[tuple[Finding, str]]]]:
    groups = {
        "new": [(finding, "") for finding in both.new],
        "cured": [(finding, "") for finding in both.cured],
        "no longer judged": list(both.unjudged),
    }
    yield from ((title, findings) for title, findings in groups.items() if findings)


def _named(report: Report) -> str:
    return f"{report.command} {report.target}: {report.verdict}"


def _counts(both: Comparison) -> str:
    counts = {"new": both.new, "cured": both.cured, "unchanged": both.unchanged}
    words = [f"{len(found)} {name}" for name, found in counts.items()]
    gone = [f"{len(both.unjudged)} no longer judged"] if both.unjudged else []
    same = [] if any(both.changes.values()) else ["nothing else changed"]
    return ", ".join([*words, *gone, *same])


def _item(finding: Finding, why: str) -> str:
    place = prose.at(finding)
    words = f"- {prose.level(finding)} **{marks.text(finding.code)} {marks.text(finding.rule)}**"
    words += f" at {marks.code(place)}" if place else ""
    words += f": {marks.text(prose.message(finding)[0])}"
    return words + (f" ({marks.text(why)})" if why else "")


def _head(report: Report) -> dict[str, str]:
    return {"command": report.command, "target": report.target, "verdict": report.verdict}


def _listed(findings: Iterable[Finding]) -> list[dict[str, object]]:
    return [finding_json(finding) for finding in findings]
