"""What a program declares: a callable (a function, bound method, `functools.partial`, or object with `__call__`), the
types of its parameters and result, the JSON Schema of such a type (draft 2020-12), and the keys of a value that its
type does not have.

By the schema, people's editors, and readers that don't have the code, check a value. It says `additionalProperties:
false` where decoding would drop a key, so that what a person or earlier code wrote would be lost. It does not where the
type keeps other keys, or where its own code may read them: validators that run before those of the fields, serializers,
an own `__init__`. For a value of people these keys are put aside, and put back.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from types import FunctionType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeGuard, get_args, get_origin, get_type_hints

import msgspec

from ...schemas import Where, dotted, nearest

if TYPE_CHECKING:
    from pydantic.json_schema import GenerateJsonSchema


Closed = Literal["all", "classes", "no"]
"""Which objects take no key that the type does not have: `classes` are all but TypedDicts."""

_READS = ("function-before", "function-wrap", "function-plain")

_WRITES = ("function-wrap", "function-plain")
"""How pydantic calls code of the user."""

_UNSAFE = re.compile(r"[^a-zA-Z0-9.\-_]")

_MOST = 500  # types that are made again and again, as in a function, must not add up

_known: dict[tuple[Any, Closed], dict[str, Any]] = {}


def function_of(called: Callable[..., Any]) -> Callable[..., Any]:
    """The function that declares what `called` takes and returns."""
    called = _whole(called)
    if not _is_object(called):
        return called
    wrapped = getattr(called, "__wrapped__", None)
    return type(called).__call__ if wrapped is None else function_of(wrapped)


def is_async(called: Callable[..., Any]) -> bool:
    """Whether it is `async def`, so that its result must be awaited."""
    called = _whole(called)
    return inspect.iscoroutinefunction(type(called).__call__ if _is_object(called) else called)


def is_generator(called: Callable[..., Any]) -> bool:
    """Whether it is an `async def` that yields."""
    called = _whole(called)
    return inspect.isasyncgenfunction(type(called).__call__ if _is_object(called) else called)


def is_method(called: Callable[..., Any] | None) -> TypeGuard[FunctionType]:
    """Whether it is the function of a method: it is defined in a class, and its first parameter is `self` or `cls`."""
    if not isinstance(called, FunctionType) or not called.__code__.co_argcount:
        return False
    of = called.__qualname__.rpartition(".")[0]
    return bool(of) and not of.endswith("<locals>") and called.__code__.co_varnames[0] in ("self", "cls")


def hints_of(called: Callable[..., Any]) -> dict[str, Any]:
    """The types of the parameters that a call must still give, and of the result."""
    hints = get_type_hints(function_of(called))
    if isinstance(called, functools.partial):
        left = inspect.signature(called).parameters
        hints = {name: hint for name, hint in hints.items() if name == "return" or name in left}
    return hints


def pydantic_class(name: str) -> Any:
    """A class of pydantic, or an empty tuple if the program has not imported pydantic: then it has no such values."""
    module = sys.modules.get("pydantic")
    return getattr(module, name) if module else ()


def sealed_class() -> Any:
    """The same for the class `Sealed`."""
    module = sys.modules.get(f"{__package__}.texts")
    return module.Sealed if module else ()


def parts_of(kind: Any) -> Iterator[Any]:
    """All that msgspec knows of a type and of the types in it. Nothing of a type that only pydantic knows."""
    from msgspec import inspect

    try:
        waiting: list[Any] = [inspect.type_info(kind)]
    except TypeError:
        return
    seen: set[int] = set()
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        if isinstance(node, msgspec.Struct):
            waiting += [getattr(node, name) for name in node.__struct_fields__]
        elif isinstance(node, tuple):
            waiting += node


@functools.cache
def masked(model: Any) -> str:
    """The class of a secret in a pydantic model, which pydantic writes as asterisks, so that the model does not come
    back. Empty without one."""
    waiting, seen = [model], set[int]()
    while waiting:
        kind = waiting.pop()
        if id(kind) in seen:
            continue
        seen.add(id(kind))
        waiting += get_args(kind)
        if kind in (pydantic_class("SecretStr"), pydantic_class("SecretBytes")):
            return str(kind.__name__)
        if isinstance(kind, type) and issubclass(kind, pydantic_class("BaseModel")):
            waiting += _written_by_pydantic(kind)
    return ""


def schema_of(kind: Any, adapter: Any, closed: Closed) -> dict[str, Any]:
    """Made once for each type, and shared. `adapter`: of pydantic, if only pydantic can read the type. Any
    exception if the type has no schema: its own code may have a part in it."""
    try:
        hash(kind)
    except TypeError:  # a note in the type can't be hashed
        return _made(kind, adapter, closed)
    if (found := _known.get((kind, closed))) is None:
        if len(_known) >= _MOST:
            _known.clear()
        found = _known[kind, closed] = _made(kind, adapter, closed)
    return found


class UnknownKey(NamedTuple):
    """The path to the key, and the keys that its object may have."""

    path: Where
    known: tuple[str, ...]

    def __str__(self) -> str:
        meant = nearest(str(self.path[-1]), self.known)
        return f"found the unknown key `{dotted(self.path[-1:])}`" + (f". Did you mean `{meant}`?" if meant else "")


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


def _whole(called: Callable[..., Any]) -> Callable[..., Any]:
    while isinstance(called, functools.partial):
        called = called.func
    return called


def _is_object(called: Callable[..., Any]) -> bool:
    return not (inspect.isroutine(called) or inspect.isclass(called))


def _written_by_pydantic(model: Any) -> Iterator[Any]:
    """The types of the fields that the model does not write in a way of its own."""
    own = model.__pydantic_decorators__
    by_code = {name for each in own.field_serializers.values() for name in each.info.fields}
    for name, field in model.model_fields.items():
        is_own = name in by_code or any(type(each).__name__.endswith("Serializer") for each in field.metadata)
        if not (is_own or field.exclude or own.model_serializers):
            yield field.annotation


def _made(kind: Any, adapter: Any, closed: Closed) -> dict[str, Any]:
    if adapter is not None:
        return _by_pydantic(adapter.json_schema, "#/$defs/{model}", closed)
    if isinstance(kind, type) and issubclass(kind, pydantic_class("BaseModel")):
        return _by_pydantic(kind.model_json_schema, "#/$defs/{model}", closed)  # type: ignore[attr-defined]
    models = _Models(closed)
    found: dict[str, Any] = msgspec.json.schema(kind, schema_hook=models)
    own = found.get("$defs", {})
    if closed != "no":
        left_open = {*_left_open(kind, closed)}
        for each in own.values():
            if "properties" in each and (each.get("title"), *each["properties"]) not in left_open:
                each.setdefault("additionalProperties", False)
    if models.defined:
        found["$defs"] = own | models.defined
    return found


def _left_open(kind: Any, closed: Closed) -> Any:
    """The titles and keys of those that keep other keys, as pydantic's own dataclasses and TypedDicts may."""
    from msgspec import inspect

    for part in parts_of(kind):
        if not isinstance(part, inspect.DataclassType | inspect.TypedDictType):
            continue
        if hasattr(part.cls, "__pydantic_config__") or (
            isinstance(part, inspect.TypedDictType) and closed == "classes"
        ):
            yield part.cls.__name__, *(field.encode_name for field in part.fields)


