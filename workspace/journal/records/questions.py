"""Records of the questions that only a person can answer, and of the answers."""

from __future__ import annotations

from typing import Literal

from msgspec import Raw, Struct

from .base import NOTHING, Count, Key, OfCall, Record


class Doubt(OfCall, frozen=True, kw_only=True, tag="doubt"):
    """A question that only a person can answer: has this effect happened?

    `unknown_outcome`: it began, and no record says how it ended. `unclaimed`: this call would begin, but `others`,
    recorded effects of an earlier attempt, were not called again. `unreached`: it began in an earlier
    attempt, and its scope is about to commit without calling it. `uncalled`: the same of an effect that was done, for
    an agent with `effects="strict"`.

    `needs_person`: the effect has no `verify` and is not `idempotent`, so no start can resolve it. A plain start leaves
    a run alone that only waits for such answers.
    """

    id: str
    why: Literal["unknown_outcome", "unclaimed", "unreached", "uncalled"]
    others: tuple[Key, ...] = ()
    cause: str = ""
    needs_person: bool = False


class Resolved(Record, frozen=True, kw_only=True, tag="resolved"):
    """The answer: it has happened, with this result; or it has not, and may be done.

    For an `unclaimed` one this is about `other`, the earlier call that is the same action (it may be left out if there
    is only one). Or the call is a `new` action, and every earlier one stays as it is.
    """

    id: str
    outcome: Literal["done", "not_done", "new"]
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
