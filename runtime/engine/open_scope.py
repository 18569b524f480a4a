"""One attempt at a scope: its calls and their identity, its running work, and the content of its commit.

The identity of a call within its scope is its name, its arguments, and the number of equal calls before it. Effects on
record that the attempt has not called again are its claims: a new call may be one of them. An exception has notes of
the calls that have raised it.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import Context, ContextVar, copy_context
from functools import partial as bind
from hashlib import blake2b
from itertools import chain, combinations, count, islice, product
from typing import Any

import msgspec
from msgspec import Raw, Struct, field

from ...workspace.base import AgentError, NotSerializable
from ...workspace.journal import NOTHING, Key, Message, Output, StepCompleted
from ...workspace.plan import Splice
from ...workspace.state import Scope, is_done_again
from ..agent import Step, canonical, current_scope, of_a_future
from ..live import PendingCalls, ScopeCopy, Suspended
from .context import Abandoned, AgentContext

RAISED_BY = "__satchel_calls__"
"""The attribute of an exception that has these calls."""
_CALLS = 32
"""How many calls are noted on one exception: those that it has passed through."""

new_place = count(1).__next__
"""A number for each place that contains calls: an attempt at a scope, or a call whose function makes calls."""


class Claims:
    """The claims of one attempt. Effects that a person has resolved are not included."""

    def __init__(self, recorded: Scope):
        self._done = recorded.done
        done = (key for key, record in recorded.done.items() if is_done_again(record))
        self._outstanding = {key: None for key in (*recorded.started, *done) if key not in recorded.settled}

    def claim(self, key: Key) -> None:
        """This attempt has called a recorded effect again."""
        self._outstanding.pop(key, None)

    @property
    def unclaimed(self) -> tuple[Key, ...]:
        """Recorded effects that this attempt has not called again, in the order they were recorded."""
        return tuple(self._outstanding)

    @property
    def uncalled(self) -> list[StepCompleted]:
        """Of these, the effects that were done."""
        return [self._done[key] for key in self._outstanding if key in self._done]

    def is_claimed(self, key: Key) -> bool:
        return key not in self._outstanding


_TRIES = 16


def digest_of(identity: bytes, outer: Key | None) -> str:
    """The digest of the arguments as JSON, or of the name of a named call. `outer` is the call that contains it."""
    within = b"" if outer is None else repr(outer).encode()
    return blake2b(identity + within, digest_size=8).hexdigest()


def earlier(
    step: Step, arguments: Mapping[str, Any], named: str | None, outers: Iterable[Key | None]
) -> Iterator[tuple[str, str]]:
    """The names and digests under which this call may have been recorded by earlier code: before its function, or one
    that calls it, got new parameters (those with their default value), or under the names of `formerly=`. `outers` are
    the identities of the call that contains it, the current one first."""
    defaults, tried = step.shape.defaults, [*islice(outers, 1 + _TRIES)]
    current = {new: old for old, new in step.renamed.items()}
    variants = [(step.name, dict[str, str]()), *([(step.name, current)] if current and named is None else [])]
    variants += [(name, current) for name in step.former_names]
    has_default = [parameter for parameter in defaults if _is_equal(arguments[parameter], defaults[parameter])]
    for name, renamed in variants:
        ways = product([()] if named is not None else islice(chain([()], _subsets(has_default)), 1 + _TRIES), tried)
        is_current = (name, renamed) == (step.name, {})
        for left_out, outer in islice(ways, int(is_current), 1 + _TRIES):
            if named is not None:
                yield name, digest_of(named.encode(), outer)
                continue
            rest = {renamed.get(key, key): value for key, value in arguments.items() if key not in left_out}
            yield name, digest_of(canonical(rest, name), outer)


def changed_in_place(arguments: Mapping[str, Any], encoded: bytes) -> str:
    """The name of an argument that differs from what was encoded; empty if none does."""
    was = msgspec.json.decode(encoded, type=dict[str, Raw])
    return next((name for name, value in arguments.items() if canonical(value, name) != bytes(was[name])), "")


def _is_equal(value: Any, default: Any) -> bool:
    try:
        return value is default or canonical(value, "") == canonical(default, "")
    except NotSerializable:
        return False  # a default that stands for "not given" need not be JSON


def _subsets(parameters: list[str]) -> Iterator[tuple[str, ...]]:
    """Not empty, the most likely first: those at the end, of which there may be several; then any, the smallest
    first."""
    ends = [tuple(parameters[at:]) for at in range(len(parameters) - 1, -1, -1)]
    sizes = range(1, len(parameters) + 1)
    others = chain.from_iterable(combinations(parameters, size) for size in sizes)
    return chain(ends, (subset for subset in others if subset not in ends))


class Numbering:
    """Under which keys and numbers the calls of one attempt at a scope are recorded. A call that an earlier attempt has
    recorded keeps its number."""

    def __init__(self, recorded: Scope):
        self._recorded = recorded
        self._unclaimed: dict[str, set[Key]] = {}  # by name: those on record that this attempt has not made
        for key in recorded.numbers:
            self._unclaimed.setdefault(key[0], set()).add(key)
        self._last = recorded.last_number
        self._made = 0
        self._cancelled: dict[Key, int] = {}  # by the agent itself: how many calls were made until then

    def is_recorded(self, key: Key) -> bool:
        return key in self._recorded.numbers

    def has_unclaimed(self, name: str) -> bool:
        """Whether there is a call of this name that an earlier attempt has recorded, and this one has not made."""
        return bool(self._unclaimed.get(name))

    def is_unclaimed(self, key: Key) -> bool:
        """Whether an earlier attempt has recorded this call and this attempt has not made it."""
        return key in self._unclaimed.get(key[0], ())

    def claim(self, key: Key) -> None:
        """This attempt makes the call."""
        if keys := self._unclaimed.get(key[0]):
            keys.discard(key)
        self._made += 1

    def number(self, key: Key) -> int:
        """The number of a call that is not answered from the record."""
        number = self._recorded.numbers.get(key)
        if number is None:
            self._last += 1
            number = self._last
        return number

    def cancel(self, key: Key) -> None:
        """The agent itself has cancelled the call."""
        self._cancelled[key] = self._made

    def cancelled_last(self) -> list[Key]:
        """The calls that the agent has cancelled without making another one since."""
        return [key for key, made in self._cancelled.items() if made == self._made]


PREVIEW = 60
"""Bytes of the arguments that a record shows."""

_EFFECT_PREVIEW = 400
"""The same for an effect, because a person may have to recognise it."""

ARGUMENTS_KEPT = 4096
"""Bytes of arguments that a record has whole: those of an effect for a question to a person, those of a step, if the
preview is cut, for people who read what it did. Longer ones are left out."""

current_call: ContextVar[OpenCall | None] = ContextVar("current_call", default=None)
"""The call whose function runs here."""


class OpenCall(Struct, eq=False):
    """A call of a step or effect without a recorded result."""

    scope: OpenScope
    step: Step
    key: Key
    no: int
    arguments: dict[str, Any]
    encoded: bytes  # the arguments as canonical JSON
    named: str | None = None
    outer: OpenCall | None = None  # that it is made in
    counts: dict[tuple[str, str], int] = field(default_factory=dict)  # of the calls its function makes
    made: PendingCalls | None = None  # of those, the ones that have not begun
    place: int = field(default_factory=new_place)
    prompts: dict[str, str] = field(default_factory=dict)  # those that went into it, with their versions
    model: str = ""  # the fallback model of this attempt
    was_stopped: bool = False  # an inner call has raised because the agent must stop
    ended: bool = False  # its function is not running any more
    in_doubt: bool = False  # an attempt at it may have happened, so a later one can't say that it has not
    out: Any = None  # the Partial of a streamed step
    recovered: int = 0  # characters of an earlier attempt's answer that the last one has continued
    restarted: bool = False  # its function has not read the recovered text
    interrupted: bool = False  # its function has returned after it was told that a message waits
    began: float = 0.0  # the last attempt, by time.monotonic
    at_keeper: Any = None  # the `StepAtKeeper`, if a keeper holds model calls for this run
    has_spent: bool = False  # its function has reported tokens itself

    def keys(self) -> Iterator[Key]:
        """The identities under which its inner calls may be recorded, the current one first."""
        yield self.key
        outers = self.outer.keys() if self.outer else (None,)
        for name, digest in earlier(self.step, self.arguments, self.named, outers):
            yield name, digest, self.key[2]

    def __str__(self) -> str:
        return self.words

    @property
    def words(self) -> str:
        """`send("weekly")` of 'Send it', for people."""
        of = f" of {self.scope.title!r}" if self.scope.title else ""
        return f"{self.key[0]}{self.identity()['call']}{of}"

    def check_unchanged(self) -> None:
        """Before another attempt: the arguments must not have changed, because the record would name other
        arguments."""
        if changed := changed_in_place(self.arguments, self.encoded):
            raise AgentError(
                f"{self.step.name} can't be tried again: its first attempt has changed its argument {changed!r}",
                why="its result would be that of other arguments",
                remedy="let it change a copy: copy.deepcopy(...)",
            )

    def identity(self) -> dict[str, Any]:
        """The fields of every record about this call."""
        redactor = self.scope.context.redactor  # first: a cut may leave a part of a secret
        preview, most = redactor.json(self.encoded)[1:-1], _EFFECT_PREVIEW if self.step.is_effect else PREVIEW
        text = preview[:most].decode(errors="ignore") + ("…" if len(preview) > most else "")
        name, args, n = self.key
        agent = self.scope.agent.path
        return {
            **({"agent": agent} if agent else {}),
            **({"prompts": self.prompts} if self.prompts else {}),
            "scope": self.scope.key,
            "no": self.no,
            "step": name,
            "args": args,
            "n": n,
            "call": f"({self.named}: {text})" if self.named else f"({text})",
        }

    def cut_arguments(self) -> Raw:
        """The arguments of a step for the record of its outcome, if the preview is cut. The journal redacts them."""
        is_kept = not self.step.is_effect and PREVIEW + 2 < len(self.encoded) <= ARGUMENTS_KEPT
        return Raw(self.encoded) if is_kept else NOTHING


class RunningWork:
    """The running work of one attempt at a scope: calls and their threads. `made` are the calls outside all others that
    have not begun."""

    def __init__(self, agent: AgentContext):
        self.made = PendingCalls(agent.context.looks)
        self._agent, self._pool, self._drain = agent, agent.context.threads, agent.context.stopping.drain
        self._under_way = 0
        self.resting: set[OpenCall] = set()  # calls that only wait: for their next attempt, or until a time
        self.at_rest: Callable[[], Any] | None = None  # called whenever no call does anything else any more
        self._threads: set[asyncio.Future[Any]] = set()
        self._quiet = asyncio.Event()
        self._quiet.set()

    def __enter__(self) -> None:
        """The scope can't end while the body runs."""
        self._under_way += 1
        self._quiet.clear()
        self._agent.begin_work()

    def __exit__(self, *_: object) -> None:
        try:
            self._agent.end_work()
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._quiet.set()
            self._look()

    def rest(self, call: OpenCall) -> None:
        """Until the call has ended, or is tried again, its scope may be cancelled."""
        self.resting.add(call)
        self._look()

    def _look(self) -> None:
        if self.is_at_rest and self.at_rest is not None:
            self.at_rest()

    @property
    def is_at_rest(self) -> bool:
        return self._under_way == len(self.resting)

    async def quiet(self) -> None:
        """Return when no call of this scope runs in a task, or in a thread that must be waited for."""
        await self.made.settle()
        while (self._under_way or self._threads) and not self._drain.forced:
            await self._quiet.wait()
            if self._threads:
                await asyncio.wait(self._threads)
            await self.made.settle()  # a task may have waited for that to begin with its own

    async def in_thread(self, function: Any) -> Any:
        """Call it in a thread. The scope waits for its end, even if the wait for it here is cancelled."""
        within = bind(copy_context().run, of_a_future(function))
        future = asyncio.get_running_loop().run_in_executor(self._pool, within)
        self._threads.add(future)
        future.add_done_callback(self._threads.discard)
        return await asyncio.shield(future)


