"""The keys of a config that say what is right: fields, expect, machine, rules, gate."""

from __future__ import annotations

import math
import re
from datetime import date
from typing import Any

from dlcheck.document import Mistake, join, nearest
from dlcheck.schema import (
    Check,
    count,
    every,
    flag,
    is_node,
    is_number,
    is_whole,
    keyed,
    loader,
    named,
    nullable,
    number,
    one_of,
    optional_node,
    positive,
    text,
    transform,
    unknown,
    whole,
    wrong,
)

KINDS = (
    "image", "mask", "label", "boxes", "keypoints", "tokens",
    "audio", "video", "volume", "target", "other",
)  # fmt: skip
COLOURS = ("RGB", "BGR", "RGBA", "BGRA", "gray", "HSV", "LAB", "YCbCr", "other")
BOX_FORMATS = ("xyxy", "xywh", "cxcywh", "xyxyn", "xywhn", "cxcywhn", "xyxyxyxy", "xywhr")
DTYPES = (
    "float16", "float32", "float64", "bfloat16", "int8", "int16", "int32", "int64",
    "uint8", "uint16", "uint32", "uint64", "bool", "complex64", "complex128",
    "float8_e4m3fn", "float8_e5m2", "object", "str", "bytes", "int", "float",
)  # fmt: skip
STATISTICS = ("imagenet", "inception", "clip")
LEVELS = ("error", "warning", "note")
AXES = "BNTSLCDHWP"
SIZE = re.compile(r"\d+(\.\d+)? ?([KMGTP]i?)?B?", re.IGNORECASE)
RULE = re.compile(r"[a-z]+(-[a-z]+)*|DLC\d{3}")


def _layout(value: Any, path: str) -> None:
    letters = value if isinstance(value, str) else ""
    if not letters or set(letters) - set(AXES) or len(set(letters)) < len(letters):
        raise wrong(value, path, f"an order of axes such as CHW, HWC or TCHW (of {AXES})")


def _names(value: Any, path: str) -> None:
    if isinstance(value, list):
        every(text, "a field's name, or a list of them")(value, path)
    else:
        text(value, path)


def _box_format(value: Any, path: str) -> None:
    one_of(*BOX_FORMATS)(value.lower() if isinstance(value, str) else value, path)


FIELD: dict[str, Check] = {
    "kind": one_of(*KINDS),
    "layout": _layout,
    "colour": one_of(*COLOURS),
    "format": _box_format,
    "pairs_with": _names,
    "nan": one_of("ok"),
}
_fields = named(nullable(keyed(FIELD)), "a list of names, or a mapping from names")


def fields(value: Any, path: str) -> None:
    """Allow names for the items of a sample, or a mapping from names to what they are."""
    if not isinstance(value, list):
        _fields(value, path)
        return
    seen: set[str] = set()
    for index, one in enumerate(value):
        if not isinstance(one, str) and not is_whole(one):
            raise wrong(one, join(path, index), "a field's name")
        if str(one) in seen:
            raise Mistake(join(path, index), f"the name {str(one)!r} is given twice")
        seen.add(str(one))


def _shape(value: Any, path: str) -> None:
    wanted = "a list of sizes such as [3, 224, 224], `*` for any size"
    if not isinstance(value, list):
        raise wrong(value, path, wanted)
    for index, size in enumerate(value):
        if size is not None and size != "*" and not (is_whole(size) and size >= -1):
            raise wrong(size, join(path, index), "a size: a whole number, or `*` for any")


def _dtype(value: Any, path: str) -> None:
    if isinstance(value, list) and value:
        for index, one in enumerate(value):
            _dtype(one, join(path, index))
        return
    given = value.get("_obj_") if isinstance(value, dict) else value
    plain = given.rpartition(".")[2] if isinstance(given, str) else ""
    if isinstance(value, str) and value in DTYPES:
        return
    near = f"; did you mean {plain}?" if plain in DTYPES else nearest(plain, DTYPES)
    raise wrong(value, path, f"a dtype's name such as float32 or int64{near}")


def _range(value: Any, path: str) -> None:
    pair = isinstance(value, list) and len(value) == len(("low", "high"))
    if not pair or not all(is_number(one) and not math.isnan(one) for one in value):
        raise wrong(value, path, "[lowest, highest]")
    if value[0] > value[1]:
        raise Mistake(path, f"found [{value[0]}, {value[1]}]; wanted [lowest, highest]")


_numbers = every(number, "a list with a number a channel")
_statistics = keyed({"mean": _numbers, "std": _numbers})


def _normalize(value: Any, path: str) -> None:
    if not isinstance(value, dict):
        one_of(*STATISTICS, wanted=f"{', '.join(STATISTICS)} or {{mean: [...], std: [...]}}")(
            value, path
        )
        return
    _statistics(value, path)
    for key in ("mean", "std"):
        if key not in value:
            raise Mistake(path, f"no {key}: wanted {{mean: [...], std: [...]}}")


def _classes(value: Any, path: str) -> None:
    named_classes = isinstance(value, list) and value
    if not named_classes and not (is_whole(value) and value > 0):
        raise wrong(value, path, "how many classes, or a list of them")


def _ignore_index(value: Any, path: str) -> None:
    if isinstance(value, list):
        every(whole, "a whole number, or a list of them")(value, path)
    else:
        whole(value, path)


def _values(value: Any, path: str) -> None:
    if not isinstance(value, list) or not value:
        raise wrong(value, path, "a list of the values that may occur, such as [0, 1]")
    for index, one in enumerate(value):
        if isinstance(one, dict | list) or one is None:
            raise wrong(one, join(path, index), "a number or text")


