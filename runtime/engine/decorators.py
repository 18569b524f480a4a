"""`@step` and `@effect`: make a function a step, or an effect, which changes the outside world. effects.py makes sure
that an effect happens only once.

What type checkers know of the two: a call takes the parameters of the function without those that Satchel fills in, if
these come first, or first after `self`. The functions that accept a text in such a place are told apart before, because
a parameter of the type `str`, `Any` or `object` would accept a `Key` too. A protocol with two overloads matches what
both match: the first one takes the parameters with their names, the second one says what the function must accept.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeAlias, TypeVar, overload

from msgspec import Struct
from msgspec.structs import replace

from ...workspace.base import AgentError, NotDone, UsageError
from ..agent import (
    Formerly,
    Key,
    OnPartial,
    OwnStep,
    P,
    Partial,
    R,
    Retry,
    RunParameter,
    Step,
    current_scope,
    runs_going,
)

Rest = ParamSpec("Rest")
Q = ParamSpec("Q")
R2 = TypeVar("R2")
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")

Later: TypeAlias = Coroutine[Any, Any, R]
"""What a call of an `async def` returns."""

Own = TypeVar("Own")
"""A first parameter that is not filled in, such as `self`."""

Given = TypeVar("Given", bound=Key | Partial | RunParameter)
Given2 = TypeVar("Given2", bound=Key | Partial | RunParameter)
"""Parameters that Satchel fills in."""

Given_contra = TypeVar("Given_contra", bound=Key | Partial | RunParameter, contravariant=True)


class TextFirst(Protocol[Rest, Q, R_co]):
    """The first parameter accepts a text."""

    @overload
    def __call__(self, *args: Rest.args, **kwargs: Rest.kwargs) -> R_co: ...
    @overload
    def __call__(self, text: str, /, *args: Q.args, **kwargs: Q.kwargs) -> R_co: ...


class TextSecond(Protocol[Rest, Q, R_co]):
    """The second parameter accepts a text."""

    @overload
    def __call__(self, *args: Rest.args, **kwargs: Rest.kwargs) -> R_co: ...
    @overload
    def __call__(self, first: Any, text: str, /, *args: Q.args, **kwargs: Q.kwargs) -> R_co: ...


class GivenThenText(Protocol[Given_contra, Rest, Q, R_co]):
    """The first parameter is filled in, and the second one accepts a text. `Rest` is without the first one."""

    @overload
    def __call__(self, given: Given_contra, /, *args: Rest.args, **kwargs: Rest.kwargs) -> R_co: ...
    @overload
    def __call__(self, given: Given_contra, text: str, /, *args: Q.args, **kwargs: Q.kwargs) -> R_co: ...


class StepDecorator(Struct, frozen=True):
    """Make a sync or async function a step: when it returns, its result is durable in the storage.

    A call is identified by its scope, `name`, arguments, and the number of equal calls before it in that scope.
    Arguments and result must be JSON-serialisable; the result has the annotated type. A parameter annotated `Partial`
    makes it a streamed step; one annotated `Run` receives the run. Type checkers take such parameters away from the
    signature if they come first.

    `on_partial` says what to do with a text that was cut off: `continue` from it, `restart`, or `accept` it as the
    result, with the marker appended. Without it a step continues if it reads the text (`out.recovered`, `out.text`)
    before it writes. `fallback` names models to try in order, through the parameter `model`, when the
    call has failed for good. `formerly` is what the step was called before its code changed, so that recorded calls are
    still its own: a name, or `{former parameter: parameter now}`, or several of them. Not guaranteed: that the function
    runs only once.
    """

    name: str | None = None
    retry: Retry | None = None
    on_partial: OnPartial | None = None
    fallback: Sequence[str] = ()
    formerly: Formerly = ()

    @overload
    def __call__(self, function: TextFirst[P, Q, Later[R]], /) -> Step[P, R]: ...
    @overload
    def __call__(self, function: GivenThenText[Given, P, Q, Later[R]], /) -> Step[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Given, Given2, P], Later[R]], /) -> Step[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Given, P], Later[R]], /) -> Step[P, R]: ...
    @overload
    def __call__(self, function: TextSecond[P, Q, Later[R]], /) -> Step[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Own, Given, P], Later[R]], /) -> Step[Concatenate[Own, P], R]: ...
    @overload
    def __call__(self, function: Callable[P, Later[R]], /) -> Step[P, R]: ...
    @overload
    def __call__(self, function: TextFirst[P, Q, AsyncIterator[str]], /) -> Step[P, str]: ...
    @overload
    def __call__(self, function: GivenThenText[Given, P, Q, AsyncIterator[str]], /) -> Step[P, str]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Given, Given2, P], AsyncIterator[str]], /) -> Step[P, str]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Given, P], AsyncIterator[str]], /) -> Step[P, str]: ...
    @overload
    def __call__(self, function: TextSecond[P, Q, AsyncIterator[str]], /) -> Step[P, str]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[Own, Given, P], AsyncIterator[str]], /
    ) -> Step[Concatenate[Own, P], str]: ...
    @overload
    def __call__(self, function: Callable[P, AsyncIterator[str]], /) -> Step[P, str]: ...
    @overload
    def __call__(self, function: TextFirst[P, Q, R], /) -> Step[P, R]: ...
    @overload
    def __call__(self, function: GivenThenText[Given, P, Q, R], /) -> Step[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Given, Given2, P], R], /) -> Step[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Given, P], R], /) -> Step[P, R]: ...
    @overload
    def __call__(self, function: TextSecond[P, Q, R], /) -> Step[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Own, Given, P], R], /) -> Step[Concatenate[Own, P], R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Step[P, R]: ...

    @overload
    def __call__(
        self,
        *,
        name: str | None = None,
        retry: Retry | None = None,
        on_partial: OnPartial | None = None,
        fallback: Sequence[str] = (),
        formerly: Formerly = (),
    ) -> StepDecorator: ...
    @overload
    def __call__(self, function: Callable[..., Any], /, *, name: str, **options: Any) -> Step: ...
    def __call__(self, function: Callable[..., Any] | None = None, /, **options: Any) -> Any:  # type: ignore[misc]
        if options or function is None:
            made = replace(self, **options)
            return made if function is None else made(function)
        return Step(
            function,
            name=self.name,
            retry=self.retry,
            on_partial=self.on_partial,
            fallback=self.fallback,
            formerly=self.formerly,
        )


step = StepDecorator()


class Effect(OwnStep[P, R]):
    """A step that changes the outside world. It never happens twice without a person's knowledge: see `effect`."""

    is_effect = True

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None,
        retry: Retry | None,
        verify: Callable[..., Any] | None,
        not_done: tuple[type[BaseException], ...],
        idempotent: bool,
        formerly: Formerly,
    ):
        super().__init__(function, name=name, retry=retry, on_partial="restart", formerly=formerly)
        self.verify, self.idempotent = verify, idempotent
        self.not_done: tuple[type[BaseException], ...] = (NotDone, *not_done)

    if TYPE_CHECKING:  # that a method is an effect too

        @overload
        def __get__(  # type: ignore[misc]  # not every step is one of a class method
            self: Callable[Concatenate[type[T], Q], Coroutine[Any, Any, R2]], instance: T | None, owner: type[T], /
        ) -> Effect[Q, R2]: ...
        @overload
        def __get__(self, instance: None, owner: Any, /) -> Effect[P, R]: ...
        @overload
        def __get__(
            self: Callable[Concatenate[T, Q], Coroutine[Any, Any, R2]], instance: T, owner: Any, /
        ) -> Effect[Q, R2]: ...
        @overload
        def __get__(self, instance: object, owner: Any, /) -> Effect[P, R]: ...
        def __get__(self, instance: Any, owner: Any = None, /) -> Any: ...

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

    def named(self, name: str) -> Callable[P, Coroutine[object, None, R]]:
        """This effect under its own name: calls with that name are equal, whatever the arguments. For loops, and for
        arguments that are computed again at every attempt."""
        if not isinstance(name, str) or not name:
            raise UsageError(f"{self.name}.named() takes a name", why=f"got {name!r}")
        from ...workspace.base import arguments  # most agents don't come here

        arguments.text(f"the name in {self.name}.named()", name)

        def call(*args: Any, **kwargs: Any) -> Coroutine[object, None, R]:
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


