"""`satchel new`, `run` and `resume`: from a sample to a run, in this process, under a supervisor or apart."""

from __future__ import annotations

import contextlib
import gc
import shlex
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

import click
import msgspec
from msgspec import Struct

from ....workspace.base import InvalidFile, SatchelError, UsageError, decode, visible
from ....workspace.inspect import lease
from ...api import EXIT_CODES, Handle
from ...present import counted, one_line
from ..options import (
    adopt_option,
    all_option,
    ask_about_copies,
    complete_folders,
    confirm_adoption,
    confirm_take_over,
    drain_timeout_option,
    end_other_option,
    find,
    given,
    is_workspace,
    json_option,
    storage_option,
    take_over_option,
    tell,
    together,
    workspace_argument,
)
from ..output import print_json

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from ...api import SupervisionResult
    from ...supervision import Background


class Object(click.ParamType):  # type: ignore[type-arg]  # generic for the checker only
    """A JSON object, or `-` for one that stdin has."""

    name = "json"

    def convert(self, value: Any, parameter: click.Parameter | None, ctx: click.Context | None) -> dict[str, Any]:
        from ....workspace.formats import jsontext

        try:
            text = decode(sys.stdin.buffer.read(), "standard input") if value == "-" else value
            found = jsontext.load(text, "the input")  # strictly: of a key that is there twice one would be lost
        except InvalidFile as error:
            self.fail(f'{error}. Write a JSON object, as in {{"topic": "tides"}}', parameter, ctx)
        if isinstance(found, dict):
            return found
        self.fail(f'the input is {found!r:.80}. Write a JSON object, as in {{"topic": "tides"}}', parameter, ctx)


_NEW_EXAMPLES = """\b
Examples:
  satchel new --list
  satchel new digest my-digest
  satchel new digest my-digest --set sources=~/notes --set limit=5
  satchel new research my-research --input '{"topic": "tides"}'
  satchel new my-digest other-digest      the same agent, another run
  satchel new digest s3://bucket/my-digest
"""


