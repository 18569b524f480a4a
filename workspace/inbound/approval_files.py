"""The folder approvals/: write the questions, take the answers, and refuse wrong ones.

A question's record is durable before its file is there, and an answer's record before its file shows it. A file is read
only when it is completely saved, and written only if it is as it was read. A missing one means nothing: it is written
again.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Literal, NamedTuple

import msgspec
from msgspec import Raw

from ..base import InvalidFile, Refused, SatchelError, is_blank
from ..inspect import Report
from ..journal import (
    NOTHING,
    ApprovalAnswered,
    ApprovalAsked,
    ApprovalRevoked,
    Doubt,
    Journal,
    Kept,
    Resolved,
    blobs,
    first_kept,
)
from ..journal import read as records_after
from ..secrets import Redactor, parsed
from ..state import Moment, RecordedAnswer
from ..store import FileChanged, FileContent, Store, Version, read_if_there
from ..views import Settling, Unsettled, guarded_files, until_settled
from . import form
from .findings import RejectedFile
from .form import Reply, check_asked, check_form, read_reply, revoked_by
from .question import APPROVALS, Question, closed, find_question, open_questions, path_of, with_changes
from .rejection import reject
from .rewind_record import obey_answer

_NAME = re.compile(rf"{APPROVALS}/([ad])([0-9]{{1,9}})\.yaml")
_LOOKED_AT = 200
"""How many of the newest files of closed questions are checked."""

_TIMES = 3
BY_DEFAULT = "the default"


class AnswerFound(NamedTuple):
    """The results of a look, for people."""

    kind: Literal["answered", "refused"]
    id: str
    text: str


class ApprovalFiles:
    """The work on approvals/ for one opening. Used from one thread, like the moment that it reads."""

    def __init__(self, store: Store, moment: Moment, report: Report, redactor: Callable[[], Redactor]):
        """`redactor` returns that of the workspace as it is now."""
        self._store, self._moment, self._report, self._redactor = store, moment, report, redactor
        self._seen: dict[str, Version] = {}  # by id: files that need no change
        self._closed: dict[str, Version] = {}  # by id: files whose question is closed
        self._revoked: set[str] = set()  # the files of these show that their approval was revoked
        self._refused: list[AnswerFound] = []  # changes of answered files, not told yet
        self._settling = Settling(store)
        self._numbers = {"a": 0, "d": 0}  # the last ones given away
        self.is_changing = False  # the last look has seen a file that is being saved

    def free_id(self, letter: Literal["a", "d"]) -> str:
        """An id for a new question: no other question and no file here has it."""
        asked = self._moment.doubts_asked if letter == "d" else self._moment.approvals_asked
        number = max(self._numbers[letter], asked) + 1
        while self._store.version(path_of(f"{letter}{number}")) is not None:
            number += 1
        self._numbers[letter] = number
        return f"{letter}{number}"

    # What people see

    def write_questions(self) -> None:
        """Write a file for every open question, durably; files of the others say that they are closed."""
        for question in open_questions(self._moment):
            with suppress(InvalidFile):  # something else is in its place, and `look` has reported it
                self.write_question(question)
        for id, answer in self._moment.answered.items():
            if answer.revoked and id not in self._revoked:
                self._revoked.add(id)
                self._closed.pop(id, None)
            with suppress(InvalidFile):
                self._show_answer(id)
        self._withdraw()

    def write_question(self, question: Question) -> None:
        """Write the file of an open question, unless it exists. One that shows an answer which does not count any more
        is written again."""
        there = read_if_there(self._store, question.path)
        if there is not None and not (self._is_taken_back(question, there) or self._is_emptied(question.path, there)):
            return
        data = form.blank(question, self._moment.run_id)
        with suppress(FileChanged, FileExistsError):  # a person was faster
            if there is None:
                self._store.create(question.path, data)
            else:
                self._seen[question.id] = self._store.replace(question.path, data, if_version=there.version)

    def _is_taken_back(self, question: Question, there: FileContent) -> bool:
        """Whether it shows an answer that does not count any more."""
        return question.id in self._moment.taken_back and bool(form.remarks(there.data, "answered"))

    def _is_emptied(self, path: str, there: FileContent) -> bool:
        """Not only for a moment, by a program that is about to save it."""
        return is_blank(there.data) and self._settling.stage(path, there.version) == "settled"

    def _show_answer(self, id: str, question: Question | None = None) -> None:
        """Write a recorded answer into the file. What can't show it, because it is half saved, is kept next to it, and
        the file is written again: for the `question`, if that is known."""
        answer, path = self._moment.answered[id], path_of(id)
        for _ in range(_TIMES):
            version = self._store.version(path)
            if version is None or version == self._closed.get(id):
                return
            there = read_if_there(self._store, path)
            if there is None:
                return
            if id in self._moment.standing and revoked_by(self._moment.run_id, id, there.data) is not None:
                return  # `look_for_revocations` takes it; until then the file must keep it
            if form.is_signed(there.data) and form.tells(there.data, answer):
                self._closed[id] = there.version
                return
            data = self._redactor().data(there.data)
            shown = form.answered(data, answer)
            problem = _problem(check_form, path, data if shown is None else shown)
            if problem is None:
                if question is None and id[0] == "a":  # the words of a doubt are Satchel's, and may be others by now
                    question = self._asked(id)
                if question is not None:
                    problem = _problem(check_asked, question, self._moment.run_id, data)
            if problem is not None:
                if self._store.has_writer(path):
                    return
                kept = reject(self._store, RejectedFile(path, problem, data), "and was written again with the answer")
                if not is_blank(data):  # absence is never an instruction
                    self._refused.append(AnswerFound("refused", id, f"{problem}; kept as {kept}"))
                shown = self._written_again(id, question or self._asked(id))
            if shown is None:
                guarded_files.remove(self._store, path, there.version)
                return
            if self._replace(self._closed, id, shown, there.version):
                return

    def _asked(self, id: str) -> Question | None:
        """The question of an answer. None if no record says any more what it was."""
        lines = records_after(self._store, after=first_kept(self._store) - 1).lines
        for line in reversed(lines):
            if isinstance(line.record, ApprovalAsked | Doubt) and line.record.id == id:
                return closed(line.record, line.at, self._moment)
        return None

    def _written_again(self, id: str, question: Question | None) -> bytes | None:
        """The form of an answered question."""
        if question is None:
            return None
        blank = self._redactor().data(form.blank(question, self._moment.run_id))
        return form.answered(blank, self._moment.answered[id])

    def _withdraw(self) -> None:
        """Mark the files of withdrawn questions."""
        open_ones = {question.id for question in open_questions(self._moment)}
        named = [match for entry in self._store.list(APPROVALS) if (match := _NAME.fullmatch(entry.path))]
        for match in sorted(named, key=lambda match: int(match[2]))[-_LOOKED_AT:]:
            id = match[1] + match[2]
            if id in open_ones or id in self._moment.answered or id in self._closed:
                continue
            try:
                there = read_if_there(self._store, match[0])
            except InvalidFile:
                continue
            if there is None or self._store.has_writer(match[0]):
                continue  # it is marked when the program has closed it
            self._closed[id] = there.version
            if self._is_cut_off(id, there):
                continue
            if form.is_open(there.data, self._moment.run_id) and (shown := form.withdrawn(there.data)):
                self._replace(self._closed, id, shown, there.version)

    def _is_cut_off(self, id: str, there: FileContent) -> bool:
        """Whether the file of a closed question was half saved. Then it is kept under another name."""
        path = path_of(id)
        asked = self._moment.doubts_asked if id[0] == "d" else self._moment.approvals_asked
        if int(id[1:]) > asked or form.is_signed(there.data):
            return False
        if (problem := _problem(check_form, path, there.data)) is None:
            return False
        reject(self._store, RejectedFile(path, problem, there.data), "and was removed, because its question is closed")
        guarded_files.remove(self._store, path, there.version)
        return True

    def _replace(self, known: dict[str, Version], id: str, data: bytes, version: Version) -> bool:
        """Unless it was saved again meanwhile, or is about to be: then it must be read again."""
        if self._store.has_writer(path_of(id)):
            return False
        try:
            known[id] = self._store.replace(path_of(id), data, if_version=version)
        except FileChanged:
            return False
        return True

    # What people say

    def look(self, journal: Journal, *, may_wait: bool) -> list[AnswerFound]:
        """Record answers and expired questions, durably; write into the other files why an answer is not taken.

        With `may_wait` this waits until a file that was just saved has settled; otherwise a later look takes it.
        """
        found = self.look_for_revocations(journal)
        self.is_changing = False
        for question in open_questions(self._moment):
            try:
                there = self._held_still(question, may_wait=may_wait)
                if there is not None and (said := self._judge(question, there, journal)):
                    found.append(said)
            except (InvalidFile, Refused) as error:  # it can't even be read: too large, a folder, a link elsewhere
                if (version := self._store.version(question.path)) is not None:
                    self._seen[question.id] = version  # told once
                found.append(AnswerFound("refused", question.id, str(error)))
            is_open = find_question(self._moment, question.id) is not None
            if is_open and question.has_expired(datetime.now(UTC)):
                self.record(journal, question, Reply(question.facts["default"], BY_DEFAULT, "", NOTHING), "expired")
                found.append(self._told(question))
        return found

    def _held_still(self, question: Question, *, may_wait: bool) -> FileContent | None:
        """A file that has changed since the last look; None if it has not, or may still be changing."""
        version = self._store.version(question.path)
        if version is None or version == self._seen.get(question.id):
            return None
        there = read_if_there(self._store, question.path)
        if there is None or form.is_signed(there.data):
            return there
        with suppress(FileNotFoundError):
            if not may_wait:
                there = self._settling.read(question.path)
                self.is_changing |= there is None
                return there
            with suppress(Unsettled):
                return until_settled(self._store, question.path)
        return None

    def _judge(self, question: Question, there: FileContent, journal: Journal) -> AnswerFound | None:
        if is_blank(there.data):
            return None  # absence is never an instruction
        if form.is_signed(there.data):
            self._seen[question.id] = there.version
            told = form.remarks(there.data, "not accepted")
            return AnswerFound("refused", question.id, f"{question.path}: {'; '.join(told)}") if told else None
        try:
            reply = parsed(partial(read_reply, question, self._moment.run_id), there.data, self._redactor())
        except InvalidFile as error:
            if self._store.has_writer(question.path):
                return None  # it is checked when it is closed, since no remark can be written into it before
            self._seen[question.id] = there.version
            shown = form.refused(self._redactor().data(there.data), error.problems)
            if shown is not None:
                self._replace(self._seen, question.id, shown, there.version)
            return AnswerFound("refused", question.id, str(error))
        if reply is None:
            self._seen[question.id] = there.version
            return None
        if not reply.by:
            reply = reply._replace(by=self._store.trace(question.path).by or "a person")
        self.record(journal, question, reply, reply.how)
        return self._told(question)

    def refused(self) -> list[AnswerFound]:
        """What was refused in files of answered questions since the last call."""
        found, self._refused = self._refused, []
        return found

    def look_for_revocations(self, journal: Journal, *, is_fresh: bool = False) -> list[AnswerFound]:
        """Record which standing approvals people have revoked in their files, durably. `is_fresh`: also where a look is
        a request."""
        if is_fresh and self._moment.standing and self._store.abilities.remote:
            self._store.refresh(APPROVALS)
        found = []
        for id, standing in list(self._moment.standing.items()):
            path = path_of(id)
            version = self._store.version(path)
            if version is None or version == self._closed.get(id):
                continue
            try:
                there = read_if_there(self._store, path)
            except (InvalidFile, Refused):
                continue
            by = None if there is None else revoked_by(self._moment.run_id, id, there.data)
            if there is None or form.is_signed(there.data) or by is None:
                continue
            self.revoke(journal, id, self._redactor().text(by) or self._store.trace(path).by or "a person")
            found.append(AnswerFound("answered", id, f"{path}: it counts for no later call of {standing.tool}"))
        return found

    def revoke(self, journal: Journal, id: str, by: str) -> None:
        """Record that an approval no longer counts, durably. What was approved under it and has not begun is asked
        about again. Or of what has begun under it: it is asked about again, because it is about to begin again."""
        standing = self._moment.standing.get(id)
        asked_again = [id] if standing is None else [*standing.not_begun]
        journal.add(ApprovalRevoked(id=id, by=by))
        journal.flush()
        self._closed.pop(id, None)
        if standing is not None:
            self._show_answer(id)
        for each in asked_again:
            self._closed.pop(each, None)
            if (question := find_question(self._moment, each)) is not None:
                self.write_question(question)

    def record(
        self,
        journal: Journal,
        question: Question,
        reply: Reply,
        how: Literal["file", "command", "expired", "standing"],
        under: str = "",
    ) -> None:
        """Record a valid answer, durably, and show it in the file. `under`: the question whose approval counts for
        this one."""
        decision = Raw(msgspec.json.encode(reply.decision))
        if question.is_doubt:
            result = self._redactor().json(bytes(reply.result))
            kept = blobs.keep(self._store, result, journal.generation) if result else Kept()
            meant = question.verdicts[reply.decision]
            journal.add(
                Resolved(
                    id=question.id,
                    outcome=meant.outcome,
                    other=meant.other,
                    by=reply.by,
                    note=reply.note,
                    how="file" if how == "file" else "command",
                    result=kept.result,
                    blob=kept.blob,
                )
            )
        else:
            if isinstance(question.asked, ApprovalAsked) and question.asked.back is not None:
                back, meant_to = question.asked.back, str(reply.decision)
                obey_answer(self._store, self._moment, self._report, journal, back, meant_to, reply.by)
            changes = Raw(msgspec.json.encode({**reply.arguments})) if reply.arguments else NOTHING
            said = ApprovalAnswered(
                id=question.id,
                decision=decision,
                arguments=changes,
                by=reply.by,
                note=reply.note,
                how=how,
                standing=reply.standing,
                under=under,
            )
            journal.add(said)
        journal.flush()
        self._show_answer(question.id, question)

    def _told(self, question: Question) -> AnswerFound:
        answer = self._moment.answered[question.id]
        shown = outcome_text(answer)
        shown += f", for later calls of {answer.standing} too" if answer.standing else ""
        who = "the default, because the question expired" if answer.how == "expired" else f"by {answer.by}"
        return AnswerFound("answered", question.id, f"{question.path}: {shown}, {who}")


def _problem(check: Callable[..., None], *of: object) -> InvalidFile | None:
    """What a check of a form has found."""
    try:
        check(*of)
    except InvalidFile as error:
        return error
    return None


def answer_text(decision: Raw) -> str:
    value = msgspec.json.decode(decision)
    return value if isinstance(value, str) else bytes(decision).decode()


def outcome_text(answer: RecordedAnswer) -> str:
    """The decision, with the arguments that it changes."""
    changes = msgspec.json.decode(answer.changes) if len(answer.changes) else None
    return with_changes(answer_text(answer.decision), changes)


def nothing_has_come(store: Store, moment: Moment, at: datetime) -> list[str] | None:
    """Whether no answer has come since the run stopped to wait: then why not, if something was refused. Changes
    nothing. None if there is something to do: an answer, an expired question, a missing file."""
    refused: list[str] = []
    for question in open_questions(moment):
        try:
            data = read_form(store, moment, question).data
        except (FileNotFoundError, SatchelError):
            return None
        if question.has_expired(at) or not form.is_signed(data):
            return None
        refused += [f"{question.path}: {reason}" for reason in form.remarks(data, "not accepted")]
    return refused


def filled_in(store: Store, moment: Moment) -> list[str]:
    """The open questions, by id, whose files contain an answer or a wrong one. Changes nothing, and does not wait for a
    save to end."""
    found = []
    for question in open_questions(moment):
        try:
            data = read_form(store, moment, question).data
        except (FileNotFoundError, SatchelError):
            continue
        if is_blank(data) or form.is_signed(data):
            continue
        try:
            has_come = read_reply(question, moment.run_id, data) is not None
        except InvalidFile as error:
            has_come = form.refused(data, error.problems) is not None  # else no start could write that into the file
        found += [question.id] * has_come
    return found


def read_form(store: Store, moment: Moment, question: Question) -> FileContent:
    """The file of an open question. Costs no request if the listing shows that it is unchanged."""
    if store.abilities.remote:
        store.expect(question.path, form.blank(question, moment.run_id))
    return store.read(question.path)
