"""Perform a step with its retries and fallback models, and record the outcome. Each attempt calls its function, in a
thread if it is not async. A streamed attempt continues the text of earlier ones, and keeps the text written so far. An
exception is recorded so that a re-entry can raise it again.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from functools import partial as bind
from functools import reduce
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from ...workspace.base import AgentError, NotDone, NotSerializable, RecordedError, SatchelError
from ...workspace.formats import decoder
from ...workspace.journal import NOTHING, Failure, StepCompleted, StepFailed, StepProgress, StepRetry, blobs, now
from ...workspace.secrets import RedactedStream, scrub
from ...workspace.views import PartialHead
from ...workspace.views import partial_files as partial_file
from ..agent import (
    ANYTHING,
    MODEL,
    ONCE,
    Partial,
    brief,
    encode,
    is_limited,
    is_mistake,
    of_storage,
    recover,
    round_trip,
    said,
    where,
)
from ..live import Suspended
from . import model_calls, open_scope
from .open_scope import OpenCall, OpenScope, current_call

_LONGEST = 16 << 10
"""Bytes of the arguments of an exception, and of each attribute, that are kept."""

_members = decoder(list[Failure])


async def invoke(call: OpenCall, injected: Mapping[str, Any] = MappingProxyType({})) -> Any:
    """Run the function of a call, in a thread if it is not async. `injected`: the arguments that Satchel fills in."""
    scope, step = call.scope, call.step
    call.counts, call.made, call.ended = {}, None, False
    drain = scope.context.stopping.drain
    try:
        with (drain.held if step.is_effect else drain.working)(call):  # never between an effect's two halves
            result = await _invoke(call, injected)
    except (Exception, asyncio.CancelledError) as error:
        if redactor := scope.context.redactor:  # so that the agent gets what a re-entry gets
            scrub(error, redactor)
        if call.was_stopped:
            raise scope.agent.stopped() from error
        raise
    if call.was_stopped:
        raise scope.agent.stopped()  # its return value is incomplete, because calls were refused
    return result


async def _invoke(call: OpenCall, injected: Mapping[str, Any]) -> Any:
    scope, step = call.scope, call.step
    token = current_call.set(call)
    try:
        arguments = {**call.arguments, MODEL: call.model} if call.model else call.arguments
        if step.shape.run:
            injected = {**injected, step.shape.run: scope.agent.run}
        args, kwargs = step.shape.unbind(arguments, injected)
        if step.is_async:
            result = await step.function(*args, **kwargs)
        elif step.is_generator and call.out is not None:
            result = await _joined(step.function(*args, **kwargs), call.out)
        else:
            result = await scope.work.in_thread(bind(step.function, *args, **kwargs))
        if call.made is not None and step.is_effect:
            scope.work.made.take(call.made)  # it has happened, which is more important
        elif call.made is not None:
            await call.made.settle()
            call.made.check(step.name, scope.context.store.url)
        return result
    finally:
        call.ended = True
        current_call.reset(token)


async def _joined(parts: AsyncGenerator[str, None], out: Partial) -> str:
    """The whole text of a generator, after what an earlier attempt has left in `out`."""
    async with aclosing(parts):
        async for part in parts:
            await out.write(part)
    return out.text


class Accepted(Struct, frozen=True):
    """The text of an earlier attempt is the result."""

    text: str


async def stream_once(call: OpenCall) -> Any:
    """One attempt. If it fails, its text is promoted for the next one."""
    scope, step, context = call.scope, call.step, call.scope.context
    context.journal.flush()  # a partial of a scope that the journal does not know could not be promoted
    promoted = scope.recorded.promoted.get(call.key, [])
    # A generator that gets no Partial can't know what there is, so it begins again.
    begins_again = step.shape.partial is None and step.on_partial == "continue"
    recovered, marker = recover(context.store, promoted, "restart" if begins_again else step.on_partial)
    if call.at_keeper is not None and not begins_again:
        recovered, marker = await model_calls.recovered(call, promoted, recovered, marker)
    if recovered and step.on_partial == "accept":
        return Accepted(f"{recovered}\n\n{marker}")
    call.recovered = len(recovered or "")
    name, args, n = call.key
    head = PartialHead(
        run_id=context.moment.run_id,
        agent=scope.agent.path,
        scope=scope.key,
        no=call.no,
        step=name,
        args=args,
        n=n,
        attempt=promoted[-1].attempt + 1 if promoted else 1,
        at=now(),
        call=call.identity()["call"],
    )
    if context.tap and recovered:
        context.tap.streamed(head, recovered, 0)
    watch = bind(_tell, call, head) if context.watch or context.tap or context.observer else None
    out = Partial(
        context.store,
        context.workspace.behind,
        context.projector,
        partial_path(call),
        head,
        recovered,
        marker,
        watch,
        (lambda: False) if scope.agent.path else context.listening.hears,  # a sub-agent has no inbox
        RedactedStream(context.redactor) if context.redactor else None,
        is_continued=step.declares_partial,
    )
    try:
        call.out = out
        result = await invoke(call, {step.shape.partial: out} if step.shape.partial else {})
        out.end()
        call.interrupted = out.was_interrupted
        if out.has_restarted:
            call.recovered, call.restarted = 0, True
            context.notice("restarted", _restarted(call))
        return result
    except BaseException as error:
        out.file.write()
        if isinstance(error, Suspended) or not isinstance(error, Exception | asyncio.CancelledError):
            raise
        if context.stopping.drain.forced:
            raise  # stopped in the middle; the next opening promotes it
        if out.has_new:
            _promote(scope, out, context.redactor.text(said(error)))
        else:  # refused before it began, for example by a rate limit: the earlier text is still the latest
            out.file.remove()
        raise
    finally:
        out.ended = True
        context.projector.drop(out.file)


def _restarted(call: OpenCall) -> str:
    return (
        f"{call.words} has written its answer from the beginning, because it did not read the text that was recovered. "
        "To continue that text, use `out.recovered` or `out.text` in the prompt"
    )


def _tell(call: OpenCall, head: PartialHead, text: str, length: int) -> None:
    context = call.scope.context
    if context.watch:
        context.watch.streamed(head.agent, head.step, length)
    if context.tap:
        context.tap.streamed(head, text, length - len(text))
    if context.observer:
        context.observer.wrote(call, call.out)


def partial_path(call: OpenCall) -> str:
    """The file of a streamed answer."""
    scope = call.scope
    return partial_file.partial_path(scope.agent.folder, scope.key, scope.title, call.no, call.step.name)


def _promote(scope: OpenScope, out: Partial, by: str) -> None:
    head, store = out.file.head, scope.context.store
    recovered = partial_file.recovered_path(
        scope.agent.folder, scope.key, scope.title, head.no, head.step, head.attempt
    )
    data, record = partial_file.promotion(head, out.shown, False, by, recovered)
    store.replace(recovered, data)
    scope.context.journal.add(record)
    scope.context.journal.flush()
    out.file.remove()


_TURN = 0.2
_SLACK = 0.1
"""A call that was cancelled waits so many seconds longer than it did then, so that the same timeout comes first."""


async def perform(call: OpenCall) -> Any:
    """Run a step, and record its result or its last exception."""
    scope, step = call.scope, call.step
    before = scope.recorded.failed.get(call.key)  # the agent has cancelled it in an earlier attempt at its scope
    began = time.monotonic()
    try:
        if before is not None:
            await _wait(call, before.ms / 1000)
        open_scope.check_not_revoked(call)
        await model_calls.begin(call)
        with model_calls.suspending(call):
            result = await _tried(call)
    except asyncio.CancelledError as error:
        if not isinstance(error, Suspended) and not scope.is_stopping:
            ms = int((time.monotonic() - began) * 1000)
            keep_failure(call, error, final=True, cancelled=True, ms=ms)
            await model_calls.settle(call, is_waited=False)
        raise
    except Exception:
        await model_calls.settle(call)
        raise
    if isinstance(result, Accepted):
        return await keep(call, encode(result.text, step.name), how="accepted")
    how = "interrupted" if call.interrupted else "restarted" if call.restarted else "returned"
    model_calls.record(call, await model_calls.paid(call))
    answer = await keep_result(call, result, began, how=how)
    await model_calls.forget(call)
    if step.shape.is_streamed:
        scope.context.tally.recovered += call.recovered
        path = partial_path(call)
        scope.context.workspace.behind.do(path, lambda: scope.context.store.remove(path))
    return answer


async def _wait(call: OpenCall, seconds: float) -> None:
    """Wait for the agent to cancel the call again, because the record shows what it did after that. A stop does not
    wait for this."""
    end = time.monotonic() + seconds + _SLACK
    while (left := end - time.monotonic()) > 0:
        await asyncio.sleep(min(left, _TURN))
        call.scope.check_going_on()


async def _tried(call: OpenCall) -> Any:
    """Try with the retries of each model. If one of them has only asked for a long wait, the run sleeps until then."""
    scope, step = call.scope, call.step
    once: Callable[[Any], Awaitable[Any]] = stream_once if step.shape.is_streamed else invoke
    models = ("", *step.fallback)
    waits: list[float] = []
    failure: Exception | None = None

    async def attempt(number: int) -> Any:
        scope.work.resting.discard(call)
        call.began = time.monotonic()
        if number > 1 or call.model:
            scope.check_going_on()
            call.check_unchanged()
            open_scope.check_not_revoked(call)
        return await once(call)

    def failed(error: BaseException, number: int) -> None:
        comes_back = step.retry is not None and step.retry.comes_back(error, number)
        is_last = is_mistake(error) or (call.model == models[-1] and not comes_back and not waits)
        keep_failure(call, error, number, final=is_last and is_recorded(error))

    for model in models:
        call.model = model
        try:
            return await (step.retry or ONCE).run(attempt, failed, bind(keep_retry, call))
        except Exception as error:
            if is_mistake(error):
                raise
            failure = error
            if step.retry and (wait := step.retry.too_long(error)) is not None:
                waits.append(wait)
    if waits:
        scope.context.stopping.sleep(min(waits), f"{step.name} was told to try again later")
    assert failure
    raise failure


# The outcome of a call, as a record


async def keep_result(call: OpenCall, result: Any, began: float, **facts: Any) -> Any:
    """Record a result; it is durable when this returns. Returns the value in the form of a recorded one."""
    what = f"the result of {call.step.name}"
    data = encode(result, what)
    round_trip.check_private(result, call.step.shape.codec, what)
    return await keep(call, data, ms=int((time.monotonic() - began) * 1000), **facts)


async def keep(call: OpenCall, data: bytes, *, soon: bool = False, **facts: Any) -> Any:
    """Record a result as it is. `soon`: it need not be durable when this returns, only before later records."""
    scope, context = call.scope, call.scope.context
    data = context.redactor.json(data)
    answer, data = call.step.shape.codec.returned(data)
    kept = blobs.keep(context.store, data, context.journal.generation)
    effect = call.step.is_effect
    context.journal.add(
        StepCompleted(
            **call.identity(),
            arguments=call.cut_arguments(),
            result=kept.result,
            blob=kept.blob,
            effect=effect,
            model=call.model,
            schema=context.schemas.name(call.step, keeps_unknown=scope.agent.keeps_unknown),
            **facts,
        )
    )
    # A streamed answer's file is removed once it is recorded, and what a keeper holds, so these are waited for.
    is_free = not effect and not call.step.shape.is_streamed and call.at_keeper is None
    if (scope.agent.pipelined or soon) and is_free:
        context.pace.flush_soon(scope.agent.files)
        return answer
    await scope.durable()
    context.pace.step_is_done(scope.agent.files)
    return answer


def keep_failure(call: OpenCall, error: BaseException, attempt: int = 1, *, final: bool = False, **facts: Any) -> None:
    """Record that a call has raised; `final`: for good. Durable with the next commit."""
    scope = call.scope
    failure = recorded_failure(error) if final and isinstance(error, Exception) else brief(error)
    failure = replace(failure, where=where(error, scope.context.store.url))
    if call.began:
        facts.setdefault("ms", int((time.monotonic() - call.began) * 1000))
    if facts.get("cancelled"):
        scope.numbering.cancel(call.key)
    # A handled failure before an error of the function's own would lead to that error again.
    inner = open_scope.raising_calls(error, call.place) or [
        key for key in scope.recorded.failed if key[:2] in call.counts
    ]
    scope.context.journal.add(
        StepFailed(
            **call.identity(),
            arguments=call.cut_arguments(),
            error=failure,
            attempt=attempt,
            effect=call.step.is_effect,
            final=final,
            calls=tuple(inner),
            schema=scope.context.schemas.name(call.step, keeps_unknown=scope.agent.keeps_unknown),
            **facts,
        )
    )
    scope.context.pace.flush_later()


def keep_retry(call: OpenCall, error: BaseException, attempt: int, wait: float) -> None:
    """Record that a call is tried again, and tell who watches the run. Durable in a moment, for who looks at it."""
    context = call.scope.context
    wait = round(wait, 3)
    limited = is_limited(error)
    context.journal.add(StepRetry(**call.identity(), error=brief(error), attempt=attempt, wait=wait, limited=limited))
    context.pace.flush_later()
    call.scope.work.rest(call)
    if context.watch:
        context.watch.noticed("retry", f"{call.step.name}: asking again in {wait:.3g} s: {said(error)}")


async def keep_progress(call: OpenCall, value: Any) -> None:
    """Record how far the function of a call has come. AgentError once it has returned."""
    if call.ended:
        late = f"run.progress() was called after {call.words} had returned"
        raise AgentError(late, remedy="await every task of a step before it returns")
    data = encode(value, "the progress")
    round_trip.check(ANYTHING, value, "the progress")  # this attempt has the value itself, the next what comes back
    scope = call.scope
    scope.context.journal.add(StepProgress(**call.identity(), value=Raw(data)))
    await scope.durable()
    scope.context.limits.look()
    scope.agent.check_going_on()


# Exceptions of calls: how they are recorded, and made again at a re-entry


def is_recorded(error: BaseException) -> bool:
    """Satchel's own errors are not recorded: they occur again by themselves, or end the run."""
    is_own = isinstance(error, SatchelError) and not isinstance(error, NotDone)
    return isinstance(error, Exception) and not is_own and of_storage(error) is None


