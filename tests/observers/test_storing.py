"""Lines of source that store into a name or read it."""

from __future__ import annotations

from pathlib import Path

from dlcheck.observers.storing import assigned, reads, stores

SOURCE = """
class Trainer:
    def __init__(self):
        self.rows = []
        self.rows.append(0)
        self.total = 0

    def step(self, row):
        self.rows[-1].extend(row)
        self.total += row
        self.best = max(self.best, row)
        self.by_name.setdefault("a", []).append(row)
        print(self.rows)

def keep(row):
    rows = rows + [row]
    child.parent = self
"""


def test_stores_finds_what_adds_to_a_name_and_puts_the_constructor_last(tmp_path: Path) -> None:
    file = tmp_path / "trainer.py"
    file.write_text(SOURCE)
    assert stores(str(file), "rows") == [(9, "Trainer.step"), (16, "keep"), (5, "Trainer.__init__")]
    assert stores(str(file), "total") == [(10, "Trainer.step")]
    assert stores(str(file), "best") == [(11, "Trainer.step")]
    assert stores(str(file), "by_name") == [(12, "Trainer.step")]
    assert stores(str(file), "nothing") == []


def test_reads_and_assignments_are_told_apart(tmp_path: Path) -> None:
    file = tmp_path / "trainer.py"
    file.write_text(SOURCE)
    assert reads(str(file), "rows") == [5, 9, 13, 16]
    assert assigned(str(file), "parent") == [(17, True)]
    assert assigned(str(file), "rows", 1, 5) == [(4, False)]


def test_a_file_that_is_no_python_has_no_lines(tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    file.write_text("def (")
    assert stores(str(file), "rows") == reads(str(file), "rows") == []
