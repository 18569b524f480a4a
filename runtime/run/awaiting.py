"""Methods of `run` that must be awaited. A forgotten `await` is an error, as for a step: a call that was not awaited is
true, so `if run.ask(...):` would take silence for an approval."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, cast

from ..steps import current_scope

F = TypeVar("F", bound=Callable[..., Coroutine[Any, Any, Any]])


def awaited(name: str) -> Callable[[F], F]:
    """For an `async def` method: the scope is told of each call, and that it has begun. `name` is what agents write."""

    def decorate(method: F) -> F:
        @functools.wraps(method)
        def call(*args: Any, **kwargs: Any) -> Coroutine[Any, Any, Any]:
            scope = current_scope.get()
            return method(*args, **kwargs) if scope is None else scope.expect(method, args, kwargs, name)

        return cast(F, call)

    return decorate
