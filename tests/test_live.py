"""`dlcheck.check(loader)`: what it finds, and that training goes on as if nobody had looked."""

from __future__ import annotations

import random

import pytest

import dlcheck

torch = pytest.importorskip("torch")
np = pytest.importorskip("numpy")

from torch.utils.data import DataLoader, Dataset, IterableDataset  # noqa: E402
from torch.utils.data._utils import fetch  # noqa: E402


class Cats(Dataset):
    def __init__(self, odd: int = -1, length: int = 24) -> None:
        self.odd, self.length = odd, length
        self.generator = np.random.default_rng(0)

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int):
        self.generator.random()
        height = 33 if index == self.odd else 32
        return torch.rand(3, height, 32), index % 3


class Stream(IterableDataset):
    def __iter__(self):
        return iter([torch.zeros(4)] * 12)


def loader(**options):
    given = {"batch_size": 8, "shuffle": True, **options}
    return DataLoader(Cats(given.pop("odd", -1)), **given)


def rules(report):
    return [finding.rule for finding in report.findings]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_ragged_batch_is_found_with_its_sample(workers):
    report = dlcheck.check(loader(odd=12, num_workers=workers), fields=["image", "label"])
    assert rules(report) == ["ragged-batch"]
    assert (report.findings[0].where.field, report.findings[0].where.sample) == ("image", 12)
    assert not report.ok


def test_a_right_loader_passes_and_says_what_was_read():
    report = dlcheck.check(loader(), fields=["image", "label"])
    assert report.ok
    assert report.verdict == "pass"
    assert report.observation.splits[""].samples == 24


def test_raising_is_for_findings_at_or_above_the_limit():
    report = dlcheck.check(loader(odd=12), fail_on=None)
    report.raise_for_findings()
    with pytest.raises(dlcheck.FindingsError, match="ragged-batch") as raised:
        report.raise_for_findings("error")
    assert raised.value.report is report
    with pytest.raises(AssertionError):
        dlcheck.check(loader(odd=12)).raise_for_findings()


def test_order_and_values_afterwards_are_those_of_a_run_without_a_check():
    """Global generators, those of the dataset, and the loader's own are put back."""

    def epoch(*, checked: bool) -> list[float]:
        torch.manual_seed(3)
        random.seed(3)
        np.random.seed(3)
        made = loader(generator=torch.Generator().manual_seed(5))
        if checked:
            dlcheck.check(made, budget=1)
        drawn = [float(batch.sum()) + float(labels.sum()) for batch, labels in made]
        return [*drawn, random.random(), float(np.random.rand()), made.dataset.generator.random()]

    assert epoch(checked=True) == epoch(checked=False)


def test_a_live_persistent_iterator_goes_on():
    """Its workers are the user's, started before the check, and without our hooks."""
    made = loader(num_workers=1, persistent_workers=True)
    iterator = iter(made)
    next(iterator)
    dlcheck.check(made, budget=1)
    assert made._iterator is iterator
    assert len(list(iterator)) == 2
    made._iterator = None


def test_nothing_of_torch_stays_replaced():
    before = (fetch._MapDatasetFetcher, fetch._IterableDatasetFetcher, DataLoader.__init__)
    dlcheck.check(loader(odd=12, num_workers=1))
    assert before == (fetch._MapDatasetFetcher, fetch._IterableDatasetFetcher, DataLoader.__init__)


def test_ctrl_c_in_the_users_code_ends_the_check():
    class Stopped(Cats):
        def __getitem__(self, index: int):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        dlcheck.check(DataLoader(Stopped(), batch_size=4))


def test_an_exception_in_the_users_code_is_a_finding():
    class Broken(Cats):
        def __getitem__(self, index: int):
            if index == 5:
                raise KeyError("no cat")
            return super().__getitem__(index)

    report = dlcheck.check(DataLoader(Broken(), batch_size=4))
    assert rules(report) == ["transform-error"]
    assert "no cat" in str(report)


def test_what_is_no_pipeline_is_a_finding():
    assert rules(dlcheck.check(42)) == ["nothing-to-check"]


def test_several_loaders_get_their_roles_by_name():
    report = dlcheck.check({"train": loader(), "val": loader(shuffle=False)}, budget=2)
    assert {name: split.role for name, split in report.observation.splits.items()} == {
        "train": "train",
        "val": "eval",
    }


def test_a_stream_and_a_dataset_are_taken():
    assert dlcheck.check(DataLoader(Stream(), batch_size=4)).observation.splits[""].samples == 12
    assert dlcheck.check(Cats(length=16)).observation.splits[""].loader.batch_size == 8


def test_a_model_that_refuses_the_batch_is_named_and_left_alone():
    model = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3))
    weights = model[0].weight.clone()
    report = dlcheck.check(loader(), fields=["image", "label"], model=model)
    assert rules(report) == ["contract-mismatch"]
    assert "Sequential" in report.findings[0].message
    assert torch.equal(model[0].weight, weights)
    assert model[0].weight.device.type == "cpu"
    assert not model[0]._forward_hooks


def test_expect_is_checked_like_that_of_a_config():
    report = dlcheck.check(
        loader(), fields=("image", "label"), expect={"image": {"shape": (3, 31, 32)}}
    )
    assert rules(report) == ["contract-mismatch"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"role": "validation"}, "role"),
        ({"expect": {"image": {"shpe": [3]}}}, "shape"),
        ({"fail_on": "fatal"}, "fatal"),
        ({"ignore": ["raged-batch"]}, "ragged-batch"),
    ],
)
def test_a_wrong_argument_is_a_user_error_that_names_it(options, words):
    with pytest.raises(dlcheck.UserError) as raised:
        dlcheck.check(loader(), **options)
    assert words in str(raised.value) + raised.value.hint


def test_a_report_shows_itself_as_text_and_in_a_notebook():
    report = dlcheck.check(loader(odd=12))
    assert "error DLC101 ragged-batch" in repr(report)
    assert report._repr_html_().startswith('<iframe title="dlcheck" sandbox=""')
    assert "ragged-batch" in report.html()


def test_ipython_shows_the_page():
    """The real display formatter, as Jupyter's kernel calls it."""
    formatters = pytest.importorskip("IPython.core.formatters")
    shown, _ = formatters.DisplayFormatter().format(dlcheck.check(loader(odd=12)))
    assert "<iframe" in shown["text/html"]
    assert "ragged-batch" in shown["text/plain"]
