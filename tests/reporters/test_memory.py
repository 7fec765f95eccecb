"""The table of growth: what is shown, in 80 columns, and without other than ASCII."""

from __future__ import annotations

from dlcheck.findings import Report
from dlcheck.reporters import memory, terminal
from tests.lives import KIB, MIB, process, seen, split_of, steady

LEAKING = split_of(
    process(counts=lambda made: {"handles": 10 + made, "threads": 3}),
    *(process("worker", steady(108 * KIB), number=n, seed=n) for n in (0, 1)),
)


def page(width: int, *, ascii_only: bool = False) -> str:
    report = Report("leak", "dlcheck.yaml", "fail", (), (), seen(LEAKING))
    return terminal.render(report, width=width, ascii_only=ascii_only)


def test_a_row_says_start_end_rate_and_verdict() -> None:
    rows = {row[:2]: row for row in memory.tables(LEAKING)[1]}
    heap = rows["worker x2", "heap"]
    assert heap[4:7] == ("+1.58 MiB", "+10.8 KiB", "growing")
    assert rows["main", "handles"][4:7] == ("+15", "+0.1", "growing")
    assert rows["main", "heap"][4:7] == ("-", "-", "flat")


def test_the_table_fits_80_columns_with_a_course() -> None:
    shown = page(80)
    assert max(map(len, shown.splitlines())) <= 80
    assert "course" in shown
    assert "memory and resources, 3 epochs of 300 samples" in shown


def test_a_narrow_page_gets_a_list() -> None:
    shown = page(40)
    assert max(map(len, shown.splitlines())) <= 40
    assert "worker x2 heap: " in shown


def test_an_ascii_page_has_a_course_too() -> None:
    shown = page(80, ascii_only=True)
    assert shown.isascii()
    assert "#" in shown


def test_the_course_of_nothing_stays_low() -> None:
    assert memory.sparkline([100 * MIB, 100 * MIB + 9, 100 * MIB], ascii_only=True) == "___"
    assert memory.sparkline([0, 5 * MIB, 10 * MIB], ascii_only=False) == "▁▅█"
