"""Runs that were saved: read, judged again, rendered, compared."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

from dlcheck import output
from dlcheck.config import UserError
from dlcheck.explain import all_rules
from dlcheck.findings import ERROR, NOTE, WARNING, Report, RuleState, Severity, judge, verdict
from dlcheck.gate import NO_MACHINE
from dlcheck.judging import rule_names
from dlcheck.reporters import json

LIMITS = {"error": ERROR, "warning": WARNING, "note": NOTE, "never": None}
# How the reasons begin of rules that did not run because somebody said so.
LEFT_OUT = ("ignored:", "not selected", NO_MACHINE)
COMPARES = ("table", "json", "markdown")


def load(file: str) -> Report:
    """Read a run that --save or --format json wrote; `-` is stdin.

    Raises:
        UserError: it cannot be read.
    """
    all_rules()
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UserError(f"cannot read {file}: {reason}") from error
    try:
        report = json.read(text)
    except ValueError as error:
        raise UserError(f"{file} {error}", "`--save RUN.json` writes what can be read.") from error
    return dataclasses.replace(report, fail_on=_limit_of(report))


def chosen(report: Report, options: dict[str, Any], *, limit: str | None) -> Report:
    """Apply --select, --ignore, --rejudge and --fail-on (`limit`, None when it was not given).

    Without any of them the verdict stays as it was saved.
    """
    select, ignore = rule_names(options["select"]), rule_names(options["ignore"])
    if not (select or ignore or options["rejudge"] or limit):
        return report
    if options["rejudge"]:
        report = _judged_again(report)
    left_out = {
        s.rule for s in report.rules if s.rule in ignore or (select and s.rule not in select)
    }
    findings = tuple(f for f in report.findings if f.rule not in left_out)
    states = tuple(
        RuleState(state.rule, "not-applicable", "not selected") if state.rule in left_out else state
        for state in report.rules
    )
    fail_on = LIMITS[limit] if limit else report.fail_on
    result = verdict(findings, states, fail_on)
    return dataclasses.replace(
        report, findings=findings, rules=states, verdict=result, fail_on=fail_on
    )


def compared(before: Report, after: Report, options: dict[str, Any], *, limit: str | None) -> bool:
    """Deliver a comparison; tell whether it has a new finding that fails the run.

    Raises:
        UserError: a comparison has no such format, or a file cannot be written.
    """
    from dlcheck.reporters.comparison import compare

    outputs = output.planned(options)
    for format_ in [options["format_"], *(format_ for format_, _file in outputs)]:
        if format_ not in COMPARES:
            raise UserError(f"a comparison has no {format_}", f"It has {', '.join(COMPARES)}.")
    both = compare(before, after)
    output.show(_comparison(both, options["format_"], **output.look(options)), options["format_"])
    for format_, file in outputs:
        output.write(file, _comparison(both, format_, width=output.FILE_WIDTH))
    fail_on = LIMITS[limit or "error"]
    return fail_on is not None and any((f.severity or NOTE) >= fail_on for f in both.new)


def show_schema() -> None:
    """Write the JSON Schema of the JSON report to stdout."""
    from dlcheck.reporters import schema

    output.show(schema.render(), "json")


def _comparison(both: Any, format_: str, **look: Any) -> str:
    from dlcheck.reporters import compared as render

    if format_ == "table":
        return render.table(both, **look)
    return render.as_json(both) if format_ == "json" else render.markdown(both)


def _judged_again(report: Report) -> Report:
    """Run the rules of today, but those that were left out when the run was saved."""
    ignored = {s.rule: s for s in report.rules if s.reason.startswith(LEFT_OUT)}
    findings, states = judge(report.observation, ignore=list(ignored), command=report.command)
    kept = tuple(ignored.get(state.rule, state) for state in states)
    return dataclasses.replace(report, findings=findings, rules=kept)


def _limit_of(report: Report) -> Severity | None:
    """Find the --fail-on under which the run had its verdict; error where several fit."""
    worst = max((f.severity or NOTE for f in report.findings), default=None)
    if report.verdict == "fail" and worst is not None:
        return min(worst, ERROR)
    return None if worst == ERROR else ERROR
