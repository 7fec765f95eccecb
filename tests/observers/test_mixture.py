"""Weights solved for from samples and batch: images against labels."""

from __future__ import annotations

from typing import Any

import pytest

from dlcheck.observation import Mix
from dlcheck.observers.mixture import Before

np = pytest.importorskip("numpy")

N, CLASSES = 6, 3
LABELS = np.arange(N) % CLASSES
ONE_HOT = np.eye(CLASSES, dtype="f4")[LABELS]
ORDER = np.array([1, 2, 3, 4, 5, 0])
SHARE = 0.7


def pictures() -> Any:
    """Random pictures of random blocks, float32."""
    small = np.random.default_rng(0).random((N, 3, 6, 6), dtype="f4")
    return np.kron(small, np.ones((1, 1, 4, 4), "f4"))


IMAGES = pictures()
MIXED = SHARE * IMAGES + (1 - SHARE) * IMAGES[ORDER]
SOFT = SHARE * ONE_HOT + (1 - SHARE) * ONE_HOT[ORDER]


def mixes(batch: Any, labels: Any = LABELS, images: Any = IMAGES, names: Any = ()) -> list[Mix]:
    samples = list(zip(images, labels, strict=True))
    return Before(samples, range(100, 100 + N), names).mixes(batch)


def test_mixup_gives_the_two_samples_and_the_share():
    found = mixes((MIXED, SOFT))
    assert [mix.of for mix in found] == [(100 + n, 100 + ORDER[n]) for n in range(N)]
    assert {round(mix.weight, 3) for mix in found} == {SHARE}
    assert {mix.how for mix in found} == {"mixup"}


def test_labels_of_the_same_mixture_are_not_off():
    assert max(mix.off for mix in mixes((MIXED, SOFT))) < 0.01


def test_labels_of_another_order_are_off_and_their_sample_is_named():
    other = np.array([2, 3, 4, 5, 0, 1])
    found = mixes((MIXED, SHARE * ONE_HOT + (1 - SHARE) * ONE_HOT[other]))
    assert all(mix.off > 0.2 for mix in found)
    assert all(mix.target_weight == pytest.approx(SHARE, abs=0.01) for mix in found)


def test_labels_of_another_share_are_off_by_the_difference():
    found = mixes((MIXED, 0.5 * ONE_HOT + 0.5 * ONE_HOT[ORDER]))
    assert {round(mix.off, 2) for mix in found} == {0.2}
    assert {mix.target_weight for mix in found} == {0.5}


def test_hard_labels_that_were_kept_are_told():
    found = mixes((MIXED, LABELS))
    assert {mix.target_how for mix in found} == {"kept"}
    assert all(mix.telling and not mix.carried for mix in found)


CARRIED = {
    "both labels and the share": (MIXED, LABELS, LABELS[ORDER], SHARE),
    "both labels": (MIXED, LABELS, LABELS[ORDER]),
    "the order": (MIXED, LABELS, ORDER),
    "a share a row": (MIXED, LABELS, np.full(N, 1 - SHARE)),
    "a list of labels": {"x": MIXED, "y": LABELS, "other": [int(v) for v in LABELS[ORDER]]},
}


@pytest.mark.parametrize("batch", CARRIED.values(), ids=CARRIED)
def test_the_mixture_may_stand_elsewhere_in_the_batch(batch):
    found = mixes(batch)
    assert found
    assert all(mix.carried for mix in found if mix.target_how == "kept")


def test_smoothed_labels_are_right():
    smooth = 0.9 * SOFT + 0.1 / CLASSES
    assert max(mix.off for mix in mixes((MIXED, smooth))) < 0.02
    own = 0.9 * ONE_HOT + 0.1 / CLASSES
    mixed = SHARE * own + (1 - SHARE) * own[ORDER]
    assert max(mix.off for mix in mixes((MIXED, mixed), labels=own)) < 0.02


def test_multi_label_vectors_are_right_whatever_they_sum_to():
    labels = np.array([[1, 1, 0], [0, 1, 0], [1, 1, 1], [0, 0, 1], [1, 0, 0], [0, 1, 1]], "f4")
    found = mixes((MIXED, SHARE * labels + (1 - SHARE) * labels[ORDER]), labels=labels)
    assert max(mix.off for mix in found) < 0.01


def test_cutmix_gives_the_share_of_the_area():
    cut = IMAGES.copy()
    cut[:, :, 4:16, 4:20] = IMAGES[ORDER][:, :, 4:16, 4:20]
    share = 1 - 12 * 16 / 24**2
    found = mixes((cut, share * ONE_HOT + (1 - share) * ONE_HOT[ORDER]))
    assert {mix.how for mix in found} == {"cutmix"}
    assert [mix.weight for mix in found] == pytest.approx([share] * N, abs=0.02)
    assert max(mix.off for mix in found) < 0.01


def test_a_normalisation_after_mixing_does_not_hide_the_share():
    mean, std = np.array([0.4, 0.5, 0.6]), np.array([0.2, 0.3, 0.25])
    batch = (MIXED - mean[:, None, None]) / std[:, None, None]
    assert {round(mix.weight, 3) for mix in mixes((batch, LABELS))} == {SHARE}


UNMIXED = {
    "stacked": (IMAGES, LABELS),
    "shuffled": (IMAGES[ORDER], LABELS[ORDER]),
    "normalised": ((IMAGES - 0.5) / 0.2, LABELS),
    "flipped": (IMAGES[..., ::-1], LABELS),
    "noisy": (IMAGES + np.random.default_rng(0).normal(0, 0.1, IMAGES.shape), LABELS),
    "mean taken off": (IMAGES - IMAGES.mean(0), LABELS),
    "no images": (LABELS, LABELS),
}


@pytest.mark.parametrize("batch", UNMIXED.values(), ids=UNMIXED)
def test_nothing_is_said_of_batches_that_are_no_mixture_of_their_samples(batch):
    assert mixes(batch) == []


def test_the_users_names_stand_for_the_items_of_a_tuple():
    assert {mix.target for mix in mixes((MIXED, LABELS), names=("picture", "label"))} == {"label"}


def test_further_batches_are_asked_for_until_a_mixture_is_clear():
    before = Before(list(zip(IMAGES, LABELS, strict=True)), range(N))
    faint = 0.99 * IMAGES + 0.01 * IMAGES[ORDER]
    found = before.watched(lambda: (MIXED, LABELS), (faint, LABELS))
    assert found[0].weight == pytest.approx(SHARE, abs=1e-3)


def test_a_collate_that_fails_the_second_time_is_no_failure_of_ours():
    before = Before(list(zip(IMAGES, LABELS, strict=True)), range(N))
    assert before.watched(lambda: 1 / 0, (IMAGES, LABELS)) == ()
