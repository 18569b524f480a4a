"""JSON Patch (RFC 6902), as far as commits need it: the difference of two values, and its application.

Only add, remove and replace. Values are JSON: dict, list, str, int, float, bool, None.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from ..journal.records import Patch

_INDEX = re.compile("0|[1-9][0-9]{0,9}")


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
