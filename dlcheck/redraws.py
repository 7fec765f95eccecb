"""What the parent asks of the probe: a few journeys always, and each failed sample again."""

from __future__ import annotations

import collections
from typing import Any

from dlcheck.observation import Failure, Observation, SampleId, SampleLeaves, Split
from dlcheck.suspects import leak_requests

JOURNEYS = 4
MOST_REDRAWS = 6
ODD_ONES = 3
MOST_GUILTY = 8
MOST_TWINS = 2


def requests_for(observation: Observation, *, images: str | None = None) -> list[dict[str, Any]]:
    """List the requests of a run, failed samples first, as JSON for the probe.

    With `images` the probe is told to wait for `pictures_for` as well.
    """
    requests: list[dict[str, Any]] = []
    for name, split in observation.splits.items():
        if split.loader is None:
            continue
        failures = [f for f in split.failures.values() if f.phase in ("sample", "collate")]
        requests += [{"split": name, **redraw(failure)} for failure in failures[:MOST_REDRAWS]]
    requests.sort(key=lambda request: not request["chosen"])
    if observation.settings.get("command") != "leak":
        requests += looks(observation)
    requests = [request for request in requests if request["chosen"]]
    requests += leak_requests(observation)
    return [*requests, {"kind": "more"}] if requests and images is not None else requests


def looks(observation: Observation) -> list[dict[str, Any]]:
    """Ask for samples with odd values, and for usual ones from all over each dataset."""
    requests: list[dict[str, Any]] = []
    for name, split in observation.splits.items():
        if split.loader is not None:
            requests += [{"split": name, **one} for one in odd_values(split)]
    for name, split in observation.splits.items():
        if split.loader is not None:
            requests.append({"split": name, "batch": usual(split), "chosen": usual(split)})
            if split.role == "eval" and split.loader.kind == "map":
                requests.append({"split": name, "kind": "twice", "chosen": usual(split)})
    return requests


def illustrated(requests: list[dict[str, Any]], observation: Observation) -> list[dict[str, Any]]:
    """Ask for thumbnails too: of each sample that is traced anyway, and of a batch."""
    if not requests:
        return []
    traced = [{**one, "shown": one["chosen"]} if one.get("chosen") else one for one in requests]
    batches = []
    for name, split in observation.splits.items():
        fields = split.given.get("fields")
        named = fields if isinstance(fields, dict) else {}
        if split.loader is not None and split.batches:
            batches.append({"split": name, "kind": "thumbnails", "fields": named})
    last = [one for one in traced if one.get("kind") == "more"]
    return [*(one for one in traced if one not in last), *batches, *last]


def pictures_for(observation: Observation, folder: str) -> list[dict[str, Any]]:
    """Ask for contact sheets of each split, its guilty samples among them, in a folder."""
    requests = []
    for name, split in observation.splits.items():
        if split.loader is None:
            continue
        fields = split.given.get("fields")
        requests.append({
            "split": name, "kind": "pictures", "folder": folder, "chosen": usual(split),
            "guilty": guilty(observation, name),
            "fields": fields if isinstance(fields, dict) else {},
        })  # fmt: skip
    return requests


def guilty(observation: Observation, split: str) -> dict[str, str]:
    """Name the samples that findings speak of, each with the first rule that does."""
    import dlcheck.rules  # noqa: F401 - fills the registry
    from dlcheck.findings import judge

    accused: dict[str, str] = {}
    for finding in judge(observation)[0]:
        if (finding.where.split or "") != split:
            continue
        listed = finding.evidence.get("samples")
        samples = [finding.where.sample, *(listed if isinstance(listed, list) else [])]
        for sample in samples[: 1 + ODD_ONES]:
            if isinstance(sample, int):
                accused.setdefault(str(sample), finding.rule)
    return dict(list(accused.items())[:MOST_GUILTY])


def odd_values(split: Split) -> list[dict[str, Any]]:
    """Ask for samples that hold NaN, one number only, or what another sample holds too.

    Of two that are equal the later one is drawn first: alone it shows what is its own.
    """
    fields = split.fields.values()
    nonfinite = [sample for field in fields for sample in field.nonfinite.at]
    blank = [sample for field in fields for sample in field.constant.at[:ODD_ONES]]
    twins = [
        (ids[-1], ids[0])
        for contents in split.contents.values()
        for ids in sorted(contents.seen.values(), key=len, reverse=True)[:MOST_TWINS]
        if len(ids) > 1
    ]
    pairs = [pair[side] for side in (0, 1) for pair in twins]
    wanted = [*pairs, *nonfinite[:ODD_ONES], *blank[:ODD_ONES]]
    return drawn_alone(split, list(dict.fromkeys(wanted)))


def drawn_alone(split: Split, samples: list[SampleId]) -> list[dict[str, Any]]:
    """Ask for single samples with no random state; those of a stream worker by worker."""
    indexes = [sample for sample in samples if isinstance(sample, int)]
    requests = [{"batch": indexes, "chosen": indexes, "kind": "odd"}] if indexes else []
    workers = split.loader.num_workers if split.loader else 0
    for sample in [one for one in samples if isinstance(one, str)][:1]:
        place = sample.partition("#")[0].removeprefix("w")
        worker = int(place) if place.isdigit() else None
        one: dict[str, Any] = {"batch": [sample], "chosen": [sample], "kind": "odd"}
        requests.append(one | {"worker": worker, "workers": workers})
    return requests


def usual(split: Split) -> list[SampleId]:
    """Choose samples from all over the dataset; of a stream the first ones."""
    loader = split.loader
    length = loader.dataset_length if loader else None
    if loader is None or loader.kind == "iterable" or not length:
        return [f"#{number}" for number in range(JOURNEYS)] if loader else []
    wanted = min(JOURNEYS, length)
    bad = {sample for failure in split.failures.values() for sample in failure.at}
    places = [round(n * (length - 1) / max(wanted - 1, 1)) for n in range(wanted)]
    return [place for place in dict.fromkeys(places) if place not in bad]


def redraw(failure: Failure) -> dict[str, Any]:
    """Ask for the samples of a failure in the random state in which they were drawn."""
    chosen = list(failure.detail.get("sample", failure.at[:1]))
    if failure.phase == "collate":
        chosen = odd_ones(failure.samples)
    return {
        "batch": list(failure.batch) or chosen,
        "chosen": chosen,
        "phase": failure.phase,
        "state": failure.detail.get("state"),
        "worker": failure.worker,
        "workers": failure.detail.get("num_workers", 0),
        "exception": failure.exception,
        "prints": failure.detail.get("prints", {}),
    }


def odd_ones(samples: tuple[SampleLeaves, ...]) -> list[SampleId]:
    """Choose, of a batch that could not be joined, one usual sample and the unusual ones."""
    looks = {s.index: repr({p: leaf.text() for p, leaf in s.leaves.items()}) for s in samples}
    counts = collections.Counter(looks.values())
    if not counts:
        return []
    common = counts.most_common(1)[0][0]
    usual_one = next(index for index, look in looks.items() if look == common)
    odd: dict[str, SampleId] = {}
    for index, look in looks.items():
        if look != common:
            odd.setdefault(look, index)
    return [usual_one, *list(odd.values())[:ODD_ONES]]
