"""todo.md and state.json in the person's editor."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import signal
import subprocess
import tempfile

from ...workspace.base import SatchelError, UsageError, decode, urls
from ..control import Draft, Editing, Handle

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


class Opened:
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
            self._draft = handle.draft(file)
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
        now = self._handle.draft(self._file)
        try:
            done = self._handle.edit(self._file, now.text, version=now.version)  # changes nothing, and checks all
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
            done = self._handle.edit(self._file, text, version=draft.version)
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


def _waiting(done: Editing) -> str:
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
