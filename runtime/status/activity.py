"""What a run does now, and what lies ahead of it: the calls that it performs, as far as `.satchel/running.json` and the
journal tell; those that have failed and wait to be tried again; how fast it does the items of its plan, an estimate
from those that ended last; the times of its schedule; and its open questions: what is asked, how to answer, and what a
person has typed into the file.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import Raw, Struct

from ...workspace.base import InvalidFile, SatchelError, duration, moment_of, one_line, time_text
from ...workspace.formats import Definition
from ...workspace.inbound import Question, inbox, open_questions
from ...workspace.inspect import Lease
from ...workspace.journal import Key, Line, StepRetry
from ...workspace.state import ENDS_KEPT, ROOT, Fired, Moment
from ...workspace.store import Store
from ...workspace.views import running_file
from .place import Place

if TYPE_CHECKING:
    from ...workspace.secrets import Redactor

_SHOWN = 100
"""Characters of a call that are shown."""

_UNITS = (("a second", 1.0), ("a minute", 60.0), ("an hour", 3600.0), ("a day", 86400.0))


class Retrying(NamedTuple):
    """A call that has failed and waits to be tried again."""

    agent: str
    scope: str
    step: str
    call: str
    attempt: int  # that has failed
    error: str
    again_at: str  # UTC, ISO 8601


def calls_to_retry(moment: Moment) -> list[Retrying]:
    """All of a run."""
    return [_retry_of(line) for line in _lines(moment)]


def _later(moment: Moment) -> set[tuple[str, str, Key]]:
    """The calls that are not tried again yet: agent, scope and key of each."""
    now = time_text(datetime.now(UTC))
    found = [line.record for line in _lines(moment) if _retry_of(line).again_at > now]
    return {(each.agent, each.scope, each.key) for each in found if isinstance(each, StepRetry)}


def _retry_of(line: Line) -> Retrying:
    found = line.record
    assert isinstance(found, StepRetry)
    again = time_text(datetime.fromisoformat(line.at) + timedelta(seconds=found.wait))
    error = f"{found.error.kind}: {found.error.message}"
    return Retrying(found.agent, found.scope, found.step, found.call, found.attempt, error, again)


def _lines(moment: Moment) -> Iterator[Line]:
    for agent in moment.agents.values():
        for scope in agent.scopes.values():
            yield from scope.retries.values()


class RunningCall(NamedTuple):
    """A call that has run for a second or more, in a bucket for five. Its text may come from a stranger."""

    agent: str
    scope: str
    no: int  # of the call in its scope
    step: str
    call: str  # its arguments, shortened
    since: str  # UTC, ISO 8601; of a call that was tried again, its first attempt
    key: Key

    @property
    def seconds(self) -> float:
        """How long it has run, by the clock of this machine."""
        began = moment_of(self.since)
        return max(0.0, (datetime.now(UTC) - began).total_seconds()) if began else 0.0

    @property
    def words(self) -> str:
        """`summarise("a.txt") for 42 s, item ^3`."""
        where = [self.place] if self.place else []
        agent = [f"agent {self.agent}"] if self.agent else []
        what = one_line(f"{self.step}{self.call}", _SHOWN)
        return ", ".join([f"{what} for {duration(self.seconds)}", *where, *agent])

    @property
    def place(self) -> str:
        """Its item or named scope, in words; empty for a call of the agent itself."""
        if self.scope == ROOT:
            return ""
        return f"scope {self.scope[1:]}" if self.scope.startswith("_") else f"item ^{self.scope}"


def running(store: Store, moment: Moment, holder: Lease | None) -> list[RunningCall]:
    """Those of `holder`, the process that has the run; the one that has run longest first. Not those that have ended by
    now, nor those that wait to be tried again. In a bucket one request, if the run is active and has the file."""
    if holder is None:
        return []
    try:
        found = running_file.read(store)
    except (SatchelError, OSError):
        return []
    if found is None or found.epoch != holder.epoch or found.run_id != moment.run_id:
        return []
    return sorted(_left(found, moment), key=lambda each: each.since)


def _left(found: running_file.RunningCalls, moment: Moment) -> Iterator[RunningCall]:
    later = _later(moment)
    for each in found.calls:
        agent = moment.agents.get(each.agent)
        scope = agent.scopes.get(each.scope) if agent and not agent.has_ended else None
        if scope is None or each.key in scope.done or each.key in scope.failed or scope.failures > each.failures:
            continue
        if moment_of(each.since) is not None and (each.agent, each.scope, each.key) not in later:
            yield RunningCall(each.agent, each.scope, each.no, each.step, each.call, each.since, each.key)


class Forecast(NamedTuple):
    """An estimate, from the time that the last items took together. Items that run in parallel are counted so."""

    each: float  # seconds an item
    left: float  # seconds until the plan is finished

    @property
    def words(self) -> str:
        """`2.5 items a minute, about 3 min left`."""
        return f"{self.rate}, {self.time_left}"

    @property
    def rate(self) -> str:
        unit, seconds = next((each for each in _UNITS if each[1] >= self.each), _UNITS[-1])
        many = seconds / self.each
        said = f"{many:,.0f}" if many >= 9.95 else f"{many:.1f}".removesuffix(".0")
        return f"{said} item{'' if said == '1' else 's'} {unit}"

    @property
    def time_left(self) -> str:
        if self.left < 60:
            return f"about {math.ceil(self.left)} s left"
        if self.left < 3600:
            return f"about {math.ceil(self.left / 60)} min left"
        return f"about {duration(self.left)} left"


def forecast(began: float, ends: Sequence[float], to_do: int, now: float) -> Forecast | None:
    """The times are seconds of one clock: when the process `began`, when the newest items ended, and now. None as long
    as none has ended, and when nothing is left to do."""
    first, *rest = (began, *ends) if len(ends) < ENDS_KEPT else ends
    if not rest or to_do < 1:
        return None
    # What runs now counts as soon as it takes longer than the others. Then its end is not known.
    each = max((rest[-1] - first) / len(rest), (now - first) / (len(rest) + 1), 1e-6)
    running = min(max(0.0, now - rest[-1]), each / 2)
    return Forecast(each, each * to_do - running)


def forecast_of(moment: Moment, now: float) -> Forecast | None:
    """The same of the agent of a run that is running; `now` in seconds since the epoch."""
    if moment.clean or not moment.root.ended_at:
        return None  # the process that has it has not recorded that yet
    began, *ends = [datetime.fromisoformat(each).timestamp() for each in (moment.opened_at, *moment.root.ended_at)]
    settled, leaves = moment.root.plan.progress
    return forecast(began, ends, leaves - settled, now)


class Scheduled(NamedTuple):
    """A time of `schedule:`: the last one that was taken, and the next one (UTC, ISO 8601; empty: never)."""

    name: str
    last: Fired | None
    next: str


def schedule_of(store: Store, definition: Definition, moment: Moment, now: datetime) -> list[Scheduled]:
    """The times of its schedule. Empty for a cancelled run, and if `check` and the next start report a mistake."""
    from ..live import limits  # most runs have no schedule

    if moment.status == "cancelled":
        return []
    try:
        limits.check_times(store, definition)
    except SatchelError:
        return []
    found = []
    for start in definition.schedule:
        following = limits.next_start([start], now)
        last = moment.fired.get(start.name, [])[-1:]
        due = inbox.firing_at("", following).due if following else ""
        found.append(Scheduled(start.name, last[0] if last else None, due))
    return found


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
