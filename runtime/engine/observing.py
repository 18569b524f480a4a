"""What a test observes of the calls of a run besides its records, for example to crash the run there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

from ...workspace.base import NotDone

if TYPE_CHECKING:
    from ..steps import Partial


class Observer(Protocol):
    """Called on the loop, at the moment itself. `call` is a `Call` (open_scope.py, which needs the context and so this
    module)."""

    def wrote(self, call: Any, out: Partial) -> None:
        """A streamed step has written to `out`."""

    def returned(self, call: Any) -> None:
        """The function of an effect has returned, and that is not recorded yet."""

    def denied(self, call: Any) -> None:
        """The `verify` of an effect has raised NotDone."""

    def waits(self, call: Any) -> None:
        """A sleep has begun, or a question is asked, and that is on record."""


_observer: ContextVar[Observer | None] = ContextVar("observer", default=None)


@contextmanager
def observed_by(observer: Observer) -> Iterator[None]:
    """The runs that the body starts are observed."""
    token = _observer.set(observer)
    try:
        yield
    finally:
        _observer.reset(token)


def observer_here() -> Observer | None:
    return _observer.get()


@contextmanager
def verification(call: Any) -> Iterator[None]:
    try:
        yield
    except NotDone:
        if observer := call.scope.context.observer:
            observer.denied(call)
        raise
