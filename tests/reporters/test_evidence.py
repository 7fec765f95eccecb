from __future__ import annotations

from dlcheck.findings import Where
from dlcheck.reporters import evidence


def test_place_leaves_out_the_source_line_and_the_only_split():
    where = Where(split="", field="image", sample=0, file="a.py", line=3, worker=0)
    assert evidence.place(where) == "field image, sample 0, worker 0"


def test_the_whole_sample_is_called_so():
    assert evidence.place(Where(field="")) == "field (whole)"


def test_values_are_flat_and_short():
    assert evidence.short({"3x4": {"n": 2, "at": [1, 2]}}) == "3x4: {n: 2, at: [1, 2]}"
    assert evidence.short(list(range(9))) == "0, 1, 2, 3, 4, 5, and 3 more"
    assert evidence.short("x" * 1000) == "x" * 157 + "..."
    assert evidence.short({"3x4": {"count": 2, "samples": [0, 9]}}) == "3x4 (2)"
    assert evidence.short([{"shape": [3, 4], "count": 2, "samples": [0]}]) == "3x4 (2)"
    assert evidence.short([{"count": 2}]) == " (2)"
    assert evidence.short(0.1 + 0.2) == "0.3"


def test_both_ends_of_a_long_text_are_kept():
    numbers = [str(n) for n in range(20)]
    assert evidence.ends(numbers) == [*numbers[:6], "...", *numbers[-6:]]
    assert evidence.ends(["a", "", "b"]) == ["a", "b"]


def test_nothing_is_not_worth_a_line_but_zero_is():
    assert [v for v in (None, "", [], (), {}, 0, False) if evidence.worth_saying(v)] == [0, False]
