"""DLC0: whether there is a pipeline at all, and whether it runs to its end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dlcheck.findings import ERROR, EVERY_OTHER, Finding, Where, rule
from dlcheck.observation import Failure, Loader, Observation, Split, sample_order
from dlcheck.rules.words import bare, base

MOST_TEXT = 500
MOST_QUOTED = 200
MOST_LINES = 12
NO_INDEX = "num_samples=0"

WHILE = {
    "import": "while importing the code",
    "build": "while building the loader",
    "iter": "when the loader was asked for an iterator",
    "sample": "while reading a sample",
    "collate": "while joining samples to a batch",
    "batch": "while taking a batch from the loader",
    "hook": "in the epoch_hook",
    "step": "in the step",
}
# The first that is found in exception, message or stderr speaks.
CURES = {
    "AF_UNIX path too long": "Set TMPDIR=/tmp: workers make sockets below it, and their paths may "
    "not exceed 107 characters.",
    "ModuleNotFoundError": "Install the module into the interpreter that runs the pipeline "
    "(--python), or start dlcheck in the folder from which the job is started.",
    "bootstrapping phase": "Put what starts the training under if __name__ == '__main__': "
    "spawned workers import the file again.",
    "an't pickle": "Move lambdas and local classes to the top level of a module, and open "
    "handles in the worker: spawned workers receive the dataset by pickle.",
    "FileNotFoundError": "Relative paths count from the folder in which dlcheck was started, as "
    "in the training job; check the path in the message.",
    "SystemExit": "Keep argument parsing and sys.exit under if __name__ == '__main__'.",
    "RecursionError": "Look for a __getitem__ or __getattr__ that calls itself.",
    "bus error": "Shared memory is full: give /dev/shm more room (docker run --shm-size), or "
    "lower num_workers, prefetch_factor or batch_size.",
}
SIGNAL_CURES = {
    "SIGKILL": "The system most often kills for memory: lower num_workers, prefetch_factor or "
    "batch_size, and look for 'Out of memory' in dmesg.",
    "SIGBUS": "Shared memory is full: give /dev/shm more room (docker run --shm-size), or lower "
    "num_workers, prefetch_factor or batch_size.",
}
SIGNALS = {7: "SIGBUS", 9: "SIGKILL"}
NATIVE_CURE = "A native library crashed: read the last sample alone with num_workers=0."
EXIT_CURE = "Find the call of sys.exit, os._exit or quit and raise an exception instead."
HANG_CURE = (
    "Look at the line at which it waits (a lock, a socket, a child process); if it is only slow, "
    "raise --hang-after."
)


@rule(
    "DLC001",
    severity=ERROR,
    needs="run",
    title="The pipeline fails",
    why="The training job would end at the same place.",
    fix="Correct the line named here; the traceback ends in your own code there.",
    yields_to=(EVERY_OTHER,),
)
def pipeline_error(obs: Observation) -> Iterator[Finding]:
    """Fire for each exception, exit, crash or hang that no other rule explains."""
    for name, failures in _failures(obs):
        if failures[0].phase != "target" and not _refused_batch(obs, name, failures[0]):
            yield _pipeline_finding(name, failures)


def _refused_batch(obs: Observation, name: str, failure: Failure) -> bool:
    """Tell a step that failed for what the batch is: the rules on batches speak of that."""
    split = obs.splits.get(name)
    trials = split.trials if split else ()
    return any(trial.failure == failure.key and trial.about for trial in trials)


@rule(
    "DLC002",
    severity=ERROR,
    needs="run",
    title="There is nothing to train on",
    why="A loop over no batches ends at once and without an error, or divides by zero later.",
    fix="Check the folder, the pattern and the filter that fill the dataset, and raise an error "
    "where they find nothing.",
)
def nothing_to_check(obs: Observation) -> Iterator[Finding]:
    """Fire for an empty dataset, an epoch without a batch, a target that is no pipeline."""
    for name, failures in _failures(obs):
        first = failures[0]
        keys = frozenset(f.key for f in failures)
        if first.phase == "target":
            yield Finding(_sentence(first.message), Where(name or None), explains=keys)
        elif first.phase in {"build", "iter"} and _built_on_nothing(first):
            yield _empty_finding(name, _loader_of(first), explains=keys)
    for name, split in obs.splits.items():
        explained = any(_built_on_nothing(f) for f in split.failures.values())
        if split.loader and not split.batches and not split.samples and not explained:
            yield from _no_batches(name, split, split.loader)


def _failures(obs: Observation) -> Iterator[tuple[str, list[Failure]]]:
    """Yield every failure with the name of its split; samples that fail at one line in one."""
    for failure in obs.failures.values():
        yield "", [failure]
    for name, split in obs.splits.items():
        groups: dict[str, list[Failure]] = {}
        for key, failure in split.failures.items():
            same = f"{failure.exception} {failure.place()}" if failure.phase == "sample" else key
            groups.setdefault(same, []).append(failure)
        yield from ((name, group) for group in groups.values())


def _pipeline_finding(name: str, failures: list[Failure]) -> Finding:
    first, frame = failures[0], failures[0].user_frame
    ids = sorted({i for f in failures for i in f.at}, key=sample_order)
    last = next(iter((*ids, *first.batch[-1:])), first.detail.get("last_sample"))
    where = Where(
        split=name or None,
        sample=last,
        file=frame.file if frame else None,
        line=frame.line if frame else None,
        worker=first.worker,
    )
    evidence = _evidence(first) | {
        "samples": list(ids[:MOST_LINES]),
        "batch": list(first.batch),
        "count": sum(f.count for f in failures),
    }
    return Finding(
        _message(first, last),
        where,
        evidence,
        fix=_cure(first),
        explains=frozenset(f.key for f in failures),
    )


def _message(failure: Failure, last: Any) -> str:
    detail = failure.detail
    sample = "" if last in {None, ""} else f" (last sample asked for: {last})"
    doing = detail.get("doing") or "reading samples"
    if failure.phase == "rank":
        cause = detail.get("cause")
        return f"{failure.message} ({cause})" if cause else failure.message
    if failure.phase == "exit":
        return f"the process ended with status {detail.get('status')} while {doing}{sample}"
    if failure.phase == "signal":
        return f"the process was killed by {_signal(failure)} while {doing}{sample}"
    if failure.phase == "hang":
        return f"stuck for {detail.get('seconds', 0):.0f} s while {doing}{_at(failure)}{sample}"
    workers = "; ".join(
        f"worker {w['worker']} ended with exit code {w['exitcode']}"
        for w in detail.get("workers", ())
    )
    cause = f" ({workers})" if workers else ""
    when = WHILE.get(failure.phase, f"in phase {failure.phase}")
    return f"{_error(failure)} {when}{_at(failure)}{cause}{sample}"


def _at(failure: Failure) -> str:
    frame = failure.user_frame
    return f", at {base(frame.file)}:{frame.line} in {frame.function}" if frame else ""


def _error(failure: Failure) -> str:
    lines = failure.message.strip().splitlines()
    first = lines[0][:MOST_QUOTED] if lines else ""
    return f"{failure.exception}: {first}" if first else failure.exception


def _signal(failure: Failure) -> str:
    return str(failure.detail.get("name") or failure.detail.get("signal") or "a signal")


def _evidence(failure: Failure) -> dict[str, Any]:
    """Gather what is known of a failure, without what is empty."""
    detail = failure.detail
    stderr = str(detail.get("stderr") or "").strip().splitlines()[-MOST_LINES:]
    known = {
        "phase": failure.phase,
        "exception": failure.exception,
        "error": failure.message[:MOST_TEXT],
        "cause": detail.get("cause"),
        "traceback": [f"{f.file}:{f.line} in {f.function}" for f in failure.frames if f.user],
        "status": detail.get("status"),
        "signal": detail.get("signal"),
        "seconds": detail.get("seconds"),
        "workers": detail.get("workers"),
        "last_sample": detail.get("last_sample"),
        "stderr": stderr,
        "stacks": detail.get("stacks"),
    }
    return {key: value for key, value in known.items() if value not in (None, "", [])}


def _cure(failure: Failure) -> str:
    """Choose a fix by what the failure says; empty for the rule's own."""
    detail = failure.detail
    said = (failure.exception, failure.message, detail.get("cause"), detail.get("stderr"))
    text = " ".join(str(part) for part in said if part)
    for sign, cure in CURES.items():
        if sign in text:
            return cure
    if failure.phase == "signal":
        return SIGNAL_CURES.get(_signal(failure), NATIVE_CURE)
    for worker in detail.get("workers", ()):
        code = worker["exitcode"]
        return SIGNAL_CURES.get(SIGNALS.get(-code, ""), NATIVE_CURE) if code < 0 else EXIT_CURE
    return {"exit": EXIT_CURE, "hang": HANG_CURE}.get(failure.phase, "")


