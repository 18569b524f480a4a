"""Whether the data of a run, recorded or edited, fits the type that the agent declares for its state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from ...schemas import Where, dotted
from ...workspace.base import Refused, SatchelError, UsageError
from ...workspace.history import Node, data_origins, story
from ...workspace.inspect import define
from ...workspace.people.edits import CheckData
from ...workspace.state import Moment
from ...workspace.store import Store
from ...workspace.views import STATE
from ..agent import Agent, check_known, check_migrated, is_dropped, load
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
        if version == agent.version and agent.unknown == "refuse":
            _check_keys(codec, data, agent.drop)

    return check


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


def _check_keys(codec: Codec, data: Any, drop: Sequence[str]) -> None:
    """UsageError if the edit has a key that would be lost."""
    for unknown in (each for each in codec.unknown_keys(data) if not is_dropped(each.path, drop)):
        raise UsageError("the state does not fit its type", why=f"{dotted(('data', *unknown.path[:-1]))}: {unknown}")
