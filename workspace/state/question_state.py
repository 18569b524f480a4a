"""The questions to people in a moment: the open ones, and the newest answers.

Pure, like the moment that contains them (run_state.py).
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from hashlib import blake2b
from typing import Any, Literal, NamedTuple

from msgspec import Raw, Struct, json
from msgspec.structs import replace

from ..journal import (
    NOTHING,
    ApprovalAnswered,
    ApprovalAsked,
    ApprovalRevoked,
    Doubt,
    Key,
    OfCall,
    Resolved,
    StepStarted,
)


class RecordedAnswer(Struct, frozen=True, omit_defaults=True):
    """The answer to a question, by whom and when: its file shows it from then on.

    `arguments` are those that the question was asked with, and `changes` those that the answer changes: JSON objects.
    """

    decision: Raw  # JSON; of a doubt one of its `verdicts`
    by: str
    at: str
    note: str = ""
    how: Literal["file", "command", "expired", "standing"] = "file"
    arguments: Raw = NOTHING
    changes: Raw = NOTHING
    standing: str = ""  # the tool whose later calls it approves, too
    revoked: str = ""  # by whom and when


class Begun(Struct, frozen=True, omit_defaults=True):
    """A question that was answered under a standing approval, and the call that has begun since. How the call ended is
    open until a record says so."""

    asked: ApprovalAsked
    key: Key
    by: str = ""  # who has revoked the approval


class Approval(Struct, omit_defaults=True):
    """An approval that counts for the later calls of a tool by one agent, until its code changes."""

    agent: str
    tool: str
    code: str  # SHA-256 of the agent's code
    by: str
    at: str
    uses: int = 0
    told: dict[str, ApprovalAsked] = {}  # approved under it, by question; the calls have not begun yet
    begun: dict[str, Begun] = {}  # approved under it, by question; the calls have begun
    guessed: dict[str, ApprovalAsked] = {}  # of those that have begun: perhaps others that were told in the same scope

    @property
    def not_begun(self) -> dict[str, ApprovalAsked]:
        """The questions whose calls have not begun, or perhaps not."""
        return {**self.guessed, **self.told}


class DoubtVerdict(NamedTuple):
    """The meaning of an answer to a doubt: a `Resolved` without the rest."""

    outcome: Literal["done", "not_done", "new", "none_since"]
    other: Key | None = None


DONE, REDO, NEW, NONE_SINCE = "done", "redo", "new", "nothing-was-done"
"""The possible answers about an effect in doubt."""

GO_BACK, DATA, KEEP = "go-back", "data", "keep"
"""The possible answers about files of a checkpoint that a person has copied over those of the run."""


def verdicts(doubt: Doubt, numbers: Mapping[Key, int]) -> dict[str, DoubtVerdict]:
    """The possible answers to a doubt, with their meaning. `numbers`: those of the calls of its scope. With several
    earlier calls an answer names one by its number."""
    if doubt.why == "lost":
        return {DONE: DoubtVerdict("done"), REDO: DoubtVerdict("not_done"), NONE_SINCE: DoubtVerdict("none_since")}
    if doubt.why != "unclaimed":
        return {DONE: DoubtVerdict("done"), REDO: DoubtVerdict("not_done")}
    named = {f"-{numbers.get(key, 0)}" if len(doubt.others) > 1 else "": key for key in doubt.others}
    return {
        **{f"{DONE}{name}": DoubtVerdict("done", key) for name, key in named.items()},
        **{f"{REDO}{name}": DoubtVerdict("not_done", key) for name, key in named.items()},
        NEW: DoubtVerdict("new"),
    }


def decision_of(doubt: Doubt, record: Resolved, numbers: Mapping[Key, int]) -> Raw:
    """The answer as JSON."""
    for said, meant in verdicts(doubt, numbers).items():
        if meant.outcome == record.outcome and record.other in (None, meant.other):
            return Raw(f'"{said}"'.encode())
    raise ValueError("it answers another question")


_ANSWERS = 200
"""How many answers are remembered here for their files, besides those that stand for later calls. Their results are
remembered with the scopes, for ever."""


class Questions(Struct, kw_only=True):
    """Doubts and approvals, by their ids."""

    doubts: dict[str, Doubt] = {}  # open ones
    doubts_asked: int = 0
    approvals: dict[str, ApprovalAsked] = {}  # open ones
    approvals_asked: int = 0
    asked_at: dict[str, str] = {}  # of the open questions, doubts and approvals alike
    answered: dict[str, RecordedAnswer] = {}  # the newest, by the ids of their questions
    standing: dict[str, Approval] = {}  # approvals in force, by the ids of their questions
    taken_back: list[str] = []  # open questions that were answered under an approval that was revoked since
    overtaken: dict[str, Begun] = {}  # by question: the call has begun, and then the approval was revoked

    @property
    def asks_whether_back(self) -> bool:
        """Whether a question is open that a start must not pass."""
        return any(asked.back is not None for asked in self.approvals.values())

    def ask_doubt(self, record: Doubt, at: str) -> None:
        """An older question about an unclaimed call of the effect is over, because that call was not made again."""
        for old in list(self.doubts.values()):
            if _place(old) == _place(record) and old.why == record.why == "unclaimed":
                del self.doubts[old.id]
        self.doubts[record.id] = record
        self.doubts_asked = max(self.doubts_asked + 1, _number(record.id))
        self._note_time(record.id, at)

    def ask_approval(self, record: ApprovalAsked, at: str) -> None:
        for id in record.withdraws:
            self.approvals.pop(id, None)
        self.approvals[record.id] = record
        self.approvals_asked = max(self.approvals_asked + 1, _number(record.id))
        self._note_time(record.id, at)

    def _note_time(self, id: str, at: str) -> None:
        self.asked_at = {
            each: at for each, at in self.asked_at.items() if each in self.approvals or each in self.doubts
        } | {id: at}

    def remember(
        self, record: ApprovalAnswered | Resolved, decision: Raw, at: str, asked: ApprovalAsked | None = None
    ) -> None:
        """The answer to a question that is no longer open."""
        self.answered[record.id] = RecordedAnswer(
            decision=decision,
            by=record.by,
            at=at,
            note=record.note,
            how=record.how,
            arguments=asked.arguments if asked else NOTHING,
            changes=record.arguments if isinstance(record, ApprovalAnswered) else NOTHING,
            standing=asked.tool if asked and isinstance(record, ApprovalAnswered) and record.standing else "",
        )
        for old in [id for id in self.answered if id not in self.standing][:-_ANSWERS]:
            del self.answered[old]

    # Approvals that stand for later calls

    def stands_for(self, agent: str, tool: str) -> str | None:
        """The question whose standing approval counts for a call of this tool."""
        place = agent, tool
        return next((id for id, each in self.standing.items() if (each.agent, each.tool) == place), None)

    def check_standing(self, asked: ApprovalAsked, record: ApprovalAnswered) -> None:
        """ValueError if the answer can't stand, or uses an approval that does not stand."""
        if record.standing and (not asked.tool or len(record.arguments) or bytes(record.decision) != b'"approve"'):
            raise ValueError(f"it can't stand for later calls: {record.id}")
        if record.how == "standing" and self.stands_for(asked.agent, asked.tool) != record.under:
            raise ValueError(f"no approval counts for {record.id}")

    def note_standing(self, asked: ApprovalAsked, record: ApprovalAnswered, code: str, at: str) -> None:
        """Remember an approval that counts from now on, or the use of one."""
        self.taken_back = [id for id in self.taken_back if id != record.id]
        if record.standing:
            self.standing[record.id] = Approval(asked.agent, asked.tool, code, record.by, at)
        elif record.how == "standing":
            used = self.standing[record.under]
            used.uses += 1
            used.told[record.id] = asked

    def note_begun(self, record: OfCall) -> None:
        """A call has begun, perhaps again, that was approved under a standing approval."""
        if any(_is_of(each, record) for held in self._of_begun() for each in held.values()):
            return
        for each in self.standing.values():
            if (each.agent, each.tool) != (record.agent, record.step):
                continue
            told = {id: asked for id, asked in each.told.items() if asked.scope == record.scope}
            if told:
                known = _about(told, record)
                id = known or next(iter(told))
                each.begun[id] = Begun(each.told.pop(id), record.key)
                if known is None:
                    each.guessed[id] = told[id]
            if len(told) <= 1:  # all of this scope have begun, whichever it was each time
                each.guessed = {id: asked for id, asked in each.guessed.items() if asked.scope != record.scope}

    def note_ended(self, record: OfCall) -> None:
        """This call has ended in a known way, so it is not begun again."""
        for held in self._of_begun():
            for id in [id for id, each in held.items() if _is_of(each, record)]:
                del held[id]

    def note_decided(self, record: OfCall) -> None:
        """A person has decided that this call may be done again: that counts if its approval was revoked before."""
        self.overtaken = {id: each for id, each in self.overtaken.items() if not _is_of(each, record)}

    def overtaken_by(self, agent: str, scope: str, key: Key) -> str | None:
        """The question about a call that has begun, and whose approval was revoked since."""
        place = agent, scope, key
        found = ((id, each.asked, each.key) for id, each in self.overtaken.items())
        return next((id for id, asked, begun in found if (asked.agent, asked.scope, begun) == place), None)

    def _of_begun(self) -> tuple[dict[str, Begun], ...]:
        return self.overtaken, *(each.begun for each in self.standing.values())

    def revoke(self, record: ApprovalRevoked, at: str) -> list[ApprovalAsked]:
        """The approval no longer counts. Returns the questions that were answered under it, and whose calls have not
        begun. Or a call that it has overtaken is about to begin again: returns its question. LookupError if the
        approval does not stand."""
        if record.id in self.overtaken:
            return [self.overtaken.pop(record.id).asked]
        return self._end_standing(record.id, record.by, at)

    def ask_again(self, asked: ApprovalAsked, at: str) -> None:
        """A question whose answer does not count any more."""
        self.answered.pop(asked.id, None)
        self.approvals[asked.id] = asked
        self.taken_back.append(asked.id)
        self._note_time(asked.id, at)

    def is_taken_back(self, agent: str, scope: str, tool: str) -> bool:
        """Whether a call of the tool was approved in this scope, and is asked about again."""
        asked = (self.approvals.get(id) for id in self.taken_back)
        return any(each is not None and (each.agent, each.scope, each.tool) == (agent, scope, tool) for each in asked)

    def drop_standing(self, code: str, at: str) -> list[ApprovalAsked]:
        """The agent has this code now. Returns the questions that were answered under what no longer counts, and whose
        calls have not begun."""
        ended = [id for id, each in self.standing.items() if each.code != code]
        return [asked for id in ended for asked in self._end_standing(id, "a change of the code", at)]

    def _end_standing(self, id: str, by: str, at: str) -> list[ApprovalAsked]:
        ended = self.standing.pop(id)
        if id in self.answered:
            self.answered[id] = replace(self.answered[id], revoked=f"{by}, {at}")
        self.overtake(ended, by)
        return [*ended.not_begun.values()]

    def overtake(self, ended: Approval, by: str) -> None:
        """The approval no longer counts. What has begun under it is asked about before it begins again."""
        self.overtaken |= {id: replace(each, by=by) for id, each in ended.begun.items() if id not in ended.guessed}

    # Questions that no call waits for any more

    def forget_below(self, agent: str) -> None:
        """The agent and those below it have ended without the answer."""
        for id, asked in list(self.approvals.items()):
            if f"{asked.agent}/".startswith(f"{agent}/"):
                del self.approvals[id]

    def forget_in(self, agent: str, scope: str) -> None:
        """The scope has ended without the answer, and without the call that a doubt is about, or that was approved."""
        for each in self.standing.values():
            for held in (each.told, each.guessed):
                for id in [id for id, asked in held.items() if (asked.agent, asked.scope) == (agent, scope)]:
                    del held[id]
        for begun in self._of_begun():
            for id in [id for id, each in begun.items() if (each.asked.agent, each.asked.scope) == (agent, scope)]:
                del begun[id]
        for questions in (self.doubts, self.approvals):
            for id, asked in list(questions.items()):
                if (asked.agent, asked.scope) == (agent, scope):
                    del questions[id]

    def forget_call(self, agent: str, scope: str, key: Key) -> None:
        """A person has decided about this call, so it is not in doubt."""
        for doubt in list(self.doubts.values()):
            if (doubt.agent, doubt.scope) == (agent, scope) and key in (doubt.key, *doubt.others):
                del self.doubts[doubt.id]

    def forget_ended(self, agent: str, scopes: Container[str]) -> None:
        """Where a person has ended a scope, there is no call to answer; one that is done again asks by itself. `scopes`
        are those that have not ended."""
        for questions in (self.doubts, self.approvals):
            for id, question in list(questions.items()):
                if question.agent == agent and question.scope not in scopes:
                    del questions[id]

    def forget_gone_on(self, record: OfCall) -> None:
        """This call continues, so its question is over."""
        for doubt in list(self.doubts.values()):
            if (doubt.agent, doubt.scope, doubt.key) == (record.agent, record.scope, record.key):
                del self.doubts[doubt.id]


