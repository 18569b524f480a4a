"""Virtual paths, what a list says of a file, and text whose lines may end with CRLF."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from deepagents.backends.protocol import ContextLine, FileInfo, GrepMatch
from deepagents.backends.utils import perform_string_replacement

from satchel.results import FileEntry

BINARY = re.compile(
    r"\.(png|jpe?g|webp|gif|hei[cf]|mp4|mpe?g|mov|avi|flv|webm|wmv|3gpp|mkv|wav|mp3|aiff|aac|ogg|flac|pdf|pptx?)\Z",
    re.I,
)
"""Names of files that deepagents gives to a model as they are, not as text."""


def virtual(path: str) -> str:
    """A virtual path in its only form. ValueError if it leads out."""
    if ".." in path.split("/"):
        raise ValueError(f"Path traversal not allowed: {path}")
    return posixpath.normpath("/" + path.lstrip("/"))


def info(name: str, file: FileEntry) -> FileInfo:
    return FileInfo(path=name, is_dir=False, size=file.bytes, modified_at=file.at)


def matches_in(name: str, content: bytes, pattern: str, context_lines: int) -> Iterator[GrepMatch]:
    """The lines of a file that have `pattern`, counted as `read` counts them. A binary file has none. A wrong byte in a
    log hides no other line."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        text = "" if b"\0" in content else content.decode(errors="replace")
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        if pattern in line:
            match = GrepMatch(path=name, line=number, text=line)
            if context_lines:
                match["context_before"] = _others(lines, number - context_lines, number, pattern)
                match["context_after"] = _others(lines, number + 1, number + 1 + context_lines, pattern)
            yield match


def _others(lines: list[str], first: int, end: int, pattern: str) -> list[ContextLine]:
    """The lines from `first` up to `end`, without those that match, too."""
    near = enumerate(lines[max(first, 1) - 1 : end - 1], max(first, 1))
    return [ContextLine(line=number, text=line) for number, line in near if pattern not in line]


def replaced(text: str, old: str, new: str, replace_all: bool) -> tuple[str, int] | str:
    """The text with `new` for `old`, and how often; or why not. A model has read each line with LF at its end. What is
    not replaced stays byte for byte, and new lines end as the old ones."""
    if "\r" in old and old in text:
        return perform_string_replacement(text, old, new, replace_all)
    text_lf, old_lf, new_lf = (re.sub("\r\n?", "\n", each) for each in (text, old, new))
    found = perform_string_replacement(text_lf, old_lf, new_lf, replace_all)
    if isinstance(found, str) or "\r" not in text:
        return found
    ends, result, at, lines = re.findall("\r\n?|\n", text), "", 0, old_lf.count("\n")
    for number, piece in enumerate(text_lf.split(old_lf)):
        if number:
            result += _ended(new_lf, ends[at : at + max(lines, 1)] or ends[-1:])
            at += lines
        result += _ended(piece, ends[at:])
        at += piece.count("\n")
    return result, found[1]


def _ended(text: str, ends: list[str]) -> str:
    first, *lines = text.split("\n")
    return first + "".join(ends[min(number, len(ends) - 1)] + line for number, line in enumerate(lines))
