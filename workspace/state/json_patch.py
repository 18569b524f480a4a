"""JSON Patch (RFC 6902), as far as commits need it: the difference of two values or texts, and its application.

Only add, remove and replace. Values are JSON: dict, list, str, int, float, bool, None.

The difference of two texts (`KnownText`) costs what the change costs. Their common beginning and end are compared as
bytes, and only the parts between are parsed. Both are as msgspec writes them: without spaces, equal values as equal
text. So `1` is not `1.0`, and the order of keys counts: a key that has moved is removed and added, which puts it after
the others.

A commit that follows others is applied only if what it changes is untouched (`contradiction`): two scopes that each add
1 to a counter set it to the same value, and one of the two must not be lost.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from enum import Enum
from operator import is_
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Raw

from ..journal import Patch

_LARGE = 1024
"""From this size on it is cheaper to compare a value as bytes, and to remember where its parts begin."""

_INDEX = re.compile("0|[1-9][0-9]{0,9}")
_any = msgspec.json.Decoder()
_value = msgspec.json.Decoder(Raw)
_list = msgspec.json.Decoder(list[Raw])
_object = msgspec.json.Decoder(dict[str, Raw])


class Absent(Enum):
    """The type of ABSENT: an enum, so that it is one object in every process and for every type checker."""

    ABSENT = "nothing"

    def __str__(self) -> str:
        return self.value


ABSENT: Final = Absent.ABSENT
"""No value at all. null is a value."""


def diff(old: Any, new: Any, *, ordered: bool = False, path: str = "") -> Patch:
    """A patch that turns `old` into `new`, no larger than the change. Empty if they are equal. `path`: their place.

    The order of keys counts only if `ordered`. Then a key that has moved is removed and added, which puts it after the
    others.
    """
    patch: Patch = []
    _diff(path, old, new, patch, ordered)
    return patch


def _diff(path: str, old: Any, new: Any, patch: Patch, ordered: bool) -> None:
    if type(old) is dict and type(new) is dict:
        stay = unmoved(old, new).keys() if ordered else old.keys() & new.keys()
        for key in old:
            if key not in stay:
                patch.append({"op": "remove", "path": f"{path}/{escape(key)}"})
        for key, value in new.items():
            if key not in stay:
                patch.append({"op": "add", "path": f"{path}/{escape(key)}", "value": value})
            else:
                _diff(f"{path}/{escape(key)}", old[key], value, patch, ordered)
    elif type(old) is list and type(new) is list:
        _diff_lists(path, old, new, patch, ordered)
    elif not same(old, new):
        patch.append({"op": "replace", "path": path, "value": new})


def unmoved(old: Iterable[str], new: Iterable[str]) -> dict[str, int]:
    """The first keys of `new` that `old` has in the same order, with their places in `old`. Added keys come after all
    that stay."""
    stay: dict[str, int] = {}
    rest = iter(enumerate(old))
    for key in new:
        place = next((place for place, each in rest if each == key), None)
        if place is None:
            break
        stay[key] = place
    return stay


def _diff_lists(path: str, old: list[Any], new: list[Any], patch: Patch, ordered: bool) -> None:
    """The common ends stay. In the middle, pairs are compared and the rest is added or removed."""
    shortest = min(len(old), len(new))
    start = 0
    while start < shortest and same(old[start], new[start], ordered=ordered):
        start += 1
    end = 0
    while end < shortest - start and same(old[-1 - end], new[-1 - end], ordered=ordered):
        end += 1
    old_middle, new_middle = old[start : len(old) - end], new[start : len(new) - end]
    paired = min(len(old_middle), len(new_middle))
    for index in range(paired):
        _diff(f"{path}/{start + index}", old_middle[index], new_middle[index], patch, ordered)
    for index in reversed(range(paired, len(old_middle))):
        patch.append({"op": "remove", "path": f"{path}/{start + index}"})
    for index in range(paired, len(new_middle)):
        place = "-" if end == 0 else start + index
        patch.append({"op": "add", "path": f"{path}/{place}", "value": new_middle[index]})


def same(old: Any, new: Any, *, ordered: bool = False) -> bool:
    """Equal as JSON: True is not 1, and 1 is not 1.0, at any depth. `ordered`: also with the keys in the same order."""
    if type(old) is not type(new):
        return False
    if type(old) is dict:
        if len(old) != len(new) or (ordered and [*old] != [*new]):
            return False
        return all(key in new and same(value, new[key], ordered=ordered) for key, value in old.items())
    if type(old) is list:
        pairs = zip(old, new, strict=False)
        return len(old) == len(new) and all(same(one, other, ordered=ordered) for one, other in pairs)
    if type(old) is float:
        return repr(old) == repr(new)  # 0.0 is not -0.0
    return bool(old == new)


def apply(value: Any, patch: Patch) -> Any:
    """`value` with the patch applied. `value` is not changed; both share the unchanged parts.

    KeyError, IndexError, ValueError or TypeError if the patch does not fit this value.
    """
    copied: dict[int, Any] = {}
    for change in patch:
        operation, path = change["op"], str(change["path"])
        if operation not in ("add", "remove", "replace") or path[:1] not in ("", "/"):
            raise ValueError(f"{operation!r} of {path!r}")
        new = None if operation == "remove" else change["value"]
        if not path:
            value = new
            continue
        *parents, last = split(path)
        target = value = _copy(value, copied)
        for part in parents:
            key: Any = _index(part) if isinstance(target, list) else part
            target[key] = _copy(target[key], copied)
            target = target[key]
        _change(target, last, operation, new)
    return value


def _copy(value: Any, copied: dict[int, Any]) -> Any:
    """A container to change in place of `value`, made once."""
    if id(value) in copied or not isinstance(value, dict | list):
        return value
    copy = value.copy()
    copied[id(copy)] = copy  # kept alive, so that no other gets its id
    return copy


def _change(target: Any, key: str, operation: object, value: Any) -> None:
    if isinstance(target, list):
        index = len(target) if key == "-" else _index(key)
        if operation == "add":
            if index > len(target):
                raise IndexError(key)
            target.insert(index, value)
        elif operation == "remove":
            del target[index]
        else:
            target[index] = value
    elif operation == "remove":
        del target[key]
    elif operation == "replace" and key not in target:
        raise KeyError(key)
    else:
        target[key] = value


def _index(part: str) -> int:
    if not _INDEX.fullmatch(part):
        raise ValueError(f"{part!r} is not a place in a list")  # int() would take -1, 1_0 and spaces
    return int(part)


def escape(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1") if "~" in key or "/" in key else key


def split(path: str) -> list[str]:
    """The keys and indexes of a path, from the outside in."""
    return [_unescape(part) for part in path[1:].split("/")] if path else []


def _unescape(part: str) -> str:
    return part.replace("~1", "/").replace("~0", "~") if "~" in part else part


def contradiction(places: Iterable[str], base: Any, now: Any) -> str | None:
    """The first of these places, which a patch of `base` changes, that is different in `now`, equal changes included.
    None: the patch can be applied to `now`. Two scopes may change different keys, and both may append to a list."""
    if base is now:
        return None
    return next((place for place in places if not _is_untouched(place, base, now)), None)


def _is_untouched(place: str, base: Any, now: Any) -> bool:
    *parents, last = split(place) or [""]
    for part in parents:
        if base is now or type(base) is not dict or type(now) is not dict:
            return _is_same(base, now)
        base, now = base.get(part, ABSENT), now.get(part, ABSENT)
    if type(base) is dict and type(now) is dict and place:
        return same(base.get(last, ABSENT), now.get(last, ABSENT))
    if last == "-" and type(base) is list and type(now) is list:
        return _is_same(base, now[: len(base)])
    return _is_same(base, now)


def _is_same(base: Any, now: Any) -> bool:
    """Versions of the data share their unchanged parts, so a long list is compared quickly."""
    if type(base) is list and type(now) is list and len(base) == len(now) and all(map(is_, base, now)):
        return True
    return same(base, now)


class KnownText:
    """A JSON text that is compared with its next version again and again. It remembers where its parts begin, so a
    change costs one comparison of all bytes, and parsing of the new ones."""

    def __init__(self, text: bytes):
        self.text = text
        self.was_unusual = False  # the last text: a key came twice in it, or spaces did, and nothing says where
        self._parts: _Parts | None = None

    def change_to(self, text: bytes) -> Patch:
        """The difference. From now on `text` is the known text."""
        old, parts = self.text, self._parts
        self.text, self._parts, self.was_unusual = text, None, False
        try:
            comparing = _Comparing(old, text)
            self._parts = comparing.compare(parts)
        except _Unusual:
            self.text, self.was_unusual = _usual(text), True
            comparing = _Comparing(_usual(old), self.text)
            self._parts = comparing.compare(None)
        return comparing.patch


class _Unusual(ValueError):
    """Spaces, or a repeated key: msgspec writes neither."""


def _usual(text: bytes) -> bytes:
    return msgspec.json.encode(msgspec.json.decode(text))


class _Span(NamedTuple):
    """Start and end of one value in its text."""

    begin: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.begin


class _Parts:
    """The parts of a list or an object. A part of an object is a key with its value."""

    __slots__ = ("_names", "inner", "keys", "starts")

    def __init__(self, text: bytes):
        self.keys, sizes = _split(text)
        self.starts = _starts(sizes, 1, len(text) - 1)
        """Where each part begins, from the beginning of the whole, and one more: where another would."""
        self.starts.append(len(text))
        self.inner: dict[int, _Parts] = {}  # the known inner parts, by their places
        self._names = {*self.keys}
        self._check_names()

    def span(self, whole: _Span, place: int) -> _Span:
        return _Span(whole.begin + self.starts[place], whole.begin + self.starts[place + 1] - 1)

    def replace(
        self, middle: _Middle, keys: list[str], starts: list[int], longer: int, inner: dict[int, _Parts]
    ) -> None:
        """Replace the parts in the middle. The whole text is then `longer`."""
        first, last = middle.first, middle.last
        more = first + len(starts) - last
        self.starts[first:] = starts + [start + longer for start in self.starts[last:]]
        if keys != (gone := self.keys[first:last]):
            self._names.difference_update(gone)
            self._names.update(keys)
            self.keys[first:last] = keys
            self._check_names()
        if self.inner or inner:
            moved = {place + more: known for place, known in self.inner.items() if place >= last}
            self.inner = {place: known for place, known in self.inner.items() if place < first} | inner | moved

    def _check_names(self) -> None:
        """The other parts need not have been read, so this is where a key that repeats one of theirs shows."""
        if len(self._names) != len(self.keys):
            raise _Unusual


def _split(text: bytes) -> tuple[list[str], list[int]]:
    """The keys of an object, and the sizes of the parts."""
    if text.startswith(b"["):
        return [], [len(each) for each in _list.decode(text)]
    found = _object.decode(text)
    return [*found], [len(_head(key)) + len(each) for key, each in found.items()]


def _head(key: str) -> bytes:
    """The part of an object before its value."""
    return msgspec.json.encode(key) + b":"


def _starts(sizes: list[int], begin: int, end: int) -> list[int]:
    """The starts of parts of these sizes; the last must end at `end`."""
    starts = []
    for size in sizes:
        starts.append(begin)
        begin += size + 1
    if starts and begin != end + 1:
        raise _Unusual
    return starts


class _Middle(NamedTuple):
    """What two lists or objects do not share at their ends: parts `first` to `last` of the old one, and the bytes from
    `begin` to `end` of the new one."""

    first: int
    last: int
    begin: int
    end: int


class _Comparing:
    def __init__(self, old: bytes, new: bytes):
        self.old, self.new = old, new
        self.patch: Patch = []
        self._view = memoryview(old)
        self._whole = _Span(0, len(old)), _Span(0, len(new))
        self._at_start, self._at_end = self._find_start(*self._whole), self._find_end(*self._whole)

    def compare(self, parts: _Parts | None) -> _Parts | None:
        """Compare the two texts, like `value`."""
        return self.value("", *self._whole, parts)

    def value(self, path: str, old: _Span, new: _Span, parts: _Parts | None) -> _Parts | None:
        """Compare two values. `parts` are the known parts of the old one, and are used up. Returns the known parts of
        the new one. An error if that is no value."""
        if self._is_equal(old, new):
            return parts
        if old.size < _LARGE and new.size < _LARGE:
            self._small(path, old, new)
            return None
        kind = self.old[old.begin]
        if kind != self.new[new.begin] or kind not in b"[{":
            self.patch.append({"op": "replace", "path": path, "value": _value.decode(self._text(new))})
            return None
        parts = parts or _Parts(self._text_before(old))
        compare = self._list if kind == ord("[") else self._object
        middle = self._middle(parts, old, new)
        if guess := self._guess(parts, middle, new):
            begun = len(self.patch)
            try:
                compare(path, old, new, parts, middle, guess)
            except msgspec.DecodeError:
                del self.patch[begun:]
                parts.inner = {}
                guess = None
        if guess is None:
            compare(path, old, new, parts, middle, None)
        return parts if new.size >= _LARGE else None

    def _small(self, path: str, old: _Span, new: _Span) -> None:
        was, now = (_any.decode(text) for text in (self._text_before(old), self._text(new)))
        if len(msgspec.json.encode(now)) != new.size:
            raise _Unusual
        for each in diff(was, now, ordered=True, path=path):
            value = {"value": Raw(msgspec.json.encode(each["value"]))} if "value" in each else {}
            self.patch.append({**each, **value})

    def _list(self, path: str, old: _Span, new: _Span, parts: _Parts, middle: _Middle, sizes: list[int] | None) -> None:
        """Compare the different elements in pairs, and add or remove the rest."""
        first, last, begin, end = middle
        if sizes is None:
            _, sizes = _split(b"[%b]" % self.new[new.begin + begin : new.begin + end])
        starts = _starts(sizes, begin, end)
        now = [_Span(new.begin + start, new.begin + start + size) for start, size in zip(starts, sizes, strict=True)]
        inner: dict[int, _Parts] = {}
        for place in range(first, min(last, first + len(now))):
            span = now[place - first]
            if found := self.value(f"{path}/{place}", parts.span(old, place), span, parts.inner.get(place)):
                inner[place] = found
        for place in reversed(range(first + len(now), last)):
            self.patch.append({"op": "remove", "path": f"{path}/{place}"})
        is_at_end = last == len(parts.starts) - 1
        for place, span in enumerate(now[last - first :], last):
            there = "-" if is_at_end else place
            self.patch.append({"op": "add", "path": f"{path}/{there}", "value": Raw(self._text(span))})
        parts.replace(middle, [], starts, new.size - old.size, inner)

    def _object(
        self, path: str, old: _Span, new: _Span, parts: _Parts, middle: _Middle, sizes: list[int] | None
    ) -> None:
        """Keys in the same order in both stay. From the first other key on, all are added after them."""
        first, last, begin, end = middle
        keys = parts.keys[first:last]
        if sizes is None:
            keys, sizes = _split(b"{%b}" % self.new[new.begin + begin : new.begin + end])
        stay = unmoved(parts.keys[first:last], keys)
        if len(stay) < len(keys) and last < len(parts.keys):  # then what comes after them is added, too
            whole = _Middle(first, len(parts.keys), begin, new.size - 1)
            return self._object(path, old, new, parts, whole, None)
        starts = _starts(sizes, begin, end)
        for key in parts.keys[first:last]:
            if key not in stay:
                self.patch.append({"op": "remove", "path": f"{path}/{escape(key)}"})
        inner: dict[int, _Parts] = {}
        for place, (key, start, size) in enumerate(zip(keys, starts, sizes, strict=True), first):
            head, below = len(_head(key)), f"{path}/{escape(key)}"
            now = _Span(new.begin + start + head, new.begin + start + size)
            if key not in stay:
                self.patch.append({"op": "add", "path": below, "value": Raw(self._text(now))})
                continue
            known = first + stay[key]
            was = parts.span(old, known)
            if found := self.value(below, _Span(was.begin + head, was.end), now, parts.inner.get(known)):
                inner[place] = found
        parts.replace(middle, keys, starts, new.size - old.size, inner)

    def _guess(self, parts: _Parts, middle: _Middle, new: _Span) -> list[int] | None:
        """The sizes of the new parts, if they are probably the old ones with one longer or shorter part. So a large
        changed part need not be parsed as a whole. The comparison checks the guess: a text of values can be divided
        into values in only one way."""
        first, last, begin, end = middle
        count = last - first
        if not count or end - begin < _LARGE or (count > 1 and not parts.keys):
            return None
        sizes = [parts.starts[place + 1] - parts.starts[place] - 1 for place in range(first, last)]
        heads = [_head(key) for key in parts.keys[first:last]] or [b""]
        left, right = 0, count - 1
        if not self.new.startswith(heads[0], new.begin + begin):
            return None
        while left < right and self.new.startswith(b"," + heads[left + 1], new.begin + begin + sizes[left]):
            begin += sizes[left] + 1
            left += 1
        while left < right and self.new.startswith(b"," + heads[right], new.begin + end - sizes[right] - 1):
            end -= sizes[right] + 1
            right -= 1
        if left < right or end - begin <= len(heads[left]):
            return None
        return [*sizes[:left], end - begin, *sizes[left + 1 :]]

    def _middle(self, parts: _Parts, old: _Span, new: _Span) -> _Middle:
        """Omit the common parts at the beginning and the end. A part is common if its bytes, and those around it, are
        equal."""
        starts, count, more = parts.starts, len(parts.starts) - 1, new.size - old.size
        first = bisect_right(starts, self._equal_at_start(old, new) + 1, 1) - 1
        if first and self.new[new.begin + starts[first] - 1] not in b",]}":
            first -= 1
        begin = starts[first] if first else 1
        least = max(old.size - self._equal_at_end(old, new), begin - more)
        last = bisect_left(starts, least, first, count)
        if last < count and self.new[new.begin + starts[last] + more - 1] not in b",[{":
            last += 1
        return _Middle(first, last, begin, (starts[last] + more if last < count else new.size) - 1)

    def _equal_at_start(self, old: _Span, new: _Span) -> int:
        """How many bytes are equal at the beginning. The first difference of the whole texts is known."""
        if old.begin == new.begin <= self._at_start:
            return min(self._at_start - old.begin, old.size, new.size)
        return self._find_start(old, new)

    def _equal_at_end(self, old: _Span, new: _Span) -> int:
        after = len(self.old) - old.end
        if after == len(self.new) - new.end <= self._at_end:
            return min(self._at_end - after, old.size, new.size)
        return self._find_end(old, new)

    def _find_start(self, old: _Span, new: _Span) -> int:
        """Compares halves, so each byte about once."""
        low, high = 0, min(old.size, new.size)
        while low < high:
            middle = (low + high + 1) // 2
            if self.new.startswith(self._view[old.begin + low : old.begin + middle], new.begin + low):
                low = middle
            else:
                high = middle - 1
        return low

    def _find_end(self, old: _Span, new: _Span) -> int:
        low, high = 0, min(old.size, new.size)
        while low < high:
            middle = (low + high + 1) // 2
            if self.new.startswith(self._view[old.end - middle : old.end - low], new.end - middle):
                low = middle
            else:
                high = middle - 1
        return low

    def _is_equal(self, old: _Span, new: _Span) -> bool:
        return old.size == new.size and self.new.startswith(self._view[old.begin : old.end], new.begin)

    def _text(self, span: _Span) -> bytes:
        return self.new[span.begin : span.end]

    def _text_before(self, span: _Span) -> bytes:
        return self.old[span.begin : span.end]
