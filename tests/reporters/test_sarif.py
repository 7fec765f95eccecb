from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from urllib.parse import unquote_to_bytes, urlsplit

import pytest

import dlcheck.rules  # noqa: F401 - fills the registry
from dlcheck.findings import ERROR, REGISTRY, Finding, Report, RuleState, Where
from dlcheck.observation import Loader, Observation, Split
from dlcheck.reporters.sarif import fingerprints, render

jsonschema = pytest.importorskip("jsonschema")
SCHEMA = Path(__file__).parent / "schemas" / "sarif-schema-2.1.0.json"


@pytest.fixture(scope="module")
def official():
    """The schema that OASIS published."""
    return jsonschema.Draft4Validator(json.loads(SCHEMA.read_text()))


def run_of(report: Report) -> dict:
    (run,) = json.loads(render(report))["runs"]
    return run


def only(finding: Finding, split: Split | None = None, target: str = "t") -> dict:
    observation = Observation(splits={"": split or Split()})
    (result,) = run_of(Report("shapes", target, "fail", (finding,), (), observation))["results"]
    return result


def place(result: dict) -> dict:
    (location,) = result["locations"]
    return location.get("physicalLocation", {})


def test_the_schema_of_oasis_takes_a_report(report, official):
    official.validate(json.loads(render(report)))


def test_the_schema_of_oasis_takes_a_report_of_nothing(official):
    official.validate(json.loads(render(Report("shapes", "t", "pass", (), (), Observation()))))


def test_the_schema_of_oasis_takes_hostile_text(hostile_report, official):
    text = render(hostile_report)
    assert text.isascii()
    official.validate(json.loads(text))


def test_the_schema_refuses_what_is_wrong(report, official):
    log = json.loads(render(report))
    log["runs"][0]["results"][0]["level"] = "fatal"
    assert not official.is_valid(log)


def test_every_rule_is_described_and_each_result_points_at_its_own(report):
    run = run_of(report)
    rules = run["tool"]["driver"]["rules"]
    assert {rule["id"] for rule in rules} >= {rule.code for rule in REGISTRY.values()}
    for rule in rules:
        if rule["name"] in REGISTRY:
            assert REGISTRY[rule["name"]].fix[:20] in rule["help"]["markdown"].replace("{{", "{")
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
    assert [result["level"] for result in run["results"]] == ["error", "warning", "note"]


def test_a_rule_that_this_version_does_not_know_is_named_all_the_same():
    finding = Finding("m", severity=ERROR, code="DLC999", rule="from-tomorrow")
    run = run_of(Report("shapes", "t", "fail", (finding,), (), Observation()))
    rule = run["tool"]["driver"]["rules"][-1]
    assert (rule["id"], rule["name"]) == ("DLC999", "from-tomorrow")


def test_every_rule_has_the_texts_that_github_wants(hostile_report):
    for rule in run_of(hostile_report)["tool"]["driver"]["rules"]:
        for name in ("shortDescription", "fullDescription", "help"):
            assert rule[name]["text"]


def test_a_line_is_named_from_the_checkout(report):
    assert place(run_of(report)["results"][0]) == {
        "artifactLocation": {"uri": "data.py", "uriBaseId": "%SRCROOT%"},
        "region": {"startLine": 6, "snippet": {"text": "    return cut(image)"}},
    }


def test_the_checkout_is_the_folder_with_git_or_the_workspace(tmp_path, monkeypatch):
    """A job that starts in a folder below names files as the forge does."""
    below = tmp_path / "repo" / "jobs"
    below.mkdir(parents=True)
    (below / "data.py").touch()
    (tmp_path / "repo" / ".git").mkdir()
    monkeypatch.chdir(below)
    finding = Finding("m", Where(file=str(below / "data.py")), severity=ERROR)
    assert place(only(finding))["artifactLocation"]["uri"] == "jobs/data.py"
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    assert place(only(finding))["artifactLocation"]["uri"] == "repo/jobs/data.py"


@pytest.mark.parametrize("name", ["a b.py", "100%.py", "x:y.py", "#?.py", "é\udc80.py", "a'\"b.py"])
def test_a_uri_leads_back_to_the_file(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder, base in ((tmp_path, True), (tmp_path.parent, False)):
        file = folder / name
        artifact = place(only(Finding("m", Where(file=str(file)))))["artifactLocation"]
        assert ("uriBaseId" in artifact) is base
        parts = urlsplit(artifact["uri"])
        assert (parts.query, parts.fragment, parts.scheme) == ("", "", "" if base else "file")
        found = os.fsdecode(unquote_to_bytes(parts.path))
        assert found == (name if base else str(file))


def test_a_finding_without_a_line_stands_where_its_loader_was_made(tmp_path, monkeypatch):
    """GitHub drops a result that names no file."""
    monkeypatch.chdir(tmp_path)
    split = Split(loader=Loader(file=str(tmp_path / "train.py"), line=9))
    assert place(only(Finding("m"), split))["artifactLocation"]["uri"] == "train.py"
    assert place(only(Finding("m"), split))["region"]["startLine"] == 9


@pytest.mark.parametrize("target", ["conf.yaml", "make.py:loader"])
def test_a_finding_without_a_loader_stands_in_the_target(tmp_path, monkeypatch, target):
    monkeypatch.chdir(tmp_path)
    file = target.partition(":")[0]
    (tmp_path / file).touch()
    assert place(only(Finding("m"), target=target))["artifactLocation"]["uri"] == file


def test_the_data_file_is_a_related_location():
    result = only(Finding("m", Where(sample=3, path="/data/cat 1.png")))
    (related,) = result["relatedLocations"]
    assert related["physicalLocation"]["artifactLocation"] == {"uri": "file:///data/cat%201.png"}
    assert related["message"]["text"] == "the data file of sample 3"


def test_text_is_no_placeholder_and_no_link():
    text = only(Finding("{0} and [here](1)", severity=ERROR))["message"]["text"]
    assert text == "{{0}} and [here] (1)"


def test_fingerprints_outlive_moved_lines_and_other_figures(report):
    moved = [
        dataclasses.replace(
            finding,
            message=f"{finding.message} 17 times",
            where=dataclasses.replace(finding.where, line=99, sample=7, path="other.png"),
        )
        for finding in report.findings
    ]
    assert fingerprints(moved) == fingerprints(report.findings)


def test_fingerprints_tell_places_apart():
    places = [
        Where(),
        Where(field="image"),
        Where(split="val", field="image"),
        Where(file="a.py"),
        Where(file="b.py"),
        Where(stage="Resize"),
        Where(attribute="self.cache"),
    ]
    findings = [Finding("m", where, code=code) for where in places for code in ("DLC1", "DLC2")]
    assert len(set(fingerprints([*findings, *findings]))) == 2 * len(findings)


def test_what_was_not_observed_is_a_notification():
    states = (RuleState("ragged-batch", "unobserved", "no batch was made"), RuleState("x", "ran"))
    report = Report("shapes", "t", "incomplete", (), states, Observation(cut="interrupted"))
    (invocation,) = run_of(report)["invocations"]
    assert invocation["executionSuccessful"] is False
    cut, unseen = invocation["toolExecutionNotifications"]
    assert cut["message"]["text"] == "ended early: interrupted"
    assert unseen["message"]["text"] == "ragged-batch was not observed: no batch was made"
    assert unseen["associatedRule"] == {"id": "DLC101"}


def test_two_renders_are_the_same_bytes(report):
    assert render(report) == render(report)
