"""Whether the data of a run, recorded or edited, fits the type that the agent declares for its state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from ...schemas import Where, dotted
from ...workspace.base import Refused, UsageError
from ...workspace.inspect import define
from ...workspace.people.edits import CheckData
from ...workspace.state import Moment
from ...workspace.views import STATE
from ..agent import Agent, check_migrated, load
from ..steps import Codec
from .start import Start

_WAYS_ON = "write a migration (`@migration`), run the code that has written it, or correct `data` in the file"


def check_state(start: Start, moment: Moment, running: Callable[[str], Agent | None] = lambda path: None) -> CheckData:
    """`running` gives a running agent by its path."""

    def check(path: str, data: Any) -> None:
        """The type of a sub-agent's state is known only while it runs."""
        agent = running(path) or (None if path else _own(start))
        if agent is None:
            return
        recorded = moment.agents[path]
        version = recorded.data_version if recorded.has_data else agent.version
        codec = Codec(agent.state, "the state")
        check_migrated(data, version, agent.migrations, codec)
        if version == agent.version:
            _check_keys(codec, data, recorded.data)

    return check


def _own(start: Start) -> Agent | None:
    """The run's own agent. None if it can't be imported: that is told when it is to be run."""
    try:
        return start.agent or load(start.store, define(start.store).agent)
    except Exception:
        return None


def check_recorded(agent: Agent, moment: Moment) -> None:
    """Before the agent is called. Refused if its code would drop or not read what earlier code has recorded."""
    recorded = moment.root
    if not recorded.has_data or recorded.data_version != agent.version:
        return  # the migrations check it
    codec = Codec(agent.state, "the state")
    try:
        codec.decode(msgspec.json.encode(recorded.data))
    except UsageError as error:
        raise Refused(
            "the recorded state does not fit the agent's state type", path=STATE, why=error.why, remedy=_WAYS_ON
        ) from error
    if unknown := next(iter(codec.unknown_keys(recorded.data)), None):
        raise Refused(
            f"the agent's state type has no key `{dotted(unknown.path)}`, which is recorded",
            path=STATE,
            why="the next commit would drop it",
            remedy=_WAYS_ON,
        )


def _check_keys(codec: Codec, data: Any, recorded: Any) -> None:
    """UsageError if the edit has added a key that would be dropped. One that is recorded is no mistake of the editor:
    the state type had it before."""
    before = {_names(each.path) for each in codec.unknown_keys(recorded)}
    for unknown in codec.unknown_keys(data):
        if _names(unknown.path) not in before:
            raise UsageError(
                "the state does not fit its type", why=f"{dotted(('data', *unknown.path[:-1]))}: {unknown}"
            )


def _names(path: Where) -> Where:
    """The path without the positions in lists, which an edit may move."""
    return tuple(each for each in path if isinstance(each, str))
