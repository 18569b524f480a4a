"""`@agent`: the agent's function, how its code is imported, and its arguments as they are recorded.

Arguments are one JSON object by parameter, defaults included. They have the annotated types at the first start and at
every later one, as those of a step.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
import typing
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import GenericAlias
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, Protocol, TypeVar, overload

import msgspec
from msgspec import Struct

from ...schemas import dotted, nearest
from ...workspace.base import UsageError
from ..steps import Codec, P, R, RunParameter, canonical, declared, fill_defaults
from .migrations import Migration, chain
from .resource import Resource, check_resources

if TYPE_CHECKING:
    from ...workspace.store import Store

GivenRun = TypeVar("GivenRun", bound=RunParameter)

AgentFunction = Callable[..., Awaitable[Any]]

Durability = Literal["strict", "pipelined"]

Effects = Literal["report", "strict"]

Unknown = Literal["refuse", "keep"]

_EXTRAS = {
    "agents": "openai-agents",
    "claude_agent_sdk": "claude-agent-sdk",
    "deepagents": "deepagents",
    "langgraph": "langgraph",
    "pydantic_ai": "pydantic-ai",
}
"""Modules of frameworks that there are adapters for, and the extras of Satchel that install them."""


class Agent(Struct, Generic[P, R], frozen=True):
    """A user's `async def agent(run)` with the type of its state and its declarations. `P` are its parameters after the
    run, `R` is its result."""

    function: AgentFunction
    state: Any = dict[str, Any]
    durability: Durability = "strict"
    on_cancel: AgentFunction | None = None
    resources: tuple[Resource, ...] = ()
    migrations: tuple[Migration, ...] = ()  # by the version they lead to
    effects: Effects = "report"
    drop: tuple[str, ...] = ()
    unknown: Unknown = "refuse"

    @property
    def version(self) -> int:
        """The version of the state type: that of the last migration, 1 without any."""
        return self.migrations[-1].to if self.migrations else 1

    def schema_of_data(self) -> dict[str, Any]:
        """What people's edits of its data are checked by."""
        return Codec(self.state, "the state").schema("no" if self.unknown == "keep" else "all")

    def initial_state(self) -> Any:
        """The first state: the defaults of the type."""
        origin = typing.get_origin(self.state) or self.state
        if typing.is_typeddict(origin):
            return {}
        try:
            return origin()
        except (TypeError, ValueError) as error:
            raise UsageError(
                f"the state type {getattr(origin, '__name__', origin)} can't be made without arguments",
                why=str(error),
                remedy="give every field a default",
            ) from error


class _AgentDecorator(Protocol):
    """`@agent` with options."""

    def __call__(self, function: Callable[Concatenate[GivenRun, P], Awaitable[R]], /) -> Agent[P, R]: ...


