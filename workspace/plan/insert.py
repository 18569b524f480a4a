"""Put new lines into a plan: the places for them, the most likely first, and a check of each.

A place is right if a parser reads the new lines as intended, and all others as before.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from .index import Reading
from .markdown import NESTING, Block, Parsed
from .splice import BOM, body
from .task import TaskRow, below, escape, head_of, lines_of, read_text, unquoted

_BULLETS = "-+*"
_MOST = 999_999_999  # the greatest number a Markdown list may show
_PLAIN_COLUMN = NESTING - 10  # a list takes two columns and two containers, so the limit isn't near

_OPENS_A_BLOCK = re.compile(
    r"""[-+*](?:\s|\Z)          # a bullet
      | [-=_*][-=_*\s]*\Z       # a rule, or the underline of a heading
      | \#{1,6}(?:\s|\Z)
      | > | < | ``` | ~~~
      | \[(?:[^\]]*\Z|.*\]:)    # the definition of a link
    """,
    re.VERBOSE,
)
_OPENS_A_NUMBER = re.compile(r"[0-9]{1,9}(?=[.)](?:\s|\Z))")


class Insertion(NamedTuple):
    """Lines, without endings, to insert before line `at`, inside the task `holder` (an index, or -1).

    `columns` are those of the marks of new tasks, by their line's place in `bodies`.
    """

    at: int
    bodies: list[str]
    holder: int
    columns: dict[int, int]


class _Style(NamedTuple):
    """How items are written in one list."""

    lead: str
    marker: str
    gap: str
    spaced: bool
    """Whether there is a blank line between the items."""
    alike: bool
    """Whether all items have the same number, which Markdown counts up itself."""


def beside(reading: Reading, index: int, texts: Sequence[str]) -> Iterator[Insertion]:
    """New items right after a task and its sub-tasks, in the same list."""
    lines, row = reading.lines, reading.rows[index]
    head = head_of(lines[row.line], row.column)
    previous, following = _neighbours(reading, index)
    style = _Style(
        lead=below(head.lead),
        marker=head.marker,
        gap=head.gap,
        spaced=any(found is not None and found.blanks > 0 for found in (previous, following)),
        alike=head.marker in _BULLETS or (previous is not None and previous.marker == head.marker),
    )
    style = style._replace(marker=_next_marker(style, head.marker))
    yield _items(row.end, style, texts, row.parent)
    yield _items(row.end, style, texts, row.parent, blank_after=True)
    yield _items(row.end, style, texts, row.parent, blank_before=True, blank_after=True)


def inside(reading: Reading, index: int, texts: Sequence[str]) -> Iterator[Insertion]:
    """New items as a list inside a task that has none."""
    line, row = reading.lines[reading.rows[index].line], reading.rows[index]
    marker = head_of(line, row.column).marker
    first = marker if marker in _BULLETS else f"1{marker[-1]}"
    style = _Style(below(line[: row.column - 1]), first, " ", spaced=False, alike=marker in _BULLETS)
    for at in dict.fromkeys((row.end, row.last + 1)):
        yield _items(at, style, texts, index)
        yield _items(at, style, texts, index, blank_after=True)
        yield _items(at, style, texts, index, blank_before=True, blank_after=True)


def last_at_top(reading: Reading) -> int | None:
    """The last task that is in no other one. Tasks in a quote do not count: they are someone else's text."""
    lines, rows = reading.lines, reading.rows
    for index in range(len(rows) - 1, -1, -1):
        row = rows[index]
        if row.parent < 0 and ">" not in lines[row.line][: row.column]:
            return index
    return None


def at_end(lines: Sequence[str], texts: Sequence[str], title: str | None = None) -> Insertion:
    """A new list at the end of the text, under a heading if there is a title."""
    written = any(body(line).strip(f" \t{BOM}") for line in lines[-1:])
    above = [""] * written + ([f"# {title}", ""] if title else [])
    items = _items(len(lines), _Style("", "-", " ", spaced=False, alike=True), texts, -1)
    columns = {len(above) + place: column for place, column in items.columns.items()}
    return Insertion(len(lines), above + items.bodies, -1, columns)


def prose(reading: Reading, index: int, words: str) -> Iterator[Insertion]:
    """Paragraphs inside a task, after its text and before its sub-tasks. None if `words` are blank."""
    lines, row = reading.lines, reading.rows[index]
    paragraph = [_harmless(line) for line in lines_of(words)]
    while paragraph and not paragraph[-1]:
        paragraph.pop()
    while paragraph and not paragraph[0]:
        paragraph.pop(0)
    if not paragraph:
        return
    prefix = below(lines[row.line][: row.column - 1])
    depth = prefix.count(">")
    at = row.end
    if children := reading.tree.children.get(index):
        at = reading.rows[children[0]].line
        while at > row.last + 1 and not unquoted(body(lines[at - 1]), depth).strip(" \t"):
            at -= 1
    bodies = [(prefix + line).rstrip() for line in ["", *paragraph]]
    for place in dict.fromkeys((at, row.last + 1)):
        yield Insertion(place, bodies, index, {})
        yield Insertion(place, [*bodies, prefix.rstrip()], index, {})


def is_plain(reading: Reading, index: int, new: Insertion) -> bool:
    """Whether the result of inserting `new` after or into the task `index` is certain without a parser.

    It is, when the line above is the last of a task's paragraph, in lists that are indented by spaces only, and the
    line below is blank, or a task no deeper than this one, or missing. Then a new item of the same list, or of a first
    list inside, ends the paragraph, and nothing below becomes a part of it.
    """
    lines, rows = reading.lines, reading.rows
    deepest = rows[reading.tree.subtree(index)[-1]]
    if not deepest.last + 1 == new.at == rows[index].end or rows[index].column > _PLAIN_COLUMN:
        return False
    width = _plain_width(lines, rows[index])
    if width is None or _plain_width(lines, deepest) is None:
        return False
    if new.at >= len(lines) or not body(lines[new.at]).strip(" \t"):
        return True
    following = reading.at_line(new.at)
    if following is None:
        return False
    its_width = _plain_width(lines, rows[following])
    return its_width is not None and its_width <= width


def grown(reading: Reading, new: Insertion) -> list[TaskRow]:
    """The rows after a plain insertion."""
    rows, count, more = reading.rows, len(new.bodies), len(new.columns)
    position = bisect_left(rows, new.at, key=lambda row: row.line)
    above = rows[:position]
    around = [new.holder, *reading.tree.above(new.holder)] if new.holder >= 0 else []
    for index in around:
        above[index] = above[index]._replace(end=above[index].end + count)
    # There may be 100,000: a number that comes twice is one object.
    items = [TaskRow(at := new.at + place, column, new.holder, at, at + 1) for place, column in new.columns.items()]
    return (
        above
        + items
        + [
            TaskRow(line + count, column, parent + more if parent >= position else parent, last + count, end + count)
            for line, column, parent, last, end in rows[position:]
        ]
    )


def _items(
    at: int, style: _Style, texts: Sequence[str], holder: int, *, blank_before: bool = False, blank_after: bool = False
) -> Insertion:
    blank = style.lead.rstrip()
    bodies: list[str] = []
    columns: dict[int, int] = {}
    marker = style.marker
    for number, text in enumerate(texts):
        if style.spaced or (blank_before and number == 0):
            bodies.append(blank)
        opening = f"{style.lead}{marker}{style.gap}["
        columns[len(bodies)] = len(opening)
        bodies.append(f"{opening} ] {escape(text)}")
        marker = _next_marker(style, marker)
    return Insertion(at, bodies + [blank] * blank_after, holder, columns)


def _next_marker(style: _Style, marker: str) -> str:
    if style.alike:
        return marker
    digits, delimiter = marker[:-1], marker[-1]
    return f"{min(int(digits) + 1, _MOST):0{len(digits)}}{delimiter}"


class _Neighbour(NamedTuple):
    marker: str
    blanks: int


def _neighbours(reading: Reading, index: int) -> tuple[_Neighbour | None, _Neighbour | None]:
    """The tasks before and after one in its own list, with the blank lines between."""
    rows, parent = reading.rows, reading.rows[index].parent
    before, after = index - 1, reading.tree.subtree(index)[-1] + 1
    while before != parent and rows[before].parent != parent:
        before = rows[before].parent
    previous = _neighbour(reading, before, index, before) if before != parent else None
    inside = after < len(rows) and rows[after].parent == parent
    return previous, _neighbour(reading, index, after, after) if inside else None


def _neighbour(reading: Reading, first: int, second: int, other: int) -> _Neighbour | None:
    """`other`, one of the two tasks, if only blank lines are between them and they are written in the same way."""
    lines, one, two = reading.lines, reading.rows[first], reading.rows[second]
    heads = [head_of(lines[row.line], row.column) for row in (one, two)]
    depth = lines[two.line].count(">", 0, two.column)
    if len({(below(head.lead), head.marker[-1]) for head in heads}) > 1:
        return None
    if any(unquoted(body(line), depth).strip(" \t") for line in lines[one.end : two.line]):
        return None
    return _Neighbour(heads[other == second].marker, two.line - one.end)


def _plain_width(lines: Sequence[str], row: TaskRow) -> int | None:
    """How many spaces indent the item, if nothing else does."""
    head = head_of(lines[row.line], row.column)
    return None if (head.lead + head.gap).strip(" ") else len(head.lead)


def _harmless(line: str) -> str:
    """A line that Markdown reads as plain text: what would open a block gets a backslash before it."""
    if _OPENS_A_BLOCK.match(line):
        return f"\\{line}"
    return _OPENS_A_NUMBER.sub(lambda number: f"{number[0]}\\", line, count=1) if line[:1].isdigit() else line


def is_as_meant(
    new: Insertion,
    texts: Sequence[str],
    rows: Sequence[TaskRow],
    blocks: Sequence[Block],
    after: Parsed,
    lines: list[str],
) -> bool:
    """`rows` and `blocks` are those without the lines of `new`, `after` and `lines` those with them."""
    return (
        _kept_blocks(new, blocks, after.blocks)
        and _kept_rows(new, rows, after.rows)
        and _new_rows_are(new, texts, after.rows, lines)
        and (bool(texts) or _is_prose_of(new, rows, after.blocks))
    )


def _kept_blocks(new: Insertion, old: Sequence[Block], now: Sequence[Block]) -> bool:
    """Every earlier block still exists, in the same lines and at the same depth, and the new ones are together."""
    moved = [block if block.start < new.at else _shifted(block, len(new.bodies)) for block in old]
    if len(now) < len(moved):
        return False
    same = 0
    while same < len(moved) and moved[same] == now[same]:
        same += 1
    left, surplus = len(moved) - same, len(now) - len(moved)
    if any(moved[same + place] != now[same + surplus + place] for place in range(left)):
        return False
    return all(block.end <= new.at + len(new.bodies) for block in now if _is_new(new, block.start))


def _kept_rows(new: Insertion, old: Sequence[TaskRow], now: Sequence[TaskRow]) -> bool:
    kept = [index for index, row in enumerate(now) if not _is_new(new, row.line)]
    if len(kept) != len(old):
        return False
    count = len(new.bodies)
    for index, row in zip(kept, old, strict=True):
        found = now[index]
        shift = count if row.line >= new.at else 0
        parent = kept[row.parent] if row.parent >= 0 else -1
        if found[:4] != (row.line + shift, row.column, parent, row.last + shift):
            return False
    return True


def _new_rows_are(new: Insertion, texts: Sequence[str], now: Sequence[TaskRow], lines: list[str]) -> bool:
    fresh = [row for row in now if _is_new(new, row.line)]
    return len(fresh) == len(texts) and all(
        row.column == column
        and row.line == row.last == new.at + place
        and row.parent == new.holder
        and read_text(lines, row) == text
        for row, (place, column), text in zip(fresh, new.columns.items(), texts, strict=True)
    )


def _is_prose_of(new: Insertion, rows: Sequence[TaskRow], now: Sequence[Block]) -> bool:
    """The new blocks are paragraphs next to the one with the task's checkbox."""
    own = next(block for block in now if block.start == rows[new.holder].line)
    return all((block.kind, block.level) == (own.kind, own.level) for block in now if _is_new(new, block.start))


def _is_new(new: Insertion, line: int) -> bool:
    return new.at <= line < new.at + len(new.bodies)


def _shifted(block: Block, count: int) -> Block:
    return block._replace(start=block.start + count, end=block.end + count)
