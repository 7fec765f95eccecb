"""Any leaf is described without crashing, rightly, quickly, and without touching it."""

from __future__ import annotations

import collections
import enum
import math
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch")
np = pytest.importorskip("numpy")

from dlcheck.observation import Observation  # noqa: E402 - torch may be absent
from dlcheck.observers.batches import SampleCount  # noqa: E402
from dlcheck.observers.describe import Described, batch_length, describe  # noqa: E402


def table(value: Any, **options: Any) -> dict[str, tuple[Any, ...]]:
    """Path -> (type, dtype, shape)."""
    return {leaf.path: tuple(leaf[1:4]) for leaf in describe(value, **options)}


def only(value: Any) -> Described:
    (leaf,) = describe(value)
    return leaf


def values(value: Any) -> tuple[float | None, float | None, int]:
    leaf = only(value)
    return leaf.low, leaf.high, leaf.nonfinite


class Point(NamedTuple):
    x: Any
    y: int


@dataclass
class Item:
    image: Any
    label: int


@dataclass
class Slotted:
    __slots__ = ("image", "label")
    image: Any
    label: int


class Colour(enum.IntEnum):
    RED = 3


class Word(str):
    __slots__ = ()


class Ratio(float):
    pass


class Odd:
    """An object whose every property raises."""

    @property
    def __class__(self) -> Any:
        raise RuntimeError("no class")

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __len__(self) -> int:
        raise RuntimeError("no length")

    def __iter__(self) -> Any:
        raise RuntimeError("no items")


