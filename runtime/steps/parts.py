"""The type of one part of a typed value, found by its place, so that a change is judged at the cost of the change.

A place is followed only through types that judge each of their parts alone: dicts, lists, TypedDicts, Structs,
dataclasses and pydantic models without validators of their own. What is below any other type (a union, a tuple, a type
with constraints) is judged together with it.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import sys
import types
import typing
from typing import Any, Literal, NamedTuple, NewType, TypeVar, get_args, get_origin

import msgspec

from .codec import Codec

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

    def judges_removals(self, value: Any, *, is_json: bool = False) -> bool:
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
