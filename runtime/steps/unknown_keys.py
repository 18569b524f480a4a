"""Keys of a JSON value that its type does not have. Decoding drops them, and what a person or earlier code wrote would
be lost."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, get_args

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
    except (TypeError, NameError):
        return  # a type for pydantic alone
    yield from _within(node, given, path)


def _within(node: Any, given: Any, path: Where) -> Iterator[UnknownKey]:
    from msgspec import inspect

    if isinstance(node, inspect.Metadata):
        yield from _within(node.type, given, path)
    elif isinstance(node, inspect.UnionType):
        others = [each for each in node.types if not isinstance(each, inspect.NoneType)]
        if len(others) == 1:
            yield from _within(others[0], given, path)
    elif isinstance(given, list | tuple):
        item = getattr(node, "item_type", None)
        for index, inner in enumerate(given if item is not None else ()):
            yield from _within(item, inner, (*path, index))
    elif not isinstance(given, dict):
        return
    elif isinstance(node, inspect.DictType):
        for name, inner in given.items():
            yield from _within(node.value_type, inner, (*path, str(name)))
    elif isinstance(node, inspect.CustomType):
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
