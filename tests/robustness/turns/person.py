"""What a person's editor does to the text of a file. Pure; knows nothing of how Satchel reads it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple

_ITEM = re.compile(r"(?P<indent> *)- \[(?P<mark>.)\] (?P<name>\w+)(?P<rest>.*?)(?P<id> \^\w+)?(?P<end>\r?\n)?\Z")
_STAMP = re.compile(rb"\n?<!-- satchel [^\n]*-->\s*\Z")


class Row(NamedTuple):
    """A line of a plan that is an item. It is known by its first word, which nobody changes."""

    line: int
    name: str
    mark: str
    text: str
    depth: int
    has_id: bool


def rows(text: str) -> list[Row]:
    found = []
    for number, line in enumerate(text.splitlines(keepends=True)):
        if match := _ITEM.fullmatch(line):
            text, depth = match["name"] + match["rest"].rstrip(), len(match["indent"]) // 2
            found.append(Row(number, match["name"], match["mark"], text, depth, match["id"] is not None))
    return found


def plain(text: str) -> list[str]:
    """The lines of a plan as a person has written them: without ids, and without what only pads the end."""
    lines = (
        re.sub(r" \^\w+$", "", line.rstrip("\n")) if "[" in line else line for line in text.splitlines(keepends=True)
    )
    return "\n".join(line.rstrip("\n") for line in lines).rstrip().split("\n")


def split(data: bytes) -> tuple[str, bytes]:
    """A plan's text, and the stamp below it."""
    match = _STAMP.search(data)
    return (data[: match.start()].decode(), data[match.start() :]) if match else (data.decode(), b"")


def marked(text: str, row: Row, mark: str) -> str:
    return _on_line(text, row, lambda line: line.replace(f"[{row.mark}]", f"[{mark}]", 1))


def reworded(text: str, row: Row, words: str) -> str:
    return _on_line(text, row, lambda line: line.replace(row.text, f"{row.name} {words}", 1))


def removed(text: str, row: Row) -> str:
    return _on_line(text, row, lambda line: "")


def inserted(text: str, at: int, line: str) -> str:
    """`line` as line `at` of the text, or at its end."""
    lines = text.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    lines.insert(at, f"{line}\n")
    return "".join(lines)


def moved(text: str, row: Row, to: int) -> str:
    lines = text.splitlines(keepends=True)
    if not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    line = lines.pop(row.line)
    lines.insert(to, line)
    return "".join(lines)


def _on_line(text: str, row: Row, change: Callable[[str], str]) -> str:
    lines = text.splitlines(keepends=True)
    lines[row.line] = change(lines[row.line])
    return "".join(lines)


def changed_json(data: bytes, change: Callable[[Any], None]) -> bytes:
    """An editor that knows JSON, and lays it out in its own way."""
    found = json.loads(data)
    change(found)
    return json.dumps(found, indent=4).encode()
