"""The calls of a run that are not over: those that run now, with the file that shows those that run for long
(workspace/views/running_file.py), and those that were made and never awaited. Nothing of these has been done.

It is no mistake if the task or coroutine that was to await a call has ended before, for example because it was
cancelled.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import sys
import time
from collections import Counter
from collections.abc import Coroutine, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from types import CodeType, FrameType
from typing import Any, Protocol

from ...workspace.base import AgentError, time_text
from ...workspace.lifecycle import Workspace
from ...workspace.views import running_file
from ..agent import place

LONG, LONG_REMOTELY = 1.0, 5.0
"""Seconds after which a call is shown, at the next look. There is a look in each such time while younger calls run, and
none while nothing runs. So in a bucket this costs at most one PUT in five seconds, and none if every call is short."""


class PendingCall(Protocol):
    def identity(self) -> dict[str, Any]:
        """The fields of every record about this call. The preview of its arguments is redacted."""


class Running:
    """Of one opened workspace, on its loop. For a short call it costs an entry of a dict."""

    def __init__(self, workspace: Workspace):
        self._workspace, self._projector = workspace, workspace.projector
        self._long = LONG_REMOTELY if workspace.store.abilities.remote else LONG
        self._calls: dict[PendingCall, float] = {}  # in their order, with the times they began, by time.monotonic
        self._shown_to = float("-inf")  # calls that began until then were long at the last look
        self._timer: asyncio.TimerHandle | None = None
        self._document = running_file.RunningDocument(workspace.store, workspace.behind, self._file)

    def begin(self, call: PendingCall) -> None:
        self._calls[call] = time.monotonic()
        if self._timer is None:
            self._look_later()

    def end(self, call: PendingCall) -> None:
        self._calls.pop(call, None)

    def stop(self) -> None:
        """No call runs any more. The file goes with the last writes of the stop."""
        self._calls.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._document.end():
            self._projector.want(self._document)

    def _look_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._long, self._look)

    def _look(self) -> None:
        self._timer = None
        before, self._shown_to = self._shown_to, time.monotonic() - self._long
        if any(before < began <= self._shown_to for began in self._calls.values()):
            self._projector.want(self._document)
        if any(began > self._shown_to for began in self._calls.values()):
            self._look_later()

    def _file(self) -> running_file.RunningCalls | None:
        """Of the moment at which it is written: by then a call may have ended."""
        long = takewhile(lambda each: each[1] <= self._shown_to, self._calls.items())
        now, ticks, moment = datetime.now(UTC), time.monotonic(), self._workspace.moment
        calls = []
        for call, began in islice(long, running_file.MOST):
            known = call.identity()
            agent, since = known.get("agent", ""), time_text(now - timedelta(seconds=ticks - began))
            scope = moment.agents[agent].scopes.get(known["scope"])
            fields = {name: known[name] for name in ("scope", "no", "step", "args", "n", "call")}
            failures = scope.failures if scope else 0
            calls.append(running_file.ListedCall(agent=agent, since=since, failures=failures, **fields))
        if not calls:
            return None
        return running_file.RunningCalls(
            run_id=moment.run_id, epoch=self._workspace.journal.epoch, at=time_text(now), calls=calls
        )


_CALLER = 3
"""The frame of the agent's code: above those of this module, the scope and the step."""

_COMPREHENSIONS = frozenset(("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"))
"""Functions that Python makes itself (up to 3.11): the one around is the caller."""

_Call = tuple[Coroutine[Any, Any, Any], str, CodeType, int]
"""With the name of its step and its line. A plain tuple, because every call of a run makes one."""

_TURNS = 5


def _references(calls: Mapping[object, tuple[object, ...]], mark: object) -> int:
    return sys.getrefcount(calls[mark][0])


_OURS = _references({0: (object(),)}, 0)
"""References to a call that only Satchel holds."""


