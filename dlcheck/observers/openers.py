"""Record which data files a sample is read from, and the user's line that asked for each.

The readers of picture, array and table libraries are replaced by recorders in the probe, a fork
of the process after user code was imported: on their modules, and wherever a module, an instance
or a class of the user's holds them by name. An audit hook sees what is opened in other ways.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import gc
import os
import sys
import threading
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from dlcheck.observation import Opened
from dlcheck.observers.colours import colour_of
from dlcheck.observers.readers import (
    CLASSES,
    FUNCTIONS,
    IMREAD_UNCHANGED,
    header_mode,
    order_of,
    path_of,
    shape_of,
)

__all__ = ["Openers", "colour_of"]

Place = tuple[str | None, int | None]
UNREADABLE = "unreadable"
GIVE_NONE = ("cv2.imread", "cv2.imdecode")
CODE = (".py", ".pyc", ".pyi", ".pth", ".so", ".pyd", ".dll")
NO_DATA = ("/proc/", "/sys/", "/dev/", "/etc/", f"{Path(os.__file__).parent}{os.sep}")
PACKAGES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
PICTURES = (
    *(".avif", ".bmp", ".gif", ".heic", ".jp2", ".jpeg", ".jpg", ".pgm", ".png", ".pnm", ".ppm"),
    *(".tga", ".tif", ".tiff", ".webp"),
)
PLAIN = ("1", "L", "P", "I", "I;16")
COLOURED = ("RGB", "RGBA", "P", "CMYK", "YCbCr", "RGBX")
MOST_OPENED = 256
MOST_PIXELS = 1 << 26
THUMBNAIL = 384
ORIGINAL = "__dlcheck_reader__"
CLASS_NAMES = {"__module__", "__doc__"}


class Openers:
    """Recorders of the readers at hand. An audit hook stays for the life of the process."""

    def __init__(self, is_user: Callable[[str], bool], *, scratch: str = "") -> None:
        self.is_user = functools.lru_cache(maxsize=4096)(is_user)
        self.scratch = f"{Path(scratch).absolute()}{os.sep}" if scratch else ""
        self.found: list[Opened] = []
        self.inside = threading.local()
        self.replaced: dict[int, tuple[Any, Any]] = {}
        self.installed = False

    def install(self) -> None:
        """Put recorders in the place of the readers that are imported by now, once."""
        if self.installed:
            return
        self.installed = True
        for module_name, names in FUNCTIONS.items():
            module = sys.modules.get(module_name)
            for name in names if module else ():
                with contextlib.suppress(AttributeError, TypeError):
                    self._replace(module, f"{module_name}.{name}", name)
        for module_name, name in CLASSES:
            with contextlib.suppress(AttributeError, TypeError, KeyError):
                self._record_class(sys.modules[module_name], f"{module_name}.{name}", name)
        replace_held(self.replaced)
        replace_in_classes(self.replaced, self.is_user)
        sys.addaudithook(self._audit)

    def take(self) -> list[Opened]:
        """Hand over what was opened since the last call, in order."""
        found, self.found = self.found, []
        with self._quiet():
            return [_with_mode(opened) for opened in found]

    def pixels(self, path: str) -> Any:
        """Read a picture file's own channels as R,G,B, reduced; None for gray and unreadable."""
        numpy = sys.modules.get("numpy")
        try:
            with self._quiet():
                if "PIL.Image" not in sys.modules:
                    return _by_opencv(path)
                with _picture(path) as image:
                    if image.width * image.height > MOST_PIXELS or image.mode not in COLOURED:
                        return None
                    image.draft("RGB", (THUMBNAIL, THUMBNAIL))
                    plain = image.convert("RGB")
                    plain.thumbnail((THUMBNAIL, THUMBNAIL))
                    return numpy.asarray(plain) if numpy else None
        except Exception:  # noqa: BLE001 - not every file is a picture, nor a library there
            return None

    def plane(self, path: str) -> Any:
        """Read a picture file of one channel as it is stored; None for others and unreadable."""
        numpy = sys.modules.get("numpy")
        try:
            with self._quiet(), _picture(path) as image:
                small = image.width * image.height <= MOST_PIXELS
                plain = small and image.mode in PLAIN
                return numpy.asarray(image) if numpy and plain else None
        except Exception:  # noqa: BLE001 - not every file is a picture, nor a library there
            return None

    def _replace(self, module: Any, by: str, name: str) -> None:
        original = getattr(module, name)
        if hasattr(original, ORIGINAL):
            return
        recorder = self._recorder(original, by)
        setattr(module, name, recorder)
        # A class under the name of a function (lmdb.open) stays itself under its own name.
        if not isinstance(original, type):
            self.replaced[id(original)] = (original, recorder)

    def _recorder(self, original: Any, by: str) -> Any:
        @functools.wraps(original)
        def reader(*args: Any, **kwargs: Any) -> Any:
            return self._call(original, by, args, kwargs)

        setattr(reader, ORIGINAL, original)
        return reader

    def _record_class(self, module: Any, by: str, name: str) -> None:
        """Record in __init__, so that isinstance knows the class, or a subclass, as before."""
        kind = getattr(module, name)
        original = kind.__init__
        if hasattr(original, ORIGINAL):
            return

        @functools.wraps(original)
        def init(instance: Any, *args: Any, **kwargs: Any) -> None:
            self._call(original, by, (instance, *args), kwargs, skip=1)

        setattr(init, ORIGINAL, original)
        try:
            kind.__init__ = init
        except TypeError:
            recorder = type(name, (kind,), {"__init__": init, "__module__": kind.__module__})
            setattr(module, name, recorder)
            self.replaced[id(kind)] = (kind, recorder)

    def _call(
        self, original: Any, by: str, args: tuple[Any, ...], kwargs: dict[str, Any], skip: int = 0
    ) -> Any:
        """Call a reader and note what it read; a reader inside a reader is not noted."""
        if self._busy():
            return original(*args, **kwargs)
        file, line = self._place(sys._getframe(2))  # noqa: SLF001 - only frames tell the line
        opened = Opened(path_of(args[skip:], kwargs), by, UNREADABLE, file=file, line=line)
        try:
            with self._quiet():
                result = original(*args, **kwargs)
        except Exception:
            self._keep(opened)
            raise
        with contextlib.suppress(Exception), self._quiet():
            unread = result is None and by in GIVE_NONE
            mode = str(result.mode) if by == "PIL.Image.open" else UNREADABLE if unread else ""
            order, shape = order_of(by, args[skip:], kwargs, result), shape_of(result)
            opened = dataclasses.replace(opened, mode=mode, order=order, shape=shape)
        if skip == 0 or not _written(args[skip:], kwargs):
            self._keep(opened)
        return result

    def _keep(self, opened: Opened) -> None:
        """Keep a file once: what a reader says of it in place of the hook's bare `open`."""
        known = [earlier for earlier in self.found if earlier.path == opened.path]
        if opened in known or (opened.by == "open" and known):
            return
        if opened.path and opened.by != "open":
            self.found = [e for e in self.found if e.path != opened.path or e.by != "open"]
        if len(self.found) < MOST_OPENED:
            self.found.append(opened)

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        if event != "open" or self._busy():
            return
        with contextlib.suppress(Exception), self._quiet():
            path, mode, flags = args
            if not isinstance(path, str | bytes | os.PathLike) or not _reads(mode, flags):
                return
            name = str(Path(os.fsdecode(path)).absolute())
            if self._is_data(name):
                file, line = self._place(sys._getframe(1))  # noqa: SLF001 - as in _call
                if file is not None:
                    self._keep(Opened(os.fsdecode(path), "open", file=file, line=line))

    def _is_data(self, name: str) -> bool:
        if name.endswith(CODE) or name.startswith(NO_DATA):
            return False
        if self.scratch and name.startswith(self.scratch):
            return False
        return not any(part in name for part in PACKAGES) and Path(name).is_file()

    def _place(self, frame: types.FrameType | None) -> Place:
        """Find the nearest line of the user's own."""
        while frame is not None:
            if self.is_user(frame.f_code.co_filename):
                return frame.f_code.co_filename, frame.f_lineno
            frame = frame.f_back
        return None, None

    def _busy(self) -> bool:
        return bool(getattr(self.inside, "depth", 0))

    @contextlib.contextmanager
    def _quiet(self) -> Iterator[None]:
        """Note nothing of what a reader, or dlcheck itself, opens on the way."""
        self.inside.depth = getattr(self.inside, "depth", 0) + 1
        try:
            yield
        finally:
            self.inside.depth -= 1