ones = torch.ones
LEAVES = {
    "float32": (ones(3, 4), ("Tensor", "float32", (3, 4))),
    "zero-size": (ones(0, 4), ("Tensor", "float32", (0, 4))),
    "0-d": (torch.tensor(7), ("Tensor", "int64", ())),
    "bfloat16": (ones(3).bfloat16(), ("Tensor", "bfloat16", (3,))),
    "half": (ones(3).half(), ("Tensor", "float16", (3,))),
    "complex": (ones(3) * 1j, ("Tensor", "complex64", (3,))),
    "bool": (ones(3) > 0, ("Tensor", "bool", (3,))),
    "uint16": (ones(3).to(torch.uint16), ("Tensor", "uint16", (3,))),
    "meta": (torch.empty(9, 9, device="meta"), ("Tensor", "float32", (9, 9))),
    "coo": (ones(3, 3).to_sparse(), ("Tensor[sparse_coo]", "float32", (3, 3))),
    "parameter": (torch.nn.Parameter(ones(2)), ("Parameter", "float32", (2,))),
    "expanded": (ones(1).expand(10**12), ("Tensor", "float32", (10**12,))),
    "array": (np.ones((3, 4), "f4"), ("ndarray", "float32", (3, 4))),
    "array, 0-d": (np.array(3), ("ndarray", "int64", ())),
    "array, empty": (np.ones((0, 3)), ("ndarray", "float64", (0, 3))),
    "array, object": (np.array([1, "a"], dtype=object), ("ndarray", "object", (2,))),
    "array, structured": (np.zeros(2, "f4,i8"), ("ndarray", "structured", (2,))),
    "array, text": (np.array(["a", "bcd"]), ("ndarray", "str", (2,))),
    "array, bytes": (np.array([b"a", b"bcd"]), ("ndarray", "bytes", (2,))),
    "array, dates": (np.array(["2020-01-01"], "M8[D]"), ("ndarray", "datetime64[D]", (1,))),
    "array, big-endian": (np.ones(2, ">f4"), ("ndarray", "float32", (2,))),
    "array, big-endian half": (np.ones(2, ">f2"), ("ndarray", "float16", (2,))),
    "array, masked": (np.ma.masked_array([1.0, 2.0]), ("MaskedArray", "float64", (2,))),
    "array, read-only": (np.frombuffer(b"abcd", "u1"), ("ndarray", "uint8", (4,))),
    "numpy scalar": (np.float32(3), ("numpy", "float32", ())),
    "numpy float64": (np.float64(3), ("numpy", "float64", ())),
    "numpy text": (np.str_("cat"), ("str", None, None)),
    "numpy bytes": (np.bytes_(b"cat"), ("numpy", "bytes", ())),
    "int": (3, ("int", None, None)),
    "huge int": (10**400, ("int", None, None)),
    "float": (3.5, ("float", None, None)),
    "bool of Python": (True, ("bool", None, None)),
    "complex of Python": (3j, ("complex", None, None)),
    "str": ("cat", ("str", None, None)),
    "bytes": (b"cat", ("bytes", None, None)),
    "None": (None, ("NoneType", None, None)),
    "int enumeration": (Colour.RED, ("int", None, None)),
    "str subclass": (Word("cat"), ("str", None, None)),
    "float subclass": (Ratio(0.5), ("float", None, None)),
    "path": (Path("x"), (type(Path("x")).__name__, None, None)),
    "pure path": (PurePosixPath("x"), ("PurePosixPath", None, None)),
    "decimal": (Decimal(3), ("Decimal", None, None)),
    "numbers": (list(range(20)), ("list[int]", None, (20,))),
    "many numbers": (tuple(map(float, range(20))), ("tuple[float]", None, (20,))),
    "set": ({1}, ("set", None, None)),
    "bytearray": (bytearray(b"x"), ("bytearray", None, None)),
    "range": (range(3), ("sequence:range", None, None)),
    "class": (Item, ("type", None, None)),
    "lambda": (lambda: 0, ("function", None, None)),
    "generator": ((i for i in range(3)), ("generator", None, None)),
    "hostile object": (Odd(), (f"{Odd.__module__}.Odd", None, None)),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", LEAVES)
def test_leaf_is_described_rightly(name: str) -> None:
    value, expected = LEAVES[name]
    assert tuple(only(value)[1:4]) == expected
    assert only({"a": value, "b": 1}["a"]) == only(value)


@pytest.mark.filterwarnings("ignore")
def test_rare_tensors_are_described() -> None:
    assert only(ones(3, 3).to_sparse_csr()).type == "Tensor[sparse_csr]"
    assert only(torch.nested.nested_tensor([ones(2), ones(3)])).type == "Tensor[nested]"
    jagged = torch.nested.nested_tensor([ones(2), ones(3)], layout=torch.jagged)
    assert only(jagged).type == "NestedTensor[jagged][nested]"
    assert only(jagged).dtype == "float32"
    quantized = torch.quantize_per_tensor(ones(3), 0.1, 0, torch.quint8)
    assert tuple(only(quantized)[1:6]) == ("Tensor", "quint8", (3,), None, None)


def test_containers_have_paths_of_their_own() -> None:
    sample = {"image": ones(3), "boxes": [{"xy": (1, 2)}, {"xy": (3, 4)}], 7: None, "e": []}
    assert table(sample) == {
        "": ("dict", None, None),
        "image": ("Tensor", "float32", (3,)),
        "boxes": ("list", None, (2,)),
        "boxes.0": ("dict", None, None),
        "boxes.0.xy": ("tuple[int]", None, (2,)),
        "boxes.1": ("dict", None, None),
        "boxes.1.xy": ("tuple[int]", None, (2,)),
        "7": ("NoneType", None, None),
        "e": ("list", None, (0,)),
    }


def test_named_tuples_and_dataclasses_keep_their_names() -> None:
    assert table(Point(ones(2), 3)) == {
        "": ("namedtuple:Point", None, None),
        "x": ("Tensor", "float32", (2,)),
        "y": ("int", None, None),
    }
    for item in (Item(ones(2), 3), Slotted(ones(2), 3)):
        assert table(item) == {
            "": (f"dataclass:{type(item).__name__}", None, None),
            "image": ("Tensor", "float32", (2,)),
            "label": ("int", None, None),
        }


def test_the_users_names_are_those_of_a_tuple_of_that_length() -> None:
    assert list(table((ones(2), 3), names=("image", "label"))) == ["", "image", "label"]
    assert list(table((ones(2), 3, 4), names=("image", "label"))) == ["", "0", "1", "2"]
    assert list(table({"a": (1, ones(1))}, names=("image", "label"))) == ["", "a", "a.0", "a.1"]


def test_ordered_dicts_user_dicts_and_deques_are_containers() -> None:
    inside = {"a": ("int", None, None)}
    for made in (collections.OrderedDict, collections.UserDict, collections.Counter):
        assert table(made({"a": 1})) == {"": ("dict", None, None)} | inside
    assert table({"d": collections.deque([1, 2])})["d"] == ("list[int]", None, (2,))


def test_str_subclass_keys_are_text() -> None:
    class Keys(str, enum.Enum):
        IMAGE = "image"

    assert list(table({Keys.IMAGE: 1, (0, 1): 2, Word("w"): 3})) == ["", "image", "(0, 1)", "w"]


def test_cycles_end() -> None:
    sample: dict[str, Any] = {"a": 1}
    sample["self"] = sample
    items: list[Any] = [ones(1)]
    items.append(items)
    assert table(sample)["self"] == ("cycle", None, None)
    assert table(items)["1"] == ("cycle", None, None)


def test_deep_nesting_ends() -> None:
    value: Any = ones(1)
    for _ in range(5000):
        value = [value]
    assert len(describe(value)) < 20


def test_ten_thousand_keys_are_cut_and_counted_quickly() -> None:
    begun = time.perf_counter()
    leaves = describe({f"key{i}": i for i in range(10_000)})
    assert time.perf_counter() - begun < 0.5
    assert len(leaves) < 600
    assert leaves[-1].type == "more"
    assert leaves[-1].shape == (10_000 - len(leaves) + 2,)


def test_a_leaf_of_a_gigabyte_is_quick() -> None:
    huge = [
        torch.zeros(1 << 30, dtype=torch.uint8),
        torch.zeros(1).expand(1 << 16, 1 << 16),
        np.broadcast_to(np.float32(3), (1 << 20, 1 << 20)),
        np.zeros(1 << 30, "u1"),
    ]
    begun = time.perf_counter()
    assert [only(value).shape for value in huge] == [tuple(value.shape) for value in huge]
    assert time.perf_counter() - begun < 2
    assert values(huge[2]) == (3.0, 3.0, 0)


RANGES = {
    "float32": (torch.tensor([1.0, -2.0]), (-2.0, 1.0, 0)),
    "nan": (torch.tensor([1.0, math.nan, -math.inf, 4.0]), (1.0, 4.0, 2)),
    "only nan": (torch.tensor([math.nan]), (None, None, 1)),
    "half": (torch.tensor([1.5, -2.0, math.inf]).half(), (-2.0, 1.5, 1)),
    "bfloat16": (torch.tensor([1.5, -2.0, math.nan]).bfloat16(), (-2.0, 1.5, 1)),
    "int64": (torch.tensor([[3, -4]]), (-4.0, 3.0, 0)),
    "uint16": (torch.tensor([3, 65535]).to(torch.uint16), (3.0, 65535.0, 0)),
    "float8": (torch.tensor([1.0, -2.0]).to(torch.float8_e4m3fn), (-2.0, 1.0, 0)),
    "grad": (torch.tensor([1.0, 2.0], requires_grad=True), (1.0, 2.0, 0)),
    "negative bit": (torch.tensor([1j, 3j]).conj().imag, (-3.0, -1.0, 0)),
    "negative zero": (torch.tensor([-0.0]), (0.0, 0.0, 0)),
    "array": (np.array([1.0, np.nan, -2.0]), (-2.0, 1.0, 1)),
    "array, half": (np.array([1.0, np.nan, -2.0, np.inf], "f2"), (-2.0, 1.0, 2)),
    "array, flipped": (np.arange(4)[::-1], (0.0, 3.0, 0)),
    "list": ([1.0, math.inf, -3.0] * 4, (-3.0, 1.0, 4)),
    "list with nan first": ([math.nan, 2.0, 5.0] * 4, (2.0, 5.0, 4)),
    "float": (math.nan, (None, None, 1)),
    "int enumeration": (Colour.RED, (3.0, 3.0, 0)),
    "bool": (torch.tensor([True]), (None, None, 0)),
}


@pytest.mark.parametrize("name", RANGES)
def test_range_is_that_of_finite_values(name: str) -> None:
    value, expected = RANGES[name]
    assert values(value) == expected


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "uint8", "int64"])
def test_large_tensors_have_the_same_range_by_either_way(dtype: str, threads: int) -> None:
    before = torch.get_num_threads()
    generator = torch.Generator().manual_seed(0)
    whole = (torch.rand(3, 200, 200, generator=generator) * 200).to(getattr(torch, dtype))
    cut, repeated = whole[:, 5:190, 7:180], whole[0, 0].expand(900, 200)
    views = [whole, whole.permute(1, 2, 0), cut, whole[:, ::2], repeated]
    try:
        torch.set_num_threads(threads)
        for view in views:
            assert values(view) == (float(view.min()), float(view.max()), 0)
        if whole.is_floating_point():
            whole[0, 0, 0], whole[1, 2, 3] = math.nan, math.inf
            finite = whole[whole.isfinite()]
            assert values(whole) == (float(finite.min()), float(finite.max()), 2)
    finally:
        torch.set_num_threads(before)


