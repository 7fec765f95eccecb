from __future__ import annotations

import copy
import json

import pytest

from dlcheck.reporters import json as report_json
from dlcheck.reporters import schema

jsonschema = pytest.importorskip("jsonschema")


@pytest.fixture(scope="module")
def shipped():
    """The schema as other programs get it."""
    document = json.loads(schema.FILE.read_text())
    jsonschema.Draft202012Validator.check_schema(document)
    return jsonschema.Draft202012Validator(document)


def test_the_shipped_schema_is_that_of_the_dataclasses():
    """Write it anew with `dlcheck report --schema` when an Observation got a field."""
    assert schema.FILE.read_text() == schema.render()


def test_reports_keep_to_it(report, shipped):
    shipped.validate(json.loads(report_json.render(report)))


def test_hostile_reports_keep_to_it(hostile_report, shipped):
    shipped.validate(json.loads(report_json.render(hostile_report)))


def change(path: str, value: object):
    """A report's change that breaks it; `path` is dotted."""

    def apply(data):
        *parents, last = [int(p) if p.isdigit() else p for p in path.split(".")]
        for part in parents:
            data = data[part]
        if value is KeyError:
            del data[last]
        else:
            data[last] = value

    return apply


@pytest.mark.parametrize(
    "broken",
    [
        change("schema", "dlcheck/2"),
        change("verdict", "good"),
        change("seen.samples", -1),
        change("seen.samples", "many"),
        change("findings.0.severity", "fatal"),
        change("findings.0.where.line", "six"),
        change("findings.0.where.column", 1),
        change("findings.0.fix", KeyError),
        change("rules.0.state", "skipped"),
        change("more", 1),
        change("observation.splits.train.samples", "240"),
        change("observation.splits.train.fields.image.low", "low"),
        change("observation.splits.train.fields.image.shapes.3x48x64", 3),
    ],
)
def test_what_is_wrong_is_refused(report, shipped, broken):
    data = json.loads(report_json.render(report))
    broken(before := copy.deepcopy(data))
    assert shipped.is_valid(data)
    assert not shipped.is_valid(before)


def test_an_observation_may_grow_within_version_1(report, shipped):
    data = json.loads(report_json.render(report))
    data["observation"]["splits"]["train"]["from_tomorrow"] = 1
    shipped.validate(data)
