# ruff: noqa: RET503, RET504 - the traced code is written as users write theirs
from __future__ import annotations

import dataclasses
import functools
import gc
import inspect
import sys
import threading
import time
import weakref
from collections import namedtuple
from typing import Any

import pytest

from dlcheck.observation import State
from dlcheck.observers import events
from dlcheck.observers.journey import Traced, Tracer
from dlcheck.run.stages import Stages


def describe(value: Any) -> State | None:
    if not isinstance(value, Array):
        return None
    return State("Array", value.dtype, value.shape, low=value.low, high=value.high)


LIBRARY: dict[str, Any] = {"__name__": "arrays"}
# A file that is no user's: what it does shows on the line that calls it.
exec(
    compile(
        """
class Array:
    shape = ()
    def __init__(self, *shape, dtype="uint8", low=0, high=255):
        self.shape, self.dtype, self.low, self.high = shape, dtype, low, high
    def transpose(self, *axes):
        return turned(self, *axes)
    def __truediv__(self, by):
        return scaled(self, 1 / by)
    def __itruediv__(self, by):
        scale_in_place(self, 1 / by)
        return self
def turned(a, *axes):
    return Array(*(a.shape[i] for i in axes), dtype=a.dtype, low=a.low, high=a.high)
def scaled(a, by):
    return Array(*a.shape, dtype="float32", low=a.low * by, high=a.high * by)
def scale_in_place(a, by):
    a.dtype, a.low, a.high = "float32", a.low * by, a.high * by
def flipped(a):
    return Array(*a.shape, dtype=a.dtype, low=a.low, high=a.high)
def sized(a, h, w):
    return Array(h, w, *a.shape[2:], dtype=a.dtype, low=a.low, high=a.high)
class Resize:
    def __init__(self, size):
        self.size = size
        self._secret = 1
    def __call__(self, a):
        return sized(a, *self.size)
class Subset:
    def __init__(self, inner, indices):
        self.inner, self.indices = inner, indices
    def __getitem__(self, index):
        return self.inner[self.indices[index]]
""",
        "/library/arrays.py",
        "exec",
    ),
    LIBRARY,
)
Array: Any = LIBRARY["Array"]
turned, scaled, flipped, sized = (LIBRARY[n] for n in ("turned", "scaled", "flipped", "sized"))
scale_in_place, Resize, Subset = (LIBRARY[n] for n in ("scale_in_place", "Resize", "Subset"))


WAYS = ["settrace", "monitoring"] if sys.version_info >= (3, 12) else ["settrace"]


