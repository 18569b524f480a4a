"""Read YAML of people and strangers: values as in JSON, the place of each in the file, and mistakes explained.

The people do not know YAML's specification, and the scanner's own messages ("mapping values are not allowed here") name
what it could not do. There are few common mistakes, so they are recognised by their line, and the error shows the
corrected line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple, NoReturn

import yaml
from msgspec import Struct, field
from yaml.error import MarkedYAMLError

from ...schemas import Problem, Where, dotted, short
from ..base import InvalidFile, lines, place
from .yaml_plain import resolve

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

DEPTH = 32
PROBLEMS = 20

_UNREADABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ufffe\uffff\ud800-\udfff]|(?<!^)\ufeff")
_HASH = re.compile(r"[ ]+(#[^\s#!][^\r\n]*)")


class Mark(NamedTuple):
    """A place in a text, all three counted from 0. PyYAML's own mark may be missing."""

    offset: int
    line: int
    column: int


class YamlNode(Struct):
    """A value and its place: offsets into the text in characters. `end` may include what follows it."""

    kind: Literal["scalar", "mapping", "sequence"]
    value: Any
    mark: Mark
    end: int
    style: Literal["plain", "quoted", "block", "flow"]
    items: dict[str | int, YamlNode] = field(default_factory=dict)
    keys: dict[str, YamlNode] = field(default_factory=dict)

    @property
    def start(self) -> int:
        return self.mark.offset


class YamlDocument(Struct, frozen=True):
    """The content of a YAML file. `root` is None if it is empty."""

    value: Any
    root: YamlNode | None

    def line(self, path: Where) -> int:
        """The line of a key or an item, from 1; of the nearest value around it if there is no such key."""
        node, line = self.root, 1
        for part in path:
            if node is None or part not in node.items:
                break
            key = node.keys.get(part) if isinstance(part, str) else None
            node = node.items[part]
            line = (key or node).mark.line + 1
        return line

    def place(self, path: Where) -> str:
        """`line 4 (settings.model)`, for `schemas.problems`."""
        return f"line {self.line(path)} ({dotted(path)})"


def read(text: str, path: str) -> YamlDocument:
    """See `yamltext.load`."""
    if bad := _UNREADABLE.search(text):
        raise InvalidFile(path, [_unreadable_problem(text, bad.start())])
    reader = _Reader(text)
    try:
        root = reader.document()
    except MarkedYAMLError as error:
        reader.problems.append(_syntax_problem(text, error))
    except _Refused:
        pass
    else:
        if not reader.problems:
            return YamlDocument(root.value if root else None, root)
    raise InvalidFile(path, reader.problems)


def _mark_of(mark: Any) -> Mark:
    """Our mark for one of PyYAML's."""
    return Mark(mark.index, mark.line, mark.column) if mark else Mark(0, 0, 0)


def _start(event: yaml.Event) -> Mark:
    return _mark_of(event.start_mark)


def _end(event: yaml.Event) -> int:
    return _mark_of(event.end_mark).offset


class _Refused(Exception):
    """Nothing after this place can be trusted."""


