"""Answer a question of a run, whether or not a process runs the workspace."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ...workspace.base import InvalidFile, LeaseHeld, SatchelError, UsageError, arguments, in_force, one_line, since
from ...workspace.formats import jsontext, yamltext
from ...workspace.inbound import (
    APPROVE,
    Question,
    RejectedFile,
    Reply,
    answer_text,
    blank,
    check_standing,
    fill_in,
    find_question,
    fit_arguments,
    fit_decision,
    open_questions,
    outcome_text,
    path_of,
    read_form,
    read_reply,
    reject,
    typed_arguments,
    with_changes,
)
from ...workspace.inspect import Remark, Report, lease, look_beside
from ...workspace.journal import NOTHING
from ...workspace.lifecycle import opened
from ...workspace.secrets import Redactor, redactor_of
from ...workspace.state import DONE, Moment, RecordedAnswer, same
from ...workspace.store import FileChanged
from ..status import Given, OpenQuestion, Place, Steps, check_free, plain_answer, questions_of

_PATIENCE = 5.0
"""Seconds to wait until the process that runs the workspace has taken the answer."""
_REMOTE_PATIENCE = 12.0
"""The same where that process looks only every few seconds."""
_LOOK_AGAIN = 0.1
_TIMES = 5
_NOTE = 200  # characters


class AnswerResult(Struct, frozen=True):
    """The outcome of an answer.

    `is_recorded`: it is in the journal, as `answer`, and can't be changed. Otherwise it is in `file`, and the process
    that runs the workspace (`waits_for`, in words) takes it at the latest when the run stops. `was_before`: the same
    answer was given earlier. `questions` are those that are still open. `report`: what recording it has found and done.
    """

    id: str
    file: str
    is_recorded: bool
    answer: Given | None
    questions: list[OpenQuestion]
    was_before: bool = False
    waits_for: str = ""
    report: tuple[Remark, ...] = ()


class AnswerOptions(Struct, frozen=True, kw_only=True):
    """The answer as it was given. `is_typed`: decision, result and arguments are texts from a command line. UsageError
    for a value that can't be one."""

    question: str  # empty: the one that is open
    decision: Any
    arguments: Mapping[str, Any] | None = None  # those that it changes
    standing: bool = False  # it approves later calls of the tool, too
    result: Any = None  # None: none was said
    by: str
    note: str = ""
    is_typed: bool = False
    redactor: Redactor = Redactor()  # of the workspace

    def __post_init__(self) -> None:
        for name in ("question", "by", "note"):
            arguments.text(name, getattr(self, name))
        for name, value in (("decision", self.decision), ("result", self.result)):
            if isinstance(value, str) or (self.is_typed and name == "decision"):
                arguments.text(name, value)
        for name, value in arguments.mapping("arguments", self.arguments).items():
            arguments.text("the name of an argument", name)
            if isinstance(value, str) or self.is_typed:
                arguments.text(f"the argument {name}", value)

    def redacted_by(self, redactor: Redactor) -> AnswerOptions:
        """Without secrets, which must not get into the file of the question. What is typed is redacted when it is read:
        a text in the place of a secret must not be taken for YAML."""
        said = replace(self, redactor=redactor, by=redactor.text(self.by), note=redactor.text(self.note))
        if self.is_typed:
            return said
        return replace(
            said,
            decision=redactor.value(self.decision),
            result=redactor.value(self.result),
            arguments=redactor.value(self.arguments),
        )

    @property
    def text(self) -> str:
        """The decision, if it is typed."""
        return self.redactor.text(self.decision) if self.is_typed else ""

    @property
    def value(self) -> Any:
        """The decision, read as YAML if it is typed."""
        return self.redactor.value(_value(self.decision)) if self.is_typed else self.decision

    @property
    def readings(self) -> list[Any]:
        """The possible meanings of the decision, as JSON."""
        as_text = self.text if self.is_typed else self.decision
        text = [as_text.strip()] if isinstance(as_text, str) else [as_text]
        return [*text, *([self.value] if self.is_typed else [])]

    @property
    def changes(self) -> dict[str, Any]:
        """The arguments, read as YAML if they are typed."""
        if not self.is_typed:
            return {**(self.arguments or {})}
        return {name: self.redactor.value(_value(text)) for name, text in (self.arguments or {}).items()}

    @property
    def texts(self) -> dict[str, str]:
        """The arguments, if they are typed."""
        typed = self.arguments if self.is_typed else None
        return {name: self.redactor.text(text) for name, text in (typed or {}).items()}


