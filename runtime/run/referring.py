"""`run.refer`: the agent says what it needs from outside, and the run remembers it."""

from __future__ import annotations

from ...workspace.journal.records import Configured
from ...workspace.lifecycle import Workspace


def refer(workspace: Workspace, reference: str) -> None:
    """Remember that the agent needs what lies there, durably."""
    if reference in workspace.definition.references:
        return
    workspace.journal.flush()  # what it works with may be about to be recorded
    config = workspace.moment.config
    known = config.get("references", [])
    if reference not in known:
        workspace.journal.add(Configured(config={**config, "references": [*known, reference]}))
        workspace.journal.flush()
