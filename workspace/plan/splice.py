"""A text as lines, and the one kind of change made to it: some whole lines are replaced by others."""

from __future__ import annotations

import re
from typing import NamedTuple

from ..base import UsageError

BOM = "\ufeff"
BREAK = re.compile(r"\r\n|\r|\n")
"""What ends a line in Markdown. `str.splitlines` would also split at form feeds, \\x85, \\u2028 and others."""

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")


class Splice(NamedTuple):
    """Replace `removed` lines from `line` (0-based) on by `text`, which is zero or more whole lines.

    It names lines, not tasks, so that a version that parses Markdown differently can replay it. Each of several splices
    counts lines as the earlier ones left them.
    """

    line: int
    removed: int
    text: str


def split(text: str) -> list[str]:
    """The lines of `text`, each with its ending; only the last may have none. Joined they are `text` again."""
    return _LINE.findall(text)


def body(line: str) -> str:
    """`line` without its ending."""
    return line.rstrip("\r\n")  # a line holds no other \r or \n


def ending(line: str) -> str:
    """ "\\r\\n", "\\r" or "\\n", or "" for a last line that has none."""
    return line[len(body(line)) :]


def ending_at(lines: list[str], at: int) -> str:
    """The ending for lines inserted at `at`: that of the line above.

    Another one could join: a "\\n" after a line that ends in "\\r" makes one ending of two.
    """
    above = next((found for line in reversed(lines[max(0, at - 2) : at]) if (found := ending(line))), "")
    return above or (ending(lines[0]) if lines else "") or "\n"


def insertion(lines: list[str], at: int, bodies: list[str]) -> Splice:
    """The splice that puts `bodies` before line `at`. A last line without an ending is given one."""
    end = ending_at(lines, at)
    text = "".join(line + end for line in bodies)
    if at > 0 and not ending(lines[at - 1]):
        return Splice(at - 1, 1, lines[at - 1] + end + text)
    return Splice(at, 0, text)


def apply(lines: list[str], change: Splice) -> None:
    """Change `lines` in place. UsageError, with nothing changed, if it names lines that do not exist."""
    line, removed, text = change
    if line < 0 or removed < 0 or line + removed > len(lines):
        raise UsageError(
            f"a change of lines {line + 1} to {line + removed} does not fit a plan of {len(lines)} lines",
            remedy="apply it to the text it was made for",
        )
    new = split(text)
    lines[line : line + removed] = new
    if any(_fused(lines, seam) for seam in (line, line + len(new))):
        lines[:] = split("".join(lines))


def _fused(lines: list[str], seam: int) -> bool:
    """Whether the lines on both sides of `seam` are one line once they are joined."""
    if not 0 < seam < len(lines):
        return False
    above = lines[seam - 1]
    return not ending(above) or (above[-1] == "\r" and lines[seam][0] == "\n")


def between(old: list[str], new: list[str]) -> list[Splice]:
    """The change from `old` to `new`, both as `split` makes them: one splice for all differences, or none."""
    shortest = min(len(old), len(new))
    start = 0
    while start < shortest and old[start] == new[start]:
        start += 1
    end = 0
    while end < shortest - start and old[-1 - end] == new[-1 - end]:
        end += 1
    removed = len(old) - end - start
    text = "".join(new[start : len(new) - end])
    return [Splice(start, removed, text)] if removed or text else []