def answer(place: Place, said: AnswerOptions) -> Steps[AnswerResult]:
    """Record the answer. If a process runs the workspace, write it into the file and wait until that process has taken
    it."""
    patience = _REMOTE_PATIENCE if place.store.abilities.remote else _PATIENCE
    until = time.monotonic() + patience
    written, is_first = False, True
    while True:
        seen = look_beside(place.store)
        moment = seen.moment
        if is_first and seen.mistake:
            place.tell(f"note: {in_force(seen.mistake)}")
        is_first = False
        said = said.redacted_by(redactor_of(seen.definition))
        said = replace(said, question=said.question or _only_one(moment, place))
        if (settled := _settled(said, moment, place)) is not None:
            return replace(settled, was_before=not written)
        question = find_question(moment, said.question)
        if question is None:
            raise _unknown(moment, said.question, place)
        reply = _reply(said, question)
        if said.arguments is None and not written and question.may_change and reply.decision == APPROVE:
            _check_nothing_typed(question, moment, place)
        with suppress(LeaseHeld):
            if seen.mistake is None:  # else a process runs it
                done = _record(said, place)
                return replace(done, was_before=done.was_before and not written)
        if not written:
            _write(question, reply, moment.run_id, place)
            written = True
        if time.monotonic() > until:
            return _told(said.question, moment, place, is_recorded=False)
        yield from place.look_again(_LOOK_AGAIN)


def _check_nothing_typed(question: Question, moment: Moment, place: Place) -> None:
    """UsageError if a person has typed other arguments into the file, and no decision: this answer would drop them."""
    try:
        data = read_form(place.store, moment, question).data
        typed = typed_arguments(data) if read_reply(question, moment.run_id, data) is None else None
    except (FileNotFoundError, SatchelError):
        return
    if typed:
        raise UsageError(
            f"{question.id} has other arguments in its file",
            path=question.path,
            why=f"it says {one_line(msgspec.json.encode(typed).decode(), _NOTE)}, and this answer names none",
            remedy="write the decision there, or name the arguments with the answer (`--set NAME=VALUE`)",
        )


def revoke(place: Place, id: str, by: str) -> Steps[AnswerResult]:
    """Record that a standing approval is revoked. If a process runs the workspace, write it into the file of the
    question: that process reads it before the next call begins."""
    arguments.text("question", id)
    arguments.text("by", by)
    until = time.monotonic() + (_REMOTE_PATIENCE if place.store.abilities.remote else _PATIENCE)
    is_written = False
    while True:
        seen = look_beside(place.store)
        moment, redactor = seen.moment, redactor_of(seen.definition)
        id = id or _only_standing(moment)
        who = redactor.text(by)
        if id not in moment.standing:
            if id not in moment.answered or not moment.answered[id].revoked:
                raise _stands_not(id, moment)
            return replace(_told(id, moment, place, is_recorded=True), was_before=not is_written)
        with suppress(LeaseHeld):
            report = Report()
            check_free(place.store)
            with opened(place.store, "answer", report) as workspace:
                if id in workspace.moment.standing:
                    workspace.desk.revoke(workspace.journal, id, who)
                workspace.close()
            told = _told(id, workspace.moment, place, is_recorded=True)
            return replace(told, report=(*report.remarks[1:],))
        if not is_written:
            _write_revoked(place, id, who)
            is_written = True
        if time.monotonic() > until:
            return _told(id, moment, place, is_recorded=False)
        yield from place.look_again(_LOOK_AGAIN)


def _write_revoked(place: Place, id: str, by: str) -> None:
    """Like a person, into the file of the answered question."""
    store, path = place.store, path_of(id)
    for _ in range(_TIMES):
        try:
            there = store.read(path)
            data = fill_in(there.data, {"standing": False, "revoked_by": by})
            store.replace(path, data, if_version=there.version)
            return
        except FileChanged:
            continue
        except (FileNotFoundError, InvalidFile) as error:
            why, remedy = str(error), "pause the run, and revoke it then"
            raise UsageError("the file of the question can't be written", path=path, why=why, remedy=remedy) from None
    raise UsageError("keeps changing", path=path, remedy="revoke it again when it is saved")


def _only_standing(moment: Moment) -> str:
    if len(moment.standing) != 1:
        raise _stands_not("", moment)
    return next(iter(moment.standing))


def _stands_not(id: str, moment: Moment) -> UsageError:
    found = "; ".join(f"{each} ({standing.tool})" for each, standing in moment.standing.items())
    what = f"{id} is no standing approval" if id else "name the question" if found else "there is no standing approval"
    return UsageError(what, why=f"in force: {found}" if found else "none is in force")


