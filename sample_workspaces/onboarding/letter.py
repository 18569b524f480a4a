"""The text of the welcome mail."""

from __future__ import annotations

from collections.abc import Mapping

from state import Decision

SUBJECT = "Welcome"


def compose(name: str, account: str, privileges: Mapping[str, Decision]) -> str:
    lines = [f"Dear {name},", "", f"your account is {account}.", ""]
    lines += [_about(privilege, decision) for privilege, decision in privileges.items()]
    return "\n".join(lines).rstrip() + "\n"


def _about(privilege: str, decision: Decision) -> str:
    """One line for each requested privilege, also for a denied one."""
    if decision.is_granted:
        return f"You may use {privilege}: approved by {decision.by}."
    return f"You may not use {privilege}: denied by {decision.by}" + (f" ({decision.note})." if decision.note else ".")