class EffectDecorator(Struct, frozen=True):
    """Make a function an effect: a step that changes the outside world, and never happens twice without a person's
    knowledge.

    Its intent is durable before it starts. If the record does not tell how it ended (a crash, an exception, a
    cancellation), it is in doubt. Then `verify` is called with the same arguments (and with `key` and the run, if it
    has such parameters); it returns the result or raises `NotDone`. An `idempotent` effect is repeated under the same
    `key`. Otherwise the run stops and asks a person.

    Exceptions of the types `not_done` mean that it certainly has not happened. A parameter of the type `Key`, or named
    `key`, receives the idempotency key, the same at every attempt. Type checkers take a first parameter of the type
    `Key` away from the signature. `formerly`: as for a step. Not guaranteed: that a request is stopped which a frozen
    process has already sent. Pass the key to the receiver, so that it can reject the request.
    """

    name: str | None = None
    retry: Retry | None = None
    verify: Callable[..., Any] | None = None
    not_done: tuple[type[BaseException], ...] = ()
    idempotent: bool = False
    formerly: Formerly = ()

    @overload
    def __call__(self, function: TextFirst[P, Q, Later[R]], /) -> Effect[P, R]: ...
    @overload
    def __call__(self, function: GivenThenText[Given, P, Q, Later[R]], /) -> Effect[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Given, Given2, P], Later[R]], /) -> Effect[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Given, P], Later[R]], /) -> Effect[P, R]: ...
    @overload
    def __call__(self, function: TextSecond[P, Q, Later[R]], /) -> Effect[P, R]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[Own, Given, P], Later[R]], /
    ) -> Effect[Concatenate[Own, P], R]: ...
    @overload
    def __call__(self, function: Callable[P, Later[R]], /) -> Effect[P, R]: ...
    @overload
    def __call__(self, function: TextFirst[P, Q, R], /) -> Effect[P, R]: ...
    @overload
    def __call__(self, function: GivenThenText[Given, P, Q, R], /) -> Effect[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Given, Given2, P], R], /) -> Effect[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Given, P], R], /) -> Effect[P, R]: ...
    @overload
    def __call__(self, function: TextSecond[P, Q, R], /) -> Effect[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Own, Given, P], R], /) -> Effect[Concatenate[Own, P], R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Effect[P, R]: ...

    @overload
    def __call__(
        self,
        *,
        name: str | None = None,
        retry: Retry | None = None,
        verify: Callable[..., Any] | None = None,
        not_done: tuple[type[BaseException], ...] = (),
        idempotent: bool = False,
        formerly: Formerly = (),
    ) -> EffectDecorator: ...
    @overload
    def __call__(self, function: Callable[..., Any], /, *, name: str, **options: Any) -> Effect: ...
    def __call__(self, function: Callable[..., Any] | None = None, /, **options: Any) -> Any:  # type: ignore[misc]
        if options or function is None:
            made = replace(self, **options)
            return made if function is None else made(function)
        return Effect(
            function,
            name=self.name,
            retry=self.retry,
            verify=self.verify,
            not_done=tuple(self.not_done),
            idempotent=self.idempotent,
            formerly=self.formerly,
        )


effect = EffectDecorator()
