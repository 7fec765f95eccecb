"""One walk over the whole table: a rule is complete, and its names agree."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import dlcheck
import dlcheck.rules
from dlcheck.findings import EVERY_OTHER, REGISTRY, Rule

EXAMPLES = Path(dlcheck.__file__).parent / "examples"
RULES = [pytest.param(one, id=one.slug) for one in REGISTRY.values()]
FAMILIES = {
    "0": {"ignores", "run"},
    "1": {"broadcast", "contract", "pairs", "reading", "shapes"},
    "2": {"colour", "layout", "strides"},
    "3": {
        "boxes",
        "dtypes",
        "equal",
        "finite",
        "labels",
        "masks",
        "mixing",
        "overflow",
        "scaling",
        "splits",
    },
    "4": {"forked"},
    "5": {"device", "memory", "passing", "piling", "steps"},
}


def test_the_table_is_not_empty() -> None:
    assert REGISTRY


@pytest.mark.parametrize("one", RULES)
def test_slug_is_the_functions_name(one: Rule) -> None:
    assert one.slug == one.check.__name__.replace("_", "-")
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", one.slug)
    assert REGISTRY[one.slug] is one


@pytest.mark.parametrize("one", RULES)
def test_code_is_of_its_family(one: Rule) -> None:
    assert re.fullmatch(r"DLC[0-6]\d\d", one.code)
    assert one.check.__module__.removeprefix("dlcheck.rules.") in FAMILIES[one.code[3]]


def test_codes_are_unique() -> None:
    codes = [one.code for one in REGISTRY.values()]
    assert len(codes) == len(set(codes))


@pytest.mark.parametrize("one", RULES)
def test_everything_that_is_said_of_a_rule_is_there(one: Rule) -> None:
    assert one.doc, "the docstring says what it sees"
    assert one.title
    assert not one.title.endswith(".")
    assert one.why.endswith(".")
    assert one.fix.endswith(".")


@pytest.mark.parametrize("one", RULES)
def test_it_yields_to_rules_that_exist(one: Rule) -> None:
    assert set(one.yields_to) <= {*REGISTRY, EVERY_OTHER} - {one.slug}


@pytest.mark.parametrize("one", RULES)
def test_its_example_pair_is_there(one: Rule) -> None:
    folder = EXAMPLES / one.slug
    assert f"# expect: {one.slug}" in (folder / "bad.py").read_text("utf-8")
    assert "# expect" not in (folder / "good.py").read_text("utf-8")


def test_no_example_is_without_a_rule() -> None:
    folders = {p.name for p in EXAMPLES.iterdir() if p.is_dir() and not p.name.startswith("__")}
    assert folders <= set(REGISTRY)