def _written(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether an archive is opened to be written."""
    mode = kwargs.get("mode", args[1] if len(args) > 1 else "r")
    return isinstance(mode, str) and bool(set(mode) & set("wax"))


def _reads(mode: Any, flags: Any) -> bool:
    """Whether a file is opened to be read: `mode` of open(), `flags` of os.open()."""
    if isinstance(mode, str):
        return not set(mode) & set("wax")
    written = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.__dict__.get("O_DIRECTORY", 0)
    return not (isinstance(flags, int) and flags & written)


@contextlib.contextmanager
def _picture(path: str) -> Iterator[Any]:
    """Open a picture file by PIL's own `open`, which reads the header alone."""
    module = sys.modules["PIL.Image"]
    opener = getattr(module.open, ORIGINAL, module.open)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with opener(path) as image:
            yield image


def _by_opencv(path: str) -> Any:
    """Read a colour picture as R,G,B, every n-th pixel, where PIL is not imported."""
    reader = sys.modules["cv2"].imread
    found = getattr(reader, ORIGINAL, reader)(path, IMREAD_UNCHANGED)
    if found is None or found.ndim == 2 or found.dtype != "uint8":  # noqa: PLR2004 - H,W
        return None
    step = -(-max(found.shape[:2]) // THUMBNAIL)
    return found[::step, ::step, 2::-1]


def _with_mode(opened: Opened) -> Opened:
    """Add what the file itself holds, from its header."""
    if opened.mode or not opened.path.lower().endswith(PICTURES):
        return opened
    try:
        if "PIL.Image" not in sys.modules:
            return dataclasses.replace(opened, mode=header_mode(opened.path))
        with _picture(opened.path) as image:
            return dataclasses.replace(opened, mode=str(image.mode))
    except Exception:  # noqa: BLE001 - the file may be gone, or of a format nobody knows
        return opened


def replace_held(replaced: dict[int, tuple[Any, Any]]) -> None:
    """Replace functions in modules, instances, dicts, lists and partials that hold them."""
    originals = [original for original, _ in replaced.values()]
    for holder in gc.get_referrers(*originals) if originals else ():
        with contextlib.suppress(Exception):
            if isinstance(holder, functools.partial) and id(holder.func) in replaced:
                new = replaced[id(holder.func)][1]
                vars(functools.partial)["__setstate__"](
                    holder, (new, holder.args, holder.keywords, vars(holder))
                )
            elif type(holder) is list and holder is not originals:
                holder[:] = [replaced.get(id(item), (0, item))[1] for item in holder]
            elif type(holder) is dict:
                if not (holder.keys() >= CLASS_NAMES and "__spec__" not in holder):
                    _replace_values(holder, replaced)
            elif not isinstance(holder, type | types.FunctionType | types.FrameType):
                _replace_values(vars(holder), replaced)


def _replace_values(names: dict[Any, Any], replaced: dict[int, tuple[Any, Any]]) -> None:
    for name, value in list(names.items()):
        if id(value) in replaced and name not in (ORIGINAL, "__wrapped__"):
            names[name] = replaced[id(value)][1]


def replace_in_classes(
    replaced: dict[int, tuple[Any, Any]], is_user: Callable[[str], bool]
) -> None:
    """Replace functions that the user's classes hold as attributes or static methods."""
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or not is_user(file):
            continue
        for kind in [value for value in vars(module).values() if isinstance(value, type)]:
            for name, value in list(vars(kind).items()):
                static = isinstance(value, staticmethod)
                new = replaced.get(id(value.__func__ if isinstance(value, staticmethod) else value))
                if new and kind.__module__ == module.__name__:
                    # A Python function would bind to the instance where a built-in did not.
                    bound = static or isinstance(new[0], types.BuiltinFunctionType)
                    setattr(kind, name, staticmethod(new[1]) if bound else new[1])
