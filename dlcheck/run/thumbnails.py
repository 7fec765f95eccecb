"""Thumbnails for the HTML report, of the very draws that the journeys tell of."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from typing import Any

from dlcheck.observation import Journey, Step, shape_text
from dlcheck.observation.pictures import OF_BATCH, Picture
from dlcheck.observers.layout import state_of
from dlcheck.run import canvas, marks, pictures, sheets
from dlcheck.run.pictures import Gallery

MOST_STEPS = 32
MOST_ITEMS = 16
# Few colours stay smaller and sharper as PNG.
SMALL = 3_000


def of_way(journey: Journey, gallery: Gallery) -> dict[str, Picture]:
    """Draw what each step of a traced sample made, as far as it is a picture.

    Of a finished sample only the steps that led to one of its fields.
    """
    steps = [
        (number, step)
        for number, step in enumerate(journey.steps)
        if (step.fields or not journey.fields) and gallery.picture(step.after) is not None
    ]
    found: dict[str, Picture] = {}
    for number, step in ends(steps):
        undo = pictures.undo_of(_led_to(journey.steps[: number + 1], step))
        shown, how = pictures.visible(gallery.picture(step.after), undo)
        one = picture(journey.sample, number, canvas.fit(shown)[0], how)
        found[one.key] = one
    return found


def ends(steps: Sequence[tuple[int, Step]]) -> Sequence[tuple[int, Step]]:
    """Leave the middle of a long way out."""
    half = MOST_STEPS // 2
    return steps if len(steps) <= MOST_STEPS else [*steps[:half], *steps[-half:]]


def _led_to(steps: Sequence[Step], step: Step) -> Iterator[Step]:
    """Yield the steps of the same field; of a sample that was not finished all."""
    return (one for one in steps if not step.fields or set(one.fields) & set(step.fields))


def of_batch(
    target: Any, names: tuple[str, ...], fields: dict[str, Any], way: Journey | None
) -> dict[str, Picture]:
    """Draw the items of the first batch as the model would get them, with what is marked on them.

    Whatever the user's code raises comes through.
    """
    facts = marks.Facts(state_of, names, fields)
    items = sheets.batch_items(target)
    undo = sheets.undos([way] if way is not None else [])
    found: dict[str, Picture] = {}
    for number, drawn, words in pictures.cells(items[:MOST_ITEMS], facts, undo):
        one = picture(OF_BATCH, number, drawn, "", words)
        found[one.key] = one
    return found


def picture(sample: Any, number: int, image: Any, how: str, caption: str = "") -> Picture:
    """Wrap an H,W,3 uint8 image."""
    height, width = image.shape[:2]
    kind, data = encoded(image)
    uri = f"data:image/{kind};base64,{base64.b64encode(data).decode('ascii')}"
    words = caption or shape_text(image.shape[:2])
    return Picture(sample, number, uri, int(width), int(height), how, words)


def encoded(image: Any) -> tuple[str, bytes]:
    """Encode as PNG, or as JPEG where that is smaller and something here can."""
    png = canvas.png(image)
    jpeg = canvas.jpeg(image) if len(png) > SMALL else b""
    return ("jpeg", jpeg) if jpeg and len(jpeg) < len(png) else ("png", png)
