"""The sentences of a document in plain text, Markdown or reStructuredText, without its markup, code and tables."""

from __future__ import annotations

import re
from collections.abc import Iterator

# A line of tildes below a line of text is the underline of a heading in reStructuredText.
_FENCE = re.compile(r"^ {0,3}(```+|(?<!\S\n)~~~+)[^\n]*\n.*?(?:^ {0,3}\1[^\n]*$|\Z)", re.MULTILINE | re.DOTALL)
_DIRECTIVE = re.compile(r"^( *)\.\. [^\n]*(?:\n(?:\1 +[^\n]*| *$))*", re.MULTILINE)
_LITERAL = re.compile(r"::[ \t]*\n(?:[ \t]*\n)+((?:[ \t]+[^\n]*(?:\n|\Z)|[ \t]*\n)+)")
_NOT_PROSE = re.compile(
    r"^\s*(?:\||[+=|-]{3,}|[=~^\"'`#*.:_-]{3,}\s*$|(?:[*_-] *){3,}$|>>>|\$ |\[[^\]]{1,99}\]:\s|:[\w -]{1,99}:(?:\s|$)"
    r"|!\[|\[!\[|https?://\S+\s*$)"
)
_HEADING = re.compile(r"^\s{0,3}#{1,6}\s")
_UNDERLINE = re.compile(r"^\s*([=~^\"'`#*+.:_-])\1{2,}\s*$")
_BULLET = re.compile(r"^\s*(?:[-*+•]|\d{1,3}[.)])\s+")
_QUOTE = re.compile(r"^\s*>+\s?")

# The lengths are limited because a file may be all brackets.
_INLINE = (
    (re.compile(r"!\[[^\]]{0,300}\](?:\([^)]{0,300}\)|\[[^\]]{0,300}\])?"), ""),  # an image
    (re.compile(r"\[([^\]]{0,300})\](?:\([^)]{0,300}\)|\[[^\]]{0,300}\])"), r"\1"),  # a link
    (re.compile(r"\[([^\]]{1,300})\]"), r"\1"),
    (re.compile(r"`([^`<]{1,300}?)\s*<[^>`]{0,300}>`__?"), r"\1"),  # a link in reStructuredText
    (re.compile(r":[\w:-]{1,99}:`~?([^`]{1,300})`"), r"\1"),  # a role in it
    (re.compile(r"<(https?://[^>\s]{1,300})>"), r"\1"),
    (re.compile(r"</?[A-Za-z][^>]{0,300}>"), ""),
    (re.compile(r"``?([^`]*)``?_{0,2}"), r"\1"),
    (re.compile(r"(\*\*|__)(?=\S)(.{1,300}?)(?<=\S)\1"), r"\2"),
    (re.compile(r"(?<![\w*])\*(?=\S)([^*]+?)(?<=\S)\*(?![\w*])"), r"\1"),
    (re.compile(r"(?<!\w)_(?=\S)([^_]+?)(?<=\S)_(?!\w)"), r"\1"),
    (re.compile(r"(?<=[^\W_])_(?=[\s.,;:)]|$)"), ""),  # a reference in reStructuredText
    (re.compile(r"\\([!-/:-@\[-`{-~])"), r"\1"),
    (re.compile(r"\|\w[\w -]{0,99}\|"), ""),  # a substitution
)

_END = re.compile(r"(?<![.!?…])[.!?…]+[\"'”’)\]]*(?=\s)|[。！？]+[」』”]*")
_ABBREVIATION = re.compile(
    r"(?:^|[\s(\[])(?:[A-Za-z]|e\.g|i\.e|a\.k\.a|cf|etc|vs|al|approx|Dr|Mr|Mrs|Ms|Prof|St|Jr|No|Fig|Vol|p|pp|z\.B|d\.h)\.$"
)


def sentences(text: str) -> list[str]:
    """In the order of the text, each on one line. One without an end is a fragment, such as an item of a list."""
    return [sentence for paragraph in paragraphs(text) for sentence in _split(paragraph)]


def paragraphs(text: str) -> Iterator[str]:
    """Each on one line. An item of a list is its own paragraph."""
    text = text.replace("\r\n", "\n").expandtabs(4)
    for noise in (_FENCE, _DIRECTIVE):
        text = noise.sub("\n", text)
    text = _without_comments(text)
    text = _LITERAL.sub(".\n\n", text)
    lines: list[str] = []
    # An indented line after a blank one is code, unless the list that it belongs to is still going on.
    in_list, after_blank = False, True
    for raw in [*text.split("\n"), ""]:
        line = raw if _NOT_PROSE.match(raw) else _QUOTE.sub("", raw)
        is_blank = not line.strip()
        is_code = line.startswith("    ") and not in_list and (after_blank or not lines)
        if _UNDERLINE.match(line):
            lines.clear()  # what was above it was a heading
        elif is_blank or is_code or _NOT_PROSE.match(line) or _HEADING.match(line):
            yield from _joined(lines)
        else:
            if _BULLET.match(line):
                yield from _joined(lines)
                in_list = True
            elif after_blank and not line.startswith(" "):
                in_list = False
            lines.append(_BULLET.sub("", line).strip())
        after_blank = is_blank


def _without_comments(text: str) -> str:
    before, *pieces = text.split("<!--")
    return before + "".join(piece.partition("-->")[2] for piece in pieces)


def _joined(lines: list[str]) -> Iterator[str]:
    text = " ".join(lines)
    lines.clear()
    for pattern, plain in _INLINE:
        text = pattern.sub(plain, text)
    if text := " ".join(text.split()):
        yield text


def _split(paragraph: str) -> Iterator[str]:
    start = 0
    for end in _END.finditer(paragraph):
        after = paragraph[end.end() : end.end() + 2].strip()
        if after[:1].islower() or _ABBREVIATION.search(paragraph, max(start, end.end() - 10), end.end()):
            continue
        yield paragraph[start : end.end()].strip()
        start = end.end()
    if rest := paragraph[start:].strip():
        yield rest
