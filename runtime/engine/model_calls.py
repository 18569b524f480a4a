"""What a keeper holds for a step: the answers of models that were asked for it and not recorded. Without a keeper these
functions do nothing, and import nothing.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

from ...workspace import journal
from ...workspace.base import KEEPER, AgentError, SatchelError, StorageFailed, usd
from ...workspace.journal import AnswersGrown, Spent
from ...workspace.state import ROOT
from ..agent import Retry
from .context import Context
from .open_scope import OpenCall, current_call

if TYPE_CHECKING:
    from ...workspace.journal import PartialPromoted
    from ...workspace.views import RecoveryMarker
    from ..keeper import Paid, StepAtKeeper


_NONE = (
    "workspace.yaml asks for a keeper, and this process has none, so a kill may cost the answers of models: start the "
    "run with `satchel run`, with `satchel serve` in a process of its own, or in `satchel keeper WS -- COMMAND`"
)


def connect(context: Context) -> None:
    """Find the keeper of this run, if the process was started with one. Blocks. StorageFailed if it does not answer."""
    if context.only is not None or context.rehearsal is not None:
        return
    if os.environ.get(KEEPER):
        from ..keeper import KeeperLink, address_of

        if address := address_of(context.store.url):
            context.keeper = KeeperLink(address, context.moment.run_id, context.moment.epoch, here)
            context.keeper.open(context.moment.anew_since)
            _forgive(context, context.keeper.grown)
            return
    if context.workspace.definition.keeper:
        context.notice("keeper", _NONE)


def _forgive(context: Context, grown: int) -> None:
    """A run whose process crashes again and again comes further while the answers that it waits for do."""
    scopes = (scope for agent in context.moment.agents.values() for scope in agent.scopes.values())
    if grown and any(scope.crashes for scope in scopes):
        context.journal.add(AnswersGrown(answers=grown))
        context.journal.flush()


def record_unused(context: Context) -> None:
    """The run is about to end. Record what it has paid for answers that no step has asked for again. Blocks."""
    if context.keeper is None:
        return
    try:
        found = [each for each in context.keeper.unused() if each.tokens or each.usd]
        counted = _counted(context) if found else set[str]()
    except SatchelError as error:
        context.notice("keeper", f"what was paid for answers that no step has asked for again is not recorded: {error}")
        return
    for each in found:
        if each.id not in counted:
            spent = _spent(each, ROOT)
            context.notice("keeper", f"{spent.unused} was not called again: {_said(each)} are lost")
            context.journal.add(spent)


def _counted(context: Context) -> set[str]:
    """The answers whose cost is on record. The keeper may still have one of them, if the process has died before it
    could tell that the step is over."""
    context.journal.flush()
    lines = journal.read(context.store, after=journal.first_kept(context.store) - 1).lines
    return {line.record.answer for line in lines if isinstance(line.record, Spent)}


def disconnect(context: Context, *, is_over: bool) -> None:
    """The agent has stopped. `is_over`: its run has ended, so no process asks again. Blocks."""
    if context.keeper is not None:
        context.keeper.end(is_over=is_over)


def here() -> StepAtKeeper | None:
    """The step whose function runs in this context."""
    call = current_call.get()
    return call.at_keeper if call is not None else None


async def begin(call: OpenCall) -> None:
    """What this step asks of models is known to be its own from now on, with all its attempts."""
    link, scope = call.scope.context.keeper, call.scope
    if link is None:
        return
    from ..keeper import digest_of_step

    is_private = call.step.shape.codec.has_sealed
    if is_private:
        await link.hide()
    name, args, n = call.key
    budget = scope.context.workspace.definition.budget
    call.at_keeper = link.begin(
        digest_of_step(scope.agent.path, scope.key, name, args, n),
        scope.context.redactor.text(call.words),
        private=is_private,
        may_ask=partial(_may_ask, call) if budget.tokens is not None or budget.usd is not None else None,
    )


@contextmanager
def suspending(call: OpenCall) -> Iterator[None]:
    """If the run stops in the body, the step asks again at its next start."""
    try:
        yield
    except BaseException as error:
        if call.at_keeper is not None and not isinstance(error, Exception):
            call.at_keeper.leave()
        raise


async def recovered(
    call: OpenCall, promoted: list[PartialPromoted], text: str | None, marker: RecoveryMarker | None
) -> tuple[str | None, RecoveryMarker | None]:
    """The text and marker that an attempt begins with. While an answer is kept for the step there are none: an agent
    which puts them into its prompt would not ask for that answer. If the keeper has died, what had arrived there, which
    may be more than the agent has written. A text that a person has corrected counts more than both."""
    step: StepAtKeeper = call.at_keeper
    if promoted and marker is not None and _is_corrected(promoted[-1], text, marker):
        record(call, await step.paid())
        await step.forget(given_up=True)
        return text, marker
    if await step.begins_anew():
        return None, None
    if marker is not None and text is not None and len(step.torn) > len(text) and step.torn.startswith(text):
        return step.torn, marker
    return text, marker


def _is_corrected(last: PartialPromoted, text: str | None, marker: RecoveryMarker) -> bool:
    """Whether a person has changed or removed the text of the last attempt. Without a text the step begins again, as it
    says or because it was cut off too often: what was asked for is still wanted."""
    return last.edited or marker.damaged != last.damaged or (text is not None and len(text) != last.characters)


async def paid(call: OpenCall) -> list[Paid]:
    """What the step has asked of models. If that is nothing, its result is recorded as without a keeper."""
    step: StepAtKeeper | None = call.at_keeper
    if step is None:
        return []
    try:
        found = await step.paid()
    except StorageFailed as error:
        call.scope.context.notice("keeper", f"{call.words}: {error}")
        return []
    if not found and not step.asked:
        if call.has_spent or call.step.fallback or call.step.retry == Retry.model():
            _tell_unseen(call)
        step.leave()
        call.at_keeper = None
    return found


def record(call: OpenCall, found: list[Paid]) -> None:
    """Record what the step has paid for, unless its function has reported that itself. Its result must come into the
    same group of records."""
    scope, context = call.scope, call.scope.context
    known = scope.recorded.spent
    for each in found:
        if each.unused:
            context.notice("keeper", f"{call.words} has asked something else than before: {_said(each)} are lost")
        is_told = call.has_spent and not each.unused  # the function can't tell what it never got
        if is_told or not (each.tokens or each.usd or each.unused) or each.id in known:
            continue
        with suppress(AgentError):  # the run has stopped meanwhile, and can record nothing any more
            context.limits.spend(_spent(each, scope.agent.path, scope.key, call.no), None)


def _spent(paid: Paid, agent: str, scope: str = "", no: int | None = None) -> Spent:
    return Spent(
        agent=agent,
        scope=scope,
        no=no,
        tokens=paid.tokens,
        usd=paid.usd,
        output=paid.output,
        model=paid.model,
        first_ms=int(paid.first * 1000),
        answer=paid.id,
        n=0,
        unused=(paid.words or "a step") if paid.unused else "",
    )


def _tell_unseen(call: OpenCall) -> None:
    link = call.scope.context.keeper
    if link is not None and call.step.name not in link.told_of:
        link.told_of.add(call.step.name)
        call.scope.context.notice(
            "keeper",
            f"the keeper saw no request of {call.step.name}, so a kill may cost its answer: give the client of its "
            "model as `base_url` what OPENAI_BASE_URL, or the variable of its provider, is in this process. Where none "
            "is set, set the provider's own address or its key before you start the run",
        )


def _said(paid: Paid) -> str:
    money = f", {usd(paid.usd)}" if paid.usd else ""
    return f"{paid.tokens} tokens{money} of {paid.model or 'a model'}"


async def forget(call: OpenCall, *, given_up: bool = False) -> None:
    """The result is durable. `given_up`: there is none."""
    if call.at_keeper is not None:
        await call.at_keeper.forget(given_up=given_up)


async def settled(context: Context) -> None:
    """Wait until what cancelled steps have paid for is recorded."""
    if tasks := [task for task, of in _cancelled.items() if of is context]:
        await asyncio.wait(tasks, timeout=_PATIENCE)


async def settle(call: OpenCall, *, is_waited: bool = True) -> None:
    """The step has failed, or was cancelled: what it has paid for counts, and a new attempt asks again. A cancelled one
    is not waited for."""
    if call.at_keeper is None:
        return
    if is_waited:
        record(call, await paid(call))
        await forget(call, given_up=True)
    else:
        task = asyncio.get_running_loop().create_task(settle(call))
        _cancelled[task] = call.scope.context
        task.add_done_callback(_cancelled.pop)


_cancelled = dict[asyncio.Task[None], Context]()

_PATIENCE = 20.0
"""Seconds, more than a keeper gets to answer."""


def _may_ask(call: OpenCall, step: StepAtKeeper) -> None:
    """Before a request leaves, in a thread: Suspended if the budget is used up by what was asked before."""
    tokens, usd = 0, 0.0
    if step.asked:
        from ..keeper import sums

        with suppress(StorageFailed):
            tokens, usd = sums(step.paid_now())
    call.scope.context.on_loop(partial(_stop, call, tokens, usd))


def _stop(call: OpenCall, tokens: int, usd: float) -> None:
    if call.scope.context.limits.stop_if_beyond(tokens, usd):
        call.scope.agent.check_going_on()