def _sentence(text: str) -> str:
    return text.strip().splitlines()[0][:MOST_TEXT] if text.strip() else "the target is no pipeline"


def _built_on_nothing(failure: Failure) -> bool:
    """Tell the refusal of RandomSampler to sample from nothing from other failures."""
    return failure.exception == "ValueError" and NO_INDEX in failure.message


def _loader_of(failure: Failure) -> Loader:
    """Describe the loader that could not be built, from what the traceback holds of it."""
    detail, frame = failure.detail, failure.user_frame
    return Loader(
        file=frame.file if frame else None,
        line=frame.line if frame else None,
        dataset=detail.get("dataset", ""),
        dataset_file=detail.get("dataset_file"),
        dataset_line=detail.get("dataset_line"),
        dataset_length=detail.get("dataset_length", 0),
        empty_attributes=tuple((name, line) for name, line in detail.get("empty_attributes", ())),
    )


def _no_batches(name: str, split: Split, loader: Loader) -> Iterator[Finding]:
    """Say why a loader gave no batch; silent when it was not read to its end."""
    if loader.dataset_length == 0 and loader.kind != "iterable":
        yield _empty_finding(name, loader)
    elif split.finished_epochs and not split.failures:
        dropped = loader.drop_last and loader.batch_size is not None
        too_few = dropped and (loader.dataset_length or 0) < (loader.batch_size or 0)
        if too_few and loader.dataset_length is not None:
            yield _dropped_finding(name, loader)
        else:
            yield _silent_finding(name, loader)


