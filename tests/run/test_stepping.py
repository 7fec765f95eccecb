"""What a step keeps is seen whether it was tried before its epochs, as a gate does, or not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader, TensorDataset  # noqa: E402 - torch may be absent

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/smaps_rollup").exists(), reason="the counters are those of Linux"
)


class Trainer:
    """Sums the loss of each batch, in one of several ways."""

    def __init__(self, add: Callable[[Any, Any], Any], total: Any) -> None:
        self.net = torch.nn.Linear(4, 2)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.01)
        self.add, self.total = add, total

    def step(self, batch: Any) -> None:
        loss = self.net(batch[0]).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.total = self.add(self.total, loss)


def in_place(total: Any, loss: Any) -> Any:
    total += loss
    return total


def listed(total: Any, loss: Any) -> Any:
    total.append(loss)
    return total


KEEPING = {
    "a number": (in_place, float),
    "a tensor": (in_place, lambda: torch.zeros(())),
    "a new sum": (lambda total, loss: total + loss, float),
    "a list": (listed, list),
}
LETTING_GO = {
    "a number": (lambda total, loss: total + loss.item(), float),
    "a tensor": (lambda total, loss: in_place(total, loss.detach()), lambda: torch.zeros(())),
    "the last": (lambda _, loss: loss, float),
}


@pytest.fixture
def gated(watch: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Drive an epoch as `shapes` does, and the epochs of `leak` if `tried` after the step was."""
    from dlcheck.observation import Observation
    from dlcheck.run import epochs, stepping
    from dlcheck.run.drive import Drive, Plan
    from dlcheck.run.target import Target
    from tests.run.conftest import read

    # No parent is there to be asked.
    monkeypatch.setattr(epochs, "more", lambda _: 0)

    def run(trainer: Trainer, *, tried: bool) -> Any:
        loader = DataLoader(TensorDataset(torch.randn(24, 4)), batch_size=4)
        target = Target(loader, loader.dataset, step=trainer.step)
        drive = Drive(watch, target, Plan(30.0, None, 0, epochs=3))
        if tried:
            drive.run()
            assert not stepping.note_trials(watch, {"": drive})
        stepping.measure(drive, first=int(tried))
        seen: Observation = read(Path(watch.scratch.folder))
        split = seen.splits[""]
        assert split.steps is not None
        return SimpleNamespace(seen=seen, looks=split.steps.looks)

    return run


def graphs_of(seen: Any) -> list[str]:
    import dlcheck.rules  # noqa: F401 - fills the registry
    from dlcheck.findings import judge

    return [one.rule for one in judge(seen, select=["DLC506"])[0]]


@pytest.mark.parametrize("tried", [False, True], ids=["leak", "gate"])
@pytest.mark.parametrize("way", KEEPING)
def test_losses_that_are_summed_with_their_history_are_told(
    gated: Any, way: str, *, tried: bool
) -> None:
    add, total = KEEPING[way]
    assert graphs_of(gated(Trainer(add, total()), tried=tried).seen) == ["graph-retained"]


@pytest.mark.parametrize("tried", [False, True], ids=["leak", "gate"])
@pytest.mark.parametrize("way", LETTING_GO)
def test_losses_that_are_summed_without_it_are_not(gated: Any, way: str, *, tried: bool) -> None:
    add, total = LETTING_GO[way]
    run = gated(Trainer(add, total()), tried=tried)
    assert graphs_of(run.seen) == []
    assert {look.nodes for look in run.looks} == {run.looks[0].nodes}
