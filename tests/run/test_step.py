"""The forms that a step may have, and a Lightning module driven as its Trainer would."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from dlcheck.run.instantiate import ConfigMistake
from dlcheck.run.step import Lightning, load, share_out
from dlcheck.run.target import Target

torch = pytest.importorskip("torch")

STEPS = """
import torch

seen = []


def one(batch):
    seen.append(batch)


def two(batch, index):
    seen.append((batch, index))


def none():
    pass


def three(model, optimizer, batch):
    pass


class Trainer:
    def __init__(self):
        self.count = 0

    def step(self, batch):
        self.count += 1

    def __call__(self, batch):
        self.count += 10


class Lit(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)
        self.calls, self.outputs = [], []

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)]

    def log(self, name, value):
        raise RuntimeError("no trainer")

    def training_step(self, batch, batch_idx):
        self.calls.append(batch_idx)
        loss = self.layer(batch).mean()
        self.log("loss", loss)
        self.outputs.append(loss.detach())
        return {"loss": loss}

    def on_train_epoch_end(self):
        self.calls.append("end")
        self.outputs.clear()

    def validation_step(self, batch, batch_idx):
        self.calls.append((self.training, torch.is_grad_enabled()))


class Attached(Lit):
    def training_step(self, batch):
        raise RuntimeError("Attached is not attached to a `Trainer`.")


class Manual(Lit):
    automatic_optimization = False

    def training_step(self, batch):
        optimizer = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(self.layer(batch).mean())
        optimizer.step()

    def optimizers(self):
        raise RuntimeError("no trainer")

    manual_backward = optimizers
"""


@pytest.fixture
def steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "user_steps.py").write_text(STEPS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "user_steps", raising=False)
    import user_steps  # type: ignore[import-not-found]

    yield user_steps
    del sys.modules["user_steps"]


def test_function_is_handed_back_as_it_is(steps: Any) -> None:
    assert load({"step": "user_steps:one"}) is steps.one
    assert load({}) is None


def test_step_that_takes_the_number_of_the_batch_gets_it(steps: Any) -> None:
    step = load({"step": "user_steps:two"})
    assert step is not None
    step("a")
    step("b")
    assert steps.seen == [("a", 0), ("b", 1)]


def owner_of(step: Any) -> Any:
    """The object of a method or of a module's step, else the step itself."""
    return getattr(step, "owner", None) or getattr(step, "__self__", None) or step


@pytest.mark.parametrize(
    ("node", "count"),
    [("user_steps:Trainer", 10), ({"_target_": "user_steps.Trainer"}, 10),
     ("user_steps:Trainer.step", 1)],
    ids=["class", "node", "method"],
)  # fmt: skip
def test_object_is_made(steps: Any, node: Any, count: int) -> None:
    step = load({"step": node})
    assert step is not None
    step("batch")
    assert isinstance(owner_of(step), steps.Trainer)
    assert owner_of(step).count == count


@pytest.mark.parametrize(
    ("node", "said"),
    [("user_steps:none", "none takes nothing"), ("user_steps:seen", "a list cannot be called"),
     ("user_steps:three", "three takes model, optimizer, batch"),
     ("user_steps:on", "has no 'on'")],
)  # fmt: skip
@pytest.mark.usefixtures("steps")
def test_what_cannot_be_called_with_a_batch_is_a_mistake_of_the_config(
    node: str, said: str
) -> None:
    with pytest.raises(ConfigMistake, match=said) as caught:
        load({"step": node})
    assert caught.value.key == "step"


@pytest.mark.parametrize("node", ["user_steps:Lit", "user_steps:Lit.training_step"])
@pytest.mark.usefixtures("steps")
def test_lightning_module_is_trained_epoch_by_epoch(node: str) -> None:
    step = load({"step": node})
    assert isinstance(step, Lightning)
    before = step.owner.layer.weight.detach().clone()
    hook = step.hook(None)
    for epoch in range(2):
        hook(None, epoch)
        step(torch.ones(3, 2))
        step(torch.ones(3, 2))
    assert step.owner.calls == [0, 1, "end", 0, 1]
    assert len(step.owner.outputs) == 2
    assert not torch.equal(before, step.owner.layer.weight)


@pytest.mark.usefixtures("steps")
def test_manual_optimization_finds_its_optimizer() -> None:
    step = load({"step": "user_steps:Manual"})
    assert isinstance(step, Lightning)
    before = step.owner.layer.weight.detach().clone()
    step(torch.ones(3, 2))
    assert not torch.equal(before, step.owner.layer.weight)


@pytest.mark.usefixtures("steps")
def test_evaluation_runs_the_validation_step_without_gradients() -> None:
    step = load({"step": "user_steps:Lit", "role": "eval"})
    assert step is not None
    step(torch.ones(3, 2))
    assert owner_of(step).calls == [(False, False)]


@pytest.mark.usefixtures("steps")
def test_module_that_asks_for_its_trainer_is_no_failure() -> None:
    step = load({"step": "user_steps:Attached"})
    assert isinstance(step, Lightning)
    assert step(torch.ones(3, 2)) is None
    assert "Trainer" in step.unable


@pytest.mark.usefixtures("steps")
def test_step_of_the_training_split_is_not_tried_on_the_others() -> None:
    spec = {"step": "user_steps:one"}
    targets = {
        "train": Target([], step=load(spec), role="train"),
        "val": Target([], step=load(spec), role="eval"),
        "test": Target([], step=load({"step": "user_steps:two"}), role="eval"),
    }
    share_out(targets, {"train": spec, "val": spec, "test": {"step": "user_steps:two"}})
    assert [one.step is None for one in targets.values()] == [False, True, False]