@overload
def agent(function: Callable[Concatenate[GivenRun, P], Awaitable[R]], /) -> Agent[P, R]: ...
@overload
def agent(
    *,
    state: Any = ...,
    durability: Durability = ...,
    on_cancel: AgentFunction | None = ...,
    resources: Sequence[Resource] = ...,
    migrations: Sequence[Migration] = ...,
    effects: Effects = ...,
    drop: Sequence[str] = ...,
    unknown: Unknown = ...,
) -> _AgentDecorator: ...
def agent(
    function: AgentFunction | None = None,
    /,
    *,
    state: Any = dict[str, Any],
    durability: Durability = "strict",
    on_cancel: AgentFunction | None = None,
    resources: Sequence[Resource] = (),
    migrations: Sequence[Migration] = (),
    effects: Effects = "report",
    drop: Sequence[str] = (),
    unknown: Unknown = "refuse",
) -> Any:
    """Make `async def f(run)` an agent.

    Satchel calls it from the top at every start, with the files as they are. Finished items are skipped, and finished
    steps of unfinished items return their recorded results. `state` is the type of `run.state`: a pydantic model,
    dataclass, TypedDict, or dict without it.

    `durability`: with `strict` a step returns when its record is durable. With `pipelined` it returns at once, and its
    record follows within a tenth of a second; effects, questions, outputs and commits wait for all earlier records. A
    kill may lose the last few steps, which run again.

    `on_cancel`: an `async def f(run)` that is called in place of the agent when the run is cancelled, to undo what must
    not stay half done. Its steps and effects are recorded like the agent's.

    `resources` of the root agent are opened before it is called and released after it: `run.resources[name]`.
    `migrations` convert data of earlier versions of the agent to the current state type.

    `effects`: a scope may commit without calling an effect that an earlier attempt has done, for example because its
    code has changed. With `report` the log, the status and the screen say so. With `strict` the run asks a person.

    A recorded key that the state type does not have refuses the start, because the next commit would lose it. `drop`
    names such keys that may go ("sent", or "settings.theme" for an inner one); the log says that they went. With
    `unknown="keep"` the run carries what the type does not know, and writes it back: for a return to older code, and
    for machines with different versions. Not guaranteed: that keys inside lists can be kept; they refuse the start.
    """
    if isinstance(drop, str) or not all(isinstance(each, str) and each for each in drop):
        raise UsageError(f"an agent can't drop {drop!r}", remedy='name the keys of the state, as in drop=("sent",)')
    if unknown not in ("refuse", "keep"):
        raise UsageError(f"unknown= of an agent can't be {unknown!r}", remedy="use 'refuse' or 'keep'")
    if effects not in ("report", "strict"):
        raise UsageError(f"an agent's effects can't be {effects!r}", remedy="use 'report' or 'strict'")
    if durability not in ("strict", "pipelined"):
        raise UsageError(f"an agent's durability can't be {durability!r}", remedy="use 'strict' or 'pipelined'")

    def make(function: AgentFunction) -> Agent:
        if not inspect.iscoroutinefunction(function):
            yields = inspect.isasyncgenfunction(function)
            raise UsageError(
                f"the agent {getattr(function, '__name__', function)} must be `async def`",
                why="it yields, so it is a generator" if yields else "Satchel awaits it",
                remedy="return its result, and stream text in a step" if yields else "write `async def`",
            )
        if on_cancel is not None and not inspect.iscoroutinefunction(on_cancel):
            raise UsageError(f"on_cancel of {function.__name__} must be `async def`")
        kind = dict[str, Any] if state is dict else state
        return Agent(function, kind, durability, on_cancel, needs, ordered, effects, (*drop,), unknown)

    needs, ordered = check_resources(resources), chain(migrations)
    return make if function is None else make(function)


def load(store: Store, reference: str) -> Agent:
    """Import the agent that workspace.yaml names: `agent.py:main` in the workspace, or `package.module:main`.

    This runs code of the workspace. Only a run does it.
    """
    from . import code  # slow, and only a run loads one

    place, _, name = reference.partition(":")
    with code.changing:
        module = _load_file(store, place) if place.endswith(".py") else _load_module(place)
    found = getattr(module, name, None)
    if found is None:
        names = [key for key, value in vars(module).items() if isinstance(value, Agent)]
        raise UsageError(
            f"there is no {name!r} in {place}",
            path="workspace.yaml",
            remedy=f"change `agent:` there to one of its agents: {', '.join(names)}"
            if names
            else "decorate the function with @agent",
        )
    if not isinstance(found, Agent):
        raise UsageError(f"{reference} is not an agent", path="workspace.yaml", remedy="decorate it with @agent")
    return found


def file_of(store: Store, reference: str) -> str | None:
    """The file that `load` imports; None for an installed module."""
    from . import code

    place = reference.partition(":")[0]
    return os.path.join(code.folder_of(store), place) if place.endswith(".py") else None


def _load_file(store: Store, path: str) -> Any:
    from . import code

    try:
        source = store.read(path).data  # refuses what leads out of the workspace
    except FileNotFoundError as error:
        meant = nearest(path, (entry.path for entry in store.list("") if entry.path.endswith(".py")))
        raise UsageError(
            f"there is no {path}",
            path="workspace.yaml",
            remedy=f"did you mean {meant}?" if meant else "correct `agent`, or put the file there",
        ) from error
    full = os.path.join(code.folder_of(store), path)
    code.import_from(full)
    name = f"satchel_agent_{abs(hash((full, source)))}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, full)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and get_type_hints look their module up
    writes_bytecode, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, ModuleNotFoundError) and error.name in _EXTRAS:
            error.msg += f". An extra of Satchel brings it: pip install 'satchel[{_EXTRAS[error.name]}]'"
        raise
    finally:
        sys.dont_write_bytecode = writes_bytecode
    return module


def _load_module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and name.startswith(error.name):
            raise UsageError(
                f"the module {name!r} is not installed here",
                path="workspace.yaml",
                remedy="install it, or name a file of the workspace, as in `agent: agent.py:main`",
            ) from error
        raise


