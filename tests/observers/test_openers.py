"""Every data file is recorded with its line, its channels and their order; nothing else changes.

Recorders stay for the life of a process, so each test installs them in one of its own.
"""

from __future__ import annotations

import collections
import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

np = pytest.importorskip("numpy")

from dlcheck.observers.colours import colour_of  # noqa: E402 - numpy may be absent
from dlcheck.observers.readers import header_mode, order_of, path_of, shape_of  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]

PROBE = """
import json, sys, pathlib
sys.path[:0] = [{root!r}, {folder!r}]
import user
from dlcheck.observers.openers import Openers
openers = Openers(lambda file: file == user.__file__, scratch={scratch!r})
openers.install()
openers.install()
result = user.read()
found = [vars(opened) for opened in openers.take()]
again = len(openers.take())
print(json.dumps({{"found": found, "again": again, "result": str(result)}}))
"""


class Probe:
    """A folder with the user's module, read in a process with recorders."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lines: list[str] = []

    def read(self, code: str) -> dict[str, Any]:
        code = textwrap.dedent(code)
        self.lines = code.splitlines()
        (self.folder / "user.py").write_text(code)
        text = PROBE.format(
            root=str(ROOT), folder=str(self.folder), scratch=str(self.folder / "scratch")
        )
        done = subprocess.run(
            [sys.executable, "-W", "error::ResourceWarning", "-c", text],
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        answer = json.loads(done.stdout.splitlines()[-1])
        assert answer["again"] == 0
        return answer

    def found(self, code: str) -> list[dict[str, Any]]:
        return self.read(code)["found"]

    def line(self, text: str) -> int:
        return next(n for n, line in enumerate(self.lines, 1) if text in line)


@pytest.fixture
def probe(tmp_path, painted) -> Probe:
    picture = pytest.importorskip("PIL.Image")
    image = picture.fromarray(painted(1, 40, 60))
    image.save(tmp_path / "rgb.png")
    image.convert("L").save(tmp_path / "gray.png")
    image.convert("RGBA").save(tmp_path / "rgba.png")
    image.convert("P").save(tmp_path / "palette.png")
    (tmp_path / "broken.png").write_bytes(b"nothing")
    (tmp_path / "labels.csv").write_text("a,1\n")
    np.save(tmp_path / "array.npy", np.zeros((3, 4)))
    return Probe(tmp_path)


def short(opened: dict[str, Any]) -> tuple[Any, ...]:
    shape = opened["shape"]
    return (
        Path(opened["path"]).name,
        opened["by"],
        opened["mode"],
        opened["order"],
        tuple(shape) if shape is not None else None,
    )


def test_opencv_names_bgr_and_the_mode_of_the_file(probe):
    pytest.importorskip("cv2")
    found = probe.found("""
        import cv2
        def read():
            cv2.imread("rgb.png")
            cv2.imread("gray.png")
            cv2.imread("rgba.png", cv2.IMREAD_UNCHANGED)
            cv2.imread("rgb.png", cv2.IMREAD_GRAYSCALE)
            cv2.imread("broken.png")
            cv2.imread("missing.png")
    """)
    assert [short(o) for o in found] == [
        ("rgb.png", "cv2.imread", "RGB", "BGR", (40, 60, 3)),
        ("gray.png", "cv2.imread", "L", "BGR", (40, 60, 3)),
        ("rgba.png", "cv2.imread", "RGBA", "BGR", (40, 60, 4)),
        ("rgb.png", "cv2.imread", "RGB", "GRAY", (40, 60)),
        ("broken.png", "cv2.imread", "unreadable", "", None),
        ("missing.png", "cv2.imread", "unreadable", "", None),
    ]
    assert [o["line"] for o in found] == list(range(4, 10))


def test_readers_held_by_name_are_found(probe):
    """From-imports, dicts, instances, class attributes, static methods and partials."""
    pytest.importorskip("cv2")
    answer = probe.read("""
        import functools
        import cv2
        from cv2 import imread as load
        from numpy import load as load_array
        TABLE = {"png": cv2.imread}
        gray = functools.partial(cv2.imread, flags=0)
        class Folder:
            reader = staticmethod(cv2.imread)
            plain = cv2.imread
            def __init__(self, loader):
                self.loader = loader
        folder = Folder(cv2.imread)
        def read():
            load("rgb.png")
            load_array("array.npy")
            TABLE["png"]("gray.png")
            gray("rgba.png")
            folder.loader("palette.png")
            folder.reader("rgb.png")
            folder.plain("gray.png")
            return folder.loader("rgb.png").shape
    """)
    names = [Path(o["path"]).name for o in answer["found"]]
    wanted = ["rgb", "array", "gray", "rgba", "palette", "rgb", "gray", "rgb"]
    assert [name.split(".")[0] for name in names] == wanted
    assert [o["line"] for o in answer["found"]] == list(range(15, 23))
    assert answer["result"] == "(40, 60, 3)"


def test_pil_names_mode_and_order_and_a_file_opened_first_counts_once(probe):
    found = probe.found("""
        from PIL import Image
        def read():
            for name in ("rgb", "gray", "rgba", "palette"):
                with open(name + ".png", "rb") as file:
                    Image.open(file).convert("RGB")
            try:
                Image.open("broken.png")
            except Exception:
                pass
    """)
    assert [short(o) for o in found] == [
        ("rgb.png", "PIL.Image.open", "RGB", "RGB", (40, 60, 3)),
        ("gray.png", "PIL.Image.open", "L", "GRAY", (40, 60)),
        ("rgba.png", "PIL.Image.open", "RGBA", "RGB", (40, 60, 4)),
        ("palette.png", "PIL.Image.open", "P", "", (40, 60)),
        ("broken.png", "PIL.Image.open", "unreadable", "", None),
    ]
    assert {o["line"] for o in found[:4]} == {probe.line("Image.open(file)")}


def test_torchvision_is_recorded_at_the_outer_call(probe):
    pytest.importorskip("torchvision")
    found = probe.found("""
        import torchvision
        from torchvision.io import decode_image
        from torchvision.datasets.folder import default_loader
        def read():
            try:
                torchvision.io.read_image("rgb.png")
            except RuntimeError:
                pass
            default_loader("gray.png")
    """)
    assert [(Path(o["path"]).name, o["by"]) for o in found] == [
        ("rgb.png", "torchvision.io.read_image"),
        ("gray.png", "PIL.Image.open"),
    ]
    assert [o["line"] for o in found] == [7, 10]
    assert found[1]["mode"] == "L"


def test_other_files_are_seen_by_the_audit_hook(probe):
    """Data that is read, once a file: not code, not what is written, not dlcheck's own."""
    (probe.folder / "scratch").mkdir()
    (probe.folder / "scratch" / "ours.jsonl").write_text("{}")
    (probe.folder / "more.py").write_text("x = 1\n")
    found = probe.found("""
        import pathlib
        def read():
            for _ in range(3):
                pathlib.Path("labels.csv").read_text()
            open("labels.csv").close()
            import more
            import json.tool
            with open("written.txt", "w") as file:
                file.write("x")
            open("scratch/ours.jsonl").close()
            open("/proc/self/status").close()
    """)
    assert [(o["path"], o["by"], o["line"]) for o in found] == [("labels.csv", "open", 5)]


