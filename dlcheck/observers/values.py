"""What samples hold, cheaply: hashes of their arrays, the ids of integer fields, their boxes.

Of each array some hundred elements are read, on one thread, without touching the user's
storage; what was learnt of a field once (too many different numbers to be ids) is remembered.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import itertools
import math
import sys
import zlib
from collections.abc import Iterable
from typing import Any

from dlcheck.observation import EXAMPLES, SampleId, sample_order
from dlcheck.observation.contents import BUCKET, MOST_CONTENTS, MOST_EQUAL
from dlcheck.observers.boxes import MATRIX, BoxCount, may_be_boxes
from dlcheck.observers.describe import Described, Names, describe
from dlcheck.observers.ranges import READABLE, line_of
from dlcheck.run.torch_private import plain_tensors

READ = 512
SMALL = 1 << 16
PLACES = 32
RUN = 8
FEWEST = 256
MOST_IDS = 64
HASHED = 2
MOST_LOOKS = 1_000
# Integers of each width: hashes and ids need the bits alone.
WIDTHS = {1: "u1", 2: "u2", 4: "i4", 8: "i8"}
DIGEST = 6
SPACE = 1 << (8 * DIGEST)
WHOLE = frozenset(
    {"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"}
)  # fmt: skip


class Memory:
    """What one process has learnt of a split's fields, from its first batch to its last."""

    def __init__(self) -> None:
        self.many: set[str] = set()
        self.hashed: dict[str, int] = {}
        # Boxes are counted in the first epoch alone.
        self.again = False

    def keeps(self, path: str, key: str) -> bool:
        """Tell whether a hash belongs to the smallest that are kept of a field."""
        count = self.hashed[path] = self.hashed.get(path, 0) + 1
        return count <= MOST_CONTENTS or int(key, 16) < SPACE * MOST_CONTENTS // count


