"""Take secrets out of an exception that a caller is about to get."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from inspect import isgetsetdescriptor, ismemberdescriptor

from ..base import SatchelError
from .redactor import Redactor


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


def _attributes(error: BaseException) -> Iterator[str]:
    """Also those that its class keeps outside its `__dict__`, as `msg` of an ImportError and what is in `__slots__`."""
    yield from vars(error)
    for each in type(error).__mro__:
        for name, found in vars(each).items():
            if (ismemberdescriptor(found) or isgetsetdescriptor(found)) and not name.startswith("__"):
                yield name
