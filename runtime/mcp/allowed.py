"""What clients may do besides reading: `--allow`."""

from __future__ import annotations

from ...workspace.base import UsageError

ACTIONS = ("start", "answer", "send", "pause", "resume", "cancel", "stop", "fork")
"""The tools that change a run. None is there unless it is allowed."""

ALL = "all"


def allowed_of(words: str) -> frozenset[str]:
    """The actions in a list such as `answer,pause`. UsageError for an unknown one."""
    named = [word.strip() for word in words.split(",") if word.strip()]
    if unknown := [word for word in named if word not in (*ACTIONS, ALL)]:
        raise UsageError(
            f"can't allow {unknown[0]!r}",
            why=f"there are {', '.join(ACTIONS)}, and {ALL}",
            remedy="reading needs no permission",
        )
    return frozenset(ACTIONS) if ALL in named else frozenset(named)
