"""Keys of a JSON value that its type does not have. Decoding drops them, and what a person or earlier code wrote would
be lost."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

import msgspec

from ...schemas import Where, dotted, nearest


class UnknownKey(NamedTuple):
    """The path to the key, and the keys that its object may have."""

    path: Where
    known: tuple[str, ...]

    def __str__(self) -> str:
        meant = nearest(str(self.path[-1]), self.known)
        return f"found the unknown key `{dotted(self.path[-1:])}`" + (f". Did you mean `{meant}`?" if meant else "")


def put_aside(unknown: Iterable[UnknownKey], given: Any) -> list[tuple[Where, Any]]:
    """The values of these keys in `given`, to be put back."""
    aside = []
    for each in unknown:
        value = given
        for part in each.path:
            value = value[part]
        aside.append((each.path, value))
    return aside


def put_into(value: Any, given: Any, unknown_keys: Callable[[Any], Iterable[UnknownKey]]) -> list[UnknownKey]:
    """Put the keys that `value` has not got from `given` into its TypedDicts. Returns those of other types."""
    left = []
    for each in unknown_keys(given):
        inner, said = value, given
        for part in each.path[:-1]:
            said = said[part]
            if isinstance(inner, dict):
                inner = inner.get(part)
            elif isinstance(inner, list | tuple):
                inner = inner[int(part)]
            else:
                inner = getattr(inner, str(part), None)
        if isinstance(inner, dict):
            inner[each.path[-1]] = said[each.path[-1]]
        else:
            left.append(each)
    return left


def put_back(text: bytes, aside: Iterable[tuple[Where, Any]]) -> bytes:
    """The JSON `text` with these keys again, where their objects are still there."""
    whole = msgspec.json.decode(text)
    for path, value in aside:
        inner = whole
        for part in path[:-1]:
            inner = inner.get(part) if isinstance(inner, dict) else None
        if isinstance(inner, dict):
            inner.setdefault(path[-1], value)
    return msgspec.json.encode(whole)


def unknown_keys(kind: Any, given: Any, path: Where = ()) -> Iterator[UnknownKey]:
    """Those of `given`, a value of JSON's own types that decodes to `kind`.

    A key is reported only if nothing can read it. It is not if the type keeps other keys, if its own code may read
    them, or if several types may stand there.
    """
    from msgspec import inspect  # takes its time

    if not isinstance(given, dict | list | tuple):
        return
    try:
        node = inspect.type_info(kind)
    except TypeError:  # msgspec can't read a part of it, but pydantic can
        yield from _by_parts(kind, given, path)
    except NameError:
        return
    else:
        yield from _within(node, given, path)


def _by_parts(kind: Any, given: Any, path: Where) -> Iterator[UnknownKey]:
    """The same, with each part looked at as a type of its own."""
    origin, args = get_origin(kind), get_args(kind)
    if origin is dict and isinstance(given, dict):
        inside: Iterable[Any] = ((name, args[1], inner) for name, inner in given.items())
    elif origin is list and isinstance(given, list):
        inside = ((index, args[0], inner) for index, inner in enumerate(given))
    elif dataclasses.is_dataclass(kind) and isinstance(given, dict) and not hasattr(kind, "__pydantic_config__"):
        hints = get_type_hints(kind, include_extras=True)
        for name in given.keys() - hints.keys():
            yield UnknownKey((*path, name), tuple(hints))
        inside = ((name, hints[name], inner) for name, inner in given.items() if name in hints)
    else:
        return
    for key, part, inner in inside:
        if not _is_annotated(part):
            yield from unknown_keys(part, inner, (*path, key))


def _within(node: Any, given: Any, path: Where) -> Iterator[UnknownKey]:
    from msgspec import inspect

    if isinstance(node, inspect.Metadata):
        yield from _within(node.type, given, path)
    elif isinstance(node, inspect.UnionType):
        readers = [each for each in node.types if _may_read(each, given)]
        if len(readers) == 1:
            yield from _within(readers[0], given, path)
    elif isinstance(given, list | tuple):
        for index, (item, inner) in enumerate(zip(_items(node), given, strict=False)):
            yield from _within(item, inner, (*path, index))
    elif not isinstance(given, dict):
        return
    elif isinstance(node, inspect.DictType):
        for name, inner in given.items():
            yield from _within(node.value_type, inner, (*path, str(name)))
    elif isinstance(node, inspect.CustomType):
        if hasattr(node.cls, "__pydantic_decorators__"):
            yield from _within_model(node.cls, given, path)
    elif isinstance(node, inspect.StructType | inspect.DataclassType | inspect.TypedDictType):
        fields = {field.encode_name: field.type for field in node.fields}
        more = {getattr(node, "tag_field", None), *getattr(node.cls, "__dataclass_fields__", ())}
        if hasattr(node.cls, "__pydantic_config__"):
            return  # pydantic's own dataclass or TypedDict, which may keep other keys
        for name, inner in given.items():
            if name in fields:
                yield from _within(fields[name], inner, (*path, name))
            elif name not in more:
                yield UnknownKey((*path, name), tuple(fields))


def _may_read(node: Any, given: dict[str, Any] | Sequence[Any]) -> bool:
    """Whether a value of this type may be an object, if `given` is one, or else a list."""
    from msgspec import inspect

    if isinstance(node, inspect.Metadata):
        return _may_read(node.type, given)
    is_object = isinstance(given, dict)
    if isinstance(node, inspect.StructType):
        tag = given.get(str(node.tag_field)) if isinstance(given, dict) else next(iter(given), None)
        return is_object != node.array_like and (node.tag is None or tag == node.tag)
    if isinstance(node, inspect.DictType | inspect.DataclassType | inspect.TypedDictType):
        return is_object
    if isinstance(node, inspect.CollectionType | inspect.TupleType | inspect.NamedTupleType):
        return not is_object
    return isinstance(node, inspect.AnyType | inspect.RawType | inspect.CustomType)


def _items(node: Any) -> Iterable[Any]:
    """The types of the elements of a list that decodes to this type, in their order."""
    from msgspec import inspect

    if isinstance(node, inspect.TupleType):
        return node.item_types
    if isinstance(node, inspect.NamedTupleType):
        return [field.type for field in node.fields]
    if isinstance(node, inspect.StructType):
        tag = [inspect.AnyType()] if node.tag is not None else []
        return [*tag, *(field.type for field in node.fields)]
    return repeat(node.item_type) if hasattr(node, "item_type") else ()


def _within_model(model: Any, given: dict[str, Any], path: Where) -> Iterator[UnknownKey]:
    """The same in a pydantic model. Validators that run before pydantic's own may read any key."""
    pydantic = sys.modules["pydantic"]
    own = model.__pydantic_decorators__
    if (
        model.model_config.get("extra", "ignore") != "ignore"
        or issubclass(model, pydantic.RootModel)
        or model.__pydantic_custom_init__
        or model.__get_pydantic_core_schema__.__func__ is not pydantic.BaseModel.__get_pydantic_core_schema__.__func__
        or any(each.info.mode != "after" for each in own.model_validators.values())
        or own.root_validators
        or own.model_serializers
    ):
        return
    validated = {*own.validators} or any(each.info.mode != "after" for each in own.field_validators.values())
    for name, inner in given.items():
        field = model.model_fields.get(name)
        if field is None:
            yield UnknownKey((*path, name), tuple(model.model_fields))
        elif not validated and not field.metadata and not _is_annotated(field.annotation):
            yield from unknown_keys(field.annotation, inner, (*path, name))


def _is_annotated(kind: Any) -> bool:
    """Whether a part of the type has a note, which may be a validator."""
    return hasattr(kind, "__metadata__") or any(map(_is_annotated, get_args(kind)))
