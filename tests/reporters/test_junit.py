from __future__ import annotations

import dataclasses
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from dlcheck.findings import ERROR, NOTE, WARNING, Finding, Report, RuleState
from dlcheck.observation import Observation
from dlcheck.reporters.junit import render

XSD = Path(__file__).parent / "schemas" / "junit-10.xsd"


@pytest.fixture(scope="module")
def official():
    """The schema of the plugin of Jenkins that reads such files."""
    return pytest.importorskip("xmlschema").XMLSchema(str(XSD))


def suite_of(report: Report) -> ET.Element:
    (suite,) = ET.fromstring(render(report))
    return suite


def cases_of(report: Report) -> dict[str, ET.Element]:
    return {case.attrib["name"]: case for case in suite_of(report).iter("testcase")}


def test_the_schema_of_jenkins_takes_a_report(report, official):
    official.validate(render(report))


def test_the_schema_of_jenkins_takes_a_report_of_nothing(official):
    official.validate(render(Report("shapes", "t", "pass", (), (), Observation())))


def test_the_schema_of_jenkins_takes_hostile_text(hostile_report, official):
    official.validate(render(hostile_report))


def test_the_schema_refuses_what_is_wrong(report, official):
    assert not official.is_valid(render(report).replace(" classname=", " class=", 1))


def test_hostile_text_makes_no_element(hostile_report):
    suite = suite_of(hostile_report)
    allowed = {"testsuite", "properties", "property", "testcase", "failure", "skipped"}
    assert {element.tag for element in suite.iter()} <= allowed | {"system-out"}
    (failure,) = suite.iter("failure")
    assert set(failure.attrib) == {"type", "message"}


def test_a_case_a_rule_and_the_first_bears_its_name_alone(report):
    """So the history of a test goes on when it fails."""
    again = dataclasses.replace(report, findings=(*report.findings, report.findings[0]))
    assert list(cases_of(again)) == [
        "ragged-batch", "ragged-batch #2", "small-last-batch", "contract-mismatch", "pin-memory",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("fail_on", "failing"),
    [
        (ERROR, ["ragged-batch"]),
        (WARNING, ["ragged-batch", "small-last-batch"]),
        (NOTE, ["ragged-batch", "small-last-batch", "pin-memory"]),
        (None, []),
    ],
)
def test_a_failure_is_what_fails_the_run(report, fail_on, failing):
    shown = dataclasses.replace(report, fail_on=fail_on)
    cases = cases_of(shown)
    assert [name for name, case in cases.items() if case.find("failure") is not None] == failing
    assert suite_of(shown).attrib["failures"] == str(len(failing))
    below = {"ragged-batch", "small-last-batch", "pin-memory"} - set(failing)
    for name in below:
        assert (cases[name].findtext("system-out") or "").startswith(
            ("error:", "warning:", "note:")
        )


def test_a_failure_says_what_where_why_and_the_cure(report):
    failure = cases_of(report)["ragged-batch"].find("failure")
    assert failure is not None
    assert failure.attrib["type"] == "error DLC101"
    assert failure.attrib["message"].startswith("data.py:6: samples of one batch differ in shape")
    lines = (failure.text or "").splitlines()
    assert lines[1:3] == ["at data.py:6", "    return cut(image)"]
    assert lines[-1] == "fix: Resize to a pair: Resize((64, 64))."


def test_a_rule_that_saw_nothing_is_no_pass():
    states = tuple(RuleState(name, name, "why") for name in ("ran", "not-applicable", "unobserved"))
    report = Report("shapes", "t", "incomplete", (), states, Observation())
    cases = cases_of(report)
    assert cases["ran"].find("skipped") is None
    for name in ("not-applicable", "unobserved"):
        skipped = cases[name].find("skipped")
        assert skipped is not None
        assert skipped.attrib["message"] == f"{name}: why"
    assert suite_of(report).attrib["skipped"] == "2"


def test_the_verdict_and_what_was_seen_are_properties(report):
    found = {p.attrib["name"]: p.attrib["value"] for p in suite_of(report).iter("property")}
    assert (found["verdict"], found["fail-on"], found["samples"]) == ("fail", "error", "241")


def test_a_finding_of_several_lines_keeps_them():
    finding = Finding("first\nsecond", severity=ERROR, code="X", rule="x")
    report = Report("shapes", "t", "fail", (finding,), (), Observation())
    assert (cases_of(report)["x"].findtext("failure") or "").startswith("first\nsecond")
