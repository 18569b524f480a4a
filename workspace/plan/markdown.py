"""Find the tasks of a Markdown text with a CommonMark parser, and the lines that a person means as tasks.

Of lines that Markdown reads as text, some are taken as tasks, and the other likely ones are refused. Taken are
invisible differences, which an editor, a phone or another alphabet's keyboard makes: blanks of another kind or of no
width around the mark, full-width brackets, no space after `1.`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from .splice import BOM, BREAK, body, ending, split
from .task import TaskRow, has_checkbox, unquoted

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token


NESTING = 40
"""How many nested containers are read: 20 lists. Deeper ones, and the rest of their list, are not. The limit prevents
endless recursion, and bounds the time for hostile texts."""

_NO_WIDTH = "\u200b\u200c\u200d\u2060\ufeff"
_WIDE = "\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000"

BLANK = rf"[ \t{_WIDE}{_NO_WIDTH}]"
_OWN_BLANK = re.compile(rf"[{_WIDE}{_NO_WIDTH}]")
_MARK = "[xX/ｘＸ／－-]"
_OPEN, _CLOSE = r"[\[［]", r"[\]］]"
_BULLETS = "‐‑‒–—―−－﹣•·●◦‣▪・･∙⁃＊＋"
"""List marks that people and editors type, and Markdown does not know."""

_NUMBER = r"[0-9]{1,9}[.)]"
_ODD_NUMBER = r"[(（][0-9０-９]{1,9}[)）]|[0-9０-９]{1,9}[.)）．。、:：]|[(（]?[A-Za-z][.)）]"
_MARKS = str.maketrans("ｘＸ／－", "xX/-")
_ITEM = re.compile(rf"[ \t>]*(?:[-+*]|{_NUMBER})[ \t]+\[[ xX/-]\](?=[ \t]|\Z)")
"""A correct one, if Markdown reads a list here."""

_TAKEN = re.compile(
    rf"(?P<lead>(?:{BLANK}|>)*)(?:(?P<bullet>[-+*])|(?P<number>{_NUMBER}))(?P<gap>{BLANK}*)"
    rf"(?P<box>{_OPEN}[{_NO_WIDTH}]*(?P<mark>{_MARK}|[ {_WIDE}])[{_NO_WIDTH}]*{_CLOSE})(?P<rest>.*)",
    re.DOTALL,
)
_HINT = re.compile(rf"[{_WIDE}{_NO_WIDTH}［］]|^[ \t>]*{_NUMBER}\[", re.MULTILINE)
"""In a text without it no line is taken."""

_REFUSED = re.compile(
    rf"(?:{BLANK}|>)*(?:"
    rf"(?:[-+*]|(?:[{_BULLETS}]|(?!{_NUMBER}[ \t])(?P<number>{_ODD_NUMBER})){BLANK}*)"
    rf"(?:{_OPEN}(?P<mark>{BLANK}|{_MARK})?{_CLOSE}(?=\w|{BLANK})|【(?P<black>{BLANK}|{_MARK})?】)"
    rf"|(?:[-+*]{BLANK}+)?【(?P<bulleted>{BLANK}|{_MARK})】"
    rf"|{_OPEN}(?P<bare>{BLANK}|{_MARK}){_CLOSE}(?={BLANK})"
    rf"|(?:[-+*{_BULLETS}]{BLANK}*)?(?P<sign>[☐☑☒□▢◻⬜])\ufe0f?"
    rf"){BLANK}*(?P<rest>\S.*)",
    re.DOTALL,
)
_CODE = re.compile(rf"[ \t>]*(?:.*?[ \t])??(?P<marker>[-+*]|{_NUMBER})[ \t]{{2,}}(?P<item>\[[ xX/-]\](?:[ \t].*|\Z))")
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
    rows: list[TaskRow]
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
    lists: list[tuple[list[TaskRow], list[int]]] = []  # those that are open: their tasks, and their other items
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
                parsed.rows.append(
                    TaskRow(start, column + 1, parent, last, _trimmed(lines, last + 1, end, line, column))
                )
                lists[-1][0].append(parsed.rows[-1])
            else:
                above.append(parent)
                if tokens[index + 1].type == "paragraph_open":
                    lists[-1][1].append(start)
                elif tokens[index + 1].type == "code_block" and (code := _CODE.fullmatch(line)) is not None:
                    # it is indented too far
                    parsed.suspects.append(Suspect(start, 0, f"{code['marker']} {code['item']}".rstrip()))
                if column >= 0 and _LIKE_A_CHECKBOX.match(line, column):
                    parsed.suspects.append(Suspect(start, column))
        if token.type.endswith(("list_open", "item_open", "quote_open")):
            parsed.blocks.append(Block(token.type, token.level, -1, -1))
            if token.level == NESTING - 1:
                parsed.suspects.append(Suspect(start, -1))
        else:
            parsed.blocks.append(Block(token.type, token.level, start, end))
    return parsed


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


def may_be_taken(text: str) -> bool:
    """Whether a line of the text is taken, unless it is code. Costs no parse."""
    if not _HINT.search(text):
        return False
    return any((found := _TAKEN.match(line)) and _corrected(found) is not None for line in BREAK.split(text))


def _near(lines: Sequence[str], start: int, end: int) -> Iterator[Suspect]:
    for number in range(start, min(end, len(lines))):
        line = body(lines[number])
        bom = BOM if number == 0 and line.startswith(BOM) else ""
        meant, is_plain = _meaning(line.removeprefix(bom), is_first=number == start)
        if meant:
            yield Suspect(number, 0, bom + meant if is_plain else meant, is_plain)


def _meaning(line: str, *, is_first: bool) -> tuple[str, bool]:
    """The item that a line of a paragraph is meant as, or ""; and whether the line is plainly meant as it, and taken.
    `is_first`: if it is an item, it is one in Markdown, too."""
    if (item := _ITEM.match(line)) is not None:
        return "" if is_first else _bulleted("-", line[item.end() - 2], line[item.end() :]), False
    if (found := _TAKEN.match(line)) is not None and (taken := _corrected(found)) is not None:
        return taken, True
    if (found := _REFUSED.match(line)) is None:
        return "", False
    marks = (found[name] for name in ("mark", "black", "bulleted", "bare"))
    mark = next((each for each in marks if each), "x" if found["sign"] in ("☑", "☒") else " ")
    digits = re.sub(r"\D", "", found["number"] or "")
    return _bulleted(f"{int(digits)}." if digits else "-", mark, found["rest"]), False


def _bulleted(marker: str, mark: str, rest: str) -> str:
    mark = mark.translate(_MARKS)
    return f"{marker} [{mark if mark in 'xX/-' else ' '}] {_without_blanks(rest)}".rstrip()


def _corrected(found: re.Match[str]) -> str | None:
    """The line as it must be; None if it must be refused, or is correct."""
    gap, box, rest = found["gap"], found["box"], found["rest"]
    is_wide = box[0] != "[" or box[-1] != "]"
    if not gap and found["bullet"] and not is_wide:
        return None  # `-[ ]` may be anything
    if rest and not is_wide and not re.match(BLANK, rest):
        return None
    lead = "".join("  " if c == "\u3000" else " " if re.match(f"[{_WIDE}]", c) else c for c in found["lead"])
    lead = re.sub(f"[{_NO_WIDTH}]", "", lead)
    gap = " " if not gap or gap.strip(" \t") or _OWN_BLANK.search(gap) else gap
    rest = rest if not rest or rest[0] in " \t" else f" {_without_blanks(rest)}"
    mark = found["mark"].translate(_MARKS)
    line = f"{lead}{found['bullet'] or found['number']}{gap}[{mark if mark in 'xX/-' else ' '}]{rest}"
    return None if line == found[0] else line


def _without_blanks(text: str) -> str:
    return re.sub(rf"\A{BLANK}+", "", text)
