from __future__ import annotations

import dataclasses
import json

import pytest

from dlcheck.findings import ERROR, NOTE, WARNING, Finding, Report, RuleState, Where
from dlcheck.observation import (
    Budget,
    Device,
    Field,
    Mark,
    Observation,
    Process,
    Reading,
    Split,
    Tally,
)
from dlcheck.reporters import compared
from dlcheck.reporters.comparison import compare

MIB = 1 << 20


def report_of(*findings: Finding, states: tuple[RuleState, ...] = (), **split) -> Report:
    ran = tuple(RuleState(f.rule, "ran") for f in findings)
    known = {state.rule for state in states}
    states = (*states, *(state for state in ran if state.rule not in known))
    return Report("shapes", "t", "fail", findings, states, Observation({"": Split(**split)}))


def fault(rule: str, **where) -> Finding:
    return Finding(f"{rule} found", Where(**where), severity=ERROR, code="DLC9", rule=rule)


def rules(findings) -> list[str]:
    return [finding.rule for finding in findings]


def changes(before: Report, after: Report, subject: str) -> list[tuple[str, str, str]]:
    return [dataclasses.astuple(change) for change in compare(before, after).changes[subject]]


def test_findings_are_matched_whatever_line_or_checkout_they_moved_to():
    before = report_of(fault("a", file="/home/u/p/data.py", line=3, sample=1))
    after = report_of(fault("a", file="/ci/build/data.py", line=9, sample=5))
    both = compare(before, after)
    assert (both.new, both.cured, rules(both.unchanged)) == ((), (), ["a"])


@pytest.mark.parametrize("part", ["split", "field", "attribute", "file"])
def test_findings_of_other_places_are_not_matched(part):
    both = compare(report_of(fault("a", **{part: "x"})), report_of(fault("a", **{part: "y"})))
    assert (rules(both.new), rules(both.cured), both.unchanged) == (["a"], ["a"], ())


def test_a_second_finding_of_the_same_place_is_new():
    both = compare(report_of(fault("a")), report_of(fault("a"), fault("a")))
    assert (rules(both.new), rules(both.unchanged)) == (["a"], ["a"])


def test_what_a_rule_did_not_look_at_again_is_not_cured():
    """A run that ended early must not pass for one that was repaired."""
    states = (
        RuleState("a", "ran"),
        RuleState("b", "unobserved", "no batch was made"),
        RuleState("c", "not-applicable", "ignored: known"),
    )
    both = compare(report_of(fault("a"), fault("b"), fault("c")), report_of(states=states))
    assert rules(both.cured) == ["a"]
    assert [(finding.rule, why) for finding, why in both.unjudged] == [
        ("b", "unobserved: no batch was made"),
        ("c", "not-applicable: ignored: known"),
    ]


def field(shape: str, dtype: str = "float32", low: float = 0.0, high: float = 1.0) -> Field:
    one = Tally(1)
    return Field({"Tensor": one}, {dtype: one}, {shape: one}, low=low, high=high)


def test_changed_shapes_dtypes_ranges_and_fields():
    before = report_of(batch_fields={"a": field("8x3"), "b": field("8"), "gone": field("8")})
    after = report_of(
        batch_fields={"a": field("8x4", "float64"), "b": field("8", high=255), "new": field("2")}
    )
    assert changes(before, after, "batch") == [
        ("a shape", "8x3", "8x4"),
        ("a dtype", "float32", "float64"),
        ("b range", "0 to 1", "0 to 255"),
        ("gone", "8, float32, 0 to 1", ""),
        ("new", "", "2, float32, 0 to 1"),
    ]


def test_two_draws_of_one_pipeline_have_no_other_range():
    before = report_of(batch_fields={"a": field("8", low=-2.11, high=2.64)})
    after = report_of(batch_fields={"a": field("8", low=-2.05, high=2.6)})
    assert changes(before, after, "batch") == []


def process(*heaps: float, peak: int = 10 * MIB, role: str = "main") -> Process:
    """A process with a live heap of so many MiB at each epoch's end, and 7 open handles."""
    marks = (
        Mark(epoch, "end", 10 * epoch + 10, 80, heap=int(heap * MIB), peak=peak, handles=7)
        for epoch, heap in enumerate(heaps)
    )
    return Process(role, marks=tuple(marks))


