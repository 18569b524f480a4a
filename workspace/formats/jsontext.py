"""JSON in files of people and strangers: read strictly, with places and remedies; written to be readable. The decoders
of JSON to types, and the small files of Satchel's own that only inform.

The fast parser tells no places. So a file with a mistake is read once more, slowly, by `scan`."""

from __future__ import annotations

import bisect
import contextlib
import json
import math
import re
import threading
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, NoReturn, TypeVar

import msgspec
from msgspec.json import Decoder

from ...schemas import Problem, Where, dotted, short
from ..base import InvalidFile, NotSerializable

T = TypeVar("T")

DEPTH = 100
"""The maximum nesting of lists and mappings in a file."""

_one_at_a_time = threading.RLock()


def load(text: str, path: str) -> Any:
    """The value in `text`; `path` is only named in errors. InvalidFile for everything that another reader may
    understand differently.

    Refused besides what is not JSON: NaN and Infinity, a repeated key, numbers too large, half surrogate pairs, and
    more than DEPTH levels.
    """
    try:
        value = json.loads(text, object_pairs_hook=_once, parse_constant=_refuse, parse_float=_finite)
        if _is_shallow(text, value):
            # A half surrogate pair may be a character or an escape; encoding the value finds both.
            text.encode()
            if "\\u" in text:
                json.dumps(value, ensure_ascii=False).encode()
            return value
    except (ValueError, RecursionError):
        pass
    _, problems = scan(text)
    raise InvalidFile(path, problems or [Problem("the file", "what is not JSON", "JSON", "Correct it")])


def dump(value: Any) -> str:
    """`value` as a file: two spaces, keys in their order, text as it is, a line break at the end.

    NotSerializable for what JSON can't express: NaN, half surrogate pairs, Python's own types. Not checked: that keys
    are text; a number as a key becomes text.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, check_circular=False)
        text = msgspec.json.format(text, indent=2) + "\n"  # with indent=, json.dumps is a Python loop
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise NotSerializable("a value can't be written as JSON", why=str(error)) from None
    return text


def place_of(text: str) -> Callable[[Where], str]:
    """Names the line of a path in a JSON file, for `schemas.problems`: `line 4 (data.items[3])`.

    The file is scanned only at the first question. For a missing path it is the line of the value that contains it.
    """
    lines: dict[Where, int] = {}

    def place(path: Where) -> str:
        if not lines:
            lines.update(scan(text)[0])
        nearest = path
        while nearest and nearest not in lines:
            nearest = nearest[:-1]
        return f"line {lines.get(nearest, 1)} ({dotted(path)})"

    return place


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) != len(pairs):
        raise ValueError("a key is given twice")
    return mapping


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def _finite(digits: str) -> float:
    if math.isinf(number := float(digits)):
        raise ValueError("a number is too large")
    return number


def _is_shallow(text: str, value: Any) -> bool:
    if text.count("[") + text.count("{") <= DEPTH:
        return True
    level, depth = [value], 0
    while level:
        depth += 1
        inner = (v.values() if isinstance(v, dict) else v for v in level if isinstance(v, dict | list))
        level = [item for items in inner for item in items if isinstance(item, dict | list)]
    return depth <= DEPTH


def decoder(kind: Any, **options: Any) -> Decoder[Any]:
    """A decoder of JSON to `kind`; the options are msgspec's. TypeError if msgspec can't decode to it. All code that
    decodes to a struct gets its decoder here, when its module is imported.

    msgspec analyses a struct when it first needs it, and stores the result with the class. It does so in Python code,
    so another thread may run in between. That thread sees an incomplete result and crashes with a segmentation fault
    (msgspec 0.22). So decoders are made one at a time.
    """
    with _one_at_a_time:
        return Decoder(kind, **options)


def encode(value: Any) -> bytes:
    """A file of Satchel's own, indented for people. `value` is a struct."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


def decode(data: bytes, decoder: Decoder[T]) -> T | None:
    """What such a file says. None if it is not valid: it only informs, so a broken one must not stop anything."""
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


_PROBLEMS = 20
_DIGITS = 4300  # more digits than this Python refuses to convert

_OPEN_TEXT = r'"[^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*+)*+'
_WORD = r"[^\s,:\[\]{}\"']+"
_TOKEN = (
    rf'[ \t\r\n]*+(?:(?P<text>{_OPEN_TEXT}")'
    r"|(?P<number>-?(?:0|[1-9][0-9]*)(?P<real>(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)(?![\w.+-]))"
    rf"|(?P<word>{_WORD})"
    r"|(?P<sign>[{}\[\]:,])"
    r"|(?P<other>(?s:.?)))"
)
_LITERALS = ("true", "false", "null")
_NOT_NUMBERS = ("NaN", "Infinity", "-Infinity")

Wanted = Literal["file", "value", "first item", "item", "first key", "key", "colon", "next", "end"]
"""What may come next: `next` is a comma or the closing sign, `end` the end of the file."""

