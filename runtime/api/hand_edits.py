"""The methods of a handle that edit its files as a person does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..status import in_steps
from .readonly import ReadonlyHandle

if TYPE_CHECKING:
    from ..status import Steps
    from .file_edits import Draft, EditResult, MessageCut


class EditByHand(ReadonlyHandle):
    """The part of a `Handle` that edits."""

    def draft(self, file: str = "todo.md") -> Draft:
        """A todo.md or state.json as it is now, to edit it; `file` is its path in the workspace. UsageError for another
        file, InvalidFile if it is not a text."""
        from . import file_edits

        return file_edits.draft(self, file)

    @in_steps
    def edit(self, file: str, text: str, *, version: str, conflict: bool = False) -> Steps[EditResult]:
        """Save a todo.md or state.json as a person does in an editor, if the run can take it.

        `text` is the whole file, with the stamp that tells from which moment it is: a change that was made from an
        older moment is merged. `version` is that of the draft. InvalidFile, with line and column, or Refused if the run
        could not take it; Conflicting if it contradicts what the run has done since, or another person has saved the
        file since. Then nothing was written. `conflict`: save it although it contradicts the run, which then pauses
        until `merge` has settled it. The state is checked against the schema of its type, but the type itself
        (validators) only when the run takes it. Not guaranteed: when that is. Other programs may save at any time.
        """
        from . import file_edits

        return file_edits.edit(self, file, text, version, conflict=conflict)

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

        return file_edits.cut(self, after, agent)

    cut_messages_async = cut_messages.without_blocking
