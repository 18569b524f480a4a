"""One attempt at a streamed step: it continues the text of earlier attempts, and keeps the text written so far."""

from __future__ import annotations

import asyncio
from functools import partial as bind
from typing import Any

from msgspec import Struct

from ...workspace.journal.records import now
from ...workspace.secrets import RedactedStream
from ...workspace.views import PartialHead
from ...workspace.views import partial_files as partial_file
from ..agent import said
from ..steps import Partial, recover
from .invoking import invoke
from .open_scope import Call, OpenScope
from .stopping import Suspended


class Accepted(Struct, frozen=True):
    """The text of an earlier attempt is the result."""

    text: str


async def once(call: Call) -> Any:
    """One attempt. If it fails, its text is promoted for the next one."""
    scope, step, context = call.scope, call.step, call.scope.context
    context.journal.flush()  # a partial of a scope that the journal does not know could not be promoted
    promoted = scope.recorded.promoted.get(call.key, [])
    # A generator that gets no Partial can't know what there is, so it begins again.
    begins_again = step.shape.partial is None and step.on_partial == "continue"
    recovered, marker = recover(context.store, promoted, "restart" if begins_again else step.on_partial)
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
        path(call),
        head,
        recovered,
        marker,
        watch,
        _hears_nothing if scope.agent.path else context.listening.hears,
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


def _restarted(call: Call) -> str:
    return (
        f"{call.words} has written its answer from the beginning, because it did not read the text that was recovered. "
        "To continue that text, use `out.recovered` or `out.text` in the prompt"
    )


def _tell(call: Call, head: PartialHead, text: str, length: int) -> None:
    context = call.scope.context
    if context.watch:
        context.watch.streamed(head.agent, head.step, length)
    if context.tap:
        context.tap.streamed(head, text, length - len(text))
    if context.observer:
        context.observer.wrote(call, call.out)


def _hears_nothing() -> bool:
    """For a sub-agent, which has no inbox."""
    return False


def path(call: Call) -> str:
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
