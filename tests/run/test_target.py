from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dlcheck.run import target
from dlcheck.run.instantiate import instantiate
from dlcheck.run.stages import Stages
from dlcheck.run.target import ConfigMistake, NoPipeline, Target, build

torch = pytest.importorskip("torch")

PIPE = '''
import collections
import functools
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler


class Cats(Dataset):
    class Small(Dataset):
        def __len__(self):
            return 1

    def __init__(self, n=6, root=None, transform=None, loader=None, fail=False):
        if fail:
            raise TypeError("Cats() got an unexpected keyword argument 'mine'")
        self.n, self.root, self.transform, self.loader = n, root, transform, loader

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        x = torch.zeros(3, 4, 4)
        return self.transform(x) if self.transform else x


class Needs(Dataset):
    def __init__(self, root, *, size):
        pass


class Stream(IterableDataset):
    def __iter__(self):
        yield from range(4)


class Reversed(Sampler):
    def __init__(self, data_source, step=1):
        self.data_source, self.step = data_source, step

    def __iter__(self):
        return iter(range(len(self.data_source))[::-1])

    def __len__(self):
        return len(self.data_source)


class OwnLoader(DataLoader):
    def __init__(self, data, name="x", **rest):
        super().__init__(data, **rest)
        self.name = name


class Plain:
    """Map-style without torch's base class."""

    def __len__(self):
        return 3

    def __getitem__(self, i):
        return i


class Module:
    def __init__(self, n=4):
        self.n, self.calls = n, []

    def prepare_data(self):
        self.calls.append("prepare")

    def setup(self, stage):
        self.calls.append(stage)

    def _loader(self, kind):
        loader = DataLoader(Cats(self.n))
        loader.made_by = [*self.calls, kind]
        return loader

    def train_dataloader(self):
        return self._loader("train")

    def val_dataloader(self):
        return self._loader("val")

    def test_dataloader(self):
        return self._loader("test")


def collate(batch):
    return batch


def before_epoch(loader, epoch):
    pass


def make():
    return DataLoader(Cats(), batch_size=2)


def make_dict():
    return {"train": make(), "valid": make(), "classes": 3}


def make_tuple():
    return make(), make(), 10


def make_one_of_tuple():
    return make(), 10


Pair = collections.namedtuple("Pair", "train test")


def make_named():
    return Pair(make(), make())


def make_stream():
    return Stream()


def make_plain():
    return Plain()


def make_batches():
    return [torch.zeros(2), torch.zeros(2)]


def generate():
    yield from (torch.zeros(2), torch.ones(2))


def make_none():
    pass


def make_number():
    return 3


def make_tensor():
    return torch.zeros(3)


def make_model():
    return torch.nn.Sequential()


def make_module():
    return torch


def make_broken():
    raise ValueError("mine")


def with_root(root):
    return make()


def injected(function):
    @functools.wraps(function)
    def inner():
        return function("given")
    return inner


@injected
def decorated(root):
    return make()


loader = make()
partial = functools.partial(with_root, "data")
half_partial = functools.partial(with_root)
dataset = Cats(4)
'''


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The user's project, first on sys.path, and forgotten afterwards."""
    (tmp_path / "pipe.py").write_text(PIPE)
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def one(**spec: Any) -> Target:
    targets = build("", {"role": "train", **spec})
    assert list(targets) == [""]
    return targets[""]


def mistake(**spec: Any) -> ConfigMistake:
    with pytest.raises(ConfigMistake) as caught:
        build("", {"role": "train", **spec})
    assert "\n" not in caught.value.message
    return caught.value


CATS = {"_target_": "pipe.Cats"}


def test_dataset_transform_and_loader_become_a_real_loader() -> None:
    found = one(
        dataset={**CATS, "n": 7},
        transform=[{"_target_": "torch.nn.Identity"}],
        loader={"batch_size": 3, "collate_fn": "pipe:collate", "worker_init_fn": None},
        role="eval",
        epoch_hook="pipe:before_epoch",
    )
    assert [len(batch) for batch in found.loader] == [3, 3, 1]
    assert found.dataset is found.loader.dataset
    assert isinstance(found.dataset.transform, Stages)
    assert (found.role, found.bare_dataset) == ("eval", False)
    assert found.epoch_hook is sys.modules["pipe"].before_epoch


