"""Who keeps what, on small pipelines of each kind: its name, and the lines that make and store."""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from dlcheck.observation.memory import Culprit  # noqa: E402 - torch may be absent
from dlcheck.observers import roots  # noqa: E402
from dlcheck.run import culprits  # noqa: E402
from dlcheck.run.scratch import Scratch  # noqa: E402
from dlcheck.run.target import Target  # noqa: E402

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="passes are forks that read /proc")

HEAD = """import ctypes, functools, os, tempfile, threading
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

"""
Explain = Callable[..., dict[str, Culprit]]


@pytest.fixture(autouse=True)
def _no_tests_among_the_users_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """What other tests keep in their modules is none of these pipelines'."""
    every = roots.user_modules
    monkeypatch.setattr(
        roots, "user_modules", lambda: [m for m in every() if m.__name__ == "leaky"]
    )


@pytest.fixture
def explain(tmp_path: Path) -> Explain:
    """Import a pipeline, send one request, and return its culprits by key."""

    def explained(source: str, role: str, *resources: str, seconds: float = 20.0) -> Any:
        path = tmp_path / "leaky.py"
        path.write_text(HEAD + source)
        spec = importlib.util.spec_from_file_location("leaky", path)
        module = importlib.util.module_from_spec(spec)
        sys.modules["leaky"] = module
        spec.loader.exec_module(module)
        loader = module.make_loader()
        target = Target(loader, loader.dataset, step=getattr(module, "step", None))
        written: dict[str, Culprit] = {}

        class Kept(Scratch):
            def write(self, **line: Any) -> None:
                for split in line["obs"].get("splits", {}).values():
                    for key, one in split["culprits"].items():
                        written[key] = Culprit(**{**one, "chain": tuple(one.get("chain", ()))})

        request = {"split": "", "roles": [role], "resources": resources, "seconds": seconds}
        culprits.answer(request, target, Kept(str(tmp_path)))
        return written

    yield explained
    sys.modules.pop("leaky", None)


def test_a_cache_of_a_worker_is_named_with_the_lines_that_store_and_allocate(
    explain: Explain,
) -> None:
    found = explain(
        """
def decode(i):
    return np.full((64, 64), i, np.float32)

class Images(Dataset):
    def __init__(self): self.cache = {}
    def __len__(self): return 96
    def __getitem__(self, i):
        if i not in self.cache:
            self.cache[i] = decode(i)
        return torch.from_numpy(self.cache[i])

def make_loader(): return DataLoader(Images(), batch_size=8, shuffle=True, num_workers=2)
""",
        "worker",
        "heap",
    )["heap:worker:0"]
    assert (found.attribute, found.owner, found.type) == ("self.cache", "dataset", "dict")
    assert found.stored_text == "self.cache[i] = decode(i)"
    assert found.text == "return np.full((64, 64), i, np.float32)"
    assert found.detail["mapping"]
    assert found.detail["class"] == "Images"
    assert found.detail["lengths"][0] == 48
    # 16 KiB a new key, and little besides.
    assert 16_384 <= found.grew / (found.items - 48) < 18_000


def test_a_history_of_the_step_is_named_in_bytes_and_objects(explain: Explain) -> None:
    found = explain(
        """
class Trainer:
    def __init__(self): self.results = []
    def step(self, batch):
        for row in batch.tolist():
            self.results.append({"scores": row})

trainer = None
def step(batch):
    global trainer
    trainer = trainer or Trainer()
    trainer.step(batch)

class Numbers(Dataset):
    def __len__(self): return 32
    def __getitem__(self, i): return torch.rand(16, dtype=torch.float64)

def make_loader(): return DataLoader(Numbers(), batch_size=4)
""",
        "main",
        "heap",
        "objects",
    )
    for key in ("heap:main:0", "objects:main:0"):
        one = found[key]
        assert (one.attribute, one.owner) == ("trainer.results", "module")
        assert one.stored_text == 'self.results.append({"scores": row})'
        assert one.detail["lengths"] == [32, 64, 96]
    # A dict, a list and 16 floats a sample; the key is one for all.
    assert found["objects:main:0"].grew == 64 * 18


