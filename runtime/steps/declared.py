"""What a program declares: a callable (a function, bound method, `functools.partial`, or object with `__call__`), the
types of its parameters and result, and the JSON Schema of such a type (draft 2020-12).

By the schema, people's editors, and readers that don't have the code, check a value. It says `additionalProperties:
false` where decoding would drop a key. It does not where the type keeps other keys, or where its own code may read
them: validators that run before those of the fields, serializers, an own `__init__`.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
import typing
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import TYPE_CHECKING, Any, Literal, TypeGuard

import msgspec

if TYPE_CHECKING:
    from pydantic.json_schema import GenerateJsonSchema


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
    hints = typing.get_type_hints(function_of(called))
    if isinstance(called, functools.partial):
        left = inspect.signature(called).parameters
        hints = {name: hint for name, hint in hints.items() if name == "return" or name in left}
    return hints


def _whole(called: Callable[..., Any]) -> Callable[..., Any]:
    while isinstance(called, functools.partial):
        called = called.func
    return called


def _is_object(called: Callable[..., Any]) -> bool:
    return not (inspect.isroutine(called) or inspect.isclass(called))


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
        waiting += typing.get_args(kind)
        if kind in (pydantic_class("SecretStr"), pydantic_class("SecretBytes")):
            return str(kind.__name__)
        if isinstance(kind, type) and issubclass(kind, pydantic_class("BaseModel")):
            waiting += _written_by_pydantic(kind)
    return ""


def _written_by_pydantic(model: Any) -> Iterator[Any]:
    """The types of the fields that the model does not write in a way of its own."""
    own = model.__pydantic_decorators__
    by_code = {name for each in own.field_serializers.values() for name in each.info.fields}
    for name, field in model.model_fields.items():
        is_own = name in by_code or any(type(each).__name__.endswith("Serializer") for each in field.metadata)
        if not (is_own or field.exclude or own.model_serializers):
            yield field.annotation


Closed = Literal["all", "classes", "no"]
"""Which objects take no key that the type does not have: `classes` are all but TypedDicts."""

_READS = ("function-before", "function-wrap", "function-plain")
_WRITES = ("function-wrap", "function-plain")
"""How pydantic calls code of the user."""

_UNSAFE = re.compile(r"[^a-zA-Z0-9.\-_]")


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


_MOST = 500  # types that are made again and again, as in a function, must not add up
_known: dict[tuple[Any, Closed], dict[str, Any]] = {}


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
