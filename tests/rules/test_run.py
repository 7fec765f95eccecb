from __future__ import annotations

from typing import Any

import pytest

import dlcheck.rules  # noqa: F401 - fills the registry
from dlcheck.findings import ERROR, Finding, judge
from dlcheck.observation import Failure, Frame, Leaf, Loader, Observation, SampleLeaves, Split

USER = Frame("cats/data.py", 12, "load", "raise ValueError(path)", user=True)
MODULE = Frame("cats/data.py", 3, "<module>", "import nothing", user=True)
TORCH = Frame("site-packages/torch/utils/data/sampler.py", 140, "__init__")
LOADER = Loader(
    file="pipeline.py",
    line=40,
    kind="map",
    length=5,
    batch_size=8,
    sampler="RandomSampler",
    batch_sampler="BatchSampler",
    default_collate=True,
    dataset="pipeline.Cats",
    dataset_file="cats/data.py",
    dataset_length=40,
)
NOTHING = {"samples": 0, "batches": 0, "epochs": 1, "finished_epochs": 1}
NO_SAMPLES = "num_samples should be a positive integer value, but got num_samples=0"


def split(*failures: Failure, **more: Any) -> Split:
    known = {"loader": LOADER, "samples": 16, "batches": 2, "epochs": 1}
    return Split(failures={f.key: f for f in failures}, **{**known, **more})


def found(*failures: Failure, **more: Any) -> list[Finding]:
    return list(judge(Observation(splits={"": split(*failures, **more)}))[0])


def only(*failures: Failure, **more: Any) -> Finding:
    findings = found(*failures, **more)
    assert len(findings) == 1, findings
    return findings[0]


def before_any_loader(failure: Failure) -> Finding:
    findings, _ = judge(Observation(failures={failure.key: failure}))
    assert len(findings) == 1, findings
    return findings[0]


def loader(**more: Any) -> Loader:
    return Loader(**{**vars(LOADER), **more})


class TestPipelineError:
    @pytest.mark.parametrize("phase", ["import", "build", "iter", "batch", "hook", "collate"])
    def test_an_exception_is_named_with_its_line(self, phase: str) -> None:
        finding = only(Failure(phase, "ValueError", "no cat\nat all", frames=(USER, TORCH)))
        assert (finding.rule, finding.severity) == ("pipeline-error", ERROR)
        assert finding.message.startswith("ValueError: no cat ")
        assert "data.py:12 in load" in finding.message
        assert (finding.where.file, finding.where.line) == ("cats/data.py", 12)
        assert finding.evidence["traceback"] == ["cats/data.py:12 in load"]

    def test_an_import_that_fails_before_any_split_is_known(self) -> None:
        words = "No module named 'nothing'"
        finding = before_any_loader(
            Failure("import", "ModuleNotFoundError", words, frames=(MODULE,))
        )
        assert "while importing the code" in finding.message
        assert (finding.where.split, finding.where.line) == (None, 3)
        assert "--python" in finding.fix

    def test_a_sample_that_fails_for_all_is_named_with_the_last_sample(self) -> None:
        failures = [
            Failure("sample", "OSError", f"{name} is truncated", frames=(USER,), at=(index,))
            for name, index in (("a.jpg", 41), ("b.jpg", 7))
        ]
        finding = only(*failures, samples=0, batches=0)
        assert finding.where.sample == 7
        assert "last sample asked for: 7" in finding.message
        assert finding.explains == {f.key for f in failures}

    def test_a_collate_that_fails_names_the_batch_and_the_last_sample_of_it(self) -> None:
        finding = only(Failure("collate", "ValueError", "too few", batch=(9, 1, 5)))
        assert "last sample asked for: 5" in finding.message
        assert finding.evidence["batch"] == [9, 1, 5]

    def test_an_exit_says_status_and_last_sample(self) -> None:
        detail = {"status": 7, "doing": "reading samples", "last_sample": 41, "stderr": "bye\n"}
        finding = only(Failure("exit", message="status 7", detail=detail))
        assert "ended with status 7 while reading samples" in finding.message
        assert "last sample asked for: 41" in finding.message
        assert finding.where.sample == 41
        assert finding.evidence["stderr"] == ["bye"]
        assert "sys.exit" in finding.fix

    def test_a_sample_number_0_is_a_sample(self) -> None:
        detail = {"status": 0, "last_sample": 0}
        finding = only(Failure("exit", detail=detail))
        assert "last sample asked for: 0" in finding.message
        assert finding.evidence["last_sample"] == 0
        assert finding.evidence["status"] == 0

    @pytest.mark.parametrize(
        ("name", "number", "cure"),
        [
            ("SIGKILL", 9, "memory"),
            ("SIGSEGV", 11, "native library"),
            ("SIGBUS", 7, "/dev/shm"),
        ],
    )
    def test_a_signal_is_named_with_its_usual_cause(
        self, name: str, number: int, cure: str
    ) -> None:
        detail = {"signal": number, "name": name, "doing": "reading samples"}
        finding = only(Failure("signal", message=name, detail=detail))
        assert f"killed by {name}" in finding.message
        assert cure in finding.fix

    @pytest.mark.parametrize(
        ("code", "cure"), [(-9, "memory"), (-11, "native library"), (1, "sys.exit")]
    )
    def test_a_dead_worker_is_named(self, code: int, cure: str) -> None:
        detail = {"workers": [{"worker": 1, "pid": 9, "exitcode": code}], "last_sample": 12}
        finding = only(Failure("batch", "RuntimeError", "DataLoader worker is gone", detail=detail))
        assert f"worker 1 ended with exit code {code}" in finding.message
        assert cure in finding.fix

    def test_a_hang_says_for_how_long_and_where(self) -> None:
        detail = {"seconds": 30.2, "stacks": "Thread 1", "doing": "reading samples"}
        finding = only(Failure("hang", frames=(USER,), detail=detail))
        assert "stuck for 30 s while reading samples, at data.py:12 in load" in finding.message
        assert "--hang-after" in finding.fix

    def test_a_too_long_tmpdir_has_its_own_cure(self) -> None:
        finding = only(Failure("batch", "OSError", "AF_UNIX path too long"))
        assert "TMPDIR=/tmp" in finding.fix

    def test_a_failure_without_words_or_frames_is_still_a_finding(self) -> None:
        finding = only(Failure("iter", "Strange"))
        assert finding.message.startswith("Strange when")
        assert finding.fix

    def test_long_texts_are_cut(self) -> None:
        finding = only(Failure("iter", "ValueError", "x" * 9000))
        assert len(finding.message) < 300
        assert len(finding.evidence["error"]) == 500

    def test_two_failures_are_two_findings(self) -> None:
        assert len(found(Failure("hook", "A", "x"), Failure("iter", "B", "y"))) == 2

    def test_yields_to_the_rule_that_explains_and_to_no_other(self) -> None:
        samples = tuple(
            SampleLeaves(i, {"": Leaf("Tensor", "float32", (3, size))})
            for i, size in enumerate((8, 9))
        )
        detail = {"default_collate": True}
        ragged = Failure("collate", "RuntimeError", "equal size", samples=samples, detail=detail)
        other = Failure("hook", "ValueError", "epoch")
        rules = [finding.rule for finding in found(ragged, other)]
        assert sorted(rules) == ["pipeline-error", "ragged-batch"]


