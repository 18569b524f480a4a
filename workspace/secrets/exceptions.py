"""Take secrets out of an exception that a caller is about to get."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from ..base import SatchelError
from .redactor import Redactor

_OF_OS_ERROR = ("strerror", "filename", "filename2")


def scrub(error: BaseException, redactor: Redactor) -> None:
    """Redact the arguments, attributes and notes of `error`, of its causes and of the members of a group, in place: so
    the caller gets what a re-entry gets from the record. Not guaranteed: an exception that keeps its text elsewhere, as
    those of compiled libraries do. Its record is redacted all the same."""
    waiting: list[BaseException | None] = [error]
    seen: set[int] = set()
    while waiting:
        each = waiting.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        with suppress(Exception):  # its class may refuse
            _scrub(each, redactor)
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


def _scrub(error: BaseException, redactor: Redactor) -> None:
    args = redactor.value(error.args)
    if args is not error.args:
        error.args = args
    for name in _OF_OS_ERROR if isinstance(error, OSError) else ():
        _set(error, name, redactor)
    for name in vars(error):
        _set(error, name, redactor)


def _set(error: BaseException, name: str, redactor: Redactor) -> None:
    old: Any = getattr(error, name)
    if (new := redactor.value(old)) is not old:
        setattr(error, name, new)
