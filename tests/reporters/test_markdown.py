from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator

import pytest

from dlcheck.findings import ERROR, Finding, Report, RuleState
from dlcheck.observation import (
    Budget,
    Device,
    Field,
    Journey,
    Mark,
    Observation,
    Process,
    Reading,
    Split,
    State,
    Step,
    Tally,
)
from dlcheck.reporters import marks
from dlcheck.reporters.markdown import MOST_SUMMARY, render, summary
from dlcheck.reporters.visible import visible

OURS = re.compile(r"(<details><summary>[^<>]*</summary>|</details>)\s*")
LINKED = re.compile(r"://|www\.|@|#\d|GH-\d|:\w+:", re.IGNORECASE)


def tokens(text: str) -> Iterator[tuple[str, str]]:
    """What a parser of Markdown makes of it: kind and content, inline parts included."""
    parser = pytest.importorskip("markdown_it").MarkdownIt("commonmark").enable(["table"])
    for token in parser.parse(text):
        yield token.type, token.content
        yield from ((child.type, child.content) for child in token.children or ())


def plain(text: str) -> str:
    """The words that a reader sees, whatever they look like."""
    shown = {"text", "code_inline", "fence"}
    return "".join(content for kind, content in tokens(text) if kind in shown)


def many(n: int) -> Report:
    findings = tuple(Finding(f"fault {x}", severity=ERROR, code="C", rule="r") for x in range(n))
    return Report("shapes", "t", "fail", findings, (), Observation())


def test_the_head_says_the_verdict_the_counts_and_what_was_looked_at(report):
    lines = render(report).splitlines()
    assert lines[0] == "## ❌ dlcheck shapes `configs/dlcheck.yaml`: fail"
    assert lines[2] == "**1 error, 1 warning, 1 note**"
    assert lines[4].startswith(
        "- `train`: 240 of 1,281,167 samples (40 spread over the dataset), 8"
    )
    assert lines[5].startswith("- `val`: 1 of 1 sample, 1 batch, 1 epoch in")


def test_a_finding_says_where_why_and_the_cure(report):
    text = render(report)
    start = text.index("### ❌ error DLC101 ragged-batch")
    shown = text[start : text.index("### ⚠")]
    assert "At `data.py:6`, split train, field image, sample 41\n" in shown
    assert "```python\nreturn cut(image)\n```\n" in shown
    assert "**Fix:** Resize to a pair: Resize((64, 64)).\n" in shown
    assert "- batch size: `32`\n" in shown


def test_the_batch_is_a_table(report):
    assert "| `image` |  | `16-32 x 3 x 48-64 x 64` | `float32` | `-2.118 to 2.64` |" in render(
        report
    )


def test_a_journey_is_folded_away():
    step = Step("d.py", 3, "f", "t", "x", "Resize", State("Tensor", "float32", (3, 8, 8)))
    step = dataclasses.replace(step, fields=("image",))
    journey = Journey(0, (step,), {"image": step.after})
    observation = Observation(splits={"": Split(journeys={"0": journey})})
    text = render(Report("shapes", "t", "pass", (), (), observation))
    assert "<details><summary>how a sample is made</summary>" in text
    assert "| `Resize` | `d.py:3` | `3x8x8` | `float32` |" in text


def test_memory_and_device_are_tables():
    marks_ = tuple(
        Mark(n, "end", 10 * n, 80, heap=n << 22, blocks=n * 9999, handles=7) for n in range(5)
    )
    held = Split(
        samples=80, epochs=5, processes={"main": Process(marks=marks_)},
        device=Device("auto", "cuda:0", "H200", readings=(Reading(0, 0, 1, 2, 3, 4),)),
        budget=Budget(model="resnet50", batch=32, peak=3 << 30, parameters=1 << 30),
    )  # fmt: skip
    text = render(Report("leak", "t", "pass", (), (), Observation(splits={"a": held})))
    assert re.search(r"\| `main` \| `heap` \| `\S+( \w+)?` \| `16 MiB` \| `\+4 MiB`", text)
    assert "**device cuda:0: H200 of `a`**" in text
    assert "| `parameters` | `1 GiB` | `33%` |" in text
    assert [kind for kind, _ in tokens(text)].count("table_open") == 3


