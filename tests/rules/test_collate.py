from __future__ import annotations

import pytest

from dlcheck.observation import Failure, Leaf, SampleLeaves
from dlcheck.rules.collate import Cause, cause_of, minority

STACK = "stack expects each tensor to be equal size, but got [{}] at entry 0 and [{}] at entry 1"
NONE = Leaf("NoneType")
PIL = Leaf("PIL.Image", "RGB", (64, 48))


def tensor(*shape: int, dtype: str = "float32") -> Leaf:
    return Leaf("Tensor", dtype, shape)


def array(*shape: int, dtype: str = "float32") -> Leaf:
    return Leaf("ndarray", dtype, shape)


def sample(index: int | str, leaves: dict[str, Leaf], whole: Leaf | None = None) -> SampleLeaves:
    return SampleLeaves(index, {"": whole or Leaf("dict"), **leaves})


def pair(index: int, first: Leaf, second: Leaf) -> SampleLeaves:
    return sample(index, {"0": first, "1": second}, Leaf("tuple", shape=(2,)))


def batch(*leaves: Leaf, name: str = "image") -> tuple[SampleLeaves, ...]:
    return tuple(sample(index, {name: leaf}) for index, leaf in enumerate(leaves))


def default(*samples: SampleLeaves) -> Cause | None:
    words = "stack expects each tensor to be equal size"
    detail = {"default_collate": True}
    return cause_of(Failure("collate", "RuntimeError", words, samples=samples, detail=detail))


def own(samples: tuple[SampleLeaves, ...], exception: str, message: str) -> Cause | None:
    return cause_of(Failure("collate", exception, message, samples=samples))


def speaks(cause: Cause | None) -> tuple[str, str] | None:
    return (cause.rule, cause.field) if cause else None


