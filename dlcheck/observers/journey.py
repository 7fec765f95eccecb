"""Follow one sample on its way, line by line, through the user's code and known containers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import FrameType, TracebackType
from typing import Any

from dlcheck.observation import State, Step
from dlcheck.observers import containers, statements
from dlcheck.observers.events import watch
from dlcheck.observers.lineage import Describe, Read, choose, fewer, leaves, with_fields
from dlcheck.observers.recorder import Recorder, function_name, name_call, plain_locals

MOST_STEPS = 2_000
# A shuffle buffer is filled with other samples first: what they did is recorded, not kept.
SPARE = 4
MOST_CAUSES = 10


@dataclass
class Traced:
    """What a call did: its value or its exception, and the steps of every array on the way.

    `returned` is the [file, line] of the `return` or `yield` of the outermost frame of the user's
    that made the value. `fields` are the finished arrays. `note` says what was left out.
    """

    value: Any = None
    error: BaseException | None = None
    steps: tuple[Step, ...] = ()
    fields: dict[str, State] = field(default_factory=dict)
    returned: tuple[str | int, ...] = ()
    failed_stage: str = ""
    failed_parameters: str = ""
    failed_state: State | None = None
    seconds: float = 0.0
    note: str = ""


class Tracer:
    """Runs functions and follows the arrays inside them.

    `describe` gives the State of an array and None for all else; `is_user` tells the user's files;
    `names` are the user's names for the items of a tuple sample.
    """

    def __init__(
        self,
        describe: Describe,
        is_user: Callable[[str], bool],
        *,
        names: Sequence[str] = (),
        most_steps: int = MOST_STEPS,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._describe = describe
        self._is_user = is_user
        self._names = tuple(names)
        self._most_steps = most_steps
        self._clock = clock

    def run(self, function: Callable[..., Any], *args: Any) -> Traced:
        """Call a function under the tracer; its exception comes back as data."""
        recorder = Recorder(self._describe, self._is_user, SPARE * self._most_steps, self._clock)
        recorder.watch = watching = watch(recorder)
        traced = Traced()
        begun = self._clock()
        watching.start()
        try:
            traced.value = function(*args)
        except BaseException as error:  # noqa: BLE001 - the user's exception is data
            traced.error = error.with_traceback(getattr(error.__traceback__, "tb_next", None))
        finally:
            lost = watching.stop()
            recorder.watch = None
        traced.seconds = max(self._clock() - begun - recorder.spent, 0.0)
        if traced.error is None:
            self._finish(traced, recorder)
        else:
            traced.steps = tuple(recorder.steps)
            self._fail(traced, recorder, traced.error)
        notes = [*recorder.notes, *([lost] if lost else [])]
        if len(traced.steps) > self._most_steps:
            notes.append(f"more than {self._most_steps} steps: those of other samples are left out")
            traced.steps = fewer(traced.steps, self._most_steps)
        traced.note = "; ".join(notes)
        try:
            return traced
        finally:
            # The frames of a traceback lead back to this one: its variables would live on.
            del traced, recorder, watching

    def _finish(self, traced: Traced, recorder: Recorder) -> None:
        made: dict[str, tuple[int, ...]] = {}
        for path, value in leaves(traced.value, self._names):
            known = recorder.arrays.known(value)
            state = recorder.arrays.state(value)
            if state is not None:
                traced.fields[path] = state
                made[path] = known.steps if known else _alike(state, recorder.steps)
        traced.steps = with_fields(recorder.steps, made)
        traced.returned = _returned(traced.value, recorder)

    def _fail(self, traced: Traced, recorder: Recorder, error: BaseException) -> None:
        at = _failed_in_container(error) or self._failed_in_user_code(error)
        if at is None:
            return
        frame, line, name, parameters = at
        statement = statements.statement_at(frame.f_code, line)
        found = recorder.arrays.scan(plain_locals(frame))
        reads = [
            Read(path, entry, entry.state, entry.steps)
            for path, entry in found.items()
            if statement.names is None or path.partition(".")[0] in statement.names
        ]
        read = choose("", reads, statement.keys | {"image", "img"})
        traced.failed_stage, traced.failed_parameters = name, parameters
        traced.failed_state = read.state if read else None

    def _failed_in_user_code(self, error: BaseException) -> tuple[FrameType, int, str, str] | None:
        frames = [f for f in _frames(error.__traceback__) if self._is_user(f[0].f_code.co_filename)]
        if not frames:
            return None
        frame, line = frames[-1]
        node = statements.statement_at(frame.f_code, line).node
        name = parameters = ""
        if not statements.raises(node):
            name, parameters = name_call(node, frame.f_locals, frame.f_globals)
            name = name or statements.operator_of(node)
        return frame, line, name or function_name(frame), parameters


def _frames(trace: TracebackType | None) -> Iterator[tuple[FrameType, int]]:
    while trace is not None:
        yield trace.tb_frame, trace.tb_lineno
        trace = trace.tb_next


def _failed_in_container(error: BaseException) -> tuple[FrameType, int, str, str] | None:
    """Find the innermost container's stage; MONAI raises anew, so causes are looked at first."""
    causes: list[BaseException] = [error]
    while causes[-1].__cause__ is not None and len(causes) < MOST_CAUSES:
        causes.append(causes[-1].__cause__)
    for cause in reversed(causes):
        for frame, line in reversed(list(_frames(cause.__traceback__))):
            variables = containers.stage_variables(frame)
            stage = containers.stage_in(frame, variables) if variables else None
            names = statements.statement_at(frame.f_code, line).names if stage else ()
            if stage and (names is None or stage.variable in names):
                return frame, line, stage.name, stage.parameters
    return None


def _alike(state: State, steps: Sequence[Step]) -> tuple[int, ...]:
    """Find the last step with the same result: a library may hand on a copy."""
    if state.mean is None or not state.shape:
        return ()
    for number in range(len(steps) - 1, -1, -1):
        after = steps[number].after
        if (after.shape, after.low, after.high, after.mean) == (
            state.shape, state.low, state.high, state.mean,
        ):  # fmt: skip
            return (number,)
    return ()


def _returned(value: Any, recorder: Recorder) -> tuple[str | int, ...]:
    """Find the outermost user frame that made the value: that very object, else the last."""
    same = [at for at in recorder.returns if at[0] is value]
    for _, file, line in reversed(same or recorder.returns):
        return (file, line)
    return ()
