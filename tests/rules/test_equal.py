"""DLC305 fires where the pipeline made samples equal or blank, not where they are."""

from __future__ import annotations

from typing import Any

import pytest

import dlcheck.rules  # noqa: F401 - fills the registry
from dlcheck.findings import NOTE, WARNING, Finding, judge
from dlcheck.observation import (
    Contents,
    Field,
    Journey,
    Loader,
    Observation,
    Opened,
    Split,
    State,
    Step,
    Tally,
)

FILE = "pipeline.py"
NONE = Tally()
MAP = Loader(kind="map", dataset_length=90)
IMAGE = State("Tensor", "float32", (3, 64, 64), "CHW", 0.0, 1.0, 0.5)
LOADED = State("ndarray", "uint8", (64, 64, 3), "HWC", 0.0, 255.0, 120.0)
BLANK = State("Tensor", "float32", (3, 64, 64), "CHW", 0.0, 0.0, 0.0)


def step(after: State, line: int, before: State | None = None, stage: str = "f") -> Step:
    return Step(FILE, line, "f", f"x = {stage}(x)", "x", stage, after, before, fields=("image",))


def opened(*names: str) -> tuple[Opened, ...]:
    return tuple(
        Opened(f"/data/{name}", "cv2.imread", shape=(64, 64, 3), file=FILE, line=10)
        for name in names
    )


def journey(sample: int, content: str, *steps: Step, final: State = IMAGE, **more: Any) -> Journey:
    return Journey(sample, steps, {"image": final}, contents={"image": content}, **more)


def judged(
    *journeys: Journey, constant: Tally = NONE, distinct: int = 40, **more: Any
) -> tuple[Finding, ...]:
    """Samples 5 and 35 hold the same; as many other contents as asked for stand beside them."""
    image = Field(
        {"Tensor": Tally(90)}, {"float32": Tally(90)}, {"3x64x64": Tally(90)}, 0.0, 1.0,
        constant=constant,
    )  # fmt: skip
    seen = {f"{n:012x}": (100 + n,) for n in range(distinct)}
    known = {
        "loader": MAP,
        "samples": 90,
        "epochs": 1,
        "fields": {"image": image},
        "contents": {"image": Contents.of({**seen, "same": (5, 35)})},
        "journeys": {str(one.sample): one for one in journeys},
    }
    return judge(Observation(splits={"": Split(**known | more)}), select=["constant-sample"])[0]


def alone(sample: int, content: str, **more: Any) -> Journey:
    made = step(IMAGE, 20, LOADED, "decode")
    kept = step(IMAGE, 14, None, "self.store[i]")
    return journey(sample, content, made, again=(kept,), **{"steady": True} | more)


def test_samples_that_differ_when_drawn_alone_were_given_what_a_cache_kept() -> None:
    (found,) = judged(alone(5, "mine"), alone(35, "yours"))
    assert found.severity == WARNING
    assert found.where.line == 14
    assert "drawn alone, samples 5 and 35 differ" in found.message
    assert found.evidence["equal"] == [5, 35]


def test_a_read_that_was_replaced_by_another_file_is_named() -> None:
    bad = journey(5, "same", step(LOADED, 10), opened=opened("bad.jpg", "next.jpg"))
    good = journey(35, "same", step(LOADED, 10), opened=opened("next.jpg"))
    (found,) = judged(bad, good)
    assert found.severity == WARNING
    assert "sample 5 opened bad.jpg and came out as next.jpg" in found.message


def test_files_that_hold_the_same_are_a_note() -> None:
    same = [journey(n, "same", step(LOADED, 10), opened=opened(f"{n}.jpg")) for n in (5, 35)]
    (found,) = judged(*same)
    assert found.severity == NOTE
    assert found.evidence["files"] == ["/data/5.jpg", "/data/35.jpg"]


def test_files_that_differ_until_a_stage_are_a_warning_at_it() -> None:
    other = State("ndarray", "uint8", (64, 64, 3), "HWC", 3.0, 250.0, 99.0)
    flat = State("Tensor", "float32", (3, 64, 64), "CHW", 0.0, 1.0, 0.1)
    ways = [
        journey(n, "same", step(read, 10), step(flat, 12, read, "quantise"), opened=opened(f"{n}"))
        for n, read in ((5, LOADED), (35, other))
    ]
    (found,) = judged(*ways)
    assert (found.severity, found.where.line) == (WARNING, 12)


def test_an_index_that_is_not_used_gives_one_content_for_all() -> None:
    ways = [journey(n, "same", step(LOADED, 10), opened=opened("0.jpg")) for n in (5, 35)]
    contents = {"image": Contents.of({"same": (0, 1, 2, 3, 4, 5, 6, 35)})}
    (found,) = judged(*ways, contents=contents)
    assert "every index reads 0.jpg" in found.message


@pytest.mark.parametrize(
    ("why", "journeys", "more"),
    [
        ("the index names one file twice: oversampling",
         [journey(n, "same", step(LOADED, 10), opened=opened("a.jpg")) for n in (5, 35)], {}),
        ("an array in memory that holds rows twice",
         [journey(n, "same", step(IMAGE, 10)) for n in (5, 35)], {}),
        ("random patterns, drawn anew each time",
         [alone(5, "mine", steady=False), alone(35, "yours", steady=False)], {}),
        ("pages of wide margins: alike in what the drive reads of them, not in all of it",
         [journey(n, "same", step(LOADED, 10), opened=opened(f"{n}"), digests={"image": f"{n}"})
          for n in (5, 35)], {}),
        ("nothing was traced", [], {}),
        ("a stream may resample", [alone(5, "mine"), alone(35, "yours")],
         {"loader": Loader(kind="iterable")}),
        ("a label map", [alone(5, "mine"), alone(35, "yours")],
         {"given": {"fields": {"image": {"kind": "mask"}}}}),
    ],
)  # fmt: skip
def test_silent_on(why: str, journeys: list[Journey], more: dict[str, Any]) -> None:
    assert judged(*journeys, **more) == (), why


def test_a_stage_that_blanks_the_whole_picture_is_named() -> None:
    way = journey(7, "x", step(LOADED, 10), step(BLANK, 12, LOADED, "/"), final=BLANK)
    (found,) = judged(way, constant=Tally(1, (7,)))
    assert (found.severity, found.where.line, found.where.sample) == (WARNING, 12, 7)


def test_a_blank_made_in_place_of_a_file_is_a_replaced_read() -> None:
    zeros = journey(7, "x", step(BLANK, 15), final=BLANK, opened=opened("torn.jpg"))
    usual = journey(8, "y", step(LOADED, 10), opened=opened("8.jpg"))
    (found,) = judged(zeros, usual, constant=Tally(1, (7,)))
    assert (found.severity, found.where.line) == (WARNING, 15)
    assert "in place of torn.jpg" in found.message


def test_a_file_that_is_blank_is_a_note() -> None:
    read = State("ndarray", "uint8", (64, 64, 3), "HWC", 0.0, 0.0, 0.0)
    way = journey(7, "x", step(read, 10), final=BLANK, opened=opened("black.jpg"))
    (found,) = judged(way, constant=Tally(1, (7,)))
    assert found.severity == NOTE
    assert "black.jpg" in found.message


def test_a_crop_of_a_blank_part_is_fine() -> None:
    part = State("ndarray", "uint8", (32, 32, 3), "HWC", 9.0, 9.0, 9.0)
    way = journey(7, "x", step(LOADED, 10), step(part, 12, LOADED, "crop"), final=part)
    assert judged(way, constant=Tally(1, (7,))) == ()
