from __future__ import annotations

from typing import Any

import pytest

import dlcheck.rules  # noqa: F401 - fills the registry
from dlcheck.findings import ERROR, REGISTRY, WARNING, Finding, RuleState, judge
from dlcheck.observation import (
    Failure,
    Field,
    Frame,
    Journey,
    Leaf,
    Loader,
    Observation,
    SampleLeaves,
    Split,
    State,
    Step,
    Structure,
    Tally,
)

LOADER = Loader(
    cls="torch.utils.data.dataloader.DataLoader",
    file="pipeline.py",
    line=40,
    kind="map",
    length=5,
    batch_size=8,
    sampler="RandomSampler",
    batch_sampler="BatchSampler",
    collate="torch.utils.data._utils.collate.default_collate",
    default_collate=True,
    dataset="pipeline.Cats",
    dataset_length=40,
)
OWN_COLLATE = Loader(**{**vars(LOADER), "collate": "pipeline.collate", "default_collate": False})
COLLATE_FRAME = Frame("pipeline.py", 33, "collate", "return torch.stack(images)", user=True)
NONE = Leaf("NoneType")
PIL = Leaf("PIL.Image", "RGB", (64, 48))


def tensor(*shape: int, dtype: str = "float32") -> Leaf:
    return Leaf("Tensor", dtype, shape)


def sample(index: int | str, leaves: dict[str, Leaf], whole: Leaf | None = None) -> SampleLeaves:
    return SampleLeaves(index, {"": whole or Leaf("dict"), **leaves})


def pair(index: int, first: Leaf, second: Leaf) -> SampleLeaves:
    return sample(index, {"0": first, "1": second}, Leaf("tuple", shape=(2,)))


def batch(*leaves: Leaf, name: str = "image") -> tuple[SampleLeaves, ...]:
    return tuple(sample(index, {name: leaf}) for index, leaf in enumerate(leaves))


def collate_failure(samples: tuple[SampleLeaves, ...], **more: Any) -> Failure:
    known = {
        "phase": "collate",
        "exception": "RuntimeError",
        "message": "stack expects each tensor to be equal size",
        "batch": tuple(s.index for s in samples),
        "detail": {"default_collate": True},
    }
    return Failure(samples=samples, **{**known, **more})


def split(*failures: Failure, loader: Loader = LOADER, **more: Any) -> Split:
    known = {"samples": 30, "batches": 2, "epochs": 1}
    return Split(loader=loader, failures={f.key: f for f in failures}, **{**known, **more})


def found(*failures: Failure, **more: Any) -> list[Finding]:
    return list(judge(Observation(splits={"": split(*failures, **more)}))[0])


def only(*failures: Failure, **more: Any) -> Finding:
    findings = found(*failures, **more)
    assert len(findings) == 1, findings
    return findings[0]


def rules(*failures: Failure, **more: Any) -> list[str]:
    return [finding.rule for finding in found(*failures, **more)]


def state(observation: Observation, slug: str) -> RuleState:
    return next(s for s in judge(observation)[1] if s.rule == slug)


def test_samples_that_stack_leave_the_failure_to_pipeline_error() -> None:
    assert rules(collate_failure(batch(tensor(4), tensor(4)))) == ["pipeline-error"]


def test_a_collate_of_the_users_own_is_named_and_pointed_at() -> None:
    message = "stack expects each tensor to be equal size, [3, 8] at entry 0 and [3, 9] at entry 1"
    failure = collate_failure(
        batch(tensor(3, 8), tensor(3, 9)), message=message, detail={}, frames=(COLLATE_FRAME,)
    )
    finding = only(failure, loader=OWN_COLLATE)
    assert (finding.rule, finding.where.line) == ("ragged-batch", 33)
    assert "; collate cannot stack" in finding.message


