"""Bytes of a person's or a stranger's file as text that is safe to show, and places in it as people count them."""

from __future__ import annotations

import codecs
import re

from ...schemas import Problem
from .errors import InvalidFile

_BREAK = re.compile(r"\r\n|\r|\n")
UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb]"
)
"""Characters that could control a terminal or change the direction of text."""


def decode(data: bytes, path: str) -> str:
    """The text of a UTF-8 file, without a byte order mark. InvalidFile names the line of the first wrong byte."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise InvalidFile(path, [Problem("line 1", "a file in UTF-16", "UTF-8", "Save the file as UTF-8")])
    try:
        return data.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        # Everything before the bad byte is good, so its place is counted in characters and not in bytes.
        where = place(data[: error.start].decode(), None)
        found = f"the byte 0x{data[error.start]:02x}, which is not UTF-8"
        raise InvalidFile(path, [Problem(where, found, "text in UTF-8", "Save the file as UTF-8")]) from None


def visible(text: str) -> str:
    """`text` with escapes in place of characters that could control a terminal or change the direction of text."""
    if text.isascii() and text.isprintable():  # as most are, and there may be thousands
        return text
    return UNSAFE.sub(lambda match: match[0].encode("unicode_escape", "surrogatepass").decode(), text)


def place(text: str, offset: int | None) -> str:
    """`line 4, column 7` of a character offset, both counted from 1; None is the end of the text."""
    before = text[:offset]
    breaks = list(_BREAK.finditer(before))
    start = breaks[-1].end() if breaks else 0
    return f"line {len(breaks) + 1}, column {len(before) - start + 1}"


def lines(text: str) -> list[str]:
    """The lines of a text without their ends. `str.splitlines` splits at ten more characters, which no editor does."""
    return _BREAK.split(text)
