from __future__ import annotations

import dataclasses
import json
import math
import re
from pathlib import PurePosixPath

import pytest

from dlcheck.findings import ERROR, Finding, Report
from dlcheck.observation import Field, Observation, Split
from dlcheck.reporters.json import read, render


def with_evidence(evidence) -> Report:
    finding = Finding("m", evidence=evidence, severity=ERROR)
    return Report("shapes", "t", "fail", (finding,), (), Observation())


def strict(text: str):
    """Read JSON as strict parsers do: no NaN, no lone surrogate."""

    def refuse(token):
        raise AssertionError(token)

    data = json.loads(text, parse_constant=refuse)
    json.dumps(data, ensure_ascii=False).encode()
    return data


def evidence_of(value):
    return strict(render(with_evidence({"value": value})))["findings"][0]["evidence"]["value"]


def test_keys_stand_in_the_documented_order(report):
    data = strict(render(report))
    assert list(data) == [
        "schema", "command", "target", "verdict", "seen", "findings", "rules", "observation",
    ]  # fmt: skip
    assert list(data["seen"]) == ["samples", "of", "batches", "epochs", "seconds"]
    assert list(data["findings"][0]) == [
        "code", "rule", "severity", "message", "where", "evidence", "fix",
    ]  # fmt: skip
    assert list(data["findings"][0]["where"]) == [
        "split", "field", "stage", "sample", "file", "line", "attribute", "worker", "path",
    ]  # fmt: skip
    assert list(data["rules"][0]) == ["rule", "state", "reason"]


def test_findings_keep_the_order_of_the_report(report):
    backwards = dataclasses.replace(report, findings=report.findings[::-1])
    rules = [finding["rule"] for finding in json.loads(render(backwards))["findings"]]
    assert rules == ["pin-memory", "small-last-batch", "ragged-batch"]


def test_seen_sums_over_splits(report):
    assert json.loads(render(report))["seen"] == {
        "samples": 241, "of": 1_281_168, "batches": 9, "epochs": 2, "seconds": 1.34,
    }  # fmt: skip


def test_a_split_of_unknown_length_makes_the_sum_unknown():
    splits = {"a": Split(samples=1, of=9), "b": Split(samples=1)}
    report = Report("shapes", "t", "pass", (), (), Observation(splits=splits))
    assert json.loads(render(report))["seen"]["of"] is None


def test_two_renders_are_the_same_bytes(report):
    assert render(report) == render(report)


def test_the_observation_comes_back(report):
    data = json.loads(render(report))["observation"]
    assert Observation.from_json(data) == report.observation


def test_numbers_that_json_lacks_are_text():
    field = Field(low=-math.inf, high=math.inf)
    observation = Observation(splits={"": Split(fields={"x": field})})
    report = Report("shapes", "t", "pass", (), (), observation)
    seen = strict(render(report))["observation"]["splits"][""]["fields"]["x"]
    assert seen == {"low": "-inf", "high": "inf"}
    assert evidence_of([math.nan]) == ["nan"]


def test_surrogates_and_escapes_are_safe():
    assert evidence_of("\udcff\x1b[31m") == "\\udcff\x1b[31m"
    assert render(with_evidence({"é": "\x1b"})).isascii()


def test_keys_that_are_no_text_are_kept_apart():
    assert evidence_of({1: "a", "1": "b", None: "c", math.nan: "d"}) == {
        "1": "a", "1'": "b", "None": "c", "nan": "d",
    }  # fmt: skip


def test_any_object_is_written():
    assert evidence_of({"b", "a"}) == ["a", "b"]
    assert evidence_of((1, True, None)) == [1, True, None]
    assert evidence_of(PurePosixPath("a/b")) == "a/b"


def test_a_report_comes_back(report):
    back = read(render(report))
    assert render(back) == render(report)
    assert back.observation == report.observation
    assert back.findings[0].where == report.findings[0].where


def test_a_hostile_report_comes_back(hostile_report):
    assert render(read(render(hostile_report))) == render(hostile_report)


def test_numbers_that_json_lacks_come_back_as_numbers():
    field = Field(low=-math.inf, high=math.inf)
    observation = Observation(splits={"": Split(fields={"x": field})})
    report = Report("shapes", "t", "pass", (), (), observation)
    assert read(render(report)).observation == observation


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is no JSON"),
        ("{", "is no JSON"),
        ("[" * 100_000, "is no JSON"),
        ("[]", "is no report of dlcheck"),
        ("{}", "is no report of dlcheck"),
        ('{"schema": "dlcheck/2"}', "has the schema 'dlcheck/2'"),
        ('{"schema": "dlcheck/1"}', "is no whole report: KeyError: 'command'"),
    ],
)
def test_what_is_no_report_is_refused(text, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        read(text)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("findings", [{}]),
        ("findings", [1]),
        ("findings", None),
        ("rules", ["ran"]),
        ("observation", {"from_tomorrow": 1}),
        ("observation", {"splits": []}),
        ("observation", None),
    ],
)
def test_a_damaged_report_is_refused(report, key, value):
    data = json.loads(render(report)) | {key: value}
    with pytest.raises(ValueError, match="is no whole report"):
        read(json.dumps(data))