def test_half_floats_are_compared_rightly() -> None:
    bits = np.arange(1 << 16, dtype="u2").view("f2")
    for part in np.array_split(np.random.default_rng(0).permutation(bits), 50):
        finite = part[np.isfinite(part)].astype("f8")
        assert values(part) == (finite.min(), finite.max(), len(part) - len(finite))


class TestSubclasses:
    def test_of_torchvision_and_monai_keep_their_names(self) -> None:
        tv_tensors = pytest.importorskip("torchvision.tv_tensors")
        image = tv_tensors.Image(ones(3, 4, 5))
        assert tuple(only(image)[1:6]) == ("Image", "float32", (3, 4, 5), 1.0, 1.0)

    @pytest.mark.filterwarnings("ignore")
    def test_meta_tensor(self) -> None:
        monai = pytest.importorskip("monai.data.meta_tensor")
        tensor = monai.MetaTensor(ones(1, 4))
        assert tuple(only(tensor)[1:6]) == ("MetaTensor", "float32", (1, 4), 1.0, 1.0)

    def test_that_raise_are_read_by_their_base(self) -> None:
        class Hostile(torch.Tensor):
            @property
            def shape(self) -> Any:
                raise RuntimeError("no shape")

            @classmethod
            def __torch_function__(cls, *args: Any, **kwargs: Any) -> Any:
                raise RuntimeError("no function")

        class HostileArray(np.ndarray):
            @property
            def dtype(self) -> Any:
                raise RuntimeError("no dtype")

            def __array_function__(self, *args: Any, **kwargs: Any) -> Any:
                raise RuntimeError("no function")

            def __array_ufunc__(self, *args: Any, **kwargs: Any) -> Any:
                raise RuntimeError("no ufunc")

        tensor = ones(3).as_subclass(Hostile)
        assert tuple(only(tensor)[1:4]) == ("Hostile", "float32", (3,))
        array = np.ones(3).view(HostileArray)
        assert tuple(only(array)[1:6]) == ("HostileArray", "float64", (3,), 1.0, 1.0)

    @pytest.mark.usefixtures("no_device_faked")
    def test_that_answer_operations_themselves_are_not_asked(self) -> None:
        from torch._subclasses.fake_tensor import FakeTensorMode

        with FakeTensorMode():
            fake = torch.ones(3, 4)
        assert tuple(only(fake)[1:6]) == ("FakeTensor", "float32", (3, 4), None, None)

    def test_of_containers_are_read_past_their_own_methods(self) -> None:
        class Loud(dict):
            def _no(self, *args: Any) -> Any:
                raise RuntimeError("read")

            items = keys = values = __iter__ = __getitem__ = __len__ = _no

        class LoudList(list):
            def _no(self, *args: Any) -> Any:
                raise RuntimeError("read")

            __iter__ = __getitem__ = __len__ = _no

        assert table(Loud(a=1)) == {"": ("dict", None, None), "a": ("int", None, None)}
        assert table({"l": LoudList([1, 2])})["l"] == ("list[int]", None, (2,))