EXPECT: dict[str, Check] = {
    "shape": _shape,
    "dtype": _dtype,
    "range": _range,
    "normalize": _normalize,
    "classes": _classes,
    "ignore_index": _ignore_index,
    "values": _values,
    "layout": _layout,
    "colour": one_of(*COLOURS),
    "pairs_with": _names,
}


def _size(value: Any, path: str) -> None:
    if is_whole(value) and value > 0:
        return
    if not isinstance(value, str) or not SIZE.fullmatch(value):
        raise wrong(value, path, "a size such as 24GiB or 512MiB", "a bare number is bytes")


MACHINE: dict[str, Check] = {"cpus": positive, "memory": _size, "shm": _size, "device": _size}


def _rule(slug: str, path: str) -> None:
    if not RULE.fullmatch(slug):
        raise Mistake(path, f"found {slug!r}; wanted a rule's name, such as ragged-batch or DLC101")


def _ignore(value: Any, path: str) -> None:
    wanted = 'a mapping from rules to reasons, as in {bgr-order: "weights expect BGR"}'
    if not isinstance(value, dict):
        raise wrong(value, path, wanted)
    for slug, said in value.items():
        at = join(path, slug)
        _rule(slug, at)
        if isinstance(said, dict):
            _dated(said, at)
        else:
            _reason(said, at)


def _reason(value: Any, path: str) -> None:
    if not isinstance(value, str) or not value.strip():
        raise wrong(value, path, "the reason why the rule is ignored")


def _day(value: Any, path: str) -> None:
    """Allow a day that there is; YAML's dates are text here."""
    try:
        date.fromisoformat(value)
    except (TypeError, ValueError):
        raise wrong(value, path, "a day such as 2030-12-31") from None


def _dated(value: dict[str, Any], path: str) -> None:
    keyed({"reason": _reason, "until": nullable(_day)})(value, path)
    if "reason" not in value:
        raise Mistake(path, "no reason: wanted {reason: ..., until: 2030-12-31}")


def _severity(value: Any, path: str) -> None:
    named(one_of(*LEVELS), "a mapping from rules to error, warning or note")(value, path)
    for slug in value:
        _rule(slug, join(path, slug))


GATE: dict[str, Check] = {
    "fail_on": one_of(*LEVELS, "never"),
    "fail_on_incomplete": flag,
    "leak": keyed({"epochs": count}),
    "speed": keyed({"min_samples_per_second": positive}),
    "baseline": text,
}

SPLIT: dict[str, Check] = {
    "dataset": optional_node,
    "transform": transform,
    "transform_arg": nullable(text),
    "loader": loader,
    "datamodule": optional_node,
    "role": one_of("train", "eval"),
    "epoch_hook": optional_node,
    "fields": nullable(fields),
    "expect": nullable(named(nullable(keyed(EXPECT)), "a mapping from fields")),
    "model": optional_node,
    "loss": optional_node,
    "optimizer": optional_node,
    "step": optional_node,
    "full_length": nullable(count),
}
SETTINGS: dict[str, Check] = {
    "machine": nullable(keyed(MACHINE)),
    "rules": nullable(keyed({"ignore": nullable(_ignore), "severity": nullable(_severity)})),
    "gate": nullable(keyed(GATE)),
}


def _one_split(value: Any, path: str) -> None:
    if isinstance(value, dict):
        for key in value:
            if key in SETTINGS or key == "splits":
                raise Mistake(join(path, key), f"{key} stands at the top, not in a split")
    keyed(SPLIT)(value, path)


def _splits(value: Any, path: str) -> None:
    named(nullable(_one_split), "a mapping from names, as in {train: {...}, val: {...}}")(
        value, path
    )
    if not value:
        raise Mistake(path, "no split in it", "as in {train: {...}, val: {...}}")


TOP: dict[str, Check] = {**SPLIT, "splits": _splits, **SETTINGS}


def check(values: dict[str, Any]) -> None:
    """Check a whole config, its interpolations already resolved.

    Raises:
        Mistake: the first thing that is wrong, in the order of the file.
    """
    for key, value in values.items():
        if key not in TOP:
            raise unknown(key, "", TOP)
        TOP[key](value, key)


def check_split(split: dict[str, Any], path: str) -> None:
    """Check that the keys of one split, inherited ones included, make one pipeline.

    Raises:
        Mistake: nothing to check, or two ways to make it.
    """
    ways = [key for key in ("datamodule", "dataset", "loader") if split.get(key) is not None]
    if not ways:
        hint = (
            "as in `dataset: {_target_: cats.data.Cats, root: data}` or `loader: cats.data:loader`"
        )
        raise Mistake(path, "nothing to check: give dataset, loader or datamodule", hint)
    if ways[0] == "datamodule" and len(ways) > 1:
        raise Mistake(
            join(path, ways[1]), f"datamodule makes the whole loader: {ways[1]} has no use"
        )
    if isinstance(split.get("loader"), str) and "dataset" in ways:
        message = f"loader names {split['loader']}, which makes its own dataset"
        raise Mistake(join(path, "dataset"), message, "remove one of dataset and loader")
    if "dataset" in ways:
        return
    if isinstance(split.get("loader"), dict) and not is_node(split["loader"]):
        raise Mistake(join(path, "loader"), "these arguments need a dataset", "add dataset:")
    if split.get("transform") is not None:
        raise Mistake(join(path, "transform"), "there is no dataset to take it")
