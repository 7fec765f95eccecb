from __future__ import annotations

import os

import pytest

from dlcheck.observation import Failure, Frame, Observation, Split
from dlcheck.reporters import source


def test_a_line_is_read_from_the_file(source_file):
    assert source.line(str(source_file), 1, Observation()) == "import cv2"


def test_the_traceback_is_believed_before_the_file(source_file):
    frames = (Frame(str(source_file), 1, "f", text="import as_it_was"),)
    split = Split(failures={"x": Failure("sample", frames=frames)})
    seen = Observation(splits={"": split})
    assert source.line(str(source_file), 1, seen) == "import as_it_was"


@pytest.mark.parametrize("number", [0, -1, None, 10_000])
def test_a_line_that_is_not_there_is_empty(source_file, number):
    assert source.line(str(source_file), number, Observation()) == ""


@pytest.mark.parametrize("name", ["<string>", "nul\0byte", "/dev/zero", "gone.py", ".", "\udc80"])
def test_a_name_that_is_no_file_is_empty(name):
    assert source.line(name, 1, Observation()) == ""


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.py")
    assert source.line(str(tmp_path / "pipe.py"), 1, Observation()) == ""


def test_bytes_that_are_not_utf8_are_shown(tmp_path):
    (tmp_path / "latin.py").write_bytes(b"x = '\xe9'\n")
    assert source.line(str(tmp_path / "latin.py"), 1, Observation()) == "x = '\\xe9'"


def test_a_form_feed_does_not_shift_the_lines(tmp_path):
    (tmp_path / "paged.py").write_text("a\n\x0cb\nc\n")
    assert source.line(str(tmp_path / "paged.py"), 3, Observation()) == "c"


def test_names_are_relative_below_the_current_folder_only(source_file):
    assert source.short(str(source_file)) == "data.py"
    assert source.short("/usr/lib/x.py") == "/usr/lib/x.py"
    assert source.short("<string>") == "<string>"
