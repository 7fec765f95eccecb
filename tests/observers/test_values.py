"""What is read of samples' values: hashes, ids, runs, blanks; mergeable, and nothing is touched."""

from __future__ import annotations

from typing import Any

import pytest

from dlcheck.observation import Contents, Observation, Runs
from dlcheck.observers.batches import SampleCount
from dlcheck.observers.values import Memory, content_of, contents_of, distinct

torch = pytest.importorskip("torch")
np = pytest.importorskip("numpy")


def split(*samples: Any, memory: Memory | None = None) -> Any:
    seen = SampleCount((), memory or Memory())
    for index, sample in enumerate(samples):
        seen.add(index, sample)
    return Observation.from_json({"splits": {"": seen.split()}}).splits[""]


LAYOUTS = {
    "contiguous": lambda: torch.randn(3, 64, 64),
    "permuted": lambda: torch.randn(64, 64, 3).permute(2, 0, 1),
    "cut out": lambda: torch.randn(3, 90, 90)[:, 5:69, 5:69],
    "bytes": lambda: torch.randint(0, 255, (3, 64, 64), dtype=torch.uint8),
    "half": lambda: torch.randn(3, 64, 64).half(),
    "bfloat16": lambda: torch.randn(3, 64, 64).bfloat16(),
    "with grad": lambda: torch.randn(3, 64, 64, requires_grad=True),
    "array": lambda: np.random.rand(3, 64, 64),
    "fortran": lambda: np.asfortranarray(np.random.rand(3, 64, 64)),
    "strided": lambda: np.random.rand(3, 64, 128)[:, :, ::2],
    "reversed": lambda: np.random.rand(3, 64, 64)[:, :, ::-1],
    "wide row": lambda: np.random.rand(1, 100_000),
    "deep": lambda: torch.randn(2, 3, 4, 5, 6),
}


@pytest.mark.parametrize("make", LAYOUTS.values(), ids=list(LAYOUTS))
def test_equal_arrays_have_equal_hashes_and_others_do_not(make: Any) -> None:
    one, other = make(), make()
    assert content_of(one[:]) == content_of(one) is not None
    assert content_of(other) != content_of(one)


def test_shape_and_dtype_belong_to_the_content() -> None:
    zeros = torch.zeros(3, 64, 64)
    assert content_of(zeros) != content_of(torch.zeros(3, 32, 128))
    assert content_of(zeros) != content_of(torch.zeros(3, 64, 64, dtype=torch.int32))


@pytest.mark.parametrize(
    "value",
    [
        torch.zeros(300, device="meta"),
        torch.eye(40).to_sparse(),
        np.array(["a"] * 300),
        np.array([object()] * 300, dtype=object),
    ],
    ids=["meta", "sparse", "text", "objects"],
)
def test_what_has_no_memory_to_read_has_no_content(value: Any) -> None:
    assert content_of(value) is None


def test_reading_leaves_the_storage_as_it_was() -> None:
    value = torch.randn(3, 64, 64)
    before = value.clone()
    content_of(value)
    distinct(torch.arange(1000), "int64")
    assert torch.equal(value, before)
    value.resize_(4, 64, 64)


def test_the_largest_arrays_are_hashed_and_label_maps_are_not() -> None:
    image, mask = torch.randn(3, 64, 64), torch.randint(0, 5, (64, 64))
    seen = split((image, mask, 1), (image, mask, 2))
    assert [list(c.seen.values()) for c in seen.contents.values()] == [[(0, 1)]]
    assert list(seen.contents) == ["0"]
    assert seen.contents["0"].seen.keys() == {contents_of((image, mask, 1), ())[0]["0"]}


def test_a_digest_tells_apart_what_the_quick_hash_does_not() -> None:
    one = torch.zeros(3, 224, 224)
    other = one.clone()
    one[0, 0, 0] = other[0, 0, 0] = 1.0
    one[1, 100, 101] = other[1, 100, 102] = 0.5
    quick, whole = zip(*(contents_of((image,), ()) for image in (one, other)), strict=True)
    assert quick[0] == quick[1]
    assert whole[0] != whole[1]


def test_the_range_belongs_to_the_content() -> None:
    dark, light = torch.zeros(3, 224, 224), torch.zeros(3, 224, 224)
    light[1, 100, 101] = 0.5
    assert contents_of((dark,), ())[0] != contents_of((light,), ())[0]


def test_small_arrays_are_never_compared() -> None:
    patch = torch.ones(3, 3, 3)
    seen = split((patch, 1), (patch, 2))
    assert seen.contents == {}
    assert seen.fields["0"].constant.n == 0


def test_ids_are_counted_by_sample() -> None:
    seen = split((0, torch.tensor([1, 1, 2])), (3, torch.tensor([2])))
    assert {k: t.n for k, t in seen.fields["0"].values.items()} == {"0": 1, "3": 1}
    assert {k: (t.n, t.at) for k, t in seen.fields["1"].values.items()} == {
        "1": (1, (0,)),
        "2": (2, (0, 1)),
    }


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
@pytest.mark.parametrize("step", [1, 2])
def test_ids_below_zero_stay_so(dtype: str, step: int) -> None:
    value = torch.tensor([-1, 0, 0, 5] * 400, dtype=getattr(torch, dtype))[::step]
    wanted = set(value.tolist())
    assert distinct(value, dtype) == wanted
    assert distinct(value.numpy(), dtype) == wanted


def test_fields_of_many_numbers_are_given_up_for_good() -> None:
    memory = Memory()
    picture = torch.arange(3 * 64 * 64).reshape(3, 64, 64) % 251
    split({"image": picture}, memory=memory)
    assert memory.many == {"image"}
    assert split({"image": picture}, memory=memory).fields["image"].values == {}


@pytest.mark.parametrize(
    ("labels", "expected"),
    [([2, 2, 2], Runs(1, 1, 2, 2)), ([0, 1, 1], Runs(1, 0, 2, 1)), ([4], Runs())],
)
def test_runs_of_a_batch(labels: list[int], expected: Runs) -> None:
    assert split(*[(torch.tensor(x), 0.5) for x in labels]).fields["0"].runs == expected


def test_runs_are_not_counted_where_dlcheck_chose_the_order() -> None:
    seen = SampleCount((), Memory())
    for index in range(4):
        seen.add(index, (1, 0))
    assert "runs" not in seen.split(drawn=False)["fields"]["0"]


def test_blank_arrays_are_counted() -> None:
    seen = split(torch.zeros(3, 64, 64), torch.randn(3, 64, 64))
    assert (seen.fields[""].constant.n, seen.fields[""].constant.at) == (1, (0,))


def test_contents_merge_in_any_order_and_keep_few_samples() -> None:
    parts = [Contents.of({"a": (n,)}) for n in range(20)] + [Contents.of({"b": (99,)})]
    forward, backward = Contents(), Contents()
    for part in parts:
        forward = forward.merge(part)
    for part in reversed(parts):
        backward = backward.merge(part)
    assert forward == backward
    assert forward.seen == {"a": tuple(range(8)), "b": (99,)}


def test_of_very_many_contents_the_smallest_hashes_are_kept() -> None:
    memory = Memory()
    memory.hashed["0"] = 10_000_000
    assert memory.keeps("0", "000000000001")
    assert not memory.keeps("0", "f00000000000")
