"""Take secrets out of what is about to be recorded, written or shown: `redact:` of workspace.yaml.

A secret is the value of an environment variable that is named there, or what a pattern there matches. It is replaced by
`[redacted:NAME]`, or by `[redacted]` for a pattern. Redacting twice is the same as redacting once.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from inspect import isgetsetdescriptor, ismemberdescriptor
from itertools import count
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

import msgspec

from ..schemas import Problem
from .base import AgentError, InvalidFile, Refused, SatchelError
from .formats import Definition

SHORTEST = 4
"""Characters. A shorter value would be found in every other word."""

_MARKER = re.compile(r"\[redacted(?::[A-Za-z0-9_]+)?\]")
"""What any process may have put in the place of a secret."""

_BEGINS = "[redacted"

_hidden: dict[str, None] | None = None
"""The texts that `hide` got, in their order, while `hiding`."""

LAG = 256
"""Characters at the end that wait for more text, if there are patterns. A longer match may show its beginning."""

_CONTEXT = 256
"""Characters before that a pattern may look back at."""

_KEPT = 4096


class Span(NamedTuple):
    """A secret in a text, and what is shown in its place."""

    begin: int
    end: int
    marker: str


class Redactor:
    """The secrets of one workspace, as this process knows them. False if there are none: then all methods return what
    they get.

    A variable's value is found as it is, with the escapes of JSON or of Python's `repr` (of a text, or of bytes in
    UTF-8), and percent-encoded as in a URL. Not found: base64, a value that is split over two texts, a number, and a
    variable that this process does not have.
    """

    def __init__(self, patterns: tuple[str, ...] = (), values: Mapping[str, str] | None = None):
        """`values` are secrets by the name that is shown in their place, empty if this process has none of that name.
        `patterns` are regular expressions of `re`."""
        values = values or {}
        self.not_set = [name for name, value in values.items() if not value]
        self._names = {form: name for name, value in values.items() if value for form in _forms(value)}
        known = "".join(f"|:{re.escape(name)}" for name in values)  # another word there may itself be a secret
        self._markers = re.compile(rf"\[redacted(?:{known})\]")
        longest = sorted(self._names, key=len, reverse=True)  # one value may begin like another
        self._values = re.compile("|".join([self._markers.pattern, *map(re.escape, longest)])) if longest else None
        self._patterns = tuple(re.compile(pattern) for pattern in patterns)

    def __bool__(self) -> bool:
        return self._values is not None or bool(self._patterns)

    def __reduce__(self) -> tuple[Any, ...]:
        return Redactor, ()  # the secrets do not travel with a pickled report

    @property
    def has_patterns(self) -> bool:
        return bool(self._patterns)

    def text(self, text: str) -> str:
        """`text` without secrets."""
        if self._values is not None:
            text = self._values.sub(self._marker, text)
        for pattern in self._patterns:
            text = self._outside_markers(text, partial(pattern.sub, _marked))
        return text

    def _outside_markers(self, text: str, change: Callable[[str], str]) -> str:
        """`text` changed in all parts but the markers, which a pattern might match."""
        if _BEGINS not in text:
            return change(text)
        parts, at = [], 0
        for marker in self._markers.finditer(text):
            parts += [change(text[at : marker.start()]), marker[0]]
            at = marker.end()
        return "".join([*parts, change(text[at:])])

    def _marker(self, match: re.Match[str]) -> str:
        name = self._names.get(match[0])
        return match[0] if name is None else f"[redacted:{name}]"

    def value(self, value: Any) -> Any:
        """A JSON value, with each text in it redacted, keys too. The same object if nothing had to be."""
        match value:
            case str():
                found = self.text(value)
                return value if found == value else found
            case dict():
                pairs = {self.value(key): self.value(each) for key, each in value.items()}
                if len(pairs) < len(value):
                    pairs = dict(zip(_told_apart(map(self.value, value)), map(self.value, value.values()), strict=True))
                is_same = all(pairs.get(key) is each for key, each in value.items())
                return value if is_same else pairs
            case list() | tuple():
                items = [self.value(each) for each in value]
                if all(new is old for new, old in zip(items, value, strict=True)):
                    return value
                return items if isinstance(value, list) else tuple(items)
        return value

    def json(self, data: bytes) -> bytes:
        """JSON, with each text in it redacted: the decoded one, so that no escape hides a secret. The same bytes if
        nothing had to be. ValueError if it can't be read."""
        if not self or not data:
            return data
        value = msgspec.json.decode(data)
        found = self.value(value)
        return data if found is value else msgspec.json.encode(found)

    def file(self, path: str, data: bytes) -> bytes:
        """The content of a file without secrets, for a copy that leaves the workspace. JSON and lines of JSON stay
        valid; their checksums are those of the original. A file that is not text loses the values of variables only."""
        if not self:
            return data
        try:
            if path.endswith(".json"):
                return self.json(data)
            if path.endswith(".jsonl"):
                return b"\n".join(self.json(line) for line in data.split(b"\n"))
        except (ValueError, RecursionError):
            pass  # torn, or not what its name says: as text
        return self.data(data)

    def data(self, data: bytes) -> bytes:
        """Text in UTF-8 without secrets. Other bytes lose the values of variables only."""
        if not self:
            return data
        try:
            text = data.decode()
        except UnicodeDecodeError:
            for form in sorted(self._names, key=len, reverse=True):
                if _bytes(form) in data:
                    data = data.replace(_bytes(form), f"[redacted:{self._names[form]}]".encode())
            return data
        found = self.text(text)
        return data if found == text else found.encode()

    def output(self, path: str, content: str | bytes) -> bytes:
        """What an agent writes to the file `path`. AgentError for a secret in its name, or in bytes that are no text,
        which a replacement would destroy."""
        self.check_name(path.rpartition("outputs/")[2])
        data = content.encode() if isinstance(content, str) else content
        found = self.data(data)
        if found is not data and data.decode(errors="ignore").encode() != data:
            raise AgentError(
                "has a secret", path=path, why="it is no text, so it can't be redacted", remedy="leave it out"
            )
        return found

    def check_name(self, name: str) -> None:
        """AgentError if a name that an agent gives has a secret: names are compared, so it can't be replaced."""
        for _, rule in self.found_in(name):
            raise AgentError(f"the name {self.text(name)!r} has a secret", why=rule, remedy="give it another name")

    def found_in(self, value: Any, place: str = "") -> Iterator[tuple[str, str]]:
        """The places of a JSON value that hold secrets, from `place` on, each with the rule that says so. Names the
        secret nowhere."""
        match value:
            case str():
                if (rule := self._rule(value)) is not None:
                    yield place, rule
            case dict():
                for key, each in value.items():
                    if (rule := self._rule(str(key))) is not None:
                        yield f"{place}.{self.text(str(key))}", rule
                    yield from self.found_in(each, f"{place}.{self.text(str(key))}")
            case list() | tuple():
                for number, each in enumerate(value):
                    yield from self.found_in(each, f"{place}[{number}]")

    def _rule(self, text: str) -> str | None:
        """The first rule that finds a secret in `text`."""
        if self._values is not None:
            for match in self._values.finditer(text):
                if (name := self._names.get(match[0])) is not None:
                    return f"it contains the value of {name}"
        for number, pattern in enumerate(self._patterns, 1):
            if any(pattern.search(part) for part in self._markers.split(text)):
                return f"it contains what pattern {number} of `redact:` matches"
        return None

    def rest(self, text: str) -> int:
        """Where the end of a text begins that may be the beginning of a value, if more text follows. The text's length
        if it is none."""
        begins = len(text)
        for form in self._names:
            at = text.find(form[0], max(0, len(text) - len(form) + 1), begins)
            while at >= 0 and not form.startswith(text[at:]):
                at = text.find(form[0], at + 1, begins)
            begins = begins if at < 0 else at
        return begins

    def spans(self, text: str, start: int = 0) -> list[Span]:
        """Where the secrets in `text` are, in their order: those that the method `text` replaces. The part before
        `start` has been looked at, and has none; patterns may look back at it."""
        found, gaps, at = [], [], 0
        for match in (self._values or self._markers).finditer(text):
            if (name := self._names.get(match[0])) is not None:
                found.append(Span(*match.span(), f"[redacted:{name}]"))
            gaps.append((at, match.start()))
            at = match.end()
        gaps.append((at, len(text)))
        for pattern in self._patterns:
            left = []
            for begin, end in gaps:
                at = begin
                for match in pattern.finditer(text[begin:end], max(0, start - begin)):
                    if match[0]:
                        found.append(Span(begin + match.start(), begin + match.end(), "[redacted]"))
                        left.append((at, begin + match.start()))
                        at = begin + match.end()
                left.append((at, end))
            gaps = left
        return sorted(found)