class _Reader:
    """Makes nodes from PyYAML's events. PyYAML's composer would follow aliases and any depth before we could refuse."""

    def __init__(self, text: str):
        self.text = text
        self.problems: list[Problem] = []
        self._loader = yaml.SafeLoader(text)
        self._events = self._read()

    def _read(self) -> Iterator[yaml.Event]:
        try:
            while self._loader.check_event():
                yield self._loader.get_event()  # type: ignore[no-untyped-call]
        except (ValueError, OverflowError):  # "\UFFFFFFFF": PyYAML hands it to chr() unseen
            mark = _mark_of(self._loader.get_mark())
            self._refuse(mark, "an escape for a character that does not exist", "Correct the escape")

    def document(self) -> YamlNode | None:
        next(self._events)  # the stream's start
        event = next(self._events)
        if not isinstance(event, yaml.DocumentStartEvent):
            return None
        if event.version or event.tags:
            self._refuse(_start(event), "a line that begins with %", "Remove it")
        root = self._node(next(self._events), 1)
        next(self._events)  # the document's end
        event = next(self._events)
        if isinstance(event, yaml.DocumentStartEvent):
            self._refuse(_start(event), "a second document", "Remove the line --- and what follows it")
        return root

    def _node(self, event: yaml.Event, depth: int) -> YamlNode:
        if isinstance(event, yaml.AliasEvent):
            self._tell(_reference_problem(self.text, _start(event)))
            return YamlNode("scalar", None, _start(event), _end(event), "plain")
        assert isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent)
        if event.anchor is not None or event.tag is not None:
            self._tell(_reference_problem(self.text, _start(event)))
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event)
        if depth > DEPTH:
            self._refuse(_start(event), f"more than {DEPTH} nested levels", "Use fewer levels")
        if isinstance(event, yaml.MappingStartEvent):
            return self._mapping(event, depth)
        return self._sequence(event, depth)

    def _scalar(self, event: yaml.ScalarEvent) -> YamlNode:
        mark, end = _start(event), _end(event)
        if event.style is None and event.tag is None:
            try:
                return YamlNode("scalar", resolve(event.value), mark, end, "plain")
            except ValueError as error:
                self._add(mark, str(error), "a number that JSON can hold", "Put it in quotes if it is a text")
        if any("\ud800" <= c <= "\udfff" for c in event.value):
            self._add(mark, "half of a surrogate pair", "whole characters", "Write the character itself")
        return YamlNode("scalar", event.value, mark, end, "block" if event.style in ("|", ">") else "quoted")

    def _sequence(self, start: yaml.CollectionStartEvent, depth: int) -> YamlNode:
        node = YamlNode("sequence", [], _start(start), 0, "flow" if start.flow_style else "block")
        for event in self._events:
            if isinstance(event, yaml.SequenceEndEvent):
                node.end = _end(event)
                break
            item = self._value(event, depth)
            node.items[len(node.value)] = item
            node.value.append(item.value)
        return node

    def _mapping(self, start: yaml.MappingStartEvent, depth: int) -> YamlNode:
        node = YamlNode("mapping", {}, _start(start), 0, "flow" if start.flow_style else "block")
        for event in self._events:
            if isinstance(event, yaml.MappingEndEvent):
                node.end = _end(event)
                break
            key = self._node(event, depth + 1)
            value = self._value(next(self._events), depth)
            name = self._name(key, node)
            if name is not None:
                node.keys[name], node.items[name], node.value[name] = key, value, value.value
        return node

    def _value(self, event: yaml.Event, depth: int) -> YamlNode:
        node = self._node(event, depth + 1)
        if node.style == "plain" and (rest := _HASH.match(self.text, node.end)):
            self._tell(_cut_off_problem(self.text, node.mark, rest[1]))
        return node

    def _name(self, key: YamlNode, into: YamlNode) -> str | None:
        """The key's text, or None if it can't be a key."""
        if key.kind != "scalar":
            line = self.text[into.start :].split("\n", 1)[0]
            if line.startswith("{{"):
                self._tell(_quote_problem(self.text, into.mark, "a template", "a value that begins with { in quotes"))
            else:
                self._add(key.mark, f"{short(key.value)} as a key", "text", "Use a word as the key")
        elif not isinstance(key.value, str):
            shown = self.text[key.start : key.end] or "nothing"
            self._add(key.mark, f"the key {shown}, which is not text", "text", "Put the key in quotes")
        elif key.value == "<<" and key.style == "plain":
            self._add(key.mark, "the merge key <<", "all keys written out", "Copy the keys here")
        elif key.value in into.items:
            first = into.keys[key.value].mark.line + 1
            remedy = f"Remove one of the two; the first is in line {first}"
            self._add(key.mark, f"the key {short(key.value)} a second time", "each key once", remedy)
        else:
            return key.value
        return None

    def _add(self, mark: Mark, found: str, expected: str, remedy: str) -> None:
        self._tell(Problem(_place_of(mark), found, expected, remedy))

    def _tell(self, problem: Problem) -> None:
        self.problems.append(problem)
        if len(self.problems) == PROBLEMS:  # each takes a look at the whole text, and a bomb has very many
            raise _Refused

    def _refuse(self, mark: Mark, found: str, remedy: str) -> NoReturn:
        self._add(mark, found, "one plain document of keys and values", remedy)
        raise _Refused


