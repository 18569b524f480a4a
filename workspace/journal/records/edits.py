"""Records of people's changes: an edited file, or a return to an earlier record."""

from __future__ import annotations

from msgspec import Raw, Struct, field

from ...todo import Row, Splice
from .base import NOTHING, Count, Key, Patch, Record


class StepEdit(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A person's edit of one recorded call: do it again, or use another result."""

    scope: str
    key: Key
    redo: bool = False
    result: Raw = NOTHING
    blob: str = ""


class MessageEdit(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A person's change of the conversation: message `seq` is another one, or removed if it has no `content`. Without
    `seq` it is new: it gets the number of its record, and comes before message `before`, or at the end."""

    seq: Count = 0
    before: Count = 0
    role: str = ""
    content: Raw = NOTHING

    @property
    def is_removal(self) -> bool:
        return not len(self.content)


class Edited(Record, frozen=True, kw_only=True, tag="edited"):
    """A person has changed a readable file; it counts from here on.

    `base` is the record at which the file was when it was edited, absent if the file did not say. `sha` is that of the
    file as it was found. If a power failure brings the same bytes back, they are not another edit.
    """

    file: str
    by: str
    sha: str
    saved: str = ""
    base: int | None = None
    patch: Patch = field(default_factory=list)  # of the agent's data, or of workspace.yaml
    plan: tuple[Splice, ...] = ()
    outline: list[Row] = field(default_factory=list)
    own_work: tuple[str, ...] = ()  # ids, in lower case: items that have got others below them and are done after them
    redone: tuple[str, ...] = ()  # scopes to do again: their steps run again, their effects are kept, but for `effects`
    effects: bool = False  # the effects of these are done again, too
    dropped: tuple[str, ...] = ()  # scopes that had begun and won't be entered any more
    step: StepEdit | None = None
    messages: tuple[MessageEdit, ...] = ()  # at most one of them is new
    says: tuple[str, ...] = ()  # the same in words


class Rewound(Record, frozen=True, kw_only=True, tag="rewound"):
    """The run returned to record `to`, which a person may have named by its checkpoint `file`.

    `agents` are those that are others from here on, in the form of a checkpoint: as they were, with the effects and
    answers since then. If they are large, they are in the file `blob`, and who reads the journal gets both. `forgets`:
    without the effects.
    """

    to: int
    by: str
    agents: Raw = NOTHING
    blob: str = ""
    file: str = ""
    forgets: bool = False
    says: tuple[str, ...] = ()  # what will be done again
