from __future__ import annotations

import dataclasses
import re

import pytest
from rich.cells import cell_len

from dlcheck.findings import ERROR, Finding, Report, RuleState, Where
from dlcheck.observation import Field, Loader, Observation, Split, Tally
from dlcheck.reporters.terminal import render, seen

ANSI = re.compile(r"\x1b\[[0-9;]*m")
HOSTILE = "[bold red]x[/] \x1b[31m\x1b]0;title\x07 \u202egnp.exe \udc80 \x00\r\nfail: 0 errors"


def only(finding: Finding, observation: Observation | None = None) -> Report:
    return Report("shapes", "t", "fail", (finding,), (), observation or Observation())


def clean(*states: RuleState, verdict: str = "pass") -> Report:
    splits = {"": Split(samples=8, of=8, batches=1, epochs=1, seconds=0.5)}
    return Report("shapes", "t", verdict, (), states, Observation(splits=splits))


def test_the_report_at_80_columns(report):
    lines = render(report, width=80).splitlines()
    start, table = lines[:4], lines[7:10]
    assert start[0] == "dlcheck shapes configs/dlcheck.yaml: fail"
    assert start[1].startswith("  train: 240 of 1,281,167 samples (40 spread over the dataset), 8")
    assert start[3] == "  note: a live iterator was dropped"
    assert table[0].split() == ["field", "kind", "shape", "dtype", "range"]
    assert table[2].split("  ")[0::1][0] == "image"
    assert "16-32 x 3 x 48-64 x 64" in table[2]
    assert table[2].endswith("-2.118 to 2.64")
    at = lines.index("error DLC101 ragged-batch")
    assert lines[at + 2 : at + 8] == [
        "  at data.py:6",
        "    6 | return cut(image)",
        "      | ^",
        "  split train, field image, sample 41",
        "  shapes: 3x48x64: 12, 3x64x48: 20",
        "  batch size: 32",
    ]
    assert lines[-2] == "fail: 1 error, 1 warning, 1 note"
    assert lines[-1] == "`dlcheck explain ragged-batch` says more, with an example"


@pytest.mark.parametrize("width", [24, 40, 60, 80, 200])
@pytest.mark.parametrize("ascii_only", [False, True])
def test_no_line_is_wider_than_asked(report, width, ascii_only):
    text = render(report, width=width, ascii_only=ascii_only)
    assert max(map(cell_len, text.splitlines())) <= width


def test_a_batch_too_wide_for_a_table_is_listed(report):
    assert "  image: 16-32 x 3 x 48-64 x 64," in render(report, width=40)


def test_without_colour_there_is_no_escape(report):
    assert "\x1b" not in render(report, color=False)


