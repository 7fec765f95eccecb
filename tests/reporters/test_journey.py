from __future__ import annotations

import itertools
from typing import Any

import pytest
from rich.cells import cell_len

from dlcheck.findings import Report
from dlcheck.observation import Failure, Frame, Journey, Observation, Split, State, Step
from dlcheck.reporters.journey import HEAD, MOST_ROWS, Way, tables, ways
from dlcheck.reporters.terminal import render

ARRAY = State("ndarray", "uint8", (88, 101, 3), "HWC", 0, 255)
CROPPED = State("ndarray", "uint8", (64, 64, 3), "HWC", 0, 251)
TENSOR = State("Tensor", "float32", (3, 64, 64), "CHW", 0.0, 1.0)
FINAL = State("Tensor", "float32", (3, 64, 64), "CHW", -2.1179, 2.64)


def step(stage: str, before: State | None, after: State, line: int, **more: Any) -> Step:
    known = {"fields": ("image",), "seconds": 0.00042}
    return Step(
        "/home/me/data.py", line, "f", f"{stage}(x)", "x", stage, after, before, **known | more
    )


THREE = (
    step("imread", None, ARRAY, 40),
    step("RandomCrop", ARRAY, CROPPED, 43, container="Compose", position=0),
    step("ToTensor", CROPPED, TENSOR, 43, container="Compose", position=1, seconds=0.0),
)


def way(steps: tuple[Step, ...] = THREE, sample: int = 3, **more: Any) -> Journey:
    return Journey(sample, steps, {"image": steps[-1].after}, **more)


def split(*journeys: Journey) -> Split:
    return Split(samples=8, of=8, journeys={str(j.sample): j for j in journeys})


def only(*journeys: Journey) -> Way:
    (one,) = ways(split(*journeys))
    return one


def page(*journeys: Journey, **options: Any) -> str:
    report = Report("shapes", "t", "pass", (), (), Observation(splits={"": split(*journeys)}))
    return render(report, **options)


def test_a_row_a_stage_with_line_shape_dtype_layout_range_and_milliseconds() -> None:
    one = only(way())
    assert one.title == "the way of sample 3, image"
    assert one.rows == (
        ("imread", "data.py:40", "88x101x3", "uint8", "HWC", "0 to 255", "0.42"),
        ("RandomCrop", "data.py:43", "64x64x3", "uint8", "HWC", "0 to 251", "0.42"),
        ("ToTensor", "data.py:43", "3x64x64", "float32", "CHW", "0 to 1", ""),
    )
    assert not one.parts


def test_what_the_first_stage_was_given_is_the_start() -> None:
    rows = only(way(THREE[1:])).rows
    assert rows[0] == ("start", "", "88x101x3", "uint8", "HWC", "0 to 255", "")
    assert [row[0] for row in rows[1:]] == ["RandomCrop", "ToTensor"]


def test_the_step_from_which_samples_differ_is_marked() -> None:
    short = State("ndarray", "uint8", (64, 48, 3), "HWC", 0, 251)
    other = way(
        (
            THREE[0],
            step("RandomCrop", ARRAY, short, 43, container="Compose", position=0),
            step("ToTensor", short, State("Tensor", "float32", (3, 64, 48)), 43,
                 container="Compose", position=1),
        ),
        sample=5,
    )  # fmt: skip
    one = only(way(), other)
    assert [row[0] for row in one.rows] == ["imread", "* RandomCrop", "ToTensor"]
    assert "* from here on samples differ in size" in page(way(), other)


def test_files_of_many_sizes_that_end_alike_bear_no_mark() -> None:
    small = State("ndarray", "uint8", (70, 90, 3), "HWC")
    other = way((step("imread", None, small, 40), *THREE[1:]), sample=5)
    assert not only(way(), other).parts


def test_sizes_that_differ_all_the_way_are_marked_where_they_are_last_set() -> None:
    small, kept = State("ndarray", "uint8", (70, 90, 3)), State("ndarray", "uint8", (64, 82, 3))
    other = way(
        (
            step("imread", None, small, 40),
            step("RandomCrop", small, kept, 43, container="Compose", position=0),
            step("ToTensor", kept, State("Tensor", "float32", (3, 64, 82)), 43,
                 container="Compose", position=1),
        ),
        sample=5,
    )  # fmt: skip
    assert [row[0] for row in only(way(), other).rows][1] == "* RandomCrop"


def forty() -> tuple[Step, ...]:
    jitter = [step(f"Jitter{n}", TENSOR, TENSOR, 50 + n) for n in range(36)]
    return (*THREE, *jitter, step("Normalize", TENSOR, FINAL, 99))


