from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from dlcheck import explain
from dlcheck.config import UserError
from dlcheck.findings import ERROR, REGISTRY, WARNING, rule

BAD = """\
def make_loader():
    size = 64
    return crop(size)  # expect: square-crop
    # the end
"""
GOOD = """\
def make_loader():
    size = (64, 64)
    return crop(size)
    # the end
"""


@pytest.fixture
def rules(monkeypatch, tmp_path):
    """Two rules of our own in place of all, and a folder for their examples."""
    importlib.import_module("dlcheck.rules")
    real = dict(REGISTRY)
    REGISTRY.clear()

    @rule("DLC201", severity=WARNING, needs="samples", title="Crop | not square",
          why="Because.\n\nOr else.", fix="Crop to a pair.", yields_to=["round-crop"])  # fmt: skip
    def square_crop(_obs):
        """Fire on a crop.

        And on another.
        """
        yield from ()

    @rule("DLC101", severity=ERROR, needs="run", title="A title that is far too long for one line "
          "of eighty columns", why="W", fix="F", yields_to=["*"])  # fmt: skip
    def round_crop(_obs):
        yield from ()

    folder = tmp_path / "square-crop"
    folder.mkdir()
    (folder / "bad.py").write_text(BAD)
    (folder / "good.py").write_text(GOOD)
    monkeypatch.setattr(explain, "EXAMPLES", tmp_path)
    yield
    REGISTRY.clear()
    REGISTRY.update(real)


@pytest.mark.usefixtures("rules")
def test_a_rule_is_explained_from_its_one_place():
    text = explain.explain(explain.named("square-crop"))
    assert text == (
        "DLC201 square-crop (warning)\n"
        "Crop | not square\n"
        "\n"
        "When\n"
        "  It fires on a crop.\n"
        "\n"
        "  And on another.\n"
        "\n"
        "Why\n"
        "  Because.\n"
        "\n"
        "  Or else.\n"
        "\n"
        "Cure\n"
        "  Crop to a pair.\n"
        "\n"
        "Silent when this says more\n"
        "  round-crop\n"
        "\n"
        "Example: - is the fault, + the cure\n"
        "    def make_loader():\n"
        "  -     size = 64\n"
        "  +     size = (64, 64)\n"
        "        return crop(size)  <-- square-crop\n"
        "        # the end\n"
    )


@pytest.mark.usefixtures("rules")
def test_a_rule_without_example_is_explained_all_the_same():
    text = explain.explain(explain.named("DLC101"))
    assert "Example" not in text
    assert "every other rule" in text


@pytest.mark.usefixtures("rules")
@pytest.mark.parametrize("name", ["square-crop", "SQUARE-CROP", "dlc201", " DLC201 "])
def test_a_rule_is_found_by_either_name_in_any_case(name):
    assert explain.named(name).code == "DLC201"


@pytest.mark.usefixtures("rules")
@pytest.mark.parametrize("name", ["square_crop", "sqare-crop", "DLC20", "squarecrop"])
def test_an_unknown_rule_brings_the_nearest(name):
    with pytest.raises(UserError, match="there is no rule") as caught:
        explain.named(name)
    assert "Did you mean square-crop (DLC201)?" in caught.value.hint


@pytest.mark.usefixtures("rules")
def test_nonsense_brings_no_guess():
    with pytest.raises(UserError) as caught:
        explain.named("zzz")
    assert caught.value.hint == "`dlcheck rules` lists them all."


@pytest.mark.usefixtures("rules")
def test_the_table_is_in_the_order_of_codes_and_wraps_at_80():
    lines = explain.table().splitlines()
    assert lines == [
        "code    rule         severity  title",
        "DLC101  round-crop   error     A title that is far too long for one line of",
        "                               eighty columns",
        "DLC201  square-crop  warning   Crop | not square",
    ]


@pytest.mark.usefixtures("rules")
def test_each_slug_is_an_anchor_of_the_page():
    page = explain.markdown()
    assert "| DLC201 | [square-crop](#square-crop) | warning | Crop \\| not square |" in page
    assert "\n### square-crop\n" in page
    assert "[bad](../examples/square-crop/bad.py)" in page
    assert page.index("## DLC1 Shapes and collate") < page.index("## DLC2 Layout")


def test_the_stored_page_is_what_the_rules_say():
    """Write it with `dlcheck rules --markdown > dlcheck/rules/README.md`.

    In a process of its own: other tests register rules of theirs.
    """
    command = [sys.executable, "-m", "dlcheck", "rules", "--markdown"]
    root = Path(__file__).parents[1]
    made = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    stored = root / "dlcheck" / "rules" / "README.md"
    assert stored.read_text(encoding="utf-8") == made.stdout


def test_every_rule_has_an_example_that_shows_its_line():
    for one in explain.all_rules():
        lines = list(explain.example_lines(one.slug))
        assert any(line.endswith(f"<-- {one.slug}") for line in lines), one.slug
