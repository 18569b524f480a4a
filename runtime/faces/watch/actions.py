"""What a person does to a run from its screen. Each action calls a method of the handle in a thread, and shows what it
returns or its error. todo.md and state.json are opened in the person's editor."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from textual.app import App, SuspendNotSupported

from ....workspace.base import SatchelError, UsageError, decode, urls
from ...api import ACTIVE, OVER, Draft, EditResult, Handle, changes_of
from ...present import counted, describe_answer, describe_revocation, describe_stop, run_id_of
from .dialogs import AnswerForm, Confirm, TypedAnswer, Writing
from .feed import Feed
from .lines import plain

_EDITORS = ("VISUAL", "EDITOR")


def editor() -> list[str]:
    """The command of the person's editor. UsageError if none is known."""
    for name in _EDITORS:
        try:
            if words := shlex.split(os.environ.get(name, "")):
                return words
        except ValueError as error:
            raise UsageError(
                f"{name} is no command", why=str(error), remedy=f"`export {name}=nano`, and open it again"
            ) from error
    raise UsageError(
        "no editor is known", why="neither VISUAL nor EDITOR is set", remedy="`export EDITOR=nano`, and open it again"
    )


class EditorFile:
    """A file of a workspace that an editor may open at `path`. Making it and `finish` may take requests.

    On a disk the editor saves the file itself, which is an edit like any other: it is merged with what the run has
    written meanwhile. From a URL the file is fetched, and sent back if it was changed.
    """

    def __init__(self, handle: Handle, file: str):
        self._handle, self._file = handle, file
        self._draft: Draft | None = None
        self._refused: list[str] = []  # edits that the run did not take before
        if not urls.is_remote(handle.url):
            self.path = os.path.join(handle.url, file)
            self._refused = handle.status(brief=True).refused
        else:
            self._draft = handle.files.draft(file)
            self.path = os.path.join(tempfile.mkdtemp(prefix="satchel-"), file)
            with open(self.path, "x", encoding="utf-8", newline="") as copy:
                copy.write(self._draft.text)
        self._before = _digest(self.path)

    def finish(self, failed: str = "") -> str:
        """Send the file back, and say what came of it. If that fails, the error names the copy, which stays.
        `failed`: what the editor failed with, so nothing is sent. UsageError, too, if the run can't take the edit."""
        after = _digest(self.path)
        if self._draft is None:
            self._check_refused(failed)
        if after == self._before:
            self._remove()
            if failed:
                raise UsageError(failed, why="nothing is saved")
            return f"{self._file} is unchanged"
        if not after:
            self._remove()
            raise UsageError(f"{self._file} is gone", why=failed or "the editor or another program has removed it")
        if failed:
            raise UsageError(
                failed, why=f"it has saved {self._file}" if self._draft is None else f"your text is in {self.path}"
            )
        return self._saved() if self._draft is None else self._sent(self._draft)

    def _saved(self) -> str:
        """What the run makes of a file that its editor has saved."""
        now = self._handle.files.draft(self._file)
        try:
            done = self._handle.files.edit(self._file, now.text, version=now.version)  # changes nothing, and checks all
        except SatchelError as error:
            self._check_refused("")
            raise UsageError(
                f"{self._file} is saved, but the run can't take it",
                why=str(error),
                remedy="open it again to correct it",
            ) from error
        if not done.says:
            return f"{self._file} is saved; nothing in it waits for the run"
        return _waiting(done)

    def _sent(self, draft: Draft) -> str:
        with open(self.path, "rb") as copy:
            text = decode(copy.read(), self.path)
        try:
            done = self._handle.files.edit(self._file, text, version=draft.version)
        except SatchelError as error:
            raise UsageError(f"your text is in {self.path}", why=str(error)) from error
        self._remove()
        return _waiting(done) if done.says else f"{self._file}: it changes nothing"

    def _check_refused(self, failed: str) -> None:
        """An active run may look at a file while its editor is still open."""
        new = [path for path in self._handle.status(brief=True).refused if path not in self._refused]
        if new:
            why = f"{new[-1]} says why, and where your text is" + (f"; {failed}" if failed else "")
            raise UsageError(f"the run has not taken your edit of {self._file}", why=why)

    def _remove(self) -> None:
        if self._draft is not None:
            shutil.rmtree(os.path.dirname(self.path), ignore_errors=True)


def _waiting(done: EditResult) -> str:
    return f"{done.file} is saved: {'; '.join(done.says)}; {done.waits_for or 'the next start'} takes it"