class Values:
    """Collects, sample by sample, what a batch's samples hold."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.held: list[tuple[int, Described, Any, Any]] = []
        self.boxlike: list[tuple[str, Any]] = []
        self.ids: dict[str, dict[str, list[SampleId]]] = {}
        self.constant: dict[str, list[SampleId]] = {}
        self.contents: dict[str, dict[str, list[SampleId]]] = {}
        self.series: dict[str, list[tuple[int, SampleId]]] = {}
        self.boxes = BoxCount()
        self.found: dict[str, set[int]] = {}

    def look(self, leaf: Described, value: Any, line: Any) -> None:
        """Take note of an array or tensor of the sample that is being described."""
        path, _, dtype, shape, low, high, _, _ = leaf
        if shape is None:
            return
        size = math.prod(shape) if line is None else line.size
        if size >= FEWEST:
            self.held.append((size, leaf, value, line))
        if len(shape) == MATRIX and not self.memory.again and may_be_boxes(leaf):
            self.boxlike.append((path, value))
        if dtype in WHOLE and size > 1 and path not in self.memory.many:
            if low == high and low is not None:
                self.found[path] = {int(low)}
            else:
                self.found[path] = distinct(value, str(dtype), line)

    def end(self, index: SampleId, leaves: list[Described]) -> None:
        """Count what was noted of a sample."""
        for leaf in leaves:
            low = leaf[4]
            if low is None or low != leaf[5]:
                continue
            shape = leaf[3]
            if not shape or math.prod(shape) == 1:
                if low.is_integer() and _whole(leaf):
                    self.series.setdefault(leaf[0], []).append((int(low), index))
            elif leaf[2] and not leaf[6] and math.prod(shape) >= FEWEST:
                self.constant.setdefault(leaf[0], []).append(index)
        if self.held:
            self.hash(index)
            self.held = []
        if self.found:
            for path, ids in self.found.items():
                self.count(path, ids, index)
            self.found = {}
        if self.boxlike:
            self.boxes.add(index, self.boxlike, leaves)
            self.boxlike = []

    def count(self, path: str, ids: Iterable[int], index: SampleId) -> None:
        """Count the ids of one field of one sample, as long as they are few."""
        if path in self.memory.many:
            return
        known = self.ids.setdefault(path, {})
        for one in ids:
            known.setdefault(str(one), []).append(index)
        if len(known) > MOST_IDS:
            self.memory.many.add(path)

    def hash(self, index: SampleId) -> None:
        """Hash the largest arrays of a sample."""
        held = self.held
        if len(held) > 1:
            # Label maps are equal rightly, and the images beside them tell more.
            kept = [one for one in held if not 0 < len(self.found.get(one[1][0], ())) <= MOST_IDS]
            held = sorted(kept or held, key=lambda one: -one[0])
        for _, leaf, value, line in held[:HASHED]:
            path, key = leaf[0], content_of(value, leaf, line)
            if key is not None and self.memory.keeps(path, key):
                self.contents.setdefault(path, {}).setdefault(key, []).append(index)

    def fields(self, *, drawn: bool) -> dict[str, dict[str, Any]]:
        """Return what belongs to each Field, in JSON; of series drawn as the loader draws them."""
        found: dict[str, dict[str, Any]] = {}
        for path, series in self.series.items():
            for value, index in series:
                self.count(path, (value,), index)
        for path, ids in self.ids.items():
            some = list(ids.items())[: MOST_IDS + 1]
            found.setdefault(path, {})["values"] = {key: _tally(at) for key, at in some}
        for path, indices in self.constant.items():
            found.setdefault(path, {})["constant"] = _tally(indices)
        for path, series in self.series.items() if drawn else ():
            if len(series) > 1 and path not in self.memory.many:
                drawn_values = [value for value, _ in series]
                pairs = list(itertools.pairwise(drawn_values))
                found.setdefault(path, {})["runs"] = {
                    "batches": 1, "single": int(len(set(drawn_values)) == 1),
                    "pairs": len(pairs), "same": sum(a == b for a, b in pairs),
                }  # fmt: skip
        return found

    def split(self) -> dict[str, Any]:
        """Return what belongs to the Split, in JSON."""
        part: dict[str, Any] = {}
        if self.contents:
            part["contents"] = {path: _contents(seen) for path, seen in self.contents.items()}
        if self.boxes.found:
            part["boxes"] = self.boxes.found
        return part


def _whole(leaf: Described) -> bool:
    return leaf.type == "int" if leaf.dtype is None else leaf.dtype in WHOLE


def _tally(indices: list[SampleId]) -> dict[str, Any]:
    return {"n": len(indices), "at": sorted(set(indices), key=sample_order)[:EXAMPLES]}


def _contents(seen: dict[str, list[SampleId]]) -> dict[str, Any]:
    """Return Contents in JSON."""
    buckets: dict[str, dict[str, list[SampleId]]] = {}
    for key, at in seen.items():
        few = at if len(at) == 1 else sorted(set(at), key=sample_order)[:MOST_EQUAL]
        buckets.setdefault(key[-BUCKET:], {})[key] = few
    return {"n": sum(map(len, seen.values())), "buckets": buckets}


def contents_of(value: Any, names: Names) -> tuple[dict[str, str], dict[str, str]]:
    """Hash the arrays of a finished sample, by field: as the drive does, and every byte of each."""
    found: dict[str, str] = {}
    whole: dict[str, str] = {}

    def look(leaf: Described, array: Any, line: Any) -> None:
        if leaf.shape is not None and math.prod(leaf.shape) >= FEWEST:
            key = content_of(array, leaf, line)
            if key is not None:
                found[leaf.path] = key
                whole[leaf.path] = digest(array) or key

    describe(value, names=names, look=look)
    return found, whole


def digest(value: Any) -> str:
    """Hash every byte of an array; empty where it cannot be read."""
    torch = sys.modules.get("torch")
    try:
        if torch is not None and isinstance(value, torch.Tensor):
            with plain_tensors():
                value = value.detach().contiguous().flatten().view(torch.uint8).numpy()
        data = sys.modules["numpy"].ascontiguousarray(value).tobytes()
    except Exception:  # noqa: BLE001 - a dtype or a subclass that refuses
        return ""
    return hashlib.blake2b(data, digest_size=DIGEST).hexdigest()


def content_of(value: Any, leaf: Described | None = None, line: Any = None) -> str | None:
    """Hash shape, dtype, range and some hundred elements of an array; None where there are none.

    Arrays with another order in memory have another hash. `leaf`: what is known of it; `line`: its
    memory, where that is known.
    """
    try:
        if line is None:
            line = _line(value)
        if line is None:
            some, shape, name = _some(value)
        else:
            some = _pieces(line)
            shape, name = (value.shape, value.dtype) if leaf is None else (leaf[3], leaf[2])
        if some is None:
            return None
        look = _LOOKS.get((name, shape)) or _look(name, shape)
        if leaf is not None:
            look ^= hash((leaf[4] or 0.0, leaf[5] or 0.0)) & 0xFFFFFFFF
        held = some.tobytes()
    except Exception:  # noqa: BLE001 - storage that is not there, or a subclass's refusal
        return None
    return f"{zlib.crc32(held, look):08x}{look & 0xFFFF:04x}"


def _line(value: Any) -> Any:
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.Tensor):
        return None
    with plain_tensors():
        return line_of(value, str(value.dtype).removeprefix("torch."))


def _pieces(line: Any) -> Any:
    """Take some hundred elements of an array: single ones of a small one, runs of a large one.

    Runs lie in few lines of the processor's cache: reading 512 places costs as much as a pass
    over a whole image. Images with a wide even background may agree in what is read; who speaks
    of equal ones compares the digests of single draws.
    """
    size = line.size
    if size <= SMALL:
        return line[:: _step(size)]
    step = (size // PLACES) | 1
    rows = size // step
    return line[: rows * step].reshape(rows, step)[:, :RUN]


_LOOKS: dict[tuple[Any, Any], int] = {}


def _look(name: Any, shape: Any) -> int:
    """Return what tells arrays of one dtype and shape from others: where the sums begin."""
    if len(_LOOKS) > MOST_LOOKS:
        _LOOKS.clear()
    text = f"{str(name).removeprefix('torch.')}{tuple(shape)}"
    return _LOOKS.setdefault((name, shape), zlib.crc32(text.encode()))


def distinct(value: Any, dtype: str, line: Any = None) -> set[int]:
    """Return the different integers among some hundred elements; of fewer, among all.

    `line`: the array's memory, where it is known.
    """
    if line is not None:
        return set(line[:: _step(line.size)].tolist())
    with contextlib.suppress(Exception):
        some, _, _ = _some(value)
        if some is not None:
            native = some.dtype.isnative and some.dtype.itemsize == int(READABLE[dtype][1])
            return set((some.view(READABLE[dtype]) if native else some).tolist())
    return set()


def _some(value: Any) -> tuple[Any, Any, Any]:
    """Copy some hundred elements, evenly spread, as an array of their own."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        if type(value) is torch.Tensor:
            return _of_tensor(torch, value)
        with plain_tensors():
            return _of_tensor(torch, value)
    array = sys.modules["numpy"].asarray(value)
    if array.dtype.kind not in "iufbc":
        return None, (), ""
    line = array if array.flags.c_contiguous else array.T
    if line.flags.c_contiguous:
        flat = line.reshape(-1)
        return flat[:: _step(flat.size)], array.shape, array.dtype
    return _cut(array), array.shape, array.dtype


