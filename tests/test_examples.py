"""The pair test: each example is run once, under all rules, as a user would run it."""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dlcheck
import dlcheck.rules
from dlcheck.findings import OF_LEAK, REGISTRY

ROOT = Path(dlcheck.__file__).parents[1]
EXAMPLES = ROOT / "dlcheck" / "examples"
DECLARED = ("expect", "fields", "loss", "machine", "model", "optimizer", "role", "rules")
# They need a device, and are judged from recordings in tests/rules/test_device.py.
RECORDED = {"device-leak"}
# Their config says more than a split can: `leak` reads each of their files by itself.
ALONE = {"device-budget"}
# Rules that compare epochs: `leak` reads their pairs, all in one run, for seconds count.
LEAKING = sorted(
    {r.slug for r in REGISTRY.values() if r.code.startswith(OF_LEAK)} - RECORDED - ALONE
)
FILES = sorted(p for p in EXAMPLES.glob("*/*.py") if p.parent.name not in {*RECORDED, *LEAKING})
RunDlcheck = Callable[..., subprocess.CompletedProcess[str]]
MARK = re.compile(r"# expect: ([a-z-]+)")

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="the examples are PyTorch code"
)


def marks(path: Path) -> set[tuple[str, int]]:
    lines = enumerate(path.read_text("utf-8").splitlines(), start=1)
    return {(slug, number) for number, line in lines for slug in MARK.findall(line)}


def declared(path: Path, module: str = "") -> dict[str, Any]:
    """What the example says of itself for its config: `expect = {...}` at the top level."""
    found = {}
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef) and node.name == "step":
            found["step"] = f"{module or path.stem}:step"
        name = node.targets[0] if isinstance(node, ast.Assign) else None
        if isinstance(name, ast.Name) and name.id in DECLARED:
            # `optimizer = Adam(...)` is the example's own, and nothing for a config.
            with contextlib.suppress(ValueError):
                found[name.id] = ast.literal_eval(node.value)
    return found


def assigned(path: Path, name: str) -> int | None:
    lines = enumerate(path.read_text("utf-8").splitlines(), start=1)
    return next((number for number, line in lines if line.startswith(f"{name} = ")), None)


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_exactly_the_marked_lines_are_accused(
    path: Path, run_dlcheck: RunDlcheck, tmp_path: Path
) -> None:
    """`bad.py` draws its own mark and no second accusation; `good.py` draws nothing."""
    target, env = f"{path}:make_loader", {}
    if said := declared(path):
        config = tmp_path / "dlcheck.yaml"
        config.write_text(json.dumps({"loader": f"{path.stem}:make_loader", **said}))
        target, env = str(config), {"PYTHONPATH": f"{path.parent}{os.pathsep}{ROOT}"}
    command = "leak" if path.parent.name in ALONE else "shapes"
    done = run_dlcheck(command, target, "--format", "json", "--hang-after", "3", env=env)
    assert done.stdout, done.stderr
    said = json.loads(done.stdout)
    # What stands in the config stands in the example as `rules = ...`.
    places = [(f["rule"], f["where"].get("file"), f["where"].get("line")) for f in said["findings"]]
    accused = {(r, line if file != target else assigned(path, "rules")) for r, file, line in places}
    assert accused == marks(path), said["findings"]
    assert {file for _, file, _ in places} <= {str(path), target}
    if path.stem == "good":
        assert said["verdict"] == "pass", said["rules"]


@pytest.mark.parametrize("stem", ["bad", "good"])
def test_exactly_the_marked_lines_leak(stem: str, run_dlcheck: RunDlcheck, tmp_path: Path) -> None:
    """Every pair of the rules on memory is a split of one run; each draws its mark alone."""
    splits, expected = {}, set()
    for slug in LEAKING:
        path, module = EXAMPLES / slug / f"{stem}.py", f"{slug.replace('-', '_')}_{stem}"
        (tmp_path / f"{module}.py").write_text(path.read_text("utf-8"), "utf-8")
        splits[module] = {"loader": f"{module}:make_loader", **declared(path, module)}
        expected |= {(module, rule, line) for rule, line in marks(path)}
    (tmp_path / "dlcheck.yaml").write_text(json.dumps({"splits": splits}))
    done = run_dlcheck("leak", "--format", "json", cwd=tmp_path, timeout=300)
    assert done.stdout, done.stderr
    said = json.loads(done.stdout)
    accused = {(f["where"]["split"], f["rule"], f["where"].get("line")) for f in said["findings"]}
    assert accused == expected, said["findings"]
    if stem == "good":
        assert said["verdict"] == "pass", said["rules"]
