"""A leak run reads equal epochs, and its counters show what each process keeps, and only that."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable, Iterator
from multiprocessing import shared_memory
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader, Dataset, IterableDataset  # noqa: E402 - torch may be absent

KIB = 1 << 10
MIB = 1 << 20
pytestmark = pytest.mark.skipif(
    not Path("/proc/self/smaps_rollup").exists(), reason="the counters are those of Linux"
)


class Samples(Dataset):
    """`n` samples of 3 KiB; what `keep` makes of an index stays in `self.kept`."""

    def __init__(self, n: int = 24, keep: Callable[[int], Any] | None = None) -> None:
        self.n, self.keep = n, keep
        self.kept: list[Any] = []

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> tuple[Any, int]:
        if self.keep is not None:
            self.kept.append(self.keep(index))
        return torch.full((16, 48), float(index)), gc.get_freeze_count()


class Endless(IterableDataset):
    def __iter__(self) -> Iterator[Any]:
        return (torch.zeros(8) for _ in itertools.count())


@pytest.fixture
def measured(watch: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Read the epochs of a loader as the child does, in this process."""
    import _posixshmem

    monkeypatch.setattr(_posixshmem, "shm_open", _posixshmem.shm_open)
    from dlcheck.observation import Observation
    from dlcheck.run.drive import Drive, Plan
    from dlcheck.run.epochs import measure
    from dlcheck.run.target import Target
    from tests.run.conftest import read

    def run(loader: Any, **given: Any) -> Any:
        step = given.pop("step", None)
        plan = Plan(given.pop("budget", 30.0), None, 0, given.pop("epochs", 3), **given)
        drive = Drive(watch, Target(loader, getattr(loader, "dataset", None)), plan)
        drive.step = step
        measure(drive)
        seen: Observation = read(Path(watch.scratch.folder))
        return SimpleNamespace(split=seen.splits[""], drive=drive)

    return run


def ends(process: Any) -> list[Any]:
    return [mark for mark in process.marks if mark.at == "end"]


def growth(process: Any, of: str = "heap") -> list[int]:
    """What each epoch after the first added."""
    values = [getattr(mark, of) for mark in ends(process)]
    return [b - a for a, b in itertools.pairwise(values)]


def test_a_clean_loader_keeps_nothing_and_every_epoch_has_its_marks(measured: Any) -> None:
    split = measured(DataLoader(Samples(), batch_size=4)).split
    main = split.processes["main"]
    assert max(growth(main)) < 12 * KIB
    assert [(m.epoch, m.at, m.batches, m.samples) for m in main.marks if m.at != "within"] == [
        (0, "begin", 1, 4), (0, "end", 6, 24), (1, "begin", 7, 28), (1, "end", 12, 48),
        (2, "begin", 13, 52), (2, "end", 18, 72),
    ]  # fmt: skip
    assert len(main.points) == 18
    assert (split.epochs, split.finished_epochs, split.epochs_wanted) == (3, 3, 3)
    assert (split.samples, split.again, split.batches) == (24, 48, 18)
    assert not split.fields, "no value is looked at while memory is measured"


def test_what_a_dataset_keeps_shows_at_its_size_under_its_attribute(measured: Any) -> None:
    keeping = Samples(keep=lambda index: bytearray(10_000 + index))
    main = measured(DataLoader(keeping, batch_size=4)).split.processes["main"]
    assert growth(main) == pytest.approx([24 * 10_000] * 2, rel=0.06)
    held = main.held["dataset.kept"]
    assert (held.path, held.of, held.type) == ("self.kept", "Samples", "list")
    assert held.lengths == (0, 24, 48, 72)


def test_small_objects_show_in_the_blocks(measured: Any) -> None:
    keeping = Samples(keep=lambda index: [float(index + n) for n in range(50)])
    main = measured(DataLoader(keeping, batch_size=4)).split.processes["main"]
    assert growth(main, "blocks") == pytest.approx([24 * 52] * 2, rel=0.2)


def test_each_generation_of_workers_is_a_process_of_its_own(measured: Any) -> None:
    split = measured(DataLoader(Samples(), batch_size=4, num_workers=2), epochs=2).split
    assert set(split.processes) == {"main", "e0w0", "e0w1", "e1w0", "e1w1"}
    for name in ("e0w0", "e1w1"):
        worker = split.processes[name]
        assert [mark.samples for mark in ends(worker)] == [12]
        assert (worker.role, worker.born, worker.persistent) == ("worker", int(name[1]), False)


def test_a_persistent_worker_shows_its_own_growth_and_the_main_process_none(measured: Any) -> None:
    keeping = Samples(keep=lambda index: bytearray(10_000 + index))
    loader = DataLoader(keeping, batch_size=4, num_workers=1, persistent_workers=True)
    split = measured(loader).split
    worker, main = split.processes["w0"], split.processes["main"]
    assert [mark.samples for mark in ends(worker)] == [24, 48, 72]
    assert growth(worker) == pytest.approx([24 * 10_000] * 2, rel=0.2)
    assert worker.held["dataset.kept"].lengths == (0, 24, 48, 72)
    assert max(growth(main)) < 12 * KIB
    assert "dataset.kept" not in main.held


