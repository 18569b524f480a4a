"""Whether an edited state.json fits the type that the agent declares for its state."""

from __future__ import annotations

from typing import Any

from ...schemas import Where, dotted
from ...workspace.base import UsageError
from ...workspace.inspect import define
from ...workspace.people.edits import CheckData
from ...workspace.state import Moment
from ..agent import check_migrated, load
from ..steps import Codec
from .start import Start


def check_state(start: Start, moment: Moment) -> CheckData:
    def check(path: str, data: Any) -> None:
        """The type of a sub-agent's state is known only when it is spawned."""
        if path:
            return
        try:
            agent = start.agent or load(start.store, define(start.store).agent)
        except Exception:
            return  # told when it is to be run
        recorded = moment.root
        version = recorded.data_version if recorded.has_data else agent.version
        codec = Codec(agent.state, "the state")
        check_migrated(data, version, agent.migrations, codec)
        if version == agent.version:
            _check_keys(codec, data, recorded.data)

    return check


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