def _complete_template(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    from ...api import samples

    names = [CompletionItem(each.name) for each in samples() if each.name.startswith(incomplete)]
    return names or complete_folders(ctx, parameter, incomplete)


@click.command("new", epilog=_NEW_EXAMPLES)
@click.argument("source", metavar="TEMPLATE", required=False, shell_complete=_complete_template)
@click.argument("folder", metavar="DEST", required=False, shell_complete=complete_folders)
@click.option("--set", "chosen", metavar="KEY=VALUE", multiple=True, help="Change a setting. You can repeat it.")
@click.option(
    "--input",
    "given_input",
    type=Object(),
    metavar="JSON",
    help="The arguments of the agent, by parameter, for workspace.yaml; - reads them from stdin. Imports the agent.",
)
@click.option("--list", "as_list", is_flag=True, help="List the samples that come with Satchel.")
@json_option
@storage_option
def new_command(
    source: str | None,
    folder: str | None,
    chosen: tuple[str, ...],
    given_input: dict[str, Any] | None,
    as_list: bool,
    as_json: bool,
) -> None:
    """Make the workspace DEST, a folder or URL, from TEMPLATE: a sample, or any folder with a workspace.yaml.

    Copies the definition, code and documents, but never the state of a run. The new run gets its own name.
    """
    from ...api import new, samples, typed_settings  # a start needs none of them

    if as_list:
        _list_samples(as_json)
        return
    if source is None or folder is None:
        raise UsageError(
            "name a template and a folder to make",
            remedy="for example `satchel new digest my-digest`; `satchel new --list` shows the samples",
        )
    known = {each.name for each in samples()}
    if folder in known and source not in known and not is_workspace(source):
        raise UsageError(
            f"there is no template {source!r}, but {folder!r} is one",
            remedy=f"the template comes first: `{shlex.join(['satchel', 'new', folder, source])}`",
        )
    from ....workspace.formats import yamltext

    with contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext():
        made = new(source, folder, input=given_input, settings=typed_settings(chosen), storage_options=given())
    if as_json:
        print_json(msgspec.to_builtins(made))
        return
    run_id = click.style(made.run_id, bold=True)
    click.echo(f"{visible(made.folder)} is the run {run_id}, made from {visible(made.template)}")
    for name, value in made.settings.items():
        click.echo(f"  {one_line(yamltext.dump({name: value}), 100)}")
    click.echo(visible(f"next: {shlex.join(['satchel', 'run', made.folder])}"))


def _list_samples(as_json: bool) -> None:
    from ...api import samples

    found = [(each.name, each.summary()) for each in samples()]
    if as_json:
        print_json([{"name": name, "about": about} for name, about in found])
        return
    for name, about in found:
        click.echo(f"{name:<18}{one_line(about, 100)}".rstrip())


Command = Literal["run", "resume"]


class LaunchOptions(Struct, frozen=True):
    """The fields are the parameters of the commands."""

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
    end_other: bool
    keeper: bool
    from_checkpoint: bool = False  # of resume
    input: dict[str, Any] | None = None  # of run

    @property
    def is_supervised(self) -> bool:
        """This process is the child of a supervisor."""
        return self.supervised is not None

    def shown(self) -> list[str]:
        """The options that say what is printed."""
        flags = {"--json": self.as_json, "--traceback": self.traceback, "--quiet": self.quiet}
        return [flag for flag, is_on in flags.items() if is_on]

    def how(self, command: Command) -> dict[str, Any]:
        """The arguments of `Handle.run` or `Handle.resume`."""
        own = {"from_checkpoint": self.from_checkpoint} if command == "resume" else {"input": self.input}
        return own | {
            "accept_drift": self.accept_drift,
            "drain_timeout": self.drain_timeout,
            "take_over": self.take_over,
            "adopt": self.adopt,
        }


start_options = together(
    workspace_argument,
    json_option,
    click.option("--supervised", hidden=True, help="For Satchel itself: descriptors, supervisor and patience."),
    click.option("--in-process", is_flag=True, help="Run in this process, without a supervisor process."),
    click.option("--detach", is_flag=True, help="Run in the background, and return when the run has started."),
    click.option(
        "--keeper",
        is_flag=True,
        help="Hold the model calls, so that a kill costs none; `keeper: true` in workspace.yaml does the same.",
    ),
    end_other_option,
    adopt_option,
    take_over_option,
    drain_timeout_option,
    click.option(
        "--accept-drift",
        is_flag=True,
        help="Continue although code, settings, prompts, packages, models or references changed or are missing.",
    ),
    click.option("--traceback", is_flag=True, help="Show the full traceback if the agent fails."),
    click.option("--quiet", "-q", is_flag=True, help="Print only the outcome: no report, no progress."),
)
"""The options of `run` and `resume`; together they are a LaunchOptions."""


def start(command: Command, options: LaunchOptions) -> int:
    """Start it, and wait for its end unless it is detached. Asks what only the person at the terminal can say, and
    continues. Returns the exit code."""
    while (code := _start(command, options)) == EXIT_CODES["waiting"] and not (
        options.is_supervised or options.detach or options.as_json
    ):
        if not ask_about_copies(find(options.workspace)):
            break
    return code


def _start(command: Command, options: LaunchOptions) -> int:
    if options.supervised is None:
        if command == "resume" and _withdraws(find(options.workspace), options.as_json):
            return 0
        if options.end_other and not options.adopt:
            raise UsageError("--end-other needs --adopt", why="the run continues here only if this copy is adopted")
        if options.adopt:
            confirm_adoption(find(options.workspace), ends_other=options.end_other, reaches_out=True)
        if not options.in_process:
            return _beside(command, options)
        if options.detach:
            raise UsageError("--detach and --in-process can't be used together", why="--detach needs another process")
        if options.keeper:
            raise UsageError(
                "--keeper and --in-process can't be used together",
                why="a keeper outlives the process of the agent, and here there is no other",
                remedy="leave out --in-process, or put `satchel keeper WS --` before the command",
            )
        if options.take_over:
            confirm_take_over(find(options.workspace))
    return _go(command, options)


def _go(command: Command, options: LaunchOptions) -> int:
    """Run the agent and print the outcome. Returns the exit code."""
    from ...api import RunResult  # with all that a run needs, before `gc.freeze`; a supervisor needs none of it
    from ...supervision import RESTARTS
    from .. import summary

    for_programs = options.as_json
    with contextlib.redirect_stdout(sys.stderr) if for_programs else contextlib.nullcontext():
        # What an agent prints is not JSON.
        place = find(options.workspace, is_child=options.is_supervised)
        if options.is_supervised:
            gc.freeze()  # from now on the collector looks at what the agent makes, and at nothing else
        with summary.watching(quiet=options.quiet) as watch:
            ended: RunResult = (place.resume if command == "resume" else place.run)(watch=watch, **options.how(command))
    if ended.restarts:
        return RESTARTS
    if for_programs:
        print_json(summary.ended_json(ended))
    summary.print_ended(ended, place, for_programs=for_programs, quiet=options.quiet, with_traceback=options.traceback)
    return EXIT_CODES[ended.status]


def _withdraws(place: Handle, as_json: bool) -> bool:
    """Withdraw a pause that the run has not come to yet. False if there is none, or if the run had stopped before."""
    try:
        if lease.holder(place.store) is None:
            return False
    except (SatchelError, OverflowError):
        return False  # the start itself says what is wrong
    from ...api import is_pausing  # reading a run takes imports, and a start of one that rests needs none of them

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


def _beside(command: Command, options: LaunchOptions) -> int:
    """In another process, supervised by this one, or by another."""
    resuming = command == "resume"
    place = find(options.workspace)
    if options.take_over:
        confirm_take_over(place)
    if options.detach:  # what it prints is for people, in its log
        shown = ["--traceback"] * options.traceback
        found = place.detach(resume=resuming, options=shown, keeper=options.keeper, **options.how(command))
        return _tell_detached(place, found, options.as_json)
    ended = place.supervise(
        resume=resuming, options=options.shown(), tell=_say, keeper=options.keeper, **options.how(command)
    )
    if ended.why:
        _tell_what_the_child_could_not(place, ended, options.as_json)
    return ended.exit_code


def _say(line: str) -> None:
    with suppress(OSError):  # in the background it goes to the log, whose disk may be full
        click.echo(f"{click.style('supervisor:', fg='yellow')} {one_line(line)}", err=True)


def _tell_what_the_child_could_not(place: Handle, ended: SupervisionResult, as_json: bool) -> None:
    status, code = ended.status, ended.exit_code
    if as_json:
        print_json({"status": status, "exit_code": code, "url": place.url, "why": ended.why})
    else:
        from ...present import state_colour  # its module needs all of a status

        click.echo(f"{click.style(status, fg=state_colour(status), bold=True)}: {visible(ended.why)}")
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


_RUN_EXAMPLES = """\b
Examples:
  satchel run my-digest
  satchel run                      in the folder of the workspace
  satchel run --json my-digest     the outcome as JSON on stdout
  satchel run my-digest --input '{"topic": "tides", "depth": 2}'

\b
Ctrl-C stops the run; you can resume it. Exit codes: 0 completed, 1 failed,
2 refused, 3 paused, 4 waiting for a person, 5 sleeping, 6 another process
has the run, 7 cancelled, 8 the storage failed.
"""


@click.command("run", epilog=_RUN_EXAMPLES)
@start_options
@click.option(
    "--input",
    type=Object(),
    metavar="JSON",
    help="The arguments of the agent, by parameter; - reads them from stdin. Recorded at the first start; later starts "
    "need none.",
)
@click.pass_context
def run_command(ctx: click.Context, /, **typed: Any) -> None:
    """Run the agent of a workspace until it completes, fails, or needs a person.

    A run that was stopped or killed continues where it was. It does not repeat finished work. A run that is paused, or
    that sleeps until a time, does not start.
    """
    ctx.exit(start("run", LaunchOptions(**typed)))


_RESUME_EXAMPLES = """\b
Examples:
  satchel resume my-digest
  satchel resume --traceback my-digest     if it fails again, show where
  satchel resume --all ~/runs --stopped-by "wrong recipients"
"""


@click.command("resume", epilog=_RESUME_EXAMPLES)
@start_options
@click.option(
    "--from-checkpoint",
    is_flag=True,
    help="First go back to the last known-good checkpoint. Later work is done again, except effects and answers.",
)
@all_option("With --stopped-by: all workspaces under ROOT (default: the current folder).")
@click.option("--stopped-by", "reason", metavar="REASON", help="Undo `satchel stop --all ROOT --reason REASON`.")
@click.pass_context
def resume_command(ctx: click.Context, /, root: str | None, reason: str | None, **typed: Any) -> None:
    """Resume a run that was stopped, crashed, failed, or waited for a person.

    If the run has been asked to pause and has not stopped yet, this withdraws the pause, and its process continues.
    Else like `satchel run`, but this also ends a pause, whatever its reason, and a sleep before its time. It does not
    start a new run.

    --all ROOT --stopped-by REASON starts nothing. It undoes an emergency stop of many runs: each that was stopped for
    this reason goes on at its next start.
    """
    if (root is None) != (reason is None):
        raise UsageError("--all and --stopped-by belong together", remedy="to resume one run, name its workspace only")
    if root is not None and reason is not None:
        if typed["workspace"] is not None:
            raise UsageError("name a workspace, or --all and a folder, not both")
        ctx.exit(_undo_all(root, reason, typed["as_json"]))
    ctx.exit(start("resume", LaunchOptions(**typed)))


def _undo_all(root: str, reason: str, as_json: bool) -> int:
    from ...api import open_all, undo_all

    places = open_all(root, storage_options=given(), tell=tell)
    undone = undo_all(places, reason)
    if as_json:
        print_json([{"url": each.url, "resumes": not each.why, "why": each.why} for each in undone])
        return 1 if any(each.why for each in undone) else 0
    for each in undone:
        word, colour = ("not undone", "red") if each.why else ("undone", "green")
        click.echo(f"{click.style(f'{word:<12}', fg=colour)}{visible(each.url)}{visible(each.why and f': {each.why}')}")
    count = sum(not each.why for each in undone)
    click.echo(f"{counted(count, 'run')} of {len(places)} under {visible(root)} may go on", err=True)
    if count:
        click.echo("next: `satchel serve` on that folder starts them, `satchel resume WS` starts one", err=True)
    return 1 if len(undone) > count else 0
