"""How much memory an object takes: Python's own, arrays with their bases, tensors' storages."""

from __future__ import annotations

import array
import collections
import contextlib
import functools
import io
import mmap
import socket
import sys
import threading
from typing import Any

SCALARS = (int, float, complex, bool, str, bytes, type(None))
BUFFERS = (bytearray, array.array, io.BytesIO, io.StringIO)
SIZED = (dict, list, tuple, set, frozenset, collections.deque, str, bytes, bytearray, array.array)
OPEN = (io.FileIO, socket.socket, mmap.mmap)
CACHE = type(functools.lru_cache(print))


class Sizes:
    """Counts leaves to names, each block of memory once."""

    def __init__(self) -> None:
        self.blocks: set[Any] = set()
        self.ndarray: Any = getattr(sys.modules.get("numpy"), "ndarray", None)
        self.tensor: Any = getattr(sys.modules.get("torch"), "Tensor", None)
        self.picture: Any = getattr(sys.modules.get("PIL.Image"), "Image", None)

    def is_leaf(self, value: Any) -> bool:
        """Tell what is counted by its memory, not by what it refers to."""
        kind = type(value)
        if kind in SCALARS or kind in BUFFERS:
            return True
        for base in (self.ndarray, self.tensor, self.picture):
            if base is not None and issubclass(kind, base):
                return True
        return False

    def add(self, value: Any, node: Any) -> None:
        """Count a leaf to a name: anything with bytes, objects, used, whole, shared, graphs."""
        key: Any = id(value)
        if key in self.blocks:
            return
        self.blocks.add(key)
        node.objects += 1
        with contextlib.suppress(Exception):
            if is_a(value, self.ndarray):
                self._add_array(value, node)
            elif is_a(value, self.tensor):
                self._add_tensor(value, node)
            elif is_a(value, self.picture):
                width, height = value.size
                node.bytes += width * height * len(value.getbands())
            else:
                node.bytes += sys.getsizeof(value)

    def _add_array(self, value: Any, node: Any) -> None:
        base = value
        while is_a(base.base, self.ndarray):
            base = base.base
        # The header of the array itself, as one of a million small ones.
        size = self.ndarray.__sizeof__(value)
        node.bytes += size - (value.nbytes if value.base is None else 0)
        if base.base is not None and (is_a(base.base, mmap.mmap) or self.is_leaf(base.base)):
            node.used += value.nbytes
            return
        self._block(base.__array_interface__["data"][0], base.nbytes, value.nbytes, node)

    def _add_tensor(self, value: Any, node: Any) -> None:
        from dlcheck.run.torch_private import plain_tensors

        with plain_tensors():
            if value.grad_fn is not None:
                self._add_graph(value.grad_fn, node)
            if value.device.type != "cpu" or value.layout is not sys.modules["torch"].strided:
                return
            storage = value.untyped_storage()
            used = value.numel() * value.element_size()
            if storage.is_shared() and storage.data_ptr() not in self.blocks:
                node.shared += storage.nbytes()
                node.handles += 1
            self._block(storage.data_ptr(), storage.nbytes(), used, node)

    def _add_graph(self, start: Any, node: Any) -> None:
        """Count the nodes of a graph that were not met before, and the tensors that they saved."""
        queue, saved = [start], list[Any]()
        while queue and len(saved) < MOST_GRAPH:
            one = queue.pop()
            key = ("graph", one)
            if one is None or key in self.blocks:
                continue
            self.blocks.add(key)
            node.graphs += 1
            node.bytes += GRAPH_NODE
            queue += [before for before, _ in one.next_functions]
            saved += saved_by(one)
        for tensor in saved:
            storage = tensor.untyped_storage()
            self._block(storage.data_ptr(), storage.nbytes(), storage.nbytes(), node)

    def _block(self, pointer: int, whole: int, used: int, node: Any) -> None:
        node.used += used
        if whole and pointer not in self.blocks:
            self.blocks.add(pointer)
            node.bytes += whole
            node.whole += whole

    def inside(self, value: Any) -> list[Any]:
        """List what a leaf refers to all the same: objects, the owner of foreign memory, a file."""
        with contextlib.suppress(Exception):
            if is_a(value, self.picture):
                return [vars(value).get("fp"), vars(value).get("_fp")]
            if is_a(value, self.ndarray):
                if value.dtype.hasobject:
                    return list(self.ndarray.tolist(value.reshape(-1)))
                base = value.base
                while is_a(base, self.ndarray):
                    base = base.base
                return [] if base is None else [base]
        return []

    def bytes_of(self, batch: Any) -> int:
        """Return the bytes of the arrays of a batch."""
        total, queue = 0, [batch]
        while queue:
            one = queue.pop()
            if isinstance(one, dict):
                queue += one.values()
            elif isinstance(one, list | tuple):
                queue += one
            elif self.is_leaf(one):
                with contextlib.suppress(Exception):
                    total += int(one.nbytes)
        return total

    def mark(self, value: Any, node: Any) -> None:
        """Count an object to a name, and what it stands for besides memory."""
        node.bytes += self.shallow(value)
        node.objects += 1
        if is_a(value, threading.Thread):
            node.threads += 1
        elif is_a(value, OPEN):
            node.handles += not _closed(value)
        elif type(value).__name__ in ("Popen", "Process", "ForkProcess", "SpawnProcess"):
            node.children += 1

    def shallow(self, value: Any) -> int:
        """Return the bytes of an object without what it refers to; runs no `__sizeof__`."""
        kind = type(value)
        for base in SIZED:
            if issubclass(kind, base):
                return int(base.__sizeof__(value))
        return int(kind.__basicsize__)


def is_a(value: Any, kinds: Any) -> bool:
    """Tell by the type alone: isinstance would ask a `__class__` of the user's."""
    return kinds is not None and issubclass(type(value), kinds)


def _closed(value: Any) -> bool:
    """Tell a closed file or socket, by the built-in types' own answer."""
    if is_a(value, io.FileIO):
        return bool(vars(io.FileIO)["closed"].__get__(value))
    if is_a(value, socket.socket):
        return socket.socket.fileno(value) < 0
    return bool(vars(mmap.mmap)["closed"].__get__(value))


MOST_GRAPH = 20_000
# A node of a graph with its metadata, roughly: 31 KiB for the 36 of one step were measured.
GRAPH_NODE = 512
SAVED: dict[type, list[str]] = {}


def saved_by(node: Any) -> list[Any]:
    """List the tensors that a node of a graph keeps for the backward pass."""
    kind, tensor = type(node), sys.modules["torch"].Tensor
    if kind not in SAVED:
        SAVED[kind] = [name for name in dir(kind) if name.startswith("_saved_")]
    found: list[Any] = []
    for name in SAVED[kind]:
        # Those that a backward pass has freed raise.
        with contextlib.suppress(Exception):
            value = getattr(node, name)
            values = value if isinstance(value, tuple | list) else (value,)
            found += [one for one in values if isinstance(one, tensor)]
    return found


def length_of(value: Any) -> tuple[int | None, int | None]:
    """Return (items, most items) of Python's own containers and caches; runs no `__len__`."""
    if is_a(value, CACHE):
        info = value.cache_info()
        return info.currsize, info.maxsize
    if is_a(value, collections.deque):
        return collections.deque.__len__(value), value.maxlen
    for base in SIZED:
        if base is not str and is_a(value, base):
            return base.__len__(value), None
    return None, None
