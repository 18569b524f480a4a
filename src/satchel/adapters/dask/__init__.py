"""A fleet: runs on the workers of `dask.distributed`, on many machines.

The folders tell what is due, and Dask places it. A run is a task, so runs that wait, sleep or are paused occupy no
worker, and a run whose worker has died is taken over by what the storage tells. `satchel fleet` does it as a command,
with a cluster on this machine to try it on.

dispatcher  `Fleet`: submits what is due below some roots
workers     what happens on a worker; the client of the scheduler, and which workers can have runs
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import math
import signal
from contextlib import AsyncExitStack, ExitStack, suppress
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

import click

from satchel import Refused, UsageError

if TYPE_CHECKING:
    from satchel.results import Census, ServeEvent

    from .dispatcher import Fleet

__all__ = ["Fleet"]


def __getattr__(name: str) -> Any:
    """Dask is slow to import, and `satchel --help` asks the command only."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .dispatcher import Fleet

    return Fleet


LEFT = 9
"""The exit code of `--once` that leaves work, as that of `satchel serve`."""

_EXAMPLES = """\b
Examples:
  satchel fleet ~/runs --local 2                           two workers on this machine
  satchel fleet s3://bucket/runs --scheduler tcp://10.0.0.5:8786
  satchel fleet /srv/runs s3://bucket/runs --scheduler tcp://10.0.0.5:8786 --once
  satchel fleet ~/runs --local 2 --at-most 40 --isolate none   trusted runs share processes
  satchel fleet ~/runs --local 2 --metrics 9464

\b
`dask scheduler` and `dask worker ADDRESS --nthreads 20` make the cluster; a
thread carries one run. Ctrl-C or SIGTERM ends this command, and the runs go on;
with --local they stop at a safe point first.
"""


_OF_SERVE = ("group_limits", "once", "metrics", "metrics_token_file", "as_json")


class _FleetCommand(click.Command):
    """Its options, and those that it has as `satchel serve` declares them."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        satchel = ctx.find_root().command
        serve = satchel.get_command(ctx, "serve") if isinstance(satchel, click.Group) else None
        shared = [each for each in (serve.params if serve else ()) if each.name in _OF_SERVE]
        *own, help_option = super().get_params(ctx)
        return [*own, *shared, help_option]


@click.command(
    "fleet", cls=_FleetCommand, epilog=_EXAMPLES, short_help="Keep runs going on the workers of a Dask cluster."
)
@click.argument("roots", metavar="ROOT...", nargs=-1, required=True)
@click.option("--scheduler", metavar="ADDRESS", help="Of the cluster: tcp://HOST:8786.")
@click.option("--local", type=click.IntRange(min=1), metavar="N", help="Start N workers on this machine instead.")
@click.option(
    "--at-most",
    type=click.IntRange(min=1),
    metavar="N",
    help="How many runs run at a time. [default: one for each thread of the workers]",
)
@click.option(
    "--isolate",
    type=click.Choice(("process", "none")),
    help="none: the runs of a worker share processes, except where workspace.yaml says `isolate: process`. "
    "process: none does. [default: as workspace.yaml says]",
)
@click.option("--name", "names", multiple=True, metavar="HOST", help="Another name that --metrics is reached by.")
def command(
    roots: tuple[str, ...],
    scheduler: str | None,
    local: int | None,
    at_most: int | None,
    group_limits: dict[str, int],
    isolate: Literal["process", "none"] | None,
    once: bool,
    metrics: str | None,
    metrics_token_file: BinaryIO | None,
    names: tuple[str, ...],
    as_json: bool,
) -> int:
    """Start the runs under each ROOT, a folder or URL, that are due, on the workers of a cluster. `satchel serve` does
    the same on one machine.

    Each worker must reach each ROOT: a folder that all machines share, or a bucket. Several of these commands may have
    the same roots, and any of them may be killed.
    """
    if (scheduler is None) == (local is None):
        raise UsageError(
            "name a scheduler, or a number of workers to start here", remedy="use --scheduler ADDRESS or --local N"
        )
    if importlib.util.find_spec("distributed") is None:
        raise Refused("`satchel fleet` needs Dask", remedy="install it with `pip install 'satchel[dask]'`")
    from satchel.results import Census, ServeEvent  # load what starts runs

    census = None if metrics is None else Census(len(roots))
    with ExitStack() as stack:
        if metrics is None and (metrics_token_file or names):
            raise UsageError("a token and a name are for --metrics")
        if metrics is not None:
            url = stack.enter_context(_metering()(census, metrics, token_file=metrics_token_file, names=names))
            _say(ServeEvent("listening", roots[0], url), as_json)
        left = asyncio.run(_run(roots, scheduler, local, at_most, group_limits, isolate, once, census, as_json))
    if left:
        click.echo(f"satchel: {len(left)} due and not started: {', '.join(left)}", err=True)
    click.get_current_context().exit(LEFT if left else 0)


def _metering() -> Any:
    """What serves metrics, as `satchel serve` finds it."""
    (entry,) = entry_points(group="satchel.meters")
    try:
        return entry.load()
    except ModuleNotFoundError as error:
        raise Refused(
            "`--metrics` can't be served", why=str(error), remedy="install it with `pip install 'satchel[metrics]'`"
        ) from error


async def _run(
    roots: tuple[str, ...],
    scheduler: str | None,
    local: int | None,
    at_most: int | None,
    limits: dict[str, int],
    isolate: Literal["process", "none"] | None,
    once: bool,
    census: Census | None,
    as_json: bool,
) -> list[str]:
    from .dispatcher import Fleet

    async with AsyncExitStack() as stack:
        address = scheduler or await _cluster(stack, local or 1, at_most)
        fleet = Fleet(
            address,
            roots,
            at_most=at_most,
            group_limits=limits,
            isolate=isolate,
            tell=lambda event: _say(event, as_json),
            census=census,
        )
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, lambda: fleet.stop(runs=local is not None))
        return await fleet.run(once=once)


async def _cluster(stack: AsyncExitStack, workers: int, at_most: int | None) -> str:
    """Starts one on this machine for the rest of the command. Returns its address."""
    from distributed import LocalCluster

    threads = math.ceil((at_most or workers) / workers)
    cluster: Any = LocalCluster(
        n_workers=workers, threads_per_worker=threads, asynchronous=True, dashboard_address="127.0.0.1:0"
    )
    started = await stack.enter_async_context(cluster)
    return str(started.scheduler_address)


def _say(event: ServeEvent, as_json: bool) -> None:
    with suppress(OSError):  # the runs go on, although the disk of its own log is full
        if as_json:
            click.echo(json.dumps({"event": event.kind, "folder": event.folder, "text": event.text}))
        else:
            click.echo(f"{event.kind:<12}{event.folder}{event.text and f': {event.text}'}", err=True)
