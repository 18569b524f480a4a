"""`satchel pause`: let runs stop at their next safe point."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import click

from ...workspace import lease, pausefile, pausing, settling, times
from ...workspace.errors import LeaseHeld, SatchelError, UsageError
from ...workspace.looking import Look, look, look_beside
from ...workspace.opening import opened
from ...workspace.record import PauseRequested, Resume, time_text
from ...workspace.report import Report
from ..supervision.child import FORCE_AFTER
from .group import tell
from .output import counting, print_json
from .place import Place, complete_folders, find, json_option, look_again
from .standing import in_force
from .storage import storage_option
from .words import myself, visible

_POLL = 0.1
_MARGIN = 20.0
"""Seconds that a supervisor has for noticing a pause.yaml, and for closing what it has killed."""

_EXAMPLES = """\b
Examples:
  satchel pause my-digest --reason maintenance
  satchel pause my-digest --until 22:30      goes on by itself after that
  satchel pause runs/* --wait                returns when all have stopped
  satchel pause my-digest --resume await_instructions
"""


@click.command("pause", short_help="Stop runs at their next safe point.", epilog=_EXAMPLES)
@click.argument("workspaces", nargs=-1, required=True, metavar="WS...", shell_complete=complete_folders)
@click.option("--reason", default="manual", show_default=True, help="Why: it is shown wherever the run is.")
@click.option("--until", metavar="TIME", help="When it may go on by itself: 22:30, 2026-11-22T21:30:00Z, or 45m.")
@click.option("--resume", type=click.Choice(["continue", "restart_step", "await_instructions"]), default="continue",
              show_default=True, help="How it is to go on.")  # fmt: skip
@click.option("--by", metavar="NAME", help="Who says so. [default: user@host]")
@click.option("--wait", is_flag=True, help="Return only when the runs have stopped.")
@json_option
@storage_option
@click.pass_context
def command(
    ctx: click.Context, workspaces: tuple[str, ...], reason: str, until: str | None, resume: Resume, by: str | None,
    wait: bool, as_json: bool,
) -> None:  # fmt: skip
    """Let the run of each workspace stop at its next safe point: between two steps. What is at work is finished.

    The same as creating a pause.yaml in the workspace. `satchel resume` goes on. Returns at once, unless --wait is
    given; an effect or step that is at work may take its time.
    """
    end = time_text(times.moment_after(until, datetime.now(UTC)).astimezone(UTC)) if until else ""
    request = PauseRequested(reason=reason, by=by or myself(), resume=resume, until=end)
    ask_all(ctx, workspaces, request, wait=wait, as_json=as_json)


def ask_all(
    ctx: click.Context, workspaces: tuple[str, ...], request: PauseRequested, *, wait: bool, as_json: bool
) -> None:  # fmt: skip
    """Ask each of them, say what came of it, and end with the worst exit code."""
    told, code = [], 0
    for typed in workspaces:
        try:
            told.append(_ask(find(typed), typed, request))
        except SatchelError as error:
            code = max(code, tell(error, with_traceback=False))
            told.append({"workspace": typed, "status": "refused", "error": str(error)})
            continue
        if not as_json:
            click.echo(f"{visible(typed)}: {visible(told[-1]['said'])}")
    if wait:
        requested = [each for each in told if each["status"] == "requested"]
        with counting("stopping", len(requested), 1) as count:
            for number, each in enumerate(requested, 1):
                place = find(str(each["workspace"]))
                code = max(code, _wait(place, each))
                if not as_json:
                    click.echo(f"{visible(str(each['workspace']))}: {visible(str(each['said']))}")
                count(number)
    if as_json:
        print_json(told)
    ctx.exit(code)


def _ask(place: Place, typed: str, request: PauseRequested) -> dict[str, Any]:
    store = place.store
    seen = look_beside(store)
    moment = seen.moment
    if moment.is_finished or moment.status == "cancelled":
        raise UsageError("was cancelled already" if moment.status == "cancelled" else "has completed already",
                         path=store.url, remedy="there is nothing to stop")  # fmt: skip
    holder = lease.holder(store)
    if moment.pause is not None and moment.pause.paused_at and moment.clean:
        wanted = pausing.wish(store, moment)
        # A process that has it waits for the end of a short pause, and takes no other.
        if wanted is not None and (pausing.suffices(wanted, request) or (holder and request.mode == "drain")):
            said = f"paused already ({pausing.said(moment.pause)})"
            return {"workspace": typed, "status": moment.status, "said": said}
    pausing.ask(store, request, moment)
    if holder is None:
        try:
            return {"workspace": typed, **_settle(seen, place, request)}
        except LeaseHeld:  # somebody has started it at this moment
            holder = lease.holder(store)
    who = holder.process if holder else "the process that has it"
    mistake = f" ({in_force(seen.mistake)})" if seen.mistake else ""
    return {"workspace": typed, "status": "requested", "said": f"{who} stops at its next safe point{mistake}"}


def _settle(seen: Look, place: Place, request: PauseRequested) -> dict[str, Any]:
    """Nobody runs it: it is at rest, and only has to be said."""
    store, moment = place.store, seen.moment
    if request.mode == "cancel":
        return _cancel(place)
    with opened(store, "pause", Report()) as workspace:
        wanted = pausing.wish(store, workspace.moment)
        assert wanted is not None
        pausing.stop(workspace, wanted)
        workspace.close("paused", request.reason)
    was = "; it had not begun" if moment.seq == 0 else ""
    return {"status": "paused", "said": f"paused{was}; `{place.command('resume')}` goes on"}


def _cancel(place: Place) -> dict[str, Any]:
    """What the agent may have to undo only running it can tell; without that, it ends here."""
    store = place.store
    with opened(store, "pause", Report()) as workspace:
        wanted = pausing.wish(store, workspace.moment)
        assert wanted is not None
        pausing.add_end(workspace, wanted, "")
        workspace.journal.flush()
        if pausing.may_have_to_undo(workspace.moment):
            workspace.close()
            said = f"to be cancelled; `{place.command('run')}` lets its agent undo what it has to"
            return {"status": "paused", "said": said}
        workspace.close("cancelled", workspace.moment.pause.reason if workspace.moment.pause else "")
        settling.remove(store, pausefile.PATH, wanted.version)
    return {"status": "cancelled", "said": "cancelled"}


def _wait(place: Place, told: dict[str, Any]) -> int:
    """Wait until the run has stopped, and put into `told` how. Returns the exit code: 1 if it has not stopped in the
    time in which its supervisor would have killed it."""
    store = place.store
    definition = look_beside(store).definition
    limit = definition.drain_timeout + FORCE_AFTER + _MARGIN if definition.drain_then == "force" else float("inf")
    began, free_since = time.monotonic(), float("inf")
    while True:
        now, holder = time.monotonic(), lease.holder(store)
        free_since = min(free_since, now) if holder is None else float("inf")
        # Once the process is killed, its supervisor closes the workspace, unless that has died, too.
        if holder is None and (
            (moment := look(store, described=definition).moment).clean or now > free_since + _MARGIN
        ):
            told["status"] = moment.status if moment.clean else "interrupted"
            told["said"] = told["status"]
            return 0
        if holder is not None and now > began + limit:
            told["said"] = f"{holder.process} has not stopped in {limit:.0f} s; `{place.command('stop')}` kills it"
            return 1
        look_again(store, _POLL)
