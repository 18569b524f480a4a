"""What the agent knows: the `data` of state.json."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Summary:
    text: str
    source: str  # for a reader: a path, or which distribution
    by: str  # what made it


@dataclass
class State:
    """The `data` of state.json. Changed only inside an item or a scope, and committed with it."""

    documents: dict[str, str] = field(default_factory=dict)  # name: the place it is read from
    summaries: dict[str, Summary] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)  # name: the reason
    not_read: int = 0  # documents beyond the limit
