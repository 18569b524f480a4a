"""Whether a value comes back equal from its JSON: the state at its commit, and the progress of a step.

What would come back as something else is refused with its place. Otherwise the agent would see one value until a crash,
and another one after it.

A change is judged at the cost of the change, by the type of the part that is changed (`Part`). Its place is followed
only through types that judge each of their parts alone: dicts, lists, TypedDicts, Structs, dataclasses and pydantic
models without validators of their own. What is below any other type (a union, a tuple, a type with constraints) is
judged together with it.

No JSON contains attributes that the class of an object does not declare, so the next start would lose them. They change
nothing in the JSON of a state, so each commit looks for them everywhere, but only where the types say that such objects
may be.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import sys
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from functools import cache, cached_property
from itertools import chain
from typing import Any, Literal, NamedTuple, NewType, TypeVar, get_args, get_origin

import msgspec

from ...schemas import short
from ...workspace.base import NotSerializable, UsageError
from ...workspace.state import json_patch
from .codec import DEPTH, Codec, fields_of, fields_of_class, parts_in, private_of, text_of_key, unchecked
from .type_hints import pydantic_class

_LISTS = (list, collections.abc.Sequence, collections.abc.MutableSequence)
_DICTS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)
_ONE_TEXT = frozenset({"int", "float", "date", "datetime", "time", "timedelta", "UUID", "Decimal", "bytes"})
"""The keys that have a text of their own: of two different ones of the same type, never the same."""

_NEVER: Any = object()


class Found(NamedTuple):
    """A part, its value, and where that is: an attribute's name, or a key."""

    part: Part
    value: Any
    key: Any
    is_attribute: bool = False


class Part:
    """A type that a part of the value must have. `config` is that of the pydantic model that it is in, if it is.
    `is_opaque`: only `codec` knows how it is read."""

    __slots__ = ("_codec", "_config", "_fields", "_inner", "_is_opaque", "_keys", "_model", "kind")

    def __init__(self, kind: Any, *, codec: Codec | None = None, config: Any = None, is_opaque: bool = False):
        self.kind = kind
        self._config, self._codec, self._is_opaque = config, codec, is_opaque
        self._model: Any = None
        self._inner: Part | None = None  # of the values of a list or a dict
        self._keys: Part | None = None  # of a dict whose keys are not text: to read a key
        self._fields: dict[str, tuple[str, Part]] | None = None  # by the name in JSON: the attribute, and its type

    @classmethod
    def whole(cls, codec: Codec) -> Part:
        """All of the value that `codec` reads."""
        return cls(codec.kind, codec=codec, is_opaque=codec.is_for_pydantic)

    def load(self, data: bytes) -> Any:
        """The value in `data`. ValueError if it is not of the type."""
        if self._config is None:
            self._codec = self._codec or Codec(self.kind, "it")
            return self._codec.load(data)
        if self._model is None:
            self._model = _model(self._config, self.kind)
        return self._model.model_validate({"value": msgspec.json.decode(data)}, by_alias=False, by_name=True).value

    def inner(self, value: Any, key: str | int, *, is_json: bool = False) -> Found | None:
        """The part of `value` with this key in JSON. None if it can't be judged alone, or is not there. `is_json`: the
        value is JSON that was read, not one of the type."""
        shape = self._shape_of(value, is_json)
        if shape is None:
            return None
        if shape.how == "fields":
            return self._field(shape.kind, value, key, is_json)
        if self._inner is None:
            self._inner = ANYTHING if shape.inner is Any else Part(shape.inner, config=self._config)
        if shape.how == "list":
            at = int(key)
            return Found(self._inner, value[at], at) if at < len(value) else None
        found = key if is_json or shape.keys is str else self._key(shape.keys, str(key))
        return Found(self._inner, value[found], found) if found in value else None

    def judges_removals(self, value: Any, *, is_json: bool) -> bool:
        """Whether something may be missing once it is removed from `value`."""
        shape = self._shape_of(value, is_json)
        return shape is None or shape.how == "fields"

    def _shape_of(self, value: Any, is_json: bool) -> _Shape | None:
        return None if self._is_opaque else _shape(self.kind, value, self._config is not None, is_json)

    def _key(self, kind: Any, text: str) -> Any:
        if self._keys is None:
            self._keys = Part(types.GenericAlias(dict, (kind, Any)), config=self._config)
        try:
            return next(iter(self._keys.load(msgspec.json.encode({text: None}))))
        except ValueError:
            return _NEVER

    def _field(self, kind: Any, value: Any, key: str | int, is_json: bool) -> Found | None:
        if self._fields is None:
            self._fields = _fields(kind, self._config)
        if key not in self._fields:
            return None
        name, part = self._fields[str(key)]
        if type(value) is dict:
            at = key if is_json else name
            return Found(part, value[at], at) if at in value else None
        return Found(part, getattr(value, name), name, True) if hasattr(value, name) else None


