"""`run.ask`: a question to a person. For its scope it is a step whose result is the answer.

A typo in a comparison with an answer can't turn a denial into an approval, and no agent uses arguments that a person
has replaced.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NoReturn, get_origin

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from ...schemas import against
from ...workspace.base import InvalidFile, UsageError, arguments, time_text
from ...workspace.formats import decoder
from ...workspace.inbound import (
    APPROVE,
    DENY,
    Question,
    Reply,
    blank,
    find_question,
    fit_decision,
    read_reply,
    with_changes,
)
from ...workspace.journal import NOTHING, ApprovalAsked, blobs, now
from ..agent import Codec, OwnStep, canonical, encode
from ..engine import OpenCall, OpenScope, ScopeRun, check_outside_steps
from ..live import Suspended, put_question, supervisor_link


class Answer(Struct, frozen=True, dict=True, rename={"_decision": "decision", "_arguments": "arguments"}):
    """A person's answer.

    `answer == "approve"` compares the decision. If the question had choices, a comparison with another text raises
    UsageError, because a typo must not turn a denial into an approval. An `Answer` has no boolean value.

    If the question had `arguments`, `changed` are those that the person has changed, with their new values. Read
    `arguments` before the decision then: UsageError otherwise, so that the old ones are not used.
    """

    _decision: Any
    by: str  # who answered, as far as known; "the default" if the question had expired
    note: str
    at: datetime  # when it was recorded
    how: Literal["file", "command", "expired", "standing"]
    choices: tuple[str, ...] = ()
    changed: dict[str, Any] = {}
    _arguments: dict[str, Any] | None = None

    @property
    def decision(self) -> Any:
        """The choice, the text, or the value that fits the schema."""
        if self.changed and "has_read" not in self.__dict__:
            raise UsageError(
                "the decision was read before the arguments",
                why=f"{self.by} has said {with_changes(str(self._decision), self.changed)}",
                remedy="read `answer.arguments` first, and make the call with them",
            )
        return self._decision

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments to make the call with: those that were asked, with the changes. JSON's own types."""
        if self._arguments is None:
            raise UsageError("the question was asked without `arguments`")
        self.__dict__["has_read"] = True
        return dict(self._arguments)

    @property
    def refusal(self) -> str:
        """What a model is told of a call that was denied. Empty if it was approved."""
        return f"A person has denied this call. {self.note}".strip() if self._decision == DENY else ""

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Answer):
            mine, others = ((each._decision, each.by, each.note, each.at, each.changed) for each in (self, other))
            return mine == others
        if self.choices and other not in self.choices:
            raise UsageError(
                f"an answer was compared with {other!r}",
                why=f"it can only be one of {', '.join(self.choices)}",
                remedy="compare it with one of them",
            )
        return bool(self.decision == other)

    def __ne__(self, other: object) -> bool:  # a Struct's own would compare its fields
        return not self == other

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> NoReturn:
        example = self.choices[0] if self.choices else "..."
        raise TypeError(f"an `Answer` has no boolean value: write `answer == {example!r}`")


_QUIET = 0.2
"""Seconds without running work after which a process that other runs wait for does not stay for an answer."""

_TURNS = 20
_LONGEST = 64 << 10
"""Bytes of a context, because a person has to read it."""

_KEY = 1024
"""Characters of a key in YAML."""


class PendingQuestion(Struct, frozen=True):
    """A question as the agent gave it."""

    question: str
    choices: Sequence[str] | None
    arguments: Mapping[str, Any] | None
    tool: str
    schema: Any  # a JSON Schema, or a type
    context: Any
    expires: float | timedelta | datetime | None
    default: Any
    wait_for: float


async def ask(scope: ScopeRun, asking: PendingQuestion) -> Answer:
    """Return when an answer is on record. UsageError for a question that no person could answer."""
    check_outside_steps("run.ask() was called")
    redactor = scope.context.redactor
    given = _plain(asking.arguments)
    schema = _schema(asking, given)
    asking = replace(
        asking,
        question=redactor.value(asking.question),
        choices=redactor.value(asking.choices),
        arguments=redactor.value(given),
        schema=schema,
        context=redactor.value(asking.context),
        default=redactor.value(asking.default),
    )
    choices, expires = _choices(asking), _expires(asking)
    context = Raw(encode(asking.context, "context")) if asking.context is not None else NOTHING
    default = Raw(encode(asking.default, "default")) if asking.default is not None else NOTHING
    arguments = Raw(encode(asking.arguments, "arguments")) if given is not None else NOTHING
    wait_for = _seconds(asking.wait_for, "wait_for")
    step = _Ask(choices, schema, arguments, asking.tool, context, expires, default, wait_for)
    _check(asking, step)
    identity = (asking.question, list(choices), schema, asking.context, asking.arguments, asking.tool)
    said = await scope.call(step, identity, {})
    return _answer(said, choices, given, schema)


