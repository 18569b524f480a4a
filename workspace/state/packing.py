"""Convert structs into ones that JSON can hold, and back, according to their types: a new field needs no line here.

msgspec handles almost every type itself. It can't write a dict whose keys are calls. That becomes a list: of the
records if each knows its call, else of pairs. A set is written in order. `own` lists other types. A struct that
contains any of these is written as a struct made here, with the same names and defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, NamedTuple, TypeVar, get_args, get_origin

import msgspec
from msgspec import Struct
from msgspec.structs import FieldInfo, fields

from ..journal.records import Key, OfCall

T = TypeVar("T")

_UNKEPT = "it is not kept"

Unkept = Annotated[T, _UNKEPT]
"""A field of this type is omitted, and has its default when it is read."""


class Shape(NamedTuple):
    """How a type is written."""

    kind: Any  # what msgspec reads in its place
    pack: Callable[[Any], Any] | None = None  # None: msgspec takes the value as it is
    unpack: Callable[[Any], Any] | None = None


Own = Mapping[Any, Shape]


def shape_of(kind: Any, own: Own) -> Shape:
    """The shape of any type that a field has. `own`: the types that neither msgspec nor this module knows."""
    if kind in own:
        return own[kind]
    origin, args = get_origin(kind), get_args(kind)
    if isinstance(kind, type) and issubclass(kind, Struct):
        return _struct(kind, own)
    if origin is set:
        return Shape(kind, lambda found: sorted(found) if found else found)  # by which msgspec tells that it is empty
    if origin is dict and args[0] == Key:
        return _by_call(args[1])
    if origin is dict:
        inner = shape_of(args[1], own)
        return Shape(dict[args[0], inner.kind], _each(inner.pack), _each(inner.unpack))  # type: ignore[valid-type, name-defined]
    return Shape(kind)


def _each(change: Callable[[Any], Any] | None) -> Callable[[Any], Any] | None:
    return change and (lambda found: {key: change(value) for key, value in found.items()})


def _by_call(value: Any) -> Shape:
    if isinstance(value, type) and issubclass(value, OfCall):
        return Shape(list[value], lambda found: list(found.values()), _of_records)
    return Shape(list[tuple[Key, value]], lambda found: list(found.items()), dict)


def _of_records(records: list[OfCall]) -> dict[Key, OfCall]:
    """There may be tens of thousands, and an opening waits."""
    return {(record.step, record.args, record.n): record for record in records}


def _struct(kind: type[Struct], own: Own) -> Shape:
    found = [(each, shape_of(each.type, own)) for each in fields(kind) if not _is_unkept(each)]
    if len(found) == len(kind.__struct_fields__) and not any(shape.pack or shape.unpack for _, shape in found):
        return Shape(kind)
    config = kind.__struct_config__
    made = msgspec.defstruct(
        f"_{kind.__name__}",
        [_field(each, shape) for each, shape in found],
        kw_only=True,
        omit_defaults=config.omit_defaults,
    )
    packs = {each.name: shape.pack for each, shape in found}
    unpacks = {each.name: shape.unpack for each, shape in found}
    return Shape(made, _remade(made, packs), _remade(kind, unpacks))


def _remade(into: type[Struct], changes: Mapping[str, Callable[[Any], Any] | None]) -> Callable[[Any], Any]:
    """Makes an `into` of the fields of another struct, each converted."""
    names = [*changes]
    needed = [(name, change) for name, change in changes.items() if change is not None]

    def remake(value: Any) -> Any:
        facts = {name: getattr(value, name) for name in names}
        for name, change in needed:
            facts[name] = change(facts[name])
        return into(**facts)

    return remake


def _is_unkept(each: FieldInfo) -> bool:
    return get_origin(each.type) is Annotated and _UNKEPT in each.type.__metadata__


def _field(each: FieldInfo, shape: Shape) -> tuple[str, Any] | tuple[str, Any, Any]:
    if each.default is not msgspec.NODEFAULT:
        return each.name, shape.kind, msgspec.field(default=_changed(each.default, shape.pack))
    if each.default_factory is msgspec.NODEFAULT:
        return each.name, shape.kind
    factory: Any = each.default_factory
    if factory is dict and get_origin(shape.kind) is list:
        factory = list
    elif factory not in (dict, list, set) and shape.pack is not None:
        factory = lambda: _changed(each.default_factory(), shape.pack)  # noqa: E731
    return each.name, shape.kind, msgspec.field(default_factory=factory)


def _changed(value: Any, change: Callable[[Any], Any] | None) -> Any:
    return value if change is None else change(value)