def test_archives_tables_and_stores_keep_their_classes(probe):
    h5py = pytest.importorskip("h5py")
    with h5py.File(probe.folder / "store.h5", "w") as file:
        file["x"] = [1, 2]
    answer = probe.read("""
        import zipfile
        import h5py
        import numpy as np
        def read():
            with zipfile.ZipFile("a.zip", "w") as file:
                file.writestr("x", "y")
            with zipfile.ZipFile("a.zip") as file, h5py.File("store.h5", "r") as store:
                kept = isinstance(file, zipfile.ZipFile) and isinstance(store, h5py.File)
            np.loadtxt("labels.csv", delimiter=",", usecols=[1])
            return kept
    """)
    assert answer["result"] == "True"
    assert [(o["path"], o["by"]) for o in answer["found"]] == [
        ("a.zip", "zipfile.ZipFile"),
        ("store.h5", "h5py.File"),
        ("labels.csv", "numpy.loadtxt"),
    ]


def test_video_captures_stay_a_class(probe):
    pytest.importorskip("cv2")
    answer = probe.read("""
        import cv2
        def read():
            capture = cv2.VideoCapture("missing.mp4")
            return isinstance(capture, cv2.VideoCapture), capture.isOpened()
    """)
    assert answer["result"] == "(True, False)"
    assert [(o["path"], o["by"], o["order"]) for o in answer["found"]] == [
        ("missing.mp4", "cv2.VideoCapture", "BGR")
    ]


