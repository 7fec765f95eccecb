"""What a training step does is counted right, and nothing of the user's is changed by it."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from dlcheck.observation import Optimizer, Steps  # noqa: E402
from dlcheck.observers.steps import MOST_EARLIER, Follower  # noqa: E402

SGD: Any = torch.optim.SGD


def followed(step: Callable[[int], Any], times: int = 12, *, freezes: bool = False) -> Steps:
    """Call a step that often under a Follower; `freezes` as a drive does before its epochs."""
    seen: list[Steps] = []
    follower = Follower(seen.append)
    follower.begin()
    if freezes:
        gc.freeze()
    try:
        for number in range(times):
            step(number)
            follower.stepped()
    finally:
        if freezes:
            gc.unfreeze()
        follower.end()
    return seen[-1]


class Trainer:
    def __init__(self, make: Callable[..., Any] = SGD) -> None:
        self.net = torch.nn.Linear(4, 2)
        self.optimizer = make(self.net.parameters(), lr=0.01)

    def loss(self) -> Any:
        return self.net(torch.randn(3, 4)).square().sum()


def only(seen: Steps) -> Optimizer:
    (one,) = seen.optimizers.values()
    return one


def test_usual_step_is_counted_and_its_optimizer_named() -> None:
    trainer = Trainer()

    def step(number: int) -> None:
        del number
        trainer.optimizer.zero_grad()
        trainer.loss().backward()
        trainer.optimizer.step()

    seen = followed(step)
    one = only(seen)
    assert (seen.calls, seen.backwards, seen.updates) == (12, 12, 12)
    assert (one.name, one.cls, one.steps, one.stale, one.empty) == (
        "trainer.optimizer", "SGD", 12, 0, 0,
    )  # fmt: skip
    assert one.moved
    assert one.written
    assert one.stepped is not None
    assert one.stepped.text == "trainer.optimizer.step()"


def test_gradients_that_are_never_cleared_are_stale() -> None:
    trainer = Trainer()

    def step(number: int) -> None:
        del number
        trainer.loss().backward()
        trainer.optimizer.step()

    one = only(followed(step))
    assert (one.steps, one.stale, one.cleared) == (12, 11, 0)


CLEARED: dict[str, Callable[[Trainer], None]] = {
    "set to None": lambda t: t.optimizer.zero_grad(),
    "zeros": lambda t: t.optimizer.zero_grad(set_to_none=False),
    "by the module": lambda t: t.net.zero_grad(),
    "by hand": lambda t: [setattr(p, "grad", None) for p in t.net.parameters()] and None,
}


@pytest.mark.parametrize("how", CLEARED)
def test_accumulation_over_several_batches_is_healthy_however_gradients_are_cleared(
    how: str,
) -> None:
    trainer = Trainer()

    def step(number: int) -> None:
        trainer.loss().backward()
        if number % 3 == 2:
            trainer.optimizer.step()
            CLEARED[how](trainer)

    one = only(followed(step))
    assert (one.steps, one.stale, one.empty, one.reached) == (4, 0, 0, 12)


def test_gradients_set_without_a_backward_are_fresh() -> None:
    """torch.autograd.grad, whose result lies where the last gradient lay."""
    trainer = Trainer()

    def step(number: int) -> None:
        del number
        parameters = list(trainer.net.parameters())
        for parameter, grad in zip(
            parameters, torch.autograd.grad(trainer.loss(), parameters), strict=True
        ):
            parameter.grad = grad
        trainer.optimizer.step()
        trainer.optimizer.zero_grad()

    one = only(followed(step))
    assert (one.stale, one.empty) == (0, 0)


def test_closure_of_an_optimizer_is_paired() -> None:
    trainer = Trainer(lambda parameters, lr: torch.optim.LBFGS(parameters, lr=lr, max_iter=2))

    def step(number: int) -> None:
        del number

        def closure() -> Any:
            trainer.optimizer.zero_grad()
            loss = trainer.loss()
            loss.backward()
            return loss

        trainer.optimizer.step(closure)

    one = only(followed(step, 6))
    assert (one.steps, one.stale, one.empty) == (6, 0, 0)


def adversarial(*, clears: bool) -> Steps:
    """A generator's backward that reaches the discriminator too, which steps every third batch."""
    first, second = Trainer(), Trainer()
    optimizer_G, optimizer_D = first.optimizer, second.optimizer  # noqa: N806

    def step(number: int) -> None:
        optimizer_G.zero_grad()
        (first.loss() + second.loss()).backward()
        optimizer_G.step()
        if number % 3 == 2:
            if clears:
                optimizer_D.zero_grad()
            second.loss().backward()
            optimizer_D.step()

    return followed(step, 18)