def _told(id: str, moment: Moment, place: Place, *, is_recorded: bool) -> AnswerResult:
    left, waits_for = questions_of(moment, place), ""
    if not is_recorded:
        holder = lease.holder(place.store)
        waits_for = holder.process if holder else "the process that runs it"
    known = moment.answered.get(id)
    answer = None
    if known is not None:
        changes = plain_answer(known.changes)
        counts = bool(known.standing and not known.revoked)
        answer = Given(plain_answer(known.decision), known.by, known.note, changes, counts, at=known.at, how=known.how)
    return AnswerResult(id, path_of(id), is_recorded, answer, left, waits_for=waits_for)


def _record(said: AnswerOptions, place: Place) -> AnswerResult:
    report = Report()
    check_free(place.store)
    with opened(place.store, "answer", report) as workspace:
        moment = workspace.moment
        question = find_question(moment, said.question)
        if question is not None:
            workspace.desk.record(workspace.journal, question, _reply(said, question), "command")
        workspace.close()
    if question is None:  # a person has answered at the same moment, for example in the file
        settled = _settled(said, moment, place)
        if settled is None:
            raise _unknown(moment, said.question, place)
        return replace(settled, was_before=True, report=(*report.remarks[1:],))
    return replace(_told(said.question, moment, place, is_recorded=True), report=(*report.remarks[1:],))


def _write(question: Question, reply: Reply, run_id: str, place: Place) -> None:
    """Write it like a person: into the current file or, if that is not possible, into a new one. Then the current one
    is kept under another name."""
    store, path = place.store, question.path
    values: dict[str, Any] = {"decision": reply.decision, "by": reply.by, "note": reply.note, "how": "command"}
    if len(reply.result):
        values["result"] = msgspec.json.decode(reply.result)
    if question.may_change:
        values["arguments"] = {**reply.arguments} or None  # a person may have begun to type some
    if question.tool:
        values["standing"] = reply.standing or None
    form = blank(question, run_id)
    for _ in range(_TIMES):
        version, there = store.version(path), form
        try:
            there = store.read(path).data if version is not None else form
            before = read_reply(question, run_id, there)
            data = fill_in(there, values)
        except FileNotFoundError:
            continue
        except (InvalidFile, UsageError) as error:
            before, data = None, fill_in(form, values)
            if there != form:
                reject(store, RejectedFile(path, error, there), "and was written again with the answer of a command")
        if before is not None:  # another answer came first and is about to be taken
            is_same = before.decision == reply.decision and before.standing == reply.standing
            if is_same and same({**before.arguments}, {**reply.arguments}):
                return
            says = answer_text(msgspec.Raw(msgspec.json.encode(before.decision)))
            raise UsageError(
                f"{question.id} is answered in its file",
                path=path,
                why=f"it says {with_changes(says, before.arguments)}",
                remedy="to change that before it is recorded, edit the file",
            )
        try:
            store.replace(path, data, if_version=version)
            return
        except FileChanged:
            continue
    raise UsageError("keeps changing", path=path, remedy="answer again when it is saved")


def _settled(said: AnswerOptions, moment: Moment, place: Place) -> AnswerResult | None:
    """If the question is already answered: return that answer if it is the same, else raise UsageError."""
    answer = moment.answered.get(said.question)
    if answer is None:
        return None
    recorded = msgspec.json.decode(answer.decision)
    is_same = any(same(recorded, each) for each in said.readings) and bool(answer.standing) == said.standing
    if not is_same or not _changes_the_same(said, answer):
        raise UsageError(
            f"{said.question} is already answered",
            why=_answered_text(answer),
            remedy="a recorded answer can't be changed; the agent may ask again",
        )
    return _told(said.question, moment, place, is_recorded=True)


def _reply(said: AnswerOptions, question: Question) -> Reply:
    """The given answer, if it is valid."""
    reads = said.is_typed and not question.choices and question.schema is not None
    value = said.value if reads or not said.is_typed else said.text
    try:
        decision = fit_decision(question, value, said.text, file=said.question)
    except InvalidFile as error:
        raise _refusal(f"that is not a valid answer to {said.question}: {question.text}", error) from None
    if decision is None:
        raise UsageError(f"an answer to {said.question} can't be empty", why="null means that there is no answer yet")
    if said.result is not None and not question.has_happened(decision):
        raise UsageError("a result needs an effect that has happened", remedy=f"give one only with the answer {DONE!r}")
    result = NOTHING if said.result is None else _result(said.result, said.is_typed, said.redactor)
    changes = _changes(said, question, decision) if said.arguments is not None else {}
    if said.standing:
        try:
            check_standing(question, decision, changes, file=said.question)
        except InvalidFile as error:
            raise _refusal(
                f"the answer to {said.question} can't stand for later calls: {question.text}", error
            ) from None
    return Reply(decision, said.by, said.note.strip(), result, arguments=changes, standing=said.standing)


