# ruff: noqa: RET504 - the traced code is written as users write theirs
from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from dlcheck.observation import Step
from dlcheck.observers.containers import TABLE
from dlcheck.observers.journey import Traced, Tracer
from dlcheck.observers.layout import state_of
from dlcheck.run.stages import Stages

torch = pytest.importorskip("torch")
np = pytest.importorskip("numpy")

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def seeded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_ALBUMENTATIONS_UPDATE", "1")
    torch.manual_seed(0)


def package(name: str) -> Any:
    return pytest.importorskip(name, exc_type=ImportError)


def photo(height: int = 48, width: int = 64) -> Any:
    """A smooth picture, H,W,C in uint8."""
    y, x = np.mgrid[:height, :width]
    return np.stack([y * 3, x * 3, (x + y) * 2], axis=-1).clip(0, 255).astype(np.uint8)


def trace(function: Any, *args: Any, **settings: Any) -> Traced:
    traced = Tracer(state_of, lambda file: file == __file__, **settings).run(function, *args)
    assert traced.error is None
    assert traced.note == ""
    return traced


def rows(traced: Traced) -> list[tuple[str, int | None, tuple[int, ...] | None, tuple[int, ...]]]:
    return [row(step) for step in traced.steps if step.container]


def row(step: Step) -> Any:
    before = step.before.shape if step.before else None
    return step.stage, step.position, before, step.after.shape


def line_of(function: Any, text: str) -> int:
    lines, first = inspect.getsourcelines(function)
    return next(first + i for i, line in enumerate(lines) if text in line)


class Cats:
    """A hand-written dataset."""

    def __init__(self, transform: Any = None, *, pil: bool = False) -> None:
        self.transform, self.pil = transform, pil

    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> Any:
        img = photo()
        if self.pil:
            img = package("PIL.Image").fromarray(img)
        if self.transform is not None:
            img = self.transform(img)
        return img, index


def through(transform: Any, container: str, *, pil: bool = False) -> Traced:
    """Trace a sample through a container; each of its stages came from the line that called it."""
    traced = trace(Cats(transform, pil=pil).__getitem__, 1)
    staged = [step for step in traced.steps if step.container]
    assert staged
    for step in staged:
        assert step.container == container
        assert (step.file, step.function) == (__file__, "__getitem__")
        assert step.line == line_of(Cats, "self.transform(img)")
        assert step.text == "img = self.transform(img)"
        assert step.fields == ("0",)
        assert step.seconds >= 0
    assert traced.returned == (__file__, line_of(Cats, "return img, index"))
    return traced


def test_torchvision_v1() -> None:
    T = package("torchvision.transforms")  # noqa: N806
    stages = [
        T.Resize(32),
        T.CenterCrop(24),
        T.ToTensor(),
        T.RandomHorizontalFlip(p=1.0),
        T.Normalize([0.5] * 3, [0.5] * 3),
    ]
    traced = through(T.Compose(stages), "Compose", pil=True)
    assert rows(traced) == [
        ("Resize", 0, (48, 64, 3), (32, 42, 3)),
        ("CenterCrop", 1, (32, 42, 3), (24, 24, 3)),
        ("ToTensor", 2, (24, 24, 3), (3, 24, 24)),
        ("Normalize", 4, (3, 24, 24), (3, 24, 24)),
    ]
    resize, _, to_tensor, normalize = (s for s in traced.steps if s.container)
    assert resize.parameters.startswith("size=32")
    assert to_tensor.before.type == "PIL.Image"
    assert to_tensor.after.dtype == "float32"
    assert normalize.before.low >= 0 > normalize.after.low
    assert traced.fields["0"].shape == (3, 24, 24)


def test_torchvision_v1_nested_and_random() -> None:
    T = package("torchvision.transforms")  # noqa: N806
    inner = T.RandomApply([T.Resize((20, 20)), T.Grayscale()], p=1.0)
    stages = [inner, T.RandomOrder([T.Resize((8, 8))]), T.RandomChoice([T.ToTensor()])]
    traced = trace(Cats(T.Compose(stages), pil=True).__getitem__, 0)
    assert [(s.container, s.stage, s.position) for s in traced.steps if s.container] == [
        ("RandomApply", "Resize", 0),
        ("RandomApply", "Grayscale", 1),
        ("RandomOrder", "Resize", 0),
        ("RandomChoice", "ToTensor", 0),
    ]


