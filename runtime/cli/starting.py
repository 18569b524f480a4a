"""How `run` and `resume` are started: in this process, under a supervisor, or in the background."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

import click

from ...workspace import times
from ...workspace.errors import SatchelError, UsageError
from .. import uplink
from ..interruption import release
from ..supervision import lifeline
from ..supervision.background import Background, detach
from ..supervision.child import EXIT_CODES
from ..supervision.supervisor import Order, supervise
from . import going, takeover
from .output import print_json
from .place import Place, find, json_option, workspace_argument
from .words import one_line, visible

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Wish:
    """What was typed. The fields are the parameters of the commands."""

    workspace: str | None
    as_json: bool
    traceback: bool
    quiet: bool
    accept_drift: bool
    in_process: bool
    detach: bool
    drain_timeout: float | None  # seconds
    supervised: str | None
    take_over: bool
    adopt: bool
    from_checkpoint: bool = False  # of resume

    def words(self, command: str) -> list[str]:
        """The command line of the child."""
        flags = {
            "--json": self.as_json, "--traceback": self.traceback, "--quiet": self.quiet,
            "--accept-drift": self.accept_drift, "--from-checkpoint": self.from_checkpoint and command == "resume",
            "--take-over": self.take_over, "--adopt": self.adopt,
        }  # fmt: skip
        return [command, *(flag for flag, is_on in flags.items() if is_on), *self._patience, *self._place]

    def words_to_detach(self, command: str) -> list[str]:
        """The command line of a supervisor in the background, which says for people what it does."""
        flags = [*["--traceback"] * self.traceback, *["--accept-drift"] * self.accept_drift]
        flags += ["--from-checkpoint"] * self.from_checkpoint + ["--take-over"] * self.take_over
        flags += ["--adopt"] * self.adopt
        return [command, *flags, *self._patience, *self._place]

    @property
    def _patience(self) -> list[str]:
        return ["--drain-timeout", str(self.drain_timeout)] if self.drain_timeout is not None else []

    @property
    def _place(self) -> list[str]:
        return ["--", self.workspace] if self.workspace is not None else []


class Length(click.ParamType):  # type: ignore[type-arg]  # generic for the checker only
    """A length of time, `90s`, in seconds."""

    name = "length"

    def convert(self, value: Any, parameter: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            return times.seconds(value)
        except UsageError as error:
            self.fail(f"{error.what}: {error.remedy}", parameter, ctx)


drain_timeout_option = click.option(
    "--drain-timeout", type=Length(), metavar="TIME",
    help="How long a stop waits for what is under way, before it is cut off. Else as workspace.yaml says, or 120s.",
)  # fmt: skip


adopt_option = click.option(
    "--adopt", is_flag=True,
    help="Go on here although this may be a copy of a run that lives elsewhere: make sure that nobody goes on there.",
)  # fmt: skip


def options(function: F) -> F:
    """What `run` and `resume` take; together they are a Wish."""
    for add in (
        click.option("--quiet", "-q", is_flag=True, help="No report and no progress, only what came of it."),
        click.option("--traceback", is_flag=True, help="Show all of an exception of the agent."),
        click.option(
            "--accept-drift",
            is_flag=True,
            help="Go on although code, settings, prompts, packages or models have changed, or a reference is gone.",
        ),
        drain_timeout_option,
        takeover.option,
        adopt_option,
        click.option("--detach", is_flag=True, help="Run it in the background, and return once it is at work."),
        click.option("--in-process", is_flag=True, help="Run it in this process, without one to look after it."),
        click.option("--supervised", hidden=True, help="For Satchel itself: descriptors, supervisor and patience."),
        json_option,
        workspace_argument,
    ):
        function = add(function)
    return function


def start(command: Literal["run", "resume"], wish: Wish) -> int:
    """Start it, and wait for its end unless it is detached. Returns the exit code."""
    if wish.supervised is not None:
        _hold_lifeline(wish.supervised)
    elif not wish.in_process:
        return _beside(command, wish)
    elif wish.detach:
        raise UsageError("--detach and --in-process contradict each other", why="it takes another process")
    elif wish.take_over:
        takeover.confirm(find(wish.workspace))
    return going.go(
        wish.workspace, resuming=command == "resume", for_programs=wish.as_json, quiet=wish.quiet,
        with_traceback=wish.traceback, accept_drift=wish.accept_drift, drain_timeout=wish.drain_timeout,
        from_checkpoint=wish.from_checkpoint, take_over=wish.take_over, adopt=wish.adopt,
        is_child=wish.supervised is not None,
    )  # fmt: skip


def _hold_lifeline(told: str) -> None:
    fd, up, supervisor, patience = told.split(",")
    uplink.hold(int(up), shares_slots=supervisor == "0")
    lifeline.hold(int(fd), float(patience) if patience else None)
    if supervisor != "0":
        lifeline.name_supervisor(int(supervisor))


def _beside(command: str, wish: Wish) -> int:
    """In a process of its own, with this one to look after it, or with another."""
    try:
        place = find(wish.workspace, to_run=True)
        if wish.take_over:
            takeover.confirm(place)
        if wish.detach:
            release()  # nothing of this process has to be stopped in order
            return _tell_detached(place, detach(place.store, wish.words_to_detach(command)), wish.as_json)
        order = Order(wish.words(command), replace(wish, take_over=False, adopt=False).words("run"), wish.drain_timeout)
        supervisor = supervise(place.store, order, _say)
    except SatchelError as error:
        if wish.as_json:
            print_json(going.refused(error))
        raise
    assert supervisor.code is not None
    if supervisor.why:
        _tell_what_the_child_could_not(place, supervisor.code, supervisor.why, wish.as_json)
    return supervisor.code


def _say(line: str) -> None:
    with suppress(OSError):  # of a run in the background it goes to the log, whose disk may be full
        click.echo(f"{click.style('supervisor:', fg='yellow')} {one_line(line)}", err=True)


def _tell_what_the_child_could_not(place: Place, code: int, why: str, as_json: bool) -> None:
    status = next((status for status, its_code in EXIT_CODES.items() if its_code == code), "failed")
    if as_json:
        print_json({"status": status, "exit_code": code, "workspace": place.store.url, "reason": why})
    else:
        click.echo(f"{click.style(status, fg='red' if code == 1 else 'yellow', bold=True)}: {visible(why)}")
    if status in ("paused", "failed"):
        click.echo(f"next: {place.command('resume')}", err=True)


def _tell_detached(place: Place, found: Background, as_json: bool) -> int:
    if as_json:
        print_json({"pid": found.pid, "log": found.log, "exit_code": found.code, "workspace": place.store.url})
        return found.code or 0
    if found.code is not None:
        click.echo(visible(found.said.rstrip()), err=found.code != 0)
        return found.code
    click.echo(f"running in the background: process {found.pid}")
    click.echo(f"  what it says is in {visible(found.log)}", err=True)
    click.echo(f"next: {place.command('status')}", err=True)
    return 0