class OpenScope:
    """One attempt at a scope: its identity in records, its running work, and the content of its commit."""

    def __init__(self, agent: AgentContext, key: str, title: str, recorded: Scope):
        self.agent, self.context, self.key, self.title = agent, agent.context, key, title
        self.recorded = recorded
        self.claims, self.numbering = Claims(recorded), Numbering(recorded)
        self.work, self.place = RunningWork(agent), new_place()
        self.outputs: dict[str, Output] = {}
        self.messages: list[Message] = []
        self.newest_call = 0  # the number of the one that was made last
        self.splices: list[Splice] = []  # what it changes in the plan
        self.planned = ""  # what it has written as the plan, as a hash
        self.apart: ScopeCopy | None = None  # its own state and plan, if other scopes of its agent may run, too
        self.tasks: list[str] = []  # from the inbox, that are done when this commits
        self.asked: set[str] = set()  # the open questions that this attempt asks, too
        self.spent: dict[str, int] = {}  # how often what, outside its steps
        self.at_claims: set[asyncio.Task[Any] | None] = set()  # whose effects wait for the claims of the other tasks
        self.ended = self.was_stopped = False
        self.abandoned = False  # it has failed; its sub-agents must stop
        self.is_dismissed = False  # it must end for a person's edit
        self.cancelled = 0  # how often its task was cancelled for that
        self.task = asyncio.current_task()  # the one that runs the scope's function

    async def durable(self) -> None:
        """Return when all records so far are durable. No other code can be about to record something if no other call
        runs and this is not one of several tasks, as `asyncio.gather` makes them. A stop waits for this, because what
        comes next may be the commit."""
        context = self.context
        alone = context.agents.calls <= 1 and self.agent.is_alone and asyncio.current_task() is self.task
        with context.stopping.drain.working("a write to the journal"):
            await context.journal.durable(alone=alone)

    def other_tasks(self) -> list[asyncio.Task[Any]]:
        """The tasks that this scope's function has started and that have not ended, and its own. Without the current
        one, and without those whose effect waits for these tasks, too."""
        left = {asyncio.current_task(), *self.at_claims}
        return [task for task in asyncio.all_tasks() if task not in left and scope_of(task) is self]

    def abandon(self) -> None:
        """The scope has failed. Its sub-agents stop."""
        self.abandoned = True
        self.context.agents.stop_abandoned()

    def dismiss(self) -> None:
        """Let running calls finish, begin no others, and cancel what the scope waits for."""
        if self.is_dismissed:
            return
        self.is_dismissed = True
        self.abandon()
        self.work.at_rest = self._cancel
        if self.work.is_at_rest:
            self._cancel()

    def _cancel(self) -> None:
        if self.task is not None:
            self.cancelled += 1
            self.task.cancel()

    def check_going_on(self) -> None:
        """Like that of the agent. In addition, a dismissed scope begins nothing."""
        self.agent.check_going_on()
        self.check_not_dismissed()

    def check_not_dismissed(self) -> None:
        if self.is_dismissed and not self.context.stopping.drain.is_held_here:
            raise Abandoned

    def stop(self) -> None:
        """The agent must stop: running calls of this scope have no result."""
        self.was_stopped = True
        if (call := current_call.get()) is not None:
            call.was_stopped = True

    @property
    def is_stopping(self) -> bool:
        """A cancellation now does not come from the agent itself."""
        context, agent = self.context, self.agent
        stopping = context.stopping
        is_told = stopping.suspension or stopping.failed or stopping.drain.forced or self.was_stopped or self.abandoned
        return bool(is_told) or agent.is_closing or agent.is_abandoned