class TestRaggedBatch:
    def test_names_field_shapes_counts_samples_axis_and_line(self) -> None:
        samples = batch(*[tensor(3, 64, 64)] * 5, tensor(3, 64, 48))
        seen = Field(shapes={"3x64x64": Tally(29, (0, 1, 2)), "3x64x48": Tally(1, (5,))})
        finding = only(collate_failure(samples), fields={"image": seen})
        assert "3x64x64 (5 samples, e.g. 0), 3x64x48 (1 sample: 5)" in finding.message
        assert "axis 2" in finding.message
        assert (finding.where.sample, finding.where.file, finding.where.line) == (
            5,
            "pipeline.py",
            40,
        )
        assert finding.evidence["shapes"] == [
            {"shape": [3, 64, 64], "count": 5, "samples": [0, 1, 2]},
            {"shape": [3, 64, 48], "count": 1, "samples": [5]},
        ]
        assert finding.evidence["axes"] == [2]
        assert finding.evidence["seen"]["3x64x48"] == {"count": 1, "samples": [5]}

    def test_points_at_the_return_of_the_odd_sample_where_it_is_known(self) -> None:
        failure = collate_failure(batch(tensor(3, 4), tensor(3, 9)))
        finding = only(failure, journeys={"1": Journey(1, returned=("data.py", 21))})
        assert (finding.where.file, finding.where.line) == ("data.py", 21)

    def test_points_at_the_stage_after_which_the_samples_differ(self) -> None:
        failure = collate_failure(batch(tensor(3, 64, 64), tensor(3, 64, 48)))
        photo = State("ndarray", "uint8", (80, 80, 3), "HWC")
        journeys = {
            str(sample): Journey(
                sample,
                (
                    Step(
                        "data.py", 12, "crop", "x = x[:h, :w]", "x", "crop",
                        State("ndarray", "uint8", (64, width, 3)), photo,
                        parameters="w=64", fields=("image",),
                    ),
                ),
                {"image": State("Tensor", "float32", (3, 64, width))},
                returned=("data.py", 21),
            )
            for sample, width in ((0, 64), (1, 48))
        }  # fmt: skip
        finding = only(failure, journeys=journeys)
        where = finding.where
        assert (where.stage, where.file, where.line) == ("crop(w=64)", "data.py", 12)
        assert "crop(w=64) at data.py:12 left 64x48x3 of 80x80x3 (sample 1)" in finding.message

    def test_speaks_of_the_largest_field_and_lists_the_others(self) -> None:
        samples = tuple(
            sample(i, {"depth": tensor(1, 99, size), "image": tensor(3, 99, size)})
            for i, size in enumerate((64, 48))
        )
        finding = only(collate_failure(samples))
        assert finding.where.field == "image"
        assert finding.evidence["other_fields"] == ["depth"]

    def test_is_one_finding_for_all_batches_of_a_split(self) -> None:
        samples = batch(tensor(3, 64, 64), tensor(3, 64, 48))
        failures = (
            collate_failure(samples),
            collate_failure(samples, message="storage is not resizable", epoch=1),
        )
        assert len(only(*failures).explains) == 2

    def test_is_named_in_each_split_that_has_it(self) -> None:
        failing = split(collate_failure(batch(tensor(3, 4), tensor(3, 9))))
        obs = Observation(splits={"train": failing, "val": failing})
        assert [f.where.split for f in judge(obs)[0]] == ["train", "val"]

    def test_a_collate_that_pads_and_buckets_that_differ_are_fine(self) -> None:
        shapes = {"3x64x64": Tally(16, (0,)), "3x64x48": Tally(16, (1,))}
        assert found(fields={"image": Field({"Tensor": Tally(32)}, shapes=shapes)}) == []


