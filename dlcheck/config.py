"""From what the user typed to a checked Config; runs in the parent and imports no user code."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dlcheck import contract, discover
from dlcheck.document import Document, Mistake, Place, nearest, override, read
from dlcheck.interpolation import resolve

FILE = "dlcheck.yaml"
ATTRIBUTE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
MODULE = re.compile(r"[A-Za-z_][\w-]*(\.[A-Za-z_][\w-]*)*")
EVALUATION = {"val", "valid", "validation", "test", "eval"}
# A split that makes its own loader has no use for an inherited dataset.
RIVALS = {
    "datamodule": ("dataset", "transform", "transform_arg", "loader"),
    "dataset": ("datamodule",),
    "loader": ("datamodule",),
}


class UserError(Exception):
    """A mistake of the user's; the CLI prints message and hint and exits 2."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


@dataclass(frozen=True)
class Config:
    """What to check. `splits` holds plain JSON values, "" for the only split.

    `lines` gives file and line of each dotted key as written in the file.
    """

    target: str
    folder: str
    source: str | None
    splits: dict[str, dict[str, Any]]
    settings: dict[str, Any] = field(default_factory=dict)
    lines: dict[str, Place] = field(default_factory=dict)


def load(target: str | None, overrides: Sequence[str] = (), *, cwd: str | None = None) -> Config:
    """Read the target that the user named: a config, a folder, or `module:attribute`.

    Raises:
        UserError: no such target, or a mistake in the config.
    """
    here = Path(cwd or Path.cwd()).absolute()
    try:
        return _load(target, overrides, here)
    except OSError as error:
        raise UserError(f"{target!r:.60}: {error.strerror}") from error


def _load(target: str | None, overrides: Sequence[str], here: Path) -> Config:
    if target is None or (here / target).is_dir():
        return _load_file(_in_folder(here / (target or "."), here), overrides, here)
    if target.lower().endswith((".yaml", ".yml")):
        return _load_file(_existing(here / target, target), overrides, here)
    if overrides:
        raise UserError(
            f"{overrides[0]!r} changes a config, and {target!r} is none",
            "overrides go with a dlcheck.yaml",
        )
    return _load_object(target, here)


def locate(config: Config, split: str, key: str) -> str:
    """Render where a key of a split stands: `dlcheck.yaml:12: loader.batch_size`."""
    place = _place(config.lines, split, key)
    where = _where(place) if place else config.target
    return f"{where}: {key}" if key else where


def _place(lines: Mapping[str, Place], split: str, key: str) -> Place | None:
    """Find the key, else its closest parent: in the split, or at the top if inherited."""
    own = f"splits.{split}" if f"splits.{split}" in lines else ""
    first = key.split(".", 1)[0]
    prefix = f"{own}." if own and (not first or f"{own}.{first}" in lines) else ""
    rest = key
    while rest:
        if prefix + rest in lines:
            return lines[prefix + rest]
        rest = rest.rpartition(".")[0]
    return lines.get(own)


def _where(place: Place) -> str:
    file, line = place
    return f"{file}:{line}" if line else file


def _load_file(path: Path, overrides: Sequence[str], here: Path) -> Config:
    shown = _shown(path, here)
    document = Document()
    try:
        document = read(path, shown)
        for text in overrides:
            override(document, text)
        values = resolve(document.values)
        contract.check(values)
    except Mistake as mistake:
        raise _user_error(mistake, document.lines, shown) from mistake
    config = Config(
        target=shown,
        folder=str(path.parent),
        source=str(path),
        splits=_splits(values),
        settings={key: values[key] for key in contract.SETTINGS if values.get(key) is not None},
        lines=document.lines,
    )
    for name, split in config.splits.items():
        try:
            contract.check_split(split, "")
        except Mistake as mistake:
            raise UserError(
                f"{locate(config, name, mistake.key)}: {mistake.message}", mistake.hint
            ) from mistake
    return config


def _user_error(mistake: Mistake, lines: Mapping[str, Place], shown: str) -> UserError:
    place = mistake.place or _place(lines, "", mistake.key) or (shown, 1)
    parts = [_where(place), mistake.key, mistake.message]
    return UserError(": ".join(part for part in parts if part), mistake.hint)


def _shown(path: Path, here: Path) -> str:
    relative = os.path.relpath(path, here)
    return str(path) if relative.startswith("..") else relative


