"""From an Observation and a config to a Report: ignores, their last day, what is left out."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from typing import Any

import pytest

import dlcheck.rules  # noqa: F401 - fills the registry
from dlcheck import judging
from dlcheck.config import Config, UserError
from dlcheck.findings import Report
from dlcheck.judging import Ignore
from dlcheck.observation import Loader, Observation, Split, Tally

LOADER = Loader(kind="map", batch_size=16, dataset_length=65, dataset="data.Cats", length=5,
                file="data.py", line=9)  # fmt: skip
ONE_LEFT = Split(loader=LOADER, samples=65, of=65, batches=5, epochs=1, finished_epochs=1,
                 batch_sizes={"16": Tally(4), "1": Tally(1)})  # fmt: skip
OPTIONS: dict[str, Any] = {"select": (), "ignore": ()}
TODAY = datetime.now(tz=timezone.utc).date()


def report(ignore: Any = None, **options: Any) -> Report:
    settings = {"rules": {"ignore": ignore}} if ignore else {}
    lines = {"rules.ignore.DLC109": ("dlcheck.yaml", 7)}
    loaded = Config("dlcheck.yaml", "/job", "/job/dlcheck.yaml", {"": {}}, settings, lines)
    left_out = options.pop("left_out", None)
    chosen = judging.choice(loaded, OPTIONS | options, left_out)
    return judging.judged("shapes", loaded, Observation(splits={"": ONE_LEFT}), chosen, "warning")


def rules(found: Report) -> set[str]:
    return {finding.rule for finding in found.findings}


def test_ignored_with_a_reason() -> None:
    found = report({"DLC109": "no BatchNorm"})
    assert rules(found) == set()
    assert found.verdict == "pass"
    state = next(state for state in found.rules if state.rule == "small-last-batch")
    assert (state.state, state.reason) == ("not-applicable", "ignored: no BatchNorm")


def test_ignored_through_the_last_day_itself() -> None:
    assert rules(report({"DLC109": {"reason": "soon", "until": str(TODAY)}})) == set()


def test_after_the_last_day_the_fault_is_back_and_the_ignore_is_one_too() -> None:
    over = TODAY - timedelta(days=1)
    found = report({"DLC109": {"reason": "soon", "until": str(over)}})
    assert rules(found) == {"small-last-batch", "stale-ignore"}
    assert found.verdict == "fail"
    stale = next(one for one in found.findings if one.rule == "stale-ignore")
    assert (stale.where.file, stale.where.line) == ("/job/dlcheck.yaml", 7)


def test_an_ignore_that_nothing_needs_is_said() -> None:
    found = report({"ragged-batch": "once"})
    assert rules(found) == {"small-last-batch", "stale-ignore"}


def test_left_out_with_its_reason() -> None:
    found = report(left_out={"small-last-batch": "judges the machine"})
    assert rules(found) == set()
    assert "judges the machine" in {state.reason for state in found.rules}


def test_names_may_be_joined_repeated_or_codes() -> None:
    assert judging.rule_names(["DLC101, small-last-batch", "DLC101"]) == {
        "ragged-batch",
        "small-last-batch",
    }
    with pytest.raises(UserError, match="no rule 'raged'"):
        judging.rule_names(["raged"])


def test_an_ignore_without_an_end_never_expires() -> None:
    assert not Ignore("x", "y").expired(date.max)
