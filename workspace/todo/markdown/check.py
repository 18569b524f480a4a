"""Check that a parser reads new lines as intended, and all others as before."""

from __future__ import annotations

from collections.abc import Sequence

from ..task import Row, read_text
from .insert import Insertion
from .parse import Block, Parsed


def is_as_meant(
    new: Insertion, texts: Sequence[str], rows: Sequence[Row], blocks: Sequence[Block], after: Parsed, lines: list[str]
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


def _kept_rows(new: Insertion, old: Sequence[Row], now: Sequence[Row]) -> bool:
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


def _new_rows_are(new: Insertion, texts: Sequence[str], now: Sequence[Row], lines: list[str]) -> bool:
    fresh = [row for row in now if _is_new(new, row.line)]
    return len(fresh) == len(texts) and all(
        row.column == column
        and row.line == row.last == new.at + place
        and row.parent == new.holder
        and read_text(lines, row) == text
        for row, (place, column), text in zip(fresh, new.columns.items(), texts, strict=True)
    )


def _is_prose_of(new: Insertion, rows: Sequence[Row], now: Sequence[Block]) -> bool:
    """The new blocks are paragraphs next to the one with the task's checkbox."""
    own = next(block for block in now if block.start == rows[new.holder].line)
    return all((block.kind, block.level) == (own.kind, own.level) for block in now if _is_new(new, block.start))


def _is_new(new: Insertion, line: int) -> bool:
    return new.at <= line < new.at + len(new.bodies)


def _shifted(block: Block, count: int) -> Block:
    return block._replace(start=block.start + count, end=block.end + count)