@pytest.fixture(params=WAYS, autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each test runs both ways: what they tell must be the same."""
    if request.param == "settrace":
        monkeypatch.setattr(events, "TOOL_IDS", ())
    return str(request.param)


def trace(function: Any, *args: Any, **settings: Any) -> Traced:
    return Tracer(describe, lambda file: file == __file__, **settings).run(function, *args)


def table(traced: Traced) -> list[tuple[str, str, Any, Any]]:
    return [
        (s.variable, s.stage, s.before.shape if s.before else None, s.after.shape)
        for s in traced.steps
    ]


def line_of(function: Any, text: str) -> int:
    lines, first = inspect.getsourcelines(function)
    return next(first + i for i, line in enumerate(lines) if text in line)


class Cats:
    def __init__(self, transform: Any = None) -> None:
        self.transform = transform

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        img = Array(30, 40, 3)
        img = sized(img, 20, 20)
        if self.transform:
            img = self.transform(img)
        return img, index


def test_each_change_of_an_array_is_a_step_on_its_line() -> None:
    def sample() -> Any:
        img = Array(30, 40, 3)
        img = img.transpose(2, 0, 1)
        img /= 255
        label = 3
        return img, label

    traced = trace(sample)
    assert table(traced) == [
        ("img", "Array", None, (30, 40, 3)),
        ("img", "img.transpose", (30, 40, 3), (3, 30, 40)),
        ("img", "/=", (3, 30, 40), (3, 30, 40)),
    ]
    turn = traced.steps[1]
    assert (turn.file, turn.line) == (__file__, line_of(sample, "transpose"))
    assert (turn.text, turn.function) == ("img = img.transpose(2, 0, 1)", "sample")
    assert turn.parameters == "2, 0, 1"
    assert [s.sources for s in traced.steps] == [(), (0,), (1,)]
    assert traced.steps[2].before.high == 255
    assert traced.steps[2].after.high == 1
    assert traced.fields == {"0": State("Array", "float32", (3, 30, 40), low=0, high=1)}
    assert {s.fields for s in traced.steps} == {("0",)}
    assert traced.returned == (__file__, line_of(sample, "return img"))
    assert (traced.error, traced.note) == (None, "")


def test_what_keeps_its_state_is_no_step_but_stays_on_the_way() -> None:
    def sample() -> Any:
        img = Array(4, 4)
        img = flipped(img)
        other = img
        return {"image": sized(other, 2, 2)}

    traced = trace(sample)
    assert [s.variable for s in traced.steps] == ["img", "return"]
    assert traced.steps[1].sources == (0,)
    assert [s.fields for s in traced.steps] == [("image",), ("image",)]


def test_a_called_function_of_the_user_is_followed_inside() -> None:
    def to_chw(x: Any) -> Any:
        return turned(x, 2, 0, 1)

    def sample() -> Any:
        img = Array(5, 6, 3)
        return to_chw(img) / 255, 1

    traced = trace(sample)
    assert [(s.function, s.stage, s.variable) for s in traced.steps] == [
        ("sample", "Array", "img"),
        ("to_chw", "turned", "return"),
        ("sample", "to_chw", "return"),
    ]
    assert traced.steps[2].before.shape == (3, 5, 6)
    assert traced.steps[2].sources == (1,)


def test_an_array_made_on_the_way_into_a_call_is_a_step_of_the_calling_line() -> None:
    def post(x: Any) -> Any:
        return scaled(x, 0.5)

    def sample() -> Any:
        img = Array(5, 6, 3)
        out = post(turned(img, 2, 0, 1))
        return out

    traced = trace(sample)
    assert table(traced) == [
        ("img", "Array", None, (5, 6, 3)),
        ("x", "turned", (5, 6, 3), (3, 5, 6)),
        ("return", "scaled", (3, 5, 6), (3, 5, 6)),
    ]
    assert traced.steps[1].line == line_of(sample, "post(turned")


def test_asking_for_a_shape_reads_no_array() -> None:
    def sample() -> Any:
        img = Array(8, 9, 3)
        mask = Array(*img.shape[:2])
        other = Array(len(img.shape))
        return img, mask, other

    traced = trace(sample)
    assert [s.before for s in traced.steps] == [None] * 3
    assert [s.fields for s in traced.steps] == [("0",), ("1",), ("2",)]


def test_a_batch_is_made_of_all_its_samples() -> None:
    exec(  # a library's stack
        compile(
            "def stack(all): return Array(len(all), *all[0].shape)", "/library/stack.py", "exec"
        ),
        LIBRARY,
    )

    def collate(batch: Any) -> Any:
        return LIBRARY["stack"]([sample[0]["image"] for sample in batch]), [s[1] for s in batch]

    def load() -> Any:
        dataset = [({"image": Array(n, n, 3), "mask": Array(7, 7)}, n) for n in (4, 4)]
        batch = list(dataset)
        return collate(batch)

    traced = trace(load)
    image = traced.steps[-1]
    assert image.after.shape == (2, 4, 4, 3)
    assert image.before.shape == (4, 4, 3)
    assert [s.variable for s in traced.steps if s.fields] == [
        "dataset.0.0.image",
        "dataset.1.0.image",
        "return",
    ]


def test_parts_of_a_returned_tuple_are_told_apart() -> None:
    def to_chw(x: Any) -> Any:
        return turned(x, 2, 0, 1)

    def sample() -> Any:
        img, crops = Array(8, 9, 3), [Array(2, 2), Array(2, 2)]
        return to_chw(img), sized(crops[0], 1, 1)

    traced = trace(sample)
    image, crop = traced.steps[-2:]
    assert (image.fields, image.before.shape) == (("0",), (8, 9, 3))
    assert (crop.fields, crop.before.shape) == (("1",), (2, 2))


def test_fields_are_followed_apart() -> None:
    def sample() -> Any:
        data = {"image": Array(8, 8, 3), "mask": Array(8, 8)}
        data["image"] = sized(data["image"], 4, 4)
        lost = sized(data["mask"], 1, 1)  # noqa: F841
        return data

    traced = trace(sample)
    assert [(s.variable, s.fields, s.sources) for s in traced.steps] == [
        ("data.image", ("image",), ()),
        ("data.mask", ("mask",), ()),
        ("data.image", ("image",), (0,)),
        ("lost", (), (1,)),
    ]


def test_a_dict_changed_by_a_library_pairs_each_field_with_itself() -> None:
    def sample() -> Any:
        image, mask = Array(8, 8, 3), Array(8, 8)
        data = LIBRARY["both"](image=image, mask=mask)
        return data

    exec(
        compile(
            "def both(**k): return {n: sized(a, 2, 2) for n, a in k.items()}",
            "/library/x.py",
            "exec",
        ),
        LIBRARY,
    )
    traced = trace(sample)
    image, mask = traced.steps[2:]
    assert (image.variable, image.before.shape, image.fields) == (
        "data.image",
        (8, 8, 3),
        ("image",),
    )
    assert (mask.variable, mask.before.shape, mask.fields) == ("data.mask", (8, 8), ("mask",))


def test_stages_of_a_container_are_named_with_their_place() -> None:
    def halve(x: Any) -> Any:
        return x / 2

    stages = Stages(
        [
            Resize((10, 12)),
            lambda x: turned(x, 2, 0, 1),
            functools.partial(scaled, by=0.5),
            halve,
        ]
    )
    dataset = Cats(stages)
    traced = trace(dataset.__getitem__, 1)
    steps = traced.steps[2:]
    assert [(s.stage, s.container, s.position) for s in steps] == [
        ("Resize", "Stages", 0),
        ("turned", "Stages", 1),
        ("scaled", "Stages", 2),
        ("halve", "Stages", 3),
    ]
    resize, turn, part, half = steps
    assert resize.line == line_of(Cats, "self.transform(img)")
    assert resize.text == "img = self.transform(img)"
    assert resize.parameters == "size=(10, 12)"
    assert resize.before.shape == (20, 20, 3)
    assert turn.text == "lambda x: turned(x, 2, 0, 1),"
    assert part.parameters == "by=0.5"
    assert half.function == "halve"
    assert all(s.fields == ("0",) for s in traced.steps)


def test_an_object_that_is_called_is_named_by_its_class() -> None:
    traced = trace(Cats(Resize((9, 9))).__getitem__, 0)
    step = traced.steps[-1]
    assert (step.stage, step.parameters, step.container) == ("Resize", "size=(9, 9)", "")


def test_a_container_of_the_users_own_names_its_stages() -> None:
    class Chain:
        def __init__(self, *steps: Any) -> None:
            self.steps = steps

        def __call__(self, img: Any) -> Any:
            for step in self.steps:
                img = step(img)
            return img

    traced = trace(Cats(Chain(Resize((7, 7)), Resize((6, 6)))).__getitem__, 0)
    assert [s.stage for s in traced.steps] == ["Array", "sized", "Resize", "Resize"]


def test_the_users_frames_below_a_library_are_found() -> None:
    dataset = Subset(Subset(Cats(), [3, 2]), [1])
    traced = trace(dataset.__getitem__, 0)
    assert [s.stage for s in traced.steps] == ["Array", "sized"]
    assert traced.returned == (__file__, line_of(Cats, "return img, index"))
    assert traced.value[1] == 2


@pytest.mark.parametrize("value", [None, 7, "text", (), {"a": None}])
def test_the_returning_line_is_known_for_any_value(value: Any) -> None:
    class Odd:
        def __getitem__(self, index: int) -> Any:
            self.log(index)
            if index == 1:
                return value
            return Array(1)

        def log(self, index: int) -> None:
            return None

    traced = trace(Subset(Odd(), [1]).__getitem__, 0)
    assert traced.value == value
    assert traced.returned == (__file__, line_of(Odd, "return value"))


def test_a_missing_return_is_located_too() -> None:
    def sample(index: int) -> Any:
        if index > 2:
            return Array(1)

    assert trace(sample, 1).returned == (__file__, line_of(sample, "if index > 2"))


def test_generators_are_followed_through_their_pipeline() -> None:
    def read() -> Any:
        for size in (8, 16):
            img = Array(size, size, 3)
            yield img

    def shrink(stream: Any) -> Any:
        for img in stream:
            small = sized(img, 4, 4)
            yield {"image": small, "name": "x"}

    iterator = iter(shrink(read()))
    for size in (8, 16):
        traced = trace(next, iterator)
        assert table(traced)[-2:] == [
            ("img", "Array", None, (size, size, 3)),
            ("small", "sized", (size, size, 3), (4, 4, 3)),
        ]
        assert len(traced.steps) == 2
        assert traced.returned == (__file__, line_of(shrink, "yield {"))
        assert traced.steps[0].fields == ("image",)
    ended = trace(next, iterator)
    assert isinstance(ended.error, StopIteration)


def test_a_generator_expression_and_yield_from_are_followed() -> None:
    def read() -> Any:
        yield Array(8, 8)

    def outer() -> Any:
        yield from (sized(a, 2, 2) for a in read())

    traced = trace(next, outer())
    assert [(s.stage, s.after.shape) for s in traced.steps] == [
        ("Array", (8, 8)),
        ("sized", (2, 2)),
    ]
    assert traced.steps[0].fields == ("",)
    assert traced.returned == (__file__, line_of(outer, "yield from"))


def test_comprehensions_belong_to_their_line() -> None:
    def sample() -> Any:
        crops = [
            sized(img, 2, 2)
            for img in (Array(8, 8), Array(9, 9))
        ]  # fmt: skip
        return crops

    traced = trace(sample)
    assert [(s.variable, s.function) for s in traced.steps] == [
        ("crops.0", "sample"),
        ("crops.1", "sample"),
    ]
    assert traced.steps[0].line == line_of(sample, "crops = [")


def test_a_statement_of_several_lines_is_one_step_and_a_literal_names_its_line() -> None:
    def sample() -> Any:
        img = Array(8, 8, 3)
        img = turned(
            sized(
                img, 4, 4,
            ),
            2, 0, 1,
        )  # fmt: skip
        return {
            "label": 1,
            "image": scaled(img, 0.5),
        }

    traced = trace(sample)
    assert table(traced)[1:] == [
        ("img", "turned", (8, 8, 3), (3, 4, 4)),
        ("return", "scaled", (3, 4, 4), (3, 4, 4)),
    ]
    assert traced.steps[1].line == line_of(sample, "img = turned(")
    assert traced.steps[2].line == line_of(sample, '"image": scaled')
    assert traced.returned == (__file__, line_of(sample, "return {"))


def test_a_change_in_place_by_a_callee_is_one_step() -> None:
    def halve(x: Any) -> None:
        scale_in_place(x, 0.5)

    def sample() -> Any:
        img = Array(2, 2)
        halve(img)
        return img

    traced = trace(sample)
    assert [(s.function, s.stage) for s in traced.steps] == [
        ("sample", "Array"),
        ("halve", "scale_in_place"),
    ]
    assert traced.steps[1].before.high == 255
    assert traced.steps[1].fields == ("",)


def test_names_of_a_tuple_sample_name_the_fields() -> None:
    Pair = namedtuple("Pair", "left right")  # noqa: PYI024

    @dataclasses.dataclass
    class Boxes:
        xyxy: Any

    def sample() -> Any:
        return Array(1), Pair(Array(2), [Array(3)]), Boxes(Array(4))

    traced = trace(sample, names=("image", "pair", "boxes"))
    assert list(traced.fields) == ["image", "pair.left", "pair.right.0", "boxes.xyxy"]


def failing() -> Any:
    img = Array(3, 4)
    out = sized(img)
    return out


def test_an_exception_is_data_and_names_the_call_and_what_it_was_given() -> None:
    traced = trace(failing)
    assert isinstance(traced.error, TypeError)
    assert traced.error.__traceback__ is not None
    assert traced.failed_stage == "sized"
    assert traced.failed_state == State("Array", "uint8", (3, 4), low=0, high=255)
    assert [s.stage for s in traced.steps] == ["Array"]


def test_a_failing_stage_of_a_container_is_named() -> None:
    def check(x: Any) -> Any:
        if x.shape[-1] != 1:
            raise ValueError("one channel, please")
        return x

    nested = Stages([Resize((5, 5)), Stages([Resize((4, 4)), check, Resize((1, 1))])])
    traced = trace(Cats(nested).__getitem__, 0)
    assert traced.failed_stage == "check"
    assert traced.failed_state is not None
    assert traced.failed_state.shape == (4, 4, 3)
    traced = trace(Cats(Stages([Resize((5, 5)), Resize(5)])).__getitem__, 0)
    assert (traced.failed_stage, traced.failed_parameters) == ("Resize", "size=5")


def test_a_raise_is_named_by_its_function() -> None:
    def refuse(img: Any) -> Any:
        if img.shape:
            raise ValueError(f"bad {img}")

    traced = trace(refuse, Array(1, 2))
    assert traced.failed_stage == "refuse"
    assert traced.failed_state.shape == (1, 2)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_no_exception_leaves_the_tracer(error: type[BaseException]) -> None:
    def sample() -> Any:
        raise error

    assert isinstance(trace(sample).error, error)


def test_a_caught_exception_changes_nothing() -> None:
    def load(index: int) -> Any:
        if index < 2:
            raise OSError(index)
        return Array(index, index)

    lock = threading.Lock()

    def sample() -> Any:
        for index in range(5):
            try:
                img = load(index)
                break
            except OSError:
                continue
            finally:
                done = index
        match done:
            case 2:
                img = sized(img, 1, 1)
        with lock:
            img = scaled(img, 2)
        del done
        return img

    traced = trace(sample)
    assert traced.error is None
    assert [s.stage for s in traced.steps] == ["Array", "sized", "scaled"]
    assert all(s.fields == ("",) for s in traced.steps)


@pytest.mark.parametrize("call", [failing, Cats().__len__])
def test_a_tracer_that_was_there_goes_on(call: Any) -> None:
    seen: list[str] = []

    def tracer(frame: Any, event: str, arg: Any) -> Any:
        seen.append(frame.f_code.co_name)
        return tracer

    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        trace(call)
        there = sys.gettrace()
        describe(None)
    finally:
        sys.settrace(before)
    assert there is tracer
    assert seen[-1] == "describe"


def test_a_suspended_generator_is_not_traced_afterwards(way: str) -> None:
    calls: list[Any] = []

    def spy(value: Any) -> State | None:
        calls.append(value)
        return describe(value)

    def stream() -> Any:
        yield Array(1)
        img = Array(2)
        yield img

    iterator = stream()
    Tracer(spy, lambda file: file == __file__).run(next, iterator)
    assert iterator.gi_frame.f_trace is None
    calls.clear()
    seen: list[str] = []

    def tracer(frame: Any, event: str, arg: Any) -> Any:
        seen.append(f"{frame.f_code.co_name} {event}")
        return tracer

    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        next(iterator)
    finally:
        sys.settrace(before)
    assert calls == []
    assert "stream line" in seen


def test_monitoring_leaves_no_tool_behind(way: str) -> None:
    if way != "monitoring":
        pytest.skip("about sys.monitoring")
    monitoring: Any = sys.monitoring  # type: ignore[attr-defined]
    names = [monitoring.get_tool(i) for i in range(6)]
    trace(failing)
    assert [monitoring.get_tool(i) for i in range(6)] == names
    assert monitoring.get_local_events is not None
    taken = [i for i in events.TOOL_IDS if monitoring.get_tool(i) is None]
    for i in taken:
        monitoring.use_tool_id(i, "someone")
    try:
        assert len(trace(Cats().__getitem__, 0).steps) == 2
    finally:
        for i in taken:
            monitoring.free_tool_id(i)


def test_other_threads_are_not_traced() -> None:
    def sample() -> Any:
        kept: list[Any] = []
        other = threading.Thread(target=lambda: kept.append(inner()))
        other.start()
        other.join()
        return sized(Array(2, 2), 1, 1)

    def inner() -> Any:
        secret = Array(9, 9)
        return turned(secret, 1, 0)

    traced = trace(sample)
    assert "secret" not in [s.variable for s in traced.steps]
    assert traced.steps[-1].after.shape == (1, 1)


def test_code_that_sets_a_tracer_or_profiler_of_its_own_runs_as_ever(way: str) -> None:
    def sample() -> Any:
        img = Array(4, 4)
        old = sys.gettrace()
        sys.settrace(None)
        sys.setprofile(lambda *_: None)
        sys.setprofile(None)
        sys.settrace(old)
        return img

    before = sys.gettrace()
    traced = trace(sample)
    assert traced.value.shape == (4, 4)
    assert sys.gettrace() is before

    def rude() -> Any:
        sys.settrace(None)
        return Array(4, 4)

    traced = trace(rude)
    assert ("another tracer" in traced.note) == (way == "settrace")
    sys.settrace(before)

    def ruder() -> Any:
        sys.settrace(mine)
        return Array(4, 4)

    def mine(*_: Any) -> None: ...

    trace(ruder)
    left = sys.gettrace()
    sys.settrace(before)
    assert left is mine


def test_deep_recursion_ends_where_it_would() -> None:
    def deep(n: int) -> Any:
        return Array(n) if n == 0 else deep(n - 1)

    assert trace(deep, 300).value.shape == (0,)

    def endless(n: int) -> Any:
        return endless(n + 1)

    def sample() -> Any:
        try:
            endless(0)
        except RecursionError:
            return Array(1)

    traced = trace(sample)
    assert traced.error is None
    assert traced.value.shape == (1,)


def test_a_long_loop_is_cut_short_and_said_so() -> None:
    def sample() -> Any:
        img = Array(4, 4)
        total = 0
        for i in range(100_000):
            total += i
        img = sized(img, 2, 2)
        return img

    begun = time.process_time()
    traced = trace(sample)
    assert time.process_time() - begun < 2
    assert traced.value.shape == (2, 2)
    assert "too many lines" in traced.note
    assert traced.steps[-1].after.shape == (2, 2)
    assert traced.steps[-1].fields == ("",)


def test_a_long_loop_over_an_array_describes_it_a_bounded_number_of_times() -> None:
    calls = 0

    def spy(value: Any) -> State | None:
        nonlocal calls
        calls += 1
        return describe(value)

    def sample() -> Any:
        img = Array(4, 4)
        for _ in range(50_000):
            img.low -= 0
        return img

    Tracer(spy, lambda file: file == __file__).run(sample)
    assert calls < 2_000


def test_steps_are_capped_with_a_note() -> None:
    def sample() -> Any:
        for size in range(1, 100):
            img = Array(size)
        return img

    traced = trace(sample, most_steps=10)
    assert len(traced.steps) == 10
    assert "more than 10 steps" in traced.note


def test_of_a_shuffle_buffer_the_steps_of_the_drawn_sample_are_kept() -> None:
    def stream() -> Any:
        buffer = []
        for size in range(1, 30):
            img = Array(size, size)
            img = sized(img, 2, 2)
            buffer.append(img)
        yield buffer[3]

    traced = trace(next, stream(), most_steps=20)
    assert len(traced.steps) == 20
    drawn = [s for s in traced.steps if s.fields]
    assert [s.after.shape for s in drawn] == [(4, 4), (2, 2)]
    assert traced.steps[drawn[1].sources[0]] is drawn[0]
    assert "more than 20 steps" in traced.note


def test_many_calls_of_a_function_stay_quick() -> None:
    def look(img: Any) -> Any:
        return img

    def sample() -> Any:
        img = Array(4, 4)
        for _ in range(20_000):
            look(img)
        return img

    begun = time.process_time()
    traced = trace(sample)
    assert traced.value.shape == (4, 4)
    assert "look was called too often" in traced.note
    assert time.process_time() - begun < 3


def test_a_describer_that_fails_does_not_reach_the_user() -> None:
    def broken(value: Any) -> State | None:
        raise RuntimeError("no")

    traced = Tracer(broken, lambda file: file == __file__).run(Cats().__getitem__, 0)
    assert traced.error is None
    assert traced.steps == ()


def test_time_is_the_users_not_the_describers() -> None:
    def slow(value: Any) -> State | None:
        if isinstance(value, Array):
            time.sleep(0.2)
        return describe(value)

    def sample() -> Any:
        img = Array(4, 4)
        time.sleep(0.05)
        img = sized(img, 2, 2)
        return img

    traced = Tracer(slow, lambda file: file == __file__).run(sample)
    assert all(s.seconds < 0.1 for s in traced.steps)
    assert 0.05 <= traced.seconds < 0.2


def test_arrays_die_when_they_would() -> None:
    gone: list[int] = []

    class Noted(Array):
        def __del__(self) -> None:
            gone.append(len(gone))

    def sample() -> Any:
        for _ in range(5):
            img = Noted(2, 2)
        return len(gone), img

    expected = trace(lambda: None).value, sample()[0]
    gone.clear()
    traced = trace(sample)
    assert traced.value[0] == expected[1]


@pytest.mark.parametrize("fails", [False, True])
def test_nothing_is_kept_alive_after_the_trace(*, fails: bool) -> None:
    kept: list[Any] = []

    def sample() -> Any:
        img = Array(4, 4)
        kept.append(weakref.ref(img))
        if fails:
            raise ValueError
        return img

    def stream() -> Any:
        while True:
            yield sample()

    iterator = stream()
    gc.disable()
    try:
        for _ in range(2):
            traced = trace(sample)
            del traced
            if not fails:
                traced = trace(next, iterator)
                del traced
        assert [reference() for reference in kept] == [None] * len(kept)
    finally:
        gc.enable()


def test_locals_attributes_and_arguments_stay_untouched() -> None:
    def sample(*args: Any, **named: Any) -> Any:
        x = args[0]
        cell = x

        def inner() -> Any:
            nonlocal cell
            cell = sized(cell, 3, 3)
            return cell

        inner()
        return cell, sorted(locals()), args, named

    bare = sample(Array(5, 5))
    traced = trace(sample, Array(5, 5))
    assert traced.value[0].shape == (3, 3)
    assert traced.value[1] == bare[1]
    assert [s.function for s in traced.steps] == ["inner"]


def test_tuple_that_was_read_from_an_attribute_closes_no_other_tuple() -> None:
    """`self.items[i]` gives a tuple, which is no array; those met later may hold some."""

    class Pairs:
        def __init__(self) -> None:
            self.items = [(Array(5, 5), 1)]

        def sample(self) -> Any:
            x, label = self.items[0]
            both = (x, label)
            return sized(both[0], 3, 3), label

    traced = trace(Pairs().sample)
    assert table(traced)[-1][2:] == ((5, 5), (3, 3))


def test_code_without_source_is_followed_by_its_bytecode() -> None:
    space: dict[str, Any] = {"Array": Array, "turned": turned}
    lines = ["a = Array(1, 2)", "b = Array(9, 9, 9)", "c = turned(a, 1, 0)", "return c"]
    code = "\n    ".join(["def sample():", *lines])
    exec(compile(code, "/nowhere/to/be/found.py", "exec"), space)
    traced = Tracer(describe, lambda file: "nowhere" in file).run(space["sample"])
    assert table(traced)[-1] == ("c", "sample", (1, 2), (2, 1))
    assert [s.fields for s in traced.steps] == [("",), (), ("",)]


class Prepared:
    """Keeps what it made at first, as attributes."""

    def __init__(self) -> None:
        rows = [Array(2, 3), Array(2, 3)]
        self.rows = [scaled(row, 1 / 255) for row in rows]
        self.all = scaled(Array(8, 3), 1 / 255)

    def draw(self, index: int) -> Any:
        return flipped(self.rows[index]), flipped(self.all)


def test_what_a_constructor_stored_is_on_the_way_of_what_is_read_later() -> None:
    traced = trace(lambda: Prepared().draw(1))
    for field, text in (("0", "self.rows = [scaled"), ("1", "self.all = scaled")):
        steps = [step for step in traced.steps if field in step.fields]
        assert any(step.text.startswith(text) for step in steps), field
        assert all(step.function in ("__init__", "draw") for step in steps)
