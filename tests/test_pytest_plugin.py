"""The fixture in a real pytest of its own: what its user sees when a loader is faulty or right."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

ROOT = Path(__file__).resolve().parents[1]
TESTS = """
import pytest
import torch
from torch.utils.data import DataLoader, Dataset


class Cats(Dataset):
    def __init__(self, odd=-1, short=32):
        self.odd, self.short = odd, short

    def __len__(self):
        return 33

    def __getitem__(self, index):
        height = 33 if index == self.odd else 32
        return torch.rand(3, height, 32), index % 3


def test_right(dlcheck):
    report = dlcheck(DataLoader(Cats(), batch_size=8, drop_last=True), fields=["image", "label"])
    assert report.verdict == "pass"


def test_ragged(dlcheck):
    dlcheck(DataLoader(Cats(odd=12), batch_size=8), fields=["image", "label"])


def test_warned(dlcheck):
    dlcheck(DataLoader(Cats(), batch_size=8, drop_last=False))


def test_never(dlcheck):
    report = dlcheck(DataLoader(Cats(odd=12), batch_size=8), fail_on=None)
    assert report.findings[0].rule == "ragged-batch"
    with pytest.raises(AssertionError, match="ragged-batch"):
        report.raise_for_findings("error")
"""


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """Output of one run of all four tests, and its folder."""
    folder = tmp_path_factory.mktemp("suite")
    (folder / "test_cats.py").write_text(TESTS)
    (folder / "pytest.ini").write_text(
        "[pytest]\ndlcheck_fail_on = warning\naddopts = --strict-config --strict-markers\n"
        "filterwarnings = error\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", "-p", "dlcheck.pytest_plugin", "-p",
               "no:cacheprovider", "--dlcheck-html", "pages", "-v"]  # fmt: skip
    ran = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    return ran.stdout + ran.stderr, folder


def test_a_faulty_loader_fails_its_test_and_a_right_one_passes(done):
    output, _ = done
    assert "test_cats.py::test_right PASSED" in output
    assert "test_cats.py::test_ragged FAILED" in output
    assert "test_cats.py::test_never PASSED" in output


def test_failure_shows_the_report_and_the_line_of_the_test(done):
    output, _ = done
    assert "error DLC101 ragged-batch" in output
    assert '>       dlcheck(DataLoader(Cats(odd=12), batch_size=8), fields=["image"' in output
    assert "pytest_plugin.py" not in output.partition("FAILURES")[2].partition("short test")[0]


def test_ini_value_makes_warnings_fail(done):
    """A last batch of one sample is a warning, which fails with dlcheck_fail_on = warning."""
    output, _ = done
    assert "test_cats.py::test_warned FAILED" in output
    assert "small-last-batch" in output


def test_page_of_each_check_is_written(done):
    _, folder = done
    pages = sorted(path.name for path in (folder / "pages").iterdir())
    assert pages == [
        "test_cats.py-test_never-1.html",
        "test_cats.py-test_ragged-1.html",
        "test_cats.py-test_right-1.html",
        "test_cats.py-test_warned-1.html",
    ]
    assert "ragged-batch" in (folder / "pages" / pages[1]).read_text()


def test_plugin_is_an_entry_point_of_the_package():
    assert (
        '[project.entry-points.pytest11]\ndlcheck = "dlcheck.pytest_plugin"'
        in (ROOT / "pyproject.toml").read_text()
    )
