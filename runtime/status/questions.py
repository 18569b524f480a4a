"""The open questions of a run: what is asked, how to answer, and what a person has typed into the file."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw, Struct

from ...workspace.base import InvalidFile, SatchelError
from ...workspace.inbound import Question, open_questions
from ...workspace.state import Moment
from .place import Place

if TYPE_CHECKING:
    from ...workspace.secrets import Redactor


class Given(Struct, frozen=True):
    """An answer that a person, or the time, has given. Its values are plain, as JSON has them.

    `arguments`: those that the answer changes, by name; None if it changes none.
    `standing`: it also approves later calls of the tool.

    `result`: of an effect in doubt, what it returned; None if nothing was said. `by` and `note` are empty if nothing
    was said. `at`: when it was put on record (UTC, ISO 8601); empty if it is not yet. `how` tells where it came from:
    "file", "command" or "expired"; empty with an empty `at`.
    """

    decision: Any
    by: str = ""
    note: str = ""
    arguments: dict[str, Any] | None = None
    standing: bool = False
    result: Any = None
    at: str = ""
    how: str = ""


class OpenQuestion(Struct, frozen=True):
    """A question to a person, and the current content of its file.

    `reply` is what a person has typed into the file and no start has taken yet, None if nothing; `mistake` says why it
    is not a valid answer. `command` is the beginning of the command line that answers it.
    """

    question: Question
    command: str = ""
    reply: Given | None = None
    mistake: SatchelError | None = None

    @property
    def id(self) -> str:
        """`a1` for a question of the agent, `d1` for an effect in doubt."""
        return self.question.id

    @property
    def text(self) -> str:
        """What is asked."""
        return self.question.text

    @property
    def choices(self) -> tuple[str, ...]:
        """The possible answers. Empty: any text, or what `schema` describes."""
        return self.question.choices

    @property
    def schema(self) -> dict[str, Any] | bool | None:
        """The JSON Schema of the answer, or of its `arguments` if there are; None if the agent has given none."""
        return self.question.schema

    @property
    def context(self) -> Any:
        """What the agent has given with the question, as JSON has it; None without."""
        return self.question.facts.get("context")

    @property
    def call(self) -> str:
        """The call that it is about, for people: of an effect in doubt its name, and a preview of its arguments; the
        `tool` of a question of the agent, which is empty if it has given none."""
        asked = self.question.asked
        return f"{asked.step}{asked.call}" if self.question.is_doubt else self.question.tool

    @property
    def named(self) -> str:
        """How `Handle.history.call` names the call that asks, or the effect in doubt: `^3/2`. Empty if that call has
        not begun, and for a question of Satchel itself."""
        from ...workspace.history import call_place  # most runs ask nothing

        asked, question = self.question.asked, self.question
        if question.is_unclaimed or question.is_lost or getattr(asked, "back", None) is not None:
            return ""
        return call_place(asked.agent, asked.scope, asked.no)

    @property
    def arguments(self) -> dict[str, Any] | None:
        """The arguments of the call that it is about, by parameter, as JSON has them: those that the agent has asked
        with, or of the effect in doubt. None for a question without, for a call that has not begun (`unclaimed`), and
        if they were too long for the record."""
        return self.question.arguments


def questions_of(moment: Moment, place: Place | None) -> list[OpenQuestion]:
    """All of them, in the order they were asked. Without a place their files are not read."""
    found = open_questions(moment)
    return [_seen(each, moment, place) if place else OpenQuestion(each) for each in found]


def _seen(question: Question, moment: Moment, place: Place) -> OpenQuestion:
    from ...workspace.inbound import read_form, read_reply  # most runs ask nothing
    from ...workspace.secrets import parsed

    command = place.command("answer", question.id)
    reading = partial(read_reply, question, moment.run_id)
    try:
        data = read_form(place.store, moment, question).data
        try:
            said = reading(data)
        except InvalidFile:
            said = parsed(reading, data, _redactor(place))
    except FileNotFoundError:
        return OpenQuestion(question, command)
    except SatchelError as error:
        return OpenQuestion(question, command, mistake=error)
    if said is None:
        return OpenQuestion(question, command)
    shown = _redactor(place).value(
        [said.decision, said.by, said.note, {**said.arguments} or None, said.standing, plain_answer(said.result)]
    )
    return OpenQuestion(question, command, Given(*shown))


def _redactor(place: Place) -> Redactor:
    """Costs a request in a bucket, and only a file in which a person has typed needs it."""
    from ...workspace.inspect import define
    from ...workspace.secrets import Redactor, redactor_of

    try:
        return redactor_of(define(place.store))
    except SatchelError:  # `status` says what is wrong there
        return Redactor()


def plain_answer(data: Raw) -> Any:
    """The plain value of JSON in a record; None if there is none."""
    return msgspec.json.decode(data) if len(data) else None