def _empty_finding(name: str, loader: Loader, explains: frozenset[str] = frozenset()) -> Finding:
    dataset = bare(loader.dataset) or "the dataset"
    reason, where = _emptiness(name, loader)
    refused = " and the sampler refuses to draw from it" if explains else ""
    evidence = {
        "dataset": loader.dataset,
        "length": loader.dataset_length,
        "empty_attributes": [list(pair) for pair in loader.empty_attributes],
    }
    message = f"len({dataset}) is 0{refused}{reason}"
    return Finding(message, where, evidence, explains=explains)


def _emptiness(name: str, loader: Loader) -> tuple[str, Where]:
    """Name the empty attributes; the place is the line that fills the first, else the loader's."""
    parts = [
        f"`{attribute}` is empty"
        + (f", filled at {base(loader.dataset_file)}:{line}" if line else "")
        for attribute, line in loader.empty_attributes
    ]
    attribute, line = next(
        (pair for pair in loader.empty_attributes if pair[1]),
        next(iter(loader.empty_attributes), (None, None)),
    )
    file = loader.dataset_file if line else loader.file
    where = Where(name or None, attribute=attribute, file=file, line=line or loader.line)
    return (": " + "; ".join(parts) if parts else ""), where


def _dropped_finding(name: str, loader: Loader) -> Finding:
    length, size = loader.dataset_length, loader.batch_size
    dataset = bare(loader.dataset) or "dataset"
    message = (
        f"an epoch has no batch: drop_last=True drops the only one, since len({dataset}) {length} "
        f"is below batch_size {size}"
    )
    evidence = {"length": length, "batch_size": size, "drop_last": True}
    where = Where(name or None, attribute="drop_last", file=loader.file, line=loader.line)
    fix = f"Pass drop_last=False or a batch_size of at most {length}."
    return Finding(message, where, evidence, fix=fix)


def _silent_finding(name: str, loader: Loader) -> Finding:
    """Report a loader that ended at once although its dataset has no known length of 0."""
    dataset = bare(loader.dataset) or bare(loader.cls) or "the loader"
    reason, where = _emptiness(name, loader)
    if loader.kind == "map":
        what = f"{loader.batch_sampler or loader.sampler} yields no index"
        message = (
            f"an epoch has no batch although len({dataset}) is {loader.dataset_length}: {what}"
        )
    else:
        few = f", or fewer than the {loader.batch_size} that drop_last=True asks for"
        asked = few if loader.drop_last else ""
        message = f"an epoch has no batch: {dataset} ends without yielding a sample{asked}{reason}"
    evidence = {
        "dataset": loader.dataset,
        "length": loader.dataset_length,
        "sampler": loader.sampler,
        "batch_size": loader.batch_size,
        "drop_last": loader.drop_last,
        "empty_attributes": [list(pair) for pair in loader.empty_attributes],
    }
    return Finding(message, where, evidence)
