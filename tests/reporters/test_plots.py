"""Plots: a flat line looks flat, and amounts are written in few digits."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import pytest

from dlcheck.reporters.plots import HEIGHT, WIDTH, Line, Plot, amount, svg

MIB = 1 << 20


@pytest.mark.parametrize(
    ("value", "unit", "words"),
    [
        (0, "bytes", "0 B"),
        (1536, "bytes", "1.5 KiB"),
        (431 * MIB, "bytes", "431 MiB"),
        (1023.6 * MIB, "bytes", "1024 MiB"),
        (-2 * MIB, "bytes", "-2 MiB"),
        (31, "", "31"),
        (12_345, "", "12.3k"),
        (2_400_000, "", "2.4M"),
    ],
)
def test_amounts(value, unit, words):
    assert amount(value, unit) == words


def heights(plot: Plot) -> list[float]:
    found = re.search(r'points="([^"]*)"', svg(plot))
    assert found
    return [float(pair.split(",")[1]) for pair in found[1].split()]


def test_noise_of_a_flat_line_stays_small():
    """200 KiB of 400 MiB must not fill the picture as growth would."""
    noisy = Plot("heap", [Line("", [(n, 400 * MIB + n % 2 * 200_000) for n in range(20)])])
    assert max(heights(noisy)) - min(heights(noisy)) < 0.05 * HEIGHT


def test_growth_fills_the_picture():
    grown = Plot("heap", [Line("", [(n, (400 + 20 * n) * MIB) for n in range(20)])])
    assert max(heights(grown)) - min(heights(grown)) > 0.7 * HEIGHT
    assert heights(grown) == sorted(heights(grown), reverse=True)


@pytest.mark.parametrize(
    "points", [[(0, 0)], [(5, 7)], [(0, 0), (0, 0)], [(1, -5), (2, 1e15)], [(0, 3), (9, 3)]]
)
def test_any_points_give_a_picture_inside_its_frame(points):
    drawn = ET.fromstring(svg(Plot("x", [Line("", points, dots=True)], "")))
    for circle in drawn.iter("circle"):
        assert 0 <= float(circle.get("cx", "-1")) <= WIDTH
        assert 0 <= float(circle.get("cy", "-1")) <= HEIGHT


def test_no_points_give_no_picture():
    assert svg(Plot("x", [Line("", [])])) == ""


def test_words_of_a_plot_say_from_what_to_what():
    assert Plot("x", [Line("", [(0, MIB), (1, 3 * MIB)])]).words == "1 MiB to 3 MiB"
    assert Plot("x", [Line("", [(0, MIB), (1, MIB)])]).words == "1 MiB"
