"""`satchel run`: start a run, or continue it."""

from __future__ import annotations

import sys
from typing import Any

import click

from ....workspace.base import InvalidFile, decode
from ....workspace.formats import jsontext
from .. import starting
from ..options.wish import Wish

_EXAMPLES = """\b
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


class Object(click.ParamType):  # type: ignore[type-arg]  # generic for the checker only
    """A JSON object, or `-` for one that stdin has."""

    name = "json"

    def convert(self, value: Any, parameter: click.Parameter | None, ctx: click.Context | None) -> dict[str, Any]:
        try:
            text = decode(sys.stdin.buffer.read(), "standard input") if value == "-" else value
            found = jsontext.load(text, "the input")  # strictly: of a key that is there twice one would be lost
        except InvalidFile as error:
            self.fail(f'{error}. Write a JSON object, as in {{"topic": "tides"}}', parameter, ctx)
        if isinstance(found, dict):
            return found
        self.fail(f'the input is {found!r:.80}. Write a JSON object, as in {{"topic": "tides"}}', parameter, ctx)


@click.command("run", epilog=_EXAMPLES)
@starting.options
@click.option(
    "--input",
    type=Object(),
    metavar="JSON",
    help="The arguments of the agent, by parameter; - reads them from stdin. Recorded at the first start; later starts "
    "need none.",
)
@click.pass_context
def command(ctx: click.Context, /, **typed: Any) -> None:
    """Run the agent of a workspace until it completes, fails, or needs a person.

    A run that was stopped or killed continues where it was. It does not repeat finished work. A run that is paused, or
    that sleeps until a time, does not start.
    """
    ctx.exit(starting.start("run", Wish(**typed)))
