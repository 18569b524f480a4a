"""Find the tasks of a Markdown text with a CommonMark parser."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from ..splice import BOM, BREAK, body, ending, split
from ..task import Row, has_checkbox, unquoted
from .near import BLANK, in_code, may_be_taken, near

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

NESTING = 40
"""How many nested containers are read: 20 lists. Deeper ones, and the rest of their list, are not. The limit prevents
endless recursion, and bounds the time for hostile texts."""

_LIKE_A_CHECKBOX = re.compile(rf"\[(?:{BLANK}{{0,2}}[^\s\]0-9]?{BLANK}{{0,2}}\](?=\s|\Z)|[ xX/-]\](?![\s(\[:]|\Z))")


class Block(NamedTuple):
    """One block of the text. Containers have no lines here (-1), because they grow when something is added."""

    kind: str
    level: int
    start: int
    end: int


class Suspect(NamedTuple):
    """A line that is not a task but may have been intended as one. `column` is that of its `[`, or -1: too deep.
    `meant` is the correct form, if it is no list item in Markdown; of the whole line if it is `plain`."""

    line: int
    column: int
    meant: str = ""
    plain: bool = False  # it differs from an item in nothing that a person sees


class Parsed(NamedTuple):
    rows: list[Row]
    blocks: list[Block]
    suspects: list[Suspect]
    plain: list[int]  # the lines of list items without a checkbox, in lists that have items with one


def parse(lines: Sequence[str]) -> Parsed:
    """Find the tasks. 10,000 items take 0.2 to 0.6 s; time is linear in the text."""
    text = "".join(lines)
    if not text.strip(" \t\r\n"):
        return Parsed([], [], [], [])  # a run without a plan need not load a parser
    tokens: list[Token] = []
    parser = _parser()
    parser.block.parse(_normal(text), parser, {}, tokens)
    parsed = Parsed([], [], [], [])
    above = [-1]  # the nearest task around, for each list item that is open
    lists: list[tuple[list[Row], list[int]]] = []  # those that are open: their tasks, and their other items
    for index, token in enumerate(tokens):
        if token.nesting < 0:
            if token.type == "list_item_close":
                above.pop()
            elif token.type.endswith("_list_close"):
                tasks, others = lists.pop()
                parsed.plain.extend(others if tasks else ())
            continue
        if token.map is None:
            continue
        start, end = token.map
        if token.type == "inline":
            if tokens[index - 1].type == "paragraph_open":
                parsed.suspects.extend(_near(lines, start, end))
            continue
        if token.type.endswith("_list_open"):
            lists.append(([], []))
        if token.type == "list_item_open":
            line = body(lines[start])
            column = _opening(line, start, tokens, index)
            parent = above[-1]
            if column >= 0 and has_checkbox(line, column + 1):
                above.append(len(parsed.rows))
                last = (tokens[index + 1].map or (start, start + 1))[1] - 1
                parsed.rows.append(Row(start, column + 1, parent, last, _trimmed(lines, last + 1, end, line, column)))
                lists[-1][0].append(parsed.rows[-1])
            else:
                above.append(parent)
                if tokens[index + 1].type == "paragraph_open":
                    lists[-1][1].append(start)
                elif tokens[index + 1].type == "code_block" and (code := in_code(line)) is not None:
                    parsed.suspects.append(Suspect(start, 0, code.meant))
                if column >= 0 and _LIKE_A_CHECKBOX.match(line, column):
                    parsed.suspects.append(Suspect(start, column))
        if token.type.endswith(("list_open", "item_open", "quote_open")):
            parsed.blocks.append(Block(token.type, token.level, -1, -1))
            if token.level == NESTING - 1:
                parsed.suspects.append(Suspect(start, -1))
        else:
            parsed.blocks.append(Block(token.type, token.level, start, end))
    return parsed


def plainly(text: str) -> str:
    """`text`, with each line that is plainly meant as an item written as one. All other lines stay as they are."""
    while may_be_taken(text):
        lines = split(text)
        taken = [suspect for suspect in parse(lines).suspects if suspect.plain]
        if not taken:
            break
        for suspect in taken:
            lines[suspect.line] = suspect.meant + ending(lines[suspect.line])
        text = "".join(lines)
    return text


def _near(lines: Sequence[str], start: int, end: int) -> Iterator[Suspect]:
    for number in range(start, min(end, len(lines))):
        line = body(lines[number])
        bom = BOM if number == 0 and line.startswith(BOM) else ""
        if (found := near(line.removeprefix(bom), is_first=number == start)) is not None:
            yield Suspect(number, 0, bom + found.meant if found.taken else found.meant, found.taken)


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt  # imported here, because `import satchel` must be quick

    return MarkdownIt("commonmark", {"maxNesting": NESTING})


def _normal(text: str) -> str:
    """The effect of markdown-it's first rule, without changing line numbers; and no byte order mark.

    Only blocks are parsed: the inline rules take most of the time, and no task depends on them.
    """
    return BREAK.sub("\n", text.removeprefix(BOM)).replace("\0", "\ufffd")


def _opening(line: str, start: int, tokens: Sequence[Token], item: int) -> int:
    """The column at which the text of `tokens[item]` starts on the item's own line, if with a `[`; otherwise -1."""
    if item + 2 >= len(tokens):
        return -1
    paragraph, inline = tokens[item + 1], tokens[item + 2]
    if paragraph.type != "paragraph_open" or (paragraph.map or [-1])[0] != start or not inline.content.startswith("["):
        return -1
    # the parser strips lines at both ends and expands no tabs here, so the text is found from the right
    return len(line.rstrip()) - len(inline.content.partition("\n")[0].rstrip())


def _trimmed(lines: Sequence[str], least: int, end: int, line: str, column: int) -> int:
    """`end` without the blank lines that the parser counts to the item above them."""
    depth = line.count(">", 0, column)
    end = min(end, len(lines))
    while end > least and not unquoted(body(lines[end - 1]), depth).strip(" \t"):
        end -= 1
    return end
