from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from dlcheck import config, discover


def write(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def found(folder: Path) -> str:
    with pytest.raises(config.UserError) as caught:
        config.load(None, cwd=str(folder))
    return caught.value.message


def names(folder: Path) -> set[tuple[str, str]]:
    return {(one.kind, one.name) for one in discover.scan(folder / "x.py")}


def test_every_kind_is_listed_with_the_command_that_runs_it(tmp_path: Path) -> None:
    write(
        tmp_path,
        "src/pipe.py",
        "raise SystemExit('never run')\n"
        "class Cats(torch.utils.data.Dataset):\n    def __init__(self, root, flip=True): ...\n"
        "class Stream(IterableDataset[int]): ...\n"
        "def make_loader():\n    return DataLoader(Stream())\n"
        "def with_root(root):\n    loader = DataLoader(Cats(root))\n    return loader\n"
        "loader = DataLoader(Stream())\n",
    )
    assert found(tmp_path).splitlines() == [
        "nothing to run: no dlcheck.yaml here. Found:",
        "  dlcheck shapes src/pipe.py:make_loader   # the function on line 5",
        (
            "  dlcheck shapes src/pipe.py:with_root   # the function on line 7 needs root: "
            "give them in a dlcheck.yaml"
        ),
        "  dlcheck shapes src/pipe.py:loader   # the loader on line 10",
        (
            "  dlcheck shapes src/pipe.py:Cats   # the Dataset on line 2 needs root: "
            "give them in a dlcheck.yaml"
        ),
        "  dlcheck shapes src/pipe.py:Stream   # the Dataset on line 4",
    ]


def test_a_listed_command_is_a_target(tmp_path: Path) -> None:
    write(tmp_path, "a b/pipe.py", "def make():\n    return DataLoader([])\n")
    command = found(tmp_path).splitlines()[1].split("#")[0]
    target = shlex.split(command)[2]
    assert config.load(target, cwd=str(tmp_path)).splits[""]["object"] == "pipe:make"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("class A(Dataset): ...\nclass B(A): ...\n", {("Dataset", "A"), ("Dataset", "B")}),
        ("class A(B): ...\nclass B(A): ...\n", set()),
        ("class A(VisionDataset): ...\n", {("Dataset", "A")}),
        ("class A(L.LightningDataModule): ...\n", {("datamodule", "A")}),
        ("def f() -> DataLoader: ...\n", {("function", "f")}),
        (
            "def f():\n    out = {}\n    out['a'] = DataLoader([])\n    return out\n",
            {("function", "f")},
        ),
        ("def f():\n    return [DataLoader(d) for d in x], 3\n", {("function", "f")}),
        ("def f():\n    for b in DataLoader([]): pass\n", {("builder", "f")}),
        ("def f():\n    def g(): return DataLoader([])\n", set()),
        ("dls = ImageDataLoaders.from_folder(x)\n", set()),
        ("if __name__ == '__main__':\n    a = DataLoader([])\n", {("script", "")}),
        ("a, b = DataLoader(x), DataLoader(y)\n", {("loader", "a"), ("loader", "b")}),
        ("def broken(:\n", set()),
        ("x = '\0'\n", set()),
    ],
)
def test_what_a_file_holds_is_read_from_its_source(
    tmp_path: Path, text: str, expected: set[tuple[str, str]]
) -> None:
    write(tmp_path, "x.py", text)
    assert names(tmp_path) == expected


def test_environments_and_hidden_folders_are_passed_over(tmp_path: Path) -> None:
    source = "def make():\n    return DataLoader([])\n"
    for folder in (".git", "venv", "node_modules", "build", "py311", "a/__pycache__"):
        write(tmp_path, f"{folder}/x.py", source)
    write(tmp_path, "py311/pyvenv.cfg", "")
    assert found(tmp_path) == "nothing to run: no dlcheck.yaml here"


def test_ten_are_listed_and_the_rest_counted_with_tests_last(tmp_path: Path) -> None:
    write(tmp_path, "tests/a.py", "def fake():\n    return DataLoader([])\n")
    for number in range(11):
        write(tmp_path, f"m{number:02}.py", "def make():\n    return DataLoader([])\n")
    lines = found(tmp_path).splitlines()
    assert len(lines) == 12
    assert lines[-1] == "  ... and 2 more"
    assert "fake" not in "".join(lines)


def test_a_great_tree_is_left_off_after_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discover, "MOST_ENTRIES", 20)
    for number in range(40):
        write(tmp_path, f"data/{number:02}/x.txt", "")
    read = list(discover._sources(tmp_path))
    assert read == []


def test_a_script_without_a_name_to_run_is_pointed_out(tmp_path: Path) -> None:
    write(tmp_path, "train.py", "if __name__ == '__main__':\n    x = DataLoader([])\n")
    assert "  train.py:1 makes a DataLoader when run: move it into a function" in found(tmp_path)