class PendingLooks:
    """Plans a look at the new calls of a run, in the next turn of its loop. One for all places: an agent that never
    waits makes calls in thousands of places before that turn."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._places: set[PendingCalls] = set()  # with calls that were not looked at
        self._is_planned = False

    def begin(self) -> None:
        """The agent is entered on the running loop."""
        self._loop, self._is_planned = asyncio.get_running_loop(), False

    def want(self, place: PendingCalls) -> None:
        self._places.add(place)
        if self._is_planned:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return  # made in a thread
        if loop is self._loop:
            self._is_planned = True
            loop.call_soon(self._look)

    def drop(self, place: PendingCalls) -> None:
        """All its calls have begun."""
        self._places.discard(place)

    def _look(self) -> None:
        self._is_planned = False
        places, self._places = self._places, set()
        for each in places:
            each.look()


class PendingCalls:
    """The calls that were made in one place and have not begun."""

    __slots__ = ("_calls", "_handed_on", "_looks", "_new")

    def __init__(self, looks: PendingLooks) -> None:
        self._looks = looks
        self._calls: dict[object, _Call] = {}
        self._new: dict[object, FrameType] = {}  # unchecked calls, with their makers
        self._handed_on: set[object] = set()  # calls that a task or coroutine has held

    def add(self, mark: object, coroutine: Coroutine[Any, Any, Any], name: str) -> None:
        """`mark` tells `begun` which call it is."""
        frame = sys._getframe(_CALLER)
        while frame.f_code.co_name in _COMPREHENSIONS and frame.f_back is not None:
            frame = frame.f_back
        self._calls[mark] = coroutine, name, frame.f_code, frame.f_lineno
        self._new[mark] = frame
        self._looks.want(self)

    def begun(self, mark: object) -> None:
        self._calls.pop(mark, None)
        if self._new.pop(mark, None) is not None and not self._new:
            self._looks.drop(self)

    def take(self, other: PendingCalls) -> None:
        """Take over the calls of another place."""
        other.look()
        self._calls |= other._calls
        self._handed_on |= other._handed_on

    async def settle(self) -> None:
        """Let tasks that have a call begin with it, or end if they are cancelled."""
        for _ in range(_TURNS):
            if not self._waiting():
                break
            await asyncio.sleep(0)

    def check(self, where: str, root: str) -> None:
        """AgentError if a call was never awaited. `where` has ended; `root` is the workspace."""
        if not self._calls or not (waiting := self._waiting()):
            return
        self.look()
        if any(mark in self._handed_on and self._is_held(mark) for mark in waiting):
            gc.collect()  # what held it may be garbage: an exception and its frames
        lost = [self._calls[mark] for mark in waiting if mark not in self._handed_on or self._is_held(mark)]
        for mark in waiting:
            self._calls[mark][0].close()  # reported here, so that Python does not
        if lost:
            raise _forgotten(lost, f"the end of {where}", root)

    def check_dropped(self, where: str, root: str) -> None:
        """AgentError if a call was made before `where`, and nothing is left that could await it."""
        if not self._calls:
            return
        lost = [mark for mark in self._waiting() if not self._is_held(mark)]
        if lost:
            calls = [self._calls.pop(mark) for mark in lost]
            for mark, call in zip(lost, calls, strict=True):
                self.begun(mark)
                call[0].close()
            raise _forgotten(calls, where, root)

    def _waiting(self) -> list[object]:
        """Calls that were neither begun nor cancelled before that."""
        created = inspect.CORO_CREATED
        return [mark for mark, call in self._calls.items() if inspect.getcoroutinestate(call[0]) == created]

    def _is_held(self, mark: object) -> bool:
        return _references(self._calls, mark) > _OURS

    def look(self) -> None:
        """Note which of the new calls are held by something other than the variables of the function that has made
        them."""
        new, self._new = self._new, {}
        # Counted first: to read a frame's variables may copy them.
        held = {mark: _references(self._calls, mark) - _OURS for mark in new}
        own: dict[FrameType, Counter[int]] = {}
        for mark, frame in new.items():
            if not held[mark]:
                continue
            if frame not in own:
                own[frame] = Counter(map(id, _variables(frame)))
            if held[mark] > own[frame][id(self._calls[mark][0])]:
                self._handed_on.add(mark)


def _forgotten(lost: list[_Call], before: str, root: str) -> AgentError:
    (_, name, code, line), more = lost[0], len(lost) - 1
    others = f", and {more} more calls" if more else ""
    return AgentError(
        f"{name}() was called and never awaited before {before}",
        why=f"so it was not done; the call is at {place(code.co_filename, root)}:{line} in {code.co_name}{others}",
        remedy=f"write `await {name}(...)`, or await the task that gets it",
    )


def _variables(frame: FrameType) -> Iterator[object]:
    """Their values, and the contents of lists and the like."""
    for value in [*frame.f_locals.values()]:
        yield value
        if isinstance(value, dict):
            yield from value.values()
        elif isinstance(value, list | tuple | set):
            yield from value