def scope_of(task: asyncio.Task[Any]) -> object:
    """The scope whose code runs in the task."""
    if sys.version_info >= (3, 12):
        return task.get_context().get(current_scope)
    context = next((each for each in gc.get_referents(task) if isinstance(each, Context)), None)
    return context and context.get(current_scope)


def waits(task: asyncio.Task[Any]) -> bool:
    """Whether the task waits for something that has not happened yet."""
    awaited = getattr(task, "_fut_waiter", None)
    return awaited is not None and not awaited.done()


def check_outside_steps(what: str) -> None:
    """A step can't do what belongs to a commit: at a re-entry a recorded step does not run."""
    call = current_call.get()
    if call is not None:
        raise AgentError(
            f"{what} inside {call.step!r}",
            why="when a step is answered from the record, its function does not run",
            remedy="let the step return what is needed, and do this in the scope's function",
        )


def check_not_revoked(call: OpenCall) -> None:
    """Look for a revocation, also where that is a request. If the question about this call is open again, the run stops
    to wait for a person. Quick on a disk; called on the event loop, so that nothing comes between it and the intent."""
    scope, context, tool = call.scope, call.scope.context, call.key[0]
    moment, place = context.moment, (scope.agent.path, scope.key, tool)
    if moment.stands_for(scope.agent.path, tool) is not None:
        found = context.workspace.desk.look_for_revocations(context.journal, is_fresh=True)
        context.tally.noticed += [each.text for each in found]
    id = moment.overtaken_by(scope.agent.path, scope.key, call.key)
    if id is not None:  # it has begun before: this would be another time
        context.workspace.desk.revoke(context.journal, id, moment.overtaken[id].by)
    if moment.is_taken_back(*place):
        context.stopping.wait_for_person()
        raise Suspended


# Which call raised an exception


def mark_raised(error: BaseException, place: int, key: Key, *, is_replayed: bool) -> None:
    """Note on an exception which call has raised it. Uses plain values, so that it can still be pickled."""
    known = error.__dict__.setdefault(RAISED_BY, [])
    known.append((place, key, is_replayed))
    del known[:-_CALLS]  # it may be one object that is raised again and again


def raising_calls(error: BaseException, place: int) -> dict[Key, bool]:
    """The calls in `place` that an exception comes from, and whether they had raised it from the record. Looks at the
    members of a group, else at the first exception in the chain of causes that a call has raised."""
    found: dict[Key, bool] = {}
    waiting, seen = [error], set()
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        own = {key: is_replayed for at, key, is_replayed in each.__dict__.get(RAISED_BY, ()) if at == place}
        found |= own
        if own:
            continue
        if isinstance(each, BaseExceptionGroup):
            waiting += each.exceptions
        if above := each.__cause__ or each.__context__:
            waiting.append(above)
    return found


def are_replayed(calls: dict[Key, bool]) -> bool:
    """Whether these calls only raised what is on record."""
    return bool(calls) and all(calls.values())
