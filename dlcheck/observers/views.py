"""Tensors of a batch that are small views of large storages, and the lines that make them."""

from __future__ import annotations

import collections
from types import FrameType
from typing import Any

from dlcheck.observers.roots import items_of
from dlcheck.observers.sizes import Sizes, is_a
from dlcheck.observers.starters import Lines, Place

TIMES = 4
LEAST = 1 << 16
MOST_ITEMS = 64
DEEPEST = 3


class Views(Lines):
    """Follows the user's lines until a variable holds a small view of a large storage."""

    def __init__(self, deadline: float) -> None:
        super().__init__({}, {}, deadline)
        self.sizes = Sizes()
        self.first: dict[int, Place] = {}
        self.fields: dict[str, list[int]] = collections.defaultdict(lambda: [0, 0, 0])
        self.places: dict[str, Place] = {}

    def _look(self, frame: FrameType) -> None:
        last = getattr(self.local, "last", None)
        if last is None:
            return
        for value in list(last[2].f_locals.values()):
            for _, tensor in self._tensors("", value, DEEPEST - 1):
                pointer, used, whole = _storage(tensor)
                if pointer not in self.first and _small(used, whole):
                    self.first[pointer] = self._place(last, frame)

    def _tensors(self, path: str, value: Any, deep: int) -> list[tuple[str, Any]]:
        if is_a(value, self.sizes.tensor):
            return [(path, value)] if value.device.type == "cpu" else []
        if deep <= 0 or not is_a(value, (dict, list, tuple)):
            return []
        pairs = list(dict.items(value) if is_a(value, dict) else enumerate(items_of(value)))
        found = []
        for key, item in pairs[:MOST_ITEMS]:
            found += self._tensors(f"{path}.{key}".lstrip("."), item, deep - 1)
        return found

    def batch(self, value: Any) -> None:
        """Sum what each field of a batch uses of its storages, each storage once a batch."""
        storages: dict[int, list[Any]] = {}
        for path, tensor in self._tensors("", value, DEEPEST):
            pointer, used, whole = _storage(tensor)
            # The samples of a list are one field.
            field = ".".join(part for part in path.split(".") if not part.isdigit()) or path
            storages.setdefault(pointer, [field, 0, whole])[1] += used
        for pointer, (field, used, whole) in storages.items():
            if _small(used, whole):
                row = self.fields[field]
                row[0], row[1], row[2] = row[0] + used, row[1] + whole, row[2] + 1
                if pointer in self.first:
                    self.places.setdefault(field, self.first[pointer])
        self.first.clear()


def _storage(tensor: Any) -> tuple[int, int, int]:
    """Return (pointer, bytes used, bytes of the storage)."""
    try:
        storage = tensor.untyped_storage()
        return storage.data_ptr(), tensor.numel() * tensor.element_size(), storage.nbytes()
    except Exception:  # noqa: BLE001 - sparse, meta and fake tensors have none
        return 0, 0, 0


def _small(used: int, whole: int) -> bool:
    return whole >= TIMES * max(used, 1) and whole - used >= LEAST
