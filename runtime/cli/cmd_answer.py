"""`satchel answer`: answer a question of a run, whether somebody is running it or not."""

from __future__ import annotations

import os
import re
import sys
import time
from contextlib import suppress
from typing import Any, NamedTuple

import click
import msgspec
from click.shell_completion import CompletionItem

from ...workspace import lease, urls, yamltext
from ...workspace.approvals import Question, Reply, answer_text, find, fit, open_questions, path_of
from ...workspace.approvals.form import blank, filled_in
from ...workspace.approvals.reading import read
from ...workspace.errors import InvalidFile, LeaseHeld, SatchelError, UsageError
from ...workspace.looking import look_beside
from ...workspace.moment import Moment
from ...workspace.opening import opened
from ...workspace.questions import DONE
from ...workspace.record import NOTHING
from ...workspace.report import Report
from ...workspace.store import FileChanged
from . import asked, takeover
from .output import columns, print_json, remarks
from .place import Place, complete_folders, is_workspace, json_option, look_again
from .place import find as find_place
from .standing import in_force
from .storage import storage_option
from .words import counted, myself, visible

_ID = re.compile("[ad][0-9]+")
_PATIENCE = 5.0
"""Seconds to wait for the process that runs it to take the answer."""
_REMOTE_PATIENCE = 12.0
"""The same where that process looks only every few seconds."""
_LOOK_AGAIN = 0.1
_TIMES = 5

_EXAMPLES = """\b
Examples:
  satchel answer my-run approve               the one open question
  satchel answer my-run a2 deny --by Ada --note "not before May"
  satchel answer my-run a3 '{amount: 250}'    where a JSON Schema asks for it
  satchel answer my-run d1 done --result 4711  it has happened
  satchel answer my-run d1 redo               it has not, and may be done
"""


