"""Count what samples and batches look like, a batch at a time, as mergeable plain data."""

from __future__ import annotations

from typing import Any

from dlcheck.observation import EXAMPLES, SampleId, sample_order, shape_text
from dlcheck.observers.describe import Described, Names, describe
from dlcheck.observers.values import Memory, Values

Signature = tuple[tuple[str, str, str | None, tuple[int, ...] | None], ...]
CONTAINERS = ("dict", "tuple", "list")
MOST_PATHS = 200


class SampleCount:
    """Describes samples as they come and hands over what it saw as a part of a Split in JSON.

    Samples of equal structure, dtypes and shapes share one signature, so that the cost of a
    sample is one walk over its leaves.
    """

    def __init__(self, names: Names = (), memory: Memory | None = None) -> None:
        self.n = 0
        self.values = None if memory is None else Values(memory)
        self.names = names
        self.signatures: dict[Signature, list[SampleId]] = {}
        self.ranges: dict[str, list[float]] = {}
        self.nonfinite: dict[str, list[SampleId]] = {}
        self.grad: dict[str, list[SampleId]] = {}

    def add(self, index: SampleId, sample: Any) -> list[Described]:
        """Describe one sample."""
        values = self.values
        leaves = describe(sample, names=self.names, look=values.look if values else None)
        self.count(index, leaves)
        if values:
            values.end(index, leaves)
        return leaves

    def count(self, index: SampleId, leaves: list[Described]) -> None:
        """Count one described sample."""
        self.n += 1
        signature = tuple([leaf[:4] for leaf in leaves])
        held = self.signatures.get(signature)
        if held is None:
            self.signatures[signature] = [index]
        else:
            held.append(index)
        ranges = self.ranges
        for leaf in leaves:
            low, high = leaf[4], leaf[5]
            if low is not None and high is not None:
                known = ranges.get(leaf[0])
                if known is None:
                    ranges[leaf[0]] = [low, high]
                elif low < known[0] or high > known[1]:
                    ranges[leaf[0]] = [min(low, known[0]), max(high, known[1])]
            if leaf[6]:
                self.nonfinite.setdefault(leaf[0], []).append(index)
            if leaf[7]:
                self.grad.setdefault(leaf[0], []).append(index)

    def fields(self) -> dict[str, Any]:
        """Return the fields seen so far, as Field in JSON."""
        fields: dict[str, Any] = {}
        for signature, indices in self.signatures.items():
            for path, kind, dtype, shape in signature:
                entry = fields.setdefault(path, {"types": {}})
                _add(entry["types"], kind, indices)
                if dtype is not None:
                    _add(entry.setdefault("dtypes", {}), dtype, indices)
                if shape is not None:
                    _add(entry.setdefault("shapes", {}), shape_text(shape), indices)
        for path, (low, high) in self.ranges.items():
            fields[path] |= {"low": low, "high": high}
        for name, seen in (("nonfinite", self.nonfinite), ("grad", self.grad)):
            for path, indices in seen.items():
                fields[path][name] = tally(indices)
        return fields

    def structures(self) -> dict[str, Any]:
        """Return the nestings seen so far, as Structure in JSON by a key that names them."""
        found: dict[str, Any] = {}
        for signature, indices in self.signatures.items():
            paths = {path: kind for path, kind, _, _ in signature[:MOST_PATHS]}
            key = ",".join(f"{path}:{kind}" for path, kind in paths.items())
            if key in found:
                found[key]["seen"] = tally(indices, found[key]["seen"])
            else:
                found[key] = {"paths": paths, "seen": tally(indices)}
        return found

    def split(self, *, drawn: bool = True) -> dict[str, Any]:
        """Return everything as a part of a Split in JSON.

        `drawn`: the samples came in the order of the user's own sampler.
        """
        fields = self.fields()
        part = {"samples": self.n, "fields": fields, "structures": self.structures()}
        if self.values is None:
            return part
        for path, held in self.values.fields(drawn=drawn).items():
            fields[path] |= held
        return part | self.values.split()


def tally(indices: list[SampleId], onto: dict[str, Any] | None = None) -> dict[str, Any]:
    """Count samples and keep the smallest few, as Tally in JSON."""
    before = onto or {"n": 0, "at": []}
    at = sorted({*before["at"], *indices}, key=sample_order)[:EXAMPLES]
    return {"n": before["n"] + len(indices), "at": at}


def _add(counter: dict[str, Any], key: str, indices: list[SampleId]) -> None:
    counter[key] = tally(indices, counter.get(key))


def sample_leaves(index: SampleId, leaves: list[Described]) -> dict[str, Any]:
    """Return one described sample as SampleLeaves in JSON."""
    table = {
        leaf.path: {"type": leaf.type}
        | ({"dtype": leaf.dtype} if leaf.dtype is not None else {})
        | ({"shape": list(leaf.shape)} if leaf.shape is not None else {})
        for leaf in leaves[:MOST_PATHS]
    }
    return {"index": index, "leaves": table}
