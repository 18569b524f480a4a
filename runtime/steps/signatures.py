"""What type checkers know of `@step` and `@effect`: a call takes the parameters of the function without those that
Satchel fills in, if these come first, or first after `self`.

The functions that accept a text in such a place are told apart before, because a parameter of the type `str`, `Any` or
`object` would accept a `Key` too. A protocol with two overloads matches what both match: the first one takes the
parameters with their names, the second one says what the function must accept.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, ParamSpec, Protocol, TypeAlias, TypeVar, overload

from .calls import Key, R, RunParameter
from .partial import Partial

P = ParamSpec("P")
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


class TextFirst(Protocol[P, Q, R_co]):
    """The first parameter accepts a text."""

    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...
    @overload
    def __call__(self, text: str, /, *args: Q.args, **kwargs: Q.kwargs) -> R_co: ...


class TextSecond(Protocol[P, Q, R_co]):
    """The second parameter accepts a text."""

    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...
    @overload
    def __call__(self, first: Any, text: str, /, *args: Q.args, **kwargs: Q.kwargs) -> R_co: ...


class GivenThenText(Protocol[Given_contra, P, Q, R_co]):
    """The first parameter is filled in, and the second one accepts a text. `P` is without the first one."""

    @overload
    def __call__(self, given: Given_contra, /, *args: P.args, **kwargs: P.kwargs) -> R_co: ...
    @overload
    def __call__(self, given: Given_contra, text: str, /, *args: Q.args, **kwargs: Q.kwargs) -> R_co: ...