@pytest.mark.parametrize(
    ("source", "name", "stored"),
    [
        pytest.param(
            """
@functools.lru_cache(maxsize=None)
def load(n): return np.zeros(2000)
count = iter(range(10**9))
class Data(Dataset):
    def __len__(self): return 32
    def __getitem__(self, i):
        return load(next(count))[:4].copy()
def make_loader(): return DataLoader(Data(), batch_size=4)
""",
            "load", "return load(next(count))[:4].copy()", id="lru_cache",
        ),
        pytest.param(
            """
def collate(items, kept=[]):
    kept.extend(items)
    return torch.stack(items)
class Data(Dataset):
    def __len__(self): return 32
    def __getitem__(self, i): return torch.rand(500)
def make_loader(): return DataLoader(Data(), batch_size=4, collate_fn=collate)
""",
            "kept", "kept.extend(items)", id="default argument",
        ),
        pytest.param(
            """
def make_collate():
    history = []
    def collate(items):
        history.append(torch.stack(items))
        return history[-1]
    return collate
class Data(Dataset):
    def __len__(self): return 32
    def __getitem__(self, i): return torch.rand(500)
def make_loader(): return DataLoader(Data(), batch_size=4, collate_fn=make_collate())
""",
            "history", "history.append(torch.stack(items))", id="closure",
        ),
        pytest.param(
            """
class Stream(IterableDataset):
    def __iter__(self):
        seen = set()
        for n in range(64):
            seen.add("key %d" % n * 50)
            yield n
def make_loader(): return DataLoader(Stream(), batch_size=4)
""",
            "seen", 'seen.add("key %d" % n * 50)', id="local of a generator",
        ),
        pytest.param(
            """
class Bank:
    rows = torch.zeros(0, 64)
def step(batch):
    Bank.rows = torch.cat([Bank.rows, batch])
class Data(Dataset):
    def __len__(self): return 32
    def __getitem__(self, i): return torch.rand(64)
def make_loader(): return DataLoader(Data(), batch_size=4)
""",
            "Bank.rows", "Bank.rows = torch.cat([Bank.rows, batch])", id="a tensor that grows",
        ),
    ],
)  # fmt: skip
def test_names_that_are_no_attributes_are_found(
    explain: Explain, source: str, name: str, stored: str
) -> None:
    found = explain(source, "main", "heap")["heap:main:0"]
    assert found.attribute == name
    assert found.stored_text == stored


def test_a_summed_loss_is_named_by_the_graph_that_it_keeps(explain: Explain) -> None:
    found = explain(
        """
net = torch.nn.Linear(8, 1)
class Run:
    total = 0.0
def step(batch):
    loss = net(batch).mean()
    loss.backward()
    net.zero_grad()
    Run.total += loss
class Data(Dataset):
    def __len__(self): return 16
    def __getitem__(self, i): return torch.rand(8)
def make_loader(): return DataLoader(Data(), batch_size=2)
""",
        "main",
        "graph",
    )["graph:main:0"]
    assert found.attribute == "Run.total"
    assert found.stored_text == "Run.total += loss"


def test_open_files_are_named_by_the_line_that_opens_and_the_list_that_keeps(
    explain: Explain,
) -> None:
    found = explain(
        """
class Files(Dataset):
    def __init__(self): self.open = []
    def __len__(self): return 16
    def __getitem__(self, i):
        handle = open(__file__, "rb")
        self.open.append(handle)
        return len(handle.read())
def make_loader(): return DataLoader(Files(), batch_size=4, num_workers=2)
""",
        "worker",
        "handles",
    )["handles:worker:0"]
    assert found.text == 'handle = open(__file__, "rb")'
    assert found.attribute == "self.open"
    assert found.stored_text == "self.open.append(handle)"
    assert found.detail["kind"] == "file"
    assert found.detail["path"].endswith("leaky.py")


def test_threads_are_named_by_the_line_outside_that_starts_them(explain: Explain) -> None:
    found = explain(
        """
class Prefetch(threading.Thread):
    def __init__(self):
        super().__init__(daemon=True)
        self.start()
    def run(self): threading.Event().wait()
class Loader(DataLoader):
    def __iter__(self):
        self.helper = Prefetch()
        yield from super().__iter__()
class Data(Dataset):
    def __len__(self): return 8
    def __getitem__(self, i): return i
def make_loader(): return Loader(Data(), batch_size=4)
""",
        "main",
        "threads",
    )["threads:main:0"]
    assert found.text == "self.helper = Prefetch()"
    assert found.detail["name"] == "Prefetch"


@pytest.mark.parametrize(
    ("source", "text", "name"),
    [
        pytest.param(
            """
class Node:
    def __init__(self, parent=None):
        self.children = []
        self.data = np.zeros(5000)
        self.parent = parent
        if parent is not None:
            parent.children.append(self)
class Trees(Dataset):
    def __len__(self): return 32
    def __getitem__(self, i):
        root = Node()
        Node(root)
        return 1
def make_loader(): return DataLoader(Trees(), batch_size=4)
""",
            "self.parent = parent", "self.parent", id="parent and child",
        ),
        pytest.param(
            """
class Files(Dataset):
    def __len__(self): return 32
    def __getitem__(self, i):
        raw = np.zeros(5000)
        problem = None
        try:
            raise ValueError("short file")
        except ValueError as error:
            problem = error
        return 1
def make_loader(): return DataLoader(Files(), batch_size=4)
""",
            "problem = error", "problem", id="an exception and its frame",
        ),
    ],
)  # fmt: skip
def test_a_cycle_is_named_by_what_closes_it(
    explain: Explain, source: str, text: str, name: str
) -> None:
    found = explain(source, "main", "cycles")["cycles:main:0"]
    assert (found.text, found.attribute) == (text, name)
    assert found.grew >= found.samples * 40_000


