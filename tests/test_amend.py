"""Values are put into YAML text; what the user wrote around them stays as it is."""

from __future__ import annotations

import math

import pytest
import yaml

from dlcheck import amend
from dlcheck.document import Mistake

TEXT = """\
# a story
dataset: {_target_: a.B}   # keep

expect:   # what is right
  image: {shape: [3, 64, 64], dtype: float32}  # yes
  label:
    dtype: int64
    # three, so far
    classes: 3

# the end
"""


@pytest.mark.parametrize(
    ("path", "value", "old", "new"),
    [
        (["expect", "image", "dtype"], "float16", "dtype: float32", "dtype: float16"),
        (["expect", "label", "classes"], 4, "classes: 3", "classes: 4"),
        (["expect", "image", "range"], [0, 1], "float32}", "float32, range: [0, 1]}"),
        (
            ["expect", "label", "shape"], [], "    classes: 3\n",
            "    classes: 3\n    shape: []\n",
        ),
        (
            ["expect", "mask"], {"values": [0, 255]}, "    classes: 3\n",
            "    classes: 3\n  mask: {values: [0, 255]}\n",
        ),
        (["gate", "baseline"], "b", "\n# the end\n", "gate:\n  baseline: b\n\n# the end\n"),
        (["dataset"], None, "{_target_: a.B}", "null"),
    ],
    ids=["in-flow", "in-block", "into-flow", "into-block", "new-block-key", "nested", "whole"],
)  # fmt: skip
def test_only_the_value_changes(path, value, old, new):
    assert amend.put(TEXT, path, value) == TEXT.replace(old, new, 1)


@pytest.mark.parametrize(
    "text",
    ["", "# only words\n", "a: 1", "a: 1\n", "{a: 1}\n", "expect:\n", "expect: null # x\n",
     "expect: {}\n", "splits:\n  val:\nexpect:\n  image:\n    shape: [1]\n",
     "a: |\n  text\n  more\n", "a:\n- 1\n- b: 2\n  # c\n"],
)  # fmt: skip
def test_what_was_put_is_read_and_the_rest_is_what_it_was(text):
    value = {"shape": [3, "*"], "range": [-1.5, 1e-7], "normalize": "imagenet"}
    before = yaml.safe_load(text) or {}
    after = yaml.safe_load(amend.put(text, ["expect", "image"], value))
    assert after["expect"]["image"] == value
    assert {k: v for k, v in after.items() if k != "expect"} == {
        k: v for k, v in before.items() if k != "expect"
    }


def test_drop_takes_a_key_with_its_line_and_leaves_the_rest():
    assert amend.drop(TEXT, ["expect", "image"]) == TEXT.replace(
        "  image: {shape: [3, 64, 64], dtype: float32}  # yes\n", ""
    )
    assert amend.drop(TEXT, ["expect", "image", "dtype"]) == TEXT.replace(", dtype: float32", "")
    assert amend.drop(TEXT, ["expect", "nothing"]) == TEXT
    assert yaml.safe_load(amend.drop("a:\n  b: 1\n", ["a", "b"])) == {"a": {}}


@pytest.mark.parametrize(
    "value",
    ["no", "1.*", "a: b", "# x", "", "é\u2028\x1b", "1e3", "2024-01-01", "${x}", math.inf,
     -math.inf, 1e22, 1.0, -0.5, True, None, [], {}, {"no": [1, {"x": "y"}]}],
)  # fmt: skip
def test_every_value_is_read_back(value):
    assert yaml.safe_load(amend.put("", ["a"], value)) == {"a": value}


def test_what_has_no_keys_cannot_be_amended():
    with pytest.raises(Mistake, match="no keys"):
        amend.put("expect: [1]\n", ["expect", "image"], 1)
    with pytest.raises(Mistake, match="bad YAML"):
        amend.put("a: [", ["b"], 1)
