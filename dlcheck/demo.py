"""The sample that comes with dlcheck, copied to where it does no harm."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from dlcheck.config import UserError


def sample_folder() -> Path:
    """Return the sample: in the wheel beside this file, in a checkout beside the package."""
    here = Path(__file__).resolve().parent
    for folder in (here / "sample_configs", here.parent / "sample_configs"):
        if (folder / "dlcheck.yaml").is_file():
            return folder
    message = "the sample did not come with this installation"
    raise UserError(message, "Install dlcheck again, or run it from a clone of its repository.")


@contextlib.contextmanager
def copied(folder: Path) -> Iterator[str]:
    """Work in a temporary folder that holds a copy; yield the copy's name in it."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="dlcheck-") as place:
        skipped = shutil.ignore_patterns("__pycache__", ".*")
        shutil.copytree(folder, Path(place) / folder.name, ignore=skipped)
        os.chdir(place)
        try:
            yield folder.name
        finally:
            os.chdir(before)
