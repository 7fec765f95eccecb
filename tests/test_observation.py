"""Observations go to JSON and back, and join in any order to the same."""

from __future__ import annotations

import functools
import itertools
import json
import random
from typing import Any

import pytest

from dlcheck import observation as o
from dlcheck.observation import (
    Failure,
    Field,
    Frame,
    Leaf,
    Observation,
    SampleLeaves,
    Split,
    Structure,
    Tally,
)

SEEDS = range(25)


class Made:
    """Random pieces of one run, as its processes would write them."""

    def __init__(self, seed: int, *, many: bool = False) -> None:
        self.random = random.Random(seed)
        self.many = 500 if many else 4

    def ids(self) -> tuple[Any, ...]:
        pool: list[Any] = [*range(20), "w0#1", "w1#2", "#3"]
        return tuple(
            sorted(self.random.sample(pool, self.random.randint(0, 3)), key=o.sample_order)
        )

    def tally(self) -> Tally:
        at = self.ids()
        return Tally(len(at) + self.random.randint(0, 5), at)

    def tallies(self, prefix: str) -> dict[str, Tally]:
        names = {f"{prefix}{self.random.randint(0, self.many)}" for _ in range(3)}
        return {name: self.tally() for name in names}

    def field(self) -> Field:
        low, high = sorted((self.random.randint(-5, 5), self.random.randint(-5, 5)))
        known = self.random.random() < 0.7
        return Field(
            self.tallies("t"), self.tallies("d"), self.tallies("s"),
            low if known else None, high if known else None, self.tally(), self.tally(),
        )  # fmt: skip

    def failure(self) -> Failure:
        kind = self.random.choice(["sample", "collate"])
        number = self.random.randint(0, self.many)
        batch = tuple(self.random.sample(range(30), 2)) if kind == "collate" else ()
        return Failure(
            kind, f"Error{number}", "broke", (Frame("a.py", number, "f", "x", user=True),),
            at=() if batch else (self.random.randint(0, 30),), batch=batch,
            samples=tuple(SampleLeaves(i, {"x": Leaf("Tensor", "f", (i,))}) for i in batch),
            worker=self.random.choice([None, 0, 1]), epoch=self.random.randint(0, 1),
        )  # fmt: skip

    def split(self) -> Split:
        rand = self.random.randint
        failures = [self.failure() for _ in range(rand(0, 3))]
        structures = {f"k{rand(0, self.many)}" for _ in range(2)}
        return Split(
            samples=rand(0, 9), again=rand(0, 9), batches=rand(0, 9), epochs=rand(0, 2),
            finished_epochs=rand(0, 2), spread=rand(0, 9), seconds=rand(0, 8) / 4,
            fields={f"f{rand(0, self.many)}": self.field() for _ in range(2)},
            batch_fields={f"f{rand(0, self.many)}": self.field() for _ in range(2)},
            batch_sizes=self.tallies("b"),
            structures={k: Structure({"": k}, self.tally()) for k in structures},
            failures={f.key: f for f in failures},
        )  # fmt: skip

    def observation(self) -> Observation:
        names = self.random.sample(["", "train", "val"], self.random.randint(0, 2))
        return Observation(splits={name: self.split() for name in names})


def joined(parts: Any) -> Any:
    return functools.reduce(lambda a, b: a.merge(b), parts, Observation()).to_json()


@pytest.mark.parametrize("seed", SEEDS)
def test_order_does_not_matter(seed: int) -> None:
    made = Made(seed)
    parts = [made.observation() for _ in range(4)]
    results = [joined(order) for order in itertools.permutations(parts)]
    assert all(result == results[0] for result in results)


@pytest.mark.parametrize("seed", SEEDS)
def test_grouping_does_not_matter(seed: int) -> None:
    made = Made(seed)
    a, b, c = (made.observation() for _ in range(3))
    assert a.merge(b).merge(c).to_json() == a.merge(b.merge(c)).to_json()


