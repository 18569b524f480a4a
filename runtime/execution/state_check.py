"""Whether an edited state.json fits the type that the agent declares for its state."""

from __future__ import annotations

from typing import Any

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
        check_migrated(data, version, agent.migrations, Codec(agent.state, "the state"))

    return check
