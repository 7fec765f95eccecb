from __future__ import annotations

import pytest

from dlcheck.reporters.visible import visible, visible_lines, without_surrogates


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        pytest.param("\x1b[31mred", "\\x1b[31mred", id="ansi"),
        pytest.param("\x9b31m", "\\x9b31m", id="c1-csi"),
        pytest.param("a\nb\rc\td", "a\\nb\\rc\\td", id="newlines"),
        pytest.param("\u202eevil", "\\u202eevil", id="bidi"),
        pytest.param("a\u2028b", "a\\u2028b", id="line-separator"),
        pytest.param("\ud800x\udc80", "\\ud800x\\udc80", id="surrogates"),
        pytest.param("\U000e0041", "\\U000e0041", id="tag-character"),
        pytest.param("\x00", "\\x00", id="nul"),
    ],
)
def test_what_moves_the_cursor_or_hides_is_written_out(hostile, shown):
    assert visible(hostile) == shown


def test_plain_text_of_any_language_stays():
    assert visible("кошка 猫 [red]é") == "кошка 猫 [red]é"


def test_ascii_only_writes_everything_else_out():
    assert visible("猫é\x7f", ascii_only=True) == "\\u732b\\xe9\\x7f"


def test_other_objects_are_written_as_text():
    assert visible(41) == "41"


def test_lines_are_split_at_newlines_only_and_tabs_expanded():
    assert visible_lines("a\r\n\tb\x0bc") == ["a", "    b\\x0bc"]


def test_lone_surrogates_become_text_that_every_parser_takes():
    assert without_surrogates("é\udcff") == "é\\udcff"
