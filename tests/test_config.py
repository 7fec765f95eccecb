from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dlcheck import config, document

DATASET = "dataset: {_target_: cats.Cats}\n"


def write(folder: Path, text: str | bytes, name: str = "dlcheck.yaml") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def load(folder: Path, text: str | bytes, *overrides: str) -> config.Config:
    write(folder, text)
    return config.load(None, overrides, cwd=str(folder))


def refusal(folder: Path, text: str | bytes, *overrides: str) -> config.UserError:
    with pytest.raises(config.UserError) as caught:
        load(folder, text, *overrides)
    assert "\n" not in caught.value.message
    assert len(caught.value.message) < 220
    assert len(caught.value.hint) < 240
    return caught.value


def test_a_whole_config_is_kept_as_plain_values(tmp_path: Path) -> None:
    found = load(tmp_path, WHOLE)
    assert json.loads(json.dumps(found.splits)) == found.splits
    train, val = found.splits["train"], found.splits["val"]
    assert train["loader"]["batch_size"] == 4
    assert val["loader"] == {"batch_size": 64, "num_workers": 2}
    assert train["transform"][1]["dtype"] == {"_obj_": "torch.float32"}
    assert val["transform"] == train["transform"]
    assert (train["role"], val["role"]) == ("train", "eval")
    assert train["fields"] == {"image": {"kind": "image", "layout": "CHW"}, "1.boxes": None}
    assert train["expect"]["1.*"] == {"classes": 2, "ignore_index": [-100, 255]}
    assert found.settings["machine"]["memory"] == "64GiB"
    assert found.settings["rules"]["ignore"] == {"bgr-order": "weights expect BGR"}
    assert found.settings["gate"]["leak"] == {"epochs": 3}
    assert found.target == "dlcheck.yaml"
    assert found.folder == str(tmp_path)
    assert found.source == str(tmp_path / "dlcheck.yaml")
    assert found.lines["splits.train.loader.batch_size"] == ("dlcheck.yaml", 10)
    assert found.lines["transform.1.dtype"] == ("dlcheck.yaml", 4)


WHOLE = """\
dataset: {_target_: cats.data.Cats, _args_: [1], root: "${oc.env:DLCHECK_UNSET,data}/cats"}
transform:
  - {_target_: torchvision.transforms.v2.ToImage}
  - {_target_: torchvision.transforms.v2.ToDtype, dtype: "${obj:torch.float32}"}
transform_arg: transforms
loader: {batch_size: 64, num_workers: 2}
splits:
  train:
    loader:
      batch_size: 4
      shuffle: true
      collate_fn: cats.data:collate
      worker_init_fn: null
      sampler: {_target_: cats.Sampler}
  val: {}
epoch_hook: cats.train:before_epoch
fields: {image: {kind: image, layout: CHW}, 1.boxes: null}
expect:
  image: {shape: [3, "*", 224], dtype: float32, range: [-3, .inf], normalize: imagenet}
  1.*: {classes: 2, ignore_index: [-100, 255]}
  mask: {values: [0, 1], normalize: {mean: [0.5], std: [0.25]}, pairs_with: image, colour: RGB}
model: {class_path: torchvision.models.resnet18, init_args: {num_classes: 2}}
loss: {_target_: torch.nn.CrossEntropyLoss}
optimizer: {_target_: torch.optim.SGD, _partial_: true, lr: 1e-3}
machine: {cpus: 16, memory: 64GiB, shm: 16 GB, device: 24GiB}
full_length: 1281167
rules: {ignore: {bgr-order: "weights expect BGR"}, severity: {pin-memory: note, DLC101: warning}}
gate:
  fail_on: error
  leak: {epochs: 3}
  speed: {min_samples_per_second: 800}
  baseline: base.json
"""


def test_a_number_with_an_exponent_is_a_number(tmp_path: Path) -> None:
    assert load(tmp_path, WHOLE).splits["train"]["optimizer"]["lr"] == 1e-3


def test_a_byte_order_mark_is_no_part_of_the_first_key(tmp_path: Path) -> None:
    assert "dataset" in load(tmp_path, b"\xef\xbb\xbf" + DATASET.encode()).splits[""]


def test_an_alias_and_a_merge_key_are_copied_and_keep_their_lines(tmp_path: Path) -> None:
    text = (
        "splits:\n"
        "  train: &base\n"
        "    dataset: {_target_: a.B}\n"
        "    loader: {batch_size: 4}\n"
        "  val:\n"
        "    <<: *base\n"
        "    loader: {batch_size: 8}\n"
    )
    found = load(tmp_path, text, "splits.val.dataset.root=x")
    assert found.splits["train"]["dataset"] == {"_target_": "a.B"}
    assert found.splits["val"]["dataset"] == {"_target_": "a.B", "root": "x"}
    assert found.splits["val"]["loader"] == {"batch_size": 8}
    assert config.locate(found, "val", "loader.batch_size").startswith("dlcheck.yaml:7: ")
    assert config.locate(found, "val", "dataset._target_").startswith("dlcheck.yaml:3: ")


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("train", "train"),
        ("val", "eval"),
        ("Validation", "eval"),
        ("test_clean", "eval"),
        ("valuable", "train"),
        ("eval", "eval"),
    ],
)
def test_the_role_follows_from_the_name_of_the_split(tmp_path: Path, name: str, role: str) -> None:
    found = load(tmp_path, DATASET + f"splits:\n  {name}:\n")
    assert found.splits[name]["role"] == role


