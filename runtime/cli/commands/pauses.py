"""`satchel pause`, `cancel` and `stop`: at the next safe point, for good, or at once."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click
from msgspec import Struct
from msgspec.structs import asdict

from ....workspace.base import Resume, SatchelError, UsageError, moment_after, visible
from ...api import Handle, PauseResult, open_all, stop_all
from ...present import counted
from ..group import tell_error
from ..options import (
    all_option,
    by_option,
    complete_folders,
    find,
    given,
    json_option,
    storage_option,
    tell,
    yes_option,
)
from ..output import counting, listed, print_json

if TYPE_CHECKING:
    from ...supervision import StopResult  # only an emergency needs it

_PAUSE_EXAMPLES = """\b
Examples:
  satchel pause my-digest --reason maintenance
  satchel pause my-digest --until 22:30      resumes by itself after that
  satchel pause runs/* --wait                returns when all have stopped
  satchel pause my-digest --resume await_instructions
"""


@click.command("pause", epilog=_PAUSE_EXAMPLES)
@click.argument("workspaces", nargs=-1, required=True, metavar="WS...", shell_complete=complete_folders)
@click.option("--reason", default="manual", show_default=True, help="Why the run stops. `satchel status` shows it.")
@click.option("--until", metavar="TIME", help="When the run resumes by itself: 22:30, 2026-11-22T21:30:00Z, or 45m.")
@click.option(
    "--resume",
    type=click.Choice(["continue", "restart_step", "await_instructions"]),
    default="continue",
    show_default=True,
    help="How the run resumes.",
)
@by_option
@click.option("--wait", is_flag=True, help="Return only when the runs have stopped.")
@json_option
@storage_option
@click.pass_context
def pause_command(
    ctx: click.Context,
    workspaces: tuple[str, ...],
    reason: str,
    until: str | None,
    resume: Resume,
    by: str | None,
    wait: bool,
    as_json: bool,
) -> None:
    """Stop the run of each workspace at its next safe point: between two steps. Steps that are running finish first.

    This does the same as a pause.yaml that you create in the workspace. `satchel resume` continues the run. The command
    returns at once, unless you give --wait: a running step or effect can take a while.
    """
    end = moment_after(until, datetime.now(UTC)) if until else None
    code = ask_all(
        workspaces,
        lambda place: place.pause(reason=reason, until=end, resume=resume, by=by),
        wait=wait,
        as_json=as_json,
    )
    ctx.exit(code)


class _Told(Struct):
    """The result for one workspace."""

    typed: str
    place: Handle | None = None
    stopping: PauseResult | None = None
    error: SatchelError | None = None

    @property
    def url(self) -> str:
        return self.place.url if self.place else self.typed

    def say(self, as_json: bool) -> None:
        if self.stopping and not as_json:
            click.echo(f"{visible(self.typed)}: {visible(self.stopping.said)}")

    def as_json(self) -> dict[str, str]:
        if self.stopping is None:
            return {"url": self.url, "status": "refused", "error": str(self.error)}
        return {"url": self.url, "status": self.stopping.status, "said": self.stopping.said}


def ask_all(workspaces: tuple[str, ...], ask: Callable[[Handle], PauseResult], *, wait: bool, as_json: bool) -> int:
    """Ask all of them to stop before waiting for the first. Returns the worst exit code."""
    found, code = [_Told(typed) for typed in workspaces], 0
    for told in found:
        try:
            told.place = find(told.typed)
            told.stopping = ask(told.place)
            told.say(as_json)
        except SatchelError as error:
            code, told.error = max(code, tell_error(error, with_traceback=False)), error
    if wait:
        requested = [told for told in found if told.stopping and not told.stopping.is_over]
        with counting("stopping", len(requested), 1) as count:
            for number, told in enumerate(requested, 1):
                assert told.place
                told.stopping = told.place.wait()
                code = max(code, 0 if told.stopping.is_over else 1)
                told.say(as_json)
                count(number)
    if as_json:
        print_json([told.as_json() for told in found])
    return code


_CANCEL_EXAMPLES = """\b
Examples:
  satchel cancel my-digest --reason "not needed any more"
  satchel cancel --yes runs/*
"""


@click.command("cancel", epilog=_CANCEL_EXAMPLES)
@click.argument("workspaces", nargs=-1, required=True, metavar="WS...", shell_complete=complete_folders)
@click.option("--reason", default="cancelled", show_default=True, help="Why.")
@by_option
@yes_option
@click.option("--wait", is_flag=True, help="Return only when the runs have ended.")
@json_option
@storage_option
@click.pass_context
def cancel_command(
    ctx: click.Context, workspaces: tuple[str, ...], reason: str, by: str | None, yes: bool, wait: bool, as_json: bool
) -> None:
    """End the run of each workspace for good, at its next safe point.

    Like a pause, but final. If the agent has an `on_cancel`, that undoes what must not stay half done. The results so
    far stay in the folder.
    """
    if not (yes or as_json):
        click.confirm(f"End {counted(len(workspaces), 'run')} for good?", abort=True)
    ctx.exit(ask_all(workspaces, lambda place: place.cancel(reason=reason, by=by), wait=wait, as_json=as_json))


_STOP_EXAMPLES = """\b
Examples:
  satchel stop my-digest
  satchel stop --all ~/runs --reason "wrong recipients"

\b
Exit codes: 0 no process runs any more, 1 a process may still run.
"""


@click.command("stop", epilog=_STOP_EXAMPLES)
@click.argument("workspaces", nargs=-1, metavar="[WS]...", shell_complete=complete_folders)
@all_option("All workspaces under ROOT (default: the current folder).")
@click.option("--reason", default="emergency", metavar="TEXT", help="Why. `satchel status` shows it.")
@json_option
@storage_option
@click.pass_context
def stop_command(ctx: click.Context, workspaces: tuple[str, ...], root: str | None, reason: str, as_json: bool) -> None:
    """Kill the processes of these workspaces at once, in the middle of a step, with all processes that they started. No
    run restarts by itself.

    Writes a pause.yaml first. `satchel resume` continues the run and verifies more than usual, because interrupted
    effects may be in doubt. To stop at the next safe point, use `satchel pause`.

    --all leaves alone what has never begun, and what a person has paused. `satchel resume --all ROOT --stopped-by
    REASON` undoes it.
    """
    if root is not None and workspaces:
        raise UsageError("name workspaces, or --all and a folder, not both")
    if root is None:
        found = stop_all([find(typed) for typed in workspaces or (None,)], reason=reason)
    else:
        found = stop_all(open_all(root, storage_options=given(), tell=tell), reason=reason)
    if as_json:
        print_json([*map(asdict, found)])
    else:
        begun = [each for each in found if each.how != "new"]
        for each in begun:
            click.echo(_stopped_line(each))
        if root is not None:
            _tell_stopped(root, found, reason)
    ctx.exit(1 if any(each.how not in ("stopped", "idle", "new") for each in found) else 0)


def _tell_stopped(root: str, found: list[StopResult], reason: str) -> None:
    if not found:
        click.echo(f"no workspaces under {visible(root)}", err=True)
        return
    from ...present import stop_counts

    click.echo(f"of {counted(len(found), 'workspace')} under {visible(root)}: {stop_counts(found)}", err=True)
    if any(each.how in ("stopped", "elsewhere") or (each.how == "idle" and not each.said) for each in found):
        undo = shlex.join(["satchel", "resume", "--all", root, "--stopped-by", reason])
        click.echo(f"to undo it: {visible(undo)}", err=True)


def _stopped_line(stopped: StopResult) -> str:
    from ...present import STOPS, colour  # with all of a status; the kill comes first

    word = "not stopped" if stopped.how == "failed" else stopped.how
    killed = [str(pid) for pid in stopped.killed]
    said = f" ({'process' if len(killed) == 1 else 'processes'} {listed(killed)} killed)" if killed else ""
    if stopped.how == "idle" and stopped.said:
        said = f" ({stopped.said})"
    elif stopped.how == "idle":
        said = " (nothing was running; only a person can start it now)"
    elif stopped.how == "elsewhere":
        said = f" ({stopped.said}; that process reads pause.yaml within one poll)"
    elif stopped.said:
        said += f": {stopped.said}"
    return f"{click.style(f'{word:<12}', fg=colour(STOPS[stopped.how][1]))}{visible(stopped.url)}{visible(said)}"
