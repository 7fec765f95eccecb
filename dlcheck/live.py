"""`dlcheck.check(loader)`: the check of a live loader, in a test, a notebook or a script."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlcheck import judging
from dlcheck.config import Config, UserError
from dlcheck.contract import SPLIT
from dlcheck.document import Mistake
from dlcheck.findings import NOTE, Finding, Report, Severity
from dlcheck.observation import Observation
from dlcheck.run import inprocess
from dlcheck.run.drive import Plan

BUDGET = 10.0
WIDTH = 100
Fields = Sequence[str] | Mapping[str, Any]


class FindingsError(AssertionError):
    """A check found faults; the message is the report, `report` holds all of it."""

    def __init__(self, report: LiveReport) -> None:
        super().__init__(f"\n{report}")
        self.report = report


@dataclass(frozen=True, repr=False)
class LiveReport(Report):
    """A Report that shows itself in a notebook and can fail a test."""

    @property
    def ok(self) -> bool:
        """Tell whether nothing was found at or above `fail_on`."""
        return self.verdict != "fail"

    def raise_for_findings(self, at: str | None = None) -> None:
        """Raise where something was found at or above a severity; without one, at `fail_on`.

        Raises:
            FindingsError: it was; an AssertionError, so that a test fails.
        """
        __tracebackhide__ = True  # pytest then shows the line that asked
        limit = self.fail_on if at is None else _severity(at)
        if limit is not None and any(_level(one) >= limit for one in self.findings):
            raise FindingsError(self)

    def __str__(self) -> str:
        from dlcheck.reporters import terminal

        return terminal.render(self, width=WIDTH, verbosity=-1)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from dlcheck.reporters import html

        return html.framed(self)

    def html(self) -> str:
        """Render the page that `--format html` writes."""
        from dlcheck.reporters import html

        return html.render(self)


def check(  # noqa: PLR0913 - each is an option of the command line, by name
    loader: Any,
    *,
    fields: Fields | None = None,
    expect: Mapping[str, Any] | None = None,
    model: Any = None,
    role: str = "train",
    full_length: int | None = None,
    budget: float = BUDGET,
    samples: int | None = None,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    fail_on: str | None = "error",
) -> LiveReport:
    """Check a live loader in this process, as `dlcheck shapes` checks one in a process of its own.

    It is driven as a training loop would drive it, with hooks and nothing else: no sample is
    traced, so a finding may name no stage, and a hang is not noticed. Random generators and a live
    iterator are put back, the loader is not changed.

    Args:
        loader: a DataLoader, any iterable of batches, a Dataset, or a dict or tuple of them.
        fields: names for tuple samples, or a mapping from fields to what they are.
        expect: what each field must be, as `expect:` in a config.
        model: a Module, or what makes one; a batch is put through a copy without memory.
        role: `train` or `eval`; of several loaders their names tell.
        full_length: the samples of the whole dataset, where this is a part of it.
        budget: seconds to spend.
        samples: the most to read, -1 for all; None for what the budget allows.
        select: rules to run, by name or code; all without.
        ignore: rules to leave out.
        fail_on: error, warning, note; None for never.

    Raises:
        UserError: an argument that cannot be used.
    """
    given = {"fields": _plain(fields), "expect": _plain(expect), "role": role,
             "full_length": full_length}  # fmt: skip
    spec = {key: value for key, value in given.items() if value is not None}
    _validate(spec)
    limit = "never" if fail_on is None else _severity(fail_on).label
    config = Config(_name(loader), str(Path.cwd()), None, {"": spec})
    chosen = judging.choice(config, {"select": tuple(select), "ignore": tuple(ignore)})
    seen = _observed(loader, spec, model, Plan(budget, samples, 0))
    report = judging.judged("shapes", config, seen, chosen, limit)
    return LiveReport(**{f.name: getattr(report, f.name) for f in dataclasses.fields(report)})


def _observed(loader: Any, spec: dict[str, Any], model: Any, plan: Plan) -> Observation:
    seen = Observation()
    with tempfile.TemporaryDirectory(prefix="dlcheck-", ignore_cleanup_errors=True) as folder:
        inprocess.observe(loader, spec, model, plan, folder)
        for part in inprocess.observations(folder):
            seen = seen.merge(Observation.from_json(part))
    return seen


def _plain(value: Any) -> Any:
    """Turn mappings and sequences of any type into those of a config."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_plain(item) for item in value]
    return value


def _validate(spec: dict[str, Any]) -> None:
    try:
        for key, value in spec.items():
            SPLIT[key](value, key)
    except Mistake as mistake:
        raise UserError(f"{mistake.key}: {mistake.message}", mistake.hint) from None


def _severity(name: str) -> Severity:
    try:
        return Severity[name.upper()]
    except (KeyError, AttributeError):
        raise UserError(f"{name!r} is no severity; wanted error, warning or note") from None


def _level(finding: Finding) -> Severity:
    return NOTE if finding.severity is None else finding.severity


def _name(loader: Any) -> str:
    """Name what is checked: `DataLoader of Cats`."""
    dataset = getattr(loader, "__dict__", {}).get("dataset")
    of = "" if dataset is None else f" of {type(dataset).__name__}"
    return type(loader).__name__ + of