def _of_tensor(torch: Any, value: Any) -> tuple[Any, Any, Any]:
    if value.layout != torch.strided or not value.is_cpu:
        return None, (), ""
    width = value.element_size()
    code = WIDTHS.get(width)
    if code and value.is_contiguous() and not value.is_neg():
        # The address spares torch's dispatch, and leaves the storage resizable.
        size = value.numel()
        memory = (ctypes.c_char * (size * width)).from_address(value.data_ptr())
        flat = sys.modules["numpy"].frombuffer(memory, code)
        return flat[:: _step(size)], value.shape, value.dtype
    plain = value.detach()
    size = plain.numel()
    step = _step(size)
    if _dense(plain):
        count = (size + step - 1) // step
        some = torch.as_strided(plain, (count,), (step,), plain.storage_offset()).clone()
    else:
        some = _cut(plain).clone()
    if some.dtype == torch.bfloat16:
        some = some.view(torch.int16)
    return some.numpy(), value.shape, value.dtype


def _dense(plain: Any) -> bool:
    """Tell whether the elements lie without a gap, in whatever order of axes."""
    step = 1
    for stride, length in sorted(zip(plain.stride(), plain.shape, strict=True)):
        if length > 1 and stride != step:
            return False
        step *= length
    return True


def _cut(array: Any) -> Any:
    """Take some of every axis, all of the short ones."""
    spare, steps = READ, [1] * len(array.shape)
    order = sorted(range(len(array.shape)), key=lambda axis: int(array.shape[axis]))
    for place, axis in enumerate(order):
        length = int(array.shape[axis])
        wanted = min(length, math.ceil(spare ** (1 / (len(order) - place))))
        steps[axis] = length // wanted | 1 if 0 < wanted < length else 1
        spare = max(1, spare // max(1, wanted))
    return array[tuple(slice(None, None, step) for step in steps)]


def _step(size: int) -> int:
    """Step to some hundred of `size` elements; odd, so that it meets every column."""
    return size // READ | 1 if size > READ else 1