def test_a_dataset_alone_is_read_in_eights_without_workers() -> None:
    found = one(dataset=CATS)
    assert (found.loader.batch_size, found.loader.num_workers, found.bare_dataset) == (8, 0, True)


@pytest.mark.parametrize(
    ("node", "n"),
    [
        ({"_target_": "pipe.Cats", "_args_": [3]}, 3),
        ({"class_path": "pipe.Cats", "init_args": {"n": 2}}, 2),
        ({"_target_": "pipe:Cats", "n": 4}, 4),
        ({"_target_": "pipe.Cats.Small"}, 1),
        ("pipe:dataset", 4),
        ("pipe:Cats", 6),
        ({"_obj_": "pipe.dataset"}, 4),
    ],
)
def test_every_way_to_name_a_dataset(node: Any, n: int) -> None:
    assert len(one(dataset=node, loader={"batch_size": 1}).loader) == n


def test_nested_nodes_partials_and_objects_are_made() -> None:
    made = instantiate(
        {
            "_target_": "pipe.Cats",
            "root": {"inner": [{"_target_": "pipe.Cats", "n": 1}]},
            "transform": {"_target_": "pipe.with_root", "_partial_": True, "root": "r"},
            "n": {"_obj_": "torch.float32"},
            "loader": "pipe:collate",
        },
        "dataset",
    )
    assert len(made.root["inner"][0]) == 1
    assert made.transform.keywords == {"root": "r"}
    assert made.n is torch.float32
    assert made.loader is sys.modules["pipe"].collate


def test_nodes_stay_data_when_told_so() -> None:
    node = {"_target_": "pipe.Cats", "_recursive_": False, "_convert_": "all", "root": dict(CATS)}
    assert instantiate(node, "dataset").root == CATS


@pytest.mark.parametrize(
    "text", ["cuda:0", "C:/x", "http://host", "no_such_module:train", "pipe:split", "a b:c", "x:"]
)
def test_text_that_names_no_object_stays_text(text: str) -> None:
    assert instantiate({**CATS, "root": text}, "dataset").root == text


def test_a_misspelt_object_in_an_argument_is_a_mistake() -> None:
    found = mistake(dataset={**CATS, "root": "pipe:colate"})
    assert (found.key, found.message) == (
        "dataset.root",
        "the module pipe has no 'colate'; did you mean collate?",
    )


