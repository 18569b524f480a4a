"""A slow second look at JSON, taken when the first found a fault: where everything stands and what each slip is."""

from __future__ import annotations

import bisect
import contextlib
import json
import math
import re
from collections.abc import Mapping
from typing import Any, NoReturn

from ..schemas import Problem, Where, short

_SPACE = re.compile(r"[ \t\r\n]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?(?![\w.+-])")
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"')
_WORD = re.compile(r"[^\s,:\[\]{}\"']+")
_BREAK = re.compile(r"\r\n|\r|\n")
_LITERALS: Mapping[str, Any] = {"true": True, "false": False, "null": None}
_PYTHON = {"True": "true", "False": "false", "None": "null", "undefined": "null"}
_NOT_NUMBERS = ("NaN", "Infinity", "-Infinity")
PROBLEMS = 20
_DIGITS = 4300  # more digits than this Python refuses to convert


def scan(text: str, depth: int) -> tuple[dict[Where, int], list[Problem]]:
    """The line of every value by its path (a key's own line, in a mapping), and the problems in the file's order.

    After a fault of syntax nothing further is looked at.
    """
    scanner = _Scanner(text, depth)
    with contextlib.suppress(_Stop):
        scanner.file()
    return scanner.lines, scanner.problems


class _Stop(Exception):
    pass


