"""The user's values as JSON and back: arguments, results, and the agent's state.

msgspec does the work, and refuses what no record can hold; `clean` takes that out of what comes from outside. pydantic
models (2.11 or newer) are recognised if the user's code has imported pydantic, and are written with their own field
names. A decoded value has the annotated type at the first call and at a re-entry, so that a type can't change only
after a crash.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cached_property
from itertools import chain
from typing import Any, TypeVar

import msgspec

from ...workspace.base import NotSerializable, SatchelError, UsageError
from ...workspace.formats import decoder
from .type_hints import (
    Closed,
    UnknownKey,
    hints_of,
    masked,
    parts_of,
    put_into,
    pydantic_class,
    schema_of,
    sealed_class,
    unknown_keys,
)

T = TypeVar("T")

_REMEDY = (
    "use JSON values, dataclasses, TypedDicts, pydantic models, datetimes, bytes, enums, or convert the value yourself"
)


_MASKED = "pydantic writes a {} as asterisks"


def _encode_other(value: Any) -> Any:
    if isinstance(value, pydantic_class("BaseModel")):
        kind: Any = type(value)
        if secret := masked(kind):
            raise ValueError(_MASKED.format(secret))
        return _dumped(value)
    if isinstance(value, sealed_class()):
        return value.sealed
    if isinstance(value, str):
        return str(value)
    raise NotImplementedError(type(value).__qualname__)


def _dumped(model: Any, mode: str = "json", include: set[str] | None = None) -> Any:
    """A pydantic model as JSON. What does not fit its fields is for its type to refuse, not for a warning."""
    return model.model_dump(mode=mode, include=include, round_trip=True, by_alias=False, warnings=False)


def _names_of_model(model: Any) -> list[str]:
    """What is dumped of a pydantic model."""
    kept = [name for name, field in type(model).model_fields.items() if not field.exclude]
    return [*kept, *(model.model_extra or ())]


def _encode_numbers(value: Any) -> Any:
    """For `check_numbers`. pydantic's JSON has None for a number that is not finite, too."""
    return _dumped(value, "python") if isinstance(value, pydantic_class("BaseModel")) else _encode_other(value)


def _decode_other(kind: type, value: Any) -> Any:
    if issubclass(kind, pydantic_class("BaseModel")):
        return kind.model_validate(value, by_alias=False, by_name=True)  # type: ignore[attr-defined]
    if issubclass(kind, sealed_class()):
        return kind.opened(value)  # type: ignore[attr-defined]
    raise NotImplementedError(kind.__qualname__)


def _encode_checked(value: Any) -> Any:
    """The same, for what is recorded as it is. Of two keys with the same text pydantic keeps one."""
    if isinstance(value, pydantic_class("BaseModel")) and next(_repeated(value, "", 0), None):
        raise ValueError("two keys have the same text")
    return _encode_other(value)


_plain = msgspec.json.Encoder(enc_hook=_encode_other)
_checking = msgspec.json.Encoder(enc_hook=_encode_checked)
_canonical = msgspec.json.Encoder(enc_hook=_encode_checked, order="sorted")
_packed = msgspec.msgpack.Encoder(enc_hook=_encode_numbers)
_quick = msgspec.msgpack.Encoder()


DEPTH = 90
"""How deep lists and objects may be nested. The files that show a value add a few levels, and readers stop at 100 or at
the end of the stack."""

_TEXT = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')
_LISTS = bytes.maketrans(b"{}", b"[]")
_OTHERS = bytes(each for each in range(256) if each not in b"[]{}")
_NOT_FINITE = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]")
"""How such a number begins in msgpack. Other values may contain these bytes, too."""

_UNFIT = (TypeError, NotImplementedError, UnicodeEncodeError, ValueError, OverflowError, RecursionError)


