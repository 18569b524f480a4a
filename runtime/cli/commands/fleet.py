"""`satchel ls` and `serve`: all workspaces below a folder, listed or kept running."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO

import click
from msgspec import Struct, to_builtins

from ....workspace.base import UsageError, visible
from ....workspace.inspect import discovery
from ...api import EXIT_CODES, ORDERS, STATES, Handle, RunQuery, RunStatus, SeenRun, ls, ls_whole, wanted
from ...present import SERVE_EVENTS, colour, cost, counted, fraction, one_line, queue_lines, run_id_of, state_colour
from .. import summary
from ..group import listener, meter, tell_error
from ..options import complete_folders, drain_timeout_option, find, gathered, given, json_option, storage_option
from ..output import columns, print_json, print_table, progressing

if TYPE_CHECKING:
    from ...api import RunResult
    from ...supervision import Census, ServeEvent

LEFT, OUTDATED = 9, 10
"""The exit codes of a `serve --once` that leaves work, and of a `serve` under which Satchel was upgraded."""

_WORTH_A_BAR = 30
_NARROW = 90  # columns below which run and time are left out
_ESSENTIAL = (0, 2, 3, 4, 6)

_LS_EXAMPLES = """\b
Examples:
  satchel ls                       under the current folder
  satchel ls ~/runs
  satchel ls s3://bucket/runs
  satchel ls --wanted              those that need you
  satchel ls --state failed --since 1d --sort spent ~/runs
  satchel ls --code ~/runs         which code each run has seen
  satchel ls --json ~/runs | jq '.[] | select(.state == "waiting")'
"""


query_options = gathered(
    RunQuery,
    "asked",
    click.option("--search", "text", default="", metavar="WORDS", help="Show runs with these in a name or id."),
    click.option(
        "--state",
        "states",
        multiple=True,
        metavar="STATE",
        shell_complete=lambda _, __, typed: [each for each in STATES if each.startswith(typed)],
        help="Show runs in this state. You can repeat it.",
    ),
    click.option("--wanted", is_flag=True, help="Show runs that need a person."),
    click.option("--agent", default="", metavar="NAME", help="Show runs of this agent, or of a pattern ('bot*')."),
    click.option("--spent", "usd", type=float, default=0.0, metavar="USD", help="Show runs that cost so much."),
    click.option("--since", default="", metavar="TIME", help="Show runs with a record since 22:30, or of the last 2h."),
    click.option("--before", default="", metavar="TIME", help="Show runs without a record since then."),
    click.option(
        "--sort",
        default="",
        metavar="ORDER",
        shell_complete=lambda _, __, typed: [each for each in ORDERS if each.startswith(typed)],
        help=f"{', '.join(ORDERS)}; -ORDER is the other way round. [default: by folder]",
    ),
)


@click.command("ls", epilog=_LS_EXAMPLES)
@click.argument("root", default=".", shell_complete=complete_folders)
@query_options
@click.option("--code", "with_code", is_flag=True, help="Show the version of the code that each run has worked with.")
@json_option
@storage_option
def ls_command(root: str, with_code: bool, as_json: bool, asked: RunQuery) -> None:
    """List the workspaces under ROOT, a folder or URL, at any depth: the state of each run, and what it needs.

    Skips hidden folders and does not follow links. Lists a damaged workspace as damaged.
    """
    with progressing("looking", _WORTH_A_BAR) as progress:
        look = ls_whole if as_json or with_code or asked.text else ls
        every = look(root, storage_options=given(), progress=progress)
    found = [run.status for run in asked.of(SeenRun(each.folder, each) for each in every)]
    if as_json:
        print_json([*map(_as_json, found)])
        return
    if not every:
        click.echo(f"no workspaces under {visible(root)}; `satchel new --list` lists the templates", err=True)
        return
    if sys.stdout.isatty() or not found:
        of = f" of {len(every):,}" if len(found) < len(every) else ""
        click.echo(
            f"{len(found):,}{of} {'workspace' if len(every) == 1 else 'workspaces'} under {visible(root)}", err=True
        )
    if not found:
        return
    titles = ("folder", "run", "state", "items", "inbox", "last activity (UTC)", "wanted")
    shown = _ESSENTIAL if 0 < columns(sys.stdout) < _NARROW else range(len(titles))
    heads, rows = [titles[at] for at in shown], [[row[at] for at in shown] for row in map(_row, found)]
    if any(map(queue_lines, found)):
        heads = [*heads, "group", "priority"]
        rows = [[*row, *_queue(each)] for row, each in zip(rows, found, strict=True)]
    if any(costs := [cost(each) for each in found]) and not 0 < columns(sys.stdout) < _NARROW:
        heads, rows = [*heads, "spent"], [[*row, each or "-"] for row, each in zip(rows, costs, strict=True)]
    if with_code:
        heads, rows = [*heads, "code"], [[*row, _code(each)] for row, each in zip(rows, found, strict=True)]
    print_table(heads, rows)
    for run_id, its in _same(found).items():
        click.echo(
            f"{click.style('note', fg='cyan')}  {one_line(discovery.describe_duplicates(run_id, its))}", err=True
        )


def _as_json(status: RunStatus) -> dict[str, Any]:
    """What the list of the page shows, too."""
    usage = to_builtins(status.moment.usage) if status.moment else None
    more = {"folder": status.folder, "same_run_id": status.same_run_id, "wanted": wanted(status) or None}
    return summary.status_json(status) | more | {"usage": usage}


def _same(found: list[RunStatus]) -> dict[str, list[str]]:
    """The folders of each run_id that several have."""
    return discovery.duplicate_groups(
        (each.folder, each.definition.run_id) for each in found if each.definition and not each.backup_of
    )


def _row(status: RunStatus) -> tuple[str, ...]:
    return (
        one_line(status.folder),
        one_line(run_id_of(status) or "?", 30),
        status.state,
        fraction(status) or "-",
        str(status.waiting or "-"),
        status.at[:19].replace("T", " ") or "-",
        wanted(status),
    )


def _queue(status: RunStatus) -> tuple[str, str]:
    definition = status.definition
    return (definition.group or "-", str(definition.priority)) if definition else ("-", "-")


def _code(status: RunStatus) -> str:
    return (status.moment.code if status.moment else "") or "-"


_SERVE_EXAMPLES = """\b
Examples:
  satchel serve ~/runs
  satchel serve ~/runs --at-most 4 --drain-timeout 30s
  satchel serve ~/runs --at-most 8 --group-limit customer-a=2 --group-limit 4
  satchel serve s3://bucket/runs
  satchel serve ~/runs --once      start all that is due now; for cron
  satchel serve ~/runs --isolate none    trusted runs share processes
  satchel serve ~/runs --listen 8080
  satchel serve ~/runs --metrics 9464