class TestStructureVaries:
    def test_names_path_and_a_sample_of_each_kind(self) -> None:
        whole = [sample(i, {"x": tensor(4)}) for i in range(7)]
        odd = pair(29, Leaf("str"), Leaf("int"))
        finding = only(collate_failure((*whole, odd), exception="TypeError"))
        assert "dict (7 samples, e.g. 0), tuple(2) (1 sample: 29)" in finding.message
        assert (finding.where.field, finding.where.sample) == ("", 29)
        assert finding.evidence["kinds"][1] == {"type": "tuple(2)", "count": 1, "samples": [29]}

    @staticmethod
    def optional(**loader: Any) -> Split:
        full = Structure({"": "dict", "image": "Tensor", "mask": "Tensor"}, Tally(27, (0, 1, 2)))
        short = Structure({"": "dict", "image": "Tensor"}, Tally(3, (5, 9)))
        return split(
            loader=Loader(**{**vars(LOADER), **loader}), structures={"a": full, "b": short}
        )

    def test_keys_that_default_collate_dropped_are_a_warning(self) -> None:
        findings, _ = judge(Observation(splits={"": self.optional()}))
        assert [(f.rule, f.severity, f.where.field, f.where.sample) for f in findings] == [
            ("structure-varies", WARNING, "mask", 5)
        ]

    @pytest.mark.parametrize(
        "loader",
        [
            pytest.param({"default_collate": False}, id="the user's collate handles them"),
            pytest.param({"batch_sampler": "BySource"}, id="batches may be of one kind"),
            pytest.param({"batch_size": 1}, id="one sample cannot differ"),
            pytest.param({"batch_size": None}, id="nothing is joined"),
        ],
    )
    def test_optional_keys_are_fine_where(self, loader: dict[str, Any]) -> None:
        assert judge(Observation(splits={"": self.optional(**loader)}))[0] == ()

    def test_lists_of_other_length_are_no_keys(self) -> None:
        one = Structure({"": "dict", "x": "list", "x.0": "Tensor"}, Tally(9, (0,)))
        two = Structure({"": "dict", "x": "list", "x.0": "Tensor", "x.1": "Tensor"}, Tally(9, (1,)))
        assert found(structures={"a": one, "b": two}) == []


class TestUncollatableType:
    def test_names_none_its_sample_and_the_line_that_returns_it(self) -> None:
        others = tuple(pair(i, tensor(3, 4, 4), Leaf("int")) for i in range(5))
        failure = collate_failure((*others, SampleLeaves(40, {"": NONE})))
        finding = only(failure, journeys={"40": Journey(40, returned=("pipeline.py", 38))})
        assert "the sample is None (1 sample: 40) in a batch of 6" in finding.message
        assert (finding.where.sample, finding.where.line) == (40, 38)
        assert finding.evidence["type"] == "None"

    def test_names_field_and_type(self) -> None:
        samples = tuple(pair(i, PIL, Leaf("int")) for i in range(4))
        finding = only(collate_failure(samples, exception="TypeError"))
        assert finding.where.field == "0"
        assert "`0` is PIL.Image (4 samples, e.g. 0)" in finding.message


class TestRaggedAnnotations:
    def test_names_fields_lengths_counts_and_samples(self) -> None:
        samples = tuple(
            sample(i, {"boxes": tensor(n, 4), "labels": tensor(n, dtype="int64")})
            for i, n in enumerate((2, 2, 5))
        )
        finding = only(collate_failure(samples))
        assert finding.where.field == "boxes"
        assert "2x4 (2 samples, e.g. 0), 5x4 (1 sample: 2)" in finding.message
        assert finding.evidence["other_fields"] == ["labels"]
        assert finding.evidence["lengths"][1] == {"shape": [5, 4], "count": 1, "samples": [2]}

    def test_many_lengths_are_cut_but_the_rarest_stays(self) -> None:
        lengths = [5, 5, 5, 6, 6, 6, 7, 7, 7, 8, 8, 8, 9, 9, 12]
        samples = batch(*(Leaf("list[int]", shape=(n,)) for n in lengths), name="input_ids")
        finding = only(collate_failure(samples))
        assert "12 (1 sample: 14) and 2 more" in finding.message


