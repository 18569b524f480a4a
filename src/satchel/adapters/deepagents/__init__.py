"""deepagents over a workspace: `create_deep_agent(backend=SatchelBackend("memory"), middleware=[SatchelMiddleware()])`.

The backend keeps files as versions in a workspace of its own, inside and outside a run. The middleware makes requests
to a model and tool calls steps of a run, and with `ainvoke` people answer the interrupts of an agent in approvals/.
"""

from __future__ import annotations

from satchel.adapters import require

require(__name__, "deepagents", "0.7.8")

from .agents import SatchelMiddleware, ainvoke
from .backend import SatchelBackend

__all__ = ["SatchelBackend", "SatchelMiddleware", "ainvoke"]
