from __future__ import annotations

from typing import Any

import pytest

from dlcheck.findings import ERROR, NOTE, WARNING, Finding, Report, RuleState, Where
from dlcheck.observation import (
    Budget,
    Device,
    Failure,
    Field,
    Frame,
    Loader,
    Observation,
    Reading,
    Split,
    Tally,
)

SOURCE = (
    "import cv2\n\n\ndef read(path, size):\n\timage = cv2.imread(path)\n    return cut(image)\n"
)

# Text as users' files, labels and exceptions may hold it: each acts in one format or another.
HOSTILE = {
    "ansi": "\x1b[31mred\x1b]0;title\x07",
    "control": "nul\x00bell\x07back\x08\x7f\x9b31m",
    "newlines": "a\r\nb\u2028c\u2029d\x85e\x0bf",
    "bidi": "\u202egnp.exe\u2066x",
    "surrogate": "\udc80\ud800",
    "noncharacter": "\ufffe\uffff\U0001ffff",
    "rich": "[bold red]x[/] [link=http://e.example]y[/link] :smile:",
    "xml": "]]></failure><x a='1' b=\"2\">&amp;&bad;<![CDATA[<?pi?>-->",
    "html": "<script>alert(1)</script><img src=x onerror=alert(1)><!-- </details>",
    "markdown": "# h\n- [x](http://e.example) ![i](http://e.example/i.png) **b** ~~s~~ $x$",
    "fence": "```\n~~~~\n````` `` ` end",
    "table": "a | b \\| c",
    "mention": "@octocat user@e.example #12 o/r#3 GH-4 https://e.example www.e.example",
    "workflow": "x\n::set-output name=a::b\n  ::error file=e::owned\n##[add-path]/e %0A::stop",
    "placeholder": "{0} {{1}} {x} [link](0) [a](file:///etc/passwd)",
    "path": "C:\\a\\b: 100%, x=1, \"q\" 'q' /../..",
}
HOSTILE["everything"] = " / ".join(HOSTILE.values())


@pytest.fixture(params=HOSTILE.values(), ids=HOSTILE)
def hostile(request) -> str:
    """One text that means to act, and then all of them in one."""
    return request.param


@pytest.fixture
def hostile_report(hostile) -> Report:
    """A report that holds the text wherever a user's may stand."""
    where = Where(hostile, hostile, hostile, hostile, hostile, 1, hostile, 0, hostile)
    block = f"first\n{hostile}\nlast"
    evidence = {hostile: hostile, "list": [hostile, {hostile: hostile}], "block": block}
    findings = tuple(
        Finding(hostile, where, evidence, level, fix=hostile, code=f"DLC90{n}", rule=hostile)
        for n, level in enumerate((ERROR, WARNING, NOTE))
    )
    frame = Frame(hostile, 1, hostile, hostile, user=True)
    failure = Failure("sample", hostile, hostile, (frame,), at=(hostile,))
    fields = {hostile: Field(types={hostile: Tally(1)}, dtypes={hostile: Tally(1)})}
    split = Split(
        loader=Loader(cls=hostile, file=hostile, line=1, notes=(hostile,)),
        samples=1, batches=1, epochs=1, fields=fields, batch_fields=fields,
        failures={failure.key: failure},
        device=Device(
            hostile, hostile, hostile, readings=(Reading(0, 0, 1, 2, 3, 4),), missing=(hostile,)
        ),
        budget=Budget(hostile, hostile, hostile, peak=9, parameters=9, assumed=(hostile,)),
    )  # fmt: skip
    settings = {"baseline": {"known": 1, "file": hostile}}
    observation = Observation(
        {hostile: split}, {failure.key: failure}, {hostile: hostile}, settings, cut=hostile
    )
    states = tuple(
        RuleState(f"{hostile}{state}", state, hostile)
        for state in ("ran", "not-applicable", "unobserved")
    )
    return Report(hostile, hostile, "fail", findings, states, observation)


def field(dtype: str, shapes: dict[str, int], **more: Any) -> Field:
    n = sum(shapes.values())
    return Field(
        types={"Tensor": Tally(n)},
        dtypes={dtype: Tally(n)},
        shapes={text: Tally(count) for text, count in shapes.items()},
        **more,
    )


def train() -> Split:
    return Split(
        loader=Loader(notes=("a live iterator was dropped",)),
        samples=240, batches=8, epochs=2, spread=40, seconds=1.34, of=1_281_167,
        fields={
            "image": field("float32", {"3x48x64": 120, "3x64x64": 120}, low=-2.1179, high=2.64),
            "label": field("int64", {"scalar": 240}, low=0, high=9),
        },
        batch_fields={
            "": Field(types={"dict": Tally(8)}),
            "image": field("float32", {"32x3x48x64": 4, "32x3x64x64": 3, "16x3x64x64": 1}),
            "label": field("int64", {"32": 7, "16": 1}),
        },
    )  # fmt: skip


@pytest.fixture
def source_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "data.py"
    file.write_text(SOURCE, encoding="utf-8")
    return file


@pytest.fixture
def report(source_file) -> Report:
    frame = Frame(str(source_file), 5, "read", text="\timage = cv2.imread(path)", user=True)
    failure = Failure("collate", "RuntimeError", "stack expects each tensor", (frame,))
    ragged = Finding(
        "samples of one batch differ in shape, and default_collate cannot stack them",
        Where(split="train", field="image", sample=41, file=str(source_file), line=6),
        {"shapes": {"3x48x64": 12, "3x64x48": 20}, "batch_size": 32},
        ERROR, fix="Resize to a pair: Resize((64, 64)).", code="DLC101", rule="ragged-batch",
    )  # fmt: skip
    small = Finding(
        "the last batch holds one sample",
        Where(split="train", file=str(source_file), line=5),
        {}, WARNING, fix="drop_last=True", code="DLC109", rule="small-last-batch",
    )  # fmt: skip
    note = Finding("pinned for nothing", severity=NOTE, code="DLC605", rule="pin-memory")
    states = (
        RuleState("ragged-batch", "ran"),
        RuleState("small-last-batch", "ran"),
        RuleState("contract-mismatch", "not-applicable", "no model given"),
    )
    observation = Observation(
        splits={"train": train(), "val": Split(role="eval", samples=1, batches=1, epochs=1, of=1)},
        failures={failure.key: failure},
    )
    return Report(
        "shapes", "configs/dlcheck.yaml", "fail", (ragged, small, note), states, observation
    )