ANYTHING = Part(Any)


class _Shape(NamedTuple):
    """How a value of a type is divided into parts."""

    how: Literal["fields", "list", "dict"]
    kind: Any
    keys: Any = str
    inner: Any = Any


def _shape(kind: Any, value: Any, in_model: bool, is_json: bool) -> _Shape | None:
    """None if the parts are judged together."""
    kind = _plain(kind, value)
    own, origin, args = type(value), get_origin(kind) or kind, get_args(kind)
    if kind is Any or kind is object:
        return _Shape("dict", kind) if own is dict else _Shape("list", kind) if own is list else None
    if own is list and origin in _LISTS:
        return _Shape("list", kind, inner=args[0] if args else Any)
    if own is dict and origin in _DICTS:
        keys, inner = args or (Any, Any)
        keys = str if keys is Any and not in_model else keys
        return _Shape("dict", kind, keys, inner) if keys is str or _has_one_text(keys) else None
    if own is dict and typing.is_typeddict(origin):
        return None if hasattr(origin, "__pydantic_config__") else _Shape("fields", kind)
    if own is not (dict if is_json else origin):
        return None
    return _Shape("fields", kind) if _has_free_fields(origin, args) else None


def _plain(kind: Any, value: Any) -> Any:
    """Without names of types, and without None where `value` is another."""
    while True:
        if isinstance(kind, NewType):
            kind = kind.__supertype__
        elif type(kind).__name__ == "TypeAliasType" and not kind.__type_params__:
            kind = kind.__value__
        elif get_origin(kind) in (typing.Union, types.UnionType):
            others = [each for each in get_args(kind) if each is not types.NoneType]
            if value is None or len(others) > 1:
                return kind
            kind = others[0]
        else:
            return kind


def _has_one_text(kind: Any) -> bool:
    kind = _plain(kind, 0)
    return isinstance(kind, type) and kind.__name__ in _ONE_TEXT and kind.__module__ in _STANDARD


_STANDARD = ("builtins", "datetime", "uuid", "decimal")


def _has_free_fields(kind: Any, args: tuple[Any, ...]) -> bool:
    """Whether each field of the class is judged alone."""
    if args or not isinstance(kind, type) or hasattr(kind, "__post_init__"):
        return False  # generic, or with a rule of its own
    if issubclass(kind, msgspec.Struct):
        config = kind.__struct_config__
        return not config.array_like and not config.forbid_unknown_fields
    if dataclasses.is_dataclass(kind):
        return not hasattr(kind, "__pydantic_validator__")
    pydantic = sys.modules.get("pydantic")
    if pydantic is None or not issubclass(kind, pydantic.BaseModel):
        return False
    own = kind.__pydantic_decorators__  # type: ignore[attr-defined]
    return not (
        issubclass(kind, pydantic.RootModel)
        or kind.__pydantic_custom_init__  # type: ignore[attr-defined]
        or kind.__get_pydantic_core_schema__.__func__ is not pydantic.BaseModel.__get_pydantic_core_schema__.__func__  # type: ignore[attr-defined]
        or own.model_validators
        or own.root_validators
        or own.validators
        or own.field_validators
        or own.model_serializers
        or own.field_serializers
    )


def _fields(kind: Any, config: Any) -> dict[str, tuple[str, Part]]:
    """The fields that are judged alone."""
    if fields := getattr(kind, "model_fields", None):
        config = kind.model_config
        return {
            name: (name, Part(_annotated(field), config=config)) for name, field in fields.items() if not field.exclude
        }
    try:
        hints = typing.get_type_hints(kind, include_extras=True)
    except (NameError, TypeError):
        return {}
    encoded, names = getattr(kind, "__struct_encode_fields__", None), getattr(kind, "__struct_fields__", None)
    names = names or [*getattr(kind, "__dataclass_fields__", hints)]
    pairs = zip(encoded or names, names, strict=True)
    found = {said: (name, _unqualified(hints[name])) for said, name in pairs if name in hints}
    return {said: (name, Part(hint, config=config)) for said, (name, hint) in found.items() if not _is_open(hint)}


def _annotated(field: Any) -> Any:
    """The type of a field of a pydantic model with its constraints."""
    return typing.Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation


def _unqualified(hint: Any) -> Any:
    while get_origin(hint) in _QUALIFIERS:
        hint = get_args(hint)[0]
    return hint


_QUALIFIERS = (typing.Required, typing.NotRequired, typing.Final, getattr(typing, "ReadOnly", typing.Required))


def _is_open(hint: Any) -> bool:
    """Whether it contains a variable, which only the generic type around it fills."""
    return isinstance(hint, TypeVar) or any(map(_is_open, get_args(hint)))


