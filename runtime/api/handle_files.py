"""`Handle.files`: the files of a run, to read and to edit as a person does."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...workspace.base import arguments, visible
from ..status import Place, in_a_thread, in_steps

if TYPE_CHECKING:
    from ...workspace.inspect import ExportResult
    from ...workspace.transfer import Tell
    from ..status import RunFile, Steps
    from .file_edits import Draft, EditResult, MessageCut


_READ = 1 << 20
"""Bytes of a file that are read at once, unless the caller gives a limit."""


class RunFiles:
    """The files of a run. Made by `Handle.files`.

    `list`, `read`, `draft` and `export` leave them as they are. `edit` and `cut_messages` change them as a person does,
    so the run takes the change as an edit.
    """

    def __init__(self, place: Place):
        self._place = place

    def __repr__(self) -> str:
        return f"<RunFiles of {visible(self._place.url)}>"

    def list(self) -> Sequence[RunFile]:
        """The files of the run that people read, by path: plan, state, conversation, questions, inbox, outputs, steps,
        recovered text, checkpoints, and those of its sub-agents. Not the agent's code, and nothing of `.satchel/` and
        `journal/`."""
        from ..status import run_files

        return run_files.files(self._place)

    def read(self, path: str, *, limit: int | None = None) -> bytes:
        """The content of one of `list()`, redacted as `redact:` in workspace.yaml says. UsageError for any other path,
        and for a file of more than `limit` bytes; without one, of more than 1 MiB."""
        from ..status import run_files

        return run_files.read(self._place, path, arguments.count("limit", limit, least=1) or _READ)

    def draft(self, file: str = "todo.md") -> Draft:
        """A todo.md or state.json as it is now, to edit it; `file` is its path in the workspace. UsageError for another
        file, InvalidFile if it is not a text."""
        from . import file_edits

        return file_edits.draft(self._place, file)

    @in_steps
    def edit(self, file: str, text: str, *, version: str, conflict: bool = False) -> Steps[EditResult]:
        """Save a todo.md or state.json as a person does in an editor, if the run can take it.

        `text` is the whole file, with the stamp that tells from which moment it is: a change that was made from an
        older moment is merged. `version` is that of the draft. InvalidFile, with line and column, or Refused if the run
        could not take it; Conflicting if it contradicts what the run has done since, or another person has saved the
        file since. Then nothing was written. `conflict`: save it although it contradicts the run, which then pauses
        until `Handle.merge` has settled it. The state is checked against the schema of its type, but the type itself
        (validators) only when the run takes it. Not guaranteed: when that is. Other programs may save at any time.
        """
        from . import file_edits

        return file_edits.edit(self._place, file, text, version, conflict=conflict)

    edit_async = edit.without_blocking

    @in_steps
    def cut_messages(self, after: int, *, agent: str = "") -> Steps[MessageCut]:
        """Cut the conversation off after the message with the `seq` `after`, or all of it with 0. `agent`: that of a
        sub-agent, by its path (`researcher/reader`).

        It is an edit of messages.jsonl: recorded now, or at the next safe point if a process runs the run. What the run
        says until then stays. InvalidFile if the cut would part the call of a tool from its results, UsageError for a
        message that is not there.
        """
        from . import file_edits

        return file_edits.cut(self._place, after, agent)

    cut_messages_async = cut_messages.without_blocking

    @in_a_thread
    def export(self, to: str | os.PathLike[str], *, progress: Tell | None = None) -> ExportResult:
        """Write a zip file for other people to read: the readable files, the journal and the checkpoints, as of one
        record, also while a process runs it.

        Without what belongs to a process, and redacted as `redact:` in workspace.yaml says, also what was recorded
        before. export.json in it, and the result, say of which record it is, what was redacted and what was left out.
        The first `Handle.run` of an unpacked export needs `adopt` while the original exists. `progress` is called with
        "copying", the bytes done and the total. UsageError if `to` exists or is inside the workspace.
        """
        from . import transport

        return transport.export(self._place, to, progress)

    export_async = export.without_blocking