def _splits(values: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Give every split the keys that it inherits, its role, and text for field names."""
    top = {key: values[key] for key in contract.SPLIT if values.get(key) is not None}
    splits = {}
    for name, given in (values.get("splits") or {"": {}}).items():
        own = given or {}
        hidden = {rival for key in own for rival in RIVALS.get(key, ()) if own[key] is not None}
        if isinstance(own.get("loader"), str):
            hidden |= {"dataset", "transform", "transform_arg"} - set(own)
        inherited = {key: value for key, value in top.items() if key not in hidden}
        split = {key: v for key, v in {**inherited, **own}.items() if v is not None}
        split.setdefault("role", role_of(name))
        if isinstance(split.get("fields"), list):
            split["fields"] = [str(one) for one in split["fields"]]
        splits[name] = split
    return splits


def role_of(split: str) -> str:
    """Return the role that a split's name tells: `val`, `test_clean` and the like are `eval`."""
    first = re.split(r"[^a-z]+", split.lower())[0]
    return "eval" if first in EVALUATION else "train"


def _in_folder(folder: Path, here: Path) -> Path:
    """Find the config of a folder, or say what else could be run there."""
    for name in (FILE, "dlcheck.yml"):
        if (folder / name).is_file():
            return folder / name
    shown = os.path.relpath(folder, here)
    where = "here" if shown == "." else f"in {shown}"
    listed, hint = discover.advise(folder, here)
    raise UserError(f"nothing to run: no {FILE} {where}{listed}", hint)


def _existing(path: Path, target: str) -> Path:
    if path.is_file():
        return path
    if path.exists():
        raise UserError(f"{target} is no regular file")
    raise UserError(f"{target}: no such file{_near_file(path, ('.yaml', '.yml'))}")


def _near_file(path: Path, suffixes: tuple[str, ...]) -> str:
    try:
        names = sorted(p.name for p in path.parent.iterdir() if p.suffix.lower() in suffixes)
    except OSError:
        return f" (nor a folder {path.parent})"
    return nearest(path.name, names)


def _load_object(target: str, here: Path) -> Config:
    """Take `package.module:attribute` or `path/to/file.py:attribute`."""
    head, _, attribute = target.rpartition(":")
    if target.endswith(".py") or (head.endswith(".py") and not attribute):
        _refuse_script(target.removesuffix(":"), here)
    if not head:
        raise UserError(f"{target!r} is no file or folder{_near_entry(target, here)}", TARGETS)
    if not ATTRIBUTE.fullmatch(attribute):
        raise UserError(f"{attribute!r} in {target!r} is no attribute's name", TARGETS)
    if head.endswith(".py"):
        folder, module = _module_of(_existing_python(here / head, head))
    elif "/" in head or os.sep in head:
        near = "" if not (here / f"{head}.py").is_file() else f"; did you mean {head}.py?"
        raise UserError(f"{head!r} in {target!r} is no module{near}", TARGETS)
    elif not MODULE.fullmatch(head) or head.endswith((".yaml", ".yml")):
        raise UserError(f"{head!r} in {target!r} is no module's name", TARGETS)
    else:
        folder, module = here, head
    spec = {"object": f"{module}:{attribute}", "role": "train"}
    return Config(target=target, folder=str(folder), source=None, splits={"": spec})


TARGETS = (
    "a target is a dlcheck.yaml, a folder that holds one, package.module:attribute "
    "or path/to/file.py:attribute"
)


def _near_entry(target: str, here: Path) -> str:
    module = here.joinpath(*target.split(".")[:-1]).with_suffix(".py")
    if "." in target and MODULE.fullmatch(target) and module.is_file():
        return "; did you mean {}:{}?".format(*target.rsplit(".", 1))
    try:
        return nearest(target, sorted(path.name for path in here.iterdir()))
    except OSError:
        return ""


def _existing_python(path: Path, shown: str) -> Path:
    if not path.is_file():
        raise UserError(f"{shown}: no such file{_near_file(path, ('.py',))}")
    return path


def _refuse_script(shown: str, here: Path) -> None:
    path = _existing_python(here / shown, shown)
    found = discover.scan(path)
    if not found:
        raise UserError(
            f"{shown}: which dataset or loader in it? None was found at a glance",
            f"name a DataLoader, a Dataset or a function that returns one: {shown}:make_loader",
        )
    listed = discover.listing(found, here)
    raise UserError(f"{shown}: which of these?\n{listed}")


def _module_of(path: Path) -> tuple[Path, str]:
    """Return the import root and the name that the file has from there."""
    folder = path.parent
    parts = [] if path.name == "__init__.py" else [path.stem]
    while (folder / "__init__.py").is_file() and folder != folder.parent:
        parts.insert(0, folder.name)
        folder = folder.parent
    for part in parts:
        if "." in part:
            raise UserError(f"{path.name} cannot be imported: a module's name holds no dot")
    return folder, ".".join(parts)
