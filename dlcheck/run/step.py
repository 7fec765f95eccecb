"""The user's training step: a function, an object that can be called, or a Lightning module.

A function or callable object is handed back as it is. A Lightning module is driven as its Trainer
would, one batch at a time: zero_grad, training_step, backward, step, with the hooks in between.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dlcheck.run.instantiate import ConfigMistake, call, find, instantiate

Step = Callable[[Any], Any]
UNATTACHED = "not attached to a `Trainer`"
WITHOUT_TRAINER = "the module asks for its Trainer, and there is none here"
PLACED = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
BATCH_AND_INDEX = 2


def load(spec: Mapping[str, Any]) -> Step | None:
    """Make what the config's `step` names; None without one.

    Raises:
        ConfigMistake: it cannot be called with a batch.
    """
    node = spec.get("step")
    if node is None:
        return None
    evaluating = spec.get("role") == "eval"
    made = _bound(node, instantiate(node, "step"))
    if isinstance(made, type):
        made = call(made, [], {}, "step")
    module = _module_of(made)
    if module is not None:
        return Lightning(module, evaluating=evaluating)
    if not callable(made):
        raise ConfigMistake("step", f"a {type(made).__name__} cannot be called with a batch")
    return _with_index(made)


def share_out(targets: Mapping[str, Any], specs: Mapping[str, Mapping[str, Any]]) -> None:
    """Take from loaders that evaluate the step that a split for training brings along.

    A Lightning module stays, as it has a step of its own for them.
    """
    training = [specs[name].get("step") for name, one in targets.items() if one.role == "train"]
    for name, target in targets.items():
        if target.role == "train" or specs[name].get("step") not in training:
            continue
        if not isinstance(target.step, Lightning):
            target.step = None


def _bound(node: Any, found: Any) -> Any:
    """Make the object of a method that is named through its class: `cats.train:Trainer.step`."""
    name, dot, method = (node if isinstance(node, str) else "").rpartition(".")
    if not dot or ":" not in name or not inspect.isfunction(found):
        return found
    owner = find(name, "step")
    first = next(iter(inspect.signature(found).parameters), "")
    if not isinstance(owner, type) or first != "self":
        return found
    return getattr(call(owner, [], {}, "step"), method)


def _module_of(made: Any) -> Any:
    """Return the Lightning module that a step is, or is the training_step of."""
    inner = getattr(made, "__self__", None)
    if inner is not None and getattr(made, "__name__", "") == "training_step":
        made = inner
    if isinstance(made, type) or not callable(getattr(made, "training_step", None)):
        return None
    return made if callable(getattr(made, "configure_optimizers", None)) else None


def _with_index(function: Callable[..., Any]) -> Step:
    """Give a step that also takes the batch's number what it asks for."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return function
    needed = [p for p in parameters if p.default is p.empty and p.kind in PLACED]
    keywords = [p for p in parameters if p.default is p.empty and p.kind is p.KEYWORD_ONLY]
    takes = sum(p.kind in PLACED for p in parameters)
    takes += BATCH_AND_INDEX * any(p.kind is p.VAR_POSITIONAL for p in parameters)
    if keywords or not takes or len(needed) > BATCH_AND_INDEX:
        names = ", ".join(p.name for p in [*needed, *keywords]) or "nothing"
        message = f"{getattr(function, '__name__', 'the step')} takes {names}"
        raise ConfigMistake("step", message, "a step is called with one batch")
    return Numbered(function) if len(needed) == BATCH_AND_INDEX else function


