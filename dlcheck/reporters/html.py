"""One self-contained page: findings, the pipeline as a picture, memory, what was looked at.

It loads nothing: style, pictures and plots are inside it, there is no script, and a policy in its
head forbids the browser to fetch anything, whatever a user's text may hold.
"""

from __future__ import annotations

import functools
import html
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from dlcheck.findings import REGISTRY, Finding, Report, RuleState, Severity
from dlcheck.observation import Culprit, Split
from dlcheck.observation.pictures import OF_BATCH, Picture
from dlcheck.reporters import (
    asides,
    batch,
    chain,
    counted,
    device,
    evidence,
    held,
    memory,
    plots,
    prose,
    source,
)
from dlcheck.reporters.stages import Chain, Stage
from dlcheck.reporters.visible import visible

HERE = Path(__file__).parent
MOST_ROWS = 60
MOST_CULPRITS = 20
MOST_BATCH = 16
# A saved run may come from anywhere: only what we write ourselves becomes the source of an image.
URI = re.compile(r"data:image/(?:png|jpeg);base64,[A-Za-z0-9+/]+={0,2}")
FRAME_HEIGHT = 640
KINDS = {
    "file": "source", "sample": "sample", "raised": "failed", "batch": "batch",
    "model": "step", "refused": "step",
}  # fmt: skip


def render(report: Report) -> str:
    """Render the page."""
    splits = [
        _split(number, name, split, report)
        for number, (name, split) in enumerate(report.observation.splits.items())
    ]
    anchors = _anchors(splits)
    return _template().render(
        report=report,
        css=Markup((HERE / "page.css").read_text(encoding="utf-8")),  # noqa: S704 - our own file
        counts=_counts(report.findings),
        cut=report.observation.cut,
        asides=asides.asides(report.observation),
        findings=[_finding(n, one, report, anchors) for n, one in enumerate(report.findings, 1)],
        splits=splits,
        looked=_looked(report),
        rules=list(_rules(report.rules)),
        versions=", ".join(f"{k} {v}" for k, v in report.observation.versions.items()),
    )


def framed(report: Report) -> str:
    """Render the page for a notebook, in a frame that keeps its style from the notebook's own."""
    page = html.escape(render(report), quote=True)
    style = f"width:100%;height:{FRAME_HEIGHT}px;border:1px solid #8884;border-radius:8px"
    return f'<iframe title="dlcheck" sandbox="" style="{style}" srcdoc="{page}"></iframe>'


@functools.cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        finalize=_harmless,
    )  # fmt: skip
    return environment.from_string((HERE / "page.html.jinja").read_text(encoding="utf-8"))


def _harmless(value: Any) -> Any:
    """Make control and bidi characters visible; what is markup of ours passes."""
    return value if isinstance(value, Markup) else visible(value)


def _counts(findings: Sequence[Finding]) -> str:
    levels = Counter(map(prose.level, findings))
    names = [level.label for level in sorted(Severity, reverse=True)]
    words = [counted.count(levels[name], name) for name in names if levels[name]]
    return ", ".join(words) or "nothing found"


def _looked(report: Report) -> str:
    states = Counter(state.state for state in report.rules)
    words = [f"{name}: {counted.seen(s)}" if name else counted.seen(s)
             for name, s in report.observation.splits.items()]  # fmt: skip
    ran = f"{counted.count(states['ran'], 'rule')} ran"
    return "; ".join([*words, ran]) + "."


def _rules(states: Sequence[RuleState]) -> Iterator[dict[str, Any]]:
    """Group the rules by how they ended, and by the reason."""
    for ended in ("unobserved", "ran", "not-applicable"):
        own = [state for state in states if state.state == ended]
        reasons: dict[str, list[str]] = {}
        for state in own:
            reasons.setdefault(state.reason, []).append(state.rule)
        if own:
            yield {
                "summary": f"{counted.count(len(own), 'rule')} {ended}",
                "open": ended == "unobserved",
                "reasons": [(reason, ", ".join(names)) for reason, names in reasons.items()],
            }


def _finding(
    number: int, finding: Finding, report: Report, anchors: dict[int, list[dict[str, str]]]
) -> dict[str, Any]:
    where = finding.where
    first, *more = prose.message(finding)
    rule = REGISTRY.get(finding.rule)
    quoted = source.line(where.file or "", where.line, report.observation) if where.file else ""
    return {
        "number": number, "level": prose.level(finding), "rule": finding.rule,
        "code": finding.code, "title": rule.title if rule else "",
        "message": first, "more": more, "at": prose.at(finding), "line": where.line or "",
        "code_line": quoted.strip().expandtabs(4), "place": evidence.place(where),
        "links": anchors.get(number, []), "why": prose.why(finding), "fix": prose.fix(finding),
        "evidence": [
            (label, lines[0], []) if len(lines) == 1 else (label, "", lines)
            for label, lines in prose.facts(finding)
        ],
    }  # fmt: skip


def _anchors(splits: Sequence[dict[str, Any]]) -> dict[int, list[dict[str, str]]]:
    """Find, for each finding, the first stage of each chain that it speaks of."""
    found: dict[int, list[dict[str, str]]] = {}
    for split in splits:
        for one in split["chains"]:
            for stage in one["stages"]:
                for blame in stage["blames"]:
                    link = {"id": stage["id"], "words": f"see {stage['title']}, {one['title']}"}
                    found.setdefault(blame.number, []).append(link)
    return found