class _Ask(OwnStep[..., Any]):
    def __init__(
        self,
        choices: tuple[str, ...],
        schema: dict[str, Any] | bool | None,
        arguments: Raw,
        tool: str,
        context: Raw,
        expires: str,
        default: Raw,
        wait_for: float,
    ):
        super().__init__(_question, name="ask", retry=None, on_partial="restart")
        self.choices, self.answer_schema, self.context = choices, schema, context
        self.arguments, self.tool = arguments, tool
        self.expires, self.default, self._wait_for = expires, default, wait_for

    def as_record(self, question: str, id: str, identity: dict[str, Any], withdraws: tuple[str, ...]) -> ApprovalAsked:
        return ApprovalAsked(
            **identity,
            id=id,
            question=question,
            choices=self.choices,
            answer_schema=self.answer_schema,
            arguments=self.arguments,
            tool=self.tool,
            context=self.context,
            expires=self.expires,
            default=self.default,
            withdraws=withdraws,
        )

    async def perform(self, call: Any) -> Any:
        """Ask, unless the question is already open, and wait for the answer: first in this process, then without a
        process. If other runs wait for this process to end, it stays only while other work runs."""
        assert isinstance(call, OpenCall)
        scope, context = call.scope, call.scope.context
        id = _known(call) or await self._put(call)
        scope.asked.add(id)
        if context.observer:
            context.observer.waits(call)
        for _ in range(_TURNS):  # concurrent tasks may be about to ask too: people see all questions after one stop
            await asyncio.sleep(0)
        with context.answers.awaited():
            return await self._answered(call, id)

    async def _answered(self, call: OpenCall, id: str) -> Any:
        """Wait for the answer, but not longer than a process stays for it."""
        scope, context, looked = call.scope, call.scope.context, asyncio.Event()
        wait_for = 0.0 if context.observer else self._wait_for  # in a test no person answers meanwhile
        until, quiet_since = time.monotonic() + wait_for, math.inf
        context.answers.take()
        with context.folder.telling(looked.set):
            while True:
                self._use_standing(call, id)
                done = scope.agent.recorded.scopes[scope.key].done.get(call.key)
                if done is not None:
                    return msgspec.json.decode(blobs.fetch(context.store, done))
                now = time.monotonic()
                quiet_since = math.inf if context.stopping.drain.under_way else min(quiet_since, now)
                stays = min(until, quiet_since + _QUIET) if supervisor_link.shares_slots() else until
                if stays <= now or id not in context.moment.approvals:
                    context.stopping.wait_for_person()
                    raise Suspended
                looked.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(stays - now):
                        await looked.wait()
                scope.check_going_on()
                if scope.abandoned:
                    raise asyncio.CancelledError  # its scope has failed and waits for this task
                if time.monotonic() >= stays:
                    context.answers.take()  # something may have come, or the question expired, since the last round

    async def _put(self, call: OpenCall) -> str:
        """Record the question with all earlier records, and write its file. Withdraw questions of the scope that an
        earlier attempt asked and this one does not. Concurrent tasks may be about to ask those."""
        scope, context = call.scope, call.scope.context
        for _ in range(_TURNS):
            if not _stale(scope):
                break
            await asyncio.sleep(0)
        scope.agent.check_going_on()
        id = context.workspace.desk.free_id("a")
        context.journal.add(self.as_record(call.arguments["question"], id, call.identity(), _stale(scope)))
        if not self._use_standing(call, id):
            context.journal.flush()
            put_question(context.workspace, id)
        return id

    def _use_standing(self, call: OpenCall, id: str) -> bool:
        """Answer the question if a standing approval counts for this tool, and no person has revoked it until now."""
        context, agent = call.scope.context, call.scope.agent.path
        moment, desk = context.moment, context.workspace.desk
        if id not in moment.approvals or moment.stands_for(agent, self.tool) is None:
            return False
        context.tally.noticed += [each.text for each in desk.look_for_revocations(context.journal, is_fresh=True)]
        under, question = moment.stands_for(agent, self.tool), find_question(moment, id)
        if under is None or question is None:
            return False
        reply = Reply(APPROVE, moment.standing[under].by, "", NOTHING)
        desk.record(context.journal, question, reply, "standing", under)
        return True


