"""Records of what people settle: the questions that only they can answer, their changes of files, returns to an earlier
record, and pauses.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Raw, Struct, field

from ..base import Mode, Resume
from ..plan import Splice, TaskRow
from .records import NOTHING, Count, Failure, Key, OfCall, Patch, Record, SavedFile


class Doubt(OfCall, frozen=True, kw_only=True, tag="doubt"):
    """A question that only a person can answer: has this effect happened?

    `unknown_outcome`: it began, and no record says how it ended. `unclaimed`: this call would begin, but `others`,
    recorded effects of an earlier attempt, were not called again. `unreached`: it began in an earlier
    attempt, and its scope is about to commit without calling it. `uncalled`: the same of an effect that was done, for
    an agent with `effects="strict"`. `lost`: this call would begin, but the run was restored from a backup, and its
    lost owner may have done it after the last record there.

    `needs_person`: the effect has no `verify` and is not `idempotent`, so no start can resolve it. A plain start leaves
    a run alone that only waits for such answers.
    """

    id: str
    why: Literal["unknown_outcome", "unclaimed", "unreached", "uncalled", "lost"]
    others: tuple[Key, ...] = ()
    cause: str = ""
    needs_person: bool = False


class Resolved(Record, frozen=True, kw_only=True, tag="resolved"):
    """The answer: it has happened, with this result; or it has not, and may be done.

    For an `unclaimed` one this is about `other`, the earlier call that is the same action (it may be left out if there
    is only one). Or the call is a `new` action, and every earlier one stays as it is. `none_since`: it has not
    happened, and the lost owner of a restored run has done nothing else after the backup either, so no other call is
    asked about.
    """

    id: str
    outcome: Literal["done", "not_done", "new", "none_since"]
    other: Key | None = None
    by: str
    note: str = ""
    how: Literal["file", "command"] = "command"
    result: Raw = NOTHING
    blob: str = ""


class Back(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Files of the `checkpoint`, at record `to`, that a person has copied over those of the run. `data` are those in
    them, by the agent's path, or in the file `blob`."""

    checkpoint: str
    to: Count
    files: tuple[str, ...]
    data: Raw = NOTHING
    blob: str = ""


class ApprovalAsked(OfCall, frozen=True, kw_only=True, tag="approval.asked"):
    """A question to a person (`run.ask`). `withdraws` are earlier ones of the scope that no longer count.

    `arguments`: those of the call that the question is about. A person may approve it with others. `tool`: the name of
    that call. A person may approve all later calls of this name, too. With `back` it is no call of an agent: Satchel
    asks whether to go back.
    """

    id: str
    question: str
    choices: tuple[str, ...] = ()
    answer_schema: dict[str, object] | bool | None = None  # JSON Schema of the answer, or of the arguments
    arguments: Raw = NOTHING  # a JSON object
    tool: str = ""
    context: Raw = NOTHING  # JSON
    expires: str = ""  # UTC, ISO 8601
    default: Raw = NOTHING  # the answer once it has expired
    withdraws: tuple[str, ...] = ()
    back: Back | None = None


class ApprovalAnswered(Record, frozen=True, kw_only=True, tag="approval.answered"):
    """A person's answer, or the default of an expired question. From here on it is the result of the call.

    `arguments` are those that the person has changed, with their new values. `standing`: it also approves each later
    call of the tool by the same agent, as long as the run's code stays the same. `under`: the question whose standing
    approval this one uses.
    """

    id: str
    decision: Raw  # JSON
    arguments: Raw = NOTHING  # a JSON object
    by: str
    note: str = ""
    how: Literal["file", "command", "expired", "standing"] = "file"
    standing: bool = False
    under: str = ""


class ApprovalRevoked(Record, frozen=True, kw_only=True, tag="approval.revoked"):
    """A person has revoked a standing approval. Calls that were approved under it and have not begun are asked about
    again. With the `id` of a question that was answered under it: its call has begun, and is asked about before it
    begins again."""

    id: str
    by: str


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
    outline: list[TaskRow] = field(default_factory=list)
    own_work: tuple[str, ...] = ()  # ids, in lower case: items that have got others below them and are done after them
    redone: tuple[str, ...] = ()  # scopes to do again: their steps run again, their effects are kept, but for `effects`
    effects: bool = False  # the effects of these are done again, too
    dropped: tuple[str, ...] = ()  # scopes that had begun and won't be entered any more
    step: StepEdit | None = None
    messages: tuple[MessageEdit, ...] = ()  # at most one of them is new
    written: SavedFile | None = None  # a whole file in files/
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


class PauseRequested(Record, frozen=True, kw_only=True, tag="pause.requested"):
    """A request to stop the run. From here on nothing new begins."""

    reason: str
    by: str
    mode: Mode = "drain"
    resume: Resume = "continue"
    until: str = ""  # when the pause is expected to be over: UTC, ISO 8601


class PauseLate(Record, frozen=True, kw_only=True, tag="pause.late"):
    """The run completed before it noticed the request to stop. Nothing else came of the request."""

    reason: str
    by: str
    mode: Mode = "drain"


class Forced(Record, frozen=True, kw_only=True, tag="forced"):
    """The stop does not wait any longer for running work."""

    under_way: tuple[str, ...] = ()  # in words
    waited: float = 0.0  # seconds


class Paused(Record, frozen=True, kw_only=True, tag="paused"):
    """The requested pause is in force: no code of the agent runs."""

    forced: bool = False
    error: Failure | None = None


class Resumed(Record, frozen=True, kw_only=True, tag="resumed"):
    """A pause is over. `says` is what has changed meanwhile: drift, references, adjustments."""

    by: str
    instructions: str = ""
    seconds: float = 0.0  # how long the pause was
    checkpoint_age: float = 0.0  # seconds
    restart: bool = False  # what was cut off starts from its beginning, without its progress
    says: tuple[str, ...] = ()
