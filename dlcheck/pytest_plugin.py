"""The pytest fixture `dlcheck`: checks a loader, and fails the test for what it finds.

def test_train_loader(dlcheck):
dlcheck(make_loader("train"), fields=["image", "label"])
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from dlcheck.live import LiveReport

LONGEST_NAME = 120


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--dlcheck-html DIR` and the ini value `dlcheck_fail_on`."""
    group = parser.getgroup("dlcheck", "checks of input pipelines")
    group.addoption(
        "--dlcheck-html", metavar="DIR", default=None,
        help="Write the page of each check that the `dlcheck` fixture makes there.",
    )  # fmt: skip
    parser.addini(
        "dlcheck_fail_on", default="error",
        help="Severity that fails a test: error, warning, note or never.",
    )  # fmt: skip


@pytest.fixture
def dlcheck(request: pytest.FixtureRequest) -> Callable[..., LiveReport]:
    """Check a loader with the options of `dlcheck.check`; what is found fails the test.

    Returns the report, so that a test may look further. `fail_on` is `dlcheck_fail_on` of
    pytest's own configuration unless the call says otherwise.
    """
    numbers = itertools.count(1)

    def run(loader: Any, **options: Any) -> LiveReport:
        __tracebackhide__ = True
        from dlcheck.live import check

        limit = str(request.config.getini("dlcheck_fail_on"))
        report = check(loader, **{"fail_on": None if limit == "never" else limit, **options})
        folder = request.config.getoption("--dlcheck-html")
        if folder:
            _write(Path(folder), f"{request.node.nodeid}-{next(numbers)}", report)
        report.raise_for_findings()
        if report.findings:
            request.node.add_report_section("call", "dlcheck", str(report))
        return report

    return run


def _write(folder: Path, name: str, report: LiveReport) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    plain = re.sub(r"[^\w.-]+", "-", name)[-LONGEST_NAME:]
    (folder / f"{plain}.html").write_text(report.html(), encoding="utf-8", newline="\n")