def _complete(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """A folder, then the questions of the workspace that was named or is the current folder, then their choices."""
    named = list(ctx.params.get("words") or ())
    if any(urls.is_remote(word) for word in (*named, incomplete)):
        return []  # what a key press costs must not depend on a network
    folder = named.pop(0) if named and os.path.isdir(named[0]) else None
    try:
        moment = look_beside(find_place(folder).store).moment
    except (SatchelError, OSError):
        return complete_folders(ctx, parameter, incomplete)
    questions = open_questions(moment)
    if named:
        chosen = [question for question in questions if question.id == named[0]]
    else:
        chosen = questions if len(questions) == 1 else []
    items = [] if named else [CompletionItem(each.id, help=each.text) for each in questions]
    items += [CompletionItem(choice) for question in chosen for choice in question.choices]
    found = [item for item in items if str(item.value).startswith(incomplete)]
    return found or ([] if folder or named else complete_folders(ctx, parameter, incomplete))


class _Said(NamedTuple):
    """What was typed."""

    place: Place
    id: str
    decision: str
    result: str | None
    by: str
    note: str


class _Done(NamedTuple):
    """What came of it. `recorded`: it is on record; else it stands in the file for the process that runs it."""

    moment: Moment
    recorded: bool
    before: bool = False  # somebody had answered just that


@click.command("answer", short_help="Answer a question of a run.", epilog=_EXAMPLES)
@click.argument("words", nargs=-1, metavar="[WS] [ID] DECISION", shell_complete=_complete)
@click.option("--result", metavar="RESULT", help="Of an effect that has happened: what it returned, as JSON or text.")
@click.option("--by", metavar="NAME", help="Who says so. [default: user@host]")
@click.option("--note", metavar="TEXT", default="", help="What there is to say to it; it is recorded, too.")
@json_option
@storage_option
def command(
    words: tuple[str, ...], result: str | None, by: str | None, note: str, as_json: bool
) -> None:  # fmt: skip
    """Answer what an agent asks (a1, a2, ...), or settle whether an effect has happened (d1, d2, ...).

    The questions are shown by `satchel status`. ID may be left out if one is open. Nothing of the agent is run here; if
    a process is running the workspace, it gets the answer through the question's file.
    """
    place, id, decision = _split(words)
    seen = look_beside(place.store)
    moment = seen.moment
    if seen.mistake:
        click.echo(visible(f"note: {in_force(seen.mistake)}"), err=True)
    said = _Said(place, id or _only_one(moment, place), decision, result, by or myself(), note)
    done = _answer(said)
    _tell(said, done, as_json)


def _answer(said: _Said) -> _Done:
    """Record it; or, while somebody runs the workspace, write it into the file and wait until that process has it."""
    patience = _REMOTE_PATIENCE if said.place.store.abilities.remote else _PATIENCE
    until = time.monotonic() + patience
    written = False
    while True:
        seen = look_beside(said.place.store)
        moment = seen.moment
        if (settled := _settled(said, moment)) is not None:
            return settled._replace(before=settled.before and not written)
        question = find(moment, said.id)
        if question is None:
            raise _unknown(moment, said.id, said.place)
        reply = _reply(said, question)
        with suppress(LeaseHeld):
            if seen.mistake is None:  # else a process runs it
                return _record(said)
        if not written:
            _write(said, question, reply)
            written = True
        if time.monotonic() > until:
            return _Done(moment, recorded=False)
        look_again(said.place.store, _LOOK_AGAIN)


def _record(said: _Said) -> _Done:
    report = Report()
    takeover.check_free(said.place.store)
    with opened(said.place.store, "answer", report) as workspace:
        moment = workspace.moment
        question = find(moment, said.id)
        if question is not None:
            workspace.desk.record(workspace.journal, question, _reply(said, question), "command")
        workspace.close()
    for line in remarks(report.remarks[1:], columns(sys.stderr)):
        click.echo(line, err=True)
    if question is None:  # answered by somebody else in this moment, in the file say
        settled = _settled(said, moment)
        if settled is None:
            raise _unknown(moment, said.id, said.place)
        return settled
    return _Done(moment, recorded=True)


def _write(said: _Said, question: Question, reply: Reply) -> None:
    """As a person would, into the file as it is now or, if that can't be, into a new one."""
    store, path = said.place.store, question.path
    values: dict[str, Any] = {"decision": reply.decision, "by": reply.by, "note": reply.note}
    if len(reply.result):
        values["result"] = msgspec.json.decode(reply.result)
    run_id = look_beside(store).moment.run_id
    form = blank(question, run_id)
    for _ in range(_TIMES):
        version = store.version(path)
        try:
            there = store.read(path).data if version is not None else form
            before = read(question, run_id, there)
            data = filled_in(there, values)
        except (FileNotFoundError, InvalidFile, UsageError):
            before, data = None, filled_in(form, values)
        if before is not None:  # somebody was faster, and it is about to be taken
            if before.decision == reply.decision:
                return
            raise UsageError(
                f"{question.id} is answered in its file", path=path,
                why=f"it says {answer_text(msgspec.Raw(msgspec.json.encode(before.decision)))}",
                remedy="to change that before it is on record, edit the file",
            )  # fmt: skip
        try:
            store.replace(path, data, if_version=version)
            return
        except FileChanged:
            continue
    raise UsageError("is being written all the time", path=path, remedy="answer again when it is saved")


def _settled(said: _Said, moment: Moment) -> _Done | None:
    """If it is answered: fine if it says the same, and else too late."""
    answer = moment.answered.get(said.id)
    if answer is None:
        return None
    decision = msgspec.json.decode(answer.decision)
    if not (decision == said.decision.strip() or decision == _value(said.decision)):
        raise UsageError(
            f"{said.id} is answered already", why=asked.answered_text(answer),
            remedy="an answer on record can't be changed; the agent may ask again",
        )  # fmt: skip
    return _Done(moment, recorded=True, before=True)


def _reply(said: _Said, question: Question) -> Reply:
    """What was typed, if it is an answer."""
    value: Any = said.decision
    if not question.choices and question.schema is not None:
        value = _value(said.decision)
    try:
        decision = fit(question, value, said.decision, file=said.id)
    except InvalidFile as error:
        problem = error.problems[0]
        raise UsageError(
            f"{said.id} can't be answered so: {question.text}",
            why=f"found {problem.found}, expected {problem.expected}", remedy=problem.remedy or None,
        ) from None  # fmt: skip
    if decision is None:
        raise UsageError(f"{said.id} can't be answered with nothing", why="null means that there is no answer yet")
    if said.result is not None and not question.has_happened(decision):
        raise UsageError("--result is of an effect that has happened", remedy=f"use it with `d1 {DONE}` only")
    result = NOTHING if said.result is None else _result(said.result)
    return Reply(decision, said.by, said.note.strip(), result)


def _value(typed: str) -> Any:
    """YAML, or else the text as it is."""
    try:
        return yamltext.load(typed, "the answer").value
    except InvalidFile:
        return typed


def _result(typed: str) -> msgspec.Raw:
    """JSON on one line, as the journal holds it; of anything else the text."""
    from ...workspace import jsontext

    try:
        value = jsontext.load(typed, "--result")
    except InvalidFile:
        value = typed
    try:
        return msgspec.Raw(msgspec.json.encode(value))
    except (msgspec.MsgspecError, UnicodeEncodeError, OverflowError) as error:
        raise UsageError("the result can't be kept", path="--result", why=str(error)) from None


def _tell(said: _Said, done: _Done, as_json: bool) -> None:
    answer = done.moment.answered.get(said.id)
    left = open_questions(done.moment)
    if as_json:
        print_json(
            {
                "id": said.id, "status": "answered" if done.recorded else "written", "file": path_of(said.id),
                "answer": msgspec.json.decode(msgspec.json.encode(answer)),
                "was_answered_before": done.before, "open_questions": asked.as_json(done.moment, said.place),
            }
        )  # fmt: skip
        return
    if not done.recorded:
        click.echo(f"{said.id}: the answer stands in {path_of(said.id)}")
        holder = lease.holder(said.place.store)
        who = holder.process if holder else "the process that runs it"
        click.echo(visible(f"{who} has not taken it yet; it is taken at the latest when the run stops"), err=True)
        return
    assert answer is not None
    again = " already" if done.before else ""
    click.echo(visible(f"{said.id} is answered{again}: {' '.join(answer_text(answer.decision).split())}"))
    if left:
        click.echo(f"{counted(len(left), 'question')} still open: {said.place.command('status')}", err=True)
    elif not done.before:
        click.echo(f"next: {said.place.command('resume')}", err=True)


def _split(words: tuple[str, ...]) -> tuple[Place, str, str]:
    """The workspace, the question or an empty text, and the answer."""
    match words:
        case (folder, id, decision):
            return find_place(folder), id, decision
        case (folder, decision) if is_workspace(folder):
            place = find_place(folder)
            if _ID.fullmatch(decision):
                raise _say_what(look_beside(place.store).moment, decision, place)
            return place, "", decision
        case (id, decision):
            if not _ID.fullmatch(id):
                find_place(id)  # says that there is no such workspace
            return find_place(None), id, decision
        case (word,) if is_workspace(word):
            place = find_place(word)
            raise _say_what(look_beside(place.store).moment, "", place)
        case (word,):
            place = find_place(None)
            if _ID.fullmatch(word):
                raise _say_what(look_beside(place.store).moment, word, place)
            return place, "", word
        case _:
            raise UsageError(
                "name the workspace, the question and the answer", remedy="as in `satchel answer WS a1 approve`; "
                "`satchel status WS` shows the questions",
            )  # fmt: skip


def _only_one(moment: Moment, place: Place) -> str:
    questions = open_questions(moment)
    if len(questions) != 1:
        raise UsageError(
            "say which question" if questions else "there is no open question",
            why=f"open: {_listed(questions)}" if questions else "none is open",
            remedy=None if questions else f"`{place.command('status')}` shows where the run stands",
        )  # fmt: skip
    return questions[0].id


def _say_what(moment: Moment, id: str, place: Place) -> UsageError:
    question = find(moment, id)
    if id and question is None:
        return _unknown(moment, id, place)
    questions = [question] if question else open_questions(moment)
    return UsageError("say the answer", why=f"open: {_listed(questions)}" if questions else "no question is open")


def _unknown(moment: Moment, id: str, place: Place) -> UsageError:
    questions = open_questions(moment)
    return UsageError(
        f"there is no open question {id!r}", why=f"open: {_listed(questions)}" if questions else "none is open",
        remedy=None if questions else f"`{place.command('status')}` shows where the run stands",
    )  # fmt: skip


def _listed(questions: list[Question]) -> str:
    return "; ".join(f"{question.id} ({question.text[:80]} {question.answers})" for question in questions[:5])
