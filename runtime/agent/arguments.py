"""The arguments of an agent as they are recorded: one JSON object by parameter, defaults included.

They have the annotated types at the first start and at every later one, as those of a step.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import GenericAlias
from typing import Any

import msgspec

from ...schemas import dotted
from ...workspace.base import UsageError
from ..steps import Codec, canonical, declared, fill_defaults


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
