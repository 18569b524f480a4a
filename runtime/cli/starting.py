"""How `run` and `resume` start: in this process, under a supervisor, or in the background."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ...workspace.base import SatchelError, UsageError, times
from ...workspace.inspect import lease
from ..control import Handle
from . import adopting, takeover
from .options.place import find, json_option, workspace_argument
from .options.wish import Command, Wish
from .render.output import print_json
from .render.words import one_line, visible

if TYPE_CHECKING:
    from ..control import Supervised
    from ..supervision.child import Background

_WAITING = 4
"""The exit code of a run that waits for a person; see `EXIT_CODES`, which is slow to import."""

F = TypeVar("F", bound=Callable[..., Any])


class Length(click.ParamType):  # type: ignore[type-arg]  # generic for the checker only
    """A length of time, `90s`, in seconds."""

    name = "length"

    def convert(self, value: Any, parameter: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            return times.seconds(value)
        except UsageError as error:
            self.fail(f"{error.what}: {error.remedy}", parameter, ctx)


drain_timeout_option = click.option(
    "--drain-timeout",
    type=Length(),
    metavar="TIME",
    help="How long a stop waits for running work before it interrupts it. Default: workspace.yaml, or 120s.",
)


adopt_option = click.option(
    "--adopt",
    is_flag=True,
    help="Continue here, although this may be a copy of a run elsewhere. Says what is there, and asks at a terminal.",
)


def options(function: F) -> F:
    """The options of `run` and `resume`; together they are a Wish."""
    for add in (
        click.option("--quiet", "-q", is_flag=True, help="Print only the outcome: no report, no progress."),
        click.option("--traceback", is_flag=True, help="Show the full traceback if the agent fails."),
        click.option(
            "--accept-drift",
            is_flag=True,
            help="Continue although code, settings, prompts, packages, models or references changed or are missing.",
        ),
        drain_timeout_option,
        takeover.option,
        adopt_option,
        adopting.end_other_option,
        click.option("--detach", is_flag=True, help="Run in the background, and return when the run has started."),
        click.option("--in-process", is_flag=True, help="Run in this process, without a supervisor process."),
        click.option("--supervised", hidden=True, help="For Satchel itself: descriptors, supervisor and patience."),
        json_option,
        workspace_argument,
    ):
        function = add(function)
    return function


def start(command: Command, wish: Wish) -> int:
    """Start it, and wait for its end unless it is detached. Asks what only the person at the terminal can say, and
    continues. Returns the exit code."""
    while (code := _start(command, wish)) == _WAITING and not (wish.is_supervised or wish.detach or wish.as_json):
        from . import copied  # most runs ask nothing

        if not copied.ask(find(wish.workspace)):
            break
    return code


def _start(command: Command, wish: Wish) -> int:
    if wish.supervised is None:
        if command == "resume" and _withdraws(find(wish.workspace), wish.as_json):
            return 0
        if wish.end_other and not wish.adopt:
            raise UsageError("--end-other needs --adopt", why="the run continues here only if this copy is adopted")
        if wish.adopt:
            adopting.confirm(find(wish.workspace), ends_other=wish.end_other, reaches_out=True)
        if not wish.in_process:
            return _beside(command, wish)
        if wish.detach:
            raise UsageError("--detach and --in-process can't be used together", why="--detach needs another process")
        if wish.take_over:
            takeover.confirm(find(wish.workspace))
    from . import going  # imports the progress display, which a supervisor does not need

    return going.go(command, wish)


def _withdraws(place: Handle, as_json: bool) -> bool:
    """Withdraw a pause that the run has not come to yet. False if there is none, or if the run had stopped before."""
    try:
        if lease.holder(place.store) is None:
            return False
    except (SatchelError, OverflowError):
        return False  # the start itself says what is wrong
    from ..control import is_pausing  # reading a run takes imports, and a start of one that rests needs none of them

    if not is_pausing(place):
        return False
    done = place.withdraw()
    if done.status == "requested":
        raise UsageError(done.said, path=place.url)
    if done.status != "withdrawn":
        return False
    if as_json:
        print_json({"status": done.status, "exit_code": 0, "url": place.url, "said": done.said})
    else:
        click.echo(visible(done.said))
    return True


def _beside(command: Command, wish: Wish) -> int:
    """In another process, supervised by this one, or by another."""
    resuming = command == "resume"
    place = find(wish.workspace)
    if wish.take_over:
        takeover.confirm(place)
    if wish.detach:  # what it prints is for people, in its log
        shown = ["--traceback"] * wish.traceback
        found = place.detach(resume=resuming, options=shown, **wish.how(command))
        return _tell_detached(place, found, wish.as_json)
    ended = place.supervise(resume=resuming, options=wish.shown(), tell=_say, **wish.how(command))
    if ended.why:
        _tell_what_the_child_could_not(place, ended, wish.as_json)
    return ended.exit_code


def _say(line: str) -> None:
    with suppress(OSError):  # in the background it goes to the log, whose disk may be full
        click.echo(f"{click.style('supervisor:', fg='yellow')} {one_line(line)}", err=True)


def _tell_what_the_child_could_not(place: Handle, ended: Supervised, as_json: bool) -> None:
    status, code = ended.status, ended.exit_code
    if as_json:
        print_json({"status": status, "exit_code": code, "url": place.url, "why": ended.why})
    else:
        colour = "red" if code == 1 else "yellow"
        click.echo(f"{click.style(status, fg=colour, bold=True)}: {visible(ended.why)}")
    if status in ("paused", "failed"):
        click.echo(f"next: {place.command('resume')}", err=True)


def _tell_detached(place: Handle, found: Background, as_json: bool) -> int:
    if as_json:
        print_json(
            {"pid": found.pid, "log": found.log, "exit_code": found.exit_code, "said": found.said, "url": place.url}
        )
        return found.exit_code or 0
    if found.exit_code is not None:
        click.echo(visible(found.said.rstrip()), err=found.exit_code != 0)
        return found.exit_code
    click.echo(f"running in the background: process {found.pid}")
    click.echo(f"  its log is {visible(found.log)}", err=True)
    click.echo(f"next: {place.command('status')}", err=True)
    return 0