def call(words: list[str], path: str) -> str:
    """Let a person edit. Returns when the editor has ended, with what it failed with. It raises no error, since the
    terminal has to be taken back first."""
    # Keys like Ctrl+C reach each program of the terminal, and are meant for the editor.
    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT, signal.SIGQUIT)}
    try:
        code = subprocess.run([*words, path]).returncode
    except OSError as error:
        why = error.strerror or str(error)
        return f"the editor {words[0]!r} does not start ({why}; $VISUAL or $EDITOR names it)"
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if code < 0:
        return f"the editor {words[0]!r} was killed by signal {-code}"
    return f"the editor {words[0]!r} ended with exit code {code}" if code else ""


def _digest(path: str) -> str:
    """Empty if there is no such file."""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return ""


_ID = 40  # characters of a run's id in a question
_TOOL = 100


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
        status = self._feed.status
        if status is not None and status.state == "draining":
            await self.do("withdrawing the pause", lambda handle: handle.withdraw().said)
            return
        if status is not None and status.state in ACTIVE:
            self._say(f"the run is {status.state}", is_error=True)
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
        status = self._feed.status
        if status is not None and status.state in OVER:
            self._say(f"nothing runs it: it is {status.state}", is_error=True)
            return
        question = "Kill what runs it, now? Running work is cut off, and may be in doubt."
        if await self._confirmed(question):
            await self.do("stopping", self._stop)

    @staticmethod
    def _stop(handle: Handle) -> str:
        stopped = handle.stop()
        if stopped.how == "failed":
            raise UsageError(stopped.said)
        return describe_stop(stopped)

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
        status = self._feed.status
        asked = status.questions if status else []
        if not asked:
            self._say("there is no open question")
            return
        at, more = min(index, len(asked) - 1), len(asked) - 1
        while (given := await self._app.push_screen_wait(AnswerForm(asked[at], more))) == "next":
            at = (at + 1) % len(asked)
        if given is None:
            self._say("nothing was answered")
            return
        is_active = status is not None and status.state in ACTIVE
        await self.do("answering", lambda handle: _answer(handle, given, is_active=is_active))

    async def revoke(self) -> None:
        """One of the standing approvals: asks about each in turn."""
        approved = self._feed.status.approved if self._feed.status else {}
        if not approved:
            self._say("there is no standing approval")
        for id, each in approved.items():
            if await self._confirmed(f"Revoke {id}, which approves each call of {plain(each.tool, _TOOL)}?"):
                await self.do("revoking", partial(_revoke, id))
                return

    async def edit(self, file: str) -> None:
        """The editor has the terminal, so nothing else happens here until it ends."""
        app = self._app
        try:
            command = editor()
            opened = await asyncio.to_thread(lambda: EditorFile(self._make(), file))
            with app.suspend():  # must end without an error: Textual would not take the terminal back
                failed = call(command, opened.path)
            self._say(await asyncio.to_thread(opened.finish, failed))
        except SuspendNotSupported:
            self._say("this terminal can't be given to an editor", is_error=True)
        except Exception as error:  # one that this code has not foreseen must not end the screen
            self._say(str(error) or type(error).__name__, is_error=True)
        app.refresh(layout=True)
        self._feed.look_now()

    async def _confirmed(self, question: str) -> bool:
        status = self._feed.status
        name = f"{plain(run_id_of(status), _ID)}: " if status else ""
        return await self._app.push_screen_wait(Confirm(f"{name}{question}"))


def _send(text: str, message: bool, handle: Handle) -> str:
    return "sent: " + ", ".join(each.file for each in handle.send(text, message=message))


def _revoke(id: str, handle: Handle) -> str:
    return describe_revocation(handle.revoke(id))


def _answer(handle: Handle, given: TypedAnswer, *, is_active: bool) -> str:
    try:
        changes = changes_of(shlex.split(given.changes)) or None
    except ValueError as error:
        why, remedy = str(error), 'put a value with spaces into quotes: to="Ada Lovelace"'
        raise UsageError(f"{given.changes!r} can't be read", why=why, remedy=remedy) from None
    done = handle.answer(
        given.decision,
        given.id,
        arguments=changes,
        standing=given.standing,
        result=given.result,
        note=given.note,
        typed=given.is_typed,
    )
    said = describe_answer(done)
    if done.is_recorded and done.questions:
        return f"{said}; {counted(len(done.questions), 'question')} still open"
    return said if is_active or not done.is_recorded else f"{said}; r resumes the run"
