"""Pydantic AI over a workspace: `Agent(..., capabilities=[SatchelDurability()])`.

Inside a run each model request and each tool call of the agent is a step. It is identified by its content and not by
its place in an order, so tool calls may run in parallel, and a changed prompt is asked again. Outside a run the agent
is an ordinary one.
"""

from __future__ import annotations

from satchel.adapters import require

require(__name__, "pydantic-ai-slim", "2.68")

from .durability import SatchelDurability
from .operations import as_effect, idempotency_key

__all__ = ["SatchelDurability", "as_effect", "idempotency_key"]
