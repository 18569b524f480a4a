"""Migrate the data of an agent before it is entered, and record that."""

from __future__ import annotations

from ...workspace.base import Refused
from ...workspace.journal.records import Migrated, PauseRequested
from ..agent import Migration, describe, migrate
from ..steps import Codec
from .context import AgentContext
from .stopping import Suspended


def bring_up(agent: AgentContext, migrations: tuple[Migration, ...], codec: Codec) -> bool:
    """Convert the recorded data to the newest version. Returns whether there was anything to do; durable when it
    returns. If there is no way, the run is paused (it has not failed), and Suspended is raised."""
    context, recorded = agent.context, agent.recorded
    was = recorded.data_version
    try:
        migrated = migrate(recorded.data, was, migrations, codec, recorded.folder)
    except Refused as error:
        context.stopping.pause(PauseRequested(reason=str(error), by="satchel"), describe(error, context.store.url))
        raise Suspended from error
    if not migrated.steps:
        return False
    for step in migrated.steps:
        context.journal.add(Migrated(agent=agent.path, to=step.to, patch=step.patch))
    context.journal.flush()
    whose = f"of {agent.path} " if agent.path else ""
    now = recorded.data_version
    context.workspace.report.add_late("done", f"the data {whose}were migrated from version {was} to {now}")
    context.projector.mark(context.workspace.files[agent.path].state)
    return True
