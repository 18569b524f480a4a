"""Effects never happen twice without a person's knowledge: three rules, and the identity of an effect outside, which is
its idempotency key and what its `verify` says.

- claims: before an effect without a record starts, the agent must have called every recorded effect of the scope again
- intent: `step.started` is durable before the function runs
- doubt: an effect without a known end is verified, repeated under its key if it is idempotent, or asked about
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from functools import partial as bind
from hashlib import blake2b
from typing import Any, Literal, TypeVar, cast

from msgspec import Raw, Struct

from ...workspace.base import NotDone, SatchelError, StorageFailed, UsageError
from ...workspace.journal import NOTHING, Kept, Key, StepCompleted, StepStarted, blobs
from ...workspace.state import EarlierAnswer
from ..agent import ONCE, DaemonExecutor, Step, key_parameter, run_parameter, said, type_hints
from ..live import AgentStopped, Suspended, reverify, verification
from . import open_scope, performing
from .open_scope import OpenCall, waits
from .performing import is_recorded

Verify = Callable[..., Any]


def idempotency_key(call: OpenCall) -> str:
    """The same at every attempt, different for every call of every run, also of copies of one folder."""
    recorded = call.scope.agent.recorded.scopes.get(call.scope.key)
    if recorded is not None and (started := recorded.started.get(call.key)):
        return started.idempotency_key
    return _own_key(call)


def has_own_key(call: OpenCall) -> bool:
    """Whether an effect that has begun would have the same key in this run. In a fork, one that the other run began
    would not."""
    return call.scope.context.moment.forked is None or idempotency_key(call) == _own_key(call)


def may_have_other_key(function: Verify, call: OpenCall) -> bool:
    """Whether `function` may be given the wrong key of a finished effect. Its record does not say which run did it, nor
    whether a return has brought back the one that a person wanted to repeat."""
    takes_key = key_parameter(type_hints.hints_of(function), inspect.signature(function).parameters)
    return bool(takes_key) and (call.scope.context.moment.forked is not None or call.key in call.scope.recorded.again)


def _own_key(call: OpenCall) -> str:
    scope, moment = call.scope, call.scope.context.moment
    identity = "\0".join((moment.run_nonce or moment.run_id, scope.key, *map(str, call.key)))
    if scope.agent.path:
        identity += f"\0{scope.agent.path}"
    if again := scope.recorded.again.get(call.key):  # a person wants to repeat it, so the receiver must do it again
        identity += f"\0again {again}"
    return blake2b(identity.encode(), digest_size=16).hexdigest()


async def verify(function: Verify, call: OpenCall) -> Any:
    """The result of an effect. NotDone if it has not happened."""
    args, kwargs = _arguments(function, call)
    with verification(call), call.scope.context.stopping.drain.working(f"the verification of {call.words}"):
        if type_hints.is_async(function):
            return await cast(Awaitable[Any], function(*args, **kwargs))
        return await call.scope.work.in_thread(bind(function, *args, **kwargs))


async def verify_within(function: Verify, call: OpenCall, seconds: float) -> None:
    """The same with a time limit. After it, neither the scope nor the process waits for the verification."""
    args, kwargs = _arguments(function, call)
    apart = DaemonExecutor("satchel-verify")
    try:
        with verification(call), call.scope.context.stopping.drain.working(f"the verification of {call.words}"):
            async with asyncio.timeout(seconds) as limit:
                if type_hints.is_async(function):
                    await cast(Awaitable[Any], function(*args, **kwargs))
                else:
                    await apart.call(bind(function, *args, **kwargs))
    except TimeoutError:
        if limit.expired():
            raise TimeoutError(f"no answer within {seconds:.0f} s") from None
        raise
    finally:
        apart.end()


def _arguments(function: Verify, call: OpenCall) -> tuple[tuple[Any, ...], dict[str, Any]]:
    args, kwargs = call.step.shape.unbind(call.arguments, {})
    hints = type_hints.hints_of(function)
    if key := key_parameter(hints, inspect.signature(function).parameters):
        kwargs = {**kwargs, key: idempotency_key(call)}
    if of_run := run_parameter(hints):
        kwargs = {**kwargs, of_run: call.scope.agent.run}
    return args, kwargs


R = TypeVar("R")

_CONTRADICTED = "it is recorded as done, but verify says that it has not happened"

_FORGOTTEN = "the journal was lost, so it is unknown whether this was done before"

_LOST = "the run was restored from a backup, which ends before this call"

_OTHER_KEY = "it may have been done under another key, before a fork or a return"

_PATIENCE = 2.0
"""Seconds in which the other tasks of a scope may call its recorded effects again, although they wait for something."""

_LOOK_AGAIN = 0.02


class _Answer(Struct, frozen=True):
    """A known result of the effect."""

    result: Any


async def perform(call: OpenCall) -> Any:
    """Do it once, or find out that it was done."""
    scope = call.scope
    scope.claims.claim(call.key)
    if (only := scope.context.only) is not None:
        raise only.before_effect(scope.context.stopping, call.words)
    if call.key in scope.recorded.started:
        settled = await _settle(call, scope.context.doubts.cut_off_by, has_key=has_own_key(call))
        return settled.result if settled else await _begin(call)
    if scope.agent.recorded.forgets(scope.key) and call.key not in scope.recorded.settled:
        moment = scope.context.moment  # of a fork: the other run may have done it
        settled = await _settle(call, _FORGOTTEN, has_key=moment.forked is None and not moment.lost_nonce)
        return settled.result if settled else await _begin(call)
    if (answer := scope.recorded.answers.get(call.key)) is not None:
        return await _as_answered(call, answer)
    if call.key not in scope.recorded.settled and (unclaimed := await _unclaimed(call)):
        ask(call, "unclaimed", await _known_of(call, unclaimed), unclaimed)
    return await _begin_unless_lost(call)


async def _begin_unless_lost(call: OpenCall) -> Any:
    """Begin it, unless the run was restored from a backup and its lost owner may have done this after the last record
    there. While nothing was done again since, the lost owner has made the same call with the same arguments, if any:
    then it is verified, or repeated under its key. Otherwise a person is asked, since it may have made another one."""
    scope = call.scope
    lost = scope.context.moment.lost
    if lost is None or call.key in scope.recorded.settled:
        return await _begin(call)
    if lost.repeats:
        ask(call, "lost", "")
    settled = await _settle(call, _LOST, why="lost")
    return settled.result if settled else await _begin(call)


async def _as_answered(call: OpenCall, answer: EarlierAnswer) -> Any:
    """Do what a person has said about this call. An answer about another call is not used, because it may not mean this
    one."""
    scope = call.scope
    if answer.other is not None:
        scope.claims.claim(answer.other)
        if answer.outcome == "done":
            result = blobs.fetch(scope.context.store, Kept(answer.result, answer.blob))
            try:
                return await performing.keep(call, result, how="resolved")
            except UsageError as error:
                ask(call, "unclaimed", f"The answer can't be used: {error.why}", (answer.other,))
    return await _begin_unless_lost(call)


async def _known_of(call: OpenCall, unclaimed: tuple[Key, ...]) -> str:
    """What helps a person to say whether the call is one of the unclaimed ones: why earlier answers do not count, and
    what its `verify` says, if it has another name than they."""
    earlier, verify = _answered_others(call), call.step.verify
    if verify is None or call.key[0] in (key[0] for key in unclaimed):
        return earlier
    try:
        await verify_within(verify, call, reverify.EACH)
        found = "that it has happened"
    except NotDone as error:
        found = f"that it has not happened: {error}".removesuffix(": ")
    except Exception as error:
        found = f"nothing, because it failed: {said(error)}"
    return f"{earlier}. verify of {call.step.name} says {found}".removeprefix(". ")


def _answered_others(call: OpenCall) -> str:
    """Why earlier answers of people do not count for this call."""
    given = [answer.call for key, answer in call.scope.recorded.answers.items() if key[0] == call.key[0]]
    if not given:
        return ""
    return (
        f"The earlier answer is about {call.key[0]}{given[-1]}, which was not called again. If the arguments differ at "
        "every start, no answer can fit"
    )


async def _unclaimed(call: OpenCall) -> tuple[Key, ...]:
    """Recorded effects that were not called again. One of the same name in doubt is verified with its earlier
    arguments."""
    scope = call.scope
    await _let_others_claim(call)
    for key in scope.claims.unclaimed:
        started = scope.recorded.started.get(key)
        if started is not None and (earlier := _earlier(call, started)) is not None:
            await _settle(earlier, scope.context.doubts.cut_off_by)
            if key not in scope.agent.recorded.scopes[scope.key].done:
                scope.claims.claim(key)  # it has not happened, so this call may be it or not
    return scope.claims.unclaimed


async def _let_others_claim(call: OpenCall) -> None:
    """Return when every recorded effect is called again, or no other task of the scope is about to do that: each has
    ended or waits. A task may wait for a short time for something other than this call, so it gets that time."""
    scope, until = call.scope, time.monotonic() + _PATIENCE
    if not scope.claims.unclaimed:
        return
    scope.at_claims.add(asyncio.current_task())
    try:
        while scope.claims.unclaimed and (others := scope.other_tasks()):
            is_over = time.monotonic() > until
            if is_over and all(map(waits, others)):
                return
            await asyncio.sleep(0 if not is_over and not all(map(waits, others)) else _LOOK_AGAIN)
            scope.check_going_on()
    finally:
        scope.at_claims.discard(asyncio.current_task())


def _earlier(call: OpenCall, started: StepStarted) -> OpenCall | None:
    """A call that an earlier attempt had begun, if it can be verified with the arguments it had then."""
    effect = call.step
    if effect.verify is None or not len(started.arguments) or started.step not in (effect.name, *effect.former_names):
        return None
    try:
        arguments = effect.shape.decode(bytes(started.arguments))
    except UsageError:
        return None  # a record of an earlier version of the effect
    return OpenCall(call.scope, effect, started.key, started.no, arguments, bytes(started.arguments))


async def _begin(call: OpenCall) -> Any:
    """Start it, as often as its retries allow."""
    effect = call.step
    retry = effect.retry
    try:
        again = bind(performing.keep_retry, call)
        return await (retry or ONCE).run(bind(_once, call), lambda error, attempt: None, again)
    except Exception as error:
        wait = retry.too_long(error) if retry else None
        is_in_doubt = call.key in call.scope.agent.recorded.scopes[call.scope.key].started
        if wait is None or (is_in_doubt and not effect.idempotent):
            if not call.in_doubt and is_recorded(error):  # it has certainly not happened, and the agent is told so
                performing.keep_failure(call, error, not_done=True, final=True)
            raise
        call.scope.context.stopping.sleep(wait, f"{call.step.name} was told to try again later")


async def _once(call: OpenCall, attempt: int) -> Any:
    """One attempt. What it raises is what certainly has not happened; anything else ends in an answer or a doubt."""
    scope, effect = call.scope, call.step
    scope.work.resting.discard(call)
    call.began = time.monotonic()
    if attempt > 1:
        call.check_unchanged()
    key = idempotency_key(call)
    open_scope.check_not_revoked(call)
    arguments = Raw(call.encoded) if len(call.encoded) <= open_scope.ARGUMENTS_KEPT else NOTHING
    schema = scope.context.schemas.name(effect, keeps_unknown=scope.agent.keeps_unknown)
    scope.context.journal.add(StepStarted(**call.identity(), idempotency_key=key, arguments=arguments, schema=schema))
    try:
        await scope.durable()
        await scope.context.stopping.check_has_it()
        scope.check_going_on()  # another effect may have come into doubt while this one waited
    except BaseException as error:
        performing.keep_failure(call, error, attempt, not_done=not call.in_doubt)
        raise
    began = time.monotonic()
    try:
        result = await performing.invoke(call, {effect.shape.key: key} if effect.shape.key else {})
    except BaseException as error:
        if not _has_not_happened(effect, error):
            return await _may_have_happened(call, error, attempt)
        performing.keep_failure(call, error, attempt, not_done=not call.in_doubt)
        raise
    if scope.context.observer:
        scope.context.observer.returned(call)
    try:
        return await performing.keep_result(call, result, began)
    except BaseException as error:  # it has happened, whatever `not_done` says of errors like this one
        return await _may_have_happened(call, error, attempt)


def _has_not_happened(effect: Step, error: BaseException) -> bool:
    """What its author says of what its function has raised. `not_done=(Exception,)` is not meant for Satchel's own
    errors, which say nothing of the effect; naming one of them is."""
    is_own = isinstance(error, SatchelError | AgentStopped)
    return any(isinstance(error, kind) and (not is_own or issubclass(kind, SatchelError)) for kind in effect.not_done)


async def _may_have_happened(call: OpenCall, error: BaseException, attempt: int) -> Any:
    """The result, if it can be found out. Otherwise a person is asked, or the error is raised, and the next attempt
    finds out."""
    scope, effect = call.scope, call.step
    if isinstance(error, asyncio.CancelledError):
        # There is no time to find out: that is for the next attempt.
        scope.context.journal.flush()
        has_ended = call.key in scope.agent.recorded.scopes[scope.key].done
        if not (has_ended or scope.agent.is_closing or scope.context.stopping.drain.forced):
            scope.context.doubts.ask(
                call.identity(), "unknown_outcome", "it was cancelled", needs_person=effect.needs_person
            )
        raise error
    if isinstance(error, StorageFailed) or not isinstance(error, Exception):
        raise error  # the journal tells the next opening how far it has come
    performing.keep_failure(call, error, attempt)
    settled = await _settle(call, said(error))
    if settled:
        return settled.result
    if effect.idempotent and not (effect.retry and effect.retry.comes_back(error, attempt)):
        ask(call, "unknown_outcome", said(error))
    raise error


async def _settle(
    call: OpenCall, cause: str, *, has_key: bool = True, why: Literal["unknown_outcome", "lost"] = "unknown_outcome"
) -> _Answer | None:
    """Find out how an effect in doubt ended: an answer, or None if it may be done now. Otherwise a person is asked.
    `has_key`: it would be done under the same key again."""
    effect = call.step
    if effect.verify is not None:
        began = time.monotonic()
        try:
            result = await verify(effect.verify, call)
        except NotDone as error:
            performing.keep_failure(call, error, not_done=True)
            return None
        except Exception as error:
            cause += f"; verify failed: {said(error)}"
        else:
            return _Answer(await performing.keep_result(call, result, began, how="verified"))
    elif effect.idempotent and has_key:
        call.in_doubt = True
        return None
    ask(call, why, cause)
    return None


async def recheck(call: OpenCall, done: StepCompleted) -> None:
    scope, context = call.scope, call.scope.context
    rechecks, words = context.doubts.rechecks, f"{call.step.name}{call.identity()['call']}"
    place = (scope.agent.path, scope.key, call.key)
    is_asked = any((each.agent, each.scope, each.key) == place for each in context.moment.doubts.values())
    verify = call.step.verify
    if verify is None or may_have_other_key(verify, call):
        if is_asked:
            ask(call, "unknown_outcome", _CONTRADICTED)
        if verify is not None:
            rechecks.unknown.append(f"{words}: {_OTHER_KEY}")
        return
    if rechecks.seconds_left <= 0 and not is_asked:
        rechecks.left_over.append(words)
        return
    began = time.monotonic()
    try:
        seconds = reverify.EACH if is_asked else min(reverify.EACH, rechecks.seconds_left)
        await verify_within(verify, call, seconds)
    except NotDone as error:
        rechecks.put_back(place)
        ask(call, "unknown_outcome", f"{_CONTRADICTED}: {error}")
    except Exception as error:
        rechecks.unknown.append(f"{words}: {said(error)}")
        if is_asked:
            rechecks.put_back(place)
            ask(call, "unknown_outcome", f"{_CONTRADICTED}; now verify failed: {said(error)}")
        return
    finally:
        rechecks.seconds_left -= time.monotonic() - began
    rechecks.verified += 1
    if is_asked:  # this withdraws the question
        await performing.keep(call, blobs.fetch(context.store, done), how="verified")


def ask(
    call: OpenCall, why: Literal["unknown_outcome", "unclaimed", "lost"], cause: str, others: tuple[Key, ...] = ()
) -> None:
    """Put the question on record and stop. A person answers it in approvals/."""
    needs_person = why == "lost" or (why == "unknown_outcome" and call.step.needs_person)
    call.scope.context.doubts.ask(call.identity(), why, cause, others, needs_person)
    raise Suspended
