"""`run.refer`: the agent names something outside that it needs, and the run records it."""

from __future__ import annotations

from ...workspace.base import AgentError
from ...workspace.journal.records import Configured
from ...workspace.lifecycle import Workspace


def refer(workspace: Workspace, reference: str) -> None:
    """Record durably that the agent needs what is at `reference`. AgentError for a secret in it, which no later start
    could follow."""
    for _, rule in workspace.redactor.found_in(reference):
        raise AgentError(
            "a reference has a secret", why=rule, remedy="let the environment have it, as fsspec's options"
        )
    if reference in workspace.definition.references:
        return
    workspace.journal.flush()  # what it works with may be about to be recorded
    config = workspace.moment.config
    known = config.get("references", [])
    if reference not in known:
        workspace.journal.add(Configured(config={**config, "references": [*known, reference]}))
        workspace.journal.flush()
