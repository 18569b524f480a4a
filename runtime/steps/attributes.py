"""Attributes that the class of an object does not declare: no JSON contains them, so the next start would lose them.

They change nothing in the JSON of a state, so each commit looks for them everywhere. It looks only where the types say
that such objects may be.
"""

from __future__ import annotations

import typing
from collections.abc import Iterable, Iterator
from enum import Enum
from functools import cache, cached_property
from itertools import chain
from typing import Any, get_args

from ...schemas import short
from ...workspace.base import NotSerializable
from .codec import DEPTH, Codec, fields_of_class, parts_in, private_of, unchecked
from .declared import pydantic_class

_LEAVES = frozenset((str, int, bool, float, type(None)))
_MANY = 8
"""Levels after which values that come again are left out: a list that contains itself twice would double each time."""


def check(value: Any, kind: Any, place: str) -> None:
    """NotSerializable if an object in `value`, which is of the type `kind`, has such an attribute."""
    if typing.is_typeddict(kind) and type(value) is dict:
        parts = [(f"{place}.{name}", value[name]) for name in _holders(kind) & value.keys()]
    else:
        parts = [(place, value)] if _may_hold(kind) else []
    if not _are_free([part for _, part in parts]):
        for where, part in parts:
            _check(part, where, frozenset())


def check_own(value: Any, place: str) -> None:
    """NotSerializable if this object has one."""
    kind: Any = type(value)
    declared = _declared(kind)
    if declared is None or kind.__dictoffset__ == 0:
        return
    for name in vars(value):
        if name not in declared:
            raise NotSerializable(
                f"{place}.{name} can't be kept",
                why=f"{type(value).__qualname__} has no field {name!r}",
                remedy="declare it in the class, with a type and a default",
            )


def check_private(value: Any, codec: Codec, place: str) -> None:
    """NotSerializable if an object of attrs in `value`, which `codec` reads, has a private attribute that does not come
    back: no JSON contains it."""
    if codec.has_private:
        for where, each in _private_in(value, place, 0):
            raise NotSerializable(
                f"{where}.{each} can't be kept",
                why="another value comes back from its JSON",
                remedy="let the type decode to what it encodes",
            )


def at(place: str, key: Any) -> str:
    """`state.a`, `state["a b"]`, `state[7]`."""
    if type(key) is not str:
        return f"{place}[{key!r}]"
    return f"{place}.{key}" if key.isidentifier() else f"{place}[{short(key)}]"


def _private_in(value: Any, place: str, depth: int) -> Iterator[tuple[str, str]]:
    """The private attributes in `value` that do not come back, and where they are."""
    kind: Any = type(value)
    if names := private_of(kind):
        back = Codec(kind, place).load(unchecked(value, place))
        yield from ((place, name) for name in names if getattr(back, name, None) != getattr(value, name, None))
    for where, each in (parts_in(value, place) or ()) if depth <= DEPTH else ():
        yield from _private_in(each, where, depth + 1)


def _check(value: Any, place: str, above: frozenset[int]) -> None:
    """`above`: what the value is in, and may contain again."""
    kind: Any = type(value)
    if kind in _LEAVES or id(value) in above:
        return
    inside: Iterable[tuple[str, Any]]
    if kind is dict:
        inside = ((at(place, key), each) for key, each in value.items())
    elif kind is list or kind is tuple:
        inside = ((f"{place}[{index}]", each) for index, each in enumerate(value))
    else:
        check_own(value, place)
        inside = ((f"{place}.{name}", getattr(value, name, None)) for name in _holders(kind))
    above |= {id(value)}
    for where, each in inside:
        _check(each, where, above)


def _are_free(values: list[Any], depth: int = 0) -> bool:
    """Whether no such attribute is in any of these values: level by level, since Python is slow for each alone."""
    if depth > DEPTH:
        return True  # what contains itself is refused anyway
    kinds: set[Any] = {*map(type, values)} - _LEAVES
    for kind in kinds:
        group = [each for each in values if type(each) is kind]
        if depth > _MANY:
            group = [*{id(each): each for each in group}.values()]
        if kind is dict:
            levels = [[*chain.from_iterable(map(dict.values, group))]]
        elif kind is list or kind is tuple:
            levels = [[*chain.from_iterable(group)]]
        elif not _declares_all(kind, group):
            return False
        else:
            levels = [[getattr(each, name, None) for each in group] for name in _holders(kind)]
        if not all(_are_free(level, depth + 1) for level in levels):
            return False
    return True


def _declares_all(kind: Any, objects: list[Any]) -> bool:
    declared = _declared(kind)
    return declared is None or not kind.__dictoffset__ or set[str]().union(*map(vars, objects)) <= declared


@cache
def _declared(kind: Any) -> frozenset[str] | None:
    """The fields of a class and its cached properties. None for other classes, and for pydantic's, which refuse
    others."""
    fields = fields_of_class(kind)
    if fields is None:
        return None
    inherited = (vars(each).items() for each in kind.__mro__)
    return frozenset(
        [*fields, *(name for name, value in chain.from_iterable(inherited) if isinstance(value, cached_property))]
    )


@cache
def _holders(kind: Any) -> frozenset[str]:
    """The fields of a class that may contain objects with attributes of their own."""
    if isinstance(kind, type) and issubclass(kind, pydantic_class("BaseModel")):
        return frozenset(name for name, field in kind.model_fields.items() if _may_hold(field.annotation))  # type: ignore[attr-defined]
    names = kind.__annotations__ if typing.is_typeddict(kind) else fields_of_class(kind) or ()
    try:
        hints = typing.get_type_hints(kind)
    except (NameError, TypeError):
        return frozenset(names)
    return frozenset(name for name in names if _may_hold(hints.get(name)))


def _may_hold(hint: Any) -> bool:
    """Whether a value of this type may be such an object, or contain one."""
    if args := get_args(hint):
        return any(map(_may_hold, args))
    if isinstance(hint, type):
        is_model = issubclass(hint, pydantic_class("BaseModel")) or typing.is_typeddict(hint)
        return is_model or fields_of_class(hint) is not None
    return not isinstance(hint, str | int | bytes | Enum | None)  # values of a Literal