class _Models:
    """The schemas of classes within a type of msgspec that are not msgspec's."""

    def __init__(self, closed: Closed):
        self._closed = closed
        self._names: dict[type, str] = {}
        self.defined: dict[str, Any] = {}

    def __call__(self, kind: type) -> dict[str, Any]:
        if issubclass(kind, sealed_class()):
            return kind.schema()  # type: ignore[attr-defined, no-any-return]
        if not issubclass(kind, pydantic_class("BaseModel")):
            raise NotImplementedError(kind.__qualname__)
        if kind not in self._names:
            name = f"pydantic.{_UNSAFE.sub('_', kind.__qualname__)}"
            name += f".{len(self._names)}" if name in self._names.values() else ""
            self._names[kind] = name
            made = _by_pydantic(
                kind.model_json_schema,  # type: ignore[attr-defined]
                f"#/$defs/{name}.{{model}}",
                self._closed,
            )
            self.defined |= {f"{name}.{inner}": each for inner, each in made.pop("$defs", {}).items()}
            self.defined[name] = made
        return {"$ref": f"#/$defs/{self._names[kind]}"}


def _by_pydantic(make: Any, ref_template: str, closed: Closed) -> dict[str, Any]:
    own_code = set[Any]()
    while True:
        count = len(own_code)
        generator = _generator(own_code, closed)
        found: dict[str, Any] = make(by_alias=False, ref_template=ref_template, schema_generator=generator)
        if len(own_code) == count:
            return found


def _generator(own_code: set[Any], closed: Closed) -> type[GenerateJsonSchema]:
    """One that closes the objects of classes that are not in `own_code`. It adds those that it meets where code
    of the user reads the value first, or writes it: the same class may have been met elsewhere before, so the schema is
    made again until there are no more."""
    from pydantic.json_schema import GenerateJsonSchema

    class Generator(GenerateJsonSchema):
        ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012
        _inside = 0

        def generate_inner(self, schema: Any) -> dict[str, Any]:
            is_read = schema["type"] in _READS
            if self._inside and schema["type"] == "definition-ref":
                own_code.add(schema["schema_ref"])
            self._inside += is_read
            try:
                found = super().generate_inner(schema)
            finally:
                self._inside -= is_read
            has_own = "ref" in schema or "pydantic_js_functions" in schema.get("metadata", {})
            return found if has_own else _unless_written(schema, found)

        def model_schema(self, schema: Any) -> dict[str, Any]:
            return self._closed(schema, super().model_schema(schema))

        def dataclass_schema(self, schema: Any) -> dict[str, Any]:
            return self._closed(schema, super().dataclass_schema(schema))

        def typed_dict_schema(self, schema: Any) -> dict[str, Any]:
            found = super().typed_dict_schema(schema)
            return self._closed(schema, found) if closed == "all" else found

        def _closed(self, schema: Any, found: dict[str, Any]) -> dict[str, Any]:
            names = {schema.get("ref"), schema.get("cls")} - {None}
            if self._inside or schema.get("custom_init") or _reads(schema):
                own_code.update(names)
            elif closed != "no" and not names & own_code and "properties" in found:
                found.setdefault("additionalProperties", False)
            return _unless_written(schema, found)

    return Generator


def _reads(schema: Any) -> bool:
    """Whether a validator of the class itself gets its keys before its fields do."""
    inner = schema.get("schema", {})
    while inner.get("type", "").startswith("function-"):
        if inner["type"] in _READS:
            return True
        inner = inner["schema"]
    return False


def _unless_written(schema: Any, found: dict[str, Any]) -> dict[str, Any]:
    """No rule for what a serializer of the user writes: it may be of another form than what the type reads."""
    return {} if schema.get("serialization", {}).get("type") in _WRITES else found


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
