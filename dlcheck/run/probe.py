"""The probe: a copy of the child from before anything was drawn. It may crash or hang."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import json
import operator
import os
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from dlcheck.observation import Journey, SampleId, failure_from_json, plain
from dlcheck.observers.journey import Traced, Tracer
from dlcheck.observers.layout import state_of
from dlcheck.observers.mixture import Before
from dlcheck.observers.openers import Openers, colour_of
from dlcheck.observers.pixels import Pixels
from dlcheck.observers.values import contents_of
from dlcheck.run import (
    culprits,
    forks,
    fresh,
    rebuilt,
    replay,
    sheets,
    thumbnails,
    torch_private,
    twice,
)
from dlcheck.run.facts import length_of
from dlcheck.run.failures import failure_of, is_user
from dlcheck.run.fingerprint import fingerprint
from dlcheck.run.pictures import Gallery
from dlcheck.run.scratch import Scratch

POLL = 0.01
ALONE = 5.0
MOST_STREAM = 5_000
MOST_COLLATED = 8
MOST_AGAIN = 32
ASK = "ask.json"
MORE = "pictures.json"
Drawn = tuple[SampleId, Any]


def start(
    targets: dict[str, Any],
    names: dict[str, tuple[str, ...]],
    scratch: Scratch,
    recipes: dict[str, rebuilt.Recipe],
) -> str:
    """Fork the probe, or start it fresh without a fork; returns why there is none, else nothing."""
    if not hasattr(os, "fork"):
        return fresh.start(scratch)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pid = os.fork()
        if pid == 0:
            try:
                Probe(targets, names, Scratch(scratch.folder), recipes).serve()
            finally:
                os._exit(0)
    scratch.write(obs={"settings": {"probe_pid": pid}})
    return ""


class Probe:
    """Waits for the parent's requests and answers each with journeys."""

    def __init__(
        self,
        targets: dict[str, Any],
        names: dict[str, tuple[str, ...]],
        scratch: Scratch,
        recipes: dict[str, rebuilt.Recipe],
    ) -> None:
        self.targets = targets
        self.names = names
        self.scratch = scratch
        self.recipes = recipes
        self.openers = Openers(is_user, scratch=scratch.folder)
        self.written: set[tuple[str, str]] = set()
        self.gallery: Gallery | None = None
        self.shown: dict[str, Journey] = {}

    def serve(self) -> None:
        """Answer until all is answered or the scratch folder is gone."""
        requests = self.asked(ASK)
        if not requests:
            return
        self.settle()
        for request in requests:
            try:
                self.answer(request)
            except BaseException as error:  # noqa: BLE001 - the next request may still work
                self.scratch.write(probe=f"{type(error).__name__}: {error}"[:500])
        self.scratch.write(answered=True)
        if requests[-1].get("kind") == "more":
            self.draw(self.asked(MORE))
            self.scratch.write(answered=True)

    def asked(self, name: str) -> list[dict[str, Any]]:
        """Wait for a file of requests; empty when the scratch folder is gone."""
        ask = Path(self.scratch.folder) / name
        while not ask.exists():
            if not ask.parent.exists():
                return []
            time.sleep(POLL)
        requests: list[dict[str, Any]] = json.loads(ask.read_text(encoding="utf-8"))
        return requests

    def draw(self, requests: list[dict[str, Any]]) -> None:
        """Draw contact sheets; a split without any is said, and changes no verdict."""
        written: list[str] = []
        missing: list[str] = []
        for request in requests:
            split = request["split"]
            try:
                target, names = self.targets[split], self.names.get(split, ())
                files, word = sheets.draw(target, request, names)
                written += files
            except BaseException as error:  # noqa: BLE001 - the user's code, or a full disk
                word = f"{type(error).__name__}: {error}"[:200]
            missing += [f"{split}: {word}" if split else word] if word else []
        settings = {"pictures": written, "pictures_missing": "; ".join(missing)}
        self.scratch.write(obs={"settings": settings})

    def settle(self) -> None:
        """Make this copy quiet and observed: one thread, prints aside, openers recorded."""
        import torch

        self.scratch.begin()
        aside = os.open(
            str(Path(self.scratch.folder) / "probe-prints"),
            os.O_WRONLY | os.O_CREAT | os.O_APPEND,
            0o600,
        )
        os.dup2(aside, 1)
        os.dup2(aside, 2)
        torch.set_num_threads(1)
        self.openers.install()

    def answer(self, request: dict[str, Any]) -> None:
        """Draw the samples of a request, trace those chosen, and write their journeys."""
        if request.get("kind") == "more":
            return
        target = self.targets[request["split"]]
        if request.get("kind") == "leak":
            culprits.answer(request, target, self.scratch)
            return
        if request.get("kind") == "thumbnails":
            self.show_batch(target, request)
            return
        dataset = target.dataset
        if dataset is None:
            return
        if request.get("kind") == "twice":
            self.twice(dataset, request)
            return
        if request.get("kind") == "odd":
            self.alone(request)
            return
        draw = self.stream if torch_private.is_iterable_dataset(dataset) else self.indexed
        found = replay.generators(
            dataset=dataset, collate=getattr(target.loader, "collate_fn", None)
        )
        state, lost = self.restored(request, found)
        kept: list[Drawn] = []
        for sample, call in draw(dataset, request):
            if sample in request["chosen"]:
                kept += self.journey(sample, call, request, lost, reset=state is not None)
            else:
                with contextlib.suppress(Exception):
                    call()
        if request.get("kind") is None and "phase" not in request and kept:
            self.collate(target.loader, kept + self.further(dataset, kept), request)

    def alone(self, request: dict[str, Any]) -> None:
        """Draw each sample in a fork of its own: what one leaves in a cache reaches no other."""
        for sample in request["chosen"]:
            one = request | {"kind": "alone", "batch": [sample], "chosen": [sample]}
            if not hasattr(os, "fork"):
                self.answer(one)
            elif forks.apart(functools.partial(self.answered, one), ALONE):
                self.written.add((request["split"], str(sample)))

    def answered(self, request: dict[str, Any]) -> bool:
        """Answer a request in a fork; whatever is raised there has nobody to hear it."""
        with contextlib.suppress(BaseException):
            self.answer(request)
        return True

    @staticmethod
    def further(dataset: Any, kept: list[Drawn]) -> list[Drawn]:
        """Draw a few more samples for a batch, at no regular distance: labels often repeat."""
        if torch_private.is_iterable_dataset(dataset):
            return []
        wanted = MOST_COLLATED - len(kept)
        length = length_of(dataset) or 0
        numbers = range(1, wanted + 1) if length else ()
        places = dict.fromkeys((n * length // wanted + n) % length for n in numbers)
        found: list[Drawn] = []
        for place in places:
            with contextlib.suppress(Exception):
                if place not in {sample for sample, _ in kept}:
                    found.append((place, dataset[place]))
        return found

    def twice(self, dataset: Any, request: dict[str, Any]) -> None:
        """Draw samples of an evaluation split again, and write what came out otherwise."""
        split = request["split"]
        found = twice.repeats(
            request["chosen"], dataset.__getitem__, self.tracer(split).run,
            self.names.get(split, ()),
        )  # fmt: skip
        part = {"repeats": {str(one.sample): plain(one) for one in found}}
        self.scratch.write(obs={"splits": {split: part}})

    def restored(
        self, request: dict[str, Any], found: dict[str, Any]
    ) -> tuple[replay.State | None, list[str]]:
        """Put the generators where the batch began; usual samples are drawn alike in every run."""
        state = None
        if request.get("state"):
            state = replay.load(Path(self.scratch.folder) / request["state"])
        if state is not None:
            return state, replay.restore(state, found)
        if "phase" not in request:
            replay.seed_all(0)
        return None, []

    def indexed(
        self, dataset: Any, request: dict[str, Any]
    ) -> Iterator[tuple[SampleId, Callable[[], Any]]]:
        """Yield the samples of a map-style dataset in the order in which they were drawn."""
        places = [request["batch"].index(s) for s in request["chosen"] if s in request["batch"]]
        last = max(places, default=-1)
        for index in request["batch"][: last + 1]:
            yield index, functools.partial(operator.getitem, dataset, index)

    def stream(
        self, dataset: Any, request: dict[str, Any]
    ) -> Iterator[tuple[SampleId, Callable[[], Any]]]:
        """Yield the samples of a stream from its start, as the worker in question had them."""
        worker = request.get("worker")
        wanted = list(request["chosen"])
        with torch_private.as_worker(worker, request.get("workers", 0), dataset):
            iterator = iter(dataset)
            prefix = "" if worker is None else f"w{worker}"
            for number in range(MOST_STREAM):
                if not wanted:
                    return
                sample = f"{prefix}#{number}"
                if sample in wanted:
                    wanted.remove(sample)
                yield sample, lambda: next(iterator)

    def journey(
        self,
        sample: SampleId,
        call: Callable[[], Any],
        request: dict[str, Any],
        lost: list[str],
        *,
        reset: bool,
    ) -> list[Drawn]:
        """Trace one sample and write its journey; returns its value where there is one."""
        self.openers.take()
        self.gallery = Gallery() if sample in request.get("shown", ()) else None
        traced = self.traced(request["split"], call)
        gallery, self.gallery = self.gallery, None
        opened = tuple(self.openers.take())
        same: bool | None = None
        if "phase" in request:
            same = self.same(sample, traced, request)
        contents, digests = contents_of(traced.value, self.names.get(request["split"], ()))
        journey = dataclasses.replace(
            self.told(sample, traced), opened=opened, reproduced=same,
            note="; ".join(filter(None, [*(f"{path} not restored" for path in lost), traced.note])),
            colours=self.colours(traced, opened, self.names.get(request["split"], ())),
            contents=contents, digests=digests,
        )  # fmt: skip
        if "phase" in request and not reset and same is None:
            journey = dataclasses.replace(journey, reproduced=False)
        if request.get("kind") == "alone" and isinstance(sample, int) and journey.contents:
            journey = self.twice_in_a_row(journey, request["split"], call)
        if not self.from_the_building_on(journey, request, gallery):
            self.write(request["split"], journey, gallery)
        return [] if traced.error is not None else [(sample, traced.value)]

    def from_the_building_on(
        self, journey: Journey, request: dict[str, Any], gallery: Gallery | None
    ) -> bool:
        """Write the first usual sample's way from the building of its pipeline on.

        False where files were opened for it, so that its way begins there, or nothing is gained.
        """
        split, sample = request["split"], journey.sample
        recipe = self.recipes.get(split)
        if request.get("kind") is not None or "phase" in request or not isinstance(sample, int):
            return False
        if recipe is None or not recipe.cheap() or sample != request["chosen"][0]:
            return False
        if journey.opened or journey.failure is not None or not hasattr(os, "fork"):
            return False
        call = rebuilt.drawing(recipe, split, sample)
        shown = Gallery() if gallery is not None else None
        told = forks.apart(lambda: self.write_rebuilt(journey, split, call, shown), rebuilt.LIMIT)
        if told:
            self.written.add((split, str(sample)))
        return told

    def write_rebuilt(
        self, journey: Journey, split: str, call: Callable[[], Any], gallery: Gallery | None
    ) -> bool:
        """Trace a draw with the building before it; write it if it is the same and tells more."""
        rebuilt.aside(self.scratch.folder)
        self.gallery = gallery
        traced = self.traced(split, call)
        _, digests = contents_of(traced.value, self.names.get(split, ()))
        steps = rebuilt.prepared(traced.steps, journey.steps)
        if traced.error is not None or digests != journey.digests or not steps:
            return False
        self.write(split, dataclasses.replace(journey, steps=steps), gallery)
        return True

    def twice_in_a_row(self, journey: Journey, split: str, call: Callable[[], Any]) -> Journey:
        """Draw a sample once more: whether it stays the same, and what of it was kept."""
        second = self.traced(split, call)
        if second.error is not None:
            return journey
        _, digests = contents_of(second.value, self.names.get(split, ()))
        steady = digests == journey.digests
        return dataclasses.replace(journey, steady=steady, again=tuple(second.steps[:MOST_AGAIN]))

    def tracer(self, split: str) -> Tracer:
        """Make a tracer for the user's files."""
        return Tracer(state_of, is_user, names=self.names.get(split, ()))

    def traced(self, split: str, function: Callable[..., Any], *args: Any) -> Traced:
        """Run under a tracer that also compares the numbers before and after each step."""
        pixels = Pixels()
        state = pixels.state if self.gallery is None else self.gallery.of(pixels.state)
        traced = Tracer(state, is_user, names=self.names.get(split, ())).run(function, *args)
        traced.steps = pixels.told(traced.steps, self.openers.found, self.openers.plane)
        return traced

    @staticmethod
    def told(sample: SampleId, traced: Traced) -> Journey:
        """Turn what was traced into a Journey."""
        failure = None
        if traced.error is not None:
            failure = failure_from_json(failure_of(traced.error, "sample", at=[sample]))
        return Journey(
            sample=sample,
            steps=tuple(traced.steps),
            fields=dict(traced.fields),
            returned=tuple(traced.returned),
            failure=failure,
            failed_stage=traced.failed_stage,
            failed_parameters=traced.failed_parameters,
            failed_state=traced.failed_state,
            seconds=round(traced.seconds, 6),
            note=traced.note,
        )

    @staticmethod
    def same(sample: SampleId, traced: Traced, request: dict[str, Any]) -> bool | None:
        """Tell whether a redrawn sample came out as the drive saw it."""
        if request["phase"] == "sample":
            return traced.error is not None and type(traced.error).__name__ == request["exception"]
        seen = request["prints"].get(str(sample))
        if traced.error is not None or seen is None:
            return False if traced.error is not None else None
        return bool(fingerprint(traced.value) == seen)

    def colours(
        self, traced: Traced, opened: tuple[Any, ...], names: tuple[str, ...]
    ) -> dict[str, dict[str, float]]:
        """Compare the channels of each finished image with those of the file it came from."""
        found: dict[str, dict[str, float]] = {}
        if traced.error is not None:
            return found
        for path, value in leaves_with_values(traced.value, names):
            state = traced.fields.get(path)
            if state is None or state.layout not in ("CHW", "HWC"):
                continue
            for file in opened:
                pixels = self.openers.pixels(file.path)
                told = {} if pixels is None else colour_of(value, pixels, state.layout)
                if told:
                    found[path] = told
                    break
        return found

    def collate(self, loader: Any, drawn: list[Drawn], request: dict[str, Any]) -> None:
        """Trace the user's own collate function over a few samples, and see what it mixes."""
        collate = getattr(loader, "collate_fn", None)
        if collate is None or getattr(loader, "batch_size", None) is None:
            return
        if collate is torch_private.default_collate() or len(drawn) < 2:  # noqa: PLR2004
            return
        ids, samples = [sample for sample, _ in drawn], [value for _, value in drawn]
        before = Before(samples, ids, self.names.get(request["split"], ()))
        traced = self.traced(request["split"], collate, samples)
        journey = self.told("batch", traced)
        if traced.error is None:
            mixes = before.watched(lambda: collate(copy.deepcopy(samples)), traced.value)
            journey = dataclasses.replace(journey, mixes=mixes)
        self.write(request["split"], journey)

    def write(self, split: str, journey: Journey, gallery: Gallery | None = None) -> None:
        """Hand a journey to the parent; the first one of a sample counts."""
        key = (split, str(journey.sample))
        if key in self.written:
            return
        self.written.add(key)
        part = {"journeys": {str(journey.sample): plain(journey)}}
        self.scratch.write(obs={"splits": {split: part}})
        if gallery is not None:
            part = {"pictures": plain(thumbnails.of_way(journey, gallery))}
            self.scratch.write(obs={"splits": {split: part}})
            self.shown.setdefault(split, journey)

    def show_batch(self, target: Any, request: dict[str, Any]) -> None:
        """Draw the items of a batch; what fails there was seen by the drive."""
        split = request["split"]
        with contextlib.suppress(Exception):
            names, fields = self.names.get(split, ()), request["fields"]
            drawn = thumbnails.of_batch(target, names, fields, self.shown.get(split))
            self.scratch.write(obs={"splits": {split: {"pictures": plain(drawn)}}})


def leaves_with_values(value: Any, names: tuple[str, ...]) -> list[tuple[str, Any]]:
    """Pair the top two levels of a sample's leaves with their values: (path, array)."""
    items: list[tuple[str, Any]] = [("", value)]
    if isinstance(value, dict):
        items = [(str(key), item) for key, item in value.items()]
    elif isinstance(value, tuple | list):
        keys = names if len(names) == len(value) else range(len(value))
        items = [(str(key), item) for key, item in zip(keys, value, strict=False)]
    return items
