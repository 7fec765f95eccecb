"""Backwards, optimizer steps and graphs of a training step, by torch's own hooks.

Nothing of the user's is wrapped: optimizers have a hook for all of them, and torch.autograd's
backward, through which every backward goes, is replaced while the epochs run.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import heapq
import itertools
import os
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Any

from dlcheck.observation.steps import MOST_LINES, MOST_OPTIMIZERS, Line, Look, Steps
from dlcheck.observers.gradients import Followed
from dlcheck.observers.roots import user_modules
from dlcheck.run.failures import caller, frame_at

MOST_FOLLOWED = 96
MOST_NODES = 50_000
MOST_LOOKS = 20
FIRST_LOOK = 4
LOOK_SECONDS = 0.5
WRITE_EVERY = 2.0
FRAMES_UP = 4
MOST_MEMBERS = 400
MOST_EARLIER = 1_000
Backward = Callable[..., Any]


class Follower:
    """Follows the steps of one split while its epochs are driven."""

    def __init__(
        self,
        note: Callable[[Steps], None],
        census: Callable[[], Any] = lambda: None,
    ) -> None:
        self.note = note
        self.census = census
        self.earlier: list[weakref.ref[Any]] = []
        self.censuses: list[Any] = []
        self.pid = os.getpid()
        self.calls = self.backwards = self.updates = 0
        self.known: dict[int, Followed] = {}
        self.lines: dict[tuple[str, int], int] = {}
        self.texts: dict[tuple[str, int], Line] = {}
        self.looks: list[Look] = []
        self.met: set[tuple[str, int]] = set()
        self.next_look = FIRST_LOOK
        self.handles: list[Any] = []
        self.backward: Backward | None = None
        self.replaced: Backward | None = None
        self.written = time.monotonic()

    def begin(self) -> None:
        """Put the hooks in, before what there is goes out of the collector's sight, and of ours."""
        import torch

        with contextlib.suppress(Exception):
            self.earlier = growable()
        with contextlib.suppress(ImportError):
            from torch.optim.optimizer import register_optimizer_step_post_hook

            self.handles.append(register_optimizer_step_post_hook(self.on_step))
        self.backward = backward = torch.autograd.backward

        @functools.wraps(backward)
        def followed(*args: Any, **kwargs: Any) -> Any:
            return self.on_backward(backward, args, kwargs)

        torch.autograd.backward = self.replaced = followed

    def end(self) -> None:
        """Take them out again, and write what was seen."""
        import torch

        if self.backward is not None and torch.autograd.backward is self.replaced:
            torch.autograd.backward = self.backward
        for handle in self.handles:
            handle.remove()
        self.ended()
        with contextlib.suppress(Exception):
            self.write()

    def ended(self) -> None:
        """Look at the graphs that outlive an epoch, all of them in sight."""
        with contextlib.suppress(Exception):
            if self.calls and (not self.looks or self.looks[-1].call != self.calls):
                self.look()

    @property
    def following(self) -> bool:
        """Tell whether gradients are still looked at."""
        return self.calls < MOST_FOLLOWED

    def on_backward(self, backward: Backward, args: Any, kwargs: Any) -> Any:
        """Run a backward, and look at the optimizers' gradients before and after it."""
        if os.getpid() != self.pid:
            return backward(*args, **kwargs)
        self.backwards += 1
        line: Line | None = None
        places: set[tuple[str, int]] = set()
        with contextlib.suppress(Exception):
            frame = caller()
            line, places = self.at(frame), places_of(frame)
            for one in self.alive():
                one.before_backward()
        made = backward(*args, **kwargs)
        with contextlib.suppress(Exception):
            for one in self.alive():
                one.after_backward(line, places)
        return made

    def on_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """Look at the gradients that an optimizer has just used."""
        del args, kwargs
        if os.getpid() != self.pid:
            return
        self.updates += 1
        with contextlib.suppress(Exception):
            frame = caller()
            one = self.meet(optimizer, lambda: name_of(optimizer, frame))
            if one is not None and self.following:
                one.step(self.at(frame))
            elif one is not None:
                one.later += 1

    def alive(self) -> list[Followed]:
        """Return the optimizers that are followed."""
        if not self.following:
            return []
        return [one for one in self.known.values() if one.optimizer() is not None]

    def meet(self, optimizer: Any, name: Callable[[], str]) -> Followed | None:
        """Return what is known of an optimizer; None where there are too many of them."""
        one = self.known.get(id(optimizer))
        if one is None or one.optimizer() is not optimizer:
            if len(self.known) >= MOST_OPTIMIZERS:
                return None
            one = self.known[id(optimizer)] = Followed(optimizer, name())
        return one

    def at(self, frame: FrameType | None) -> Line | None:
        """Count a line of the user's, and meet the optimizers that it can see."""
        if frame is None:
            return None
        key = (frame.f_code.co_filename, frame.f_lineno)
        if key not in self.lines:
            if len(self.lines) >= MOST_LINES:
                return None
            self.lines[key] = 0
            told = frame_at(*key, frame.f_code.co_name)
            del told["user"]
            self.texts[key] = Line(**told)
            for name, optimizer in seen_from(frame):
                self.meet(optimizer, lambda name=name: name)  # type: ignore[misc]
        self.lines[key] += 1
        return self.texts[key]

    def stepped(self) -> None:
        """Note that the step has run once; now and then look at the graphs that are alive."""
        self.calls += 1
        with contextlib.suppress(Exception):
            if self.calls == self.next_look:
                self.next_look = self.calls + max(FIRST_LOOK, self.calls // 2)
                if len(self.looks) < MOST_LOOKS:
                    self.look()
            if self.calls == MOST_FOLLOWED or time.monotonic() - self.written > WRITE_EVERY:
                self.write()

    def look(self) -> None:
        """Count the tensors with a history, and the nodes of their graphs."""
        self.looks.append(Look(self.calls, *graphs(self.earlier)))
        if len(self.looks) > 1 and not self.censuses and self.grew():
            self.censuses.append(self.census())

    def grew(self) -> bool:
        """Tell whether there are more nodes than at the first look."""
        return len(self.looks) > 1 and self.looks[-1].nodes > self.looks[0].nodes

    def write(self) -> None:
        """Write what was seen so far."""
        self.written = time.monotonic()
        lines = [(self.texts[key], count) for key, count in self.lines.items()]
        self.note(
            Steps(
                calls=self.calls, backwards=self.backwards, updates=self.updates,
                optimizers={str(n): one.told() for n, one in enumerate(self.known.values())},
                lines=tuple(Line(t.file, t.line, t.function, t.text, n) for t, n in lines),
                looks=tuple(self.looks),
            )
        )  # fmt: skip


def tensors_alive() -> Iterator[Any]:
    """Yield the living tensors that the collector sees."""
    import torch

    for one in gc.get_objects():
        if issubclass(type(one), torch.Tensor):
            yield one


def with_history(earlier: Iterable[weakref.ref[Any]] = ()) -> list[Any]:
    """Return the living tensors that have a grad_fn; `earlier` may be out of sight."""
    found = {}
    for one in itertools.chain(tensors_alive(), (ref() for ref in earlier)):
        with contextlib.suppress(Exception):
            if one is not None and one.requires_grad and one.grad_fn is not None:
                found[id(one)] = one
    return list(found.values())


def growable() -> list[weakref.ref[Any]]:
    """Refer to the tensors that may get a history, or a longer one, where they are.

    No leaf that requires a gradient can. Of very many the smallest are taken, as sums are: the
    others are a dataset's, and to touch them would copy the pages that workers share.
    """
    kept = heapq.nsmallest(MOST_EARLIER, _able(), key=lambda one: one[:2])
    return [weakref.ref(one) for _, _, one in kept]


def _able() -> Iterator[tuple[bool, int, Any]]:
    for one in tensors_alive():
        with contextlib.suppress(Exception):
            real = one.dtype.is_floating_point or one.dtype.is_complex
            if real and not (one.is_leaf and one.requires_grad):
                yield one.is_leaf, one.numel(), one


def graphs(earlier: Iterable[weakref.ref[Any]] = ()) -> tuple[int, int]:
    """Count the living tensors that have a grad_fn, and the nodes that these reach."""
    roots = [one.grad_fn for one in with_history(earlier)]
    tensors = len(roots)
    end = time.monotonic() + LOOK_SECONDS
    seen = set(roots)
    while roots and len(seen) < MOST_NODES and time.monotonic() < end:
        for node, _ in roots.pop().next_functions:
            if node is not None and node not in seen:
                seen.add(node)
                roots.append(node)
    return tensors, len(seen)


def places_of(frame: FrameType | None) -> set[tuple[str, int]]:
    """Return the lines of the user's that are under way, the innermost few."""
    found = set()
    for _ in range(FRAMES_UP):
        if frame is None:
            break
        found.add((frame.f_code.co_filename, frame.f_lineno))
        frame = caller(frame.f_back) if frame.f_back is not None else None
    return found


def seen_from(frame: FrameType | None) -> Iterator[tuple[str, Any]]:
    """Yield the optimizers that a line of the user's can see, by the names it would use."""
    import torch

    wanted = torch.optim.Optimizer
    for name, value in _named(frame):
        if issubclass(type(value), wanted):
            yield name, value


def name_of(optimizer: Any, frame: FrameType | None) -> str:
    """Return what the code calls an optimizer; its class where it has no name there."""
    return next((name for name, value in _named(frame) if value is optimizer), "")


def _named(frame: FrameType | None) -> Iterator[tuple[str, Any]]:
    """Yield the names of a frame and its callers: variables, their attributes, globals."""
    globals_: list[tuple[str, Any]] = []
    for _ in range(FRAMES_UP):
        if frame is None:
            break
        inside = list(frame.f_locals.items())
        yield from inside
        for name, value in inside:
            yield from _members(name, value)
        globals_ += [(n, v) for n, v in frame.f_globals.items() if not n.startswith("__")]
        frame = caller(frame.f_back) if frame.f_back is not None else None
    for module in user_modules():
        globals_ += list(vars(module).items())
    yield from globals_
    for name, value in globals_:
        yield from _members(name, value)


def _members(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the plain attributes and items of an object, none of the user's code run."""
    if type(value) is dict:
        yield from [(f"{name}[{n!r}]", v) for n, v in list(value.items())[:MOST_MEMBERS]]
    elif type(value) in (list, tuple):
        yield from [(f"{name}[{n}]", v) for n, v in enumerate(value[:MOST_MEMBERS])]
    else:
        with contextlib.suppress(Exception):
            held = object.__getattribute__(value, "__dict__")
            if type(held) is dict:
                yield from [(f"{name}.{n}", v) for n, v in list(held.items())[:MOST_MEMBERS]]