def test_what_a_baseline_left_out_is_said():
    settings = {"baseline": {"known": 2, "file": "base_line.json"}}
    text = render(Report("gate", "t", "pass", (), (), Observation(settings=settings)))
    assert "2 known findings left out, as base\\_line.json says" in text


def test_rules_that_did_not_run_are_listed_with_their_reason():
    states = (RuleState("a", "ran"), RuleState("b-c", "unobserved", "cut"))
    text = render(Report("shapes", "t", "incomplete", (), states, Observation(cut="Ctrl-C")))
    assert "<summary>rules: 1 ran, 1 unobserved</summary>" in text
    assert "| `b-c` | unobserved | cut |" in text
    assert "Ended early: Ctrl-C" in text
    assert "Nothing was read." in text


def test_hostile_text_is_text_to_a_parser_of_markdown(hostile_report):
    found = list(tokens(render(hostile_report)))
    kinds = {kind for kind, _ in found}
    assert not {"link_open", "image", "em_open", "hr", "blockquote_open", "code_block"} & kinds
    assert all(OURS.fullmatch(content) for kind, content in found if kind.startswith("html"))
    headings = sum(kind == "heading_open" for kind, _ in found)
    assert headings == 1 + len(hostile_report.findings)
    render(hostile_report).encode()


def test_hostile_text_calls_nobody_and_links_nowhere(hostile_report):
    """What GitHub itself makes of plain text: mentions, references, addresses, emoji."""
    for kind, content in tokens(render(hostile_report)):
        assert kind != "text" or not LINKED.search(content), content


def test_hostile_text_can_be_read_whole(hostile):
    assert visible(hostile).replace("`", "") in plain(marks.text(hostile)).replace("`", "")
    assert plain(marks.code(hostile)).strip() == visible(hostile).strip()


def test_hostile_text_stays_in_its_cell(hostile):
    text = "\n".join(marks.table(("a", "b"), [(marks.code(hostile), marks.text(hostile))]))
    kinds = [kind for kind, _ in tokens(text)]
    assert (kinds.count("tr_open"), kinds.count("td_open")) == (2, 2)


def test_hostile_lines_do_not_end_their_block(hostile):
    lines = hostile.split("\n")
    (fence,) = [c for kind, c in tokens("\n".join(marks.block(lines, "text"))) if kind == "fence"]
    assert fence.rstrip("\n") == "\n".join(map(visible, lines)).rstrip("\n")


@pytest.mark.parametrize("words", ["# a", "1. a", "2) a", "- a", "+ a", "=== a", "> a", "    a"])
def test_what_would_begin_a_block_is_a_paragraph(words):
    assert next(kind for kind, _ in tokens(marks.text(words))) == "paragraph_open"
    assert plain(marks.text(words)) == words.strip()


def test_what_a_rule_quotes_is_code():
    assert marks.text("the channels of `image_a` are `B|G`") == (
        "the channels of `image_a` are `B|G`"
    )


def test_a_summary_that_fits_is_the_whole_report(report):
    assert summary(report, MOST_SUMMARY) == render(report)


@pytest.mark.parametrize("room", [0, 50, 400, 1000, 5000])
def test_a_summary_fills_the_room_and_says_what_is_left(room):
    text = summary(many(1000), room)
    assert len(text.encode()) <= room
    if text:
        kept = text.count("###")
        assert text.endswith(f"... and {1000 - kept} more; this summary is full.\n")
        assert room - len(text.encode()) < 200 or kept == 0


def test_rows_past_forty_are_counted():
    fields = {f"f{n}": Field(types={"int": Tally(1)}) for n in range(100)}
    observation = Observation(splits={"": Split(batch_fields=fields)})
    text = render(Report("shapes", "t", "pass", (), (), observation))
    assert "... and 60 more" in text