def _split(number: int, name: str, split: Split, report: Report) -> dict[str, Any]:
    rows = batch.rows(split)
    drawn = [p for p in split.pictures.values() if p.sample == OF_BATCH and _uri(p)]
    processes, left = held.held(split)
    on_device = held.on_device(split.device)
    ways = chain.chains(name, split, report.findings)
    return {
        "id": f"split-{number}",
        "title": f"The {name} split" if name else "The pipeline",
        "seen": counted.seen(split),
        "notes": split.loader.notes if split.loader else (),
        "chains": [_chain(f"s{number}w{n}", way) for n, way in enumerate(ways)],
        "timed": any(stage.seconds for way in ways for stage in way.stages),
        "head": batch.HEAD, "rows": rows[:MOST_ROWS], "rows_left": max(len(rows) - MOST_ROWS, 0),
        "rows_of": "batch" if split.batch_fields else "samples (no batch was made)",
        "batch": [_picture(p) for p in sorted(drawn, key=lambda p: p.number)[:MOST_BATCH]],
        "held": [_held(one) for one in [*processes, *([on_device] if on_device else [])]],
        "held_left": left, **_verdicts(split),
        "sections": [_section(one) for one in device.sections(split)],
        "culprits": [_culprit(one) for one in list(split.culprits.values())[:MOST_CULPRITS]],
    }  # fmt: skip


def _chain(prefix: str, way: Chain) -> dict[str, Any]:
    stages = [_stage(f"{prefix}n{n}", stage) for n, stage in enumerate(way.stages)]
    numbers = iter(range(1, len(stages) + 1))
    for stage in stages:
        if stage["kind"] in ("stage", "raised"):
            stage["word"] = f"stage {next(numbers)}"
    return {"title": way.title, "note": way.note, "stages": stages}


def _stage(id_: str, stage: Stage) -> dict[str, Any]:
    levels = {blame.severity for blame in stage.blames}
    shown = _picture(stage.picture) if stage.picture and _uri(stage.picture) else {}
    words = zip(("", "", "layout ", ""), stage.looks, stage.changed, strict=True)
    return {
        "id": id_, "kind": stage.kind, "word": KINDS.get(stage.kind, ""), "title": stage.title,
        "detail": stage.detail, "place": stage.place, "code": stage.code,
        "looks": [(lead + word, changed) for lead, word, changed in words if word],
        "time": f"{stage.seconds * 1000:.2g} ms" if stage.seconds else "",
        "percent": f"{100 * stage.share:.1f}", "blames": stage.blames,
        "worst": next((one for one in ("error", "warning", "note") if one in levels), ""),
        "uri": shown.get("uri", ""), "width": shown.get("width", 0),
        "height": shown.get("height", 0),
        "alt": " ".join(filter(None, ["after", stage.title, shown.get("how", "")])),
    }  # fmt: skip


def _uri(picture: Picture) -> bool:
    return URI.fullmatch(picture.uri) is not None


def _picture(picture: Picture) -> dict[str, Any]:
    uri = Markup(picture.uri)  # noqa: S704 - it matched URI, which holds nothing to escape
    return {
        "uri": uri, "width": int(picture.width), "height": int(picture.height),
        "number": picture.number, "caption": picture.caption, "how": picture.how,
    }  # fmt: skip


def _held(one: held.Held) -> dict[str, Any]:
    drawn = [
        {
            "title": plot.title, "words": plot.words, "state": plot.state,
            "names": [line.name for line in plot.lines] if len(plot.lines) > 1 else [],
            "svg": Markup(plots.svg(plot)),  # noqa: S704 - numbers and words of ours
        }
        for plot in one.plots
    ]  # fmt: skip
    return {"title": one.title, "still": one.still, "plots": drawn}


def _verdicts(split: Split) -> dict[str, Any]:
    """Lay out the table of what grew, without its course: the plots show it."""
    tables = memory.tables(split)
    rows = [row[: len(memory.HEAD) - 1] for row in tables[-1]] if tables else []
    return {"grown_head": memory.HEAD[:-1], "grown": rows, "grown_title": memory.title(split)}


def _section(section: device.Section) -> dict[str, Any]:
    """Lay out a table and its sentences; a last cell that is a share gets a bar of that length."""
    rows = [(row, row[-1].rstrip("%") if row[-1].endswith("%") else "") for row in section.rows]
    title = section.title[:1].upper() + section.title[1:]
    return {"title": title, "head": section.head, "rows": rows, "lines": section.lines}


def _culprit(one: Culprit) -> tuple[str, ...]:
    file = source.short(one.file) if one.file else ""
    place = f"{file}:{one.line}" if file and one.line else file
    grew = plots.amount(one.grew, "bytes" if one.unit == "bytes" else "") if one.grew else ""
    each = f"{grew} over {one.samples:,} samples" if grew and one.samples else grew
    keeper = " ".join(filter(None, [one.attribute, f"({one.type})" if one.type else ""]))
    return one.resource, one.role, keeper, " ".join(filter(None, [place, one.text.strip()])), each
