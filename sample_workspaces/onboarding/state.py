"""What the two agents know: the `data` of state.json, and of agents/privileges/state.json."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Decision:
    """A person's decision about one privilege."""

    is_granted: bool
    by: str
    note: str = ""


@dataclass
class State:
    """Of the agent `onboarding`."""

    account: str = ""  # once it is created
    privileges: dict[str, Decision] = field(default_factory=dict)
    welcomed: str = ""  # the address, once the mail is sent


@dataclass
class PrivilegesState:
    """Of its sub-agent."""

    decisions: dict[str, Decision] = field(default_factory=dict)
