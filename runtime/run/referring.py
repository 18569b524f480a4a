"""`run.refer`: the agent says what it needs from outside, and the run remembers it."""

from __future__ import annotations

from ...workspace.journal.records import Configured
from ..engine import Context


def refer(context: Context, reference: str) -> None:
    """Remember that the agent needs what lies there, durably."""
    if reference in context.workspace.definition.references:
        return
    context.journal.flush()  # what it works with may be about to be recorded
    config = context.moment.config
    known = config.get("references", [])
    if reference not in known:
        context.journal.add(Configured(config={**config, "references": [*known, reference]}))
        context.journal.flush()