@pytest.mark.parametrize(
    ("spec", "key", "message"),
    [
        (
            {"dataset": {"_target_": "pipee.Cats"}},
            "dataset._target_",
            "there is no module 'pipee'; did you mean pipe?",
        ),
        (
            {"dataset": {"_target_": "pipe.Catz"}},
            "dataset._target_",
            "the module pipe has no 'Catz'; did you mean Cats?",
        ),
        (
            {"dataset": {"class_path": "pipe.Cats.Smal"}},
            "dataset.class_path",
            "Cats has no 'Smal'; did you mean Small?",
        ),
        (
            {"dataset": {"_target_": "torch.utils.dat.Dataset"}},
            "dataset._target_",
            "the module torch.utils has no 'dat'; did you mean data?",
        ),
        (
            {"object": "pipe.sub:make"},
            "object",
            "'pipe' is a module, not a package: it holds no module 'sub'",
        ),
        (
            {"dataset": {**CATS, "trnsform": 1}},
            "dataset.trnsform",
            "Cats takes no argument 'trnsform'; did you mean transform?",
        ),
        (
            {"dataset": {"class_path": "pipe.Cats", "init_args": {"m": 1}}},
            "dataset.init_args.m",
            "Cats takes no argument 'm'",
        ),
        (
            {"dataset": {"_target_": "pipe.Needs", "root": "x"}},
            "dataset",
            "Needs needs an argument 'size'",
        ),
        (
            {"dataset": {"_target_": "pipe.Needs", "_partial_": True, "rot": "x"}},
            "dataset.rot",
            "Needs takes no argument 'rot'; did you mean root?",
        ),
        (
            {"dataset": {"_target_": "pipe.Needs", "root": 1, "size": 2}, "transform": [CATS]},
            "transform.0",
            "Cats is no transform: it cannot be called",
        ),
        (
            {
                "dataset": {"_target_": "pipe.Needs", "root": 1, "size": 2},
                "transform": {"_target_": "torch.nn.Identity"},
            },
            "transform",
            "Needs takes no argument 'transform'",
        ),
        (
            {
                "dataset": CATS,
                "transform_arg": "transforms",
                "transform": {"_target_": "torch.nn.Identity"},
            },
            "transform_arg",
            "Cats takes no argument 'transforms'; did you mean transform?",
        ),
        (
            {"dataset": "pipe:dataset", "transform": {"_target_": "torch.nn.Identity"}},
            "transform",
            "pipe:dataset is made already, so it takes no transform",
        ),
        (
            {"dataset": CATS, "loader": {"batchsize": 2}},
            "loader.batchsize",
            "DataLoader takes no argument 'batchsize'; did you mean batch_size?",
        ),
        (
            {"dataset": CATS, "loader": {"collate_fn": "pipe:colate"}},
            "loader.collate_fn",
            "the module pipe has no 'colate'; did you mean collate?",
        ),
        (
            {"loader": "pipe:with_root"},
            "loader",
            "with_root needs an argument 'root', and none is given",
        ),
        (
            {"object": "pipe:half_partial"},
            "object",
            "partial needs an argument 'root', and none is given",
        ),
        (
            {"object": "pipe:Needs"},
            "object",
            "Needs needs an argument 'root', and none is given",
        ),
        ({"dataset": {"_target_": "pipe.dataset"}}, "dataset", "Cats is a Cats, not callable"),
        (
            {"dataset": CATS, "epoch_hook": "pipe:dataset"},
            "epoch_hook",
            "a Cats cannot be called with (loader, epoch)",
        ),
        (
            {"datamodule": "pipe:Cats"},
            "datamodule",
            "an object of pipe.Cats is no LightningDataModule: it has no train_dataloader",
        ),
    ],
)
def test_a_mistake_of_the_config_has_its_key(spec: dict[str, Any], key: str, message: str) -> None:
    found = mistake(**spec)
    assert (found.key, found.message) == (key, message)


def test_a_transform_that_is_not_taken_names_what_is() -> None:
    node = {"_target_": "pipe.Needs", "root": 1, "size": 2}
    found = mistake(dataset=node, transform={"_target_": "torch.nn.Identity"})
    assert found.hint == "it takes: root, size; transform_arg names the one for the transform"


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        ({"dataset": {**CATS, "fail": True}}, TypeError),
        ({"loader": "pipe:make_broken"}, ValueError),
        ({"dataset": {**CATS, "n": 0}, "loader": {"shuffle": True}}, ValueError),
        ({"dataset": CATS, "loader": {"batch_size": 0}}, ValueError),
        ({"object": "broken_import:make"}, ModuleNotFoundError),
        ({"object": "broken_name:make"}, AttributeError),
        ({"dataset": {"_target_": "broken_import.Cats"}}, ModuleNotFoundError),
        ({"dataset": {"_target_": "lazy.Cats"}}, AttributeError),
    ],
)
def test_what_the_users_code_raises_passes_through(
    folder: Path, spec: dict[str, Any], error: type[Exception]
) -> None:
    (folder / "broken_import.py").write_text("import surely_not_installed\n")
    (folder / "broken_name.py").write_text("import pipe\npipe.nothing\n")
    (folder / "lazy.py").write_text("import pipe\ndef __getattr__(name):\n    return pipe.nope\n")
    with pytest.raises(error):
        build("", spec)


def test_a_module_that_fails_to_import_itself_again_is_the_users_error(folder: Path) -> None:
    (folder / "pack").mkdir()
    (folder / "pack" / "__init__.py").write_text("import pack.data\n")
    with pytest.raises(ModuleNotFoundError):
        build("", {"object": "pack.data:make"})


def test_a_file_whose_name_python_has_taken_is_refused(folder: Path) -> None:
    (folder / "types.py").write_text("def make(): pass\n")
    found = mistake(object="types:make")
    assert found.message.endswith(
        "types.py cannot be imported: the name 'types' is taken by another module"
    )
    assert found.hint.startswith("rename the file; types is ")


