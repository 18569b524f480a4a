"""A start: its options, its thread for work that blocks, what prevents one, and the arguments that it gives to the
run's own agent: its own ones, those of workspace.yaml, or the recorded ones; and its outcome.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, asynccontextmanager
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Self, TypeVar

import msgspec
from msgspec import Struct, field

from ...workspace.base import SatchelError, UsageError, arguments
from ...workspace.inspect import Look, Report
from ...workspace.journal import ApprovalAsked, Doubt, EndStatus, Input, blobs
from ...workspace.lifecycle import Workspace
from ...workspace.secrets import redactor_of
from ...workspace.state import Moment
from ...workspace.store import Store
from ..agent import ANY, Agent, Parameters, R, load, result_codec, said
from ..live import Interruption, ReplayTarget, Tap, Watch

if TYPE_CHECKING:
    from ..engine import Rehearsal

T = TypeVar("T")

_AT_ONCE = 1
"""On a disk: an opening computes as well as waits, and takes the interpreter from the loop for milliseconds."""

_of_loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, ThreadPoolExecutor] = weakref.WeakKeyDictionary()
"""The threads of a loop, since a process that was forked has the threads of no other."""


class RunOptions(Struct, frozen=True, kw_only=True):
    """How to run an agent in this process. See `satchel.run`. UsageError for a value that is not valid."""

    agent: Agent | None = None
    args: tuple[Any, ...] = ()  # of the agent
    input: Mapping[str, Any] | None = None  # the same by parameter
    watch: Watch | None = None
    wake: bool = False
    accept_drift: bool = False
    drain_timeout: float | None = None  # seconds
    from_checkpoint: bool = False
    take_over: bool = False
    adopt: bool = False

    def __post_init__(self) -> None:
        check_agent(self.agent)
        check_watch(self.watch)
        arguments.seconds("drain_timeout", self.drain_timeout)
        if self.input is not None and not isinstance(self.input, Mapping):
            raise UsageError(f"input can't be {self.input!r}", remedy="give a dict of arguments by parameter")
        if self.args and self.input is not None:
            raise UsageError("arguments were given twice", why="by position and in `input`", remedy="use one of them")


class Start(RunOptions, frozen=True, kw_only=True):
    """One start of the run in `store`."""

    store: Store
    interruption: Interruption
    tap: Tap | None = None
    only: ReplayTarget | None = None  # a replay
    rehearsal: Rehearsal | None = None
    restarts: bool = False  # a supervisor continues it in another process when `restart_every` says so
    rest: Callable[[bool], None] | None = None  # called when it only waits for its notices, and when it goes on
    shares_loop: bool = False  # the loop is its caller's, and must not stand still

    @property
    def backs_up(self) -> bool:
        """Whether the copy of the run follows. A try-out works in a folder of its own, which names the same copy."""
        return self.rehearsal is None and self.only is None

    async def aside(self, work: Callable[[], T]) -> T:
        """What `work` returns. Work that blocks, such as an opening with its syncs, is done in a thread if the loop is
        shared, so that all else on it goes on. See `to_its_end`."""
        if not self.shares_loop:
            return work()
        loop = asyncio.get_running_loop()
        threads = None  # those of the loop: a request over a network only waits
        if not self.store.abilities.remote:
            threads = _of_loops.get(loop) or _of_loops.setdefault(loop, ThreadPoolExecutor(_AT_ONCE, "satchel-opening"))
        return await to_its_end(loop.run_in_executor(threads, copy_context().run, work))

    @asynccontextmanager
    async def held_aside(self, held: AbstractContextManager[T]) -> AsyncIterator[T]:
        """The same of what comes before and after a block."""
        found = await self.aside(held.__enter__)
        try:
            yield found
        except BaseException as error:
            raised = error  # the name of the clause is gone after it
            if not await self.aside(lambda: held.__exit__(type(raised), raised, raised.__traceback__)):
                raise
        else:
            await self.aside(lambda: held.__exit__(None, None, None))


async def to_its_end(done: asyncio.Future[T]) -> T:
    """What `done` returns. If the task is cancelled meanwhile, the work goes on to its end, and the cancellation comes
    at the next place where the task waits, as it would after work in the loop."""
    task, is_cancelled = asyncio.current_task(), False
    assert task is not None
    while not done.done():
        try:
            await asyncio.wait([done])
        except asyncio.CancelledError:
            task.uncancel()
            is_cancelled = True
    if is_cancelled:
        task.cancel()
    return done.result()


_WATCHED = tuple(name for name in vars(Watch) if not name.startswith("_"))
_AGENT = "the agent"


def check_agent(agent: Any) -> None:
    if agent is not None and not isinstance(agent, Agent):
        name = getattr(agent, "__name__", None) or repr(agent)
        raise UsageError(f"{name} is not an agent", remedy="decorate it with @agent")


def check_watch(watch: Any) -> None:
    lacking = [name for name in _WATCHED if not callable(getattr(watch, name, None))]
    if watch is not None and lacking:
        raise UsageError(
            f"watch can't be of the type {type(watch).__name__}",
            why=f"it has no method {lacking[0]!r}",
            remedy=f"give an object with the methods {', '.join(_WATCHED)}",
        )


def arguments_to_record(start: Start, seen: Look) -> bytes | None:
    """The arguments that this start must record: canonical JSON by parameter. None if there are none, or the run has
    its arguments already.

    UsageError, NotSerializable or TypeError, before anything is written, if the agent does not take these arguments or
    the run began with others.
    """
    moment, is_given = seen.moment, bool(start.args) or start.input is not None
    has_begun = moment.root.has_data or moment.root.input is not None
    if has_begun and not is_given and moment.root.input is None:
        return None
    try:
        agent = start.agent or load(start.store, seen.definition.agent)
    except Exception:
        if is_given:  # else it is told when the agent is called
            raise
        return None
    parameters = Parameters(agent.function, _AGENT)
    if has_begun:
        recorded = _recorded(start.store, moment)
        parameters.call_of(recorded)
        if is_given:
            _compare(redactor_of(seen.definition).json(_given(start, parameters)), recorded)
        return None
    wanted = _given(start, parameters) if is_given else parameters.by_name(seen.definition.input)
    return wanted if parameters else None


def record_arguments(opened: Workspace, arguments: bytes | None) -> None:
    """In the group of the opening."""
    if arguments is not None and opened.moment.root.input is None:
        kept = blobs.keep(opened.store, opened.redactor.json(arguments), opened.journal.generation)
        opened.journal.add(Input(arguments=kept.result, blob=kept.blob))


def call_arguments(
    store: Store, moment: Moment, function: Callable[..., Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """For the call of the agent."""
    return Parameters(function, _AGENT).call_of(_recorded(store, moment))


def _recorded(store: Store, moment: Moment) -> bytes:
    found = moment.root.input
    return b"{}" if found is None else blobs.fetch(store, found)


def _given(start: Start, parameters: Parameters) -> bytes:
    if start.input is not None:
        return parameters.by_name(start.input)
    try:
        return parameters.of_call(start.args, {})
    except TypeError as error:
        raise UsageError(str(error)) from error


def _compare(given: bytes, recorded: bytes) -> None:
    new, old = (msgspec.json.decode(each) for each in (given, recorded))
    other = [name for name in {**old, **new} if name not in old or name not in new or old[name] != new[name]]
    if other:
        raise UsageError(
            f"this run began with another value of {', '.join(map(repr, other))}",
            why="its steps depend on it",
            remedy="start it without arguments to continue with the recorded ones, or start a new run for others",
        )


class Outcome(Struct, Generic[R]):
    """How a run stopped, and what it did not have to do again.

    `status`; `result`, the return value of the agent, also of a run that had completed before; `error`; `doubts`, the
    open questions about effects, and `approvals`, those of the agent; `until`, when a sleeping run must be started
    again.
    """

    status: EndStatus
    report: Report
    result: R | None = None
    error: BaseException | None = None
    doubts: list[Doubt] = field(default_factory=list)  # what a person is asked about effects
    approvals: list[ApprovalAsked] = field(default_factory=list)  # and by the agent
    answered: int = 0  # calls that were answered from the record
    recovered: int = 0  # characters of streamed answers that were continued
    skipped: int = 0  # items that were finished before
    open_items: int = 0
    noticed: list[str] = field(default_factory=list)  # edits that came while it was running
    until: str = ""  # when a sleeping run wakes: UTC, ISO 8601
    entered: bool = True  # whether the agent was called; if not, the run stays as it was
    restarts: bool = False  # the supervisor continues it in another process
    late: frozenset[str] = frozenset()  # tasks and edits after the last looks of a completed run

    def __repr__(self) -> str:
        """Short: the report and the rest of it are for those who ask."""
        said = {"status": self.status, "result": self.result, "error": self.error, "until": self.until}
        shown = ", ".join(f"{key}={value!r}" for key, value in said.items() if value not in (None, ""))
        return f"{type(self).__name__}({shown})"

    def raise_for_status(self) -> Self:
        """Return this outcome if the run has completed, so that calls can be chained:
        `run(folder).raise_for_status().result`. Else raise NotCompleted, which has the outcome; it comes `from` the
        agent's error if there is one."""
        if self.status == "completed":
            return self
        raise NotCompleted(f"the run has not completed: {self.status}{self._why()}", self) from self.error

    def _why(self) -> str:
        if self.error is not None:
            return f" with {said(self.error)}"
        asked = len(self.doubts) + len(self.approvals)
        if self.status == "waiting" and asked:
            return f" for a person ({asked} open question{'s' if asked > 1 else ''})"
        return f" until {self.until}" if self.until else ""


