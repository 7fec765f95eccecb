from __future__ import annotations

from pathlib import Path

import pytest

from dlcheck import config

DATASET = "dataset: {_target_: cats.Cats}\n"


def refusal(folder: Path, text: str | bytes) -> config.UserError:
    (folder / "dlcheck.yaml").write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(config.UserError) as caught:
        config.load(None, cwd=str(folder))
    assert "\n" not in caught.value.message
    assert len(caught.value.message) < 220
    assert len(caught.value.hint) < 240
    return caught.value


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
        DATASET + "rules: {ignore: {bgr-order: {until: 2030-12-31}}}\n",
        "2: rules.ignore.bgr-order: no reason",
    ),
    pytest.param(
        DATASET + "rules: {ignore: {bgr-order: {reason: x, until: 2030-02-31}}}\n",
        "2: rules.ignore.bgr-order.until: found the text '2030-02-31'; wanted a day",
    ),
    pytest.param(
        DATASET + "rules: {ignore: {bgr-order: {reason: x, till: 2030-12-31}}}\n",
        "2: rules.ignore.bgr-order.till: unknown key; did you mean until?",
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