def _question(
    question: str, choices: list[str], schema: Any, context: Any, arguments: Any = None, tool: str = ""
) -> Any:
    """What identifies a question."""


def _known(call: OpenCall) -> str | None:
    """The open question from an earlier attempt, if there is one."""
    scope = call.scope
    for id, asked in scope.context.moment.approvals.items():
        if (asked.agent, asked.scope, asked.key) == (scope.agent.path, scope.key, call.key):
            return id
    return None


def _stale(scope: OpenScope) -> tuple[str, ...]:
    return tuple(
        id
        for id, asked in scope.context.moment.approvals.items()
        if (asked.agent, asked.scope) == (scope.agent.path, scope.key) and id not in scope.asked
    )


class _Recorded(msgspec.Struct):
    decision: Any
    by: str
    note: str
    at: datetime
    how: Any
    arguments: dict[str, Any] = {}


_recorded = decoder(_Recorded)


def _answer(said: Any, choices: tuple[str, ...], given: dict[str, Any] | None, schema: Any) -> Answer:
    """`given`: the arguments of the call that was asked about, without the changes."""
    try:
        found = _recorded.decode(msgspec.json.encode(said))
    except msgspec.ValidationError as error:
        raise UsageError("what is recorded is not an answer", why=str(error), remedy="ask the question again") from None
    if choices and found.decision not in choices:
        raise UsageError(
            f"the recorded answer {found.decision!r} is none of the choices", remedy="ask the question again"
        )
    arguments = None if given is None else {**given, **found.arguments}
    if found.arguments and (given is None or (schema is not None and against(schema, arguments))):
        raise UsageError("the recorded arguments do not fit the question", remedy="ask the question again")
    return Answer(found.decision, found.by, found.note, found.at, found.how, choices, found.arguments, arguments)


# What can be asked


def _check(asking: PendingQuestion, step: _Ask) -> None:
    question = asking.question
    if not isinstance(question, str) or not question.strip():
        raise UsageError("run.ask() takes a question", why=f"got {question!r}")
    arguments.text("the question in run.ask()", question)
    if arguments.text("the tool in run.ask()", asking.tool) != asking.tool.strip() or len(asking.tool.splitlines()) > 1:
        raise UsageError("`tool` of run.ask() is the name of a call", why=f"got {asking.tool!r}")
    if len(step.context) > _LONGEST:
        raise UsageError(
            f"the context of a question has {len(step.context):,} bytes",
            why="a person must read it",
            remedy="put it into outputs/, and put the name of the file into the context",
        )
    if step.answer_schema is not None and (problems := _of_schema(step.answer_schema)):
        raise UsageError("the schema of an answer can't be used", why=problems)
    if len(step.arguments) > _LONGEST:
        raise UsageError(f"the arguments of a question have {len(step.arguments):,} bytes", why="a person must read it")
    if (asking.expires is None) != (asking.default is None):
        raise UsageError(
            "run.ask() takes `expires` and `default` together",
            why="a question that expires needs a default, and a question that does not expire can't use one",
        )
    shown = Question(
        "a1",
        question,
        step.as_record(question, "a1", _NOWHERE, ()),
        step.choices,
        step.answer_schema,
        "",
        "",
        now(),
        step.expires,
        {} if not len(step.context) else {"context": msgspec.json.decode(step.context)},
        arguments=msgspec.json.decode(step.arguments) if len(step.arguments) else None,
        tool=step.tool,
    )
    if asking.default is not None:
        try:
            fit_decision(shown, msgspec.json.decode(step.default), file="default")
        except InvalidFile as error:
            raise UsageError("the default is no answer to the question", why=str(error.problems[0])) from None
    try:
        read_reply(shown, "run", blank(shown, "run"))  # so that the file of the same question is found again
    except (InvalidFile, UsageError) as error:
        why, remedy = str(error), "ask with shorter texts, and put the rest into outputs/"
        longest = max(map(_longest_key, (shown.facts, shown.arguments, shown.schema)))
        if longest > _KEY:
            why = f"a key has {longest:,} characters as YAML, of which a file can have {_KEY:,}"
        raise UsageError("the question can't be shown in a file", why=why, remedy=remedy) from None


