"""Who asks, for what: what a tool needs besides its arguments."""

from __future__ import annotations

from typing import NamedTuple

from ...workspace.base import myself, visible
from ..control import Handle
from . import describing, shapes
from .runs import Runs

_LONGEST = 40  # characters of a client's name


class Asking(NamedTuple):
    """One call. `client` is what the client calls itself."""

    runs: Runs
    allowed: frozenset[str]
    client: str

    @property
    def by(self) -> str:
        """Who acts, for the record: the person of this process, and the client."""
        client = visible(" ".join(self.client.split()))[:_LONGEST]
        return f"{myself()} over MCP ({client})" if client else f"{myself()} over MCP"

    def status(self, handle: Handle) -> shapes.RunStatus:
        """The status of a run, read now."""
        return describing.status(self.runs.name(handle), handle.status(), self.allowed)
