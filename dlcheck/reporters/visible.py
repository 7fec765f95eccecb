"""Make hostile text harmless before it reaches a terminal.

A file name, a label or an exception message may hold escape sequences that move the cursor, bidi
overrides that turn text round, or surrogates that no encoding takes.
"""

from __future__ import annotations

import unicodedata

_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_ASCII_END = 0x7F
_LATIN_END = 0x100
_BMP_END = 0x10000


def visible(text: object, *, ascii_only: bool = False) -> str:
    r"""Write control, format and surrogate characters as `\x1b`, `\u202e`, so that one line stays.

    `ascii_only` does the same with every other character past ASCII.
    """
    words = text if isinstance(text, str) else str(text)
    if words.isascii() and words.isprintable():
        return words
    return "".join(_safe(character, ascii_only=ascii_only) for character in words)


def visible_lines(text: str, *, ascii_only: bool = False) -> list[str]:
    """Split at newlines only, expand tabs, and make each line visible."""
    lines = text.replace("\r\n", "\n").split("\n")
    return [visible(line.expandtabs(4), ascii_only=ascii_only) for line in lines]


def without_surrogates(text: str) -> str:
    """Write each surrogate as text: JSON's grammar allows a lone one, most parsers do not."""
    if text.isascii():
        return text
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _safe(character: str, *, ascii_only: bool) -> str:
    point = ord(character)
    if unicodedata.category(character) in _UNSAFE:
        return _NAMED.get(character, _escape(point))
    return _escape(point) if ascii_only and point >= _ASCII_END else character


def _escape(point: int) -> str:
    if point < _LATIN_END:
        return f"\\x{point:02x}"
    return f"\\u{point:04x}" if point < _BMP_END else f"\\U{point:08x}"