def canonical(value: Any, what: str) -> bytes:
    """The one JSON text of a value: equal values have equal texts, whatever the order of their keys. NotSerializable
    names the place, as in `what.items[3].when`."""
    try:
        data = _canonical.encode(value)
    except _UNFIT:  # among others for keys that are no text, which it does not sort
        return msgspec.json.encode(msgspec.json.decode(encode(value, what)), order="sorted")
    _check_null(data, value, what)
    return check_depth(data, what)


def encode(value: Any, what: str) -> bytes:
    """JSON to record. NotSerializable names the place, as in `what.items[3].when`."""
    data = _encode(_checking, value, what)
    try:
        _canonical.encode(value)
    except TypeError as error:  # there are keys that are no text, and two of them may have the same
        if next(_repeated(value, what, 0), None):
            raise _unkept(value, what, error) from error
    return check_depth(data, what)


def encode_of_any_depth(value: Any, what: str) -> bytes:
    """JSON to compare. The depth of the recorded part is checked separately."""
    return _encode(_plain, value, what)


def unchecked(value: Any, what: str) -> bytes:
    """JSON to compare. The recorded part is checked by `check_depth`, and by `check_numbers` if it contains `null`."""
    try:
        return _plain.encode(value)
    except _UNFIT as error:
        raise _unkept(value, what, error) from error


def fingerprint(value: Any, into: bytearray) -> bool:
    """Put bytes into a buffer that are equal while the value is equal: msgpack, which costs a fifth of JSON for values
    that are mostly text. New memory for the bytes of a large value costs more than that, so use a buffer again. False
    if msgspec does not know the type itself, because then it would cost as much; the buffer is of no use then."""
    try:
        _quick.encode_into(value, into)
    except _UNFIT:
        return False
    return True


def check_numbers(value: Any, what: str) -> None:
    """NotSerializable if the value contains a number that is not finite. JSON has `null` for it, msgpack the number
    itself."""
    try:
        is_suspect = _NOT_FINITE.search(_packed.encode(value)) is not None
    except _UNFIT:  # an integer of more than 64 bits
        is_suspect = True
    if is_suspect:
        for place, number in _not_finite(value, what, 0):
            raise NotSerializable(f"{place} can't be kept", why=f"{number} is not JSON", remedy=_REMEDY)


def check_depth(data: bytes, what: str, *, around: int = 0) -> bytes:
    """Return the JSON. NotSerializable if it is nested too deep to be read back with `around` levels around it."""
    if data.count(b"[") + data.count(b"{") + around <= DEPTH:
        return data
    left = _TEXT.sub(b"", data).translate(_LISTS, _OTHERS)
    for _ in range(DEPTH - around):
        left = left.replace(b"[]", b"")  # one level of it, the innermost
        if not left:
            return data
    raise NotSerializable(f"{what} can't be kept", why=f"it is nested more than {DEPTH} deep", remedy="make it flatter")


def _encode(encoder: msgspec.json.Encoder, value: Any, what: str) -> bytes:
    try:
        data = encoder.encode(value)
    except _UNFIT as error:
        raise _unkept(value, what, error) from error
    _check_null(data, value, what)
    return data


def _check_null(data: bytes, value: Any, what: str) -> None:
    if b"null" in data:  # which is also what msgspec makes of NaN
        check_numbers(value, what)


def _unkept(value: Any, what: str, error: Exception) -> NotSerializable:
    found = chain(_faults(value, what, 0), _repeated(value, what, 0))
    place, reason = next(found, (what, str(error)))
    return NotSerializable(f"{place} can't be kept", why=reason, remedy=_REMEDY)


def _faults(value: Any, place: str, depth: int) -> Iterator[tuple[str, str]]:
    """The places in `value` that are not JSON, and why."""
    if depth > DEPTH:
        yield place, f"it is nested more than {DEPTH} deep, or contains itself"
    elif isinstance(value, float):
        if not math.isfinite(value):
            yield place, f"{value} is not JSON"
    elif isinstance(value, str):
        if not _is_leaf(value):
            yield place, _HALF
    elif isinstance(value, pydantic_class("BaseModel")):
        yield from _faults_of_model(value, place, depth)
    elif (parts := parts_in(value, place)) is not None:
        for key in value if isinstance(value, dict) else ():
            if not _is_leaf({key: 0}):
                kind = type(key).__qualname__
                yield f"{place}.{key!r}", _HALF if isinstance(key, str) else f"a {kind} can't be a key"
        for where, inner in parts:
            yield from _faults(inner, where, depth + 1)
    elif not _is_leaf(value):
        yield place, f"a value of the type {type(value).__qualname__} is not JSON"