def test_what_a_reader_raises_passes_and_results_are_the_same(probe):
    answer = probe.read("""
        import pickle
        import numpy as np
        def read():
            try:
                np.load("missing.npy")
            except FileNotFoundError as error:
                name = error.filename
            return name, np.load("array.npy").shape, pickle.loads(pickle.dumps(np.load)) is np.load
    """)
    assert answer["result"] == "('missing.npy', (3, 4), True)"
    assert [o["mode"] for o in answer["found"]] == ["unreadable", ""]


def test_the_files_own_pixels_are_rgb_and_small(tmp_path, painted):
    picture = pytest.importorskip("PIL.Image")
    from dlcheck.observers.openers import Openers

    image = picture.fromarray(painted(2, 500, 700))
    image.save(tmp_path / "a.jpg")
    image.convert("L").save(tmp_path / "gray.png")
    openers = Openers(lambda _: False)
    pixels = openers.pixels(str(tmp_path / "a.jpg"))
    assert max(pixels.shape) <= 384
    assert pixels.shape[2] == 3
    assert np.abs(pixels.mean((0, 1)) - painted(2, 500, 700).mean((0, 1))).max() < 2
    assert openers.pixels(str(tmp_path / "gray.png")) is None
    assert openers.pixels(str(tmp_path / "missing.png")) is None


def test_orders_of_readers():
    plane, colour, first = np.zeros((4, 5)), np.zeros((4, 5, 3)), np.zeros((3, 4, 5))
    assert order_of("cv2.imread", ("a", 1), {}, colour) == "BGR"
    assert order_of("cv2.imread", ("a", 256), {}, colour) == "RGB"
    assert order_of("cv2.imread", ("a",), {"flags": -1}, colour) == "BGR"
    assert order_of("cv2.imdecode", ("a", 0), {}, plane) == "GRAY"
    assert order_of("torchvision.io.read_image", ("a",), {}, first) == "RGB"
    assert order_of("torchvision.io.read_image", ("a",), {}, first[:1]) == "GRAY"
    assert order_of("skimage.io.imread", ("a",), {}, colour) == "RGB"
    assert order_of("tifffile.imread", ("a",), {}, plane) == "GRAY"
    assert order_of("numpy.load", ("a",), {}, colour) == ""
    assert order_of("cv2.imread", ("a",), {}, None) == ""


def test_modes_are_read_from_headers_where_pil_is_not_imported(tmp_path, painted):
    picture = pytest.importorskip("PIL.Image")
    image = picture.fromarray(painted(3, 30, 40))
    for mode in ("L", "P", "RGB", "RGBA", "LA"):
        image.convert(mode).save(tmp_path / "a.png")
        assert header_mode(str(tmp_path / "a.png")) == mode
    for mode in ("L", "RGB", "CMYK"):
        for progressive in (False, True):
            image.convert(mode).save(tmp_path / "a.jpg", progressive=progressive)
            assert header_mode(str(tmp_path / "a.jpg")) == mode
    image.save(tmp_path / "a.gif")
    assert header_mode(str(tmp_path / "a.gif")) == "P"
    (tmp_path / "text.png").write_text("text")
    assert header_mode(str(tmp_path / "text.png")) == ""


def test_opencv_serves_where_pil_is_not_imported(tmp_path, painted, monkeypatch):
    cv2 = pytest.importorskip("cv2")
    from dlcheck.observers.openers import Openers

    cv2.imwrite(str(tmp_path / "a.png"), painted(4, 500, 700)[..., ::-1])
    monkeypatch.delitem(sys.modules, "PIL.Image", raising=False)
    pixels = Openers(lambda _: False).pixels(str(tmp_path / "a.png"))
    assert max(pixels.shape) <= 384
    assert (pixels == painted(4, 500, 700)[::2, ::2]).all()


def test_paths_and_shapes_of_strange_arguments():
    class Refusing:
        @property
        def name(self) -> str:
            raise RuntimeError

    assert path_of((Path("a") / "b",), {}) == str(Path("a", "b"))
    assert path_of((), {"filename": "c"}) == "c"
    for given in (b"\0\1", Refusing(), 3, None):
        assert path_of((given,), {}) == ""
    assert shape_of(None) is None


