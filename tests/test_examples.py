"""The pair test: each example is run once, under all rules, as a user would run it."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import dlcheck

EXAMPLES = Path(dlcheck.__file__).parent / "examples"
FILES = sorted(EXAMPLES.glob("*/*.py"))
RunDlcheck = Callable[..., subprocess.CompletedProcess[str]]
MARK = re.compile(r"# expect: ([a-z-]+)")

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="the examples are PyTorch code"
)


def marks(path: Path) -> set[tuple[str, int]]:
    lines = enumerate(path.read_text("utf-8").splitlines(), start=1)
    return {(slug, number) for number, line in lines for slug in MARK.findall(line)}


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_exactly_the_marked_lines_are_accused(path: Path, run_dlcheck: RunDlcheck) -> None:
    """`bad.py` draws its own mark and no second accusation; `good.py` draws nothing."""
    done = run_dlcheck("shapes", f"{path}:make_loader", "--format", "json", "--hang-after", "3")
    assert done.stdout, done.stderr
    said = json.loads(done.stdout)
    accused = {(f["rule"], f["where"].get("line")) for f in said["findings"]}
    assert accused == marks(path), said["findings"]
    assert {f["where"].get("file") for f in said["findings"]} <= {str(path)}
    if path.stem == "good":
        assert said["verdict"] == "pass", said["rules"]