def recorded_failure(error: Exception) -> Failure:
    """The parts of an exception that can be recorded."""
    kinds = [kind for kind in type(error).__mro__ if issubclass(kind, Exception)]
    types = tuple(f"{kind.__module__}:{kind.__qualname__}" for kind in kinds)
    if isinstance(error, ExceptionGroup):
        members = msgspec.json.encode([recorded_failure(each) for each in error.exceptions])
        return replace(brief(error), message=error.message, types=types, members=Raw(members))
    attributes = {
        name: value for name, value in vars(error).items() if name != open_scope.RAISED_BY and _is_json(value)
    }
    args = [*(OSError.__reduce__(error)[1] if isinstance(error, OSError) else error.args)]  # with the names of files
    return replace(
        brief(error),
        types=types,
        args=Raw(encode(args, "args")) if _is_json(args) else NOTHING,
        attributes=Raw(encode(attributes, "attributes")) if attributes else NOTHING,
    )


def recorded_error(failure: Failure) -> Exception:
    """The exception: of its own class if an equal one can be made, else a RecordedError of that class or the nearest
    base class."""
    kinds = [kind for kind in map(_known, failure.types) if kind is not None]
    ways = [bind(_made, kind) for kind in kinds[:1] if _known(failure.types[0]) is kind]
    for way in [*ways, *(bind(_recorded, kind) for kind in kinds)]:
        with suppress(Exception):  # the class itself may raise anything
            return way(failure)
    error = RecordedError(failure.message)
    error.__dict__["said"] = failure.message
    return error