def test_torchvision_v2() -> None:
    T = package("torchvision.transforms.v2")  # noqa: N806
    stages = [
        T.ToImage(),
        T.RandomResizedCrop((20, 30)),
        T.RandomHorizontalFlip(p=1.0),
        T.ToDtype(torch.float32, scale=True),
        T.Normalize([0.5] * 3, [0.5] * 3),
    ]
    traced = through(T.Compose(stages), "Compose")
    assert rows(traced) == [
        ("ToImage", 0, (48, 64, 3), (3, 48, 64)),
        ("RandomResizedCrop", 1, (3, 48, 64), (3, 20, 30)),
        ("ToDtype", 3, (3, 20, 30), (3, 20, 30)),
        ("Normalize", 4, (3, 20, 30), (3, 20, 30)),
    ]
    numbers = [n for n, s in enumerate(traced.steps) if s.container]
    assert [traced.steps[n].sources for n in numbers] == [(n - 1,) for n in numbers]


def test_torchvision_v2_treats_a_pair() -> None:
    T = package("torchvision.transforms.v2")  # noqa: N806
    tv = package("torchvision.tv_tensors")
    both = T.Compose([T.Resize((10, 10)), T.ToDtype({tv.Image: torch.float32, "others": None})])

    def sample() -> Any:
        image = tv.Image(torch.arange(3 * 20 * 20).reshape(3, 20, 20).to(torch.uint8))
        mask = tv.Mask(torch.zeros(20, 20, dtype=torch.int64))
        image, mask = both(image, mask)
        return {"image": image, "mask": mask}

    traced = trace(sample)
    steps = [s for s in traced.steps if s.container]
    assert [(s.stage, s.fields, s.after.shape) for s in steps] == [
        ("Resize", ("image",), (3, 10, 10)),
        ("Resize", ("mask",), (10, 10)),
        ("ToDtype", ("image",), (3, 10, 10)),
    ]
    assert steps[1].before.shape == (20, 20)
    assert steps[0].line == line_of(sample, "both(image, mask)")


def test_albumentations() -> None:
    A = package("albumentations")  # noqa: N806
    transform = A.Compose(
        [
            A.Resize(32, 40),
            A.OneOf([A.RandomCrop(height=20, width=24, p=1.0)], p=1.0),
            A.HorizontalFlip(p=1.0),
            A.Normalize(),
        ]
    )

    def sample() -> Any:
        image, mask = photo(), photo()[..., 0] > 100
        out = transform(image=image, mask=mask.astype(np.uint8))
        return torch.from_numpy(out["image"]).permute(2, 0, 1), out["mask"]

    traced = trace(sample)
    images = [s for s in traced.steps if s.container and "0" in s.fields]
    assert [row(s) for s in images] == [
        ("Resize", 0, (48, 64, 3), (32, 40, 3)),
        ("RandomCrop", 0, (32, 40, 3), (20, 24, 3)),
        ("HorizontalFlip", 2, (20, 24, 3), (20, 24, 3)),
        ("Normalize", 3, (20, 24, 3), (20, 24, 3)),
    ]
    assert [s.container for s in images] == ["Compose", "OneOf", "Compose", "Compose"]
    assert images[0].parameters.startswith("height=32, width=40")
    assert {s.line for s in images} == {line_of(sample, "transform(image=image")}
    masks = [s for s in traced.steps if s.container and "1" in s.fields]
    assert [s.stage for s in masks] == ["Resize", "RandomCrop", "HorizontalFlip"]
    assert images[2].after.strides[1] < 0
    last = traced.steps[-1]
    assert last.stage == "torch.from_numpy().permute"
    assert last.before.shape == (20, 24, 3)
    assert last.after.shape == (3, 20, 24)
    assert last.sources == (traced.steps.index(images[-1]),)


def test_albumentations_grayscale_keeps_its_lineage() -> None:
    A = package("albumentations")  # noqa: N806
    traced = trace(lambda: A.Compose([A.Resize(8, 8)])(image=photo()[..., 0])["image"])
    resize = next(s for s in traced.steps if s.stage == "Resize")
    assert resize.fields == ("",)
    assert resize.after.shape[:2] == (8, 8)


def test_monai_dictionary_transforms() -> None:
    M = package("monai.transforms")  # noqa: N806
    stages = [
        M.EnsureChannelFirstd(keys=["image", "mask"], channel_dim="no_channel"),
        M.Resized(keys=["image"], spatial_size=(16, 20)),
        M.ScaleIntensityd(keys=["image"]),
        M.RandFlipd(keys=["image", "mask"], prob=1.0, spatial_axis=0),
        M.Compose([M.SpatialPadd(keys=["mask"], spatial_size=(60, 70))]),
    ]
    compose = M.Compose(stages)

    def sample() -> Any:
        data = {"image": photo()[..., 0].astype(np.float32), "mask": photo()[..., 1] > 90}
        data = compose(data)
        return data

    traced = trace(sample)
    staged = [s for s in traced.steps if s.container]
    assert [(s.stage, s.position, s.fields) for s in staged] == [
        ("EnsureChannelFirstd", 0, ("image",)),
        ("EnsureChannelFirstd", 0, ("mask",)),
        ("Resized", 1, ("image",)),
        ("ScaleIntensityd", 2, ("image",)),
        ("SpatialPadd", 0, ("mask",)),
    ]
    first, _, resized = staged[:3]
    assert (first.variable, first.before.shape, first.after.shape) == (
        "data.image",
        (48, 64),
        (1, 48, 64),
    )
    assert (resized.before.shape, resized.after.shape) == ((1, 48, 64), (1, 16, 20))
    assert "spatial_size=(16, 20)" in resized.parameters
    assert staged[-1].after.shape == (1, 60, 70)
    assert {s.line for s in staged} == {line_of(sample, "compose(data)")}