def chains() -> dict[str, Any]:
    """What training jobs do to a picture, as functions of H,W,3 bytes and a generator."""
    mean, std = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])

    def crop(picture: Any, rng: Any, low: float = 0.4) -> Any:
        height, width = picture.shape[:2]
        scale, ratio = rng.uniform(low, 1) ** 0.5, rng.uniform(0.8, 1.25) ** 0.5
        high, wide = (min(1, s) for s in (scale * ratio, scale / ratio))
        high, wide = int(high * height), int(wide * width)
        y, x = rng.integers(0, height - high + 1), rng.integers(0, width - wide + 1)
        return resize(picture[y : y + high, x : x + wide], 96)

    def resize(picture: Any, side: int) -> Any:
        rows, columns = (np.linspace(0, n - 1, side).astype(int) for n in picture.shape[:2])
        return picture[rows][:, columns]

    def flip(picture: Any, rng: Any) -> Any:
        return picture[:, ::-1] if rng.random() < 0.5 else picture

    def jitter(picture: Any, rng: Any) -> Any:
        return np.clip(picture * rng.uniform(0.7, 1.3) + rng.uniform(-25, 25), 0, 255)

    def normal(picture: Any) -> Any:
        return ((picture / 255 - mean) / std).astype("float32")

    return {
        "resize": lambda x, _: normal(resize(x, 128)),
        "crop and flip": lambda x, rng: normal(flip(crop(x, rng), rng)),
        "jitter": lambda x, rng: normal(jitter(flip(crop(x, rng), rng), rng)),
        "small": lambda x, _: resize(x, 32).astype("float32") / 255,
        "upside down": lambda x, rng: normal(resize(x, 64)[::-1]),
        "own statistics": lambda x, rng: (y := flip(crop(x, rng), rng)) / (1 + y.std((0, 1))),
    }


def told(pictures: list[Any], draws: int) -> dict[str, collections.Counter[str]]:
    rng = np.random.default_rng(4)
    answers: dict[str, collections.Counter[str]] = {}
    for name, chain in chains().items():
        counter = answers[name] = collections.Counter()
        for picture in pictures:
            step = max(1, max(picture.shape) // 300)
            for order in ("rgb", "bgr") * draws:
                read = picture if order == "rgb" else picture[..., ::-1]
                field = np.ascontiguousarray(chain(read, rng).transpose(2, 0, 1))
                found = colour_of(field, picture[::step, ::step], "CHW")
                said = max(found, key=lambda key: found[key]) if found else "unsure"
                counter["right" if said == order else said if said == "unsure" else "wrong"] += 1
    return answers


def test_the_order_of_channels_survives_training_transforms(painted):
    answers = told([painted(seed, 120, 160) for seed in range(3)], 1)
    total = sum(answers.values(), collections.Counter())
    assert total["wrong"] == 0
    assert total["right"] > 0.7 * total.total()
    assert answers["resize"]["unsure"] == 0


def test_the_order_of_channels_is_told_on_photographs(photographs):
    chosen = list(photographs.values())[:3]
    total = sum(told(chosen, 1).values(), collections.Counter())
    assert total["wrong"] == 0
    assert total["right"] > 0.7 * total.total()


def test_layouts_are_read_as_named(painted):
    picture = painted(5, 80, 100)
    for layout, axes in {"CHW": (2, 0, 1), "HWC": (0, 1, 2), "HCW": (0, 2, 1)}.items():
        found = colour_of(picture[..., ::-1].transpose(axes), picture, layout)
        assert found["bgr"] > 0.9 > found["rgb"]


def test_what_says_nothing_about_order_is_unsure(painted):
    picture, other = painted(6, 80, 100), painted(7, 80, 100)
    gray = np.repeat(picture.mean(axis=2, keepdims=True), 3, axis=2)
    assert colour_of(gray, picture, "HWC") == {}
    assert colour_of(picture, gray, "HWC") == {}
    assert colour_of(other, picture, "HWC") == {}
    assert colour_of(np.random.default_rng(0).random((64, 64, 3)), picture, "HWC") == {}
    assert colour_of(picture[..., 0], picture, "HW") == {}
    assert colour_of(picture[:8, :8], picture, "HWC") == {}
    assert colour_of(picture, None, "HWC") == {}
    assert colour_of("no array", picture, "HWC") == {}


def test_a_tensor_that_wants_a_gradient_is_read(painted):
    torch = pytest.importorskip("torch")
    picture = painted(8, 80, 100)
    field = torch.tensor(picture.tolist(), dtype=torch.float32).permute(2, 0, 1).requires_grad_()
    assert colour_of(field, picture, "CHW")["rgb"] > 0.9
