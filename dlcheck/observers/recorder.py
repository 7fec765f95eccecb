"""Turn the events of watched frames into the steps of a journey."""

from __future__ import annotations

import ast
import collections
import inspect
import linecache
import time
from collections.abc import Callable, Iterable, Mapping
from types import CodeType, FrameType
from typing import Any, NamedTuple

from dlcheck.observation import Step
from dlcheck.observers import containers, statements
from dlcheck.observers.containers import Stage
from dlcheck.observers.events import UNWIND, YIELD, Watch
from dlcheck.observers.held import assigned, held, without
from dlcheck.observers.lineage import (
    CONTAINER_DEPTH,
    Arrays,
    Describe,
    Entry,
    Read,
    choose,
    differs,
    sources,
)
from dlcheck.observers.statements import Statement

MOST_LINES = 5_000
MOST_CALLS = 5_000
MOST_DESCRIPTIONS = 1_000
# Each keeps its value alive until the run ends.
MOST_RETURNS = 32
# What a comprehension does belongs to its line: from 3.12 on it has no frame of its own.
INLINED = frozenset({"<listcomp>", "<dictcomp>", "<setcomp>"})
OPTIMIZED = 0x1
UNKNOWN = Statement(0)


class Scope:
    """A frame of interest: on the stack, or suspended at a yield."""

    __slots__ = ("begun", "frame", "inner", "line", "quiet", "spent", "started", "statement",
                 "variables")  # fmt: skip

    def __init__(self, frame: FrameType, variables: tuple[str, ...]) -> None:
        self.frame = frame
        self.variables = variables
        self.statement = UNKNOWN
        self.line = 0
        self.quiet = False
        self.begun: dict[str, Read] = {}
        self.inner: list[Read] = []
        self.started = 0.0
        self.spent = 0.0

    @property
    def user(self) -> bool:
        """Whether this is the user's own code, no container's."""
        return not self.variables


class Call(NamedTuple):
    """The expression that made a step, and its line."""

    line: int
    node: ast.AST | None


def plain_locals(frame: FrameType) -> list[tuple[str, Any]]:
    """Read a frame's locals, without the iterators that the interpreter keeps there."""
    return [(n, v) for n, v in list(frame.f_locals.items()) if not n.startswith(".")]