_HALF = "half of a surrogate pair is not text"


def _faults_of_model(model: Any, place: str, depth: int) -> Iterator[tuple[str, str]]:
    """The same in a pydantic model. One that can't be dumped has a field that can't."""
    try:
        dumped = _dumped(model)
    except _UNFIT as error:
        for name in _names_of_model(model):
            where = f"{place}.{name}"
            try:
                _dumped(model, include={name})
            except _UNFIT as failure:
                yield next(_faults(getattr(model, name, None), where, depth + 1), (where, str(failure)))
        yield place, str(error)
    else:
        yield from _faults(dumped, place, depth + 1)


def _not_finite(value: Any, place: str, depth: int) -> Iterator[tuple[str, float]]:
    """The numbers in `value` that are not finite, and their places."""
    if isinstance(value, float) and not math.isfinite(value):
        yield place, value
    elif depth <= DEPTH:
        for where, inner in parts_in(value, place) or ():
            yield from _not_finite(inner, where, depth + 1)


def _repeated(value: Any, place: str, depth: int) -> Iterator[tuple[str, str]]:
    """The places in `value` with two keys that JSON can't tell apart, and which."""
    if depth > DEPTH:
        return
    if isinstance(value, dict) and any(type(key) is not str for key in value):
        texts: dict[str, Any] = {}
        for key in value:
            other = texts.setdefault(text_of_key(key), key)
            if other is not key:
                yield place, f"the keys {other!r} and {key!r} have the same text"
    for where, inner in parts_in(value, place) or ():
        yield from _repeated(inner, where, depth + 1)


def parts_in(value: Any, place: str) -> Iterable[tuple[str, Any]] | None:
    """The parts of a value, and their places. None for a value without parts."""
    if isinstance(value, str | int | float | bytes):
        return None
    if isinstance(value, dict):
        return ((f"{place}.{key}", inner) for key, inner in value.items())
    if isinstance(value, list | tuple | set | frozenset):
        return ((f"{place}[{index}]", inner) for index, inner in enumerate(value))
    is_model = isinstance(value, pydantic_class("BaseModel"))
    names: Iterable[str] | None = _names_of_model(value) if is_model else fields_of(value)
    return None if names is None else ((f"{place}.{name}", getattr(value, name, None)) for name in names)


def fields_of(value: Any) -> tuple[str, ...] | None:
    """The fields that the class of an object declares. None for other values, and for pydantic models."""
    return fields_of_class(type(value))


def fields_of_class(kind: Any) -> tuple[str, ...] | None:
    """The same for a class."""
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind))  # without those of the class, as `ClassVar`
    for attribute in ("__struct_fields__", "__attrs_attrs__"):
        if hasattr(kind, attribute):
            return tuple(getattr(field, "name", field) for field in getattr(kind, attribute))
    return None


def private_of(kind: Any) -> tuple[str, ...]:
    """The private attributes that a class of attrs declares."""
    return tuple(each.name for each in getattr(kind, "__attrs_attrs__", ()) if each.name.startswith("_"))


def text_of_key(key: Any) -> str:
    """The key as JSON has it."""
    try:
        return key if type(key) is str else next(iter(msgspec.json.decode(_plain.encode({key: None}))))
    except _UNFIT:
        return str(key)  # as pydantic may have it


def _is_leaf(value: Any) -> bool:
    try:
        _plain.encode(value)
    except (TypeError, NotImplementedError, UnicodeEncodeError, ValueError):
        return False
    return True