def _model(config: Any, kind: Any) -> Any:
    """A model that reads one value in the way of the model that it comes from."""
    import pydantic

    make: Any = pydantic.create_model
    return make("Part", __config__={**config, "extra": "ignore"}, value=(kind, ...))


_PLAIN = frozenset((str, int, bool, float, type(None)))
_MANY = 8
"""Levels after which values that come again are left out: a list that contains itself twice would double each time."""


def check_attributes(value: Any, kind: Any, place: str) -> None:
    """NotSerializable if an object in `value`, which is of the type `kind`, has such an attribute."""
    if typing.is_typeddict(kind) and type(value) is dict:
        parts = [(f"{place}.{name}", value[name]) for name in _holders(kind) & value.keys()]
    else:
        parts = [(place, value)] if _may_hold(kind) else []
    if not _are_free([part for _, part in parts]):
        for where, part in parts:
            _check(part, where, frozenset())


def check_own_attributes(value: Any, place: str) -> None:
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
    if kind in _PLAIN or id(value) in above:
        return
    inside: Iterable[tuple[str, Any]]
    if kind is dict:
        inside = ((at(place, key), each) for key, each in value.items())
    elif kind is list or kind is tuple:
        inside = ((f"{place}[{index}]", each) for index, each in enumerate(value))
    else:
        check_own_attributes(value, place)
        inside = ((f"{place}.{name}", getattr(value, name, None)) for name in _holders(kind))
    above |= {id(value)}
    for where, each in inside:
        _check(each, where, above)


def _are_free(values: list[Any], depth: int = 0) -> bool:
    """Whether no such attribute is in any of these values: level by level, since Python is slow for each alone."""
    if depth > DEPTH:
        return True  # what contains itself is refused anyway
    kinds: set[Any] = {*map(type, values)} - _PLAIN
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


_LEAVES = (str, int, bool, float, type(None))
_JSON = (*_LEAVES, dict, list)


class _Loss(NamedTuple):
    """A place where a value and what comes back differ."""

    place: str
    why: str
    remedy: str


def check(part: Part, value: Any, place: str) -> None:
    """Refuse a value that can't be loaded or does not come back equal: UsageError or NotSerializable, with the
    place."""
    loss = _loss(value, load(part, value, place), place)
    if loss is not None:
        raise NotSerializable(f"{loss.place} can't be kept", why=loss.why, remedy=loss.remedy)


def load(part: Part, value: Any, place: str) -> Any:
    """What comes back in place of the value. UsageError, with the place, if nothing can."""
    try:
        return part.load(unchecked(value, place))
    except ValueError as error:
        where, why = _blame(part, value, place, error)
        raise UsageError(
            f"{where} does not fit its type",
            why=why,
            remedy="put a value there that fits the annotation, or change the annotation",
        ) from error


def check_change(part: Part, value: Any, patch: Iterable[Mapping[str, Any]], place: str) -> None:
    """The same as `check`, for a value of which all but the parts in `patch` were checked before."""
    for found, where in _changed(part, value, [*patch], place, is_json=False):
        check(found.part, found.value, where)


def check_loads(part: Part, data: Any, patch: Iterable[Mapping[str, Any]], place: str) -> None:
    """UsageError if JSON, in which `patch` has changed something, can't be loaded."""
    for found, where in _changed(part, data, [*patch], place, is_json=True):
        load(found.part, found.value, where)


def _changed(
    part: Part, value: Any, patch: list[Mapping[str, Any]], place: str, *, is_json: bool
) -> Iterator[tuple[Found, str]]:
    """The smallest parts that are judged alone and contain the changes, once each, and their places."""
    seen: set[str] = set()
    ends = _ends(patch)
    for number, change in enumerate(patch):
        keys = json_patch.split(str(change["path"]))
        removed = keys.pop() if change["op"] == "remove" and keys else None
        found, where, path = Found(part, value, ""), place, ""
        for key in keys:
            at: str | int = key
            if type(found.value) is list:
                at = len(found.value) - ends[number] if key == "-" else int(key)
            inner = found.part.inner(found.value, at, is_json=is_json)
            if inner is None:
                break
            found, where, path = inner, _below(where, inner), f"{path}/{json_patch.escape(str(at))}"
        else:
            if removed is not None and not found.part.judges_removals(found.value, is_json=is_json):
                continue
        if path not in seen:
            seen.add(path)
            yield found, where


def _ends(patch: list[Mapping[str, Any]]) -> dict[int, int]:
    """How far from the end of its list each change puts its value, by its number, if it appends it."""
    counts: dict[str, int] = {}
    found = {}
    for number in reversed(range(len(patch))):
        path = str(patch[number]["path"])
        if path.endswith("/-"):
            found[number] = counts[path] = counts.get(path, 0) + 1
    return found


