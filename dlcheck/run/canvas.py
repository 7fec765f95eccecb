"""Pictures put together from arrays: cells, lines, words, and a PNG file, by numpy alone.

cv2 or PIL, where the user's environment has one, resizes smoothly and writes words; without
either pixels are repeated and the words are left out.
"""

from __future__ import annotations

import contextlib
import io
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

WHITE, INK, GREY, RED = (255, 255, 255), (20, 20, 20), (150, 150, 150), (230, 40, 40)
LINE = 14
GLYPH = 6
CELL = 128
QUALITY = 82
PALETTE = (
    (230, 25, 75), (60, 180, 75), (0, 130, 200), (245, 130, 48), (145, 30, 180), (70, 240, 240),
    (240, 50, 230), (210, 245, 60), (250, 190, 190), (0, 128, 128), (170, 110, 40), (128, 128, 0),
)  # fmt: skip
Colour = tuple[int, int, int]


def blank(height: int, width: int, colour: Colour = WHITE) -> Any:
    """Make an H,W,3 uint8 array of one colour."""
    import numpy as np

    page = np.empty((height, width, 3), dtype=np.uint8)
    page[:] = colour
    return page


def fit(image: Any, size: int = CELL) -> tuple[Any, float]:
    """Scale an H,W,3 uint8 image so that its longer side is `size`; returns the factor too.

    Small images grow by whole factors, so that each pixel stays a square.
    """
    height, width = image.shape[:2]
    factor = size / max(height, width)
    if factor > 1:
        factor = float(max(int(factor), 1))
        return image.repeat(int(factor), axis=0).repeat(int(factor), axis=1), factor
    shape = max(round(height * factor), 1), max(round(width * factor), 1)
    return _shrunk(image, *shape), factor


def _shrunk(image: Any, height: int, width: int) -> Any:
    import numpy as np

    with contextlib.suppress(ImportError):
        from PIL import Image

        return np.asarray(Image.fromarray(image).resize((width, height), Image.Resampling.BOX))
    with contextlib.suppress(ImportError):
        import cv2

        return cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA)
    rows = np.arange(height) * image.shape[0] // height
    columns = np.arange(width) * image.shape[1] // width
    return image[rows][:, columns]


def paste(page: Any, image: Any, top: int, left: int) -> None:
    """Lay an image on a page; what hangs over is cut."""
    height = min(image.shape[0], page.shape[0] - top)
    width = min(image.shape[1], page.shape[1] - left)
    if height > 0 and width > 0:
        page[top : top + height, left : left + width] = image[:height, :width]


def frame(page: Any, box: Sequence[float], colour: Colour, thick: int = 1) -> None:
    """Draw the outline of an x1,y1,x2,y2 box; parts outside the page are left out."""
    height, width = page.shape[:2]
    left, top, right, bottom = (round(value) for value in box)
    inner = slice(max(left, 0), min(right, width - 1) + 1)
    for row in (*range(top, top + thick), *range(bottom - thick + 1, bottom + 1)):
        if 0 <= row < height:
            page[row, inner] = colour
    inner = slice(max(top, 0), min(bottom, height - 1) + 1)
    for column in (*range(left, left + thick), *range(right - thick + 1, right + 1)):
        if 0 <= column < width:
            page[inner, column] = colour


def dot(page: Any, x: float, y: float, colour: Colour) -> None:
    """Draw a point as a small square."""
    top, left = max(round(y) - 1, 0), max(round(x) - 1, 0)
    page[top : max(round(y) + 2, 0), left : max(round(x) + 2, 0)] = colour


def write(page: Any, words: str, top: int, left: int, colour: Colour = INK) -> None:
    """Write one line of words where PIL or cv2 can."""
    import numpy as np

    room = max((page.shape[1] - left) // GLYPH, 0)
    words = (
        words.encode("ascii", "replace").decode() if len(words) <= room else shortened(words, room)
    )
    with contextlib.suppress(ImportError):
        from PIL import Image, ImageDraw, ImageFont

        strip = Image.fromarray(page[top : top + LINE, left:])
        ImageDraw.Draw(strip).text((0, 1), words, fill=colour, font=ImageFont.load_default())
        page[top : top + LINE, left:] = np.asarray(strip)
        return
    with contextlib.suppress(ImportError):
        import cv2

        strip = np.ascontiguousarray(page[top : top + LINE, left:])
        cv2.putText(strip, words, (0, LINE - 4), cv2.FONT_HERSHEY_PLAIN, 0.75, colour, 1)
        page[top : top + LINE, left:] = strip


def shortened(words: str, room: int) -> str:
    """Cut words that do not fit: `RandomResizedCr..`."""
    words = words.encode("ascii", "replace").decode()
    return words if len(words) <= room else words[: max(room - 2, 0)] + ".."


def save(page: Any, path: Path) -> None:
    """Write an H,W,3 uint8 array as a PNG file."""
    path.write_bytes(png(page))


def png(page: Any) -> bytes:
    """Encode an H,W,3 uint8 array as PNG."""
    height, width = page.shape[:2]
    rows = b"".join(b"\0" + page[row].tobytes() for row in range(height))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + _chunk(b"IHDR", head)
        + _chunk(b"IDAT", zlib.compress(rows, 6))
        + _chunk(b"IEND", b"")
    )


def jpeg(page: Any) -> bytes:
    """Encode an H,W,3 uint8 array as JPEG; empty where there is neither PIL nor cv2."""
    with contextlib.suppress(ImportError):
        from PIL import Image

        file = io.BytesIO()
        Image.fromarray(page).save(file, "JPEG", quality=QUALITY)
        return file.getvalue()
    with contextlib.suppress(ImportError):
        import cv2

        _, data = cv2.imencode(".jpg", page[:, :, ::-1], [cv2.IMWRITE_JPEG_QUALITY, QUALITY])
        return bytes(data)
    return b""


def _chunk(kind: bytes, data: bytes) -> bytes:
    check = zlib.crc32(kind + data)
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", check)