class Codec:
    """JSON to one type. `Any`, or no annotation, means JSON's own types."""

    def __init__(self, kind: Any, what: str):
        kind = Any if kind is object else kind
        self.kind, self._what = kind, what
        self._adapter: Any = None  # of pydantic, for a type that only pydantic can read
        self.is_plain = kind is Any
        if not self.is_plain and (why := _unread(kind)):
            raise UsageError(f"{what} has a type that can't be read back", why=why, remedy=_REMEDY)
        try:
            self._decoder: msgspec.json.Decoder[Any] = decoder(kind, dec_hook=_decode_other)
        except TypeError as error:  # a type msgspec can't build; pydantic may
            if not (adapter := pydantic_class("TypeAdapter")):
                raise UsageError(f"{what} has a type that can't be read back", why=str(error)) from error
            self._adapter = adapter(kind)

    def decode(self, data: bytes) -> Any:
        """The value in `data`. UsageError if it is not of the type."""
        try:
            return self.load(data)
        except ValueError as error:
            raise UsageError(f"{self._what} does not fit its type", why=str(error)) from error

    def load(self, data: bytes) -> Any:
        """The same. ValueError if it is not of the type: msgspec's and pydantic's own, if it is from them."""
        try:
            if self._adapter:
                return self._adapter.validate_json(data, by_alias=False, by_name=True)
            return self._decoder.decode(data)
        except (NotImplementedError, TypeError) as error:
            raise ValueError(str(error)) from error

    def returned(self, data: bytes) -> tuple[Any, bytes]:
        """The value of a result, and the JSON to record for it: without the keys that the type does not have. A
        TypedDict keeps them."""
        value, dropped = self._whole(data)
        return value, encode(value, self._what) if dropped else data

    def recorded(self, data: bytes, *, keeps_unknown: bool = False) -> Any:
        """The value of a recorded result. UsageError if it is not of the type, or if earlier code has recorded a key
        that the type does not have: a TypedDict keeps it, and with `keeps_unknown` it is only not read."""
        value, dropped = self._whole(data)
        if dropped and not keeps_unknown:
            raise UsageError(f"{self._what} does not fit its type", why=str(dropped[0])) from ValueError(dropped[0])
        return value

    def _whole(self, data: bytes) -> tuple[Any, list[UnknownKey]]:
        """The value, with the keys that TypedDicts do not have, and those that other types have dropped."""
        value = self.decode(data)
        if self.is_plain or data[:1] not in (b"{", b"["):
            return value, []
        try:
            written = unchecked(value, self._what)
        except SatchelError:
            written = b"null"
        if written == data:  # as almost always, and cheaper than to look for keys
            return value, []
        left = put_into(value, msgspec.json.decode(data), self.unknown_keys)
        own = {each.path for each in self.unknown_keys(msgspec.json.decode(written))} if left else ()
        return value, [each for each in left if each.path not in own]  # a computed field is written, and not read

    def unknown_keys(self, given: Any) -> Iterator[UnknownKey]:
        """The keys in `given`, JSON's own types, that `decode` drops because the type does not have them."""
        if not self.is_plain:
            yield from unknown_keys(self.kind, given)

    @cached_property
    def has_private(self) -> bool:
        """Whether a class of attrs in the type declares a private attribute: msgspec leaves it out of the JSON."""
        return not self.is_plain and any(private_of(getattr(part, "cls", None)) for part in parts_of(self.kind))

    @cached_property
    def has_sealed(self) -> bool:
        """Whether a value in the type is sealed, as far as msgspec knows the type."""
        return not self.is_plain and any(
            issubclass(part.cls, sealed_class()) for part in parts_of(self.kind) if hasattr(part, "cls")
        )

    @property
    def is_for_pydantic(self) -> bool:
        """Whether only pydantic can read the type."""
        return self._adapter is not None

    def schema(self, closed: Closed = "all") -> dict[str, Any]:
        """The type as a JSON Schema, shared: do not change it. `closed`: which objects take no key that it does not
        have."""
        if self.is_plain:
            return {}
        try:
            return schema_of(self.kind, self._adapter, closed)
        except Exception as error:
            raise UsageError(f"{self._what} has a type that has no JSON Schema", why=str(error)) from error