def test_pictures_are_described_unread(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    path = tmp_path / "a.png"
    image.new("RGB", (40, 30)).save(path)
    lazy = image.open(path)
    assert tuple(only(lazy)[1:4]) == ("PIL.Image", "RGB", (30, 40))
    assert lazy.fp is not None, "the file was not read"
    lazy.close()
    assert tuple(only(lazy)[1:4]) == ("PIL.Image", "RGB", (30, 40))


def test_lazy_mappings_stay_closed() -> None:
    class Lazy(Mapping[str, Any]):
        def __getitem__(self, key: str) -> Any:
            raise RuntimeError("read")

        def __iter__(self) -> Iterator[str]:
            raise RuntimeError("read")

        def __len__(self) -> int:
            raise RuntimeError("read")

    assert only(Lazy()).type == "mapping:test_lazy_mappings_stay_closed.<locals>.Lazy"


class TestHandsOff:
    """Describing changes nothing."""

    def test_storage_stays_resizable(self) -> None:
        for size in (10, 100_000):
            tensor = torch.rand(size)
            describe({"a": tensor, "b": [tensor]})
            assert tensor.untyped_storage().resizable()
            assert tensor._version == 0

    def test_random_streams_are_untouched(self) -> None:
        before = random.getstate(), torch.get_rng_state(), np.random.get_state()[1].copy()
        describe([ones(3), np.ones(3), 3, {"a": np.float32(3)}])
        assert random.getstate() == before[0]
        assert torch.equal(torch.get_rng_state(), before[1])
        assert np.array_equal(np.random.get_state()[1], before[2])

    def test_gradients_are_seen_and_left_alone(self) -> None:
        tensor = torch.ones(3, requires_grad=True) * 2
        assert only(tensor).grad
        assert tensor.grad_fn is not None
        assert not only(ones(3)).grad

    @pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts threads in /proc")
    def test_no_thread_is_started(self) -> None:
        code = (
            "import os, torch, numpy as np\n"
            "from dlcheck.observers.describe import describe\n"
            "torch.set_num_threads(4)\n"
            "base = np.zeros((3, 500, 500), 'f4')\n"
            "base[0, 0, 0] = np.nan\n"
            "kinds = [torch.from_numpy(base.astype(k)) for k in ('f4', 'f8', 'f2')]\n"
            "now = len(os.listdir('/proc/self/task'))\n"
            "for t in kinds:\n"
            "    describe([t, t[:, 3:400, 5:300], t.permute(1, 2, 0)])\n"
            "assert now == len(os.listdir('/proc/self/task')), 'describe'\n"
            "kinds[0].isfinite()\n"
            "assert now < len(os.listdir('/proc/self/task')), 'torch itself'\n"
        )
        environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
        subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, env=environment)