def _made(kind: type[Exception], failure: Failure) -> Exception:
    if len(failure.members):
        members = [recorded_error(each) for each in _members.decode(failure.members)]
        return kind.__new__(kind, failure.message, members)
    error = kind.__new__(kind, *msgspec.json.decode(failure.args))
    _give_attributes(error, failure)
    if brief(error).message != failure.message:
        raise ValueError("it says something else")
    return error


def _recorded(kind: type[Exception], failure: Failure) -> Exception:
    bases = (RecordedError,) if kind is Exception else (RecordedError, kind)
    module, _, name = failure.types[0].rpartition(":") if failure.types else ("", "", failure.kind)
    made: type[Exception] = type(name.rpartition(".")[2] or "RecordedError", bases, {"__module__": module})
    error = made.__new__(made, failure.message)
    _give_attributes(error, failure)
    error.__dict__["said"] = failure.message
    str(error)
    return error


def _give_attributes(error: Exception, failure: Failure) -> None:
    if len(failure.attributes):
        error.__dict__.update(msgspec.json.decode(failure.attributes, type=dict[str, Any]))


def _known(name: str) -> type[Exception] | None:
    """A class by its name, if the process has already imported it."""
    module, _, path = name.partition(":")
    found = reduce(lambda of, part: getattr(of, part, None), path.split("."), sys.modules.get(module))
    return found if isinstance(found, type) and issubclass(found, Exception) else None


def _is_json(value: Any) -> bool:
    """Whether the value is unchanged after a round trip through JSON."""
    try:
        data = encode(value, "")
    except NotSerializable:
        return False
    return len(data) <= _LONGEST and repr(msgspec.json.decode(data)) == repr(value)