class Recorder:
    """Follows the arrays through the frames of interest. A Sink."""

    def __init__(
        self,
        describe: Describe,
        is_user: Callable[[str], bool],
        most_steps: int,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.arrays = Arrays(describe)
        self.steps: list[Step] = []
        self.notes: dict[str, None] = {}
        self.returns: collections.deque[tuple[Any, str, int]] = collections.deque(
            maxlen=MOST_RETURNS
        )
        self.watch: Watch | None = None
        self.spent = 0.0
        self._is_user = is_user
        self._most_steps = most_steps
        self._clock = clock
        self._stack: list[Scope] = []
        self._suspended: dict[int, Scope] = {}
        self._variables: dict[int, tuple[str, ...]] = {}
        self._calls: collections.Counter[int] = collections.Counter()
        self._lines: collections.Counter[int] = collections.Counter()
        self._looked: collections.Counter[int] = collections.Counter()
        self._statements: dict[tuple[int, int], Statement] = {}
        self._over = False
        self._now = 0.0

    def wants(self, code: CodeType, frame: FrameType) -> bool:
        try:
            self._variables[id(code)] = containers.stage_variables(frame)
            function = bool(code.co_flags & OPTIMIZED) and code.co_name not in INLINED
            user = function and self._is_user(code.co_filename)
        except Exception:  # noqa: BLE001 - the user's code must not see our mistakes
            return False
        return user or bool(self._variables[id(code)])

    def enter(self, frame: FrameType, *, fresh: bool) -> None:
        self._guarded(self._enter, frame, fresh)

    def line(self, frame: FrameType, number: int) -> None:
        self._guarded(self._line, frame, number)

    def leave(self, frame: FrameType, value: Any, how: str) -> None:
        self._guarded(self._leave, frame, value, how)

    def _guarded(self, what: Callable[..., None], *args: Any) -> None:
        if self._over:
            return
        self._now = self._clock()
        try:
            what(*args)
        except Exception as error:  # noqa: BLE001 - the user's code must not see our mistakes
            self._over = True
            self._once(f"tracing ended early: {type(error).__name__} in dlcheck")
        finally:
            self.spent += self._clock() - self._now

    def _enter(self, frame: FrameType, fresh: bool) -> None:  # noqa: FBT001
        code = id(frame.f_code)
        self._calls[code] += 1
        if self._calls[code] > MOST_CALLS:
            self._once(f"{frame.f_code.co_name} was called too often: not followed any more")
            return
        scope = self._suspended.pop(id(frame), None)
        if scope is None or scope.frame is not frame:
            scope = Scope(frame, self._variables.get(id(frame.f_code), ()))
        parent = self._stack[-1] if self._stack else None
        self._stack.append(scope)
        if self._lines[code] > MOST_LINES or self._looked[code] > MOST_DESCRIPTIONS:
            self._quieten(scope)
        found = self._scan(scope)
        for path, entry in found.items():
            if id(entry) in self.arrays.fresh and parent is not None and fresh:
                self._handed(parent, frame, path, entry)
        self._begin(scope, frame.f_lineno, found)

    def _scan(self, scope: Scope, more: Iterable[tuple[str, Any]] = ()) -> dict[str, Entry]:
        inside = plain_locals(scope.frame)
        if scope.user:
            return self.arrays.scan([*inside, *more])
        inside = [(name, value) for name, value in inside if name not in containers.SETTINGS]
        return self.arrays.scan([*inside, *more], CONTAINER_DEPTH)

    def _handed(self, parent: Scope, frame: FrameType, path: str, entry: Entry) -> None:
        """Account for an array that was made on the way from a line into what it calls."""
        if id(entry) not in self.arrays.fresh:
            return
        self.arrays.fresh.discard(id(entry))
        reads = self._reads(parent, parent.statement)
        before = choose(path, reads, parent.statement.keys)
        entry.steps = before.steps if before else ()
        if before is None or differs(before.state, entry.state):
            statement = parent.statement
            node = _argument(statement.node, frame.f_code.co_name) or statement.node
            self._add(parent, path, entry, before, Call(statement.first, node))

    def _begin(self, scope: Scope, line: int, found: dict[str, Entry]) -> None:
        scope.line = line
        scope.statement = UNKNOWN if scope.quiet else self._statement(scope.frame.f_code, line)
        scope.begun = {p: Read(p, e, e.state, e.steps) for p, e in found.items()}
        scope.inner = []
        scope.started = self._now
        scope.spent = self.spent

    def _statement(self, code: CodeType, line: int) -> Statement:
        key = (id(code), line)
        if key not in self._statements:
            self._statements[key] = statements.statement_at(code, line)
        return self._statements[key]

    def _find(self, frame: FrameType) -> Scope | None:
        """Return the frame's scope, now on top; what lies above it has ended unseen."""
        while self._stack and self._stack[-1].frame is not frame:
            if not any(scope.frame is frame for scope in self._stack):
                return None
            self._stack.pop()
        return self._stack[-1] if self._stack else None

    def _line(self, frame: FrameType, number: int) -> None:
        scope = self._find(frame)
        if scope is None or scope.quiet:
            return
        code = id(frame.f_code)
        self._lines[code] += 1
        if self._lines[code] > MOST_LINES or self._looked[code] > MOST_DESCRIPTIONS:
            self._quieten(scope)
            return
        statement = self._statement(frame.f_code, number)
        if statement.node is scope.statement.node is not None and number != scope.line:
            # Another line of the same statement: nothing is assigned before its end.
            scope.line = number
            return
        stored = assigned(scope.statement.node, frame) if scope.user else {}
        found = self._scan(scope, stored.items())
        self._compare(scope, found)
        self._begin(scope, number, without(found, stored))

    def _quieten(self, scope: Scope) -> None:
        scope.quiet = True
        scope.statement = UNKNOWN
        name = scope.frame.f_code.co_name
        self._once(f"{name} ran too many lines: only what it returns is followed")
        if self.watch is not None:
            self.watch.quiet(scope.frame)

    def _once(self, note: str) -> None:
        self.notes[note] = None

    def _leave(self, frame: FrameType, value: Any, how: str) -> None:
        scope = self._find(frame)
        if scope is None:
            return
        if how != UNWIND:
            stored = assigned(scope.statement.node, frame) if scope.user else {}
            found = self._scan(scope, [*stored.items(), ("return", value)])
            self._compare(scope, found)
            self._hand_on(scope, value, found)
        self._stack.pop()
        if how == YIELD:
            self._suspended[id(frame)] = scope

    def _hand_on(self, scope: Scope, value: Any, found: dict[str, Entry]) -> None:
        returned = {p: e for p, e in found.items() if p.partition(".")[0] == "return"}
        if len(self._stack) > 1:
            parent, by = self._stack[-2], scope.frame.f_code.co_name
            now = self.arrays.event
            parent.inner += [Read(p, e, e.state, e.steps, now, by) for p, e in returned.items()]
        if scope.user and not any(outer.user for outer in self._stack[:-1]):
            frame = scope.frame
            line = self._statement(frame.f_code, frame.f_lineno).first or frame.f_lineno
            self.returns.append((value, frame.f_code.co_filename, line))

    def _reads(self, scope: Scope, statement: Statement) -> list[Read]:
        """List what a statement read: what its calls returned, else the arrays that it names."""
        names = statement.names
        inner = _returned(scope, statement)
        if inner:
            return inner
        begun = scope.begun.values()
        if names is None:
            return list(begun)
        order = {name: place for place, name in enumerate(names)}
        reads = [read for read in begun if read.root in order]
        if not reads and scope.frame.f_code.co_name == "<genexpr>":
            # Its variable was set on the way: what came in last is what it reads.
            return scope.inner
        return sorted(reads, key=lambda read: order[read.root])

    def _compare(self, scope: Scope, found: dict[str, Entry]) -> None:
        """Make steps of all that the statement just run has changed."""
        names = scope.statement.names
        touched = {
            read.entry.family
            for read in scope.begun.values()
            if names is None or read.root in names
        }
        for path, entry in found.items():
            if id(entry) in self.arrays.fresh:
                self.arrays.fresh.discard(id(entry))
                self._made(scope, path, entry)
            elif entry.family in touched:
                self._changed(scope, path, entry)

    def _changed(self, scope: Scope, path: str, entry: Entry) -> None:
        if entry.checked == self.arrays.event:
            return
        self._looked[id(scope.frame.f_code)] += 1
        state = self.arrays.again(entry)
        if state is None or not differs(entry.state, state):
            return
        before = Read(path, entry, entry.state, entry.steps)
        entry.state = state
        self._add(scope, path, entry, before, Call(scope.statement.first, scope.statement.node))

    def _made(self, scope: Scope, path: str, entry: Entry) -> None:
        part = scope.statement.part(path)
        reads = self._reads(scope, part) or self._held(scope, part.node)
        before = choose(path, reads, part.keys)
        kept = path in scope.begun or path.startswith("return")
        entry.steps = sources(path, before, reads, part.keys)
        if before is not None and kept and not differs(before.state, entry.state):
            return
        self._add(scope, path, entry, before, Call(part.first, part.node))

    def _held(self, scope: Scope, node: ast.AST | None) -> list[Read]:
        """List the arrays that an expression reads from elsewhere than variables."""
        reads = []
        for path, value, whole in held(node, scope.frame):
            if (entry := self.arrays.entry(value)) is not None:
                kin = None if entry.steps else self.arrays.known(whole)
                reads.append(Read(path, entry, entry.state, kin.steps if kin else entry.steps))
        return reads

    def _add(self, scope: Scope, path: str, entry: Entry, before: Read | None, call: Call) -> None:
        if len(self.steps) >= self._most_steps:
            self._over = True
            self._once(f"more than {self._most_steps} steps: the rest was not followed")
            return
        seconds = (self._now - scope.started) - (self.spent - scope.spent)
        sources = entry.steps or (before.steps if before else ())
        entry.steps = (len(self.steps),)
        self.steps.append(
            Step(
                **self._place(scope, call.line),
                **self._named(scope, call),
                variable=_variable(path, before, container=not scope.user),
                before=before.state if before else None,
                after=entry.state,
                sources=sources,
                seconds=max(seconds, 0.0),
            )
        )

    def _named(self, scope: Scope, call: Call) -> dict[str, Any]:
        """Name the stage of a step, and the container that it works in."""
        stage = self._stage(scope)
        name, parameters = self._called(scope, call.node)
        named: dict[str, Any] = {"stage": name, "parameters": parameters}
        if stage is not None:
            named |= {"container": stage.container, "position": stage.position}
        return named

    def _upto(self, scope: Scope) -> list[Scope]:
        return self._stack[: self._stack.index(scope) + 1]

    def _place(self, scope: Scope, line: int) -> dict[str, Any]:
        """Return the user's line: this scope's, or that of the nearest one above."""
        at = next((s for s in reversed(self._upto(scope)) if s.user), None)
        if at is None:
            return {"file": "", "line": 0, "function": "", "text": ""}
        code = at.frame.f_code
        line = (line if at is scope else 0) or at.frame.f_lineno
        text = linecache.getline(code.co_filename, line).strip()
        return {"file": code.co_filename, "line": line, "function": code.co_name, "text": text}

    def _stage(self, scope: Scope) -> Stage | None:
        """Find the innermost stage of a container at work, at or above a scope."""
        for outer in reversed(self._upto(scope)):
            if not outer.user:
                stage = containers.stage_in(outer.frame, outer.variables)
                if stage is not None and _at_work(stage, outer.statement):
                    return stage
        return None

    def _called(self, scope: Scope, node: ast.AST | None) -> tuple[str, str]:
        """Name what was called, and its arguments in short."""
        frame = scope.frame
        if not scope.user:
            stage = containers.stage_in(frame, scope.variables)
            if stage is not None and _at_work(stage, scope.statement):
                return stage.name, stage.parameters
        name, parameters = name_call(node, frame.f_locals, frame.f_globals)
        if name:
            return name, parameters
        above = self._upto(scope)[:-1]
        operator = statements.operator_of(node)
        if not operator or (above and not above[-1].user):
            return function_name(frame), ""
        return operator, ""


def _returned(scope: Scope, statement: Statement) -> list[Read]:
    """List what the calls of an expression returned, as far as they can be told apart."""
    inner = scope.inner
    if not inner or statement.names is None:
        return inner
    frame = scope.frame
    called = [
        containers.called_name(statements.chain(call.func), frame.f_locals, frame.f_globals)
        for call in statements.calls(statement.node)
    ]
    # "" is an object or a result that is called: what ran inside it may be anything.
    if called and called[0] == "":
        return inner
    if called and (matched := [read for read in inner if read.by == called[0]]):
        return matched
    names = {*statement.names, *statement.keys, *called}
    return [read for read in inner if read.by in names] or (inner if "" in called else [])


def _at_work(stage: Stage, statement: Statement) -> bool:
    return statement.names is None or stage.variable in statement.names


def _variable(path: str, before: Read | None, *, container: bool) -> str:
    if path.partition(".")[0] != "return":
        return path
    tail = path.partition(".")[2]
    if container and before and tail and before.path.partition(".")[2] == tail:
        return before.path
    return "return"


def _argument(node: ast.AST | None, callee: str) -> ast.AST | None:
    """Find the argument that a call was given, an expression of its own."""
    found = list(statements.calls(node))
    named = [c for c in found if statements.dotted(c.func).rpartition(".")[2] == callee]
    for call in named or found[:1]:
        for item in (*call.args, *(k.value for k in call.keywords)):
            if not isinstance(item, ast.Name | ast.Constant | ast.Starred):
                return item
    return None


def name_call(
    node: ast.AST | None, inside: Mapping[str, Any], outside: Mapping[str, Any]
) -> tuple[str, str]:
    """Name the outermost call of an expression; an object that is called by its class."""
    call = next(statements.calls(node), None)
    if call is None:
        return "", ""
    name = statements.dotted(call.func)
    called = containers.resolve(name.split("."), inside, outside)
    parameters = statements.arguments(call)
    if called is not None:
        own = containers.name_of(called)
        plain = inspect.isroutine(called) or isinstance(called, type)
        if not plain and own[:1].isalpha() and own != "ufunc":
            return own, containers.parameters_of(called)
        if own == "lambda":
            return own, parameters
    return name, parameters


def function_name(frame: FrameType) -> str:
    """Name a function; a `__call__` or `forward` by its class."""
    name = frame.f_code.co_name
    if name in ("__call__", "forward") and "self" in frame.f_locals:
        return type(frame.f_locals["self"]).__name__
    return "lambda" if name == "<lambda>" else name