def test_without_values_no_range_is_computed() -> None:
    leaves = describe([ones(3), np.ones(3), [1, 2]], values=False)
    assert all(leaf.low is None for leaf in leaves)


BATCHES = {
    "two fields agree": ([ones(8, 3), ones(8)], 8),
    "names beside": ({"image": ones(8, 3, 4, 4), "name": ["a"] * 8}, 8),
    "one image": (ones(3, 32, 32), 1),
    "one batch of images": (ones(8, 3, 32, 32), 8),
    "nothing that counts": ("x", 1),
}


@pytest.mark.parametrize("name", BATCHES)
def test_length_of_a_ready_made_batch(name: str) -> None:
    batch, length = BATCHES[name]
    assert batch_length(describe(batch)) == length


class TestSampleCount:
    def test_counts_shapes_types_and_ranges(self) -> None:
        seen = SampleCount()
        for index in range(5):
            seen.add(index, (torch.full((2, 2 + index % 2), float(index)), "name"))
        split = Observation.from_json({"splits": {"": seen.split()}}).splits[""]
        assert split.samples == 5
        assert {k: (t.n, t.at) for k, t in split.fields["0"].shapes.items()} == {
            "2x2": (3, (0, 2, 4)),
            "2x3": (2, (1, 3)),
        }
        assert (split.fields["0"].low, split.fields["0"].high) == (0.0, 4.0)
        assert set(split.fields["1"].types) == {"str"}
        assert len(split.structures) == 1

    def test_tells_structures_apart(self) -> None:
        seen = SampleCount()
        for index, sample in enumerate([{"a": 1}, {"a": None}, {"a": 1, "b": 2}, {"a": 7}]):
            seen.add(index, sample)
        found = seen.structures()
        assert sorted(one["seen"]["n"] for one in found.values()) == [1, 1, 2]

    def test_names_samples_with_nan_and_gradient(self) -> None:
        seen = SampleCount()
        seen.add(0, ones(2))
        seen.add(1, torch.tensor([math.nan, 1.0]))
        seen.add(2, torch.ones(2, requires_grad=True))
        field = seen.fields()[""]
        assert field["nonfinite"] == {"n": 1, "at": [1]}
        assert field["grad"] == {"n": 1, "at": [2]}


FLAT = {
    "tensor and label": (torch.rand(3, 8, 8), 3),
    "numbers and words": (1, 2.5, True, "cat", None, b"x", 1j),
    "not finite": (torch.tensor([1.0, float("nan")]), float("inf")),
    "odd tensors": (torch.zeros(0), torch.eye(3).to_sparse(), torch.rand(2, requires_grad=True)),
    "views and bits": (torch.rand(4, 6).t()[::2], torch.rand(8).bfloat16(), torch.ones(2) > 0),
}


@pytest.mark.parametrize("sample", FLAT.values(), ids=list(FLAT))
@pytest.mark.parametrize("values", [True, False])
def test_the_short_way_of_flat_samples_says_what_the_long_one_says(
    sample: tuple[Any, ...], *, values: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def told(names: tuple[str, ...]) -> tuple[list[Described], list[tuple[Described, bool]]]:
        shown: list[tuple[Described, bool]] = []

        def look(leaf: Described, value: Any, line: Any) -> None:
            shown.append((leaf, line is None))

        return describe(sample, values=values, names=names, look=look), shown

    names = ("", "abc"[: len(sample)], "abcdefg"[: len(sample)])
    short = [told(tuple(one)) for one in names]
    monkeypatch.setattr("dlcheck.observers.describe._flat", lambda *_, **__: False)
    assert short == [told(tuple(one)) for one in names]