@pytest.mark.parametrize(
    ("name", "names"),
    [
        ("make", [""]),
        ("loader", [""]),
        ("partial", [""]),
        ("decorated", [""]),
        ("make_dict", ["train", "valid"]),
        ("make_tuple", ["0", "1"]),
        ("make_one_of_tuple", [""]),
        ("make_named", ["train", "test"]),
        ("make_batches", [""]),
        ("generate", [""]),
    ],
)
def test_a_function_or_object_gives_its_loaders(name: str, names: list[str]) -> None:
    found = build("", {"object": f"pipe:{name}", "role": "train"})
    assert list(found) == names
    for key, loader in found.items():
        assert not loader.bare_dataset
        assert loader.role == ("eval" if key in {"valid", "test"} else "train")
        assert len(list(loader.loader)) == len(list(loader.loader)) > 0


@pytest.mark.parametrize("name", ["dataset", "Cats", "Cats.Small", "make_stream", "make_plain"])
def test_a_dataset_gets_a_loader_of_ours(name: str) -> None:
    found = one(object=f"pipe:{name}")
    assert found.bare_dataset
    assert found.loader.batch_size == 8
    assert found.dataset is found.loader.dataset


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("make_none", "None"),
        ("make_number", "the int 3"),
        ("make_tensor", "an object of torch.Tensor"),
        ("make_model", "an object of torch.nn.modules.container.Sequential"),
        ("make_module", "the module torch"),
        ("torch", "the module torch"),
    ],
)
def test_what_yields_no_batches_is_no_pipeline(name: str, what: str) -> None:
    with pytest.raises(NoPipeline) as caught:
        build("", {"object": f"pipe:{name}"})
    assert caught.value.message == f"pipe:{name} gives {what}; {target.WANTED}"


def test_a_dataset_that_is_none_is_no_pipeline() -> None:
    with pytest.raises(NoPipeline, match="dataset gives None"):
        build("", {"dataset": {"_target_": "pipe.make_none"}, "loader": {"batch_size": 2}})


@pytest.mark.parametrize(
    "sampler",
    [{"_target_": "pipe.Reversed", "step": 2}, "pipe:Reversed", {"_obj_": "pipe.Reversed"}],
)
def test_a_sampler_is_given_the_dataset_it_asks_for(sampler: Any) -> None:
    found = one(dataset=CATS, loader={"sampler": sampler})
    assert found.loader.sampler.data_source is found.dataset


def test_a_sampler_inside_a_batch_sampler_is_given_the_dataset_too() -> None:
    inner = {"_target_": "torch.utils.data.SequentialSampler"}
    node = {
        "_target_": "torch.utils.data.BatchSampler",
        "sampler": inner,
        "batch_size": 4,
        "drop_last": False,
    }
    assert len(one(dataset=CATS, loader={"batch_sampler": node}).loader) == 2


@pytest.mark.parametrize(
    "loader",
    [
        {"_target_": "pipe.OwnLoader", "name": "y", "batch_size": 2},
        {"class_path": "pipe.OwnLoader", "init_args": {"name": "y", "batch_size": 2}},
    ],
)
def test_a_loader_class_takes_the_dataset_first(loader: dict[str, Any]) -> None:
    found = one(dataset=CATS, loader=loader)
    assert (type(found.loader).__name__, found.loader.name, len(found.loader)) == (
        "OwnLoader",
        "y",
        3,
    )
    assert found.dataset is found.loader.dataset


@pytest.mark.parametrize(
    ("split", "role", "calls"),
    [
        ("", "train", ["prepare", "fit", "train"]),
        ("val", "eval", ["prepare", "fit", "val"]),
        ("test", "eval", ["prepare", "test", "test"]),
    ],
)
def test_a_datamodule_is_called_as_a_trainer_would(split: str, role: str, calls: list[str]) -> None:
    spec = {"datamodule": {"_target_": "pipe.Module", "n": 3}, "role": role}
    found = build(split, spec)
    assert list(found) == [split]
    assert found[split].loader.made_by == calls


def test_a_datamodule_is_a_target_by_name_too() -> None:
    assert one(object="pipe:Module").loader.made_by == ["prepare", "fit", "train"]


def test_several_loaders_of_a_named_split_keep_its_name() -> None:
    assert list(build("big", {"loader": "pipe:make_dict"})) == ["big.train", "big.valid"]


def test_no_torch_in_the_interpreter_points_to_the_option(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    found = mistake(object="pipe:make")
    assert found.message == f"{sys.executable} has no torch"
    assert "--python" in found.hint
