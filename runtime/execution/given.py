"""The arguments of the run's own agent: those of this start, of workspace.yaml, or the recorded ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from ...workspace.base import UsageError
from ...workspace.inspect import Look
from ...workspace.journal.records import Input
from ...workspace.lifecycle import Workspace
from ...workspace.secrets import redactor_of
from ...workspace.state import Moment, blobs
from ...workspace.store import Store
from ..agent import Parameters, load
from .start import Start

_AGENT = "the agent"


def to_record(start: Start, seen: Look) -> bytes | None:
    """The arguments that this start must record: canonical JSON by parameter. None if there are none, or the run has
    its arguments already.

    UsageError, NotSerializable or TypeError, before anything is written, if the agent does not take these arguments or
    the run began with others.
    """
    moment, is_given = seen.moment, bool(start.args) or start.input is not None
    has_begun = moment.root.has_data or moment.root.input is not None
    if has_begun and not is_given and moment.root.input is None:
        return None
    try:
        agent = start.agent or load(start.store, seen.definition.agent)
    except Exception:
        if is_given:  # else it is told when the agent is called
            raise
        return None
    parameters = Parameters(agent.function, _AGENT)
    if has_begun:
        recorded = _recorded(start.store, moment)
        parameters.call_of(recorded)
        if is_given:
            _compare(redactor_of(seen.definition).json(_given(start, parameters)), recorded)
        return None
    wanted = _given(start, parameters) if is_given else parameters.by_name(seen.definition.input)
    return wanted if parameters else None


def record(opened: Workspace, arguments: bytes | None) -> None:
    """In the group of the opening."""
    if arguments is not None and opened.moment.root.input is None:
        kept = blobs.keep(opened.store, opened.redactor.json(arguments), opened.journal.generation)
        opened.journal.add(Input(arguments=kept.result, blob=kept.blob))


def of_call(store: Store, moment: Moment, function: Callable[..., Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """For the call of the agent."""
    return Parameters(function, _AGENT).call_of(_recorded(store, moment))


def _recorded(store: Store, moment: Moment) -> bytes:
    found = moment.root.input
    return b"{}" if found is None else blobs.fetch(store, found)


def _given(start: Start, parameters: Parameters) -> bytes:
    if start.input is not None:
        return parameters.by_name(start.input)
    try:
        return parameters.of_call(start.args, {})
    except TypeError as error:
        raise UsageError(str(error)) from error


def _compare(given: bytes, recorded: bytes) -> None:
    new, old = (msgspec.json.decode(each) for each in (given, recorded))
    other = [name for name in {**old, **new} if name not in old or name not in new or old[name] != new[name]]
    if other:
        raise UsageError(
            f"this run began with another value of {', '.join(map(repr, other))}",
            why="its steps depend on it",
            remedy="start it without arguments to continue with the recorded ones, or start a new run for others",
        )