class TestNothingToCheck:
    def test_a_target_that_is_no_pipeline(self) -> None:
        words = "cats.data:make returns a str, no DataLoader"
        finding = before_any_loader(Failure("target", "NoPipeline", words))
        assert (finding.rule, finding.message) == ("nothing-to-check", words)

    def test_an_empty_dataset_names_class_attribute_and_line(self) -> None:
        empty = loader(dataset_length=0, empty_attributes=(("cache", None), ("paths", 26)))
        finding = only(loader=empty, **NOTHING)
        assert "len(Cats) is 0" in finding.message
        assert "`paths` is empty, filled at data.py:26" in finding.message
        where = finding.where
        assert (where.attribute, where.file, where.line) == ("paths", "cats/data.py", 26)

    def test_an_empty_dataset_without_a_trace_points_at_the_loader(self) -> None:
        finding = only(loader=loader(dataset_length=0), **NOTHING)
        assert (finding.where.file, finding.where.line) == ("pipeline.py", 40)

    def test_the_sampler_that_refuses_an_empty_dataset_is_explained(self) -> None:
        line = Frame("pipeline.py", 40, "make_loader", "return DataLoader(...)", user=True)
        detail = {
            "dataset": "pipeline.Cats",
            "dataset_file": "cats/data.py",
            "dataset_length": 0,
            "empty_attributes": [["paths", 26]],
        }
        failure = Failure("build", "ValueError", NO_SAMPLES, frames=(line, TORCH), detail=detail)
        finding = only(failure, loader=None, samples=0, batches=0)
        assert finding.rule == "nothing-to-check"
        assert "`paths` is empty" in finding.message
        assert (finding.where.attribute, finding.where.line) == ("paths", 26)
        bare = Failure("build", "ValueError", NO_SAMPLES, frames=(line, TORCH))
        assert before_any_loader(bare).where.line == 40

    def test_drop_last_with_too_few_samples(self) -> None:
        short = loader(dataset_length=44, batch_size=64, drop_last=True, length=0)
        finding = only(loader=short, **NOTHING)
        assert all(word in finding.message for word in ("drop_last", "44", "64", "Cats"))
        assert (finding.where.attribute, finding.where.line) == ("drop_last", 40)
        assert "at most 44" in finding.fix

    def test_a_stream_that_ends_at_once(self) -> None:
        stream = loader(
            kind="iterable", dataset_length=None, empty_attributes=(("shards", 9),), drop_last=True
        )
        finding = only(loader=stream, **NOTHING)
        assert "Cats ends without yielding a sample, or fewer than the 8" in finding.message
        assert "`shards` is empty" in finding.message

    def test_a_sampler_that_yields_nothing(self) -> None:
        finding = only(loader=loader(batch_sampler="Buckets", batch_size=None), **NOTHING)
        assert "although len(Cats) is 40: Buckets yields no index" in finding.message

    @pytest.mark.parametrize(
        "seen",
        [
            pytest.param({"samples": 16, "batches": 2, "finished_epochs": 1}, id="batches came"),
            pytest.param({**NOTHING, "finished_epochs": 0}, id="interrupted before the first"),
            pytest.param({**NOTHING, "loader": None}, id="no loader was built"),
        ],
    )
    def test_is_silent_where(self, seen: dict[str, Any]) -> None:
        assert found(**seen) == []

    def test_an_error_is_not_taken_for_emptiness(self) -> None:
        failure = Failure("hook", "ValueError", "epoch")
        rules = [finding.rule for finding in found(failure, **NOTHING)]
        assert rules == ["pipeline-error"]