def test_a_long_way_keeps_its_ends_and_what_changed_more_than_values() -> None:
    rows = only(way(forty())).rows
    assert len(rows) <= MOST_ROWS + 2
    assert [row[0] for row in rows] == [
        "imread",
        "RandomCrop",
        "ToTensor",
        "... 36 more",
        "Normalize",
    ]


def test_a_long_way_of_changes_is_cut_in_the_middle() -> None:
    sizes = [State("ndarray", "uint8", (size, 8)) for size in range(60, 20, -1)]
    steps = tuple(step("cut", a, b, 50) for a, b in itertools.pairwise(sizes))
    rows = only(way(steps)).rows
    assert len(rows) == MOST_ROWS + 2
    assert "... 27 more" in [row[0] for row in rows]


@pytest.mark.parametrize("steps", [THREE, forty()], ids=["3 stages", "40 stages"])
@pytest.mark.parametrize("width", [24, 40, 60, 80, 120])
@pytest.mark.parametrize("ascii_only", [False, True])
def test_fits_the_page(steps: tuple[Step, ...], width: int, *, ascii_only: bool) -> None:
    text = page(way(steps), width=width, ascii_only=ascii_only)
    assert max(map(cell_len, text.splitlines())) <= width
    assert "RandomCrop" in text
    assert text.isascii() or not ascii_only


def test_at_80_columns_every_column_is_there() -> None:
    head = next(line for line in page(way(), width=80).splitlines() if line.startswith("stage"))
    assert head.split() == list(HEAD)


def test_a_narrower_table_names_the_file_once() -> None:
    wide, narrow, *_ = tables(only(way()))
    assert [row[1] for row in wide[2]] == ["data.py:40", "data.py:43", "data.py:43"]
    assert narrow[0] == "the way of sample 3, image (data.py)"
    assert [row[1] for row in narrow[2]] == [":40", ":43", ":43"]


def test_at_40_columns_stage_line_shape_and_layout_remain() -> None:
    lines = page(way(), width=40).splitlines()
    head = next(line for line in lines if line.startswith("stage"))
    assert head.split() == ["stage", "at", "shape", "layout"]


@pytest.mark.parametrize("width", [40, 52, 60, 66, 71, 80, 96])
def test_no_cell_is_cut_by_the_page(width: int) -> None:
    text = page(way(), width=width)
    assert "\N{HORIZONTAL ELLIPSIS}" not in text
    assert "3x64x64" in text


def test_a_page_too_narrow_for_a_table_gets_a_list() -> None:
    assert "RandomCrop data.py:43:" in page(way(), width=26)


def test_without_colour_there_is_no_escape() -> None:
    assert "\x1b" not in page(way())


def test_a_sample_that_could_not_be_made_ends_in_the_stage_that_raised() -> None:
    frame = Frame("/home/me/data.py", 43, "f", user=True)
    failure = Failure("sample", "ValueError", "too small", (frame,))
    failed = Journey(7, THREE[:1], failure=failure, failed_stage="RandomCrop", failed_state=ARRAY)
    one = only(failed)
    assert one.title == "the way of sample 7, which could not be made"
    assert one.rows[-1] == (
        "RandomCrop raised",
        "data.py:43",
        "88x101x3",
        "uint8",
        "HWC",
        "ValueError",
        "",
    )


def test_a_finished_sample_is_shown_before_a_failed_one() -> None:
    failed = Journey(0, THREE[:1], failure=Failure("sample", "ValueError"))
    assert only(failed, way()).title == "the way of sample 3, image"


def test_the_largest_fields_come_first_and_scalars_not_at_all() -> None:
    label, mask = State("Tensor", "int64", ()), State("Tensor", "int64", (64, 64))
    steps = (
        step("tensor", None, label, 45, fields=("label",)),
        step("from_numpy", None, mask, 46, fields=("mask",)),
        *THREE,
    )
    fields = {"label": label, "mask": mask, "image": TENSOR}
    titles = [one.title for one in ways(split(Journey(3, steps, fields)))]
    assert titles == ["the way of sample 3, image", "the way of sample 3, mask"]


def test_without_journeys_nothing_is_shown() -> None:
    assert ways(Split()) == []
    assert "the way of" not in page()


def test_hostile_names_reach_the_page_as_text() -> None:
    steps = (step("\x1b[31mred\u202e", None, ARRAY, 1),)
    assert "\\x1b[31mred\\u202e" in page(way(steps), width=100)
