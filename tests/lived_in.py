"""Show that installing dlcheck moves nothing in environments that people already work in.

    python tests/lived_in.py [--work FOLDER]

Builds three environments, one after the other, and asks pip what it would do there for `.` and for
`.[torch]`. The core must change no installed package. dlcheck is then installed in the one without
torch and used from there through --python, which must leave the training environment as it was.
Takes some minutes and, for a while, two installations of torch's size on disk.
Exit status 1 when something would move.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PIPELINE = """
import torch
from torch.utils.data import DataLoader, TensorDataset


def make_loader():
    data = TensorDataset(torch.rand(32, 3, 8, 8), torch.arange(32))
    return DataLoader(data, batch_size=8, num_workers=2)
"""


@dataclass(frozen=True)
class Environment:
    """A folder with a Python in it and packages of one sort of user."""

    folder: Path

    @property
    def python(self) -> str:
        return str(self.folder / "bin" / "python")

    def pip(self, *args: str) -> str:
        command = [self.python, "-m", "pip", *args]
        done = subprocess.run(command, cwd=ROOT, text=True, capture_output=True, check=False)
        if done.returncode:
            sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
        return done.stdout

    def installed(self) -> dict[str, str]:
        """Version by normalised name."""
        rows = json.loads(self.pip("list", "--format", "json"))
        return {normalised(row["name"]): row["version"] for row in rows}

    def would_install(self, requirement: str) -> dict[str, str]:
        """What pip's dry run would put there, by normalised name, dlcheck itself left out."""
        report = json.loads(
            self.pip("install", "--dry-run", "--quiet", "--report", "-", requirement)
        )
        items = [item["metadata"] for item in report["install"]]
        wanted = {normalised(item["name"]): item["version"] for item in items}
        assert wanted.pop("dlcheck", None), f"the dry run of {requirement} does not name dlcheck"
        return wanted


def normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def build(folder: Path, *requirements: str) -> Environment:
    begun = time.monotonic()
    venv.create(folder, with_pip=True)
    environment = Environment(folder)
    environment.pip("install", "--quiet", "--no-compile", *requirements)
    print(f"\n{folder.name}: {' '.join(requirements)} ({time.monotonic() - begun:.0f} s)")
    return environment


def moved(environment: Environment, requirement: str) -> dict[str, str]:
    """Print what the requirement adds and moves there; return what it moves."""
    here = environment.installed()
    wanted = environment.would_install(requirement)
    moves = {name: f"{here[name]} -> {wanted[name]}" for name in wanted if name in here}
    adds = sorted(wanted.keys() - here.keys())
    print(f"  {requirement:9} moves: {moves or 'nothing'}")
    print(f"  {'':9} adds:  {', '.join(adds) or 'nothing'}")
    return moves


def used_through_python(outside: Environment, training: Environment, work: Path) -> list[str]:
    """Install dlcheck outside, check a pipeline of the training environment, name what is wrong."""
    outside.pip("install", "--quiet", ".")
    (work / "pipeline.py").write_text(PIPELINE)
    before = training.installed()
    tool = [str(outside.folder / "bin" / "dlcheck"), "shapes", "pipeline:make_loader"]
    done = subprocess.run(
        [*tool, "--python", training.python, "--format", "json"],
        cwd=work,
        text=True,
        capture_output=True,
        check=False,
    )
    wrong = []
    if done.returncode or json.loads(done.stdout)["verdict"] != "pass":
        wrong.append(f"shapes --python: status {done.returncode}\n{done.stdout}{done.stderr}")
    if training.installed() != before:
        wrong.append("shapes --python: the training environment changed")
    print(f"  used through --python: {'FAILED' if wrong else 'passes, changes nothing there'}")
    return wrong


def check(work: Path) -> list[str]:
    """Name each thing that dlcheck would move."""
    wrong: list[str] = []

    def judge(environment: Environment) -> None:
        moves = moved(environment, ".")
        wrong.extend(f"{environment.folder.name}: {name} {move}" for name, move in moves.items())
        moved(environment, ".[torch]")

    hydra = build(work / "hydra", "torch", "torchvision", "numpy>=2", "hydra-core")
    judge(hydra)
    tools = build(work / "no-torch", "click<8.2", "rich<14", "psutil<7", "jinja2", "pandas")
    judge(tools)
    wrong += used_through_python(tools, hydra, work)
    for done in (hydra, tools):
        shutil.rmtree(done.folder)
    judge(build(work / "headless", "torch", "torchvision", "opencv-python-headless", "pydantic<2"))
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--work", type=Path, help="where to build (default: a temporary folder)")
    parent = parser.parse_args().work
    if parent:
        parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="lived-in-", dir=parent) as work:
        wrong = check(Path(work).resolve())
    if wrong:
        sys.exit("\nmoved or broken:\n" + "\n".join(wrong))
    print("\nthe core changes nothing installed")


if __name__ == "__main__":
    main()
