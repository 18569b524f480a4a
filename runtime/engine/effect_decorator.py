"""`@effect`: functions that change the outside world. effects.py makes sure that they happen only once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar, overload

from ...workspace.base import AgentError, NotDone, UsageError
from ..steps import Retry, current_scope, runs_going
from .own_step import OwnStep

R = TypeVar("R")


class Effect(OwnStep[R]):
    """A step that changes the outside world. It never happens twice without a person's knowledge: see `effect`."""

    is_effect = True

    def __init__(
        self, function: Callable[..., Any], *, name: str | None, retry: Retry | None,
        verify: Callable[..., Any] | None, not_done: tuple[type[BaseException], ...], idempotent: bool,
    ):  # fmt: skip
        super().__init__(function, name=name, retry=retry, on_partial="restart")
        self.verify, self.idempotent = verify, idempotent
        self.not_done: tuple[type[BaseException], ...] = (NotDone, *not_done)

    def plain(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself, and record nothing: it may happen twice. For code outside the run in a process with
        an active run, such as a web handler or a test."""
        return self.function(*args, **kwargs)

    def outside(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if runs_going:
            raise AgentError(
                f"the effect {self.name} was called outside the run of this process",
                why="Satchel can't record it, so the next start would do it again; a thread that run_in_executor or "
                "threading starts does not know the run",
                remedy=f"await {self.name}(...) in the agent: Satchel runs it in a thread if it is not "
                f"`async def`; or call {self.name}.plain(...) if it is not part of the run",
            )
        return self.function(*args, **kwargs)

    def named(self, name: str) -> Callable[..., Coroutine[Any, Any, R]]:
        """This effect under its own name: calls with that name are equal, whatever the arguments. For loops, and for
        arguments that are computed again at every attempt."""
        if not isinstance(name, str) or not name:
            raise UsageError(f"{self.name}.named() takes a name", why=f"got {name!r}")

        def call(*args: Any, **kwargs: Any) -> Coroutine[Any, Any, R]:
            scope = current_scope.get()
            return self.outside(args, kwargs) if scope is None else scope.call(self, args, kwargs, named=name)

        return call

    async def perform(self, call: Any) -> Any:
        """Do it once, or find out that it was done."""
        from . import effects  # an agent's file declares effects, which needs nothing of a run

        return await effects.perform(call)

    async def recheck(self, call: Any, done: Any) -> None:
        """Verify a finished effect again. If it has not happened, ask a person. If it can't be verified, believe the
        record, unless a person is being asked already."""
        from . import effects

        with call.scope.work:
            await effects.recheck(call, done)

    def ask_again(self, call: Any, error: UsageError) -> None:
        """A person's answer does not have the effect's result type."""
        from . import effects

        effects.ask(call, "unknown_outcome", f"the answer can't be used: {error.why}")


@overload
def effect(function: Callable[..., Awaitable[R]], /) -> Effect[R]: ...
@overload
def effect(function: Callable[..., R], /) -> Effect[R]: ...
@overload
def effect(
    *, name: str | None = None, retry: Retry | None = None, verify: Callable[..., Any] | None = None,
    not_done: tuple[type[BaseException], ...] = (), idempotent: bool = False,
) -> Callable[[Callable[..., Any]], Effect[Any]]: ...  # fmt: skip
def effect(
    function: Callable[..., Any] | None = None, /, *,
    name: str | None = None, retry: Retry | None = None, verify: Callable[..., Any] | None = None,
    not_done: tuple[type[BaseException], ...] = (), idempotent: bool = False,
) -> Any:  # fmt: skip
    """Make a function an effect: a step that changes the outside world, and never happens twice without a person's
    knowledge.

    Its intent is durable before it starts. If the record does not tell how it ended (a crash, an exception, a
    cancellation), it is in doubt. Then `verify` is called with the same arguments (and with `key` and the run, if it
    has such parameters); it returns the result or raises `NotDone`. An `idempotent` effect is repeated under the same
    `key`. Otherwise the run stops and asks a person.

    Exceptions of the types `not_done` mean that it certainly has not happened. A parameter of the type `Key`, or named
    `key`, receives the idempotency key, the same at every attempt. Not guaranteed: that a request is stopped which a
    frozen process has already sent. Pass the key to the receiver, so that it can reject the request.
    """

    def make(function: Callable[..., Any]) -> Effect[Any]:
        return Effect(
            function, name=name, retry=retry, verify=verify, not_done=tuple(not_done), idempotent=idempotent
        )  # fmt: skip

    return make if function is None else make(function)