@pytest.mark.parametrize(
    ("samples", "rule", "field"),
    [
        pytest.param(
            batch(tensor(3, 64, 64), tensor(3, 64, 48)), "ragged-batch", "image", id="images"
        ),
        pytest.param(
            batch(tensor(8000), tensor(7000), name="wave"), "ragged-batch", "wave", id="waves"
        ),
        pytest.param(
            batch(tensor(129, 63), tensor(129, 38)), "ragged-batch", "image", id="spectrogram"
        ),
        pytest.param(batch(tensor(), tensor(1)), "ragged-batch", "image", id="0-d and 1-d"),
        pytest.param(
            batch(tensor(4, 3, 64, 64), tensor(2, 3, 64, 64)), "ragged-batch", "image", id="videos"
        ),
        pytest.param(
            batch(tensor(3, 64, 64), tensor(1, 64, 64)), "ragged-batch", "image", id="channels"
        ),
        pytest.param(batch(tensor(2, 4), tensor(5, 4)), "ragged-annotations", "image", id="boxes"),
        pytest.param(
            batch(array(100, 3), array(90, 3)), "ragged-annotations", "image", id="points"
        ),
        pytest.param(
            batch(tensor(0), tensor(5, 4)), "ragged-annotations", "image", id="no boxes: (0,)"
        ),
        pytest.param(
            batch(tensor(2, 17, 3), tensor(1, 17, 3)), "ragged-annotations", "image", id="poses"
        ),
        pytest.param(
            batch(tensor(7, dtype="int64"), tensor(5, dtype="int64")),
            "ragged-annotations",
            "image",
            id="token tensors",
        ),
        pytest.param(
            batch(Leaf("list[int]", shape=(7,)), Leaf("list[int]", shape=(5,))),
            "ragged-annotations",
            "image",
            id="token lists",
        ),
        pytest.param(
            batch(Leaf("list[int]", shape=(7,)), Leaf("list", shape=(0,))),
            "ragged-annotations",
            "image",
            id="an empty token list",
        ),
        pytest.param(
            (
                sample("w0#0", {"objects": Leaf("list", shape=(1,)), "objects.0": tensor(4)}),
                sample(
                    "w0#1",
                    {
                        "objects": Leaf("list", shape=(2,)),
                        "objects.0": tensor(4),
                        "objects.1": tensor(4),
                    },
                ),
            ),
            "ragged-annotations",
            "objects",
            id="lists of tensors",
        ),
        pytest.param(
            (
                sample(0, {"image": tensor(3, 4, 4), "mask": tensor(4, 4)}),
                sample(1, {"image": tensor(3, 4, 4)}),
            ),
            "structure-varies",
            "mask",
            id="a missing key",
        ),
        pytest.param(
            (
                pair(0, tensor(4), Leaf("int")),
                sample(
                    1,
                    {"0": tensor(4), "1": Leaf("int"), "2": Leaf("str")},
                    Leaf("tuple", shape=(3,)),
                ),
            ),
            "structure-varies",
            "",
            id="tuple lengths",
        ),
        pytest.param(
            (sample(0, {"x": tensor(4)}), pair(1, Leaf("str"), Leaf("int"))),
            "structure-varies",
            "",
            id="dict and tuple",
        ),
        pytest.param(batch(tensor(), Leaf("int")), "structure-varies", "image", id="tensor, int"),
        pytest.param(batch(Leaf("int"), Leaf("str")), "structure-varies", "image", id="int, str"),
        pytest.param(
            (
                sample(0, {"x": Leaf("list", shape=(1,)), "x.0": tensor(4)}),
                sample(1, {"x": Leaf("list", shape=(2,)), "x.0": tensor(4), "x.1": Leaf("int")}),
            ),
            "structure-varies",
            "x",
            id="lists of other items",
        ),
        pytest.param(batch(PIL, PIL), "uncollatable-type", "image", id="PIL images"),
        pytest.param(
            batch(Leaf("PosixPath"), Leaf("PosixPath")), "uncollatable-type", "image", id="paths"
        ),
        pytest.param(
            batch(array(2, dtype="object"), array(3, dtype="object")),
            "uncollatable-type",
            "image",
            id="object arrays",
        ),
        pytest.param(
            batch(array(2, dtype="str96"), array(2, dtype="str96")),
            "uncollatable-type",
            "image",
            id="string arrays",
        ),
        pytest.param(
            batch(Leaf("shapely.geometry.Point"), Leaf("shapely.geometry.Point")),
            "uncollatable-type",
            "image",
            id="objects",
        ),
        pytest.param(
            batch(Leaf("list[NoneType|int]", shape=(3,)), Leaf("list[int]", shape=(3,))),
            "uncollatable-type",
            "image",
            id="None inside a list",
        ),
        pytest.param(
            batch(Leaf("Tensor[sparse_coo]", "float32", (4, 4)), tensor(4, 4)),
            "uncollatable-type",
            "image",
            id="sparse tensors",
        ),
        pytest.param(
            (sample(0, {"x": tensor(4)}, Leaf("dataclass:Item")),) * 2,
            "uncollatable-type",
            "",
            id="dataclasses",
        ),
        pytest.param(
            (pair(39, tensor(3, 4, 4), Leaf("int")), SampleLeaves(40, {"": NONE})),
            "uncollatable-type",
            "",
            id="None for a sample",
        ),
        pytest.param(batch(tensor(4), NONE), "uncollatable-type", "image", id="None in a field"),
    ],
)
def test_a_failed_default_collate_has_one_cause(
    samples: tuple[SampleLeaves, ...], rule: str, field: str
) -> None:
    assert speaks(default(*samples)) == (rule, field)


@pytest.mark.parametrize(
    "samples",
    [
        pytest.param(batch(tensor(4), tensor(4)), id="equal tensors"),
        pytest.param(batch(Leaf("int"), Leaf("float")), id="int and float join"),
        pytest.param(
            batch(tensor(4), Leaf("Image", "float32", (4,))), id="a tensor subclass is a tensor"
        ),
        pytest.param(batch(Leaf("str"), NONE), id="strings stay a list, None and all"),
        pytest.param(batch(Leaf("numpy", "float32", ()), Leaf("float")), id="numpy scalars"),
        pytest.param(batch(Leaf("mapping:BatchEncoding"), Leaf("mapping:BatchEncoding")), id="map"),
    ],
)
def test_samples_that_stack_are_no_cause(
    samples: tuple[SampleLeaves, ...],
) -> None:
    assert default(*samples) is None


