"""Exceptions of calls: which call raised one, how it is recorded, and how it is made again at a re-entry."""

from __future__ import annotations

import sys
from contextlib import suppress
from functools import partial as bind
from functools import reduce
from itertools import count
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from ...workspace.base import NotDone, NotSerializable, SatchelError
from ...workspace.formats import decoder
from ...workspace.journal import NOTHING, Failure, Key
from ..agent import brief, of_storage
from ..steps import encode

_MARK = "__satchel_calls__"
_LONGEST = 16 << 10
"""Bytes of the arguments of an exception, and of each attribute, that are kept."""

_CALLS = 32
"""How many calls are noted on one exception: those that it has passed through."""

_members = decoder(list[Failure])

new_place = count(1).__next__
"""A number for each place that contains calls: an attempt at a scope, or a call whose function makes calls."""


class RecordedError(Exception):
    """The exception of a call in an earlier process, if one of its own class can't be made. It is also of the nearest
    base class, and has the same text."""

    def __str__(self) -> str:
        return str(self.__dict__.get("said", ""))

    def __reduce__(self) -> tuple[Any, ...]:
        return RecordedError, self.args, self.__dict__  # its own class was made dynamically and can't be found


# Which call raised it


def mark(error: BaseException, place: int, key: Key, *, is_replayed: bool) -> None:
    """Note on an exception which call has raised it. Uses plain values, so that it can still be pickled."""
    known = error.__dict__.setdefault(_MARK, [])
    known.append((place, key, is_replayed))
    del known[:-_CALLS]  # it may be one object that is raised again and again


def calls_of(error: BaseException, place: int) -> dict[Key, bool]:
    """The calls in `place` that an exception comes from, and whether they had raised it from the record. Looks at the
    members of a group, else at the first exception in the chain of causes that a call has raised."""
    found: dict[Key, bool] = {}
    waiting, seen = [error], set()
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        own = {key: is_replayed for at, key, is_replayed in each.__dict__.get(_MARK, ()) if at == place}
        found |= own
        if own:
            continue
        if isinstance(each, BaseExceptionGroup):
            waiting += each.exceptions
        if above := each.__cause__ or each.__context__:
            waiting.append(above)
    return found


def is_replayed(calls: dict[Key, bool]) -> bool:
    """Whether these calls only raised what is on record."""
    return bool(calls) and all(calls.values())


# How it is kept, and made again


def is_kept(error: BaseException) -> bool:
    """Satchel's own errors are not recorded: they occur again by themselves, or end the run."""
    is_own = isinstance(error, SatchelError) and not isinstance(error, NotDone)
    return isinstance(error, Exception) and not is_own and of_storage(error) is None


def kept(error: Exception) -> Failure:
    """The parts of an exception that can be recorded."""
    kinds = [kind for kind in type(error).__mro__ if issubclass(kind, Exception)]
    types = tuple(f"{kind.__module__}:{kind.__qualname__}" for kind in kinds)
    if isinstance(error, ExceptionGroup):
        members = msgspec.json.encode([kept(each) for each in error.exceptions])
        return replace(brief(error), message=error.message, types=types, members=Raw(members))
    attributes = {name: value for name, value in vars(error).items() if name != _MARK and _is_json(value)}
    args = [*(OSError.__reduce__(error)[1] if isinstance(error, OSError) else error.args)]  # with the names of files
    return replace(
        brief(error),
        types=types,
        args=Raw(encode(args, "args")) if _is_json(args) else NOTHING,
        attributes=Raw(encode(attributes, "attributes")) if attributes else NOTHING,
    )


def again(failure: Failure) -> Exception:
    """The exception: of its own class if an equal one can be made, else a RecordedError of that class or the nearest
    base class."""
    kinds = [kind for kind in map(_known, failure.types) if kind is not None]
    ways = [bind(_made, kind) for kind in kinds[:1] if _known(failure.types[0]) is kind]
    for way in [*ways, *(bind(_recorded, kind) for kind in kinds)]:
        with suppress(Exception):  # the class itself may raise anything
            return way(failure)
    error = RecordedError(failure.message)
    error.__dict__["said"] = failure.message
    return error


def _made(kind: type[Exception], failure: Failure) -> Exception:
    if len(failure.members):
        members = [again(each) for each in _members.decode(failure.members)]
        return kind.__new__(kind, failure.message, members)
    error = kind.__new__(kind, *msgspec.json.decode(failure.args))
    _give_attributes(error, failure)
    if brief(error).message != failure.message:
        raise ValueError("it says something else")
    return error


def _recorded(kind: type[Exception], failure: Failure) -> Exception:
    bases = (RecordedError,) if kind is Exception else (RecordedError, kind)
    module, _, name = failure.types[0].rpartition(":") if failure.types else ("", "", failure.kind)
    made: type[Exception] = type(name.rpartition(".")[2] or "RecordedError", bases, {"__module__": module})
    error = made.__new__(made, failure.message)
    _give_attributes(error, failure)
    error.__dict__["said"] = failure.message
    str(error)
    return error


def _give_attributes(error: Exception, failure: Failure) -> None:
    if len(failure.attributes):
        error.__dict__.update(msgspec.json.decode(failure.attributes, type=dict[str, Any]))


def _known(name: str) -> type[Exception] | None:
    """A class by its name, if the process has already imported it."""
    module, _, path = name.partition(":")
    found = reduce(lambda of, part: getattr(of, part, None), path.split("."), sys.modules.get(module))
    return found if isinstance(found, type) and issubclass(found, Exception) else None


def _is_json(value: Any) -> bool:
    """Whether the value is unchanged after a round trip through JSON."""
    try:
        data = encode(value, "")
    except NotSerializable:
        return False
    return len(data) <= _LONGEST and repr(msgspec.json.decode(data)) == repr(value)