_VALUES: tuple[Wanted, ...] = ("file", "value", "first item", "item")
_KEYS: tuple[Wanted, ...] = ("first key", "key")
_TEXTS = (*_KEYS, *_VALUES)
_CLOSABLE: tuple[Wanted, ...] = (*_KEYS, "first item", "item", "next")

_CLOSE_IT = 'Add the closing "; write a line break inside text as \\n'
_DOUBLE_IT = "Write \\\\ for a backslash"
_ADD_COMMA = "Add a comma at the end of the line"
_PLAIN_NUMBER = (
    "Write it without + or leading zeros, and with a digit on both sides of the point, "
    "or put it in quotes if it is text"
)


class _Slip(NamedTuple):
    """What to say about text that matches `pattern` at a place for `wanted`. The place is that of its group `at`."""

    wanted: tuple[Wanted, ...]
    pattern: str
    found: str
    expected: str
    remedy: str
    place: Literal["here", "opened", "comma", "before"] = "here"


_SLIPS = (
    _Slip((), r"//|/\*|#", "a comment", "JSON, which has no comments", "Remove the comment"),
    _Slip((), "\0", "NUL bytes", "JSON", "A power failure can leave such a file: restore it from a copy"),
    _Slip(("file",), "\ufeff", "a byte order mark", "plain UTF-8", "Save the file without a byte order mark"),
    _Slip(("file",), r"\s*\Z", "an empty file", "a JSON value", "Write {{}} for an empty mapping", "opened"),
    _Slip(("end",), "", "{word} after the end", "nothing after the value", "Remove what follows"),
    _Slip(_CLOSABLE, r"\Z", "a {kind} that is never closed", "a {close}", "Add the {close}", "opened"),
    _Slip(("key",), r"\}", "a comma after the last key", "no comma before }}", "Remove the comma", "comma"),
    _Slip(("item",), r"\]", "a comma after the last item", "no comma before ]", "Remove the comma", "comma"),
    _Slip(_TEXTS, rf"{_OPEN_TEXT}(?:[\r\n]|\Z)", "text that is not closed in its line", 'a closing "', _CLOSE_IT),
    _Slip(_TEXTS, rf"{_OPEN_TEXT}(?P<at>\\.?)", "the unknown escape {word}", "an escape that JSON has", _DOUBLE_IT),
    _Slip(_TEXTS, rf"{_OPEN_TEXT}(?P<at>\t)", "a tab inside text", "an escape", "Write {escaped}"),
    _Slip(
        _TEXTS, rf"{_OPEN_TEXT}(?P<at>.)", "the control character {code} inside text", "an escape", "Write {escaped}"
    ),
    _Slip(_KEYS, "'", "a key in single quotes", "a key in double quotes", "Use \" instead of '"),
    _Slip(_KEYS, _WORD, "the key {word} without quotes", "a key in double quotes", "Write {quoted}"),
    _Slip(_KEYS, "", "{word} where a key belongs", "a key in double quotes", "Correct it"),
    _Slip(("colon",), "", "{word} after the key {key}", "a colon", 'Write "KEY": VALUE'),
    _Slip(("next",), rf'["{{\[]|(?!/){_WORD}', "no comma before {word}", "a comma", _ADD_COMMA, "before"),
    _Slip(("next",), "", "{word}", "a comma or {close}", "Correct it"),
    _Slip(_VALUES, rf"True(?!{_WORD})", "True", "true", "Write true"),
    _Slip(_VALUES, rf"False(?!{_WORD})", "False", "false", "Write false"),
    _Slip(_VALUES, rf"(?:None|undefined)(?!{_WORD})", "{word}", "null", "Write null"),
    _Slip(_VALUES, "'", "text in single quotes", "text in double quotes", "Use \" instead of '"),
    _Slip(_VALUES, r"[-+.\d]", "{word}", "a JSON number", _PLAIN_NUMBER),
    _Slip(_VALUES, r"[,\]}:]", "{word} where a value belongs", "a value", "Add the value, or write null"),
    _Slip(_VALUES, r"\Z", "the end of the file", "a value", "Complete the file"),
    _Slip(_VALUES, "", "{word} without quotes", "a value", "Put text in double quotes: {quoted}"),
)
"""The first that fits counts. Without `wanted` it may be anywhere. Its pattern is compiled when it is needed, as that
of a token is: only errors need them, and every start of an agent imports this."""


def scan(text: str) -> tuple[dict[Where, int], list[Problem]]:
    """A slow second look at a text: the line of every value by its path (a key's own line, in a mapping), and the
    problems in the file's order.

    After a fault of syntax nothing further is looked at.
    """
    scanner = _Scanner(text)
    with contextlib.suppress(_Stop):
        scanner.file()
    return scanner.lines, scanner.problems


class _Stop(Exception):
    pass


class _Open(NamedTuple):
    """A mapping or list that is not closed yet."""

    at: int
    close: str
    keys: dict[str, int]
    """The line of each, in a mapping."""