def test_of_several_causes_the_stronger_speaks() -> None:
    first = {"image": tensor(3, 64, 64), "boxes": tensor(2, 4), "path": Leaf("str")}
    second = {"image": tensor(3, 64, 48), "boxes": tensor(5, 4), "path": Leaf("str")}
    assert speaks(default(sample(0, first), sample(1, second))) == ("ragged-annotations", "boxes")
    second.pop("path")
    assert speaks(default(sample(0, first), sample(1, second))) == ("structure-varies", "path")
    second["image"] = PIL
    assert speaks(default(sample(0, first), sample(1, second))) == ("uncollatable-type", "image")


def test_a_cause_holds_the_samples_of_each_kind_and_the_other_fields() -> None:
    samples = [
        sample(i, {"boxes": tensor(n, 4), "labels": tensor(n, dtype="int64")})
        for i, n in enumerate((2, 2, 5))
    ]
    kinds = {"2x4": (0, 1), "5x4": (2,)}
    assert default(*samples) == Cause("ragged-annotations", "boxes", kinds, ("labels",))


def test_the_rarest_kind_is_pointed_at_and_of_two_the_later() -> None:
    assert minority({"a": (0, 1), "b": (2,), "c": (3, 4)}) == "b"
    assert minority({"a": (0,), "b": (1,)}) == "b"


@pytest.mark.parametrize("phase", ["sample", "batch", "iter"])
def test_only_the_collate_is_explained(phase: str) -> None:
    samples = batch(tensor(3, 4), tensor(3, 9))
    assert cause_of(Failure(phase, samples=samples, detail={"default_collate": True})) is None


def test_a_failure_without_its_samples_is_not_explained() -> None:
    assert default() is None


class TestCollateOfTheUsersOwn:
    def test_the_field_of_the_quoted_shapes_is_meant(self) -> None:
        """Boxes of varying number beside it are a list by design."""
        samples = tuple(
            sample(i, {"boxes": tensor(i + 1, 4), "image": tensor(3, 64, size)})
            for i, size in enumerate((64, 48))
        )
        message = STACK.format("3, 64, 64", "3, 64, 48")
        assert speaks(own(samples, "RuntimeError", message)) == ("ragged-batch", "image")

    def test_shapes_that_differ_do_not_explain_another_error(self) -> None:
        samples = batch(tensor(2, 4), tensor(5, 4), name="boxes")
        assert own(samples, "KeyError", "'masks'") is None

    def test_quoted_shapes_that_no_field_has_are_the_collates_own(self) -> None:
        samples = batch(tensor(2, 4), tensor(5, 4), name="boxes")
        assert own(samples, "RuntimeError", STACK.format("9", "8")) is None

    def test_a_type_that_it_takes_does_not_explain_its_error(self) -> None:
        assert own(batch(PIL, PIL), "ValueError", "not enough values to unpack") is None

    def test_none_in_some_samples_explains_a_type_error(self) -> None:
        cause = own(batch(tensor(4), NONE), "TypeError", "expected Tensor, got NoneType")
        assert speaks(cause) == ("uncollatable-type", "image")

    def test_a_key_error_is_explained_by_that_key_alone(self) -> None:
        samples = (sample(0, {"x": tensor(4), "caption": Leaf("str")}), sample(1, {"x": tensor(4)}))
        assert speaks(own(samples, "KeyError", "'caption'")) == ("structure-varies", "caption")
        assert own(samples, "KeyError", "'label'") is None

    def test_sizes_without_quoted_shapes_are_explained_by_what_differs(self) -> None:
        samples = batch(array(3, 8), array(3, 9))
        message = "all input arrays must have the same shape"
        assert speaks(own(samples, "ValueError", message)) == ("ragged-batch", "image")
