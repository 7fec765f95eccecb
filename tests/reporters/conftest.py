from __future__ import annotations

from typing import Any

import pytest

from dlcheck.findings import ERROR, NOTE, WARNING, Finding, Report, RuleState, Where
from dlcheck.observation import Failure, Field, Frame, Loader, Observation, Split, Tally

SOURCE = (
    "import cv2\n\n\ndef read(path, size):\n\timage = cv2.imread(path)\n    return cut(image)\n"
)


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
