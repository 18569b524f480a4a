"""`@agent`: the agent's function, how its code is imported, and its arguments as they are recorded; and `@migration`,
which converts data of an earlier version of the agent to its current state type.

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
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from types import GenericAlias
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, NamedTuple, Protocol, TypeVar, overload

import msgspec
from msgspec import Struct

from ...schemas import Where, dotted, nearest
from ...workspace.base import NotSerializable, Refused, UsageError
from . import type_hints
from .calls import P, R, RunParameter
from .codec import Codec, canonical, encode, fill_defaults
from .resource import Resource, check_resources

if TYPE_CHECKING:
    from ...workspace.journal import Patch
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

    needs, ordered = check_resources(resources), _in_order(migrations)
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
            hints = type_hints.hints_of(function) if rest else {}
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


# Data of earlier versions


class Migration(Struct, frozen=True):
    """A function that converts data of the version before to version `to`."""

    to: int
    function: Callable[[dict[str, Any]], dict[str, Any]]

    def __call__(self, data: dict[str, Any]) -> dict[str, Any]:
        return self.function(data)


def migration(to: int) -> Callable[[Callable[[dict[str, Any]], dict[str, Any]]], Migration]:
    """Make `def f(data) -> data` the conversion from version `to - 1` of an agent's state type to version `to`.

    Satchel calls it with the JSON data of a run with the older version, before it enters the agent. It may change and
    return the data. It should do nothing else, because it may be called more than once. The first version of a state
    type is 1, so the first migration leads to 2.
    """
    if isinstance(to, bool) or not isinstance(to, int) or to < 2:
        raise UsageError(
            f"a migration can't lead to version {to!r}",
            remedy="the first migration leads to version 2: `@migration(2)`",
        )
    return lambda function: Migration(to, function)


def _in_order(migrations: Iterable[Migration]) -> tuple[Migration, ...]:
    """The migrations in order. UsageError if one is not a migration, or two lead to the same version."""
    found = tuple(migrations)
    for each in found:
        if not isinstance(each, Migration):
            raise UsageError(f"{each!r} is not a migration", remedy="decorate it with @migration(2)")
    found = tuple(sorted(found, key=lambda each: each.to))
    for one, other in pairwise(found):
        if one.to == other.to:
            raise UsageError(f"two migrations lead to version {one.to}")
    return found


class MigrationStep(NamedTuple):
    """One version further."""

    to: int
    patch: Patch


class MigrationResult(NamedTuple):
    steps: list[MigrationStep]
    data: Any


def migrate(
    data: Any, version: int, migrations: tuple[Migration, ...], codec: Codec, folder: str = ""
) -> MigrationResult:
    """Convert `data` from `version` to that of the last of `migrations`. Refused if there is no way, if a migration
    fails, or if the result does not fit the state type. Changes nothing."""
    from ...workspace.state import json_patch as patch
    from ...workspace.views import STATE

    path, newest = folder + STATE, migrations[-1].to if migrations else 1
    if version > newest:
        raise Refused(
            f"the data is of version {version}, but this agent knows only version {newest}",
            path=path,
            why="a newer version of the agent has written them",
            remedy="run it with that version of the agent",
        )
    steps: list[MigrationStep] = []
    for to in range(version + 1, newest + 1):
        found = next((each for each in migrations if each.to == to), None)
        if found is None:
            raise Refused(
                f"no migration leads from version {to - 1} to {to}",
                path=path,
                why=f"the data is of version {version}, but this agent needs version {newest}",
                remedy=f"give the agent the migration `@migration({to})`",
            )
        after = _once(data, found, path)
        steps.append(MigrationStep(to, patch.diff(data, after, ordered=True)))
        data = after
    if steps:
        try:
            codec.decode(msgspec.json.encode(data))
        except UsageError as error:
            raise Refused(
                f"after the migration to version {newest}, the data does not fit the state type",
                path=path,
                why=error.why,
                remedy="correct the migration; the data has not changed",
            ) from error
    return MigrationResult(steps, data)


def dropped(data: Any, codec: Codec, drop: Sequence[str]) -> Patch:
    """The removal of the keys that the type does not have and the agent drops."""
    return _removal([each.path for each in codec.unknown_keys(data) if _is_dropped(each.path, drop)])


def check_known(
    data: Any,
    codec: Codec,
    drop: Sequence[str],
    unknown: str,
    folder: str = "",
    written_by: Callable[[Where], str] | None = None,
) -> Patch:
    """The removal of the same keys. Refused if the state type does not have a key of `data`, and the agent does not say
    what to do with it: the next commit would lose it. `written_by`: who has written a key, in words."""
    from ...workspace.views import STATE

    found: list[Where] = []
    for each in codec.unknown_keys(data):
        if _is_dropped(each.path, drop):
            found.append(each.path)
            continue
        in_list = any(isinstance(part, int) for part in each.path)
        if unknown == "keep" and not in_list:
            continue
        name = dotted(each.path)
        kept = (
            'in a list even `@agent(unknown="keep")` can\'t keep it' if in_list else '`@agent(unknown="keep")` keeps it'
        )
        raise Refused(
            f"the agent's state type has no key `{name}`, which is on record",
            path=folder + STATE,
            why=f"the next commit would lose it{written_by(each.path) if written_by else ''}",
            remedy=f"write a migration (`@migration`), or let it go with `@agent(drop=({name!r},))`; {kept}",
        )
    return _removal(found)


def _removal(found: Sequence[Where]) -> Patch:
    from ...workspace.state import json_patch as patch

    return [{"op": "remove", "path": "".join(f"/{patch.escape(str(part))}" for part in path)} for path in found[::-1]]


def _is_dropped(path: Where, drop: Sequence[str]) -> bool:
    """Whether the agent lets a key go, or one above it."""
    names = ".".join(part for part in path if isinstance(part, str))
    return any(names == each or names.startswith(f"{each}.") for each in drop)


def check_migrated(data: Any, version: int, migrations: tuple[Migration, ...], codec: Codec) -> None:
    """UsageError if data of `version` do not lead to data that fits the state type."""
    try:
        migrated = migrate(data, version, migrations, codec)
    except Refused as error:
        raise UsageError(error.what, why=error.why) from error
    if not migrated.steps:
        codec.decode(encode(data, "data"))


def _once(data: Any, migration: Migration, path: str) -> Any:
    """What a migration returns for a copy of `data`."""
    what, remedy = f"the migration to version {migration.to}", "correct the migration; the data has not changed"
    try:
        after = migration(msgspec.json.decode(msgspec.json.encode(data)))
    except Exception as error:
        from .code import said

        raise Refused(f"{what} has failed", path=path, why=said(error), remedy=remedy) from error
    if not isinstance(after, dict):
        raise Refused(
            f"{what} has not returned the data",
            path=path,
            why=f"it has returned {after!r:.60}",
            remedy="let it return a dict",
        )
    try:
        return msgspec.json.decode(encode(after, "the data"))
    except NotSerializable as error:
        raise Refused(
            f"{what} has made something that is not JSON", path=path, why=str(error), remedy=remedy
        ) from error