class After(NamedTuple):
    """An outcome, and the newest moment of the run, so that its caller need not look again."""

    outcome: Outcome
    moment: Moment


class NotCompleted(SatchelError):
    """A run has stopped without completing: it has failed, is paused, waits, sleeps, or is cancelled. `outcome` is what
    `run` has returned."""

    def __init__(self, what: str, outcome: Outcome):
        super().__init__(what)
        self.outcome = outcome


def completed(start: Start, of: Workspace | Look, report: Report) -> After:
    """The outcome of a run that had completed before."""
    result, settled = _result(start, of, report), of.moment.root.plan.progress.leaves
    return After(Outcome("completed", report, result, skipped=settled, entered=False), of.moment)


def left(moment: Moment, report: Report | None = None, *, is_waiting: bool = False) -> After:
    """The outcome of a run that has not completed and was not resumed."""
    settled, leaves = moment.root.plan.progress
    status = "waiting" if is_waiting else moment.status if moment.status in ("sleeping", "cancelled") else "paused"
    status = "paused" if moment.is_replay and status == "sleeping" else status
    outcome: Outcome = Outcome(
        status,
        report or Report(),
        doubts=list(moment.doubts.values()),
        approvals=list(moment.approvals.values()),
        skipped=settled,
        open_items=leaves - settled,
        until=moment.until,
        entered=False,
    )
    return After(outcome, moment)


def _result(start: Start, of: Workspace | Look, report: Report) -> Any:
    """The recorded result, of the annotated type if the agent can be imported."""
    kept = of.moment.root.result
    if kept is None or not (kept.blob or len(kept.result)):
        return None
    data = blobs.fetch(start.store, kept)
    try:
        agent = start.agent or load(start.store, of.definition.agent)
        return result_codec(agent.function, "the agent").decode(data)
    except UsageError as error:
        report.add("found", f"{error}; it is returned as JSON")
    except Exception as error:
        report.add("found", f"the agent's code can't be imported, so its result is returned as JSON: {error}")
    return ANY.decode(data)
