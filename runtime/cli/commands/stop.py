"""`satchel stop`: the emergency stop."""

from __future__ import annotations

import shlex
from collections import Counter

import click

from ....workspace.base import UsageError
from ...control import open_all, stop_all
from ...supervision.emergency import Stopped
from ..options.place import all_option, complete_folders, find, json_option, tell
from ..options.storage import given, storage_option
from ..render.output import print_json
from ..render.words import counted, listed, visible

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
@all_option("All workspaces under ROOT (default: the current folder).")
@click.option("--reason", default="emergency", metavar="TEXT", help="Why. `satchel status` shows it.")
@json_option
@storage_option
@click.pass_context
def command(ctx: click.Context, workspaces: tuple[str, ...], root: str | None, reason: str, as_json: bool) -> None:
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
        print_json([{"url": each.url, "how": each.how, "killed": each.killed, "said": each.said} for each in found])
    else:
        begun = [each for each in found if each.how != "new"]
        for each in begun:
            click.echo(_line(each))
        if root is not None:
            _tell_all(root, found, reason)
    ctx.exit(1 if any(each.how not in ("stopped", "idle", "new") for each in found) else 0)


def _tell_all(root: str, found: list[Stopped], reason: str) -> None:
    if not found:
        click.echo(f"no workspaces under {visible(root)}", err=True)
        return
    count = Counter[str](each.how for each in found)
    words = {how: word for how, (word, _) in _WORDS.items()} | {"new": "never begun, left as it is"}
    said = ", ".join(f"{count[how]} {word}" for how, word in words.items() if count[how])
    click.echo(f"of {counted(len(found), 'workspace')} under {visible(root)}: {said}", err=True)
    if any(each.how in ("stopped", "elsewhere") or (each.how == "idle" and not each.said) for each in found):
        undo = shlex.join(["satchel", "resume", "--all", root, "--stopped-by", reason])
        click.echo(f"to undo it: {visible(undo)}", err=True)


def _line(stopped: Stopped) -> str:
    word, colour = _WORDS[stopped.how]
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
    return f"{click.style(f'{word:<12}', fg=colour)}{visible(stopped.url)}{visible(said)}"
