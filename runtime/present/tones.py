"""The tones of what people see. The page has a class for each; a terminal has a colour.

A state has its tone in the table of statuses, and a record in its words.
"""

from __future__ import annotations

from ...workspace.state import Tone, tone

_COLOURS: dict[Tone, str] = {"active": "cyan", "good": "green", "bad": "red", "ask": "yellow", "hold": "magenta"}


def colour(tone: Tone | None) -> str | None:
    """The colour of a tone in a terminal."""
    return _COLOURS.get(tone) if tone else None


def state_colour(state: str) -> str | None:
    """The colour of the state of a run in a terminal."""
    return colour(tone(state))


REMARKS: dict[str, Tone] = {"found": "active", "edited": "hold", "done": "good", "wanted": "ask"}
"""For the remarks of an opening."""

CHANGES: dict[str, tuple[str, Tone]] = {"added": ("+", "good"), "removed": ("-", "bad"), "changed": ("~", "ask")}
"""The sign and the tone of a difference."""

CALLS: dict[str, Tone] = {"failed": "bad", "retrying": "ask", "in_doubt": "ask", "asked": "ask"}
"""For a call, by its state."""

SERVE_EVENTS: dict[str, Tone] = {
    "started": "active",
    "listening": "active",
    "crashed": "bad",
    "refused": "bad",
    "storage": "bad",
    "warned": "ask",
    "late": "ask",
}
"""For the events of `satchel serve`. The others are states of a run."""

MARKS: dict[str, tuple[str, Tone | None]] = {
    "open": ("[ ]", None),
    "begun": ("[/]", "ask"),
    "done": ("[x]", "good"),
    "cancelled": ("[-]", "rest"),
}
"""The mark of an item of a plan, as in todo.md."""