def test_a_clean_persistent_worker_is_flat_to_its_last_mark(measured: Any) -> None:
    loader = DataLoader(Samples(), batch_size=4, num_workers=1, persistent_workers=True)
    worker = measured(loader).split.processes["w0"]
    assert max(map(abs, growth(worker))) < 16 * KIB
    assert max(map(abs, growth(worker, "blocks"))) < 200


def test_memory_is_frozen_while_workers_live_and_no_longer(measured: Any) -> None:
    counts: list[int] = []
    loader = DataLoader(Samples(8), batch_size=4, num_workers=1)
    measured(loader, epochs=2, step=lambda batch: counts.extend(batch[1].tolist()))
    assert min(counts) > 0
    assert gc.get_freeze_count() == 0


def test_an_endless_stream_is_cut_into_equal_epochs(measured: Any) -> None:
    split = measured(DataLoader(Endless(), batch_size=2), epoch_batches=5).split
    assert [mark.batches for mark in ends(split.processes["main"])] == [5, 10, 15]
    assert (split.epoch_batches, split.finished_epochs) == (5, 0)


def test_without_a_bound_the_budget_ends_an_endless_epoch(measured: Any) -> None:
    split = measured(DataLoader(Endless(), batch_size=2, num_workers=1), budget=1.5).split
    first, *later = [mark.batches for mark in ends(split.processes["main"])]
    assert later == [2 * first, 3 * first]
    assert split.epoch_batches == first


def test_the_step_gets_every_batch_and_its_exception_is_a_failure(measured: Any) -> None:
    taken: list[Any] = []

    def step(batch: Any) -> None:
        taken.append(batch[0].shape)
        if len(taken) == 8:
            raise RuntimeError("diverged")

    seen = measured(DataLoader(Samples(), batch_size=4), step=step)
    assert [f.phase for f in seen.split.failures.values()] == ["step"]
    assert len(taken) == 8
    assert [mark.batches for mark in ends(seen.split.processes["main"])] == [6, 8]


def test_open_files_count_in_the_process_that_opens_them(measured: Any, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("x")
    keeping = Samples(8, keep=lambda _: (tmp_path / "data").open("rb"))
    main = measured(DataLoader(keeping, batch_size=4)).split.processes["main"]
    assert growth(main, "handles") == [8, 8]
    assert main.handle_kinds["file"] >= 24
    for file in keeping.kept:
        file.close()


def test_shared_memory_counts_whatever_its_name_and_others_do_not(measured: Any) -> None:
    before = shared_memory.SharedMemory(create=True, size=MIB)
    made: list[shared_memory.SharedMemory] = []

    def step(_: Any) -> None:
        made.append(shared_memory.SharedMemory(create=True, size=64 * KIB))
        made[-1].buf[:] = bytes(64 * KIB)

    try:
        main = measured(DataLoader(Samples(8), batch_size=4), step=step).split.processes["main"]
    finally:
        for segment in (before, *made):
            segment.close()
            segment.unlink()
    assert [(m.shm, m.shm_names) for m in ends(main)] == [
        (2 * 64 * KIB, 2), (4 * 64 * KIB, 4), (6 * 64 * KIB, 6),
    ]  # fmt: skip


@pytest.mark.parametrize("workers", [0, 1])
def test_the_peak_inside_a_batch_shows_beside_what_it_returns(measured: Any, workers: int) -> None:
    wasteful = Samples(8, keep=lambda _: len(bytearray(b"x" * (24 * MIB))))
    split = measured(DataLoader(wasteful, batch_size=2, num_workers=workers), epochs=2).split
    points = split.processes["e0w0" if workers else "main"].points
    inside = [point.inside for point in points if point.inside is not None]
    returned = {point.returned for point in points if point.inside is not None}
    assert min(inside) > 40 * MIB
    assert returned == {2 * 16 * 48 * 4 + 2 * 8}


def test_collectable_garbage_shows_between_before_and_after(measured: Any) -> None:
    def cycle(_: int) -> None:
        ring: list[Any] = [bytearray(MIB)]
        ring.append(ring)

    gc.disable()
    try:
        main = measured(DataLoader(Samples(8, keep=cycle), batch_size=4)).split.processes["main"]
    finally:
        gc.enable()
    freed = [sum(m.heap_before - m.heap for m in main.marks if m.epoch == n) for n in range(3)]
    assert min(freed) > 7 * MIB
    assert max(growth(main)) < 12 * KIB


def test_two_loaders_at_once_have_workers_of_their_own(measured: Any) -> None:
    class Both:
        def __init__(self) -> None:
            self.loaders = [DataLoader(Samples(8), batch_size=4, num_workers=1) for _ in "ab"]

        def __iter__(self) -> Iterator[Any]:
            return zip(*self.loaders, strict=True)

    split = measured(Both(), epochs=2).split
    assert set(split.processes) == {"main", "e0w0", "e0w0.2", "e1w0", "e1w0.2"}
    pids = {process.pid for process in split.processes.values()}
    assert len(pids) == 5


def test_spawned_workers_are_read_too(measured: Any) -> None:
    loader = DataLoader(
        Samples(8), batch_size=4, num_workers=1, persistent_workers=True,
        multiprocessing_context="spawn",
    )  # fmt: skip
    worker = measured(loader, epochs=2).split.processes["w0"]
    assert [mark.samples for mark in ends(worker)] == [8, 16]
