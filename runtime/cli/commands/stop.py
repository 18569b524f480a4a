"""`satchel stop`: the emergency stop."""

from __future__ import annotations

import click

from ....workspace.base import UsageError
from ...control import open_all, stop_all
from ...supervision.emergency import Stopped
from ..options.place import complete_folders, find, json_option, tell
from ..options.storage import given, storage_option
from ..render.output import print_json
from ..render.words import listed, visible

_WORDS = {
    "stopped": ("stopped", "red"),
    "idle": ("idle", "green"),
    "elsewhere": ("elsewhere", "yellow"),
    "draining": ("draining", "yellow"),
    "failed": ("not stopped", "red"),
}

_EXAMPLES = """\b
Examples:
  satchel stop my-digest
  satchel stop --all ~/runs --reason "wrong recipients"

\b
Exit codes: 0 no process runs any more, 1 a process may still run.
"""


@click.command("stop", epilog=_EXAMPLES)
@click.argument("workspaces", nargs=-1, metavar="[WS]...", shell_complete=complete_folders)
@click.option(
    "--all",
    "root",
    metavar="[ROOT]",
    is_flag=False,
    flag_value=".",
    shell_complete=complete_folders,
    help="All workspaces under ROOT (default: the current folder).",
)
@click.option("--reason", default="emergency", metavar="TEXT", help="Why. `satchel status` shows it.")
@json_option
@storage_option
@click.pass_context
def command(ctx: click.Context, workspaces: tuple[str, ...], root: str | None, reason: str, as_json: bool) -> None:
    """Kill the processes of these workspaces at once, in the middle of a step, with all processes that they started. No
    run restarts by itself.

    Writes a pause.yaml first. `satchel resume` continues the run and verifies more than usual, because interrupted
    effects may be in doubt. To stop at the next safe point, use `satchel pause`.
    """
    if root is not None and workspaces:
        raise UsageError("name workspaces, or --all and a folder, not both")
    if root is None:
        found = stop_all([find(typed) for typed in workspaces or (None,)], reason=reason)
    else:
        found = stop_all(open_all(root, storage_options=given(), tell=tell), reason=reason)
    if as_json:
        print_json([{"url": each.url, "how": each.how, "killed": each.killed, "said": each.said} for each in found])
    else:
        for each in found:
            click.echo(_line(each))
        if not found:
            click.echo(f"no workspaces under {visible(root or '')}", err=True)
    ctx.exit(1 if any(each.how not in ("stopped", "idle") for each in found) else 0)


def _line(stopped: Stopped) -> str:
    word, colour = _WORDS[stopped.how]
    killed = [str(pid) for pid in stopped.killed]
    said = f" ({'process' if len(killed) == 1 else 'processes'} {listed(killed)} killed)" if killed else ""
    if stopped.how == "idle":
        said = " (nothing was running; only a person can start it now)"
    elif stopped.how == "elsewhere":
        said = f" ({stopped.said}; that process reads pause.yaml within one poll)"
    elif stopped.said:
        said += f": {stopped.said}"
    return f"{click.style(f'{word:<12}', fg=colour)}{visible(stopped.url)}{visible(said)}"
