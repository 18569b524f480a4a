"""Read YAML of people and strangers: values as in JSON, and the place of each in the file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Literal, NoReturn

import yaml
from msgspec import Struct, field
from yaml.error import MarkedYAMLError

from ....schemas import Problem, Where, dotted, short
from ...base import InvalidFile
from . import diagnostics
from .core_schema import resolve
from .diagnostics import Mark, mark_of

LIMIT = 256 << 10  # bytes; a file of this size takes a second or two
DEPTH = 32
PROBLEMS = 20

_UNREADABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ufffe\uffff\ud800-\udfff]|(?<!^)\ufeff")
_HASH = re.compile(r"[ ]+(#[^\s#!][^\r\n]*)")


class Node(Struct):
    """A value and its place: offsets into the text in characters. `end` may include what follows it."""

    kind: Literal["scalar", "mapping", "sequence"]
    value: Any
    mark: Mark
    end: int
    style: Literal["plain", "quoted", "block", "flow"]
    items: dict[str | int, Node] = field(default_factory=dict)
    keys: dict[str, Node] = field(default_factory=dict)

    @property
    def start(self) -> int:
        return self.mark.offset


class Document(Struct, frozen=True):
    """The content of a YAML file. `root` is None if it is empty."""

    value: Any
    root: Node | None

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


def load(text: str, path: str) -> Document:
    """Parse `text`; `path` is only named in errors. InvalidFile lists all mistakes that can be found at once.

    Slow for its size (up to 2 s for the largest file allowed): it uses PyYAML's own scanner, since libyaml's recursion
    and marks are not reliable everywhere.
    """
    if len(text) > LIMIT or len(text.encode("utf-8", "surrogatepass")) > LIMIT:
        raise InvalidFile(
            path, [Problem("the file", "more than 256 KiB", "less", "Put large content into a separate file")]
        )
    if bad := _UNREADABLE.search(text):
        raise InvalidFile(path, [diagnostics.unreadable(text, bad.start())])
    reader = _Reader(text)
    try:
        root = reader.document()
    except MarkedYAMLError as error:
        reader.problems.append(diagnostics.syntax(text, error))
    except _Refused:
        pass
    else:
        if not reader.problems:
            return Document(root.value if root else None, root)
    raise InvalidFile(path, reader.problems)


class _Refused(Exception):
    """Nothing after this place can be trusted."""


def _start(event: yaml.Event) -> Mark:
    return mark_of(event.start_mark)


def _end(event: yaml.Event) -> int:
    return mark_of(event.end_mark).offset


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
            mark = mark_of(self._loader.get_mark())
            self._refuse(mark, "an escape for a character that does not exist", "Correct the escape")

    def document(self) -> Node | None:
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

    def _node(self, event: yaml.Event, depth: int) -> Node:
        if isinstance(event, yaml.AliasEvent):
            self._tell(diagnostics.reference(self.text, _start(event)))
            return Node("scalar", None, _start(event), _end(event), "plain")
        assert isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent)
        if event.anchor is not None or event.tag is not None:
            self._tell(diagnostics.reference(self.text, _start(event)))
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event)
        if depth > DEPTH:
            self._refuse(_start(event), f"more than {DEPTH} nested levels", "Use fewer levels")
        if isinstance(event, yaml.MappingStartEvent):
            return self._mapping(event, depth)
        return self._sequence(event, depth)

    def _scalar(self, event: yaml.ScalarEvent) -> Node:
        mark, end = _start(event), _end(event)
        if event.style is None and event.tag is None:
            try:
                return Node("scalar", resolve(event.value), mark, end, "plain")
            except ValueError as error:
                self._add(mark, str(error), "a number that JSON can hold", "Put it in quotes if it is a text")
        if any("\ud800" <= c <= "\udfff" for c in event.value):
            self._add(mark, "half of a surrogate pair", "whole characters", "Write the character itself")
        return Node("scalar", event.value, mark, end, "block" if event.style in ("|", ">") else "quoted")

    def _sequence(self, start: yaml.CollectionStartEvent, depth: int) -> Node:
        node = Node("sequence", [], _start(start), 0, "flow" if start.flow_style else "block")
        for event in self._events:
            if isinstance(event, yaml.SequenceEndEvent):
                node.end = _end(event)
                break
            item = self._value(event, depth)
            node.items[len(node.value)] = item
            node.value.append(item.value)
        return node

    def _mapping(self, start: yaml.MappingStartEvent, depth: int) -> Node:
        node = Node("mapping", {}, _start(start), 0, "flow" if start.flow_style else "block")
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

    def _value(self, event: yaml.Event, depth: int) -> Node:
        node = self._node(event, depth + 1)
        if node.style == "plain" and (rest := _HASH.match(self.text, node.end)):
            self._tell(diagnostics.cut_off(self.text, node.mark, rest[1]))
        return node

    def _name(self, key: Node, into: Node) -> str | None:
        """The key's text, or None if it can't be a key."""
        if key.kind != "scalar":
            line = self.text[into.start :].split("\n", 1)[0]
            if line.startswith("{{"):
                self._tell(
                    diagnostics.quote(self.text, into.mark, "a template", "a value that begins with { in quotes")
                )
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
        self._tell(Problem(diagnostics.at(mark), found, expected, remedy))

    def _tell(self, problem: Problem) -> None:
        self.problems.append(problem)
        if len(self.problems) == PROBLEMS:  # each takes a look at the whole text, and a bomb has very many
            raise _Refused

    def _refuse(self, mark: Mark, found: str, remedy: str) -> NoReturn:
        self._add(mark, found, "one plain document of keys and values", remedy)
        raise _Refused