def _below(place: str, found: Found) -> str:
    return f"{place}.{found.key}" if found.is_attribute else at(place, found.key)


def _blame(part: Part, value: Any, place: str, error: ValueError) -> tuple[str, str]:
    """The smallest part that can't be loaded, and why."""
    for key in _keys(value):
        found = part.inner(value, key)
        if found is None:
            continue
        try:
            found.part.load(unchecked(found.value, place))
        except ValueError as inner:
            return _blame(found.part, found.value, _below(place, found), inner)
    return _told(place, error)


def _keys(value: Any) -> Iterable[str | int]:
    """The keys of the parts of a value in JSON."""
    if isinstance(value, dict):
        return map(text_of_key, value)
    if isinstance(value, list):
        return range(len(value))
    names = getattr(value, "__struct_encode_fields__", None) or getattr(type(value), "model_fields", None)
    return names or fields_of(value) or ()


def _told(place: str, error: ValueError) -> tuple[str, str]:
    """Where the error is, and what it says."""
    if isinstance(error, pydantic_class("ValidationError")):
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        for key in first["loc"][first["loc"][:1] == ("value",) :]:
            place = at(place, key)
        return place, first["msg"]
    why, found, where = str(error).partition(" - at `$")
    return place + where.removesuffix("`") if found else place, why


def _loss(value: Any, back: Any, place: str) -> _Loss | None:
    """The first place where the two differ."""
    kind = type(value)
    if kind is not type(back):
        return None if _is_equal_in_another_type(value, back) else _turned(value, back, place)
    if kind in _LEAVES:
        return None if value == back else _turned(value, back, place)
    if kind is dict:
        return _loss_of_keys(value, back, place) or _first(
            _loss(inner, back[key], at(place, key)) for key, inner in value.items()
        )
    if kind is list or kind is tuple:
        if len(value) != len(back):
            return _turned(value, back, place)
        pairs = enumerate(zip(value, back, strict=True))
        return _first(_loss(one, other, f"{place}[{index}]") for index, (one, other) in pairs)
    if isinstance(value, pydantic_class("BaseModel")):
        fields = [name for name, field in kind.model_fields.items() if not field.exclude]
        return _loss_of_fields(value, back, fields, place) or _loss(value.model_extra, back.model_extra, place)
    declared = fields_of(value)
    if declared is None:
        return None if value == back else _turned(value, back, place)
    check_own_attributes(value, place)
    return _loss_of_fields(value, back, declared, place)


def _loss_of_fields(value: Any, back: Any, names: Iterable[str], place: str) -> _Loss | None:
    return _first(_loss(getattr(value, name, None), getattr(back, name, None), f"{place}.{name}") for name in names)


def _first(losses: Iterable[_Loss | None]) -> _Loss | None:
    return next((loss for loss in losses if loss is not None), None)


def _loss_of_keys(value: dict[Any, Any], back: dict[Any, Any], place: str) -> _Loss | None:
    if all(type(key) is str for key in value) and value.keys() == back.keys():
        return None
    kept, texts = {key: key for key in back}, dict[str, Any]()
    for key in value:
        if (other := texts.setdefault(text_of_key(key), key)) is not key:
            return _Loss(place, f"the keys {other!r} and {key!r} have the same text", "use keys of one type")
    for key in value:
        if key not in kept or not (type(key) is type(kept[key]) or _is_equal_in_another_type(key, kept[key])):
            why = f"as a key, {_a(type(key))} comes back as text"
            return _Loss(at(place, key), why, "use text as keys, or declare the type, as in `dict[int, str]`")
    return None


def _is_equal_in_another_type(value: Any, back: Any) -> bool:
    """An integer where a float is declared, or a text of a class of its own, does no harm."""
    kind = {str: str, float: int}.get(type(back), ())
    return isinstance(value, kind) and not isinstance(value, Enum | bool) and bool(value == back)


def _turned(value: Any, back: Any, place: str) -> _Loss:
    kind, other = type(value), type(back)
    if isinstance(value, float) and back is None:
        return _Loss(place, f"{value} is not JSON", "put None there, or a text")
    if kind is other:
        return _Loss(place, "another value comes back from its JSON", "let the type decode to what it encodes")
    why = f"{_a(kind)} comes back as {_a(other)}"
    if other not in _JSON:
        return _Loss(place, why, f"put {_a(other)} there, as the annotation says")
    instead = "a list" if isinstance(value, tuple | set | frozenset) else "values of JSON's own types"
    return _Loss(place, why, f"put {instead} there, or declare its type in a typed state: `@agent(state=...)`")


def _a(kind: type) -> str:
    name = "None" if kind is type(None) else kind.__qualname__
    return f"{'an' if name[0] in 'aeiouAEIO' else 'a'} {name}"
