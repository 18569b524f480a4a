"""The one YAML dialect: the 1.2 core schema, with the values of JSON. It is read, written as a person would, and
changed by position, so that comments and order are kept.

`no`, `on`, `22:30` and dates are text. Anchors, tags, merge keys, several documents and keys that are not text are
refused, with the line and the remedy.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ...schemas import Problem, Where, dotted
from ..base import InvalidFile, UsageError
from .yaml_plain import resolve

if TYPE_CHECKING:
    from .yaml_reader import YamlDocument, YamlNode

_PLAIN = re.compile(r"(?:[A-Za-z_]|~/|\./|/)(?:[A-Za-z0-9_./@+=~-]|:(?=[A-Za-z0-9_/.])| (?=[A-Za-z0-9_./+=~]))*")
_BOOLEAN_ELSEWHERE = frozenset(("yes", "no", "on", "off"))  # in YAML 1.1, which other programs read
_NO_POINT = re.compile(r"^(-?[0-9]+)e")
_INVISIBLE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_SHORT = 80  # characters up to which a list stays in one line

LIMIT = 256 << 10
"""Bytes of a file. One of this size takes a second or two."""


def load(text: str, path: str) -> YamlDocument:
    """Parse `text`; `path` is only named in errors. InvalidFile lists all mistakes that can be found at once.

    Slow for its size (up to 2 s for the largest file allowed): it uses PyYAML's own scanner, since libyaml's recursion
    and marks are not reliable everywhere.
    """
    if len(text) > LIMIT or len(text.encode("utf-8", "surrogatepass")) > LIMIT:
        raise InvalidFile(
            path, [Problem("the file", "more than 256 KiB", "less", "Put large content into a separate file")]
        )
    from .yaml_reader import read  # PyYAML takes a while to import

    return read(text, path)


def dump(value: Any) -> str:
    """YAML for a JSON value: mappings and long lists on their own lines, quotes only where needed.

    `load` returns an equal value. UsageError if it is not JSON. Keys of more than 1,000 characters can't be read back.
    """
    _json(value)
    return "".join(f"{line}\n" for line in _block(value))


def set_value(text: str, path: Where, value: Any, *, file: str = "workspace.yaml") -> str:
    """`text` with the value at `path` set; missing keys are added after the last of their mapping.

    Every line but those of the old value stays byte for byte, and the result is read back and compared before it is
    returned. UsageError if that can't be done, InvalidFile if `text` is not valid to begin with.
    """
    _json(value)
    before = latest(text, file)
    try:
        after = _changed(text, before, path, value)
        if _json(latest(after, file).value) == _json(_with(before.value, path, value)):
            return after
    except (InvalidFile, _NoPlace):
        pass
    remedy = "edit the file by hand"
    raise UsageError(f"can't set {dotted(path)} to {json.dumps(value)[:80]} in this file", path=file, remedy=remedy)


@lru_cache(1)
def latest(text: str, file: str) -> YamlDocument:
    """`load`, for who changes nothing of it. Of several values that are set, each begins with what was read back of the
    one before."""
    return load(text, file)


class _NoPlace(Exception):
    """The path leads through something that is not a mapping."""


def _changed(text: str, document: YamlDocument, path: Where, value: Any) -> str:
    parent, node, depth = None, document.root, 0
    while node is not None and depth < len(path) and path[depth] in node.items:
        parent, node, depth = node, node.items[path[depth]], depth + 1
    if depth == len(path):
        if node is None or parent is None:
            raise _NoPlace
        return _replaced(text, parent, path[-1], node, value)
    for key in reversed(path[depth:]):
        if isinstance(key, int):
            raise _NoPlace
        value = {key: value}
    empty = node is None or (node.kind == "scalar" and node.start == node.end)
    if node is None or (empty and parent is None):
        return _inserted(text, len(text), 0, value)
    if node.kind == "mapping":
        if node.style == "flow":
            return _into_flow(text, node, value)
        first = next(iter(node.keys.values()))
        return _inserted(text, _end(node), first.mark.column, value)
    if node.kind == "scalar" and node.value is None and parent is not None:
        if empty and parent.kind == "mapping" and parent.style == "block":
            return _inserted(text, node.end, parent.keys[str(path[depth - 1])].mark.column + 2, value)
        return _replaced(text, parent, path[depth - 1], node, value)
    raise _NoPlace


def _inserted(text: str, after: int, indent: int, value: Mapping[str, Any]) -> str:
    """With `value`'s lines after the line that contains the offset `after`, or at it if that is the start of a line."""
    newline = "\r\n" if "\r\n" in text else "\n"
    if after and text[after - 1] not in "\r\n":
        end = re.compile(r"\r\n|\r|\n|\Z").search(text, after)
        assert end is not None  # \Z always matches
        after = end.end()
    before = text[:after]
    if before and before[-1] not in "\r\n":
        before += newline
    return before + "".join(" " * indent + line + newline for line in _block(value)) + text[after:]