def test_colour_changes_no_word(report, monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("NO_COLOR", "1")
    plain, coloured = render(report), render(report, color=True)
    assert "\x1b[" in coloured
    stripped = [line.rstrip() for line in ANSI.sub("", coloured).splitlines()]
    assert stripped == plain.splitlines()


def test_ascii_only_is_ascii(report):
    target = dataclasses.replace(report, target="кошки.yaml")
    assert render(target, ascii_only=True).isascii()


def test_rendering_twice_gives_the_same(report):
    assert render(report, color=True) == render(report, color=True)


@pytest.mark.parametrize("color", [False, True])
def test_hostile_text_reaches_the_terminal_as_text(tmp_path, monkeypatch, color):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "a[red]\x1b[2J.py"
    file.write_text(f"    f('{HOSTILE[:20]}')\n")
    finding = Finding(
        HOSTILE, Where(field=HOSTILE, path=HOSTILE, stage=HOSTILE, file=str(file), line=1),
        {HOSTILE: HOSTILE, "list": [HOSTILE]}, ERROR, fix=HOSTILE, code="X", rule=HOSTILE,
    )  # fmt: skip
    field = Field(types={HOSTILE: Tally(1)}, dtypes={HOSTILE: Tally(1)})
    split = Split(loader=Loader(notes=(HOSTILE,)), batch_fields={HOSTILE: field})
    observation = Observation(splits={HOSTILE: split}, cut=HOSTILE)
    report = Report(
        HOSTILE, HOSTILE, HOSTILE, (finding,), (RuleState(HOSTILE, "unobserved", HOSTILE),),
        observation,
    )  # fmt: skip
    text = ANSI.sub("", render(report, width=200, color=color, verbosity=1)).encode().decode()
    assert not set("\x1b\x07\x00\r\u202e") & set(text)
    assert "[bold red]x[/] \\x1b[31m\\x1b]0;title\\x07 \\u202egnp.exe \\udc80 \\x00" in text
    assert "a[red]\\x1b[2J.py" in text
    assert not any(line.startswith("fail: 0") for line in text.splitlines())


def test_a_message_of_several_lines_cannot_pass_for_ours():
    text = render(only(Finding("stack failed\n  fix: nothing", severity=ERROR)))
    assert "  stack failed\n    |   fix: nothing\n" in text


def test_a_long_source_line_is_cut_off(tmp_path):
    file = tmp_path / "long.py"
    file.write_text("\t\t" + "x" * 500 + "\n")
    where = Where(file=str(file), line=1)
    lines = render(only(Finding("m", where, severity=ERROR)), width=80).splitlines()
    quoted = next(line for line in lines if line.startswith("    1 | "))
    assert quoted == "    1 | " + "x" * 69 + "..."


def test_a_missing_file_is_still_named():
    text = render(only(Finding("m", Where(file="/gone/data.py", line=7), severity=ERROR)))
    assert "  at /gone/data.py:7\n" in text
    assert "^" not in text


def test_evidence_of_many_lines_is_a_block_that_keeps_both_ends():
    evidence = {"stderr": "first\n" + "a\n" * 50 + "\x1b[1mcause", "samples": []}
    text = render(only(Finding("m", evidence=evidence, severity=ERROR)))
    assert "  stderr:\n    first\n" in text
    assert "    ...\n" in text
    assert "    \\x1b[1mcause\n" in text
    assert text.count("    a\n") == 10
    assert "samples:" not in text


def test_evidence_past_eight_keys_is_counted():
    evidence = {f"key{n}": n for n in range(11)}
    assert "... and 3 more" in render(only(Finding("m", evidence=evidence, severity=ERROR)))


def test_rows_past_twenty_are_counted():
    fields = {f"f{n}": Field(types={"int": Tally(1)}) for n in range(10_000)}
    observation = Observation(splits={"": Split(batch_fields=fields)})
    text = render(Report("shapes", "t", "pass", (), (), observation))
    assert "f19" in text
    assert "f20" not in text
    assert "... and 9,980 more" in text


def test_a_clean_report_says_what_was_looked_at():
    states = (RuleState("a", "ran"), RuleState("b", "ran"), RuleState("c", "not-applicable", "no"))
    lines = render(clean(*states)).splitlines()
    assert lines[1] == "  8 of 8 samples, 1 batch, 1 epoch in 0.5 s"
    assert lines[-2:] == ["2 rules ran, 1 not-applicable (-v lists them)", "pass: nothing found"]


def test_verbose_lists_the_rules_that_did_not_run():
    states = (RuleState("c", "not-applicable", "no model"), RuleState("d", "unobserved", "cut"))
    text = render(clean(*states), verbosity=1)
    assert "not-applicable (no model): c\n" in text
    assert "unobserved (cut): d\n" in text


def test_incomplete_says_which_rules_saw_nothing_and_why():
    states = tuple(RuleState(name, "unobserved", "no batch was made") for name in "ab")
    text = render(clean(*states, verdict="incomplete"))
    assert "unobserved (no batch was made): a, b\n" in text
    assert text.endswith("incomplete: nothing found\n")


def test_quiet_leaves_the_batch_out(report):
    text = render(report, verbosity=-1)
    assert not any(line.startswith("the batch") for line in text.splitlines())
    assert "ragged-batch" in text


def test_a_run_that_saw_nothing_says_so():
    report = Report("shapes", "t", "incomplete", (), (), Observation(cut="interrupted"))
    assert render(report).splitlines()[1:3] == ["  nothing was read", "  ended early: interrupted"]


@pytest.mark.parametrize(
    ("split", "words"),
    [
        (Split(samples=96, of=48, batches=12, epochs=2, seconds=1),
         "48 of 48 samples, 12 batches, 2 epochs in 1.0 s"),
        (Split(samples=5), "5 samples, 0 batches, 0 epochs in 0.0 s"),
        (Split(samples=1, batches=1, epochs=2, seconds=600),
         "1 sample, 1 batch, 2 epochs in 10.0 min"),
    ],
)  # fmt: skip
def test_what_was_seen_is_counted_in_words(split, words):
    assert seen(split) == words