class _Hiding(Redactor):
    """Finds what `hide` gets, too, but is no rule about it: a state or a name that has it is no error."""

    def __bool__(self) -> bool:
        return bool(_hidden) or super().__bool__()

    def text(self, text: str) -> str:
        return _of_hidden(tuple(_hidden or ())).text(super().text(text))


@lru_cache(maxsize=1)
def _of_hidden(texts: tuple[str, ...]) -> Redactor:
    return Redactor(values={f"sealed_{number}": text for number, text in enumerate(texts, 1)})


@contextmanager
def hiding() -> Iterator[None]:
    """In the block each redactor that `redactor_of` makes finds what `hide` gets, too."""
    global _hidden
    before, _hidden = _hidden, {}
    try:
        yield
    finally:
        _hidden = before


def hide(text: str) -> None:
    """A text is known that no file may show. Without effect outside of `hiding`, or if it is very short."""
    if _hidden is not None and len(text) >= SHORTEST:
        _hidden[text] = None


def redactor_of(definition: Definition, environ: Mapping[str, str] | None = None) -> Redactor:
    """The redactor of a workspace, with the values that the variables have in this process now. A variable that is not
    set, or empty, has no value to find. Refused for a value of fewer than 4 characters."""
    rules = definition.redact
    values = {}
    for name in rules.env:
        value = (os.environ if environ is None else environ).get(name, "")
        if value and len(value) < SHORTEST:
            raise Refused(
                f"names {name} under `redact:`, whose value has only {len(value)} characters",
                path="workspace.yaml",
                why="a text so short occurs everywhere",
                remedy=f"give {name} a longer value, or leave it out there",
            )
        values[name] = value
    return (Redactor if _hidden is None else _Hiding)(rules.patterns, values)


