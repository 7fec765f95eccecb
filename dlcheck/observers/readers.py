"""Which functions and classes read data files, and what each says of what it read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

FUNCTIONS: dict[str, tuple[str, ...]] = {
    "cv2": ("imread", "imdecode", "imreadmulti"),
    "PIL.Image": ("open",),
    "torchvision.io": (
        *("read_image", "read_file", "read_video", "decode_image", "decode_jpeg", "decode_png"),
        *("decode_gif", "decode_webp", "decode_avif", "decode_heic"),
    ),
    "numpy": ("load", "fromfile", "loadtxt", "genfromtxt"),
    "torch": ("load",),
    "skimage.io": ("imread",),
    "imageio": ("imread", "volread", "get_reader"),
    "imageio.v2": ("imread", "volread", "get_reader"),
    "imageio.v3": ("imread", "imopen"),
    "matplotlib.image": ("imread",),
    "matplotlib.pyplot": ("imread",),
    "kornia.io": ("load_image",),
    "tifffile": ("imread", "memmap"),
    "rasterio": ("open",),
    "nibabel": ("load",),
    "pydicom": ("dcmread",),
    "SimpleITK": ("ReadImage",),
    "itk": ("imread",),
    "zarr": ("open",),
    "lmdb": ("open",),
    "av": ("open",),
    "pandas": (
        *("read_csv", "read_parquet", "read_pickle", "read_feather", "read_hdf", "read_json"),
        "read_excel",
    ),
    "pyarrow.parquet": ("read_table",),
    "polars": ("read_csv", "read_parquet", "scan_csv", "scan_parquet"),
    "safetensors.torch": ("load_file",),
    "scipy.io": ("loadmat",),
    "scipy.io.wavfile": ("read",),
    "torchaudio": ("load",),
    "soundfile": ("read",),
    "librosa": ("load",),
}
CLASSES = (
    ("h5py", "File"),
    ("zipfile", "ZipFile"),
    ("tarfile", "TarFile"),
    ("cv2", "VideoCapture"),
    ("decord", "VideoReader"),
)
CHANNELS_FIRST = ("torchvision.io.", "kornia.io.")
CHANNELS_LAST = ("skimage.io.", "imageio.", "matplotlib.", "tifffile.")
PIL_ORDERS = {"RGB": "RGB", "RGBA": "RGB", "RGBX": "RGB", "1": "GRAY", "L": "GRAY", "LA": "GRAY"}
PIL_ORDERS |= {"I": "GRAY", "I;16": "GRAY", "F": "GRAY"}
COLOURS = (3, 4)
NAMES = ("path", "filename", "file", "fp", "name", "fname", "io", "uri", "input", "im", "f")
IMREAD_UNCHANGED = -1
IMREAD_COLOR_RGB = 256

PNG = b"\x89PNG\r\n\x1a\n"
PNG_MODES = {0: "L", 2: "RGB", 3: "P", 4: "LA", 6: "RGBA"}
JPEG_MODES = {1: "L", 3: "RGB", 4: "CMYK"}
# Markers of a JPEG's frame, which tells the number of components.
JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


def header_mode(path: str) -> str:
    """Name the mode of a PNG, JPEG or GIF as PIL does, from its header; else empty."""
    with Path(path).open("rb") as file:
        head = file.read(26)
        if head.startswith(PNG):
            return PNG_MODES.get(head[25], "")
        if head.startswith(b"GIF8"):
            return "P"
        if not head.startswith(b"\xff\xd8"):
            return ""
        file.seek(2)
        while len(marker := file.read(4)) == 4 and marker[0] == 0xFF:  # noqa: PLR2004
            if marker[1] in JPEG_FRAMES:
                return JPEG_MODES.get(file.read(6)[5], "")
            file.seek(int.from_bytes(marker[2:], "big") - 2, os.SEEK_CUR)
    return ""


def path_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Find the file a reader was given; empty for bytes in memory."""
    given = args[0] if args else next((kwargs[name] for name in NAMES if name in kwargs), None)
    if isinstance(given, str | os.PathLike):
        return os.fsdecode(given)
    if isinstance(given, bytes) and len(given) < 4096 and b"\0" not in given:  # noqa: PLR2004
        return os.fsdecode(given)
    try:
        name = given.name  # type: ignore[union-attr]
    except Exception:  # noqa: BLE001 - bytes in memory, or an object of the user's
        return ""
    return name if isinstance(name, str) else ""


def shape_of(result: Any) -> tuple[int, ...] | None:
    """Give the shape of what a reader returned; pictures of PIL as h,w or h,w,c."""
    shape = getattr(result, "shape", None)
    if shape is not None:
        return tuple(int(size) for size in shape)
    if hasattr(result, "getbands") and hasattr(result, "size"):
        width, height = result.size
        bands = len(result.getbands())
        return (height, width, bands) if bands > 1 else (height, width)
    return None


def order_of(by: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> str:
    """Name the order of channels that a reader gives: RGB, BGR, GRAY or empty."""
    if by in ("cv2.VideoCapture", "PIL.Image.open"):
        return "BGR" if by != "PIL.Image.open" else PIL_ORDERS.get(getattr(result, "mode", ""), "")
    shape = shape_of(result) or ()
    if by.startswith("cv2.") and shape:
        return _opencv(shape, args[1] if len(args) > 1 else kwargs.get("flags", 1))
    if by.startswith(CHANNELS_FIRST) and len(shape) == 3:  # noqa: PLR2004 - C,H,W
        return "GRAY" if shape[0] == 1 else "RGB" if shape[0] in COLOURS else ""
    return _channels_last(shape) if by.startswith(CHANNELS_LAST) else ""


def _opencv(shape: tuple[int, ...], flags: Any) -> str:
    if len(shape) == 2 or shape[-1] == 1:  # noqa: PLR2004 - H,W
        return "GRAY"
    asked = isinstance(flags, int) and flags != IMREAD_UNCHANGED and flags & IMREAD_COLOR_RGB
    return "RGB" if asked else "BGR"


def _channels_last(shape: tuple[int, ...]) -> str:
    if len(shape) == 2:  # noqa: PLR2004 - H,W
        return "GRAY"
    return "RGB" if len(shape) == 3 and shape[-1] in COLOURS else ""  # noqa: PLR2004 - H,W,C
