"""DLC003 on recorded facts: what became of the config's ignores."""

from __future__ import annotations

from typing import Any

import pytest

import dlcheck.rules  # noqa: F401 - fills the registry
from dlcheck.findings import NOTE, WARNING, Finding, RuleState, judge
from dlcheck.observation import Observation


def judged(**facts: Any) -> tuple[tuple[Finding, ...], RuleState]:
    known = {
        "reason": "known",
        "until": "",
        "expired": False,
        "used": True,
        "file": None,
        "line": 0,
    }
    settings = {"ignores": {"bgr-order": known | facts}} if facts else {}
    findings, states = judge(Observation(settings=settings), select=["stale-ignore"])
    return findings, next(state for state in states if state.rule == "stale-ignore")


def test_expired_ignore_is_a_warning_at_its_line_of_the_config() -> None:
    findings, _ = judged(expired=True, until="2024-06-30", file="dlcheck.yaml", line=12)
    (found,) = findings
    assert found.severity == WARNING
    assert (found.where.file, found.where.line) == ("dlcheck.yaml", 12)
    assert found.message == "the ignore of bgr-order ended on 2024-06-30 (known)"


def test_expired_ignore_of_what_is_gone_says_so() -> None:
    (found,), _ = judged(expired=True, used=False, until="2024-06-30")
    assert found.message.endswith("; it finds nothing any more")


def test_unused_ignore_is_a_note() -> None:
    (found,), _ = judged(used=False)
    assert found.severity == NOTE
    assert found.message == "bgr-order is ignored (known) and found nothing"


@pytest.mark.parametrize("used", [True, None], ids=["in-use", "rule-saw-nothing"])
def test_silent_where_the_ignore_may_be_needed(used) -> None:
    findings, state = judged(used=used)
    assert findings == ()
    assert state.state == "ran"


def test_not_applicable_without_an_ignore() -> None:
    assert judged()[1].state == "not-applicable"
