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
from ..control import Draft, Handle

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
        if not urls.is_remote(handle.url):
            self.path = os.path.join(handle.url, file)
        else:
            self._draft = handle.draft(file)
            self.path = os.path.join(tempfile.mkdtemp(prefix="satchel-"), file)
            with open(self.path, "x", encoding="utf-8", newline="") as copy:
                copy.write(self._draft.text)
        self._before = _digest(self.path)

    def finish(self, failed: str = "") -> str:
        """Send the file back, and say what came of it. If that fails, the error names the copy, which stays.
        `failed`: what the editor failed with, so nothing is sent."""
        after = _digest(self.path)
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
        if self._draft is None:
            return f"{self._file} is saved; the run takes the edit at its next safe point, or when it starts"
        with open(self.path, "rb") as copy:
            text = decode(copy.read(), self.path)
        try:
            done = self._handle.edit(self._file, text, version=self._draft.version)
        except SatchelError as error:
            raise UsageError(f"your text is in {self.path}", why=str(error)) from error
        self._remove()
        says = "; ".join(done.says) or "it changes nothing"
        return f"{self._file}: {says}; {done.waits_for or 'the next start'} takes it"

    def _remove(self) -> None:
        if self._draft is not None:
            shutil.rmtree(os.path.dirname(self.path), ignore_errors=True)


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