class _Scanner:
    def __init__(self, text: str):
        self.text = text
        self.lines: dict[Where, int] = {}
        self.problems: list[Problem] = []
        self.open = [_Open(0, "", {})]
        self.path: list[str | int] = []
        self.comma = 0
        self._starts = [0, *(match.end() for match in re.finditer(r"\r\n|\r|\n", text))]

    def file(self) -> None:
        wanted: Wanted = "file"
        end = 0
        pattern = re.compile(_TOKEN)
        while token := pattern.match(self.text, end):
            at, end = token.start(token.lastgroup or 0), token.end()
            if wanted == "end" and at == len(self.text):
                return
            wanted = self._following(wanted, token, at) or self._slip(wanted, token, at)

    def _following(self, wanted: Wanted, token: re.Match[str], at: int) -> Wanted | None:
        """What may follow a token; None if the token was not allowed."""
        sign, opened = token["sign"], self.open[-1]
        if wanted in ("next", "first key", "first item") and sign == opened.close:
            self.open.pop()
            self.path.pop()
            return "next" if self.path else "end"
        if wanted in _VALUES:
            self.lines.setdefault(tuple(self.path), self._line(at))
            if sign in ("{", "["):
                if len(self.path) >= DEPTH:
                    self._stop(at, f"more than {DEPTH} nested levels", "fewer", "Use fewer levels")
                self.open.append(_Open(at, "}" if sign == "{" else "]", {}))
                self.path.append(0)
                return "first key" if sign == "{" else "first item"
            if self._is_scalar(token, at):
                return "next" if opened.close else "end"
        if wanted in _KEYS and token["text"]:
            self._key(token, at)
            return "colon"
        if wanted == "colon" and sign == ":":
            return "value"
        if wanted == "next" and sign == ",":
            self.comma = at
            self.path[-1] = self.path[-1] if opened.close == "}" else int(self.path[-1]) + 1
            return "key" if opened.close == "}" else "item"
        return None

    def _key(self, token: re.Match[str], at: int) -> None:
        key, keys, line = self._read(token["text"], at), self.open[-1].keys, self._line(at)
        if key in keys:
            remedy = f"Remove one of the two; the first is in line {keys[key]}"
            self._add(at, f"the key {short(key)} a second time", "each key once", remedy)
        self.path[-1] = key
        self.lines.setdefault(tuple(self.path), keys.setdefault(key, line))

    def _is_scalar(self, token: re.Match[str], at: int) -> bool:
        text, number, real, word = token.group("text", "number", "real", "word")
        if text:
            self._read(text, at)
        elif number and not real and len(number) > _DIGITS:
            self._add(at, "a number of more than 4300 digits", "a number JSON can hold", "Put it in quotes")
        elif real and math.isinf(float(number)):
            self._add(at, f"the number {number[:40]}, which is too large", "a smaller one", "Correct it")
        elif word in _NOT_NUMBERS:
            self._add(at, word, "a number JSON can hold", "Write null, or put it in quotes")
        return bool(text or number or word in _LITERALS or word in _NOT_NUMBERS)

    def _read(self, text: str, at: int) -> str:
        value: str = json.loads(text)
        if re.search(r"[\ud800-\udfff]", value):
            self._add(at, "half of a surrogate pair", "whole characters", "Write the character itself")
        return value

    def _slip(self, wanted: Wanted, token: re.Match[str], at: int) -> NoReturn:
        slips = [slip for slip in _SLIPS if wanted in (slip.wanted or (wanted,))]
        fits = ((slip, re.compile(slip.pattern).match(self.text, at)) for slip in slips)
        slip, match = next((slip, match) for slip, match in fits if match)
        word = token[token.lastgroup or 0][:40] or "the end of the file"
        if match.groupdict():
            at, word = match.start("at"), match["at"]
        opened, quoted = self.open[-1], json.dumps(word)
        said = {"word": word, "quoted": quoted, "escaped": quoted[1:-1], "code": f"U+{ord(word[:1] or ' '):04X}"}
        said |= {"close": opened.close, "kind": "mapping" if opened.close == "}" else "list"}
        said["key"] = short(str(self.path[-1]) if self.path else "")
        places = {"here": at, "opened": opened.at, "comma": self.comma, "before": len(self.text[:at].rstrip())}
        self._stop(places[slip.place], *(part.format(**said) for part in (slip.found, slip.expected, slip.remedy)))

    def _stop(self, at: int, found: str, expected: str, remedy: str) -> NoReturn:
        self._add(at, found, expected, remedy)
        raise _Stop

    def _line(self, offset: int) -> int:
        return bisect.bisect_right(self._starts, offset)

    def _add(self, offset: int, found: str, expected: str, remedy: str) -> None:
        line = self._line(offset)
        place = f"line {line}, column {offset - self._starts[line - 1] + 1}"
        self.problems.append(Problem(place, found, expected, remedy))
        if len(self.problems) == _PROBLEMS:
            raise _Stop
