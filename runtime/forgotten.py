"""Finds calls of steps and effects that were made and never awaited: nothing of them has been done."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Coroutine
from types import CodeType
from typing import Any

from ..workspace.errors import AgentError
from .failure import place

_CALLER = 3
"""The frame of the agent's code: above this module's, the scope's and the step's."""


_Call = tuple[Coroutine[Any, Any, Any], str, CodeType, int]
"""With the name of its step and the line it is made in. A plain tuple: every call of a run makes one."""


class Made:
    """The calls that were made in one place and have not begun."""

    __slots__ = ("_calls",)

    def __init__(self) -> None:
        self._calls: dict[object, _Call] = {}

    def add(self, mark: object, coroutine: Coroutine[Any, Any, Any], name: str) -> None:
        """`mark` is for `begun` to tell which one it is."""
        frame = sys._getframe(_CALLER)
        self._calls[mark] = coroutine, name, frame.f_code, frame.f_lineno

    def begun(self, mark: object) -> None:
        self._calls.pop(mark, None)

    def take(self, other: Made) -> None:
        """Those of another place are this one's now."""
        self._calls |= other._calls

    def waiting(self) -> list[_Call]:
        """Those that were neither begun nor cancelled before that."""
        created = inspect.CORO_CREATED
        return [call for call in self._calls.values() if inspect.getcoroutinestate(call[0]) == created]

    def check(self, where: str, root: str) -> None:
        """AgentError if one was never awaited. `where` has come to its end; `root` is the workspace."""
        if not self._calls or not (waiting := self.waiting()):
            return
        for coroutine, *_ in waiting:
            coroutine.close()  # told here, so that Python need not
        (_, name, code, line), more = waiting[0], len(waiting) - 1
        others = f", and {more} more calls" if more else ""
        raise AgentError(
            f"{name}() was called and never awaited before the end of {where}",
            why="so it has not been done; the call is at "
            f"{place(code.co_filename, root)}:{line} in {code.co_name}{others}",
            remedy=f"write `await {name}(...)`, or await the task that it is handed to",
        )
