"""Take secrets out of exceptions that callers are about to get."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from inspect import isgetsetdescriptor, ismemberdescriptor
from typing import TypeVar

from ...schemas import Problem
from ..base import InvalidFile, SatchelError
from .redactor import Redactor

_T = TypeVar("_T")


def scrub(error: BaseException, redactor: Redactor) -> None:
    """Redact the arguments, attributes and notes of `error`, of its causes and of the members of a group, in place: so
    the caller gets what a re-entry gets from the record. Not guaranteed: an exception that keeps its text elsewhere, as
    a group and those of compiled libraries do. Its record is redacted all the same."""
    waiting: list[BaseException | None] = [error]
    seen: set[int] = set()
    while waiting:
        each = waiting.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        for name in [*_attributes(each)]:
            with suppress(Exception):  # its class may refuse
                if (new := redactor.value(old := getattr(each, name))) is not old:
                    setattr(each, name, new)
        waiting += [each.__cause__, each.__context__]
        if isinstance(each, BaseExceptionGroup):
            waiting += each.exceptions


@contextmanager
def scrubbed(redactor: Redactor) -> Iterator[None]:
    """An error of Satchel that leaves the block quotes no secret: it is shown to people."""
    try:
        yield
    except SatchelError as error:
        scrub(error, redactor)
        raise


def parsed(parse: Callable[[bytes], _T], data: bytes, redactor: Redactor) -> _T:
    """What `parse` returns of a file that a person has typed. Its InvalidFile quotes no secret, nor a part of one: an
    error shortens what it quotes, and nothing would find the rest of a secret in it."""
    try:
        return parse(data)
    except InvalidFile as error:
        hidden = redactor.data(data)
        if hidden is data:
            raise
        parse(hidden)  # is not valid for the same reason
        raise InvalidFile(error.path or "", [Problem("", "a secret", "a valid file", "Take the secret out")]) from None


def _attributes(error: BaseException) -> Iterator[str]:
    """Also those that its class keeps outside its `__dict__`, as `msg` of an ImportError and what is in `__slots__`."""
    yield from vars(error)
    for each in type(error).__mro__:
        for name, found in vars(each).items():
            if (ismemberdescriptor(found) or isgetsetdescriptor(found)) and not name.startswith("__"):
                yield name