def _into_flow(text: str, node: YamlNode, value: Mapping[str, Any]) -> str:
    inside = _inline(value)[1:-1]
    if not node.items:
        return text[: node.start + 1] + inside + text[node.start + 1 :]
    at = _end(next(reversed(node.items.values())))
    return f"{text[:at]}, {inside}{text[at:]}"


def _replaced(text: str, parent: YamlNode, key: str | int, node: YamlNode, value: Any) -> str:
    start, end = node.start, _end(node)
    new = _inline(value)
    if start == end:
        new = " " + new
    elif node.style == "block" and node.kind != "scalar" and isinstance(key, str):
        name = parent.keys[key]
        if "#" not in text[name.end : start]:
            start, new = name.end, f": {new}"
        else:  # the comment behind the key stays; the value may stand in the line below it
            new = " " * max(0, name.mark.column + 2 - node.mark.column) + new
    tail = re.search(r"\s*\Z", text[start:end])
    return text[:start] + new + (tail[0] if tail else "") + text[end:]


def _end(node: YamlNode) -> int:
    """The end of the content; PyYAML's end of a block collection is after the comments that follow it."""
    while node.style == "block" and node.items:
        node = next(reversed(node.items.values()))
    return node.end


def _with(value: Any, path: Where, new: Any) -> Any:
    """A copy of `value` with `new` at `path`."""
    if not path:
        return new
    key, rest = path[0], path[1:]
    if isinstance(key, int):
        if not isinstance(value, list):
            raise _NoPlace
        return [_with(item, rest, new) if at == key else item for at, item in enumerate(value)]
    if value is not None and not isinstance(value, dict):
        raise _NoPlace
    return {**(value or {}), key: _with((value or {}).get(key), rest, new)}


def _json(value: Any) -> str:
    """Equal for equal values, unlike `==`, for which 1 is true. UsageError if the value is not JSON."""
    try:
        written = json.dumps(value, sort_keys=True, allow_nan=False, ensure_ascii=False)
        written.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError("a value is not JSON", why=str(error)) from None
    return written


def _block(value: Any) -> list[str]:
    """The lines of a value that has lines of its own."""
    if isinstance(value, dict) and value:
        return [line for key, item in value.items() for line in _entry(f"{_word(key)}:", item)]
    if isinstance(value, list) and value:
        return [line for item in value for line in _item(item)]
    return [_inline(value)]


def _entry(key: str, item: Any) -> list[str]:
    if isinstance(item, dict) and item:
        return [key, *_indented(_block(item))]
    if isinstance(item, list) and item:
        inline = _inline(item)
        if len(key) + len(inline) < _SHORT and not any(isinstance(part, dict | list) for part in item):
            return [f"{key} {inline}"]
        return [key, *_indented(_block(item))]
    if isinstance(item, str) and _fits_literal(item):
        return [f"{key} {'|' if item.endswith(chr(10)) else '|-'}", *_indented(item.removesuffix("\n").split("\n"))]
    return [f"{key} {_inline(item)}"]


def _item(item: Any) -> list[str]:
    first, *rest = _block(item) if isinstance(item, dict) else [_inline(item)]
    return [f"- {first}", *_indented(rest)]


def _indented(written: list[str]) -> list[str]:
    return [f"  {line}" if line else "" for line in written]


def _fits_literal(text: str) -> bool:
    """Whether a block (`|`) can show it: several lines of visible text, at most one line break at the end."""
    lines = text.removesuffix("\n").split("\n")
    visible = not _INVISIBLE.search(text) and all(c.isprintable() or c in "\n\t" for c in text)
    edges = lines[0][:1].strip() and lines[-1].strip()
    return bool(len(lines) > 1 and visible and edges and all(line.strip() or not line for line in lines))


def _inline(value: Any) -> str:
    if isinstance(value, str):
        return _word(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_word(key)}: {_inline(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_inline, value)) + "]"
    # 1e+16 would be text to a program that reads YAML 1.1.
    return _NO_POINT.sub(r"\1.0e", json.dumps(value))


def _word(text: str) -> str:
    if _PLAIN.fullmatch(text) and text.lower() not in _BOOLEAN_ELSEWHERE and isinstance(resolve(text), str):
        return text
    return _INVISIBLE.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(text, ensure_ascii=False))
