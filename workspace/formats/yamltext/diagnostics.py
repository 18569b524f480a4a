"""Explain mistakes in YAML to people who do not know its specification.

The scanner's own messages ("mapping values are not allowed here") name what it could not do. There are few common
mistakes, so they are recognised by their line, and the error shows the corrected line.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import yaml
from yaml.error import MarkedYAMLError

from ....schemas import Problem
from ...base import lines, place

_ENTRY = re.compile(r"(?P<lead>\s*(?:- +)*(?:[^\s'\"#&*!|>%@`\[\]{},:][^:#]*: +)?)(?P<value>\S.*?)\s*")
_COLLECTION = re.compile(r"\[.*\]|\{(?!\{).*\}")  # the mistake is somewhere inside it
_HALF_QUOTED = re.compile(r"""^(['"])(.*?)\1?$""")
_STARTS = {
    "*": "an alias in YAML",
    "&": "an anchor in YAML",
    "!": "a tag in YAML",
    "@": "reserved in YAML",
    "`": "reserved in YAML",
    "%": "a directive in YAML",
    "|": "the start of a text block in YAML",
    ">": "the start of a folded text in YAML",
    "{": "the start of a mapping in YAML",
    "[": "the start of a list in YAML",
}


class Mark(NamedTuple):
    """A place in a text, all three counted from 0. PyYAML's own mark may be missing."""

    offset: int
    line: int
    column: int


def mark_of(mark: Any) -> Mark:
    """Our mark for one of PyYAML's."""
    return Mark(mark.index, mark.line, mark.column) if mark else Mark(0, 0, 0)


def syntax(text: str, error: MarkedYAMLError) -> Problem:
    """The problem behind an error of PyYAML's scanner or parser."""
    said = error.problem or "it can't be read"
    mark = mark_of(error.problem_mark or error.context_mark)
    started = mark_of(error.context_mark) if error.context_mark else mark
    line = _line(text, mark)
    before = line[: mark.column]
    if "\\t" in said:
        indents = not before.strip()
        expected = "spaces for indentation" if indents else "spaces between words"
        return Problem(at(mark), "a tab", expected, "Replace the tab by spaces")
    if said == "mapping values are not allowed here":
        if re.search(r":\s", before):
            return _second_colon(text, mark)
        return _indentation(mark, "a key under a key that already has a value")
    if "that cannot start any token" in said or error.context in (
        "while scanning an alias",
        "while scanning an anchor",
    ):
        sign = line[started.column : started.column + 1]
        return quote(text, started, *_sign(sign))
    if error.context == "while scanning a tag":
        return quote(text, started, *_sign("!"))
    if error.context == "while scanning a block scalar":
        return quote(text, started, *_sign(line[started.column : started.column + 1]))
    if error.context == "while scanning a simple key":
        return _no_colon(text, started)
    if "unexpected end of stream" in said or "unexpected document separator" in said:
        return Problem(at(started), "a quote that is never closed", "a closing quote", "Close it")
    if "escape character" in said or "hexadecimal" in said:
        remedy = "Use single quotes, or write \\\\ for a backslash"
        return Problem(at(mark), "an unknown escape with \\ in double quotes", "an escape that YAML has", remedy)
    if said.startswith("expected ',' or"):
        closing = said[len("expected ',' or '")]
        kind = "a list" if closing == "]" else "a mapping in braces"
        return Problem(at(started), f"{kind} that is not closed", f"a comma or {closing}", f"Add the {closing}")
    if said.startswith(("sequence entries are not allowed", "mapping keys are not allowed")):
        return quote(
            text, mark, "a value that begins with '- ' or '? '", "a list on lines of its own, or text in quotes"
        )
    if "<block mapping start>" in said or "<block sequence start>" in said:
        return _indentation(mark, "a line that is indented differently from the lines around it")
    if "'<scalar>'" in said and before.strip():
        return quote(text, mark, "text after the end of the value", "a value that is quoted as a whole")
    if "found ':'" in said:
        return Problem(at(mark), "a colon without a key before it", "KEY: VALUE", "Write the key, or quote the text")
    if "<stream end>" in said:
        return Problem(at(mark), "the end of the file", "a value, and a closing ] or }", "Complete the file")
    if "'-'" in said or "found '?'" in said:
        return _indentation(mark, "keys and list items mixed")
    return Problem(at(mark), f"what YAML can't read ({said})", "YAML", "Correct it, or put the text in quotes")


def at(mark: Mark) -> str:
    return f"line {mark.line + 1}, column {mark.column + 1}"


def quote(text: str, mark: Mark, found: str, expected: str) -> Problem:
    """A problem whose remedy is to quote the value; with the corrected line, if it is certain."""
    line = _line(text, mark)
    remedy = "Put the whole value in quotes"
    if (match := _ENTRY.fullmatch(line)) and not _COLLECTION.fullmatch(match["value"]):
        meant = _HALF_QUOTED.sub(r"\2", match["value"])
        corrected = match["lead"] + quoted(meant)
        if _value_of(corrected) == meant:
            remedy = f"Write {corrected.strip()}"
    return Problem(at(mark), f"{found}: {line.strip()[:80]}", expected, remedy)


def reference(text: str, mark: Mark) -> Problem:
    """An anchor, an alias or a tag: intended, or a text that begins like one."""
    problem = quote(text, mark, *_sign(text[mark.offset]))
    return problem._replace(remedy=f"{problem.remedy}; or write out the full value")


def cut_off(text: str, mark: Mark, rest: str) -> Problem:
    """`title: Fix issue #12` would silently be read as "Fix issue"."""
    found = f"a value that '{rest.split()[0][:20]}' cuts off"
    problem = quote(text, mark, found, "a value with ' #' in it in quotes, or a space after the # of a comment")
    return problem._replace(remedy=f"{problem.remedy}; or, if it is a comment, # {rest.lstrip('#').strip()[:40]}")


def quoted(value: str) -> str:
    if '"' not in value and "\\" not in value:
        return f'"{value}"'
    return "'" + value.replace("'", "''") + "'"


def _sign(sign: str) -> tuple[str, str]:
    meaning = _STARTS.get(sign, "not allowed there in YAML")
    return f"a value that begins with {sign}, which is {meaning}", f"a value that begins with {sign} in quotes"


def _indentation(mark: Mark, found: str) -> Problem:
    remedy = "Indent the keys of one mapping, and the items of one list, by the same number of spaces"
    return Problem(at(mark), found, "the same indentation", remedy)


def _second_colon(text: str, mark: Mark) -> Problem:
    """`arguments: amount: 500` may be meant as a mapping, or as text."""
    problem = quote(text, mark, "a second ': ' in the line", "a value with ': ' in it in quotes")
    entry = _ENTRY.fullmatch(_line(text, mark))
    if entry and re.fullmatch(r"[\w-]+: +[^\s:,{}\[\]#][^:,{}\[\]#]*", entry["value"]):
        meant = f"{entry['lead'].strip()} {{{entry['value']}}}"
        remedy = problem.remedy[:1].lower() + problem.remedy[1:]
        return problem._replace(
            expected="a mapping in braces, or text in quotes", remedy=f"Write {meant}; or, if it is text, {remedy}"
        )
    return problem


def _no_colon(text: str, mark: Mark) -> Problem:
    line = _line(text, mark).strip()
    match = re.fullmatch(r"(- +)?([\w.-]+):(\S.*)", line)
    if match:
        remedy = f"Write {match[1] or ''}{match[2]}: {match[3]}"
        return Problem(at(mark), f"no space after the colon: {line[:80]}", "KEY: VALUE", remedy)
    if re.match(r"-[^\s-]", line):
        return Problem(at(mark), f"no space after the hyphen: {line[:80]}", "- ITEM", f"Write - {line[1:]}")
    return Problem(at(mark), f"a line without a key: {line[:80]}", "KEY: VALUE", "Add the colon and a space")


def _line(text: str, mark: Mark) -> str:
    found = lines(text)
    return found[mark.line] if mark.line < len(found) else ""


def _value_of(line: str) -> object:
    """The one text in a line of YAML, which is small and the runtime's own correction."""
    try:
        value = yaml.safe_load(line)
    except yaml.YAMLError:
        return None
    while isinstance(value, dict | list) and len(value) == 1:
        value = next(iter(value.values())) if isinstance(value, dict) else value[0]
    return value


def unreadable(text: str, offset: int) -> Problem:
    """A character that no YAML may contain, or that only some programs treat as the end of a line."""
    character = text[offset]
    found = f"the invisible character U+{ord(character):04X}"
    return Problem(place(text, offset), found, "visible text", "Remove it, or write it as an escape in double quotes")