def test_monai_failure_names_the_innermost_stage() -> None:
    M = package("monai.transforms")  # noqa: N806
    inner = M.Compose([M.CenterSpatialCropd(keys=["image"], roi_size=(4, 4, 4, 4, -1, "x"))])
    compose = M.Compose([M.EnsureChannelFirstd(keys=["image"], channel_dim="no_channel"), inner])
    data = {"image": photo()[..., 0].astype(np.float32)}
    traced = Tracer(state_of, lambda file: file == __file__).run(compose, data)
    assert traced.error is not None
    assert traced.failed_stage == "CenterSpatialCropd"
    assert traced.failed_state.shape == (1, 48, 64)


def test_nn_sequential() -> None:
    nn = torch.nn
    head = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(0))

    def sample() -> Any:
        x = torch.from_numpy(photo()).permute(2, 0, 1) / 255.0
        with torch.no_grad():
            y = head(x)
        return y

    traced = trace(sample)
    assert rows(traced) == [
        ("Conv2d", 0, (3, 48, 64), (4, 46, 62)),
        ("ReLU", 1, (4, 46, 62), (4, 46, 62)),
        ("Flatten", 2, (4, 46, 62), (4 * 46 * 62,)),
    ]
    assert {s.line for s in traced.steps if s.container} == {line_of(sample, "y = head(x)")}
    assert all(s.fields == ("",) for s in traced.steps)


@pytest.mark.parametrize("kind", ["AugmentationSequential", "ImageSequential"])
def test_kornia(kind: str) -> None:
    K = package("kornia.augmentation")  # noqa: N806
    container = getattr(K, kind)
    augment = container(K.Resize((20, 24)), K.RandomInvert(p=1.0), K.CenterCrop((10, 12)))

    def sample() -> Any:
        x = torch.from_numpy(photo()).permute(2, 0, 1)[None] / 255.0
        return augment(x)[0]

    traced = trace(sample)
    assert [r for r in rows(traced) if r[0] != "RandomInvert"] == [
        ("Resize", 0, (1, 3, 48, 64), (1, 3, 20, 24)),
        ("CenterCrop", 2, (1, 3, 20, 24), (1, 3, 10, 12)),
    ]
    assert "RandomInvert" in [r[0] for r in rows(traced)]
    assert traced.steps[-1].after.shape == (3, 10, 12)
    assert all(s.fields == ("",) for s in traced.steps)


