"""`--images`: redraws a few samples of a split and writes contact sheets of them, in the probe."""

from __future__ import annotations

import contextlib
import functools
import itertools
import operator
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from dlcheck.observation import Journey, SampleId
from dlcheck.observers.journey import Tracer
from dlcheck.observers.layout import state_of
from dlcheck.observers.pixels import Pixels
from dlcheck.run import canvas, marks, pictures, torch_private
from dlcheck.run.failures import is_user
from dlcheck.run.pictures import Gallery, Undo, Way

MOST_WAYS = 8
MOST_BATCH = 32
FIRST = 4
Call = tuple[SampleId, Callable[[], Any]]


def draw(target: Any, request: dict[str, Any], names: tuple[str, ...]) -> tuple[list[str], str]:
    """Write the sheets of a split; returns their paths, and a word on what could not be drawn."""
    folder = Path(request["folder"], *([request["split"]] if request["split"] else []))
    folder.mkdir(parents=True, exist_ok=True)
    written: list[str] = []
    ways = [trace(call, names) for call in _calls(target.dataset, request["chosen"])]
    page = pictures.journey_sheet([way for way in ways if way.steps])
    _save(page, folder / "journey.png", written)
    guilty: dict[str, str] = request.get("guilty") or {}
    if guilty and not torch_private.is_iterable_dataset(target.dataset):
        # JSON turned whole numbers into text.
        ids = [int(name) if name.lstrip("-").isdigit() else name for name in guilty]
        accused = [
            trace(call, names, title=guilty[str(call[0])])
            for call in _calls(target.dataset, ids[:MOST_WAYS])
        ]
        page = pictures.journey_sheet([way for way in accused if way.steps])
        _save(page, folder / "guilty.png", written)
    facts = marks.Facts(state_of, names, request.get("fields") or {})
    try:
        page = pictures.batch_sheet(batch_items(target), facts, undos(ways))
    except Exception as error:  # noqa: BLE001 - a batch that cannot be made is said elsewhere
        return written, f"no batch to draw: {type(error).__name__}"
    _save(page, folder / "batch.png", written)
    return written, "" if written else "no field of it is a picture"


def _save(page: Any, path: Path, written: list[str]) -> None:
    if page is not None:
        canvas.save(page, path)
        written.append(str(path))


def trace(call: Call, names: tuple[str, ...], title: str = "") -> Way:
    """Draw one sample under the tracer, keeping a small picture of each array on its way."""
    sample, function = call
    pixels = Pixels()
    gallery = Gallery(pixels.state)
    traced = Tracer(gallery.state, is_user, names=names).run(function)
    steps = pixels.told(traced.steps)
    return Way(sample, tuple(steps), dict(traced.fields), gallery, traced.value, title)


def _calls(dataset: Any, chosen: Sequence[SampleId]) -> Iterator[Call]:
    if torch_private.is_iterable_dataset(dataset):
        iterator = iter(dataset)
        for number in range(min(FIRST, len(chosen))):
            yield f"#{number}", functools.partial(next, iterator)
        return
    for sample in chosen[:MOST_WAYS]:
        yield sample, functools.partial(operator.getitem, dataset, sample)


def batch_items(target: Any) -> list[Any]:
    """Make the first batch as the loader would, of at most 32 samples, and part it again."""
    if not torch_private.is_loader(target.loader):
        return pictures.unbatched(next(iter(target.loader)), 0)[:MOST_BATCH]
    samples = _first_samples(target)
    if not samples:
        return []
    if getattr(target.loader, "batch_size", 1) is None:
        # The dataset makes its batches itself.
        return pictures.unbatched(samples[0], 0)
    collate = getattr(target.loader, "collate_fn", None) or torch_private.default_collate()
    return pictures.unbatched(collate(samples), len(samples))


def _first_samples(target: Any) -> list[Any]:
    loader, dataset = target.loader, target.dataset
    size = min(getattr(loader, "batch_size", None) or FIRST, MOST_BATCH)
    if torch_private.is_iterable_dataset(dataset):
        return list(itertools.islice(iter(dataset), size))
    indices: list[Any] = list(range(size))
    sampler = getattr(loader, "batch_sampler", None)
    if sampler is not None:
        with contextlib.suppress(StopIteration):
            indices = list(next(iter(sampler)))[:MOST_BATCH]
    return [dataset[index] for index in indices]


def undos(ways: Sequence[Way | Journey]) -> dict[str, Undo]:
    """Learn from the first traced sample how each field gets back to 0..1."""
    found: dict[str, Undo] = {}
    for way in ways[:1]:
        for field in way.fields:
            undo = pictures.undo_of(step for step in way.steps if field in step.fields)
            if undo is not None:
                found[field] = undo
    return found
