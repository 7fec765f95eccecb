"""The composite action, its scripts run by bash as GitHub's runner runs them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")
BASH = shutil.which("bash")

needs_bash = pytest.mark.skipif(BASH is None, reason="there is no bash")

DATA = """
import torch
from torch.utils.data import DataLoader, Dataset


class Cats(Dataset):
    def __init__(self, odd):
        self.odd = odd

    def __len__(self):
        return 32

    def __getitem__(self, index):
        return torch.rand(3, 33 if index == self.odd else 32, 32), index % 2


def right():
    return DataLoader(Cats(-1), batch_size=8)


def ragged():
    return DataLoader(Cats(5), batch_size=8)
"""


@dataclass
class Runner:
    """Runs an action's scripts in a workspace, with the files and variables of a real runner."""

    workspace: Path
    temp: Path
    outputs: dict[str, dict[str, str]] = field(default_factory=dict)
    log: str = ""

    def run(self, **inputs: str) -> int:
        """Run the steps that are scripts, until one fails; returns its status."""
        given = {name: one.get("default", "") for name, one in ACTION["inputs"].items()}
        given |= {name.replace("_", "-"): value for name, value in inputs.items()}
        for number, step in enumerate(ACTION["runs"]["steps"]):
            if "run" not in step:
                continue
            status = self.step(number, step, given)
            if status:
                return status
        return 0

    def step(self, number: int, step: dict[str, Any], inputs: dict[str, str]) -> int:
        script = self.temp / f"{number}.sh"
        script.write_text(step["run"], encoding="utf-8")
        output = self.temp / f"output-{number}"
        output.touch()
        told = {name: self.filled(value, inputs) for name, value in step.get("env", {}).items()}
        environment = {
            **os.environ, **told, "GITHUB_ACTIONS": "true", "CI": "true",
            "GITHUB_OUTPUT": str(output), "GITHUB_STEP_SUMMARY": str(self.temp / "summary.md"),
            "GITHUB_WORKSPACE": str(self.workspace), "RUNNER_TEMP": str(self.temp),
            "PYTHONPATH": str(ROOT),
        }  # fmt: skip
        assert step["shell"] == "bash"
        assert BASH is not None
        done = subprocess.run(
            [BASH, "--noprofile", "--norc", "-e", "-o", "pipefail", str(script)],
            cwd=self.workspace / self.filled(step.get("working-directory", "."), inputs),
            env=environment, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        self.log += done.stdout + done.stderr
        if "id" in step:
            lines = output.read_text(encoding="utf-8").splitlines()
            self.outputs[step["id"]] = dict(line.split("=", 1) for line in lines)
        return done.returncode

    def filled(self, value: str, inputs: dict[str, str]) -> str:
        """Put in what an expression stands for: an input, a step's output, the action's folder."""

        def one(match: re.Match[str]) -> str:
            kind, _, name = match[1].partition(".")
            if kind == "inputs":
                return inputs[name]
            if kind == "steps":
                step, _, output = name.split(".", 2)
                return self.outputs.get(step, {}).get(output, "")
            assert match[1] == "github.action_path"
            return str(ROOT)

        return EXPRESSION.sub(one, value)


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    workspace, temp = tmp_path / "work space", tmp_path / "temp"
    workspace.mkdir()
    temp.mkdir()
    (workspace / "cats.py").write_text(DATA)
    return Runner(workspace, temp)


@pytest.fixture
def ours(tmp_path: Path) -> str:
    """A `dlcheck` command that runs this checkout."""
    command = tmp_path / "dlcheck"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m dlcheck "$@"\n')
    command.chmod(0o755)
    return str(command)


def test_action_fits_the_schema_that_editors_and_linters_use():
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((ROOT / "tests/schemas/github-action.json").read_text(encoding="utf-8"))
    jsonschema.validators.validator_for(schema)(schema).validate(ACTION)


def test_no_input_is_pasted_into_a_script():
    """An input may hold what a stranger wrote; as a variable it is never code."""
    for step in ACTION["runs"]["steps"]:
        assert "${{" not in step.get("run", "")


def test_every_input_is_used_and_described():
    text = (ROOT / "action.yml").read_text(encoding="utf-8")
    for name, one in ACTION["inputs"].items():
        assert f"inputs.{name}" in text
        assert one["description"]


@needs_bash
def test_right_pipeline_passes_with_all_reports(runner, ours):
    pytest.importorskip("torch")
    status = runner.run(
        dlcheck=ours, command="shapes", target="cats.py:right", python=sys.executable,
        arguments="--samples\nall\n",
    )  # fmt: skip
    assert status == 0, runner.log
    told = runner.outputs["check"]
    assert (told["verdict"], told["status"]) == ("pass", "0")
    folder = Path(told["reports"])
    assert folder == runner.workspace / "dlcheck-reports"
    assert sorted(path.name for path in folder.iterdir()) == [
        "report.html", "report.json", "report.sarif", "report.xml",
    ]  # fmt: skip
    assert "dlcheck" in (runner.temp / "summary.md").read_text(encoding="utf-8")
    assert 'src="data:image/' in (folder / "report.html").read_text(encoding="utf-8")


@needs_bash
def test_faulty_pipeline_fails_the_step_and_annotates_the_line(runner, ours):
    pytest.importorskip("torch")
    status = runner.run(
        dlcheck=ours, command="shapes", target="cats.py:ragged", python=sys.executable
    )
    assert status == 1, runner.log
    assert runner.outputs["check"]["verdict"] == "fail"
    assert re.search(r"^::error file=cats\.py,line=\d+,.*ragged-batch", runner.log, re.MULTILINE)
    assert "ragged-batch" in (runner.temp / "summary.md").read_text(encoding="utf-8")


@needs_bash
def test_a_hostile_input_is_an_argument_and_no_code(runner, ours):
    status = runner.run(
        dlcheck=ours, command="shapes", target="$(touch stolen); `touch stolen`",
        arguments='"; touch stolen; echo "', python=sys.executable,
    )  # fmt: skip
    assert status == 2
    assert not list(runner.workspace.rglob("stolen"))
    assert runner.outputs["check"].get("verdict", "") == ""


@needs_bash
@pytest.mark.slow
def test_installation_gives_a_dlcheck_of_its_own(runner):
    """With the network's package index; the environment of the job stays as it is."""
    step = ACTION["runs"]["steps"][0]
    given = {name: one.get("default", "") for name, one in ACTION["inputs"].items()}
    if runner.step(0, step, given):
        if "No matching distribution" in runner.log or "ConnectionError" in runner.log:
            pytest.skip("there is no package index")
        pytest.fail(runner.log)
    assert runner.outputs["install"]["dlcheck"].startswith(str(runner.temp))