\b
Ctrl-C or SIGTERM stops all runs at a safe point, then ends with exit code 0;
a second Ctrl-C stops them by force. The log of a run is .satchel/run.log,
of a run under a URL a file in ~/.local/state/satchel/log.
"""


def _limits(ctx: click.Context, _: click.Parameter, words: tuple[str, ...]) -> dict[str, int]:
    if not words or ctx.resilient_parsing:
        return {}
    from ...supervision import FairOrder

    return FairOrder.limits_of(words)


_group_limit_option = click.option(
    "--group-limit",
    "group_limits",
    multiple=True,
    metavar="[GROUP=]N",
    callback=_limits,
    help="How many runs of a group of workspace.yaml run at a time; without GROUP, of each other group. Repeatable.",
)


class DoorOptions(Struct, frozen=True):
    """What `serve` answers by HTTP: tasks, and questions for metrics."""

    listen: str | None
    token_file: BinaryIO | None
    no_token: bool
    metrics: str | None
    metrics_token_file: BinaryIO | None
    names: tuple[str, ...]

    def check(self, once: bool) -> None:
        """UsageError for options that say nothing without others, or contradict them."""
        if self.listen is None and (self.no_token or self.token_file):
            raise UsageError("a token is for --listen")
        if self.metrics is None and self.metrics_token_file:
            raise UsageError("--metrics-token-file is for --metrics")
        if self.listen is None and self.metrics is None and self.names:
            raise UsageError("a name is for --listen or --metrics")
        if once and (self.listen is not None or self.metrics is not None):
            option = "--metrics" if self.listen is None else "--listen"
            raise UsageError(f"--once ends, and {option} waits for requests", remedy="use one of them")

    @contextmanager
    def opened(self, root: str, tell: Callable[[ServeEvent], None]) -> Iterator[Census | None]:
        """Answer while the body runs. Gives what metrics are made of, if they are asked for."""
        if self.listen is None and self.metrics is None:
            yield None
            return
        from ...supervision import Census, ServeEvent

        census = Census() if self.metrics is not None else None
        with ExitStack() as stack:
            if self.listen is not None:
                door = listener()(
                    root,
                    self.listen,
                    token_file=self.token_file,
                    no_token=self.no_token,
                    names=self.names,
                    storage_options=given(),
                )
                tell(ServeEvent("listening", root, stack.enter_context(door)))
            if self.metrics is not None:
                door = meter()(census, self.metrics, token_file=self.metrics_token_file, names=self.names)
                tell(ServeEvent("listening", root, stack.enter_context(door)))
            yield census


door_options = gathered(
    DoorOptions,
    "doors",
    click.option(
        "--listen", metavar="ADDRESS", help="Take tasks by HTTP, POST /inbox/RUN: PORT, HOST:PORT or unix:PATH."
    ),
    click.option(
        "--token-file",
        type=click.File("rb"),
        help="A file with the token of --listen. [default: what SATCHEL_LISTEN_TOKEN has]",
    ),
    click.option("--no-token", is_flag=True, help="With --listen on this machine: every program here may send tasks."),
    click.option(
        "--metrics",
        metavar="ADDRESS",
        help="Serve /metrics for Prometheus, /healthz and /readyz: PORT, HOST:PORT or unix:PATH.",
    ),
    click.option(
        "--metrics-token-file",
        type=click.File("rb"),
        help="A file with the token of --metrics. [default: SATCHEL_METRICS_TOKEN, or none]",
    ),
    click.option(
        "--name", "names", multiple=True, metavar="HOST", help="Another name that --listen or --metrics is reached by."
    ),
)


@click.command("serve", epilog=_SERVE_EXAMPLES)
@click.argument("root", shell_complete=complete_folders)
@click.option(
    "--at-most",
    type=click.IntRange(min=1),
    metavar="N",
    help="How many runs run at a time. [default: one for each core, at least 2; 20 for each with --isolate none]",
)
@click.option(
    "--isolate",
    type=click.Choice(["process", "none"]),
    help="none: runs share processes, which costs a fifth, except where workspace.yaml says `isolate: process`. "
    "process: none does. [default: as each workspace.yaml says, else process]",
)
@_group_limit_option
@click.option("--keeper", is_flag=True, help="Hold the model calls of all runs that have a process of their own.")
@click.option("--once", is_flag=True, help="End when no run is running or due.")
@door_options
@drain_timeout_option
@click.option("--supervised", hidden=True, help="For Satchel itself: this process is one that runs share.")
@click.option("--json", "as_json", is_flag=True, help="Print events as JSON, one a line, for programs.")
@storage_option
@click.pass_context
def serve_command(
    ctx: click.Context, /, root: str, doors: DoorOptions, supervised: str | None, as_json: bool, **how: Any
) -> None:
    """Start the runs under ROOT that are new or were interrupted. Resume those whose question was answered, whose pause
    has ended, or whose sleep is over.

    Runs that are paused, wait for an answer, or failed need a person. Satchel notices new workspaces and changed files
    within about a second, under a URL within five. Each run has a supervisor, as with `satchel run`.

    A process that runs share is killed if it hangs or leaks. Each of its runs then goes on in a process of its own.
    """
    if supervised is not None:
        _share()
        return
    doors.check(how["once"])
    from ...api import serve  # loads what starts runs

    tell = partial(_tell, as_json)
    with doors.opened(root, tell) as census:
        ended = serve(root, **how, tell=tell, census=census, storage_options=given())
    ctx.exit(OUTDATED if ended.is_outdated else _say_left(ended.left))


def _share() -> None:
    """Be a process that runs of another `serve` share."""
    from ...launch import SharedRuns, channel_of_stdin

    SharedRuns(channel_of_stdin(), partial(find, is_child=True), _ended_here).work()


def _ended_here(place: Handle | None, found: RunResult | Exception) -> tuple[int, str]:
    """Print in the log of the run how it has ended. Returns its exit code, and the error."""
    if isinstance(found, Exception) or place is None:
        assert isinstance(found, Exception)
        return tell_error(found, with_traceback=False), str(found)
    summary.print_ended(found, place, for_programs=False, quiet=True, with_traceback=False)
    return EXIT_CODES[found.status], ""


def _say_left(left: list[str]) -> int:
    """Name what was due and could not be started. Returns the exit code."""
    if left:
        click.echo(
            f"satchel: {counted(len(left), 'run')} due and not started: {', '.join(map(visible, left))}", err=True
        )
    return LEFT if left else 0


def _tell(as_json: bool, event: ServeEvent) -> None:
    with suppress(OSError):  # the runs continue, although the disk of its own log is full
        if as_json:
            click.echo(json.dumps({"event": event.kind, "folder": event.folder, "text": event.text}))
            return
        kind = click.style(f"{event.kind:<12}", fg=colour(SERVE_EVENTS.get(event.kind)) or state_colour(event.kind))
        click.echo(kind + one_line(f"{event.folder}: {event.text}" if event.text else event.folder), err=True)
