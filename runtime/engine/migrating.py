"""Migrate the data of an agent before it is entered, and record that."""

from __future__ import annotations

from ...workspace.base import Refused
from ...workspace.journal.records import Migrated, PauseRequested
from ..agent import Agent, check_known, describe, migrate
from ..steps import Codec
from .context import AgentContext
from .stopping import Suspended


def bring_up(agent: AgentContext, declared: Agent, codec: Codec) -> bool:
    """Convert the recorded data to the newest version, without the keys that the agent drops. Returns whether there was
    anything to do; durable when it returns. If there is no way, the run is paused (it has not failed), and Suspended is
    raised."""
    context, recorded = agent.context, agent.recorded
    was = recorded.data_version
    try:
        migrated = migrate(recorded.data, was, declared.migrations, codec, recorded.folder)
        gone = check_known(migrated.data, codec, declared.drop, declared.unknown, recorded.folder)
    except Refused as error:
        context.stopping.pause(PauseRequested(reason=str(error), by="satchel"), describe(error, context.store.url))
        raise Suspended from error
    if not migrated.steps and not gone:
        return False
    for step in migrated.steps:
        context.journal.add(Migrated(agent=agent.path, to=step.to, patch=step.patch))
    if gone:
        context.journal.add(Migrated(agent=agent.path, to=recorded.data_version, patch=gone))
    context.journal.flush()
    whose = f"of {agent.path} " if agent.path else ""
    now = recorded.data_version
    if migrated.steps:
        context.workspace.report.add_late("done", f"the data {whose}were migrated from version {was} to {now}")
    if gone:
        names = ", ".join(str(each["path"])[1:] for each in gone)
        context.workspace.report.add_late("done", f"the agent has dropped from the data {whose}what it names: {names}")
    context.projector.mark(context.workspace.files[agent.path].state)
    return True