@pytest.mark.parametrize("seed", range(5))
def test_order_does_not_matter_past_the_caps(seed: int) -> None:
    made = Made(seed, many=True)
    parts = [made.observation() for _ in range(60)]
    first = joined(parts)
    for _ in range(3):
        made.random.shuffle(parts)
        assert joined(parts) == first
    half = len(parts) // 2
    a, b = (Observation.from_json(joined(some)) for some in (parts[:half], parts[half:]))
    assert a.merge(b).to_json() == first


@pytest.mark.parametrize("seed", SEEDS)
def test_json_gives_the_same_back(seed: int) -> None:
    whole = Made(seed).observation()
    text = json.dumps(whole.to_json())
    assert Observation.from_json(json.loads(text)) == whole


def test_defaults_are_left_out_of_json() -> None:
    assert Observation().to_json() == {}
    assert Observation(splits={"": Split(samples=3)}).to_json() == {"splits": {"": {"samples": 3}}}


def test_unknown_keys_are_refused() -> None:
    with pytest.raises(TypeError, match="Split has no colour"):
        Observation.from_json({"splits": {"": {"colour": 1}}})


def test_nothing_joins_to_the_same() -> None:
    whole = Made(3).observation()
    assert whole.merge(Observation()) == whole
    assert Observation().merge(whole) == whole


def test_counts_add_and_examples_are_the_smallest() -> None:
    both = Tally(5, (4, 7, "w0#1")).merge(Tally(2, (1, 9)))
    assert both == Tally(7, (1, 4, 7))


def test_indexes_come_before_names() -> None:
    assert sorted(["w0#1", 10, 9, "#2"], key=o.sample_order) == [9, 10, "#2", "w0#1"]


def test_caps_hold_and_no_count_is_lost() -> None:
    split = Split()
    for number in range(300):
        tallies = {f"{number}x3": Tally(2, (number,))}
        failure = Failure("sample", f"Error{'a' * number}", at=(number,))
        split = split.merge(
            Split(
                batch_sizes=tallies,
                fields={"image": Field(shapes=tallies, types={"Tensor": Tally(2)})},
                structures={str(number): Structure({}, Tally(1))},
                failures={failure.key: failure},
            )
        )
    assert len(split.batch_sizes) == o.MOST_SHAPES + 1
    assert sum(tally.n for tally in split.batch_sizes.values()) == 600
    assert split.fields["image"].n == 600
    assert len(split.structures) == o.MOST_STRUCTURES
    assert len(split.failures) == o.MOST_FAILURES


def test_fields_are_capped() -> None:
    fields = {f"f{n}": Field(types={"int": Tally(1)}) for n in range(o.MOST_FIELDS + 10)}
    assert len(Split().merge(Split(fields=fields)).fields) == o.MOST_FIELDS


class TestFailures:
    def test_numbers_in_the_message_make_no_new_failure(self) -> None:
        keys = {Failure("sample", "E", f"sample {n} is broken").key for n in (1, 20, 333)}
        assert len(keys) == 1

    def test_another_line_makes_a_new_one(self) -> None:
        keys = {Failure("sample", "E", frames=(Frame("a.py", n, "f"),)).key for n in (1, 2)}
        assert len(keys) == 2

    def test_details_are_those_of_the_earlier_epoch(self) -> None:
        early = Failure("collate", epoch=0, batch=(5,))
        late = Failure("collate", epoch=1, batch=(1,))
        assert early.merge(late) == late.merge(early)
        assert early.merge(late).batch == (5,)
        assert early.merge(late).count == 2

    def test_the_innermost_user_line_is_named(self) -> None:
        frames = (Frame("mine.py", 3, "f", user=True), Frame("lib.py", 9, "g"))
        assert Failure("sample", frames=frames).place() == "mine.py:3"


def test_shapes_read_as_written() -> None:
    for shape in ((), (3,), (3, 224, 224), (0, 4)):
        assert o.shape_of(o.shape_text(shape)) == shape
    assert o.shape_of("...") is None
