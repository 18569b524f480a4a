"""Lines that a person means as items, and that Markdown reads as text: what is plain is taken, the rest is refused.

Taken are invisible differences, which an editor, a phone or another alphabet's keyboard makes: blanks of another kind
or of no width around the mark, full-width brackets, no space after `1.`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ..splice import BREAK

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


class Near(NamedTuple):
    """`meant` is the correct form, of the whole line if it is to be `taken`."""

    meant: str
    taken: bool = False


def may_be_taken(text: str) -> bool:
    """Whether a line of the text is taken, unless it is code. Costs no parse."""
    if not _HINT.search(text):
        return False
    return any((found := _TAKEN.match(line)) and _corrected(found) is not None for line in BREAK.split(text))


def near(line: str, *, is_first: bool) -> Near | None:
    """What a line of a paragraph is meant as. `is_first`: if it is an item, it is one in Markdown, too."""
    if (item := _ITEM.match(line)) is not None:
        return None if is_first else Near(_bulleted("-", line[item.end() - 2], line[item.end() :]))
    if (found := _TAKEN.match(line)) is not None and (taken := _corrected(found)) is not None:
        return Near(taken, True)
    if (found := _REFUSED.match(line)) is None:
        return None
    marks = (found[name] for name in ("mark", "black", "bulleted", "bare"))
    mark = next((each for each in marks if each), "x" if found["sign"] in ("☑", "☒") else " ")
    digits = re.sub(r"\D", "", found["number"] or "")
    return Near(_bulleted(f"{int(digits)}." if digits else "-", mark, found["rest"]))


def in_code(line: str) -> Near | None:
    """The same of the first line of a list item that begins with code, because it is indented too far."""
    found = _CODE.fullmatch(line)
    return None if found is None else Near(f"{found['marker']} {found['item']}".rstrip())


def _bulleted(marker: str, mark: str, rest: str) -> str:
    mark = mark.translate(_MARKS)
    return f"{marker} [{mark if mark in 'xX/-' else ' '}] {_trimmed(rest)}".rstrip()


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
    rest = rest if not rest or rest[0] in " \t" else f" {_trimmed(rest)}"
    mark = found["mark"].translate(_MARKS)
    line = f"{lead}{found['bullet'] or found['number']}{gap}[{mark if mark in 'xX/-' else ' '}]{rest}"
    return None if line == found[0] else line


def _trimmed(text: str) -> str:
    return re.sub(rf"\A{BLANK}+", "", text)