def changes_of(typed: Iterable[str]) -> dict[str, str]:
    """The arguments that a person changes, each typed as NAME=VALUE: the texts of the values, by name."""
    named: dict[str, str] = {}
    for each in typed:
        name, equals, value = each.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"a changed argument is NAME=VALUE, not {each!r}", remedy="for example amount=50")
        if name.strip() in named:
            raise UsageError(f"the argument {name.strip()!r} is set twice")
        named[name.strip()] = value
    return named


def _changes(said: AnswerOptions, question: Question, decision: Any) -> dict[str, Any]:
    """The arguments that the answer changes, if they are valid."""
    try:
        return fit_arguments(question, said.changes, said.texts, decision, file=said.question)
    except InvalidFile as error:
        place = error.problems[0].place
        raise _refusal(f"{place} can't be changed so in {said.question}: {question.text}", error) from None


def _refusal(what: str, error: InvalidFile) -> UsageError:
    problem = error.problems[0]
    why = f"found {problem.found}, expected {problem.expected}"
    return UsageError(what, why=why, remedy=problem.remedy or None)


def _changes_the_same(said: AnswerOptions, answer: RecordedAnswer) -> bool:
    """Whether these are the arguments of the recorded answer, told in full or in part."""
    changed, asked = plain_answer(answer.changes) or {}, plain_answer(answer.arguments) or {}
    given, texts = said.changes, said.texts
    now = {**asked, **changed}
    return changed.keys() <= given.keys() and all(
        name in now and (same(now[name], value) or now[name] == texts.get(name)) for name, value in given.items()
    )


def _value(typed: str) -> Any:
    """JSON or YAML, or else the text as it is. YAML has no line separator of Unicode in quotes."""
    with suppress(InvalidFile):
        return jsontext.load(typed, "the answer")
    with suppress(InvalidFile):
        return yamltext.load(typed, "the answer").value
    return typed


def _result(value: Any, is_typed: bool, redactor: Redactor) -> msgspec.Raw:
    """JSON on one line, as in the journal. Typed text that is not JSON is a text."""
    if is_typed:
        with suppress(InvalidFile):
            value = jsontext.load(value, "result")
        value = redactor.value(value)
    try:
        return msgspec.Raw(msgspec.json.encode(value))
    except UnicodeEncodeError:
        raise UsageError("the result can't be kept: it has half of a surrogate pair") from None
    except (msgspec.MsgspecError, OverflowError, TypeError) as error:
        raise UsageError("the result can't be kept", why=str(error)) from None


def _only_one(moment: Moment, place: Place) -> str:
    found = open_questions(moment)
    if len(found) != 1:
        raise _unclear("name the question" if found else "there is no open question", found, place)
    return found[0].id


def _unknown(moment: Moment, id: str, place: Place) -> UsageError:
    """The error that no such question is open."""
    return _unclear(f"there is no open question {id!r}", open_questions(moment), place)


def _unclear(what: str, found: list[Question], place: Place) -> UsageError:
    return UsageError(
        what,
        why=f"open: {_listed(found)}" if found else "none is open",
        remedy=None if found else f"`{place.command('status')}` shows the state of the run",
    )


def say_what(place: Place, id: str) -> UsageError:
    """The error that no answer was given: to the question `id`, or to any if that is empty."""
    moment = look_beside(place.store).moment
    question = find_question(moment, id)
    if id and question is None:
        return _unknown(moment, id, place)
    found = [question] if question else open_questions(moment)
    return UsageError("give an answer", why=f"open: {_listed(found)}" if found else "no question is open")


def _listed(found: list[Question]) -> str:
    return "; ".join(f"{question.id} ({question.text[:80]} {question.answers})" for question in found[:5])


def _answered_text(answer: RecordedAnswer) -> str:
    """`approve, by ada@laptop, 2026-11-21 23:10:04 UTC (3 min 5 s ago)`."""
    by = "the default, because the question expired" if answer.how == "expired" else answer.by
    note = f" ({one_line(answer.note, _NOTE)})" if answer.note else ""
    return f"{one_line(outcome_text(answer), _NOTE)}, by {by}{note}, {since(answer.at)}"
