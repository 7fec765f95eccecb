"""Each shipped config tells its story: the default is healthy, the others draw their one rule."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import ChainMap
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import yaml

import dlcheck.rules  # noqa: F401 - fills the registry
from dlcheck.findings import WARNING, find_rule
from dlcheck.gate import OF_MACHINE
from dlcheck.reporters import github, junit, sarif, schema
from dlcheck.reporters.json import read

STORIES = {
    "unequal_crop": "ragged-batch",
    "unreadable_none": "uncollatable-type",
    "boxes_need_collate": "ragged-annotations",
    "grey_among_colour": "channel-count-varies",
    "turned_rot90": "layout-flip",
    "channels_last": "layout-flip",
    "scrambled_view": "reshape-scramble",
    "blue_first": "bgr-order",
    "refused_channels": "contract-mismatch",
    "grey_model": "contract-mismatch",
    "mixup_hard_labels": "soft-label",
    "normalised_twice": "double-scaled",
    "interpolated_mask": "mask-values",
}
LEAK_STORIES = {
    "too_large_batch": "device-budget",
}
MEMORY_STORIES = {
    "cached_folder": "cache-growth",
    "growing_list": "host-leak",
    "peaking_blur": "peak-temporaries",
    "open_handles": "fd-leak",
    "million_dicts": "copy-on-write",
    "summed_loss": "graph-retained",
    "backward_alone": "unpaired-step",
}
ALL_STORIES = {**STORIES, **LEAK_STORIES, **MEMORY_STORIES}
WORTH = {"warning", "error"}

README = (Path(__file__).resolve().parents[1] / "README.md").read_text()
# The commands whose output README.md shows, each under a comment that names it.
SHOWN = re.findall(r"<!-- output: dlcheck (.+?) -->\n+```\w*\n((?:(?!```).*\n)*)```", README)

needs_torch = pytest.mark.skipif(
    not all(map(find_spec, ("torch", "torchvision", "cv2"))), reason="needs the torch extra"
)


def report_of(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    try:
        report: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        pytest.fail(f"no JSON report, status {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return report


def keeps_to_schema(text: str) -> None:
    if find_spec("jsonschema"):
        import jsonschema

        jsonschema.validate(json.loads(text), json.loads(schema.FILE.read_text()))


def shown_for_ci(text: str) -> dict[str, set[str]]:
    """The rules that each format shows at a file, as with --fail-on warning."""
    report = replace(read(text), fail_on=WARNING)
    run = json.loads(sarif.render(report))["runs"][0]
    rules = run["tool"]["driver"]["rules"]
    cases = ET.fromstring(junit.render(report)).iter("testcase")
    annotations = re.findall(
        r"^::(?:error|warning) file=[^:,]+,.*title=DLC\d+ ([\w-]+)::",
        github.render(report),
        re.MULTILINE,
    )
    return {
        "sarif": {
            rules[result["ruleIndex"]]["name"]
            for result in run["results"]
            if result["level"] != "note" and "uri" in str(result["locations"])
        },
        "junit": {case.attrib["name"] for case in cases if case.find("failure") is not None},
        "github": set(annotations),
    }


@needs_torch
def test_default_sample_is_healthy(run_dlcheck, root):
    done = run_dlcheck("shapes", "sample_configs", "--format", "json", cwd=root)
    report = report_of(done)
    assert report["findings"] == []
    assert report["verdict"] == "pass"
    assert done.returncode == 0
    assert report["seen"]["samples"] >= report["seen"]["of"] == 48


@needs_torch
@pytest.mark.parametrize(("config", "rule"), STORIES.items(), ids=STORIES)
def test_faulty_sample_draws_its_rule_and_no_other(run_dlcheck, root, config, rule, monkeypatch):
    done = run_dlcheck("shapes", f"sample_configs/{config}.yaml", "--format", "json", cwd=root)
    report = report_of(done)
    worth = [f for f in report["findings"] if f["severity"] in WORTH]
    assert {f["rule"] for f in worth} == {rule}
    # A warning alone does not fail a run.
    fails = any(f["severity"] == "error" for f in worth)
    assert report["verdict"] == ("fail" if fails else "pass")
    assert done.returncode == int(fails)
    monkeypatch.chdir(root)
    keeps_to_schema(done.stdout)
    assert shown_for_ci(done.stdout) == {
        format_: {rule} for format_ in ("sarif", "junit", "github")
    }


@needs_torch
@pytest.mark.parametrize(("config", "rule"), LEAK_STORIES.items(), ids=LEAK_STORIES)
def test_sample_that_only_epochs_show_draws_its_rule_and_no_other(run_dlcheck, root, config, rule):
    """Under `leak`, with the device's rules among those of memory and of the step."""
    target = f"sample_configs/{config}.yaml"
    options = ("--epochs", "2", "--budget", "20s", "--format", "json")
    report = report_of(run_dlcheck("leak", target, *options, cwd=root))
    assert {f["rule"] for f in report["findings"] if f["severity"] in WORTH} == {rule}