def test_second_optimizer_is_judged_by_its_own_gradients() -> None:
    bad = {one.name: one.stale for one in adversarial(clears=False).optimizers.values()}
    good = {one.name: one.stale for one in adversarial(clears=True).optimizers.values()}
    assert bad == {"optimizer_G": 0, "optimizer_D": 5}
    assert good == {"optimizer_G": 0, "optimizer_D": 0}


def test_optimizer_that_never_steps_is_known_all_the_same() -> None:
    trainer = Trainer()

    def step(number: int) -> None:
        del number
        trainer.optimizer.zero_grad()
        trainer.loss().backward()

    one = only(followed(step))
    assert (one.steps, one.reached, one.moved, one.written) == (0, 12, False, False)


def test_step_on_cleared_gradients_is_empty() -> None:
    trainer = Trainer()

    def step(number: int) -> None:
        del number
        trainer.loss().backward()
        trainer.optimizer.zero_grad()
        trainer.optimizer.step()

    one = only(followed(step))
    assert (one.steps, one.empty, one.felt) == (12, 12, 3)


def test_nodes_of_kept_graphs_are_counted() -> None:
    trainer, kept = Trainer(), []
    seen = followed(lambda _: kept.append(trainer.loss()))
    first, last = seen.looks[0], seen.looks[-1]
    assert last.tensors - first.tensors >= last.call - first.call
    assert last.nodes > first.nodes


def test_graphs_that_end_with_their_step_leave_no_node() -> None:
    trainer = Trainer()
    seen = followed(lambda _: trainer.loss().backward())
    assert {look.nodes for look in seen.looks} == {seen.looks[0].nodes}


SUMMED: dict[str, Callable[[Any], Any]] = {
    "a number's place": lambda _: torch.zeros(()),
    "a sum that has a history already": lambda loss: loss + 1.0,
    "a buffer": lambda _: torch.zeros(64),
}


@pytest.mark.parametrize("made", SUMMED)
def test_a_sum_that_is_older_than_the_epochs_is_seen_to_keep_its_graphs(made: str) -> None:
    """What is added in place stays the object that it was, out of the collector's sight."""
    trainer = Trainer()
    kept = SUMMED[made](trainer.loss())

    def step(number: int) -> None:
        loss = trainer.loss()
        loss.backward()
        if kept.ndim:
            kept[number] = loss
        else:
            kept.add_(loss)

    looks = followed(step, freezes=True).looks
    assert looks[-1].nodes - looks[0].nodes >= looks[-1].call - looks[0].call


@pytest.mark.parametrize("detached", [True, False], ids=["detached", "one step's"])
def test_a_sum_that_is_older_than_the_epochs_may_stay_as_it_is(*, detached: bool) -> None:
    trainer = Trainer()
    kept = torch.zeros(()) if detached else trainer.loss()
    seen = followed(lambda _: detached and kept.add_(trainer.loss().detach()), freezes=True)
    assert {look.nodes for look in seen.looks} == {seen.looks[0].nodes}


def test_what_is_older_than_the_epochs_may_go() -> None:
    kept = [torch.zeros(())]
    gone = weakref.ref(kept[0])
    followed(lambda number: kept.clear() if number == 2 else None, freezes=True)
    assert gone() is None


def test_tensors_of_a_large_dataset_are_left_alone() -> None:
    """To touch them would copy their pages, which workers share."""
    stored = [torch.zeros(8) for _ in range(2 * MOST_EARLIER)]
    trainer, kept = Trainer(), torch.zeros(())
    follower = Follower(lambda _: None)
    follower.begin()
    follower.end()
    kept.add_(trainer.loss())
    assert sum(weakref.getweakrefcount(one) for one in stored) <= MOST_EARLIER
    assert weakref.getweakrefcount(kept) == 1


def test_torch_is_left_as_it_was_found() -> None:
    from torch.optim import optimizer

    hooks = optimizer._global_optimizer_post_hooks
    before = torch.autograd.backward, len(hooks)
    state = torch.get_rng_state()
    trainer = Trainer()
    kept = torch.get_rng_state()

    def step(number: int) -> None:
        del number
        trainer.net(torch.ones(3, 4)).sum().backward()
        trainer.optimizer.step()

    followed(step, 3)
    assert (torch.autograd.backward, len(hooks)) == before
    assert torch.equal(torch.get_rng_state(), kept)
    torch.set_rng_state(state)


def test_failing_backward_passes_through() -> None:
    def step(number: int) -> None:
        del number
        torch.ones(2).sum().backward()

    with pytest.raises(RuntimeError, match="does not require grad"):
        followed(step)
