"""Run `dlcheck gate` over the shipped samples as a job in CI would, on a machine with no GPU.

    python tests/ci_run.py [NAME ...]

The healthy sample must pass with status 0; every other must fail with status 1 under
`--fail-on warning` and carry its rule in SARIF, in JUnit, in the annotations and in the step's
summary. The gate on the healthy sample may take 1.3 times the slowest of the commands in it.
NAMEs choose samples, the healthy one with its times. Exit status 1 when something is not so.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree as ET

ROOT = Path(__file__).resolve().parents[1]
SAMPLES = ROOT / "sample_configs"
HEALTHY = "dlcheck"
# The healthy sample says nothing of a machine; with this the rules that judge one count as well.
MACHINE = ("machine.memory=16GiB", "machine.shm=8GiB")
SINGLE = ("shapes", "leak")
MOST = 1.3
ROUNDS = 3


def stories() -> dict[str, str]:
    """The rule that each faulty sample draws, as the test of the samples lists them."""
    path = ROOT / "tests" / "test_sample_configs.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module: ModuleType = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return dict(module.ALL_STORIES)


def run(command: str, sample: str, *options: str, **env: str) -> subprocess.CompletedProcess[str]:
    """One run of the tool, as a step of GitHub Actions that sees no GPU."""
    return subprocess.run(
        [sys.executable, "-m", "dlcheck", command, str(SAMPLES / f"{sample}.yaml"), *options],
        cwd=ROOT,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": "", "GITHUB_ACTIONS": "true", **env},
        capture_output=True,
        text=True,
        check=False,
    )


def wrong(sample: str, rule: str | None, folder: Path) -> list[str]:
    """What is not as promised for one sample; `rule` is None for the healthy one."""
    sarif, junit, summary = (folder / name for name in ("gate.sarif", "gate.xml", "summary.md"))
    for file in (sarif, junit, summary):
        file.unlink(missing_ok=True)
    outputs = ("--output", str(sarif), "--output", str(junit), "--format", "json")
    options = ("--fail-on", "warning", *(() if rule else MACHINE), *outputs)
    done = run("gate", sample, *options, GITHUB_STEP_SUMMARY=str(summary))
    expected = 0 if rule is None else 1
    if done.returncode != expected:
        tail = "\n".join(done.stderr.splitlines()[-8:])
        return [f"status {done.returncode}, wanted {expected}\n{tail}"]
    verdict = json.loads(done.stdout)["verdict"]
    faults = [] if verdict == ("fail" if rule else "pass") else [f"verdict {verdict}"]
    if rule is None:
        return faults
    log = json.loads(sarif.read_text())["runs"][0]
    names = {one["id"]: one["name"] for one in log["tool"]["driver"]["rules"]}
    cases = ET.fromstring(junit.read_text()).iter("testcase")
    shown = {
        "SARIF": rule in {names[result["ruleId"]] for result in log["results"]},
        "JUnit": any(c.get("name") == rule and c.find("failure") is not None for c in cases),
        "annotations": f" {rule}::" in done.stderr,
        "summary": rule in summary.read_text(),
    }
    return faults + [f"{rule} is not in {place}" for place, there in shown.items() if not there]


def seconds(command: str) -> float:
    """Wall time of a command on the healthy sample: the best of a few."""
    times = []
    for _ in range(ROUNDS):
        begun = time.monotonic()
        run(command, HEALTHY, "--quiet")
        times.append(time.monotonic() - begun)
    return min(times)


def slow() -> list[str]:
    """Compare the gate with the slowest of the commands that it stands for."""
    singles = {command: seconds(command) for command in SINGLE}
    whole, slowest = seconds("gate"), max(singles.values())
    told = ", ".join(f"{command} {time_:.1f} s" for command, time_ in singles.items())
    print(f"gate {whole:.1f} s; {told}: {whole / slowest:.2f} x the slowest", flush=True)
    return [] if whole <= MOST * slowest else [f"the gate takes more than {MOST} x the slowest"]


def main() -> int:
    """Go through the samples and say of each whether it is as promised."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--no-times", action="store_true", help="leave the comparison of times out")
    chosen = parser.parse_args()
    wanted = {HEALTHY: None, **stories()}
    faults: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for sample in chosen.names or wanted:
            found = wrong(sample, wanted[sample], Path(folder))
            print(
                f"{'wrong' if found else 'right':6}{sample}: {wanted[sample] or 'pass'}", flush=True
            )
            faults += [f"{sample}: {one}" for one in found]
    if not chosen.no_times and HEALTHY in (chosen.names or wanted):
        faults += slow()
    for one in faults:
        print(one, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
