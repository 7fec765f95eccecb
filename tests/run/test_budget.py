"""What a step would hold, foreseen on tensors without memory."""

from __future__ import annotations

import types
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from dlcheck.observation import Budget
from dlcheck.observers.describe import describe
from dlcheck.run import budget

pytestmark = pytest.mark.usefixtures("no_device_faked")

HERE = __name__
KIB, MIB = 1 << 10, 1 << 20
LOSS = {"_target_": "torch.nn.MSELoss"}
ADAM = {"_target_": "torch.optim.Adam", "lr": 0.1}


@pytest.fixture(autouse=True)
def models(monkeypatch: pytest.MonkeyPatch) -> None:
    """The models below under a name that a config can give."""
    module = types.ModuleType("models_of_test_budget")
    for made in (Wide, Tied, Impatient, Sized, Tokens, Real, Frozen):
        setattr(module, made.__name__, made)
    monkeypatch.setitem(__import__("sys").modules, module.__name__, module)


def named(cls: type, **more: Any) -> dict[str, Any]:
    return {"_target_": f"models_of_test_budget.{cls.__name__}", **more}


class Wide(nn.Sequential):
    """1 MiB of weights, and activations of 4 KiB a sample."""

    def __init__(self) -> None:
        super().__init__(
            nn.Linear(256, 1024, bias=False), nn.ReLU(), nn.Linear(1024, 1, bias=False)
        )


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(512, 512, bias=False)
        self.second = nn.Linear(512, 512, bias=False)
        self.second.weight = self.first.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x))


class Impatient(nn.Module):
    """Reads a value while it is built, as stochastic depth does: the meta device has none."""

    def __init__(self) -> None:
        super().__init__()
        self.rate = [x.item() for x in torch.linspace(0, 1, 3)]
        self.linear = nn.Linear(256, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x)


class Sized(nn.Module):
    """How much it computes depends on what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(256, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x[: int(x.sum().item())])


class Tokens(nn.Module):
    """Called by name, and brings its own loss, as the models of transformers do."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(100, 64), nn.Linear(64, 5)

    def forward(
        self, input_ids: torch.Tensor, labels: torch.Tensor | None = None
    ) -> dict[str, torch.Tensor]:
        logits = self.head(self.embed(input_ids).mean(1))
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


class Real:
    """No module at all."""


class Frozen(nn.Linear):
    def __init__(self) -> None:
        super().__init__(256, 1)
        self.requires_grad_(requires_grad=False)


def seen(samples: int = 8, features: int = 256) -> list[Any]:
    return describe((torch.zeros(samples, features), torch.zeros(samples, 1)))


def foreseen(model: dict[str, Any], leaves: list[Any] | None = None, **more: Any) -> Budget:
    spec = {"model": model, "loss": LOSS, "optimizer": ADAM, **more}
    return budget.foresee(spec, leaves or seen())


def test_parts_are_those_of_the_model_and_add_up_to_the_peak() -> None:
    one = foreseen(named(Wide))
    assert one.reason == ""
    weights = MIB + 4 * KIB
    assert (one.parameters, one.optimizer_state) == (weights, 2 * weights + 2 * 512)
    assert one.gradients == weights
    assert one.moment == "step", "a batch this small is no match for the update"
    assert sum(one.parts().values()) == one.peak
    assert (one.model, one.loss, one.optimizer, one.batch) == ("Wide", "MSELoss", "Adam", 8)


def test_activations_grow_with_the_batch_and_the_line_foresees_the_larger() -> None:
    small = foreseen(named(Wide), seen(1024))
    large = foreseen(named(Wide), seen(4096))
    assert (small.moment, large.moment) == ("backward", "backward")
    assert large.activations == pytest.approx(4 * small.activations, rel=0.01)
    assert small.fixed + 4096 * small.per_sample == pytest.approx(large.peak, rel=0.02)


def test_the_loaders_batch_counts_where_the_last_one_was_seen() -> None:
    spec = {"model": named(Wide), "loss": LOSS, "optimizer": ADAM}
    last = budget.foresee(spec, seen(3), batch_size=1024)
    assert last.batch == 1024
    assert last.peak == foreseen(named(Wide), seen(1024)).peak


def test_shared_weights_count_once() -> None:
    leaves = describe((torch.zeros(8, 512), torch.zeros(8, 512)))
    assert foreseen(named(Tied), leaves).parameters == MIB


def test_an_optimizer_without_state_keeps_none() -> None:
    one = foreseen(named(Wide), optimizer={"_target_": "torch.optim.SGD", "lr": 0.1})
    assert one.optimizer_state == 0


@pytest.mark.parametrize(
    "optimizer",
    [{**ADAM, "_partial_": True}, {"_obj_": "torch.optim.Adam"}, "torch.optim:Adam"],
    ids=["partial", "object", "name"],
)
def test_an_optimizer_may_be_given_in_any_form(optimizer: Any) -> None:
    assert foreseen(named(Wide), optimizer=optimizer).optimizer_state > 2 * MIB


def test_without_loss_and_optimizer_a_stand_in_is_named() -> None:
    one = foreseen(named(Wide), loss=None, optimizer=None)
    assert one.peak > 0
    assert {budget.NO_LOSS, budget.NO_OPTIMIZER} <= set(one.assumed)


def test_a_batch_by_name_feeds_a_model_with_a_loss_of_its_own() -> None:
    leaves = describe(
        {
            "input_ids": torch.zeros(4, 9, dtype=torch.int64),
            "labels": torch.zeros(4, dtype=torch.int64),
            "name": ["a", "b", "c", "d"],
        }
    )
    one = foreseen(named(Tokens), leaves, loss=None)
    assert (one.reason, budget.NO_LOSS in one.assumed) == ("", False)


def test_a_model_that_the_meta_device_refuses_is_built_on_the_cpu() -> None:
    assert foreseen(named(Impatient)).reason == ""


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (Real, "the model is a Real, no Module"),
        (Frozen, "the model has nothing to train"),
        (Sized, "the step could not be foreseen: "),
    ],
)
def test_what_cannot_be_foreseen_says_why(model: type, reason: str) -> None:
    one = foreseen(named(model))
    assert one.peak == 0
    assert one.reason.startswith(reason)


def test_arguments_that_do_not_fit_are_a_reason_and_no_crash() -> None:
    assert "no argument 'depth'" in foreseen(named(Wide, depth=3)).reason


def test_a_users_step_never_runs_on_fake_tensors() -> None:
    assert budget.foresee({"step": "train:step"}, seen()).reason == budget.STEPPED


def test_random_numbers_are_drawn_on_as_if_nothing_had_been_built() -> None:
    before = torch.get_rng_state()
    foreseen(named(Impatient))
    assert torch.equal(torch.get_rng_state(), before)
