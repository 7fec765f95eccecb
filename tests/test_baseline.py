"""A baseline accepts what was there: not what is new, worse, or more than it was."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from dlcheck import baseline
from dlcheck.config import UserError
from dlcheck.findings import ERROR, WARNING, Finding, Report, RuleState, Where
from dlcheck.observation import Observation

CODE = "import cv2\nimage = cv2.imread(path)\nreturn image\n"


@pytest.fixture
def job(tmp_path: Path) -> Path:
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "data.py").write_text(CODE)
    return folder


def fault(job: Path, line: int = 2, **more) -> Finding:
    where = Where("train", "image", "imread", 3, str(job / "data.py"), line)
    one = Finding("`image` is B,G,R in 3 of 4", where, {"n": 3}, WARNING, code="DLC204",
                  rule="bgr-order")  # fmt: skip
    return dataclasses.replace(one, **more)


def report(*findings: Finding, **more) -> Report:
    states = tuple(RuleState(rule, "ran") for rule in ("bgr-order", "ragged-batch"))
    return Report("gate", "dlcheck.yaml", "fail", findings, states, Observation(**more),
                  fail_on=WARNING)  # fmt: skip


def left(job: Path, accepted: Report, later: Report, folder: Path | None = None) -> Report:
    path = job / "baseline.json"
    baseline.write(path, baseline.entries(accepted, str(job)))
    return baseline.without_known(later, baseline.read(path), str(folder or job), path.name)


def test_what_is_known_passes_and_is_counted(job):
    found = left(job, report(fault(job)), report(fault(job)))
    assert found.findings == ()
    assert found.verdict == "pass"
    facts = found.observation.settings["baseline"]
    assert facts == {"file": "baseline.json", "known": 1, "gone": []}


def test_moved_lines_other_samples_and_figures_are_the_same_fault(job):
    accepted = report(fault(job))
    before = baseline.entries(accepted, str(job))
    (job / "data.py").write_text("# new\n\n" + CODE.replace("image =", "    image  ="))
    later = fault(job, 4, message="`image` is B,G,R in 9 of 9", evidence={"n": 9})
    later = dataclasses.replace(later, where=dataclasses.replace(later.where, sample=77))
    assert baseline.without_known(report(later), before, str(job), "b").findings == ()


def test_another_checkout_is_the_same_project(job, tmp_path):
    other = tmp_path / "elsewhere" / "deep"
    other.mkdir(parents=True)
    (other / "data.py").write_text(CODE)
    assert left(job, report(fault(job)), report(fault(other)), other).findings == ()


@pytest.mark.parametrize(
    "change",
    [
        {"rule": "ragged-batch"},
        {"where": Where("val", "image", file="data.py", line=2)},
        {"where": Where("train", "mask", file="data.py", line=2)},
        {"severity": ERROR},
    ],
    ids=["rule", "split", "field", "more-severe"],
)
def test_another_fault_is_new(job, change):
    if "where" in change:
        change["where"] = dataclasses.replace(change["where"], file=str(job / "data.py"))
    later = fault(job, **change)
    found = left(job, report(fault(job)), report(later))
    assert found.findings == (later,)
    assert found.verdict == "fail"


def test_the_same_rule_at_another_line_is_new(job):
    later = fault(job, 3)
    assert left(job, report(fault(job)), report(fault(job), later)).findings == (later,)


def test_once_more_than_accepted_is_new(job):
    found = left(job, report(fault(job)), report(fault(job), fault(job)))
    assert len(found.findings) == 1
    assert left(job, report(fault(job), fault(job)), report(fault(job))).findings == ()


def test_what_is_found_no_more_is_named_where_its_rule_ran(job):
    accepted = report(fault(job), fault(job, rule="host-leak"))
    found = left(job, accepted, report())
    known = {one.key: one.rule for one in baseline.entries(accepted, str(job))}
    assert [known[key] for key in found.observation.settings["baseline"]["gone"]] == ["bgr-order"]


def test_a_run_that_fails_as_a_whole_is_never_accepted(job):
    broken = Finding("no such file", severity=ERROR, code="DLC001", rule="pipeline-error")
    assert baseline.entries(report(broken), str(job)) == []
    assert left(job, report(broken), report(broken)).findings == (broken,)


def test_words_of_what_was_known_stay_so_that_a_diff_shows_what_changed(job):
    before = baseline.entries(report(fault(job)), str(job))
    later = fault(job, message="`image` is B,G,R in 9 of 9")
    assert baseline.entries(report(later), str(job), before) == before
    assert before[0].where == "train image imread data.py"


def test_an_installed_package_is_named_from_its_root(job, tmp_path):
    keys = []
    for root in ("a", "b/deep"):
        folder = tmp_path / root / "lib" / "site-packages" / "cats"
        folder.mkdir(parents=True)
        (folder / "data.py").write_text(CODE)
        keys.append(baseline.key_of(fault(folder), report(), str(job)))
    assert keys[0] == keys[1]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "is no baseline"),
        ("[]", "is no baseline"),
        ('{"schema": "dlcheck/1", "findings": []}', "its schema is 'dlcheck/1'"),
        ('{"schema": "dlcheck-baseline/1", "findings": [{"key": "a"}]}', "is no baseline"),
        (
            json.dumps(
                {
                    "schema": "dlcheck-baseline/1",
                    "findings": [{"key": "a", "rule": "b", "severity": "bad"}],
                }
            ),
            "is no baseline",
        ),
    ],
    ids=["no-json", "no-mapping", "another-schema", "no-entry", "no-severity"],
)
def test_a_file_that_is_no_baseline_is_the_users_mistake(tmp_path, text, told):
    path = tmp_path / "b.json"
    path.write_text(text)
    with pytest.raises(UserError, match=told):
        baseline.read(path)


def test_a_missing_baseline_says_how_to_make_one(tmp_path):
    with pytest.raises(UserError) as caught:
        baseline.read(tmp_path / "none.json")
    assert "--update-baseline" in caught.value.hint
