"""All checks that need a CUDA device: prints what is expected beside what was seen.

    python tests/gpu_run.py [WORD...]

Exits 0 when all agree, 1 when one does not, 3 without a device. With DLCHECK_GPU_SAVE=DIR the runs
are saved there, as recordings of a real device. Under pytest the same checks are tests/test_gpu.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "dlcheck" / "examples"
MIB, GIB = 1 << 20, 1 << 30
NEAR = 0.15


class Seen(NamedTuple):
    expected: str
    seen: str
    agrees: bool


def missing_device() -> str:
    """Why no check can run here; empty where they can."""
    try:
        import torch
    except ImportError:
        return "there is no torch"
    if torch.cuda.is_available():
        return ""
    return f"no CUDA device (torch {torch.__version__}, CUDA {torch.version.cuda})"


def run(command: str, folder: Path, target: str, *more: str) -> dict[str, Any]:
    """The JSON report of a run of the real tool."""
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    saved = os.environ.get("DLCHECK_GPU_SAVE")
    keep = (
        ["--save", str(Path(saved).absolute() / f"{folder.name}-{command}.json")] if saved else []
    )
    done = subprocess.run(
        [sys.executable, "-m", "dlcheck", command, target, "--format", "json", *keep, *more],
        cwd=folder, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True,
        check=False, timeout=300,
    )  # fmt: skip
    if not done.stdout:
        raise RuntimeError(done.stderr)
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def leak_of(kind: str) -> dict[str, Any]:
    """A leak run of the device-leak example, its step included."""
    with tempfile.TemporaryDirectory(prefix=f"leak-{kind}-") as folder:
        source = (EXAMPLES / "device-leak" / f"{kind}.py").read_text("utf-8")
        Path(folder, "job.py").write_text(source)
        config = {"loader": "job:make_loader", "step": "job:step"}
        Path(folder, "dlcheck.yaml").write_text(json.dumps(config))
        return run("leak", Path(folder), "dlcheck.yaml", "--epochs", "3", "--device", "auto")


def accused(report: dict[str, Any]) -> list[tuple[str, int | None]]:
    return [
        (f["rule"], f["where"].get("line")) for f in report["findings"] if f["severity"] != "note"
    ]


def device_of(report: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = next(iter(report["observation"]["splits"].values()))["device"]
    return found


def allocator_is_read() -> Seen:
    """A tensor of 64 MiB counts as 64 MiB, and its peak is forgotten after one reading."""
    import torch

    from dlcheck.run.device import Cuda

    cuda = Cuda(0, "auto", None)
    before = cuda.figures()
    held = torch.empty(64 * MIB, dtype=torch.uint8, device="cuda:0")
    brief = torch.empty(128 * MIB, dtype=torch.uint8, device="cuda:0")
    del brief
    now, later = cuda.figures(), cuda.figures()
    grew = (now.allocated - before.allocated) // MIB
    peak = (now.peak - before.allocated) // MIB
    after = (later.peak - before.allocated) // MIB
    inside = now.allocated <= now.reserved <= (now.driver or 0)
    del held
    cuda.stop()
    seen = f"{grew} MiB, peak {peak}, then {after}; allocated<=reserved<=driver: {inside}"
    want = "64 MiB, peak 192, then 64; allocated<=reserved<=driver: True"
    return Seen(want, seen, seen == want)


def history_names_the_line() -> Seen:
    """The memory history leads to the line that asked for a block."""
    import torch

    from dlcheck.observers.device import census
    from dlcheck.run.device import Cuda

    cuda = Cuda(0, "auto", None)
    held = torch.empty(32 * MIB, dtype=torch.uint8, device="cuda:0")
    line = sys._getframe().f_lineno - 1
    found = [one for one in census(cuda.blocks()).values() if one.last >= 32 * MIB]
    del held
    cuda.stop()
    seen = ", ".join(f"{Path(one.file).name}:{one.line}" for one in found)
    want = f"gpu_run.py:{line}"
    return Seen(want, seen or "no line", seen == want)


def leak_is_named() -> Seen:
    """The example that keeps predictions is accused on its marked line."""
    lines = (EXAMPLES / "device-leak" / "bad.py").read_text("utf-8").splitlines()
    marked = next(n for n, text in enumerate(lines, start=1) if "# expect: device-leak" in text)
    report = leak_of("bad")
    found = [one for one in accused(report) if one[0] == "device-leak"]
    per_step = [f["evidence"]["bytes_per_step"] for f in report["findings"]
                if f["rule"] == "device-leak"]  # fmt: skip
    seen = f"{found}, {per_step} bytes a step"
    want = f"{[('device-leak', marked)]}, [294912] bytes a step"
    return Seen(want, seen, seen == want)


def healthy_is_silent() -> Seen:
    """The example that keeps numbers draws nothing, and its figures are in order."""
    report = leak_of("good")
    device = device_of(report)
    last = device["readings"][-1]
    ordered = last["allocated"] <= last["peak"] <= last["reserved"] <= last["driver"]
    seen = f"{accused(report)}, {len(device['readings'])} readings, in order: {ordered}"
    want = "[], 24 readings, in order: True"
    return Seen(want, seen, seen == want)


def batches_move_without_a_step() -> Seen:
    """--device moves pinned batches although nobody takes them, and keeps none of them."""
    source = """
    import torch
    from torch.utils.data import DataLoader, TensorDataset
    def make_loader():
        return DataLoader(TensorDataset(torch.zeros(64, 1 << 18)), batch_size=8, pin_memory=True)
    """
    with tempfile.TemporaryDirectory(prefix="moved-") as folder:
        Path(folder, "job.py").write_text(textwrap.dedent(source))
        report = run("leak", Path(folder), "job.py:make_loader", "--device", "cuda:0")
    device = device_of(report)
    live = {r["allocated"] // MIB for r in device["readings"]}
    peak = max(r["peak"] for r in device["readings"]) // MIB
    seen = f"moved {device['moved'] // MIB} MiB, peak {peak}, live after {sorted(live)}"
    want = "moved 8 MiB, peak 8, live after [0]"
    return Seen(want, seen, seen == want)


def foreseen_is_near_measured() -> Seen:
    """The foreseen peak of a ResNet-50 step, batch 32, against the allocator's."""
    import torch
    import torchvision

    from dlcheck.observers.describe import Described
    from dlcheck.run.budget import foresee

    spec = {
        "model": {"_target_": "torchvision.models.resnet50"},
        "loss": {"_target_": "torch.nn.CrossEntropyLoss"},
        "optimizer": {"_target_": "torch.optim.Adam"},
    }
    leaves = [
        Described("", "tuple", None, (2,)),
        Described("0", "Tensor", "float32", (32, 3, 224, 224)),
        Described("1", "Tensor", "int64", (32,)),
    ]
    foreseen = foresee(spec, leaves).peak
    base = torch.cuda.memory_allocated()
    model = torchvision.models.resnet50().cuda()
    optimizer = torch.optim.Adam(model.parameters())
    x, y = torch.rand(32, 3, 224, 224).cuda(), torch.zeros(32, dtype=torch.int64).cuda()
    for _ in range(2):
        torch.cuda.reset_peak_memory_stats()
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    measured = torch.cuda.max_memory_allocated() - base
    off = foreseen / measured - 1
    seen = f"foreseen {foreseen / MIB:.0f} MiB, measured {measured / MIB:.0f} MiB ({off:+.1%})"
    return Seen(f"within {NEAR:.0%}", seen, abs(off) <= NEAR)