def _syntax_problem(text: str, error: MarkedYAMLError) -> Problem:
    """The problem behind an error of PyYAML's scanner or parser."""
    said = error.problem or "it can't be read"
    mark = _mark_of(error.problem_mark or error.context_mark)
    started = _mark_of(error.context_mark) if error.context_mark else mark
    line = _line(text, mark)
    before = line[: mark.column]
    if "\\t" in said:
        indents = not before.strip()
        expected = "spaces for indentation" if indents else "spaces between words"
        return Problem(_place_of(mark), "a tab", expected, "Replace the tab by spaces")
    if said == "mapping values are not allowed here":
        if re.search(r":\s", before):
            return _second_colon(text, mark)
        return _indentation(mark, "a key under a key that already has a value")
    if "that cannot start any token" in said or error.context in (
        "while scanning an alias",
        "while scanning an anchor",
    ):
        sign = line[started.column : started.column + 1]
        return _quote_problem(text, started, *_sign(sign))
    if error.context == "while scanning a tag":
        return _quote_problem(text, started, *_sign("!"))
    if error.context == "while scanning a block scalar":
        return _quote_problem(text, started, *_sign(line[started.column : started.column + 1]))
    if error.context == "while scanning a simple key":
        return _no_colon(text, started)
    if "unexpected end of stream" in said or "unexpected document separator" in said:
        return Problem(_place_of(started), "a quote that is never closed", "a closing quote", "Close it")
    if "escape character" in said or "hexadecimal" in said:
        remedy = "Use single quotes, or write \\\\ for a backslash"
        return Problem(_place_of(mark), "an unknown escape with \\ in double quotes", "an escape that YAML has", remedy)
    if said.startswith("expected ',' or"):
        closing = said[len("expected ',' or '")]
        kind = "a list" if closing == "]" else "a mapping in braces"
        return Problem(_place_of(started), f"{kind} that is not closed", f"a comma or {closing}", f"Add the {closing}")
    if said.startswith(("sequence entries are not allowed", "mapping keys are not allowed")):
        return _quote_problem(
            text, mark, "a value that begins with '- ' or '? '", "a list on lines of its own, or text in quotes"
        )
    if "<block mapping start>" in said or "<block sequence start>" in said:
        return _indentation(mark, "a line that is indented differently from the lines around it")
    if "'<scalar>'" in said and before.strip():
        return _quote_problem(text, mark, "text after the end of the value", "a value that is quoted as a whole")
    if "found ':'" in said:
        return Problem(
            _place_of(mark), "a colon without a key before it", "KEY: VALUE", "Write the key, or quote the text"
        )
    if "<stream end>" in said:
        return Problem(_place_of(mark), "the end of the file", "a value, and a closing ] or }", "Complete the file")
    if "'-'" in said or "found '?'" in said:
        return _indentation(mark, "keys and list items mixed")
    return Problem(_place_of(mark), f"what YAML can't read ({said})", "YAML", "Correct it, or put the text in quotes")


def _second_colon(text: str, mark: Mark) -> Problem:
    """`arguments: amount: 500` may be meant as a mapping, or as text."""
    problem = _quote_problem(text, mark, "a second ': ' in the line", "a value with ': ' in it in quotes")
    entry = _ENTRY.fullmatch(_line(text, mark))
    if entry and re.fullmatch(r"[\w-]+: +[^\s:,{}\[\]#][^:,{}\[\]#]*", entry["value"]):
        meant = f"{entry['lead'].strip()} {{{entry['value']}}}"
        remedy = problem.remedy[:1].lower() + problem.remedy[1:]
        return problem._replace(
            expected="a mapping in braces, or text in quotes", remedy=f"Write {meant}; or, if it is text, {remedy}"
        )
    return problem


