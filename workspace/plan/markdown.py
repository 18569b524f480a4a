"""The Markdown of a plan: find its tasks with a CommonMark parser, and put new lines into it.

Of lines that Markdown reads as text, some are taken as tasks, and the other likely ones are refused. Taken are
invisible differences, which an editor, a phone or another alphabet's keyboard makes: blanks of another kind or of no
width around the mark, full-width brackets, no space after `1.`.

For new lines there are several places, the most likely first. A place is right if a parser reads the new lines as
intended, and all others as before.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from .task_lines import (
    BOM,
    BREAK,
    Reading,
    TaskRow,
    below,
    body,
    ending,
    escape,
    has_checkbox,
    head_of,
    lines_of,
    read_text,
    split,
    unquoted,
)

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
_ODD_BULLETS = "‐‑‒–—―−－﹣•·●◦‣▪・･∙⁃＊＋"
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
    rf"(?:[-+*]|(?:[{_ODD_BULLETS}]|(?!{_NUMBER}[ \t])(?P<number>{_ODD_NUMBER})){BLANK}*)"
    rf"(?:{_OPEN}(?P<mark>{BLANK}|{_MARK})?{_CLOSE}(?=\w|{BLANK})|【(?P<black>{BLANK}|{_MARK})?】)"
    rf"|(?:[-+*]{BLANK}+)?【(?P<bulleted>{BLANK}|{_MARK})】"
    rf"|{_OPEN}(?P<bare>{BLANK}|{_MARK}){_CLOSE}(?={BLANK})"
    rf"|(?:[-+*{_ODD_BULLETS}]{BLANK}*)?(?P<sign>[☐☑☒□▢◻⬜])\ufe0f?"
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
    count = len(new.bodies)
    moved = [
        block if block.start < new.at else block._replace(start=block.start + count, end=block.end + count)
        for block in old
    ]
    if len(now) < len(moved):
        return False
    same = 0
    while same < len(moved) and moved[same] == now[same]:
        same += 1
    left, surplus = len(moved) - same, len(now) - len(moved)
    if any(moved[same + place] != now[same + surplus + place] for place in range(left)):
        return False
    return all(block.end <= new.at + count for block in now if _is_new(new, block.start))


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