def _place(doubt: Doubt) -> tuple[str, str, str]:
    return doubt.agent, doubt.scope, doubt.step


def _about(told: Mapping[str, ApprovalAsked], record: OfCall) -> str | None:
    """Which of the questions about calls of its tool this call was approved with, as far as their arguments tell. An
    effect may have others besides, which its function gives by default."""
    made = _by_name(record.arguments) if isinstance(record, StepStarted) else {}
    found: dict[str, int] = {}
    for id, asked in told.items():
        given = _by_name(asked.arguments)
        is_same = blake2b(json.encode(given, order="sorted"), digest_size=8).hexdigest() == record.args
        if given and (is_same or all(name in made and made[name] == value for name, value in given.items())):
            found[id] = len(given)
    return max(found, key=found.__getitem__, default=None)


def _by_name(arguments: Raw) -> dict[str, Any]:
    found = json.decode(arguments) if len(arguments) else {}
    return found if isinstance(found, dict) else {}


def _is_of(begun: Begun, record: OfCall) -> bool:
    return (begun.asked.agent, begun.asked.scope, begun.key) == (record.agent, record.scope, record.key)


def _number(id: str) -> int:
    """The number of a question. Numbers count up, and a number that a file still has is skipped."""
    digits = id[1:]
    return int(digits) if digits.isdecimal() and len(digits) < 10 else 0