def _quote_problem(text: str, mark: Mark, found: str, expected: str) -> Problem:
    """A problem whose remedy is to quote the value; with the corrected line, if it is certain."""
    line = _line(text, mark)
    remedy = "Put the whole value in quotes"
    if (match := _ENTRY.fullmatch(line)) and not _COLLECTION.fullmatch(match["value"]):
        meant = _HALF_QUOTED.sub(r"\2", match["value"])
        corrected = match["lead"] + _quoted(meant)
        if _text_at_the_end(corrected) == meant:
            remedy = f"Write {corrected.strip()}"
    return Problem(_place_of(mark), f"{found}: {line.strip()[:80]}", expected, remedy)


def _reference_problem(text: str, mark: Mark) -> Problem:
    """An anchor, an alias or a tag: intended, or a text that begins like one."""
    problem = _quote_problem(text, mark, *_sign(text[mark.offset]))
    return problem._replace(remedy=f"{problem.remedy}; or write out the full value")


def _cut_off_problem(text: str, mark: Mark, rest: str) -> Problem:
    """`title: Fix issue #12` would silently be read as "Fix issue"."""
    found = f"a value that '{rest.split()[0][:20]}' cuts off"
    problem = _quote_problem(
        text, mark, found, "a value with ' #' in it in quotes, or a space after the # of a comment"
    )
    return problem._replace(remedy=f"{problem.remedy}; or, if it is a comment, # {rest.lstrip('#').strip()[:40]}")


def _unreadable_problem(text: str, offset: int) -> Problem:
    """A character that no YAML may contain, or that only some programs treat as the end of a line."""
    character = text[offset]
    found = f"the invisible character U+{ord(character):04X}"
    return Problem(place(text, offset), found, "visible text", "Remove it, or write it as an escape in double quotes")


def _place_of(mark: Mark) -> str:
    return f"line {mark.line + 1}, column {mark.column + 1}"


def _quoted(value: str) -> str:
    if '"' not in value and "\\" not in value:
        return f'"{value}"'
    return "'" + value.replace("'", "''") + "'"


def _sign(sign: str) -> tuple[str, str]:
    meaning = _STARTS.get(sign, "not allowed there in YAML")
    return f"a value that begins with {sign}, which is {meaning}", f"a value that begins with {sign} in quotes"


def _indentation(mark: Mark, found: str) -> Problem:
    remedy = "Indent the keys of one mapping, and the items of one list, by the same number of spaces"
    return Problem(_place_of(mark), found, "the same indentation", remedy)


def _no_colon(text: str, mark: Mark) -> Problem:
    line = _line(text, mark).strip()
    match = re.fullmatch(r"(- +)?([\w.-]+):(\S.*)", line)
    if match:
        remedy = f"Write {match[1] or ''}{match[2]}: {match[3]}"
        return Problem(_place_of(mark), f"no space after the colon: {line[:80]}", "KEY: VALUE", remedy)
    if re.match(r"-[^\s-]", line):
        return Problem(_place_of(mark), f"no space after the hyphen: {line[:80]}", "- ITEM", f"Write - {line[1:]}")
    return Problem(_place_of(mark), f"a line without a key: {line[:80]}", "KEY: VALUE", "Add the colon and a space")


def _line(text: str, mark: Mark) -> str:
    found = lines(text)
    return found[mark.line] if mark.line < len(found) else ""


def _text_at_the_end(line: str) -> str | None:
    """The last text in a line of YAML, the runtime's own correction.

    Read from PyYAML's events. Its values are not made: a key before the text may be what YAML 1.1 takes for a date that
    does not exist, and hyphens may be nested as deep as they like.
    """
    try:
        scalars = [event for event in yaml.parse(line, yaml.SafeLoader) if isinstance(event, yaml.ScalarEvent)]
    except (yaml.YAMLError, ValueError, OverflowError):  # as in `_Reader._read`
        return None
    return scalars[-1].value if scalars else None
