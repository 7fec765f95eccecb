"""What the hooks do for one sample takes 50 us at most."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.benchmark

MOST = 50e-6
ROUNDS, CALLS = 1_000, 20


def best(function: Callable[[], None]) -> float:
    """Seconds of one call, the best of many rounds: what the machine does besides is not ours."""
    found = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        for _ in range(CALLS):
            function()
        found.append((time.perf_counter() - begun) / CALLS)
    return min(found)


@pytest.mark.parametrize("threads", [1, 4], ids=["as in a worker", "as in the main process"])
def test_a_sample_of_3x224x224(
    threads: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch = pytest.importorskip("torch")

    from dlcheck.observers.batches import SampleCount
    from dlcheck.observers.values import Memory
    from dlcheck.run.scratch import Scratch

    sample = (torch.rand(3, 224, 224), 3)
    scratch = Scratch(str(tmp_path))
    scratch.begin()
    seen = SampleCount((), Memory())

    def one() -> None:
        scratch.ask(3)
        seen.add(3, sample)

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        took = best(one)
    finally:
        torch.set_num_threads(before)
    with capsys.disabled():
        print(f"\n{1e6 * took:.1f} us a sample with {threads} threads")
    assert took <= MOST