@needs_torch
@pytest.mark.parametrize("command", ["leak", "gate"])
def test_samples_that_leak_draw_their_rule_and_no_other(run_dlcheck, root, tmp_path, command):
    """Each is a split of one run, for seconds count; a line of the sample is named."""
    configs = root / "sample_configs"
    splits = {
        name: yaml.safe_load((configs / f"{name}.yaml").read_text()) for name in MEMORY_STORIES
    }
    machine = dict(ChainMap(*(split.pop("machine", {}) for split in splits.values())))
    (tmp_path / "dlcheck.yaml").write_text(json.dumps({"splits": splits, "machine": machine}))
    done = run_dlcheck(
        command,
        "--format",
        "json",
        cwd=tmp_path,
        env={"PYTHONPATH": f"{configs}:{root}"},
        timeout=300,
    )
    report = report_of(done)
    worth = [f for f in report["findings"] if f["severity"] in WORTH]
    assert {(f["where"]["split"], f["rule"]) for f in worth} == set(MEMORY_STORIES.items())
    assert all(Path(f["where"]["file"]).parent == configs and f["where"]["line"] for f in worth)
    assert (report["verdict"], done.returncode) == ("fail", 1)


def test_a_sample_that_the_machine_decides_says_where_the_job_runs(root):
    """Else `gate`, which runs on another machine, leaves its rule out."""
    for name, slug in ALL_STORIES.items():
        said = yaml.safe_load((root / "sample_configs" / f"{name}.yaml").read_text())
        assert find_rule(slug).code not in OF_MACHINE or said.get("machine")


def test_every_shipped_config_is_tested(root):
    shipped = {path.stem for path in (root / "sample_configs").glob("*.yaml")}
    assert shipped == {"dlcheck", *ALL_STORIES}


def test_stories_name_rules_that_exist():
    assert [rule for rule in ALL_STORIES.values() if find_rule(rule) is None] == []


@needs_torch
def test_two_processes_may_draw_the_data_at_once(root, tmp_path):
    """Both find the folder whole, and no draft is left beside it."""
    module = (root / "sample_configs" / "shape_folder.py").read_text()
    (tmp_path / "shape_folder.py").write_text(module)
    count = "import shape_folder; print(len(shape_folder.ShapeFolder()))"
    both = [
        subprocess.Popen(
            [sys.executable, "-c", count],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
        )
        for _ in range(2)
    ]
    assert [process.communicate()[0].strip() for process in both] == ["48", "48"]
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["shapes"]


def without_times(text: str) -> str:
    """Figures of time as one word, and lines without what only their width decides.

    The last column of a sample's way is its time in ms, in the rows that name a line.
    """
    text = re.sub(r"\d+(\.\d+)?\s?(us|ms|s|min)\b", "<time>", text)
    text = re.sub(r"(?m)^(\S.*:\d+  .*?)  +[\d.]+(e[+-]?\d+)?$", r"\1  <time>", text)
    text = re.sub("(?m)^\u2500+$", "\u2500", text)
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def test_readme_shows_the_sample():
    assert "shapes sample_configs" in dict(SHOWN)


@needs_torch
@pytest.mark.parametrize(("command", "shown"), SHOWN, ids=[command for command, _ in SHOWN])
def test_readme_shows_what_the_tool_prints(run_dlcheck, root, command, shown):
    done = run_dlcheck(*command.split(), cwd=root)
    assert without_times(done.stdout) == without_times(shown)
