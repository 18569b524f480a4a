"""`@step`: make a function a step.

What type checkers know of `@step` and `@effect`: a call takes the parameters of the function without those that Satchel
fills in, if these come first, or first after `self`. The functions that accept a text in such a place are told apart
before, because a parameter of the type `str`, `Any` or `object` would accept a `Key` too. A protocol with two overloads
matches what both match: the first one takes the parameters with their names, the second one says what the function must
accept.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any, Concatenate, ParamSpec, Protocol, TypeAlias, TypeVar, overload

from msgspec import Struct
from msgspec.structs import replace

from .calls import Formerly, Key, P, R, RunParameter, Step
from .partial import OnPartial, Partial
from .retry import Retry

Rest = ParamSpec("Rest")
Q = ParamSpec("Q")
R_co = TypeVar("R_co", covariant=True)

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