def sized(samples: int, **more: Any) -> Split:
    known = {**vars(LOADER), "dataset_length": samples, "length": -(-samples // 8)}
    return Split(loader=Loader(**{**known, **more}), samples=8, batches=1, epochs=1)


def with_batches(one: Split, *sizes: str, finished: int = 1) -> Split:
    tallies = {size: Tally(1) for size in sizes}
    return Split(**{**vars(one), "batch_sizes": tallies, "finished_epochs": finished})


def small(one: Split, **settings: Any) -> list[Finding]:
    findings, _ = judge(Observation(splits={"": one}, settings=settings))
    return [finding for finding in findings if finding.rule == "small-last-batch"]


class TestSmallLastBatch:
    def test_names_length_batch_size_line_and_both_cures(self) -> None:
        (finding,) = small(sized(41))
        assert "len(Cats) 41 with batch_size 8" in finding.message
        assert (finding.severity, finding.where.line) == (WARNING, 40)
        assert finding.where.attribute == "batch_size"
        assert "drop_last=True" in finding.fix
        assert "batch_size" in finding.fix

    def test_is_an_error_where_the_models_batchnorm_refused(self) -> None:
        words = "Expected more than 1 value per channel when training"
        refused = Failure("model", "ValueError", words)
        (finding,) = small(Split(**{**vars(sized(41)), "batchnorm": refused}))
        assert finding.severity == ERROR
        assert words in finding.message

    @pytest.mark.parametrize(
        ("one", "expected"),
        [
            pytest.param(sized(40), False, id="nothing left over"),
            pytest.param(sized(42), False, id="two left over"),
            pytest.param(sized(41, length=3), False, id="a sampler with num_samples"),
            pytest.param(sized(41, sampler="WeightedRandomSampler"), False, id="another sampler"),
            pytest.param(
                with_batches(sized(40, sampler="WeightedRandomSampler"), "8", "1"),
                True,
                id="a batch of one was seen at the end",
            ),
            pytest.param(with_batches(sized(41), "8"), False, id="no batch of one was seen"),
            pytest.param(
                with_batches(sized(41), "8", finished=0), True, id="the end was not reached"
            ),
        ],
    )
    def test_trusts_what_was_seen_over_arithmetic(self, one: Split, *, expected: bool) -> None:
        assert bool(small(one)) is expected

    def test_full_length_stands_in_for_the_subset(self) -> None:
        (finding,) = small(with_batches(sized(40), "8"), full_length=1001)
        assert "full_length 1001" in finding.message
        assert small(with_batches(sized(41), "8", "1"), full_length=1000) == []

    @pytest.mark.parametrize(
        ("one", "reason"),
        [
            pytest.param(sized(41, drop_last=True), "drop_last", id="drop_last"),
            pytest.param(sized(41, batch_size=1), "batch_size is 1", id="batches of one"),
            pytest.param(sized(41, batch_size=None), "batch_size is None", id="no batching"),
            pytest.param(sized(41, batch_sampler="Buckets"), "batch_sampler", id="batch_sampler"),
            pytest.param(sized(41, kind="iterable"), "map-style", id="stream"),
            pytest.param(
                Split(**{**vars(sized(41)), "role": "eval"}), "evaluation", id="evaluation"
            ),
            pytest.param(
                sized(41, notes=("made by dlcheck from a dataset",)), "not the user's", id="dataset"
            ),
        ],
    )
    def test_does_not_apply_to(self, one: Split, reason: str) -> None:
        outcome = state(Observation(splits={"": one}), "small-last-batch")
        assert outcome.state == "not-applicable"
        assert reason in outcome.reason

    def test_judges_each_split(self) -> None:
        evaluation = Split(**{**vars(sized(41)), "role": "eval"})
        obs = Observation(splits={"train": sized(41), "val": evaluation})
        assert [f.where.split for f in judge(obs)[0]] == ["train"]
        assert state(obs, "small-last-batch").state == "ran"


def test_a_run_without_samples_leaves_the_rules_unobserved() -> None:
    failed = Failure("import", "ImportError", "no module named cats")
    obs = Observation(failures={failed.key: failed})
    assert state(obs, "ragged-batch").state == "unobserved"
    assert state(obs, "small-last-batch").state == "unobserved"


def test_a_healthy_run_is_silent_and_observed() -> None:
    findings, states = judge(Observation(splits={"": with_batches(sized(40), "8")}))
    assert findings == ()
    assert {s.state for s in states} <= {"ran", "not-applicable"}
    judged_here = {r.slug for r in REGISTRY.values() if r.check.__module__.endswith(".shapes")}
    assert judged_here <= {s.rule for s in states if s.state == "ran"}
