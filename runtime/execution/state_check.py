"""Whether the data of a run, recorded or edited, fits the type that the agent declares for its state."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from ...schemas import Where, dotted
from ...workspace.base import Refused, SatchelError, UsageError
from ...workspace.history import Node, data_origins, story
from ...workspace.inspect import define
from ...workspace.state import Moment, json_patch
from ...workspace.store import Store
from ...workspace.views import STATE
from ..agent import Agent, check_known, check_migrated, dropped, load
from ..steps import Codec
from .start import Start

_WAYS_ON = "write a migration (`@migration`), run the code that has written it, or correct `data` in the file"


class StateCheck:
    """Asks the types of the agents. That of a sub-agent is known only while it runs: `running` gives it by its path."""

    def __init__(self, start: Start, moment: Moment, running: Callable[[str], Agent | None] = lambda path: None):
        self._start, self._moment, self._running = start, moment, running

    def schema(self, path: str) -> dict[str, Any] | None:
        """Of data of the type's own version."""
        agent = self._agent(path)
        return agent.schema_of_data() if agent is not None and self._is_current(path, agent) else None

    def kept(self, path: str, data: Any) -> Any:
        agent = self._agent(path)
        if agent is None or not agent.drop or not self._is_current(path, agent):
            return data
        return json_patch.apply(data, dropped(data, Codec(agent.state, "the state"), agent.drop))

    def __call__(self, path: str, data: Any) -> None:
        agent = self._agent(path)
        if agent is None:
            return
        codec, recorded = Codec(agent.state, "the state"), self._moment.agents[path]
        check_migrated(data, recorded.data_version if recorded.has_data else agent.version, agent.migrations, codec)
        if agent.unknown == "keep" and self._is_current(path, agent):
            _check_lists(codec, data)

    def _agent(self, path: str) -> Agent | None:
        return self._running(path) or (None if path else _own(self._start))

    def _is_current(self, path: str, agent: Agent) -> bool:
        recorded = self._moment.agents[path]
        return not recorded.has_data or recorded.data_version == agent.version


def _own(start: Start) -> Agent | None:
    """The run's own agent. None if it can't be imported: that is told when it is to be run."""
    try:
        return start.agent or load(start.store, define(start.store).agent)
    except Exception:
        return None


def check_recorded(store: Store, agent: Agent, moment: Moment) -> None:
    """Before the agent is called. Refused if its code can't read, or would lose, what earlier code has recorded."""
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
    check_known(recorded.data, codec, agent.drop, agent.unknown, written_by=partial(_written_by, store))


def _written_by(store: Store, path: Where) -> str:
    """The record that has set a value of the data."""
    try:
        told = story(store)
        node: Node | None = data_origins(told.start, told.lines)[""]
        for part in path:
            node = node and node.below(str(part))
    except (SatchelError, LookupError):
        return ""
    origins = [leaf.cell.origin for _, leaf in node.leaves("")] if node is not None else []
    last = max(origins, key=lambda each: each.seq, default=None)
    if last is None or not last.title:
        return ""
    return f"; {last.title!r} has written it, in record {last.seq}"


def _check_lists(codec: Codec, data: Any) -> None:
    """UsageError if the edit has a key that even `unknown="keep"` can't keep, because it is in a list."""
    for each in codec.unknown_keys(data):
        if any(isinstance(part, int) for part in each.path):
            place = dotted(("data", *each.path[:-1]))
            raise UsageError("the state does not fit its type", why=f"{place}: {each}, and it is in a list")