class Parameters:
    """What an agent takes besides the run. `what` names the agent in errors."""

    def __init__(self, function: Callable[..., Any], what: str):
        self._what = what
        rest = [*inspect.signature(function).parameters.values()][1:]  # after the run
        self._signature = inspect.Signature(rest)
        self._parameters = {each.name: each for each in rest}
        try:
            hints = declared.hints_of(function) if rest else {}
        except NameError as error:
            raise UsageError(
                f"the annotations of {what} can't be resolved",
                why=str(error),
                remedy="import the name where the agent is defined, not only for type checking",
            ) from error
        self._codecs = {
            each.name: Codec(_kind(each, hints.get(each.name, Any)), f"the argument {each.name!r}") for each in rest
        }

    def __bool__(self) -> bool:
        """Whether it takes any."""
        return bool(self._parameters)

    def of_call(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
        """The arguments of a call. TypeError if the agent does not take them; NotSerializable or UsageError if one does
        not fit its type."""
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self._what}: {error}") from None
        bound.apply_defaults()
        return self.normal(dict(bound.arguments))

    def by_name(self, values: Mapping[str, Any]) -> bytes:
        """The same for values by parameter, as in `input:`. UsageError if one is unknown, missing or does not fit."""
        if unknown := [name for name in values if name not in self._parameters]:
            raise UsageError(f"{self._what} has no parameter {unknown[0]!r}", remedy=self._remedy())
        return self.normal(self._filled(values))

    def normal(self, values: Mapping[str, Any]) -> bytes:
        """The JSON text of the arguments as the agent gets them, with the defaults inside them: equal arguments have
        equal texts."""
        raw = {name: canonical(value, f"the argument {name!r} of {self._what}") for name, value in values.items()}
        typed = {name: self._codecs[name].decode(data) for name, data in raw.items()}
        for name, value in values.items():
            for unknown in self._codecs[name].unknown_keys(value):
                where = dotted((name, *unknown.path[:-1]))
                raise UsageError(f"the argument {name!r} does not fit its type", why=f"{where}: {unknown}")
        fill_defaults(typed)
        encoded = canonical(typed, f"an argument of {self._what}")
        self.call_of(encoded)  # every start will read it
        return encoded

    def call_of(self, recorded: bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Recorded arguments, for the call. UsageError if they don't fit the agent any more."""
        raw = msgspec.json.decode(recorded, type=dict[str, msgspec.Raw])
        if lost := [name for name in raw if name not in self._parameters]:
            raise UsageError(
                f"{self._what} has no parameter {lost[0]!r} any more",
                why="the run began with an argument for it",
                remedy="give it back to the agent, or start a new run",
            )
        typed = {name: self._codecs[name].decode(bytes(data)) for name, data in raw.items()}
        for name, data in raw.items():
            for unknown in self._codecs[name].unknown_keys(msgspec.json.decode(data)):
                raise UsageError(
                    f"the type of the argument {name!r} has no key `{dotted(unknown.path)}` any more",
                    why="the run began with it, and the agent would not see it",
                    remedy="give it back to the type, or start a new run",
                )
        typed = self._filled(typed)
        bound = inspect.BoundArguments(self._signature, {name: typed[name] for name in self._parameters})
        return bound.args, bound.kwargs

    def _filled(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """With the defaults of the rest."""
        filled = dict(values)
        for name, parameter in self._parameters.items():
            if name in filled:
                continue
            if parameter.kind is parameter.VAR_POSITIONAL:
                filled[name] = []
            elif parameter.kind is parameter.VAR_KEYWORD:
                filled[name] = {}
            elif parameter.default is not parameter.empty:
                filled[name] = parameter.default
            else:
                raise UsageError(f"{self._what} needs the argument {name!r}", remedy=self._remedy())
        return filled

    def _remedy(self) -> str:
        names = ", ".join(self._parameters)
        return f"its parameters are {names}" if names else "it takes no arguments besides the run"


def _kind(parameter: inspect.Parameter, hint: Any) -> Any:
    """What a parameter receives: a list in `*links: str`."""
    if parameter.kind is parameter.VAR_POSITIONAL:
        return GenericAlias(list, (hint,))
    return GenericAlias(dict, (str, hint)) if parameter.kind is parameter.VAR_KEYWORD else hint
