"""A step that fails: the layer or the loss, the part of the batch, and what is no fault at all."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from dlcheck.observers.meetings import Parts  # noqa: E402
from dlcheck.run.blame import Blame, blame, unable  # noqa: E402

functional: Any = torch.nn.functional
CONV = torch.nn.Sequential(torch.nn.Identity(), torch.nn.Conv2d(3, 4, 3))
FLAT = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.LazyLinear(10))


class Own(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        if x.shape[-1] != 64:
            message = f"Input height ({x.shape[-1]}) doesn't match model (64)."
            raise AssertionError(message)
        return x


def blamed(model: Any, loss: Any, image: Any, label: Any) -> Blame:
    batch = {"image": image, "label": label}
    try:
        loss(model(batch["image"]), batch["label"])
    except Exception as error:  # noqa: BLE001 - whatever torch raises
        return blame(error, Parts(batch))
    pytest.fail("nothing failed")


TOKENS = torch.full((6, 5), 40)
IMAGE = torch.zeros(6, 3, 8, 8)
LABEL = torch.zeros(6, dtype=torch.int64)
ROWS = torch.eye(10, dtype=torch.int64)[LABEL]


@pytest.mark.parametrize(
    ("model", "loss", "image", "label", "said"),
    [
        (CONV, None, torch.zeros(6, 1, 8, 8), LABEL,
         ("1", "Conv2d", "channels", "3", "1", "", "image")),
        (CONV, None, IMAGE.double(), LABEL,
         ("1", "Conv2d", "dtype", "float32", "float64", "", "image")),
        (torch.nn.Embedding(32, 4), None, TOKENS, LABEL,
         ("", "Embedding", "index", "32", "40", "", "image")),
        (Own(), None, IMAGE, LABEL, ("", "Own", "size", "64", "8", "", "image")),
        (FLAT, functional.cross_entropy, IMAGE, ROWS,
         ("", "", "size", "", "", "cross_entropy", "label")),
        (FLAT, torch.nn.CrossEntropyLoss(), IMAGE, LABEL.int(),
         ("", "", "dtype", "", "", "cross_entropy", "label")),
        (FLAT, functional.cross_entropy, IMAGE, LABEL + 12,
         ("", "", "classes", "10", "12", "cross_entropy", None)),
        (FLAT, functional.binary_cross_entropy_with_logits, IMAGE, LABEL.float(),
         ("", "", "size", "", "", "binary_cross_entropy_with_logits", "label")),
    ],
    ids=["channels", "dtype", "index", "own size", "one-hot", "int32", "class", "column"],
)  # fmt: skip
def test_who_refused(model: Any, loss: Any, image: Any, label: Any, said: tuple[Any, ...]) -> None:
    one = blamed(model, loss, image, label)
    found = (one.layer, one.kind, one.about, one.wanted, one.got, one.loss)
    assert found == said[:6]
    assert said[6] in {None, one.field}


@pytest.mark.parametrize(
    ("error", "is_unable"),
    [
        (RuntimeError("Found no NVIDIA driver on your system"), True),
        (AssertionError("Torch not compiled with CUDA enabled"), True),
        (ValueError("Default process group has not been initialized"), True),
        (RuntimeError("CUDA out of memory"), False),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (NameError("name 'cuda' is not defined"), False),
    ],
    ids=str,
)
def test_what_the_machine_lacks_is_no_failure(error: Exception, *, is_unable: bool) -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine lacks nothing")
    assert bool(unable(error)) is is_unable


def test_mistake_in_the_step_itself_is_about_nothing() -> None:
    error = KeyError("labels")
    assert blame(error, Parts({"image": IMAGE})).about == ""
