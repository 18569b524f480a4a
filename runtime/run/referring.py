"""`run.refer`: the agent names something outside that it needs, and the run records it."""

from __future__ import annotations

from ...workspace.base import AgentError
from ...workspace.journal.records import Configured
from ..engine import Context


def refer(context: Context, reference: str) -> None:
    """Record durably that the agent needs what is at `reference`. What it holds is recorded as soon as that is known.
    AgentError for a secret in it, which no later start could follow."""
    workspace = context.workspace
    for _, rule in workspace.redactor.found_in(reference):
        raise AgentError(
            "a reference has a secret", why=rule, remedy="let the environment have it, as fsspec's options"
        )
    if reference not in workspace.definition.references:
        workspace.journal.flush()  # what it works with may be about to be recorded
        config = workspace.moment.config
        known = config.get("references", [])
        if reference not in known:
            workspace.journal.add(Configured(config={**config, "references": [*known, reference]}))
            workspace.journal.flush()
    context.on_refer(reference)
