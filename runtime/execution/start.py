"""The arguments of a start, and what prevents one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from ...workspace.base import UsageError, arguments
from ...workspace.store import Store
from ..agent import Agent
from ..engine import Interruption, Only, Rehearsal, Tap, Watch


class Start(Struct, frozen=True):
    """The arguments of a start. UsageError if one is not valid."""

    store: Store
    agent: Agent | None
    watch: Watch | None
    interruption: Interruption
    wake: bool
    accept_drift: bool
    drain_timeout: float | None
    from_checkpoint: bool
    take_over: bool
    adopt: bool
    args: tuple[Any, ...] = ()  # of the agent
    input: Mapping[str, Any] | None = None  # the same by parameter
    tap: Tap | None = None
    only: Only | None = None  # a replay
    rehearsal: Rehearsal | None = None
    restarts: bool = False  # a supervisor continues it in another process when `restart_every` says so
    shares_loop: bool = False  # the loop is its caller's, and must not stand still

    def __post_init__(self) -> None:
        if self.agent is not None and not isinstance(self.agent, Agent):
            name = getattr(self.agent, "__name__", None) or repr(self.agent)
            raise UsageError(f"{name} is not an agent", remedy="decorate it with @agent")
        arguments.seconds("drain_timeout", self.drain_timeout)
        if self.input is not None and not isinstance(self.input, Mapping):
            raise UsageError(f"input can't be {self.input!r}", remedy="give a dict of arguments by parameter")
        if self.args and self.input is not None:
            raise UsageError("arguments were given twice", why="by position and in `input`", remedy="use one of them")
        if self.watch is not None and (lacking := [each for each in _WATCHED if not _has(self.watch, each)]):
            raise UsageError(
                f"watch can't be of the type {type(self.watch).__name__}",
                why=f"it has no method {lacking[0]!r}",
                remedy=f"give an object with the methods {', '.join(_WATCHED)}",
            )


_WATCHED = tuple(name for name in vars(Watch) if not name.startswith("_"))


def _has(watch: Watch, name: str) -> bool:
    return callable(getattr(watch, name, None))