def as_recorded(known: Any, value: Any) -> Any:
    """A JSON `value`, with each text that fits a redacted one in the same place of `known` replaced by that one: a
    process without the variable can't redact it, and must not take it for another text."""
    match known, value:
        case str(), str() if _BEGINS in known:
            first, *others = map(re.escape, _MARKER.split(known))
            gaps = [f"(?>.+?{text})" for text in others[:-1]] + [
                f".+{text}" for text in others[-1:]
            ]  # takes linear time
            return known if re.fullmatch("".join([first, *gaps]), value, re.DOTALL) else value
        case dict(), dict():
            return {key: as_recorded(known.get(key), each) for key, each in value.items()}
        case list(), list():
            return [*map(as_recorded, [*known, *[None] * len(value)], value)]
    return value


def _told_apart(keys: Iterable[str]) -> Iterator[str]:
    """Two keys may have become the same: the later one gets a number, so that no value is lost."""
    used: set[str] = set()
    for key in keys:
        numbered = (f"{key} {number}" for number in count(2))
        found = key if key not in used else next(each for each in numbered if each not in used)
        used.add(found)
        yield found


def _forms(value: str) -> Iterator[str]:
    """How a value may be written."""
    as_json = json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]
    as_repr = "".join(each if each in "'\"" else repr(each)[1:-1] for each in value)
    of_bytes = "".join(each if each in "'\"" else repr(_bytes(each))[2:-1] for each in value)
    written = (each.replace("'", escaped) for each in (as_repr, of_bytes) for escaped in ("'", "\\'"))
    yield from {value, *as_json, *written, quote(_bytes(value)), quote(_bytes(value), safe="")}


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogateescape")  # a variable may be no text


def _marked(match: re.Match[str]) -> str:
    return "[redacted]" if match[0] else ""


