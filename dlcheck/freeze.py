"""`expect:` from a good run, put into the config that was run."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dlcheck import amend, config, streams
from dlcheck.config import Config, UserError
from dlcheck.document import Mistake
from dlcheck.inference import Expect, expect_of, together
from dlcheck.observation import Observation

EXPECT = "expect"
TOP = ""
BY_HAND = "put this into the config by hand:\n"


def unbound(loaded: Config) -> Config:
    """Take `expect` out of a config: the run that is frozen is not judged by the last one."""
    splits = {
        name: {key: value for key, value in split.items() if key != EXPECT}
        for name, split in loaded.splits.items()
    }
    return dataclasses.replace(loaded, splits=splits)


def expected(loaded: Config, seen: Observation) -> dict[str, Expect]:
    """Say what each split of the config showed; a function may give several loaders for one."""
    found = {}
    for name, given in loaded.splits.items():
        before = given.get(EXPECT)
        parts = [
            expect_of(split, before if isinstance(before, Mapping) else None)
            for key, split in seen.splits.items()
            if _belongs(key, name, loaded) and (split.samples or split.batches)
        ]
        if parts:
            found[name] = together(parts)
    return {name: expect for name, expect in found.items() if expect}


def _belongs(key: str, name: str, loaded: Config) -> bool:
    """Tell the loaders of a config's split: `train`, `train.0`; all of the only one."""
    if name == TOP:
        return True
    if key == name or key in loaded.splits:
        return key == name
    return re.match(rf"{re.escape(name)}\W", key) is not None


def fragment(found: Mapping[str, Expect]) -> str:
    """Render as YAML that could stand in a config."""
    expects = list(found.values())
    if all(one == expects[0] for one in expects):
        return amend.put("", [EXPECT], expects[0])
    text = ""
    for name, one in found.items():
        text = amend.put(text, ["splits", name, EXPECT], one)
    return text


def deliver(loaded: Config, seen: Observation) -> bool:
    """Write `expect:` to the config, or to stdout where there is none; False when nothing is known.

    Raises:
        UserError: the config cannot be changed safely.
    """
    found = expected(loaded, seen)
    if not found:
        hint = "a sample that is one bare tensor has no name for it: return a dict or a tuple"
        streams.complain(f"nothing is frozen: no field was seen that expect could name; {hint}")
        return False
    if loaded.source is None:
        streams.write(amend.put("", ["loader"], loaded.splits[TOP]["object"]) + fragment(found))
        return True
    changed = write(loaded, found)
    streams.write(fragment(found))
    told = ", ".join(changed) if changed else "nothing changed"
    streams.complain(f"{loaded.target}: {told}")
    return True


def write(loaded: Config, found: Mapping[str, Expect]) -> list[str]:
    """Put what was seen into the config's file, and name the keys that changed.

    The rest of the file stays as it is: comments, order, and what the user expects and still holds.

    Raises:
        UserError: the file cannot be changed so that it says this; it is then left alone.
    """
    path = Path(loaded.source or "")
    try:
        raw = path.read_bytes().decode("utf-8-sig")
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {loaded.target}: {error}") from error
    text = raw.replace("\r\n", "\n")
    changed: list[str] = []
    try:
        for at, expect, before in _places(loaded, found):
            text = _amended(text, at, expect, before, changed)
    except Mistake as mistake:
        raise _by_hand(loaded, found, str(mistake)) from mistake
    if not changed:
        return []
    new = text if "\r\n" not in raw else text.replace("\n", "\r\n")
    _written(path, new, loaded, found)
    return changed


Place = tuple[list[str], Expect, Mapping[str, Any]]


def _places(loaded: Config, found: Mapping[str, Expect]) -> list[Place]:
    """Choose where it stands: at the top for all splits alike, else in each split."""
    own = [name for name in loaded.splits if f"splits.{name}.{EXPECT}" in loaded.lines]
    shared = list(found) == list(loaded.splits) and not own
    expects = list(found.values())
    top: Mapping[str, Any] = next(iter(loaded.splits.values())).get(EXPECT) or {}
    if TOP in found or (shared and all(one == expects[0] for one in expects)):
        return [([EXPECT], expects[0], top)]
    before = {name: loaded.splits[name].get(EXPECT) or {} if name in own else {} for name in found}
    return [(["splits", name, EXPECT], expect, before[name]) for name, expect in found.items()]


def _amended(
    text: str, at: list[str], expect: Expect, before: Mapping[str, Any], changed: list[str]
) -> str:
    if not before:
        changed.append(".".join(at))
        return amend.put(text, at, expect)
    for name, said in expect.items():
        old = before.get(name) or {}
        if not old:
            changed.append(".".join([*at, name]))
            text = amend.put(text, [*at, name], said)
            continue
        for key, value in said.items():
            if key not in old or old[key] != value:
                changed.append(".".join([*at, name, key]))
                text = amend.put(text, [*at, name, key], value)
        for key in set(old) - set(said):
            changed.append(".".join([*at, name, key]))
            text = amend.drop(text, [*at, name, key])
    for name in [name for name in before if name not in expect]:
        changed.append(".".join([*at, name]))
        text = amend.drop(text, [*at, name])
    return text


def _written(path: Path, text: str, loaded: Config, found: Mapping[str, Expect]) -> None:
    """Replace the file, once a draft beside it is read as the same config with this `expect`."""
    draft = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    try:
        draft.write_bytes(text.encode("utf-8"))
        try:
            reread = config.load(str(draft))
        except UserError as error:
            raise _by_hand(loaded, found, error.message) from error
        original = config.load(str(path))
        if not _same(original, reread, found):
            raise _by_hand(loaded, found, "its form is not one that can be changed safely")
        draft.chmod(path.stat().st_mode & 0o777)
        # A link stays a link.
        draft.replace(path.resolve())
    except OSError as error:
        raise _by_hand(loaded, found, str(error.strerror)) from error
    finally:
        draft.unlink(missing_ok=True)


def _same(original: Config, reread: Config, found: Mapping[str, Expect]) -> bool:
    if unbound(original).splits != unbound(reread).splits or original.settings != reread.settings:
        return False
    for name, split in reread.splits.items():
        wanted = found.get(name, original.splits[name].get(EXPECT) or {})
        if (split.get(EXPECT) or {}) != wanted:
            return False
    return True


def _by_hand(loaded: Config, found: Mapping[str, Expect], why: str) -> UserError:
    return UserError(f"{loaded.target} was left alone: {why}", BY_HAND + fragment(found))