class Numbered:
    """A step that is also given the batch's number."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.number = 0

    def __call__(self, batch: Any) -> Any:
        """Pass the batch on."""
        number, self.number = self.number, self.number + 1
        return self.function(batch, number)


class Lightning:
    """A Lightning module with its optimizers; `owner` is the module.

    `unable` says why it cannot be stepped here.
    """

    def __init__(self, owner: Any, *, evaluating: bool = False) -> None:
        self.owner = owner
        self.evaluating = evaluating
        self.optimizers: list[Any] | None = None
        self.unable = ""
        self.number = 0
        self.epoch_is_new = True
        self.epoch_is_open = False

    def hook(self, before: Callable[..., Any] | None) -> Callable[..., Any]:
        """Return an epoch hook that tells the module of epochs too, once a step comes."""

        def begin(loader: Any, epoch: int) -> None:
            self.epoch_is_new = True
            if before is not None:
                before(loader, epoch)

        return begin

    def __call__(self, batch: Any) -> Any:
        """Make one step; what it raises is the user's, but for the missing Trainer."""
        if self.unable:
            return None
        try:
            if self.optimizers is None:
                self.begin()
            self._new_epoch()
            return self._validated(batch) if self.evaluating else self._trained(batch)
        except (RuntimeError, AttributeError) as error:
            if UNATTACHED not in str(error):
                raise
            self.unable = WITHOUT_TRAINER
            return None

    def begin(self) -> None:
        """Stand in for what a Trainer gives the module, and make its optimizers."""
        module = self.owner
        for name, stand_in in self._trainers().items():
            if hasattr(type(module), name):
                setattr(module, name, stand_in)
        self.optimizers = [] if self.evaluating else _optimizers(module.configure_optimizers())
        module.train(not self.evaluating)

    def _trainers(self) -> dict[str, Callable[..., Any]]:
        def nothing(*args: Any, **kwargs: Any) -> None:
            del args, kwargs

        def optimizers(*args: Any, **kwargs: Any) -> Any:
            del args, kwargs
            made = self.optimizers or []
            return made[0] if len(made) == 1 else made

        def backward(loss: Any, *args: Any, **kwargs: Any) -> None:
            loss.backward(*args, **kwargs)

        names = ("log", "log_dict", "toggle_optimizer", "untoggle_optimizer", "lr_schedulers")
        return dict.fromkeys(names, nothing) | {
            "optimizers": optimizers, "manual_backward": backward,
        }  # fmt: skip

    def _new_epoch(self) -> None:
        if not self.epoch_is_new:
            return
        self.epoch_is_new = False
        stage = "validation" if self.evaluating else "train"
        if self.epoch_is_open:
            self._told(f"on_{stage}_epoch_end")
        self.number = 0
        self._told(f"on_{stage}_epoch_start")
        self.epoch_is_open = True

    def _told(self, name: str, *args: Any) -> None:
        hook = getattr(self.owner, name, None)
        if callable(hook):
            hook(*args)

    def _validated(self, batch: Any) -> Any:
        import torch

        with torch.no_grad():
            return self._called("validation", "validation_step", batch)

    def _trained(self, batch: Any) -> Any:
        if not getattr(self.owner, "automatic_optimization", True) or not self.optimizers:
            return self._called("train", "training_step", batch)
        optimizer = self.optimizers[0]

        def closure() -> Any:
            given = self._called("train", "training_step", batch)
            loss = given["loss"] if isinstance(given, Mapping) else given
            optimizer.zero_grad()
            if loss is not None:
                loss.backward()
            return loss

        return optimizer.step(closure)

    def _called(self, stage: str, name: str, batch: Any) -> Any:
        function = getattr(self.owner, name)
        number, self.number = self.number, self.number + 1
        given = (batch, number)[: max(1, _placed(function))]
        self._told(f"on_{stage}_batch_start", batch, number)
        made = function(*given)
        self._told(f"on_{stage}_batch_end", made, batch, number)
        return made


def _placed(function: Callable[..., Any]) -> int:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return BATCH_AND_INDEX
    return sum(p.kind in PLACED and p.default is p.empty for p in parameters)


def _optimizers(made: Any) -> list[Any]:
    """List the optimizers in what configure_optimizers returned, in any of its forms."""
    found = list(_each(made))
    with contextlib.suppress(Exception):
        import torch

        found = [one for one in found if isinstance(one, torch.optim.Optimizer)]
    return found


def _each(made: Any) -> Iterator[Any]:
    if isinstance(made, Mapping):
        yield made.get("optimizer")
    elif isinstance(made, tuple | list):
        # ([optimizers], [schedulers]) as well as a plain sequence of either form.
        for one in made:
            yield from _each(one)
    elif made is not None:
        yield made