class RedactedStream:
    """`text` is what can be shown so far; it only grows. Nothing of a secret is in it, except of a match of a pattern
    that begins more than LAG characters before its end has arrived."""

    def __init__(self, redactor: Redactor):
        self._redactor = redactor
        self._before = ""  # the end of what is shown and not in `_raw`
        self._raw = ""  # what is not shown yet, and some text before
        self._shown = 0  # characters of it

    def follow(self, text: str) -> None:
        """Before the first piece: the stream continues a text that is shown already."""
        self._before = text[-_CONTEXT:]

    def add(self, text: str) -> str:
        """The next piece. Returns what can be shown now, in addition."""
        self._raw += text
        lag = LAG if self._redactor.has_patterns else 0
        return self._show(min(self._redactor.rest(self._raw), len(self._raw) - lag))

    def end(self) -> str:
        """No more text comes. Returns the rest of what can be shown."""
        return self._show(len(self._raw))

    def _show(self, up_to: int) -> str:
        parts, at = [], self._shown
        spans = self._spans()
        for begin, end, marker in spans:
            if end <= at:
                continue
            if begin >= up_to:
                break
            if end > up_to:  # more text may make it longer
                up_to = begin
                break
            parts += [self._raw[at:begin], marker] if begin >= at else []
            at = end
        if up_to > at:
            parts.append(self._raw[at:up_to])
            at = up_to
        self._shown = at
        if self._shown > _KEPT:
            self._cut(spans)
        return "".join(parts)

    def _spans(self) -> list[Span]:
        begins = len(self._before)
        found = self._redactor.spans(self._before + self._raw, begins)
        return [Span(begin - begins, end - begins, marker) for begin, end, marker in found]

    def _cut(self, spans: list[Span]) -> None:
        """Forget what was shown long ago, up to a place that is in no secret: a pattern finds the same after it."""
        cut, before, at = self._shown - _CONTEXT, self._before, 0
        for begin, end, marker in spans:
            if begin >= cut:
                break
            before += self._raw[at:begin] + marker
            at, cut = end, max(cut, end)
        before += self._raw[at:cut]
        self._before, self._raw, self._shown = before[-_CONTEXT:], self._raw[cut:], self._shown - cut


_T = TypeVar("_T")


def scrub(error: BaseException, redactor: Redactor) -> None:
    """Redact the arguments, attributes and notes of `error`, of its causes and of the members of a group, in place: so
    the caller gets what a re-entry gets from the record. Not guaranteed: an exception that keeps its text elsewhere, as
    a group and those of compiled libraries do. Its record is redacted all the same."""
    waiting: list[BaseException | None] = [error]
    seen: set[int] = set()
    while waiting:
        each = waiting.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        for name in [*_attributes(each)]:
            with suppress(Exception):  # its class may refuse
                if (new := redactor.value(old := getattr(each, name))) is not old:
                    setattr(each, name, new)
        waiting += [each.__cause__, each.__context__]
        if isinstance(each, BaseExceptionGroup):
            waiting += each.exceptions


@contextmanager
def scrubbed(redactor: Redactor) -> Iterator[None]:
    """An error of Satchel that leaves the block quotes no secret: it is shown to people."""
    try:
        yield
    except SatchelError as error:
        scrub(error, redactor)
        raise


def parsed(parse: Callable[[bytes], _T], data: bytes, redactor: Redactor) -> _T:
    """What `parse` returns of a file that a person has typed. Its InvalidFile quotes no secret, nor a part of one: an
    error shortens what it quotes, and nothing would find the rest of a secret in it."""
    try:
        return parse(data)
    except InvalidFile as error:
        hidden = redactor.data(data)
        if hidden is data:
            raise
        parse(hidden)  # is not valid for the same reason
        raise InvalidFile(error.path or "", [Problem("", "a secret", "a valid file", "Take the secret out")]) from None


def _attributes(error: BaseException) -> Iterator[str]:
    """Also those that its class keeps outside its `__dict__`, as `msg` of an ImportError and what is in `__slots__`."""
    yield from vars(error)
    for each in type(error).__mro__:
        for name, found in vars(each).items():
            if (ismemberdescriptor(found) or isgetsetdescriptor(found)) and not name.startswith("__"):
                yield name