def test_a_given_role_beats_the_name(tmp_path: Path) -> None:
    found = load(tmp_path, DATASET + "splits: {val: {role: train}}\n")
    assert found.splits["val"]["role"] == "train"


def test_a_split_with_a_loader_of_its_own_inherits_no_dataset(tmp_path: Path) -> None:
    text = DATASET + "transform: [{_target_: a.T}]\nsplits: {train: {}, val: {loader: a:b}}\n"
    found = load(tmp_path, text)
    assert set(found.splits["train"]) == {"dataset", "transform", "role"}
    assert found.splits["val"] == {"loader": "a:b", "role": "eval"}


def test_arguments_of_a_loader_class_are_free(tmp_path: Path) -> None:
    found = load(tmp_path, DATASET + "loader: {_target_: monai.data.DataLoader, odd: 1}\n")
    assert found.splits[""]["loader"]["odd"] == 1


def test_field_numbers_become_names(tmp_path: Path) -> None:
    found = load(tmp_path, DATASET + "fields: [0, label]\nexpect: {1.0: {classes: 2}}\n")
    assert found.splits[""]["fields"] == ["0", "label"]
    assert found.splits[""]["expect"] == {"1.0": {"classes": 2}}


def test_an_override_sets_what_yaml_would(tmp_path: Path) -> None:
    text = DATASET + "transform:\n  - {_target_: a.B, size: 8}\nexpect: {1.boxes: {classes: 2}}\n"
    changes = [
        "loader.batch_size=16",
        "transform.0.size=[4, 5]",
        "transform[0].p=1e-1",
        "expect.1.boxes.classes=7",
        "dataset.root=${oc.env:DLCHECK_UNSET,data}",
        "role=eval",
        "full_length=null",
    ]
    split = load(tmp_path, text, *changes).splits[""]
    assert split["loader"] == {"batch_size": 16}
    assert split["transform"] == [{"_target_": "a.B", "size": [4, 5], "p": 0.1}]
    assert split["expect"] == {"1.boxes": {"classes": 7}}
    assert split["dataset"]["root"] == "data"
    assert split["role"] == "eval"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            "loader.batch_siz=8",
            "override 'loader.batch_siz=8': loader.batch_siz: unknown key; did you mean batch_size",
        ),
        (
            "loader.batch_size=x",
            "override 'loader.batch_size=x': loader.batch_size: found the text 'x'",
        ),
        ("batch_size", "override 'batch_size': wanted key=value"),
        ("a.b.c=3", "override 'a.b.c=3': a: unknown key"),
        ("=3", "override '=3': wanted key=value"),
        ("+loader.batch_size=3", "override '+loader.batch_size=3': '+' is Hydra's"),
        (
            "step.x=3",
            "override 'step.x=3': step.x: step is the text 'a:step', so it has no 'x'",
        ),
        ("transform.4=null", "override 'transform.4=null': transform.4: no item 4: a list with"),
        ("transform.x=null", "override 'transform.x=null': transform.x: no item 'x'"),
        ("role=[", "override 'role=[': bad YAML"),
        ("role={a: 1, a: 2}", "override 'role={a: 1, a: 2}': role.a: given twice"),
        ("dataset.x=${y}", "override 'dataset.x=${y}': dataset.x: ${y} names no key"),
    ],
)
def test_a_wrong_override_is_named(tmp_path: Path, change: str, expected: str) -> None:
    text = DATASET + "step: a:step\ntransform: [{_target_: a.B}]\n"
    assert refusal(tmp_path, text, change).message.startswith(expected)


def test_resolving_leaves_the_resolvers_of_the_process_alone(tmp_path: Path) -> None:
    from omegaconf import OmegaConf

    load(tmp_path, "dataset: {_target_: a.B, x: '${obj:torch.int8}'}\n")
    assert not OmegaConf.has_resolver("obj")
    assert not OmegaConf.has_resolver("dlcheck_obj")


def test_locate_prefers_the_split_then_what_it_inherits_then_the_parent(tmp_path: Path) -> None:
    text = (
        "dataset:\n  _target_: a.B\n  root: x\n"
        "splits:\n  train:\n    loader:\n      batch_size: 4\n"
        "  val:\n    dataset: {_target_: a.C}\n"
    )
    found = load(tmp_path, text)
    assert config.locate(found, "train", "loader.batch_size") == "dlcheck.yaml:7: loader.batch_size"
    assert config.locate(found, "train", "loader.timeout") == "dlcheck.yaml:6: loader.timeout"
    assert config.locate(found, "train", "dataset.root") == "dlcheck.yaml:3: dataset.root"
    assert config.locate(found, "val", "dataset.root") == "dlcheck.yaml:9: dataset.root"
    assert config.locate(found, "val", "step") == "dlcheck.yaml:8: step"