def test_the_line_of_the_peak_is_named_with_what_was_returned(explain: Explain) -> None:
    found = explain(
        """
def normalise(volume):
    grid = np.ones((8, *volume.shape))
    return (volume * grid).mean(0)
class Volumes(Dataset):
    def __len__(self): return 8
    def __getitem__(self, i):
        volume = np.zeros((96, 96, 96))
        return normalise(volume)[::8, ::8, ::8].copy()
def make_loader(): return DataLoader(Volumes(), batch_size=2, num_workers=2)
""",
        "worker",
        "peak",
    )["peak:worker:0"]
    assert found.function == "normalise"
    assert found.text in ("grid = np.ones((8, *volume.shape))", "return (volume * grid).mean(0)")
    assert found.grew > 8 * 96**3 * 8
    assert found.detail["returned"] == 2 * 12**3 * 8


def test_objects_that_workers_share_are_counted_and_the_reading_line_is_named(
    explain: Explain,
) -> None:
    found = explain(
        """
class Captions(Dataset):
    def __init__(self):
        self.words = ["word %d" % n for n in range(5000)]
        self.sizes = np.zeros(5000)
    def __len__(self): return 64
    def __getitem__(self, i):
        return len(self.words[i * 7])
def make_loader(): return DataLoader(Captions(), batch_size=4, num_workers=2)
""",
        "worker",
        "shared",
    )
    assert found["shared:worker:0"].attribute == "self.words"
    assert found["shared:worker:0"].text == "return len(self.words[i * 7])"
    assert found["shared:worker:0"].items == 5001
    assert "shared:worker:1" not in found


def test_views_are_named_where_they_are_kept_and_where_they_are_shipped(explain: Explain) -> None:
    found = explain(
        """
class Videos(Dataset):
    def __init__(self): self.first = []
    def __len__(self): return 16
    def __getitem__(self, i):
        video = torch.rand(64, 1000)
        self.first.append(video[0])
        clip = video[3:5]
        return {"clip": clip}
def collate(items): return {"clip": [item["clip"] for item in items]}
def make_loader():
    return DataLoader(Videos(), batch_size=4, num_workers=2, collate_fn=collate)
""",
        "worker",
        "view",
    )
    kept, shipped = found["view:worker:0"], found["view:worker:1"]
    assert (kept.attribute, kept.stored_text) == ("self.first", "self.first.append(video[0])")
    assert kept.whole == 64 * kept.items
    assert (shipped.attribute, shipped.text) == ("clip", "clip = video[3:5]")
    assert shipped.whole == 32 * shipped.items


def test_memory_that_only_the_heap_knows_is_named_by_line(explain: Explain) -> None:
    found = explain(
        """
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
def decode(i):
    image = np.random.rand(64, 64)
    handle = libc.malloc(20_000)
    return image * 2
class Images(Dataset):
    def __len__(self): return 64
    def __getitem__(self, i):
        image = decode(i)
        return torch.from_numpy(image)
def make_loader(): return DataLoader(Images(), batch_size=8)
""",
        "main",
        "heap",
    )["heap:main:0"]
    assert found.text == "handle = libc.malloc(20_000)"
    assert found.grew == pytest.approx(20_000 * found.samples, rel=0.05)


CLEAN = """
class Data(Dataset):
    def __init__(self): self.last = None
    def __len__(self): return 32
    def __getitem__(self, i):
        self.last = np.random.rand(1000)
        return torch.from_numpy(self.last)
"""


def test_a_loader_that_keeps_nothing_gives_culprits_without_a_name(explain: Explain) -> None:
    source = CLEAN + "def make_loader(): return DataLoader(Data(), batch_size=4, num_workers=2)\n"
    resources = ("handles", "threads", "children", "shm", "cycles", "view")
    found = explain(source, "worker", *resources)
    assert {one.resource for one in found.values()} == set(resources)
    assert all(one.attribute == "" and one.line == 0 for one in found.values())
    assert all(one.grew < 1000 and "failed" not in one.detail for one in found.values())


@pytest.mark.parametrize("end", ["os._exit(3)", "os.kill(os.getpid(), 9)"])
def test_a_pass_that_dies_says_that_it_failed(explain: Explain, end: str) -> None:
    source = (
        CLEAN
        + f"""
def step(batch): {end}
def make_loader(): return DataLoader(Data(), batch_size=4)
"""
    )
    found = explain(source, "main", "heap", "cycles")
    assert [one.detail for one in found.values()] == [{"failed": True}] * 2


def test_a_pass_that_hangs_is_ended(explain: Explain, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(culprits, "STARTING", 0.5)
    monkeypatch.setattr(culprits, "LEAST_SECONDS", 0.1)
    source = (
        CLEAN
        + """
def step(batch): threading.Event().wait()
def make_loader(): return DataLoader(Data(), batch_size=4)
"""
    )
    begun = time.monotonic()
    found = explain(source, "main", "cycles", seconds=0.1)
    assert time.monotonic() - begun < 10
    assert found["cycles:main:0"].detail == {"failed": True}