def fill_defaults(value: Any) -> None:
    """Give the dataclasses in a decoded value their defaults. msgspec leaves those in the class, and encodes only what
    is in the object."""
    if isinstance(value, dict):
        inner: Iterable[Any] = value.values()
    elif isinstance(value, list | tuple | set | frozenset):
        inner = value
    elif (fields := fields_of(value)) is not None:
        own = getattr(value, "__dict__", None)
        if own is not None:
            own.update({name: getattr(value, name) for name in fields if name not in own and hasattr(value, name)})
        inner = [getattr(value, name, None) for name in fields]
    else:
        return
    for each in inner:
        fill_defaults(each)


def _unread(kind: Any) -> str:
    """Why neither msgspec nor pydantic can read a class within a type; empty if they can. Found before a step runs,
    because an effect that has happened and can't be read back would be in doubt for ever."""
    from msgspec import inspect

    for part in parts_of(kind):
        if not isinstance(part, inspect.CustomType):
            continue
        if issubclass(part.cls, pydantic_class("BaseModel")):
            if secret := masked(part.cls):
                return _MASKED.format(secret)
        elif not issubclass(part.cls, sealed_class()):
            return f"{part.cls.__qualname__} is not JSON"
    return ""


ANY = Codec(Any, "the value")


def result_codec(function: Callable[..., Any], name: str = "") -> Codec:
    """The result of a scope or an agent has the annotated type of its function, like that of a step."""
    try:
        kind = hints_of(function).get("return", Any)
    except (NameError, TypeError):
        return ANY
    return Codec(kind, f"the result of {name or getattr(function, '__name__', 'the scope')}")


_NESTED = 64
"""Levels of lists and dicts that stay. A record can hold more, so that the value can be put into others."""

_AS_TEXT = 200
"""Levels below these that become text. The number does not depend on how much room the stack has."""

_TOO_DEEP = "…"


def clean(value: T) -> T:
    """`value` without what no record can hold, for what comes from outside: a model's answer, the arguments that it
    wrote, a tool's text. Takes text and JSON values; returns the same object if nothing had to be changed.

    Half of a surrogate pair becomes U+FFFD, and two halves in a row their character. NaN and infinity (as `1e400` gives
    it) become None, as in JSON. Lists and dicts that are nested more than 64 deep become their JSON, as text, or `…` if
    it has more than 200 levels. So does what contains itself. If two keys become the same, the later one counts. Other
    values, such as dates and dataclasses, stay as they are.
    """
    try:
        check_depth(encode_of_any_depth(value, ""), "", around=DEPTH - _NESTED)
    except NotSerializable:
        return _clean(value, ())  # type: ignore[no-any-return]
    return value


def _clean(value: Any, above: tuple[int, ...]) -> Any:
    """`above`: the ids of the lists and dicts that `value` is in."""
    inside = (*above, id(value))
    match value:
        case str():
            return _mended(value)
        case float():
            return value if math.isfinite(value) else None
        case dict() | list() | tuple() if id(value) in above:
            return _TOO_DEEP
        case dict() | list() | tuple() if len(above) == _NESTED:
            return _as_json(value)
        case dict():
            pairs = value.items()
            return {_mended(key) if isinstance(key, str) else key: _clean(each, inside) for key, each in pairs}
        case list():
            return [_clean(each, inside) for each in value]
        case tuple():
            return tuple(_clean(each, inside) for each in value)
    return value


def _mended(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def _as_json(value: Any) -> str:
    level = [value]
    for _ in range(_AS_TEXT):
        level = [*{id(inner): inner for each in level for inner in _inside(each)}.values()]
        if not level:
            with suppress(TypeError):  # a key that is no text
                return _mended(json.dumps(value, ensure_ascii=False, default=repr))
    return _TOO_DEEP


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list | tuple) else ()