def test_a_config_is_found_by_folder_and_by_path(tmp_path: Path) -> None:
    write(tmp_path, DATASET, "conf/dlcheck.yaml")
    write(tmp_path, DATASET, "conf/other.yml")
    by_folder = config.load("conf", cwd=str(tmp_path))
    assert (by_folder.target, by_folder.folder) == ("conf/dlcheck.yaml", str(tmp_path / "conf"))
    assert config.load("conf/other.yml", cwd=str(tmp_path)).target == "conf/other.yml"


def target_refused(folder: Path, target: str, *overrides: str) -> config.UserError:
    with pytest.raises(config.UserError) as caught:
        config.load(target, overrides, cwd=str(folder))
    return caught.value


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("dlchek.yaml", "dlchek.yaml: no such file; did you mean dlcheck.yaml?"),
        ("nowhere/dlcheck.yaml", "nowhere/dlcheck.yaml: no such file (nor a folder"),
        ("pip.py:make", "pip.py: no such file; did you mean pipe.py?"),
        ("pipe.py:", "pipe.py: which of these?\n  dlcheck shapes pipe.py:make"),
        ("pipe.py", "pipe.py: which of these?\n  dlcheck shapes pipe.py:make"),
        ("empty.py", "empty.py: which dataset or loader in it? None was found"),
        ("pipe.py:a-b", "'a-b' in 'pipe.py:a-b' is no attribute's name"),
        ("pipe.make", "'pipe.make' is no file or folder; did you mean pipe:make?"),
        ("confg", "'confg' is no file or folder; did you mean config?"),
        ("x/pipe:make", "'x/pipe' in 'x/pipe:make' is no module"),
        ("a..b:make", "'a..b' in 'a..b:make' is no module's name"),
        ("dlcheck.yaml:dataset", "'dlcheck.yaml' in 'dlcheck.yaml:dataset' is no module's name"),
        ("a" * 5000, "'aaaaaaaa"),
        ("my.data.py:make", "my.data.py cannot be imported"),
    ],
)
def test_a_target_that_is_none_says_what_is_near(
    tmp_path: Path, target: str, expected: str
) -> None:
    write(tmp_path, DATASET)
    write(tmp_path, "def make():\n    return DataLoader([])\n", "pipe.py")
    write(tmp_path, "", "empty.py")
    write(tmp_path, "", "my.data.py")
    (tmp_path / "config").mkdir()
    assert target_refused(tmp_path, target).message.startswith(expected)


def test_a_file_is_imported_by_the_name_it_has_in_its_package(tmp_path: Path) -> None:
    for name in ("src/cats/__init__.py", "src/cats/io/__init__.py", "src/cats/io/read.py"):
        write(tmp_path, "", name)
    found = config.load("src/cats/io/read.py:Make.it", cwd=str(tmp_path))
    assert found.folder == str(tmp_path / "src")
    assert found.splits == {"": {"object": "cats.io.read:Make.it", "role": "train"}}
    assert (found.source, found.lines, found.target) == (None, {}, "src/cats/io/read.py:Make.it")
    package = config.load("src/cats/__init__.py:make", cwd=str(tmp_path))
    assert package.splits[""]["object"] == "cats:make"


def test_a_module_is_looked_for_from_the_current_folder(tmp_path: Path) -> None:
    found = config.load("cats.data:make", cwd=str(tmp_path))
    assert (found.folder, found.splits[""]["object"]) == (str(tmp_path), "cats.data:make")
    assert config.locate(found, "", "object") == "cats.data:make: object"


def test_overrides_without_a_config_are_refused(tmp_path: Path) -> None:
    error = target_refused(tmp_path, "cats:make", "loader.batch_size=3")
    assert error.message == "'loader.batch_size=3' changes a config, and 'cats:make' is none"


def test_nothing_to_run_shows_an_example(tmp_path: Path) -> None:
    error = target_refused(tmp_path, ".")
    assert error.message == "nothing to run: no dlcheck.yaml here"
    assert "_target_: cats.data.Cats" in error.hint


def test_the_example_config_of_the_hint_loads(tmp_path: Path) -> None:
    lines = target_refused(tmp_path, ".").hint.splitlines()[1:-1]
    assert load(tmp_path, "\n".join(lines)).splits[""]["loader"]["batch_size"] == 32


@pytest.mark.parametrize("value", [None, True, 3, "x" * 200, [], {}, 10**400])
def test_any_value_is_described_briefly(value: Any) -> None:
    assert 0 < len(document.describe(value)) < 80
