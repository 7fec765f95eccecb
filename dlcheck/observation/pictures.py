"""Small pictures of what a pipeline made, for reports that show them."""

from __future__ import annotations

from dataclasses import dataclass

from dlcheck.observation.tallies import SampleId

OF_BATCH = "batch"


@dataclass(frozen=True)
class Picture:
    """A picture of at most some hundred pixels a side, as a data URI (PNG or JPEG).

    `sample` and `number` say of what: the step of that number in the sample's Journey, or, where
    `sample` is "batch", the item of that number in a batch. `how` is what was done to the numbers
    to see them (denormalised, stretched, ids), `caption` what stands under it.
    """

    sample: SampleId
    number: int
    uri: str
    width: int
    height: int
    how: str = ""
    caption: str = ""

    @property
    def key(self) -> str:
        """Its name in Split.pictures."""
        return picture_key(self.sample, self.number)


def picture_key(sample: SampleId, number: int) -> str:
    """Name the picture of a step, or of an item of the batch."""
    return f"{sample}/{number}"
