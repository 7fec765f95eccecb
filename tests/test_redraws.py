"""The probe is asked first for what is odd: each such sample alone, the later of two equal ones."""

from __future__ import annotations

from typing import Any

from dlcheck.observation import Contents, Field, Loader, Observation, Split, Tally
from dlcheck.redraws import illustrated, requests_for

MAP = Loader(kind="map", dataset_length=90)
STREAM = Loader(kind="iterable", num_workers=2)
BAD = {"0": Field(nonfinite=Tally(2, (52, 53)), constant=Tally(1, (7,)))}


def asked(**more: Any) -> list[dict[str, Any]]:
    split = Split(**{"loader": MAP, "samples": 90} | more)
    requests = requests_for(Observation(splits={"": split}))
    return [request for request in requests if request.get("kind") == "odd"]


def test_samples_with_odd_values_are_drawn() -> None:
    (request,) = asked(fields=BAD)
    assert request["chosen"] == [52, 53, 7]


def test_of_equal_samples_the_later_comes_first() -> None:
    contents = Contents.of({"a": (5, 35, 65), "b": (6, 36), "c": (7,)})
    (request,) = asked(contents={"0": contents})
    assert request["chosen"] == [65, 36, 5, 6]


def test_of_a_stream_one_sample_is_drawn_as_its_worker_had_it() -> None:
    fields = {"0": Field(nonfinite=Tally(2, ("w1#3", "w1#9")))}
    (request,) = asked(loader=STREAM, fields=fields)
    assert (request["chosen"], request["worker"], request["workers"]) == (["w1#3"], 1, 2)


def test_healthy_samples_ask_for_nothing_more() -> None:
    assert asked(contents={"0": Contents.of({"a": (5,), "b": (6,)})}, fields={"0": Field()}) == []


def test_a_report_with_pictures_asks_for_those_of_all_that_is_traced_and_of_a_batch() -> None:
    seen = Observation(splits={"": Split(loader=MAP, samples=90, batches=9)})
    plain = requests_for(seen, images="sheets")
    asked_for = illustrated(plain, seen)
    assert [one["shown"] for one in asked_for if one.get("chosen")] == [plain[0]["chosen"]]
    assert [one.get("kind") for one in asked_for[-2:]] == ["thumbnails", "more"]
    assert illustrated([], seen) == []
