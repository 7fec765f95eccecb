"""DLC409: what a worker must not do: keep a graph, or use the accelerator after a fork."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from dlcheck.findings import ERROR, Finding, Where, rule
from dlcheck.observation import Failure, Observation, Split, Touch
from dlcheck.rules import ways
from dlcheck.rules.words import base, joined, named

# With these torch refuses a graph on its way out of a worker.
REFUSED = re.compile(
    r"automatic differentiation, but one of the arguments requires grad|"
    r"serialize non-leaf tensor",
    re.IGNORECASE,
)
FORKED = re.compile(
    r"re-initialize (?:CUDA|\w+) in forked subprocess|CUDA error: initialization error",
    re.IGNORECASE,
)
LOADING = ("sample", "collate", "batch")
# Without an accelerator the same line fails with one of these.
NONE_HERE = re.compile(
    r"not compiled with CUDA enabled|No CUDA GPUs are available|Found no NVIDIA driver|"
    r"no CUDA-capable device|Cannot access accelerator device",
    re.IGNORECASE,
)
GRAD_FIX = (
    "Store plain tensors, run models in the dataset under torch.no_grad(), and call "
    "requires_grad_() on the batch in the training step."
)
DEVICE_FIX = (
    "Return CPU tensors from the dataset and move the batch in the training step "
    "(batch.to(device, non_blocking=True)), or start the workers with "
    "multiprocessing_context='spawn'."
)


@rule(
    "DLC409",
    severity=ERROR,
    needs="run",
    title="A worker returns tensors that require a gradient, or uses the accelerator",
    why="A graph cannot leave its process, and a CUDA context does not survive a fork: batches "
    "fail or hang as soon as num_workers is above 0.",
    fix=GRAD_FIX,
)
def autograd_in_worker(obs: Observation) -> Iterator[Finding]:
    """Fire where samples made in workers require a gradient and the batch fails or keeps it.

    Also where a forked worker starts CUDA, whether torch refused it or not. In the main process
    both work, and nothing is said.
    """
    for name, split in obs.splits.items():
        workers = split.loader.num_workers if split.loader else 0
        if not workers and not any(f.worker is not None for f in split.failures.values()):
            continue
        yield from _graphs(name, split)
        yield from _touches(name, split)


def _graphs(name: str, split: Split) -> Iterator[Finding]:
    fields = [field for field, seen in split.fields.items() if seen.grad.n]
    in_batch = [field for field, seen in split.batch_fields.items() if seen.grad.n]
    refused = {f.key: f for f in split.failures.values() if REFUSED.search(_text(f))}
    if not refused and not in_batch:
        return
    field = fields[0] if fields else (in_batch[0] if in_batch else None)
    yield _graph(name, split, field, refused)


def _text(failure: Failure) -> str:
    """Say what is known of a failure; a queue that cannot send a batch says so on stderr alone."""
    if failure.phase == "hang":
        return str(failure.detail.get("stderr", ""))
    return failure.message if failure.phase in LOADING else ""


def _graph(name: str, split: Split, field: str | None, failed: dict[str, Failure]) -> Finding:
    failure = next(iter(failed.values()), None)
    held = next(iter(split.grads.values()), None)
    what = named(field) if field else "a field"
    said = f"{what} comes out of the workers with requires_grad"
    if held is not None:
        said += f", since {held.path} ({held.type}) requires it"
    if failure is not None and failure.message:
        said += f"\n{failure.message.strip().splitlines()[-1][:300]}"
    file, line = _line(split, field, failure)
    seen = split.fields.get(field) if field is not None else None
    sample = next(iter(seen.grad.at), None) if seen else None
    evidence: dict[str, Any] = {
        "attribute": held.path if held else None,
        "code": held.text if held else None,
        "samples": seen.grad.n if seen else None,
        "num_workers": split.loader.num_workers if split.loader else None,
    }
    where = Where(
        name or None, field, None, sample, file, line,
        attribute=held.path if held else None, worker=failure.worker if failure else None,
    )  # fmt: skip
    return Finding(said, where, evidence, explains=frozenset(failed))


def _line(
    split: Split, field: str | None, failure: Failure | None
) -> tuple[str | None, int | None]:
    """Prefer the line that asks for the gradient, then the one that returns the sample."""
    held = next((one for one in split.grads.values() if one.line), None)
    if held is not None:
        return held.file, held.line
    if field is not None:
        for journey in ways.ways(split):
            if field in journey.fields and ways.returned(journey)[1] is not None:
                return ways.returned(journey)
    frame = failure.user_frame if failure else None
    if frame is not None:
        return frame.file, frame.line
    loader = split.loader
    return (loader.file, loader.line) if loader else (None, None)


def _touches(name: str, split: Split) -> Iterator[Finding]:
    method = split.loader.context if split.loader else None
    failed = {
        f.key: f
        for f in split.failures.values()
        if FORKED.search(f.message)
        or (f.worker is not None and method in {"fork", None} and NONE_HERE.search(f.message))
    }
    touches = [
        t for t in (split.device.touches.values() if split.device else ())
        if t.worker is not None and t.method == "fork"
    ]  # fmt: skip
    if failed:
        yield _refused_touch(name, split, failed)
    elif touches:
        yield _touched(name, touches)


def _refused_touch(name: str, split: Split, failed: dict[str, Failure]) -> Finding:
    failure = next(iter(failed.values()))
    frame = failure.user_frame
    main = split.device.touches.get("main") if split.device else None
    place = f" at {base(frame.file)}:{frame.line}" if frame else ""
    said = f"a forked worker uses the accelerator{place}"
    if main is not None and main.line:
        said += f"; the main process had started it at {base(main.file)}:{main.line}"
    said += f"\n{failure.message.strip().splitlines()[0][:300]}"
    where = Where(
        name or None, None, None, next(iter(failure.at), None),
        frame.file if frame else None, frame.line if frame else None, worker=failure.worker,
    )  # fmt: skip
    evidence = {
        "code": frame.text if frame else None,
        "start_method": split.loader.context if split.loader else None,
        "started_by": f"{main.file}:{main.line}" if main and main.line else None,
    }
    return Finding(said, where, evidence, fix=DEVICE_FIX, explains=frozenset(failed))


def _touched(name: str, touches: list[Touch]) -> Finding:
    first = min(touches, key=lambda t: (t.file, t.line, t.worker or 0))
    workers = sorted({t.worker for t in touches if t.worker is not None})
    place = f" at {base(first.file)}:{first.line}" if first.line else ""
    said = (
        f"forked workers {joined(workers)} each start a CUDA context of their own{place}"
        "\nonce the main process has one, as in training, torch refuses this"
    )
    evidence = {"code": first.text, "workers": workers, "start_method": "fork"}
    where = Where(
        name or None, file=first.file or None, line=first.line or None, worker=first.worker
    )
    return Finding(said, where, evidence, fix=DEVICE_FIX)
