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


AT_LINE = [
    pytest.param("datset: {_target_: a.B}\n", "1: datset: unknown key; did you mean dataset?"),
    pytest.param(
        DATASET + "loader:\n  batchsize: 8\n",
        "3: loader.batchsize: unknown key; did you mean batch_size?",
    ),
    pytest.param(
        DATASET + "loader:\n  num_workers: two\n",
        "3: loader.num_workers: found the text 'two'; wanted a whole number",
    ),
    pytest.param(
        DATASET + "loader: {batch_size: true}\n",
        "2: loader.batch_size: found true; wanted a whole number",
    ),
    pytest.param(
        DATASET + "loader: {shuffle: 1}\n",
        "2: loader.shuffle: found the number 1; wanted true or false",
    ),
    pytest.param(
        DATASET + "loader: {collate_fn: cats.data.collate}\n",
        "2: loader.collate_fn: found the text 'cats.data.collate'; wanted a mapping with "
        "_target_, or module:attribute; did you mean cats.data:collate?",
    ),
    pytest.param(
        "loader: src/pipe.py:make\n",
        "1: loader: found the text 'src/pipe.py:make'; wanted a module's name; "
        "did you mean src.pipe:make?",
    ),
    pytest.param(
        DATASET + "loader: {multiprocessing_context: spwan}\n",
        "2: loader.multiprocessing_context: found the text 'spwan'; wanted fork, spawn or "
        "forkserver; did you mean spawn?",
    ),
    pytest.param("dataset: {_targt_: a.B}\n", "1: dataset._targt_: unknown key; did you mean"),
    pytest.param("dataset: {root: data}\n", "1: dataset: no _target_ (nor class_path)"),
    pytest.param(
        "dataset: {_target_: a.B, _arg_: [1]}\n",
        "1: dataset._arg_: unknown key; did you mean _args_?",
    ),
    pytest.param(
        "dataset: {_target_: a.B, x: {_target_: 3}}\n",
        "1: dataset.x._target_: found the number 3; wanted a name such as cats.data.Cats",
    ),
    pytest.param("dataset: {_target_: a..B}\n", "1: dataset._target_: found the text 'a..B'"),
    pytest.param(
        "dataset: {class_path: a.B, init_arg: {x: 1}}\n",
        "1: dataset.init_arg: unknown key; did you mean init_args?",
    ),
    pytest.param(
        "dataset: {class_path: a.B, _target_: a.B}\n",
        "1: dataset.class_path: found _target_ and class_path; wanted one of them",
    ),
    pytest.param(
        DATASET + "transform:\n  - {_target_: a.B}\n  - 3\n",
        "4: transform.1: found the number 3; wanted a mapping with _target_",
    ),
    pytest.param(
        DATASET + "role: training\n",
        "2: role: found the text 'training'; wanted train or eval; did you mean train?",
    ),
    pytest.param(DATASET + "epoch_hook: 5\n", "2: epoch_hook: found the number 5; wanted"),
    pytest.param(
        DATASET + "fields: {image: {kind: imgae}}\n",
        "2: fields.image.kind: found the text 'imgae'; wanted image, mask, label, boxes",
    ),
    pytest.param(
        DATASET + "fields: {image: {color: RGB}}\n",
        "2: fields.image.color: unknown key; did you mean colour?",
    ),
    pytest.param(
        DATASET + "fields: {image: {layout: CHX}}\n",
        "2: fields.image.layout: found the text 'CHX'; wanted an order of axes",
    ),
    pytest.param(DATASET + "fields: [a, a]\n", "2: fields.1: the name 'a' is given twice"),
    pytest.param(DATASET + "fields: image\n", "2: fields: found the text 'image'; wanted a list"),
    pytest.param(
        DATASET + "expect:\n  image: {dtype: float23}\n",
        "3: expect.image.dtype: found the text 'float23'; wanted a dtype's name such as float32 "
        "or int64; did you mean float32?",
    ),
    pytest.param(
        DATASET + "expect: {image: {dtype: torch.int64}}\n",
        "2: expect.image.dtype: found the text 'torch.int64'; wanted a dtype's name such as "
        "float32 or int64; did you mean int64?",
    ),
    pytest.param(
        DATASET + "expect: {image: {shape: [3, big]}}\n",
        "2: expect.image.shape.1: found the text 'big'; wanted a size",
    ),
    pytest.param(
        DATASET + "expect: {image: {range: [3, -3]}}\n",
        "2: expect.image.range: found [3, -3]; wanted [lowest, highest]",
    ),
    pytest.param(
        DATASET + "expect: {image: {normalize: imagnet}}\n",
        "2: expect.image.normalize: found the text 'imagnet'; wanted imagenet, inception, clip",
    ),
    pytest.param(
        DATASET + "expect: {image: {normalize: {mean: [0.5]}}}\n",
        "2: expect.image.normalize: no std",
    ),
    pytest.param(
        DATASET + "expect: {label: {classes: 0}}\n",
        "2: expect.label.classes: found the number 0; wanted how many classes",
    ),
    pytest.param(
        DATASET + "expect: {label: {shapes: [3]}}\n",
        "2: expect.label.shapes: unknown key; did you mean shape?",
    ),
    pytest.param(
        DATASET + "machine: {memory: 64 gigs}\n",
        "2: machine.memory: found the text '64 gigs'; wanted a size such as 24GiB",
    ),
    pytest.param(
        DATASET + "machine: {cpus: 0}\n", "2: machine.cpus: found the number 0; wanted a number"
    ),
    pytest.param(
        DATASET + "rules: {ignore: [bgr-order]}\n",
        "2: rules.ignore: found a list; wanted a mapping from rules to reasons",
    ),
    pytest.param(
        DATASET + "rules: {ignore: {bgr-order: ''}}\n",
        "2: rules.ignore.bgr-order: found the text ''; wanted the reason",
    ),
    pytest.param(
        DATASET + "rules: {severity: {bgr-order: warn}}\n",
        "2: rules.severity.bgr-order: found the text 'warn'; wanted error, warning or note; "
        "did you mean warning?",
    ),
    pytest.param(
        DATASET + "gate: {leak: {epoch: 3}}\n",
        "2: gate.leak.epoch: unknown key; did you mean epochs?",
    ),
    pytest.param(DATASET + "full_length: -1\n", "2: full_length: found the number -1; wanted"),
    pytest.param(
        "splits:\n  train: {dataset: {_target_: a.B}}\n  val: {machine: {cpus: 2}}\n",
        "3: splits.val.machine: machine stands at the top, not in a split",
    ),
    pytest.param("splits: {}\n", "1: splits: no split in it"),
    pytest.param("role: eval\n", ": nothing to check: give dataset, loader or datamodule"),
    pytest.param("loader: {batch_size: 2}\n", "1: loader: these arguments need a dataset"),
    pytest.param(
        DATASET + "loader: a:b\n", "1: dataset: loader names a:b, which makes its own dataset"
    ),
    pytest.param(
        DATASET + "datamodule: {_target_: a.B}\n", "1: dataset: datamodule makes the whole loader"
    ),
    pytest.param(
        "loader: a:b\ntransform: [{_target_: a.B}]\n",
        "2: transform: there is no dataset to take it",
    ),
    pytest.param(
        DATASET + "loader: {batch_size: 2}\ndataset: {}\n",
        "3: dataset: given twice, first on line 1",
    ),
    pytest.param(
        "dataset:\n  _target_: a.B\n  x: 1\n  x: 2\n", "4: dataset.x: given twice, first on line 3"
    ),
    pytest.param("", "1: the file is empty"),
    pytest.param("# only a comment\n", "1: the file is empty"),
    pytest.param("- a\n", "1: found a list; wanted keys with values"),
    pytest.param("dataset {_target_: a.B}\n", "1: "),
    pytest.param("dataset:\n\t_target_: a.B\n", "2: a tab where YAML takes only spaces"),
    pytest.param("loader: {batch_size: 2\nrole: train\n", "2: bad YAML: "),
    pytest.param("a: b: c\n", "1: a second `:` in one value, or a wrong indent"),
    pytest.param("a: 1\n---\nb: 2\n", "2: a second document starts here"),
    pytest.param("dataset: *nothing\n", "1: bad YAML: found undefined alias 'nothing'"),
    pytest.param(
        "dataset: &a {_target_: a.B, x: *a}\n",
        "1: dataset.x: the alias stands for a value that holds itself",
    ),
    pytest.param(
        "dataset: {_target_: a.B, x: &a [*a]}\n",
        "1: dataset.x.0: the alias stands for a value that holds itself",
    ),
    pytest.param(
        "dataset: {_target_: a.B, x: !!python/object:os.system [ls]}\n",
        "1: dataset.x: the YAML tag !!python/object:os.system is not taken",
    ),
    pytest.param("dataset: {_target_: a.B, x: !mine 3}\n", "1: dataset.x: the YAML tag !mine"),
    pytest.param("dataset: {_target_: a.B, [1]: 2}\n", "1: dataset: a list or mapping cannot be"),
    pytest.param(b"dataset: \xff\n", "1: byte 0xff is not UTF-8"),
    pytest.param("role: train\n".encode("utf-16"), "1: the file is UTF-16"),
    pytest.param(b"role: train\na: \x07\n", "2: the character '\\x07' is not allowed in YAML"),
    pytest.param("a: " + "[" * 5000, "1: nested more than 60 levels deep"),
    pytest.param("a: " + "[" * 80 + "]" * 80, "1: "),
    pytest.param("a: " + "9" * 5000 + "\n", "1: "),
    pytest.param(
        DATASET + "loader: {batch_size: '8'}\n",
        "2: loader.batch_size: found the text '8'; wanted a whole number",
    ),
    pytest.param(
        "dataset: {_target_: a.B, x: '${dataset.y}', y: '${dataset.x}'}\n",
        "1: dataset.x: circular interpolation",
    ),
    pytest.param(
        "dataset: {_target_: a.B, x: {y: '${dataset}'}}\n",
        "1: dataset.x.y: circular interpolation",
    ),
    pytest.param(
        DATASET + "loader:\n  batch_size: ${loader.num_worker}\n  num_workers: 2\n",
        "3: loader.batch_size: ${loader.num_worker} names no key of this config; "
        "did you mean loader.num_workers?",
    ),
    pytest.param(
        "dataset: {_target_: a.B, x: '${oc.env:DLCHECK_UNSET}'}\n",
        "1: dataset.x: the environment variable DLCHECK_UNSET is not set",
    ),
    pytest.param(
        "dataset: {_target_: a.B, x: '${nope:3}'}\n", "1: dataset.x: there is no resolver 'nope'"
    ),
    pytest.param(
        "dataset: {_target_: a.B, x: '${obj:a'}\n",
        "1: dataset.x: '${obj:a' is no interpolation",
    ),
    pytest.param(
        "dataset: {_target_: a.B, x: '${obj:}'}\n",
        "1: dataset.x._obj_: found the text ''; wanted a name such as cats.data.Cats",
    ),
    pytest.param(
        "dataset: {_target_: a.B, x: 'in ${obj:a.b}'}\n",
        "1: dataset.x: ${obj:...} stands for an object",
    ),
    pytest.param(
        "dataset:\n  _target_: a.B\n  x: ???\n",
        "3: dataset.x: `???` stands for a value that is still to be given",
    ),
]


@pytest.mark.parametrize(("text", "expected"), AT_LINE)
def test_a_mistake_is_one_short_message_with_line_and_key(
    tmp_path: Path, text: str | bytes, expected: str
) -> None:
    error = refusal(tmp_path, text)
    where = "" if expected.startswith(":") else ":"
    assert error.message.startswith(f"dlcheck.yaml{where}{expected}")


def test_aliases_that_multiply_are_refused_quickly(tmp_path: Path) -> None:
    lines = ["a0: &a0 [1, 1]"]
    lines += [f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}, *a{n - 1}]" for n in range(1, 30)]
    assert "aliases that multiply" in refusal(tmp_path, "\n".join(lines)).message


def test_an_unknown_key_lists_what_is_allowed(tmp_path: Path) -> None:
    error = refusal(tmp_path, DATASET + "loader: {zzz: 1}\n")
    assert error.message == "dlcheck.yaml:2: loader.zzz: unknown key"
    assert error.hint.startswith("allowed here: batch_size, shuffle, sampler")


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
