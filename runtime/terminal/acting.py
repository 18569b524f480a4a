"""What a person does to a run from its screen. Each action calls a method of the handle in a thread, and shows what
it returns or its error."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from textual.app import App, SuspendNotSupported

from ...workspace.base import UsageError
from ..control import Handle, counted
from . import editing, words
from .answer import Answer, Given
from .feed import Feed
from .forms import Confirm, Writing
from .lines import plain

_ID = 40  # characters of a run's id in a question


class Say(Protocol):
    """Shows a line to the person."""

    def __call__(self, text: str, *, is_error: bool = False) -> None: ...


class Acting:
    """The actions of one screen, one at a time. `say` shows what came of each."""

    def __init__(self, app: App[Any], feed: Feed, say: Say, make: Callable[[], Handle]):
        self._app, self._feed, self._say, self._make = app, feed, say, make
        self.doing = ""  # the action that is running, in words
        self.is_last = False  # the application ends after it

    async def do(self, name: str, act: Callable[[Handle], str]) -> str:
        """Call `act` with a handle in a thread. Returns why it was not done; empty if it was."""
        if self.doing:
            busy = f"still busy: {self.doing}"
            self._say(busy, is_error=True)
            return busy
        wrong = ""
        self.doing = name
        self._say(f"{name} ...")
        try:
            said = await asyncio.to_thread(lambda: act(self._make()))
            self._say(said)
        except Exception as error:  # one that this code has not foreseen must not end the screen
            wrong = str(error) or type(error).__name__
            self._say(wrong, is_error=True)
        finally:
            self.doing = ""
            self._feed.look_now()
            if self.is_last:
                self._app.exit()
        return wrong

    async def pause(self) -> None:
        await self.do("pausing", lambda handle: handle.pause().said)

    async def resume(self) -> None:
        """Starts a supervisor that outlives this process; withdraws a pause that the run has not come to yet."""
        standing = self._feed.standing
        if standing is not None and standing.state == "draining":
            await self.do("withdrawing the pause", lambda handle: handle.withdraw().said)
            return
        if standing is not None and standing.state in words.ACTIVE:
            self._say(f"the run is {standing.state}", is_error=True)
            return
        await self.do("starting", self._resume)

    @staticmethod
    def _resume(handle: Handle) -> str:
        moment = handle.status(brief=True).moment
        started = handle.detach(resume=moment is not None and not moment.is_new, options=("--quiet",))
        if started.exit_code is None:
            return f"it runs in the background, as process {started.pid}"
        last = started.said.strip() or f"it ended at once, with the exit code {started.exit_code}"
        return last if not started.exit_code else f"{last} (exit code {started.exit_code})"

    async def stop(self) -> None:
        standing = self._feed.standing
        if standing is not None and standing.state in ("completed", "cancelled"):
            self._say(f"nothing runs it: it is {standing.state}", is_error=True)
            return
        question = "Kill what runs it, now? Running work is cut off, and may be in doubt."
        if await self._confirmed(question):
            await self.do("stopping", self._stop)

    @staticmethod
    def _stop(handle: Handle) -> str:
        stopped = handle.stop()
        if stopped.how == "failed":
            raise UsageError(stopped.said)
        said = {
            "stopped": "stopped",
            "idle": "nothing was running; it is paused",
            "draining": "it stops at a safe point",
            "elsewhere": "another machine runs it, and stops it within one poll",
        }[stopped.how]
        return f"{said}: {stopped.said}" if stopped.said else said

    async def cancel(self) -> None:
        if await self._confirmed("End this run for good? It can't be resumed. All its files stay."):
            await self.do("cancelling", lambda handle: handle.cancel().said)

    async def send(self, *, message: bool) -> None:
        """A text that could not be sent is shown again, so that it is not lost."""
        what = "A message to the agent" if message else "Work for the inbox"
        text = wrong = ""
        while text := await self._app.push_screen_wait(Writing(what, text, wrong)):
            wrong = await self.do("sending", partial(_send, text, message))
            if not wrong or self.is_last:
                return
        self._say("nothing was sent")

    async def answer(self, index: int = 0) -> None:
        standing = self._feed.standing
        asked = standing.questions if standing else []
        if not asked:
            self._say("there is no open question")
            return
        given = await self._app.push_screen_wait(Answer(asked[min(index, len(asked) - 1)]))
        if given is None:
            self._say("nothing was answered")
            return
        is_active = standing is not None and standing.state in words.ACTIVE
        await self.do("answering", lambda handle: _answer(handle, given, is_active=is_active))

    async def edit(self, file: str) -> None:
        """The editor has the terminal, so nothing else happens here until it ends."""
        app = self._app
        try:
            command = editing.editor()
            opened = await asyncio.to_thread(lambda: editing.Opened(self._make(), file))
            with app.suspend():  # must end without an error: Textual would not take the terminal back
                failed = editing.call(command, opened.path)
            self._say(await asyncio.to_thread(opened.finish, failed))
        except SuspendNotSupported:
            self._say("this terminal can't be given to an editor", is_error=True)
        except Exception as error:  # one that this code has not foreseen must not end the screen
            self._say(str(error) or type(error).__name__, is_error=True)
        app.refresh(layout=True)
        self._feed.look_now()

    async def _confirmed(self, question: str) -> bool:
        standing = self._feed.standing
        name = f"{plain(words.run_id(standing), _ID)}: " if standing else ""
        return await self._app.push_screen_wait(Confirm(f"{name}{question}"))


def _send(text: str, message: bool, handle: Handle) -> str:
    return "sent: " + ", ".join(each.file for each in handle.send(text, message=message))


def _answer(handle: Handle, given: Given, *, is_active: bool) -> str:
    done = handle.answer(given.decision, given.id, result=given.result, note=given.note, typed=given.is_typed)
    if not done.is_recorded:
        return f"{done.id}: the answer is in {done.file}; {done.waits_for} has not taken it yet"
    said = f"{done.id} is{' already' * done.was_before} answered"
    if done.questions:
        return f"{said}; {counted(len(done.questions), 'question')} still open"
    return said if is_active else f"{said}; r resumes the run"