def _longest_key(value: Any) -> int:
    """Characters of it as YAML writes it."""
    if isinstance(value, dict):
        here = max((len(json.dumps(key, ensure_ascii=False)) for key in value), default=0)
        return max(here, _longest_key([*value.values()]))
    return max(map(_longest_key, value), default=0) if isinstance(value, list) else 0


def _plain(arguments: Any) -> dict[str, Any] | None:
    """The arguments as JSON has them."""
    if arguments is None:
        return None
    plain = msgspec.json.decode(encode(arguments, "arguments"))
    if not isinstance(plain, dict):
        raise UsageError("`arguments` of run.ask() are values by name", why=f"got {arguments!r:.80}")
    return plain


def _schema(asking: PendingQuestion, given: dict[str, Any] | None) -> dict[str, Any] | bool | None:
    """The JSON Schema of the answer, or of the arguments. Without one each argument keeps its kind."""
    schema = asking.schema
    if schema is None:
        return None if given is None else _kinds(given)
    if isinstance(schema, type) or get_origin(schema) is not None:
        schema = Codec(schema, "the schema of an answer").schema()
    plain: dict[str, Any] | bool = msgspec.json.decode(canonical(schema, "schema"))
    if given is not None and not _of_schema(plain) and (problems := against(plain, given)):
        raise UsageError("the arguments of run.ask() do not fit their schema", why=str(problems[0]))
    return plain


def _kinds(given: dict[str, Any]) -> dict[str, Any]:
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    kinds = {key: {"type": names[type(value)]} if value is not None else {} for key, value in given.items()}
    return {"type": "object", "properties": kinds}


_NOWHERE: dict[str, Any] = {"scope": "", "no": 0, "step": "ask", "args": "", "n": 0}


def _choices(asking: PendingQuestion) -> tuple[str, ...]:
    choices = asking.choices
    if choices is None:
        return (APPROVE, DENY) if asking.arguments is not None or asking.tool else ()
    if asking.schema is not None and asking.arguments is None:
        raise UsageError("run.ask() takes `choices` or `schema`", why="both were given", remedy="leave one of them out")
    if isinstance(choices, str) or not isinstance(choices, Sequence) or not choices:
        remedy = "remove it to accept any text"
        raise UsageError("`choices` is a list of texts", why=f"got {choices!r}", remedy=remedy)
    for each in choices:
        is_line = isinstance(each, str) and each == each.strip() and len(each.splitlines()) == 1
        if not is_line or "\0" in each:  # no browser sends a NUL, and no argument of a command can have one
            remedy = "give one without spaces around it, and without NUL"
            raise UsageError("a choice is a line of text", why=f"got {each!r}", remedy=remedy)
        arguments.text("a choice", each)
    if len(set(choices)) != len(choices):
        raise UsageError("a choice is given twice", why=f"got {list(choices)!r}")
    if (asking.arguments is not None or asking.tool) and APPROVE not in choices:
        why = f"got {list(choices)!r}"
        raise UsageError(f"a question about a call has the choice {APPROVE!r}", why=why, remedy="add it")
    return tuple(choices)


def _expires(asking: PendingQuestion) -> str:
    expires = asking.expires
    if expires is None:
        return ""
    try:
        if isinstance(expires, datetime):
            return time_text(arguments.aware("run.ask()", expires, "the answer may come from another machine"))
        return time_text(datetime.now(UTC) + timedelta(seconds=_seconds(expires, "expires")))
    except OverflowError:
        raise UsageError("`expires` is too far away", why=f"got {expires!r:.80}") from None


def _seconds(given: Any, name: str) -> float:
    seconds = given.total_seconds() if isinstance(given, timedelta) else given
    try:
        if isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 <= seconds < math.inf:
            return float(seconds)
    except OverflowError:
        raise UsageError(f"`{name}` is too far away", why=f"got {given!r:.80}") from None
    kinds = "seconds, a timedelta or a datetime" if name == "expires" else "seconds"
    raise UsageError(f"`{name}` of run.ask() is {kinds}", why=f"got {given!r}")


def _of_schema(schema: Any) -> str:
    """Why the schema can't be used, or nothing. The schema is tried on a value."""
    if not isinstance(schema, dict | bool):
        return f"it is a {type(schema).__name__}"
    found = against(schema, None)
    return "" if not found or found[0].place != "the schema of the answer" else found[0].found