def test_fasttransform_pipeline() -> None:
    F = package("fasttransform")  # noqa: N806

    def crop(x: torch.Tensor) -> torch.Tensor:
        return x[:, :10, :10]

    def to_tensor(x: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(x)

    pipeline = F.Pipeline([F.Transform(to_tensor), F.Transform(crop)])
    traced = trace(lambda: pipeline(photo().transpose(2, 0, 1)))
    assert [s.after.shape for s in traced.steps][-1] == (3, 10, 10)
    assert traced.steps[-1].container == "Pipeline"
    assert traced.steps[-1].position == 1


def test_our_own_stages() -> None:
    T = package("torchvision.transforms")  # noqa: N806
    traced = through(
        Stages([T.ToTensor(), np.asarray, torch.as_tensor, T.Resize((8, 8))]), "Stages"
    )
    assert [r[0] for r in rows(traced)][::3] == ["ToTensor", "Resize"]


def test_plain_functions() -> None:
    def to_float(img: Any) -> Any:
        img = img.astype(np.float32)
        img /= 255
        return img

    def turn(img: Any) -> Any:
        return np.rot90(img, k=1)

    def sample() -> Any:
        img = turn(to_float(photo()))
        img = img[:, :, ::-1]
        return torch.from_numpy(img.copy())

    traced = trace(sample)
    assert [(s.function, s.stage) for s in traced.steps if s.function != "photo"] == [
        ("to_float", "img.astype"),
        ("to_float", "/="),
        ("turn", "np.rot90"),
        ("sample", "[:, :, ::-1]"),
        ("sample", "torch.from_numpy"),
    ]
    turned = next(s for s in traced.steps if s.stage == "np.rot90")
    assert (turned.before.shape, turned.after.shape) == ((48, 64, 3), (64, 48, 3))
    assert turned.parameters == "k=1"
    assert all(s.fields == ("",) for s in traced.steps if s.function != "photo")


def test_a_subset_of_a_concatenation() -> None:
    data = torch.utils.data
    T = package("torchvision.transforms")  # noqa: N806
    first, second = Cats(), Cats(T.Compose([T.ToTensor()]))
    dataset = data.Subset(data.ConcatDataset([first, second]), [7, 1])
    traced = trace(dataset.__getitem__, 0)
    assert rows(traced) == [("ToTensor", 0, (48, 64, 3), (3, 48, 64))]
    assert traced.returned == (__file__, line_of(Cats, "return img, index"))
    assert traced.value[1] == 2


def test_a_stream_with_a_generator_pipeline() -> None:
    T = package("torchvision.transforms")  # noqa: N806

    class Stream(torch.utils.data.IterableDataset):  # type: ignore[misc]
        def __iter__(self) -> Any:
            return self.batches(self.decoded(range(4)))

        def decoded(self, names: Any) -> Any:
            for name in names:
                yield {"image": photo(30 + name, 40), "name": str(name)}

        def batches(self, samples: Any) -> Any:
            tf = T.Compose([T.ToTensor(), T.CenterCrop(20)])
            for sample in samples:
                sample["image"] = tf(sample["image"])
                yield sample

    iterator = iter(Stream())
    for index in range(3):
        traced = trace(next, iterator)
        assert rows(traced) == [
            ("ToTensor", 0, (30 + index, 40, 3), (3, 30 + index, 40)),
            ("CenterCrop", 1, (3, 30 + index, 40), (3, 20, 20)),
        ]
        staged = [s for s in traced.steps if s.container]
        assert {s.line for s in staged} == {line_of(Stream, "tf(sample")}
        assert all(s.fields == ("image",) for s in staged)
        assert traced.returned == (__file__, line_of(Stream, "yield sample"))


def test_hugging_face_with_transform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    datasets = package("datasets")
    T = package("torchvision.transforms")  # noqa: N806
    compose = T.Compose([T.ToTensor(), T.Resize((16, 16))])

    def prepare(batch: Any) -> Any:
        images = [np.asarray(image, np.uint8) for image in batch["image"]]
        return {
            "pixels": [compose(image) for image in images],
            "label": batch["label"],
        }

    raw = {"image": [photo(24, 24).tolist()] * 3, "label": [0, 1, 2]}
    dataset = datasets.Dataset.from_dict(raw).with_transform(prepare)
    traced = trace(lambda: dataset[1])
    assert traced.value["pixels"].shape == (3, 16, 16)
    assert rows(traced) == [
        ("ToTensor", 0, (24, 24, 3), (3, 24, 24)),
        ("Resize", 1, (3, 24, 24), (3, 16, 16)),
    ]
    staged = [s for s in traced.steps if s.container]
    assert {s.text for s in staged} == {'"pixels": [compose(image) for image in images],'}
    assert all(s.fields == ("pixels",) for s in staged)


@pytest.mark.parametrize(
    "name", ["torchvision", "torch", "albumentations", "monai", "kornia", "fasttransform"]
)
def test_the_installed_version_keeps_its_stage_where_the_table_says(name: str) -> None:
    package(name)
    found = []
    for module, functions in TABLE.items():
        if module.partition(".")[0] == name:
            loaded = package(module)
            source = inspect.getsource(loaded)
            held = [*vars(loaded).values()]
            held += [v for c in held if inspect.isclass(c) for v in vars(c).values()]
            held = [getattr(function, "__func__", function) for function in held]
            codes = [f.__code__ for f in held if inspect.isfunction(f)]
            found += [
                variable
                for code in codes
                for variable in functions.get(code.co_name, ())
                if variable in code.co_varnames and variable in source
            ]
    assert found


def test_the_journey_does_not_change_the_sample() -> None:
    T = package("torchvision.transforms")  # noqa: N806
    stages = [
        T.ToTensor(),
        T.RandomResizedCrop(16),
        T.ColorJitter(0.4, 0.4),
        T.RandomErasing(p=1.0),
    ]
    dataset = Cats(T.Compose(stages))
    torch.manual_seed(5)
    bare = dataset[0][0]
    state = torch.get_rng_state()
    torch.manual_seed(5)
    traced = trace(dataset.__getitem__, 0)
    assert torch.equal(traced.value[0], bare)
    assert torch.equal(torch.get_rng_state(), state)
    assert not re.search("error", traced.note)
