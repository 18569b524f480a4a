"""The questions to people in a moment: the open ones, and the newest answers.

Pure, like the moment that contains them (run_state.py).
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Literal, NamedTuple

from msgspec import Raw, Struct

from ..journal.records import NOTHING, ApprovalAnswered, ApprovalAsked, Doubt, Key, OfCall, Resolved


class Answered(Struct, frozen=True, omit_defaults=True):
    """The answer to a question, by whom and when: its file shows it from then on.

    `arguments` are those that the question was asked with, and `changes` those that the answer changes: JSON objects.
    """

    decision: Raw  # JSON; of a doubt one of its `verdicts`
    by: str
    at: str
    note: str = ""
    how: Literal["file", "command", "expired"] = "file"
    arguments: Raw = NOTHING
    changes: Raw = NOTHING


class Verdict(NamedTuple):
    """The meaning of an answer to a doubt: a `Resolved` without the rest."""

    outcome: Literal["done", "not_done", "new"]
    other: Key | None = None


DONE, REDO, NEW = "done", "redo", "new"
"""The possible answers about an effect in doubt."""

GO_BACK, DATA, KEEP = "go-back", "data", "keep"
"""The possible answers about files of a checkpoint that a person has copied over those of the run."""


def verdicts(doubt: Doubt, numbers: Mapping[Key, int]) -> dict[str, Verdict]:
    """The possible answers to a doubt, with their meaning. `numbers`: those of the calls of its scope. With several
    earlier calls an answer names one by its number."""
    if doubt.why != "unclaimed":
        return {DONE: Verdict("done"), REDO: Verdict("not_done")}
    named = {f"-{numbers.get(key, 0)}" if len(doubt.others) > 1 else "": key for key in doubt.others}
    return {
        **{f"{DONE}{name}": Verdict("done", key) for name, key in named.items()},
        **{f"{REDO}{name}": Verdict("not_done", key) for name, key in named.items()},
        NEW: Verdict("new"),
    }


def decision_of(doubt: Doubt, record: Resolved, numbers: Mapping[Key, int]) -> Raw:
    """The answer as JSON."""
    for said, meant in verdicts(doubt, numbers).items():
        if meant.outcome == record.outcome and record.other in (None, meant.other):
            return Raw(f'"{said}"'.encode())
    raise ValueError("it answers another question")


_ANSWERS = 200
"""How many answers are remembered here for their files. Their results are remembered with the scopes, for ever."""


class Questions(Struct, kw_only=True):
    """Doubts and approvals, by their ids."""

    doubts: dict[str, Doubt] = {}  # open ones
    doubts_asked: int = 0
    approvals: dict[str, ApprovalAsked] = {}  # open ones
    approvals_asked: int = 0
    asked_at: dict[str, str] = {}  # of the open questions, doubts and approvals alike
    answered: dict[str, Answered] = {}  # the newest, by the ids of their questions

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
        self.answered[record.id] = Answered(
            decision=decision,
            by=record.by,
            at=at,
            note=record.note,
            how=record.how,
            arguments=asked.arguments if asked else NOTHING,
            changes=record.arguments if isinstance(record, ApprovalAnswered) else NOTHING,
        )
        for old in list(self.answered)[:-_ANSWERS]:
            del self.answered[old]

    # Questions that no call waits for any more

    def forget_below(self, agent: str) -> None:
        """The agent and those below it have ended without the answer."""
        for id, asked in list(self.approvals.items()):
            if f"{asked.agent}/".startswith(f"{agent}/"):
                del self.approvals[id]

    def forget_in(self, agent: str, scope: str) -> None:
        """The scope has ended without the answer, and without the call that a doubt is about."""
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


def _number(id: str) -> int:
    """The number of a question. Numbers count up, and a number that a file still has is skipped."""
    digits = id[1:]
    return int(digits) if digits.isdecimal() and len(digits) < 10 else 0
