"""`satchel pause`: pause runs at their next safe point."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import click
from msgspec import Struct

from ....workspace.base import Resume, SatchelError, times
from ...control import Handle, Stopping
from ..group import tell
from ..options.place import complete_folders, find, json_option
from ..options.storage import storage_option
from ..render.output import counting, print_json
from ..render.words import visible

_EXAMPLES = """\b
Examples:
  satchel pause my-digest --reason maintenance
  satchel pause my-digest --until 22:30      resumes by itself after that
  satchel pause runs/* --wait                returns when all have stopped
  satchel pause my-digest --resume await_instructions
"""


@click.command("pause", epilog=_EXAMPLES)
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
@click.option("--by", metavar="NAME", help="Who asks for it. [default: user@host]")
@click.option("--wait", is_flag=True, help="Return only when the runs have stopped.")
@json_option
@storage_option
@click.pass_context
def command(
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
    end = times.moment_after(until, datetime.now(UTC)) if until else None
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
    stopping: Stopping | None = None
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


def ask_all(workspaces: tuple[str, ...], ask: Callable[[Handle], Stopping], *, wait: bool, as_json: bool) -> int:
    """Ask all of them to stop before waiting for the first. Returns the worst exit code."""
    found, code = [_Told(typed) for typed in workspaces], 0
    for told in found:
        try:
            told.place = find(told.typed)
            told.stopping = ask(told.place)
            told.say(as_json)
        except SatchelError as error:
            code, told.error = max(code, tell(error, with_traceback=False)), error
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