class _Scanner:
    def __init__(self, text: str, depth: int):
        self.text, self.at, self.depth = text, 0, depth
        self.lines: dict[Where, int] = {}
        self.problems: list[Problem] = []
        self._starts = [0, *(match.end() for match in _BREAK.finditer(text))]

    def file(self) -> None:
        if self.text.startswith("\ufeff"):
            self._stop("a byte order mark", "plain UTF-8", "Save the file as UTF-8 without a byte order mark")
        if not self.text.strip():
            self._stop("an empty file", "a JSON value", "Write {} for an empty mapping")
        self._value(())
        self._space()
        if self.at < len(self.text):
            self._stop(f"{self._shown()} after the end", "nothing after the value", "Remove what follows")

    def _value(self, path: Where) -> None:
        self._space()
        self.lines.setdefault(path, self._line(self.at))
        sign = self.text[self.at : self.at + 1]
        if sign in ("{", "["):
            if len(path) >= self.depth:
                self._stop(f"more than {self.depth} levels inside each other", "fewer", "Use fewer levels")
            self.at += 1
            if sign == "{":
                self._mapping(path)
            else:
                self._list(path)
        elif sign == '"':
            self._string()
        else:
            self._scalar()

    def _mapping(self, path: Where) -> None:
        opened, keys = self.at - 1, dict[str, int]()
        if self._closes("}", opened):
            return
        while True:
            if self.text[self.at : self.at + 1] != '"':
                self._no_key()
            start = self.at
            key = self._string()
            if key in keys:
                remedy = f"Remove one of the two; the first is in line {keys[key]}"
                self._add(start, f"the key {short(key)} a second time", "each key once", remedy)
            keys.setdefault(key, self._line(start))
            self.lines.setdefault((*path, key), self._line(start))
            self._space()
            if self.text[self.at : self.at + 1] != ":":
                self._stop(f"{self._shown()} after the key {short(key)}", "a colon", 'Write "KEY": VALUE')
            self.at += 1
            self._value((*path, key))
            if self._ends("}", opened, "key"):
                return

    def _list(self, path: Where) -> None:
        opened, count = self.at - 1, 0
        if self._closes("]", opened):
            return
        while True:
            self._value((*path, count))
            count += 1
            if self._ends("]", opened, "item"):
                return

    def _closes(self, sign: str, opened: int) -> bool:
        self._space()
        if self.at >= len(self.text):
            kind = "mapping" if sign == "}" else "list"
            self._stop(f"a {kind} that is never closed", f"a {sign}", f"Add the {sign}", at=opened)
        if self.text[self.at] != sign:
            return False
        self.at += 1
        return True

    def _ends(self, sign: str, opened: int, noun: str) -> bool:
        """True behind the closing sign, False behind a comma that another key or item follows."""
        if self._closes(sign, opened):
            return True
        if self.text[self.at] != ",":
            starts = self.text[self.at] in '"{[' or _WORD.match(self.text, self.at)
            before = len(self.text[: self.at].rstrip())
            if starts and self.text[self.at] not in "/#":
                self._stop(
                    f"no comma before {self._shown()}", "a comma", "Add a comma at the end of the line", at=before
                )
            self._stop(self._shown(), f"a comma or {sign}", "Correct it")
        comma = self.at
        self.at += 1
        if self._closes(sign, opened):
            self._stop(f"a comma after the last {noun}", f"no comma before {sign}", "Remove the comma", at=comma)
        return False

    def _string(self) -> str:
        match = _STRING.match(self.text, self.at)
        if match is None:
            self._bad_string()
        start, self.at = self.at, match.end()
        value: str = json.loads(match[0])
        if any("\ud800" <= c <= "\udfff" for c in value):
            self._add(start, "half of a surrogate pair", "whole characters", "Write the character itself")
        return value

    def _bad_string(self) -> NoReturn:
        at = self.at + 1
        while match := re.compile(r'[^"\\\x00-\x1f]+|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})').match(self.text, at):
            at = match.end()
        sign = self.text[at : at + 1]
        if sign in ("", "\n", "\r"):
            remedy = 'Add the closing "; write a line break inside text as \\n'
            self._stop("text that is not closed in its line", 'a closing "', remedy)
        if sign == "\\":
            shown = self.text[at : at + 2]
            self._stop(f"the unknown escape {shown}", "one that JSON knows", "Write \\\\ for a backslash", at=at)
        said = "a tab" if sign == "\t" else f"the control character U+{ord(sign):04X}"
        self._stop(f"{said} inside text", "an escape", f"Write {json.dumps(sign)[1:-1]}", at=at)

    def _scalar(self) -> None:
        if match := _NUMBER.match(self.text, self.at):
            if len(match[0]) > _DIGITS and not (match[1] or match[2]):
                self._add(self.at, "a number of more than 4300 digits", "a number JSON can hold", "Put it in quotes")
            elif (match[1] or match[2]) and math.isinf(float(match[0])):
                self._add(self.at, f"the number {match[0][:40]}, which is too large", "a smaller one", "Correct it")
            self.at = match.end()
            return
        word = self._shown()
        if word in _LITERALS:
            self.at += len(word)
        elif word in _NOT_NUMBERS:
            self._add(self.at, word, "a number JSON can hold", "Write null, or put it in quotes")
            self.at += len(word)
        elif word in _PYTHON:
            self._stop(word, _PYTHON[word], f"Write {_PYTHON[word]}")
        elif word.startswith("'"):
            self._stop("text in single quotes", "text in double quotes", "Use \" instead of '")
        elif word[:1] in ("+", ".", "-") or word[:1].isdigit():
            remedy = "Write it without + or leading zeros, and with a digit on both sides of the point"
            self._stop(word, "a number as JSON writes it", f"{remedy}, or put it in quotes if it is text")
        elif word in (",", "]", "}", ":"):
            self._stop(f"{word} where a value belongs", "a value", "Add the value, or write null")
        elif self.at >= len(self.text):
            self._stop("the end of the file", "a value", "Complete the file")
        else:
            self._stop(f"{word} without quotes", "a value", f"Put text in double quotes: {json.dumps(word)}")

    def _no_key(self) -> NoReturn:
        word = self._shown()
        if word.startswith("'"):
            self._stop("a key in single quotes", "a key in double quotes", "Use \" instead of '")
        if _WORD.match(self.text, self.at):
            self._stop(f"the key {word} without quotes", "a key in double quotes", f"Write {json.dumps(word)}")
        self._stop(f"{word} where a key belongs", "a key in double quotes", "Correct it")

    def _space(self) -> None:
        match = _SPACE.match(self.text, self.at)
        self.at = match.end() if match else self.at
        if self.text.startswith(("//", "/*", "#"), self.at):
            self._stop("a comment", "JSON, which has none", "Remove the comment")

    def _shown(self) -> str:
        """What stands here, as far as it belongs together."""
        if self.at >= len(self.text):
            return "the end of the file"
        match = _WORD.match(self.text, self.at) or _STRING.match(self.text, self.at)
        return match[0][:40] if match else self.text[self.at]

    def _line(self, offset: int) -> int:
        return bisect.bisect_right(self._starts, offset)

    def _add(self, offset: int, found: str, expected: str, remedy: str) -> None:
        line = self._line(offset)
        place = f"line {line}, column {offset - self._starts[line - 1] + 1}"
        self.problems.append(Problem(place, found, expected, remedy))
        if len(self.problems) == PROBLEMS:
            raise _Stop

    def _stop(self, found: str, expected: str, remedy: str, *, at: int | None = None) -> NoReturn:
        self._add(self.at if at is None else at, found, expected, remedy)
        raise _Stop