def test_memory_is_compared_by_role_with_its_growth_an_epoch():
    still = process(1, 1, 1, 1, role="worker")
    before = report_of(processes={"main": process(10, 10, 10, 10), "w0": still})
    after = report_of(processes={"main": process(10, 14, 18, 22, peak=20 * MIB), "w0": still})
    rows = {what: (old, new) for what, old, new in changes(before, after, "memory")}
    assert set(rows) == {"main heap", "main peak"}
    assert rows["main heap"][0] == "10 MiB, flat"
    assert rows["main heap"][1].startswith("22 MiB, +4 MiB an epoch, growing")
    assert rows["main peak"] == ("10.0 MiB", "20.0 MiB")


def test_equal_memory_is_no_change():
    before = report_of(processes={"main": process(10, 14, 18, 22)})
    after = report_of(processes={"main": process(10.1, 14.1, 18.1, 22.1, peak=10 * MIB + 99)})
    assert changes(before, after, "memory") == []


def on_device(peak: int, foreseen: int) -> Report:
    readings = tuple(Reading(0, batch, 100, 200, peak) for batch in range(3))
    return report_of(device=Device(name="cuda:0", readings=readings), budget=Budget(peak=foreseen))


def test_device_memory_is_compared_measured_and_foreseen():
    rows = changes(on_device(4 * MIB, 8 * MIB), on_device(6 * MIB, 9 * MIB), "device")
    assert rows == [
        ("peak", "4 MiB", "6 MiB"),
        ("foreseen peak of a step", "8 MiB", "9 MiB"),
    ]
    assert changes(on_device(4 * MIB, MIB), on_device(4 * MIB, MIB), "device") == []


def test_speed_is_compared_where_it_changed():
    fast, slow = report_of(samples=100, seconds=1.0), report_of(samples=100, seconds=2.0)
    assert changes(fast, slow, "speed") == [("samples a second", "100.0", "50.0 (-50%)")]
    assert changes(fast, report_of(samples=95, seconds=1.0), "speed") == []
    assert changes(fast, report_of(), "speed") == []


def test_runs_of_different_things_say_so():
    before = report_of()
    observation = Observation({"": Split()}, versions={"torch": "2.5"})
    after = dataclasses.replace(before, target="other", observation=observation)
    assert changes(before, after, "run") == [("target", "t", "other"), ("torch", "", "2.5")]


def test_what_a_baseline_took_out_is_counted():
    before, after = report_of(), report_of()
    observation = Observation({"": Split()}, settings={"baseline": {"known": 2}})
    after = dataclasses.replace(after, observation=observation)
    assert changes(before, after, "run") == [("accepted by a baseline", "0", "2")]


@pytest.fixture
def both():
    states = (RuleState("gone", "unobserved", "cut"),)
    before = report_of(fault("cured"), fault("gone"), fault("kept"), samples=9, seconds=1.0)
    new = [fault("new", file="data.py", line=3), fault("kept")]
    return compare(before, report_of(*new, states=(*states, RuleState("cured", "ran"))))


def test_the_table_names_new_cured_and_what_was_not_judged(both):
    lines = compared.table(both).splitlines()
    assert lines[0] == "dlcheck report: shapes t: fail -> shapes t: fail"
    assert lines[2:5] == ["new", "  error DLC9 new at data.py:3", "    new found"]
    assert lines[6:8] == ["cured", "  error DLC9 cured"]
    assert lines[10] == "no longer judged"
    assert lines[13] == "    (unobserved: cut)"
    assert lines[-1].startswith("1 new, 1 cured, 1 unchanged, 1 no longer judged")


def test_json_has_all_of_it(both):
    data = json.loads(compared.as_json(both))
    assert data["schema"] == "dlcheck-comparison/1"
    assert [f["rule"] for f in data["new"]] == ["new"]
    assert [f["reason"] for f in data["unjudged"]] == ["unobserved: cut"]
    assert set(data["changes"]) == {"run", "batch", "memory", "device", "speed"}


def test_equal_runs_say_that_nothing_changed(report):
    text = compared.table(compare(report, report))
    assert text.splitlines()[-1] == "0 new, 0 cured, 3 unchanged, nothing else changed"


def test_hostile_text_is_neutral_in_a_comparison(hostile_report):
    empty = report_of()
    text = compared.table(compare(empty, hostile_report), width=60)
    assert not set("\x1b\x07\x00\r\u202e") & set(text)
    text.encode()
    compared.markdown(compare(hostile_report, empty)).encode()
    assert "\n- " in compared.markdown(compare(empty, hostile_report))
    json.loads(compared.as_json(compare(empty, hostile_report)))


def test_a_change_of_severity_alone_is_no_new_finding():
    before, after = report_of(fault("a")), report_of(fault("a"))
    for level in (NOTE, WARNING):
        milder = dataclasses.replace(after.findings[0], severity=level)
        assert compare(before, dataclasses.replace(after, findings=(milder,))).new == ()
