"""The random state of a batch: every generator that its samples may draw from.

torch, random and numpy's global one, and each generator object reachable from the dataset and the
collate function: numpy.random.Generator and RandomState, random.Random, torch.Generator, which
covers albumentations (`random_generator`, `py_random`) and MONAI (`R`).
"""

from __future__ import annotations

import contextlib
import pickle
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

MOST_OBJECTS = 3_000
MOST_ITEMS = 64
DEEPEST = 8
SIMPLE = (str, bytes, int, float, bool, type(None), ModuleType)
State = dict[str, Any]


def generators(**roots: Any) -> dict[str, Any]:
    """Find the generator objects reachable from named roots: dotted path -> object."""
    found: dict[str, Any] = {}
    seen: set[int] = set()
    queue = [(name, root, 0) for name, root in roots.items()]
    for root in roots.values():
        queue += [(f"{type(root).__module__}.{n}", g, 0) for n, g in _module_generators(root)]
    while queue and len(seen) < MOST_OBJECTS:
        path, value, depth = queue.pop(0)
        if isinstance(value, SIMPLE) or id(value) in seen:
            continue
        seen.add(id(value))
        if is_generator(value):
            found[path] = value
        elif depth < DEEPEST:
            queue += [(f"{path}.{name}", item, depth + 1) for name, item in inside(value)]
    return found


def is_generator(value: Any) -> bool:
    """Tell a source of random numbers that keeps a state of its own."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    kinds: list[type] = [random.Random]
    if numpy is not None and hasattr(numpy, "random"):
        kinds += [numpy.random.Generator, numpy.random.RandomState]
    if torch is not None:
        kinds.append(torch.Generator)
    return isinstance(value, tuple(kinds)) and not isinstance(value, random.SystemRandom)


def inside(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield what an object holds, without calling anything of the user's."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    leaves = (getattr(torch, "Tensor", ()), getattr(numpy, "ndarray", ()))
    if any(kind and isinstance(value, kind) for kind in leaves):
        return
    if type(value) is dict:
        yield from [(str(k)[:40], v) for k, v in list(value.items())[:MOST_ITEMS]]
    elif isinstance(value, list | tuple | set | frozenset):
        yield from [(str(n), item) for n, item in zip(range(MOST_ITEMS), value, strict=False)]
    for cell in getattr(value, "__closure__", None) or ():
        with contextlib.suppress(ValueError):
            yield "closure", cell.cell_contents
    for name in ("__self__", "func", "args", "keywords"):
        if name == "__self__" or type(value).__name__ == "partial":
            with contextlib.suppress(Exception):
                yield name, object.__getattribute__(value, name)
    with contextlib.suppress(TypeError):
        yield from list(vars(value).items())[:MOST_ITEMS]
    if not isinstance(value, type) and type(value).__module__ != "builtins":
        yield from [(n, v) for n, v in vars(type(value)).items() if is_generator(v)]


def _module_generators(root: Any) -> Iterator[tuple[str, Any]]:
    """Yield generators that stand as globals in the module of a root's class or function."""
    name = getattr(root, "__module__", None) or type(root).__module__
    module = sys.modules.get(name) if isinstance(name, str) else None
    if module is not None and name not in ("random", "torch", "numpy"):
        yield from [(n, v) for n, v in list(vars(module).items()) if is_generator(v)]


def seed_all(seed: int) -> None:
    """Seed what a training script seeds: torch, random and numpy's global generator."""
    random.seed(seed)
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None:
        torch.manual_seed(seed)
    if numpy is not None and hasattr(numpy, "random"):
        numpy.random.seed(seed % 2**32)


@contextlib.contextmanager
def unchanged_random() -> Iterator[None]:
    """Leave torch's random state as it is found: models draw their weights."""
    import torch

    before = torch.get_rng_state()
    try:
        yield
    finally:
        torch.set_rng_state(before)


def capture(found: dict[str, Any]) -> State:
    """Read the state of the global generators and of the objects found; draws from none."""
    state: State = {"random": random.getstate()}
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None:
        state["torch"] = torch.get_rng_state().numpy().tobytes()
    if numpy is not None and hasattr(numpy, "random"):
        state["numpy"] = numpy.random.get_state()
    for path, generator in found.items():
        with contextlib.suppress(Exception):
            state["at " + path] = _state_of(generator)
    return state


def _state_of(generator: Any) -> Any:
    if isinstance(generator, random.Random):
        return generator.getstate()
    if hasattr(generator, "bit_generator"):
        return generator.bit_generator.state
    state = generator.get_state()
    return state.numpy().tobytes() if hasattr(state, "numpy") else state


def restore(state: State, found: dict[str, Any]) -> list[str]:
    """Put the generators back to a captured state; returns the paths that could not be."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    random.setstate(state["random"])
    if torch is not None and "torch" in state:
        torch.set_rng_state(_torch_state(torch, state["torch"]))
    if numpy is not None and "numpy" in state:
        numpy.random.set_state(state["numpy"])
    lost = []
    for key, value in state.items():
        if not key.startswith("at "):
            continue
        generator = found.get(key.removeprefix("at "))
        try:
            _set_state(generator, value)
        except Exception:  # noqa: BLE001 - a generator that is gone or of another kind
            lost.append(key.removeprefix("at "))
    return lost


def _set_state(generator: Any, value: Any) -> None:
    if isinstance(generator, random.Random):
        generator.setstate(value)
    elif hasattr(generator, "bit_generator"):
        generator.bit_generator.state = value
    elif isinstance(value, bytes):
        generator.set_state(_torch_state(sys.modules["torch"], value))
    else:
        generator.set_state(value)


def _torch_state(torch: Any, data: bytes) -> Any:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def save(state: State, path: Path) -> bool:
    """Keep a state for the probe; False when it cannot be written."""
    try:
        path.write_bytes(pickle.dumps(state))
    except (OSError, pickle.PicklingError, TypeError, AttributeError):
        return False
    return True


def load(path: Path) -> State | None:
    """Read a state that `save` kept; it is dlcheck's own file."""
    try:
        state: State = pickle.loads(path.read_bytes())  # noqa: S301 - written by this run
    except (OSError, pickle.UnpicklingError, EOFError):
        return None
    return state
