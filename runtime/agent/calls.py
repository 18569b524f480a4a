"""Steps: functions whose results are recorded.

Inside a run a call goes to the current scope (engine/scope.py). Outside it is the plain function.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Container, Coroutine, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from functools import cached_property, wraps
from types import CodeType, FunctionType, MethodType, SimpleNamespace
from typing import TYPE_CHECKING, Any, Concatenate, Generic, NewType, Protocol, cast, overload

import msgspec

from ...workspace.base import UsageError
from . import type_hints
from .attempts import OnPartial, Partial, Retry
from .codec import Codec

if TYPE_CHECKING:
    from typing_extensions import ParamSpec, TypeVar  # every type checker has this module

    # Without parameters, `Run`, `Step`, `Agent` and `Outcome` mean `Any`, also to a strict type checker.
    P = ParamSpec("P", default=...)
    R = TypeVar("R", default=Any, covariant=True)
    S = TypeVar("S", default=Any)
else:
    from typing import ParamSpec, TypeVar

    P = ParamSpec("P")
    R = TypeVar("R", covariant=True)
    S = TypeVar("S")

Q = ParamSpec("Q")
R2 = TypeVar("R2")
T = TypeVar("T")


class CallingScope(Protocol):
    """What a step needs of the scope it is called in (engine/scope.py)."""

    was_stopped: bool  # one of its calls has raised because the agent must stop

    def stop(self) -> None: ...

    def call(
        self, step: Step, args: tuple[Any, ...], kwargs: dict[str, Any], named: str | None = None
    ) -> Coroutine[Any, Any, Any]: ...

    def expect(
        self, method: Callable[..., Coroutine[Any, Any, Any]], args: tuple[Any, ...], kwargs: dict[str, Any], name: str
    ) -> Coroutine[Any, Any, Any]: ...


class RunParameter:
    """The base of `Run`. A parameter with this annotation receives the run."""


current_scope: ContextVar[CallingScope | None] = ContextVar("current_scope", default=None)
"""The scope that calls made here belong to; None outside a run. Tasks and threads inherit it."""

F = TypeVar("F", bound=Callable[..., Coroutine[Any, Any, Any]])


def awaited(name: str) -> Callable[[F], F]:
    """For an `async def` method of `run`: a forgotten `await` is an error, as for a step. A call that was not awaited
    is true, so `if run.ask(...):` would take silence for an approval. `name` is what agents write."""

    def decorate(method: F) -> F:
        @wraps(method)
        def call(*args: Any, **kwargs: Any) -> Coroutine[Any, Any, Any]:
            scope = current_scope.get()
            return method(*args, **kwargs) if scope is None else scope.expect(method, args, kwargs, name)

        return cast(F, call)

    return decorate


runs_going: set[object] = set()
"""The runs of this process that have not ended. Changed only by adding and discarding, because each has its own
thread."""

MODEL = "model"
"""The parameter of a step that receives the name of a fallback model."""

Key = NewType("Key", str)
"""The type of a parameter that receives the idempotency key of an effect, whatever its name and place."""

KEY = "key"
"""The name of a parameter that receives the key without that type."""


_OF_A_FUNCTION = {
    "__signature__",
    "__annotations__",
    "__annotate__",
    "__code__",
    "__defaults__",
    "__kwdefaults__",
    "__globals__",
    "__type_params__",
}
"""Attributes of functions that are worked out when they are read: types in annotations may be defined after a step."""

Formerly = str | Mapping[str, str] | Sequence[str | Mapping[str, str]]
"""What a step was called in earlier versions of its code: names, and mappings from a parameter's former name to its
name now."""


class _TypesOfCalls(dict[str, Any]):
    """The `__annotations__` of the class `Step`, which has none, and of a step, which has those of its function.

    Without it a step finds those of `Generic`: Python makes them, empty, once a library has asked that class for them.
    """

    def __get__(self, step: Step | None, owner: type[Step]) -> dict[str, Any]:
        return self if step is None else cast(dict[str, Any], _attribute(step, "__annotations__"))


class Step(Generic[P, R]):
    """A function whose result is recorded: after a crash an equal call returns it.

    The function may run again until its result is durable, so it should change nothing outside. Use an effect for that.
    """

    __annotations__ = _TypesOfCalls()
    is_effect = False
    idempotent = False

    @property
    def needs_person(self) -> bool:
        """Only a person can say whether an effect in doubt has happened: it has no `verify` and is not idempotent."""
        return self.verify is None and not self.idempotent

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None,
        retry: Retry | None,
        on_partial: OnPartial | None,
        fallback: Sequence[str] = (),
        formerly: Formerly = (),
    ):
        _check(function, "an effect" if self.is_effect else "a step", has_name=name is not None)
        self.verify: Callable[..., Any] | None = None
        self.not_done: tuple[type[BaseException], ...] = ()
        self._of_class = isinstance(function, classmethod)
        self._binds = self._of_class or inspect.isfunction(function)
        self._is_method = self._of_class or type_hints.is_method(function)
        if isinstance(function, classmethod | staticmethod):
            function = function.__func__
        self._method_shape: _Shape | None = None
        self._is_bound = False
        self.function = function
        self.name = str(name or getattr(function, "__name__", "step"))
        if not self.name.isascii():
            from ...workspace.base import arguments

            arguments.text("the name of a step", self.name)
        self.retry, self.fallback = retry, tuple(fallback)
        self.on_partial: OnPartial = on_partial or "continue"
        self.declares_partial = on_partial is not None
        self.is_async, self.is_generator = type_hints.is_async(function), type_hints.is_generator(function)
        self.former_names, self.renamed = _former(formerly, self.name)
        # Equal for a closure, a partial or an object that is made again.
        self.code = getattr(inspect.unwrap(type_hints.function_of(function)), "__code__", function)
        self.__wrapped__, self.__doc__, self.__name__ = function, function.__doc__, self.name
        self.__module__ = function.__module__
        self.__qualname__: str = getattr(function, "__qualname__", self.name)
        with suppress(NameError):
            self.shape = _Shape(self)

    @cached_property
    def shape(self) -> _Shape:
        """The signature. Read at the decoration, or at the first call if names in annotations were not defined then."""
        return self._read()

    def _read(self) -> _Shape:
        try:
            return _Shape(self)
        except NameError as error:
            raise UsageError(
                f"the annotations of {self.name} can't be resolved",
                why=str(error),
                remedy="import the name where the step is defined, not only for type checking",
            ) from error

    @overload
    def __get__(  # type: ignore[misc]  # not every step is one of a class method
        self: Callable[Concatenate[type[T], Q], Coroutine[Any, Any, R2]], instance: T | None, owner: type[T], /
    ) -> Step[Q, R2]: ...
    @overload
    def __get__(self, instance: None, owner: Any, /) -> Step[P, R]: ...
    @overload
    def __get__(
        self: Callable[Concatenate[T, Q], Coroutine[Any, Any, R2]], instance: T, owner: Any, /
    ) -> Step[Q, R2]: ...
    @overload
    def __get__(self, instance: object, owner: Any, /) -> Step[P, R]: ...
    def __get__(self, instance: Any, owner: Any = None, /) -> Any:
        if self._of_class:
            instance = owner
        return self._bound_to(instance) if self._binds and instance is not None else self

    def _bound_to(self, instance: Any) -> Step:
        """The step of a method of `instance`, which is not one of its arguments."""
        bound = object.__new__(type(self))
        bound.__dict__.update(self.__dict__)
        bound.function = bound.__wrapped__ = MethodType(self.function, instance)
        bound._binds = bound._is_method = bound._of_class = False
        bound._is_bound = True
        if type_hints.is_method(self.verify):
            bound.verify = MethodType(self.verify, instance)
        if self._method_shape is None:
            self._method_shape = bound._read()
        bound.shape = self._method_shape
        return bound

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[object, None, R]:
        # A coroutine, and not any awaitable, so that type checkers name a call without `await`.
        scope = current_scope.get()
        step: Step = self
        given: tuple[Any, ...] = args
        if self._is_method and given:  # called by its class
            step, given = self._bound_to(given[0]), given[1:]
        return step.outside(given, kwargs) if scope is None else scope.call(step, given, kwargs)

    def outside(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call outside a run."""
        return self.function(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name in _OF_A_FUNCTION:
            return _attribute(self, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    @property
    def __class__(self) -> type:
        """Libraries that take functions only, such as `pydantic.validate_call`, take a step."""
        return FunctionType

    @__class__.setter
    def __class__(self, kind: type) -> None:
        raise TypeError(f"the class of {self!r} can't be changed")

    def __reduce__(self) -> str | tuple[Any, ...]:
        """Pickled by name, as a function is."""
        method = cast(MethodType, self.function)
        return (getattr, (method.__self__, method.__name__)) if self._is_bound else self.__qualname__

    def injected(self, hints: dict[str, Any], parameters: Container[str]) -> tuple[str | None, str | None, str | None]:
        """The parameters that receive the `Partial`, the run and the idempotency key."""
        partial = next((name for name, hint in hints.items() if hint is Partial and name != "return"), None)
        return partial, run_parameter(hints), key_parameter(hints, parameters) if self.is_effect else None

    async def recheck(self, call: Any, done: Any) -> None:
        """Verify a recorded result again. Only effects can."""

    def ask_again(self, call: Any, error: UsageError) -> None:
        """Ask again, because a recorded answer of a person can't be used. Only effects have such answers."""
        raise error

    def __repr__(self) -> str:
        return f"<{'effect' if self.is_effect else 'step'} {self.name}>"


class _Shape:
    """The signature of a step: which parameters identify a call, which Satchel fills in, and the type of the result."""

    def __init__(self, step: Step):
        function, name = step.function, step.name
        self._hints = hints = type_hints.hints_of(function)
        signature = inspect.signature(function)
        self.partial, self.run, self.key = step.injected(hints, signature.parameters)
        if not step.is_effect and Key in hints.values():
            raise UsageError(f"{name} has no idempotency key", why="it is a step", remedy="make it an @effect")
        injected = {p for p in (self.partial, self.run, self.key) if p}
        rest = [p for p in signature.parameters.values() if p.name not in injected]
        self._whole, self.signature = signature, signature.replace(parameters=rest)
        ordinary = all(p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD for p in rest)
        self.names = tuple(p.name for p in rest) if ordinary else None
        self._more = next((p.name for p in rest if p.kind is p.VAR_KEYWORD), None)
        self._known = {p.name for p in rest} - {self._more}
        self.defaults = {p.name: _default(p) for p in rest if _default(p) is not p.empty}
        self.is_streamed = self.partial is not None or step.is_generator
        kind = _yielded(hints.get("return", Any), name) if step.is_generator else hints.get("return", Any)
        self.codec = Codec(kind, f"the result of {name}")
        if self.is_streamed and step.is_effect:
            raise UsageError(f"the effect {name} can't be streamed", remedy="stream in a step, and act in an effect")
        if self.is_streamed and not (step.is_async or step.is_generator):
            raise UsageError(
                f"the streamed step {name} must be `async def`",
                why="it must await its writes to the Partial",
                remedy=f"write `async def {name}`, and `await {self.partial}.write(text)`",
            )
        if step.fallback and MODEL not in signature.parameters:
            raise UsageError(
                f"{name} has fallback models but no parameter that names the model",
                remedy=f"give it a parameter called `{MODEL}`: it gets the name of the model",
            )
        if unknown := {*step.renamed.values()} - self._known:
            raise UsageError(
                f"formerly= of {name} names a parameter that it does not have: {min(unknown)}",
                remedy="write {former name: name now}",
            )
        if step.on_partial == "accept" and kind not in (str, Any):
            raise UsageError(f"{name} can't accept a partial", why=f"its result is {kind!r} and a partial is text")

    def bind(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments by name, defaults included: what identifies the call. Those of `**more` are among them."""
        if not kwargs and self.names is not None and len(args) == len(self.names):
            return dict(zip(self.names, args, strict=True))
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{name}(): {error}") from None
        bound.apply_defaults()
        more = bound.arguments.pop(self._more) if self._more else {}
        if twice := more.keys() & bound.arguments.keys():
            raise TypeError(f"{name}(): {min(twice)!r} is given by place and by name, and can't identify the call")
        return {**bound.arguments, **more}

    def decode(self, encoded: bytes) -> dict[str, Any]:
        """Recorded arguments as their annotated types. UsageError if they do not fit this signature."""
        try:
            recorded = msgspec.json.decode(encoded, type=dict[str, msgspec.Raw])
        except msgspec.ValidationError as error:
            raise UsageError("the recorded arguments can't be read", why=str(error)) from error
        known = self._known
        if not known <= recorded.keys() | self.defaults.keys() or (not self._more and recorded.keys() - known):
            raise UsageError("the recorded arguments belong to another signature", why=", ".join(recorded))
        hints = {name: self._hints.get(name if name in known else self._more or name, Any) for name in recorded}
        return {**self.defaults, **{name: Codec(hints[name], name).decode(bytes(recorded[name])) for name in recorded}}

    def unbind(self, arguments: dict[str, Any], injected: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments for the function. `injected` is what Satchel fills in."""
        if self.names is not None:
            return (), {**arguments, **injected}
        signature, whole = self._whole if injected else self.signature, {**arguments, **injected}
        if self._more:
            whole[self._more] = {name: value for name, value in arguments.items() if name not in self._known}
        bound = inspect.BoundArguments(signature, {name: whole[name] for name in signature.parameters})
        return bound.args, bound.kwargs


def _attribute(step: Step, name: str) -> Any:
    """An attribute of functions: what other libraries see of a step.

    A decorator of a framework reads the signature, the types and the flags of a function, and makes a tool of it. A
    step answers as its function does, without the parameters that Satchel fills in. In a run every call of a step must
    be awaited, so a step is a coroutine function, also if its own function is not `async def`.
    """
    if name not in ("__signature__", "__annotations__", "__annotate__"):
        found = getattr(type_hints.function_of(step.function), name)
        is_code = isinstance(found, CodeType) and not step.is_generator
        return found.replace(co_flags=found.co_flags | inspect.CO_COROUTINE) if is_code else found
    signature, hints = inspect.signature(step.function), _annotated(step.function)
    hidden = step.injected(hints, signature.parameters)
    seen = [each for each in signature.parameters.values() if each.name not in hidden]
    if name == "__signature__":
        returned = hints.get("return", signature.return_annotation)
        seen = [each.replace(annotation=hints.get(each.name, each.annotation)) for each in seen]
        return signature.replace(parameters=seen, return_annotation=returned)
    names = {"return", *(each.name for each in seen)}
    annotations = {each: hint for each, hint in hints.items() if each in names}
    return annotations if name == "__annotations__" else lambda format: annotations


def _annotated(called: Callable[..., Any]) -> dict[str, Any]:
    """The types as they are annotated. One with a name that is not defined yet stays text."""
    function = type_hints.function_of(called)
    found = {}
    for name, annotation in getattr(function, "__annotations__", {}).items():
        found[name] = annotation
        alone = SimpleNamespace(__annotations__={name: annotation})
        with suppress(NameError):
            names = getattr(inspect.unwrap(function), "__globals__", {})
            found[name] = typing.get_type_hints(alone, names, include_extras=True)[name]
    return found


def _former(formerly: Formerly, name: str) -> tuple[tuple[str, ...], dict[str, str]]:
    """The former names of a step, and the names of its parameters now, by the former ones."""
    several = isinstance(formerly, Sequence) and not isinstance(formerly, str)
    each = tuple(formerly) if several else (formerly,)
    names = tuple(one for one in each if isinstance(one, str))
    renamed = {old: new for one in each if isinstance(one, Mapping) for old, new in one.items()}
    if len(names) + sum(isinstance(one, Mapping) for one in each) < len(each) or not all(names):
        raise UsageError(
            f"formerly= of {name} got {formerly!r}",
            remedy='write its former name, as in formerly="send", or {former parameter: parameter now}',
        )
    return names, renamed


def _check(function: Any, what: str, *, has_name: bool) -> None:
    """UsageError if no call of `function` could be recorded."""
    if isinstance(function, classmethod | staticmethod):
        function = function.__func__
    words = getattr(function, "__qualname__", None) or repr(function)
    if isinstance(function, Step):
        kind = "an effect" if function.is_effect else "a step"
        raise UsageError(
            f"{function.name} can't be {what} again", why=f"it is {kind} already", remedy="decorate it once"
        )
    if not callable(function):
        remedy = "decorate the method that it calls" if isinstance(function, property) else "decorate a function"
        raise UsageError(f"{words} can't be {what}", why="it can't be called", remedy=remedy)
    if inspect.isclass(function):
        raise UsageError(
            f"the class {words} can't be {what}", why="a record has no objects", remedy="decorate its methods"
        )
    if not has_name and not hasattr(function, "__name__"):
        raise UsageError(
            f"{words} can't be {what} without a name",
            why="a name identifies its calls, and an object has none",
            remedy=f'give it one: {what.rpartition(" ")[2]}(name="...")',
        )
    if inspect.isgeneratorfunction(function):
        raise UsageError(
            f"the generator {words} can't be {what}",
            why="its result would not be JSON",
            remedy="return a list, or write `async def` and yield text: that makes it a streamed step",
        )


def _yielded(kind: Any, name: str) -> Any:
    """The type of the result of an async generator: the text that its parts make."""
    parts = typing.get_args(kind)
    if kind is not Any and (not parts or parts[0] not in (str, Any)):
        raise UsageError(
            f"the generator {name} can't be a step",
            why="it does not yield text, and its result is the whole text",
            remedy="yield `str` (AsyncIterator[str]), or return a list",
        )
    return str


def _default(parameter: inspect.Parameter) -> Any:
    """The default of a parameter, or `Parameter.empty`."""
    return () if parameter.kind is parameter.VAR_POSITIONAL else parameter.default


def key_parameter(hints: Mapping[str, Any], parameters: Container[str]) -> str | None:
    """The parameter that receives the idempotency key, if there is one."""
    typed = next((name for name, hint in hints.items() if hint is Key and name != "return"), None)
    return typed or (KEY if KEY in parameters else None)


def run_parameter(hints: dict[str, Any]) -> str | None:
    """The parameter that receives the run, according to `typing.get_type_hints` of a function."""
    return next((name for name, hint in hints.items() if _is_run(hint) and name != "return"), None)


def _is_run(hint: Any) -> bool:
    kind = typing.get_origin(hint) or hint
    return isinstance(kind, type) and issubclass(kind, RunParameter)


class OwnStep(Step[P, R]):
    """An effect, or a method of the run that its scope treats as a step: `run.ask`, `run.sleep`."""

    async def perform(self, call: Any) -> Any:
        """Perform a call without a recorded result, and record its result."""
        raise NotImplementedError
