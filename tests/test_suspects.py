"""The parent asks for more epochs or for culprits only where something was seen."""

from __future__ import annotations

from typing import Any

from dlcheck.observation import Observation
from dlcheck.redraws import requests_for
from dlcheck.suspects import further, leak_requests
from tests.lives import MIB, process, seen, split_of, steady


def asked(*processes: Any, **more: Any) -> list[dict[str, Any]]:
    return leak_requests(seen(split_of(*processes, **more)))


def test_a_clean_run_asks_for_nothing() -> None:
    clean = seen(split_of(process(), process("worker", number=0)))
    assert leak_requests(clean) == []
    assert further(clean, "") == 0


def test_growth_asks_who_keeps_it_in_the_process_where_it_grew() -> None:
    (one,) = asked(process(), process("worker", steady(MIB), number=0))
    assert (one["kind"], one["roles"], one["batches"]) == ("leak", ["worker"], 15)
    assert set(one["resources"]) == {"heap", "view"}


def test_growth_of_a_step_may_be_a_graph() -> None:
    (one,) = asked(process(adds=steady(MIB)), given={"step": "train:step"})
    assert "graph" in one["resources"]


def test_what_passes_is_asked_for_too() -> None:
    high = process("worker", number=0, counts=lambda _: {"peak": 90 * MIB})
    assert asked(high)[0]["resources"] == ["peak"]


def test_what_fills_up_or_jumped_at_last_is_measured_longer() -> None:
    fills = process(adds=lambda epoch, *_: MIB // 2**epoch)
    late = process(adds=lambda *at: MIB if at[2] == 40 else 0)
    assert further(seen(split_of(fills)), "") == 3
    assert further(seen(split_of(late)), "") == 3
    assert further(seen(split_of(process(adds=steady(MIB)))), "") == 0
    assert further(Observation(), "") == 0


def test_a_leak_run_traces_no_usual_samples() -> None:
    requests = requests_for(seen(split_of(process()), command="leak"))
    assert requests == []
    assert requests_for(seen(split_of(process())))
