"""What a gate lets pass: limits of config and command line, the machine, accepted findings."""

from __future__ import annotations

import importlib
import json
from typing import Any

import pytest

from dlcheck import cli, config, session
from dlcheck.config import Config, UserError
from dlcheck.findings import ERROR, REGISTRY, WARNING, Finding, Where, rule
from dlcheck.gate import Gate
from dlcheck.observation import Observation, Split
from dlcheck.session import Outcome

SEEN = {"": Split(samples=8, of=8, batches=1, epochs=1)}
LIMITS = {"memory": 1 << 30, "shm": 1 << 20, "handles": 1024}


@pytest.fixture(autouse=True)
def _rules():
    """An error and a warning on request, and one rule that judges the machine."""
    importlib.import_module("dlcheck.rules")
    real = dict(REGISTRY)
    REGISTRY.clear()
    for code, severity in (("DLC901", ERROR), ("DLC902", WARNING), ("DLC601", WARNING)):

        def check(obs, severity=severity, code=code):
            """Fire on request."""
            if code in obs.settings.get("fire", ()):
                yield Finding("fired", Where(field="image"))

        check.__name__ = f"rule_of_{code.lower()}".replace("dlc", "").translate(
            str.maketrans("0123456789", "abcdefghij")
        )
        rule(code, severity=severity, needs="run", title="T", why="W", fix="F")(check)
    yield
    REGISTRY.clear()
    REGISTRY.update(real)


@pytest.fixture
def gate(monkeypatch, tmp_path, capsys):
    """Run `dlcheck gate` on a recorded run; returns its status and its report."""
    jobs: list[Any] = []

    def run(*options: str, fire=(), cut="", **settings: Any) -> tuple[int, dict[str, Any]]:
        loaded = Config("dlcheck.yaml", str(tmp_path), None, {"": {}}, settings, {})
        seen = Observation(SEEN, settings={"fire": fire, "limits": LIMITS}, cut=cut)
        monkeypatch.setattr(config, "load", lambda *_, **__: loaded)
        monkeypatch.setattr(session, "run", lambda job: jobs.append(job) or Outcome(seen))
        status = cli.main(["gate", "--format", "json", *options])
        run.out, run.err = capsys.readouterr()
        run.job = jobs[-1] if jobs else None
        return status, json.loads(run.out) if run.out.startswith("{") else {}

    monkeypatch.chdir(tmp_path)
    return run


def test_one_run_serves_all(gate):
    status, report = gate()
    assert (status, report["verdict"], report["command"]) == (0, "pass", "gate")
    assert (gate.job.command, gate.job.epochs) == ("gate", 3)


@pytest.mark.parametrize(
    ("said", "options", "status"),
    [
        ({}, [], 0),
        ({"fail_on": "warning"}, [], 1),
        ({"fail_on": "warning"}, ["--fail-on", "error"], 0),
        ({"fail_on": "error"}, ["--fail-on", "warning"], 1),
        ({}, ["--fail-on", "warning"], 1),
    ],
    ids=["default", "config", "option-wins", "option-is-stricter", "option-alone"],
)
def test_the_config_says_what_fails_unless_an_option_does(gate, said, options, status):
    assert gate(*options, fire=["DLC902"], gate=said)[0] == status


def test_epochs_of_the_config_unless_an_option_says_others(gate):
    gate(gate={"leak": {"epochs": 5}})
    assert gate.job.epochs == 5
    gate("--epochs", "2", gate={"leak": {"epochs": 5}})
    assert gate.job.epochs == 2


def test_the_machine_is_judged_only_where_the_config_names_it(gate):
    _, report = gate(fire=["DLC601"])
    (state,) = [s for s in report["rules"] if "machine" in s["reason"]]
    assert state["state"] == "not-applicable"
    assert report["findings"] == []
    _, report = gate(fire=["DLC601"], machine={"cpus": 4})
    assert [finding["code"] for finding in report["findings"]] == ["DLC601"]


def test_the_room_of_this_machine_is_nothing_to_the_gate(gate):
    _, report = gate()
    assert report["observation"]["settings"]["limits"] == {"handles": 1024}


def test_a_baseline_accepts_what_is_there_and_nothing_new(gate, tmp_path):
    says = {"gate": {"baseline": "known.json", "fail_on": "warning"}}
    status, report = gate("--update-baseline", fire=["DLC902"], **says)
    assert (status, report["findings"]) == (0, [])
    assert "1 accepted, 0 before" in gate.err
    assert gate(fire=["DLC902"], **says)[0] == 0
    status, report = gate(fire=["DLC901", "DLC902"], **says)
    assert status == 1
    assert [finding["code"] for finding in report["findings"]] == ["DLC901"]
    status, report = gate(**says)
    assert len(report["observation"]["settings"]["baseline"]["gone"]) == 1
    gate("--update-baseline", **says)
    assert json.loads((tmp_path / "known.json").read_text())["findings"] == []


def test_a_run_that_was_cut_updates_nothing(gate, tmp_path):
    status, _ = gate("--baseline", "known.json", "--update-baseline", fire=["DLC901"], cut="hung")
    assert status == 1
    assert not (tmp_path / "known.json").exists()
    assert "is not updated: hung" in gate.err


def test_a_missing_baseline_is_found_before_the_run(gate):
    assert gate("--baseline", "none.json")[0] == 2
    assert gate.job is None
    assert "--update-baseline" in gate.err


def test_nothing_to_update_without_a_name(tmp_path):
    loaded = Config("dlcheck.yaml", str(tmp_path), None, {"": {}}, {}, {})
    with pytest.raises(UserError, match="no baseline to update"):
        Gate({"baseline": None, "update_baseline": True, "epochs": 3}, loaded)


def test_the_table_says_what_is_left_out(gate):
    says = {"gate": {"baseline": "known.json"}}
    gate("--update-baseline", fire=["DLC902"], **says)
    gate("--format", "table", fire=["DLC902"], **says)
    assert "1 known finding left out, as known.json says" in gate.out