FORKED = """
import torch
from torch.utils.data import DataLoader, Dataset
torch.zeros(1).cuda()
class OnDevice(Dataset):
    def __len__(self):
        return 32
    def __getitem__(self, i):
        return torch.zeros(4).cuda(), i
def make_loader():
    return DataLoader(OnDevice(), batch_size=4, num_workers=2, multiprocessing_context="fork")
"""


def forked_worker_is_named() -> Seen:
    """CUDA in a forked worker, refused or not, is autograd-in-worker at its line."""
    seen = []
    for source in (FORKED, FORKED.replace("torch.zeros(1).cuda()\n", "\n")):
        with tempfile.TemporaryDirectory(prefix="forked-") as folder:
            Path(folder, "job.py").write_text(source)
            found = accused(run("shapes", Path(folder), "job.py:make_loader", "--budget", "10s"))
            seen += [one for one in found if one[0] == "autograd-in-worker"]
    want = [("autograd-in-worker", 9)] * 2
    return Seen(str(want), str(seen), seen == want)


EXHAUSTS = """
import torch
from torch.utils.data import DataLoader, TensorDataset
def step(batch):
    total = torch.cuda.get_device_properties(0).total_memory
    torch.empty(total + (1 << 30), dtype=torch.uint8, device="cuda:0")
def make_loader():
    return DataLoader(TensorDataset(torch.zeros(64, 4)), batch_size=8)
"""


def exhausted_device_is_an_error() -> Seen:
    """A step that runs out of memory is device-budget, measured, at its line."""
    with tempfile.TemporaryDirectory(prefix="exhausted-") as folder:
        Path(folder, "job.py").write_text(EXHAUSTS)
        config = {"loader": "job:make_loader", "step": "job:step"}
        Path(folder, "dlcheck.yaml").write_text(json.dumps(config))
        report = run("leak", Path(folder), "dlcheck.yaml", "--device", "auto")
    seen = [(f["rule"], f["severity"], f["where"].get("line")) for f in report["findings"]]
    want = [("device-budget", "error", 6)]
    return Seen(str(want), str(seen), seen == want)


CHECKS: tuple[Callable[[], Seen], ...] = (
    allocator_is_read,
    history_names_the_line,
    leak_is_named,
    healthy_is_silent,
    batches_move_without_a_step,
    foreseen_is_near_measured,
    forked_worker_is_named,
    exhausted_device_is_an_error,
)


def main(words: list[str]) -> int:
    why = missing_device()
    if why:
        print(f"nothing was run: {why}")
        return 3
    import torch

    print(f"{torch.cuda.get_device_name(0)}, torch {torch.__version__}, CUDA {torch.version.cuda}")
    failed = 0
    for check in CHECKS:
        if words and not any(word in check.__name__ for word in words):
            continue
        try:
            result = check()
        except Exception as error:  # noqa: BLE001 - the other checks are worth their time
            result = Seen("a result", f"{type(error).__name__}: {error}"[-600:], agrees=False)
        failed += not result.agrees
        print(f"{'ok  ' if result.agrees else 'FAIL'} {check.__name__}: {check.__doc__}")
        print(f"     expected {result.expected}\n     seen     {result.seen}", flush=True)
    print(f"{failed} failed" if failed else "all agree")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main(sys.argv[1:]))
