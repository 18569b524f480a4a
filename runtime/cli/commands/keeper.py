"""`satchel keeper`: hold the model calls of one run, for a program that starts it itself."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shlex
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress

import click

from ....workspace.base import UsageError, visible
from ...keeper import addresses
from ...supervision import check_installed
from ..options import find, json_option, workspace_argument

_EXAMPLES = """\b
Examples:
  satchel keeper my-digest -- python go.py   it calls satchel.run("my-digest")
  satchel keeper my-digest                   prints variables, until Ctrl-C
"""


@click.command("keeper", epilog=_EXAMPLES)
@workspace_argument
@click.argument("command", nargs=-1, metavar="[-- COMMAND...]", type=click.UNPROCESSED)
@click.option("--socket", "descriptor", type=int, hidden=True, help="For Satchel itself: the descriptor of the socket.")
@json_option
@click.pass_context
def keeper_command(
    ctx: click.Context, /, workspace: str | None, command: tuple[str, ...], descriptor: int | None, as_json: bool
) -> None:
    """Hold the model calls of a run, so that a kill of its process costs none:
    an answer that is under way is read to its end, and the next start gets it.

    `satchel run`, `resume` and `serve` do this themselves with --keeper, or with `keeper: true` in workspace.yaml. This
    is for programs that call satchel.run. With COMMAND, runs it with the variables that lead SDKs to the keeper, and
    ends with it.
    """
    if descriptor is not None:
        told = json.loads(sys.stdin.buffer.readline())
        listener = socket.socket(fileno=descriptor)
        _serve(bytes.fromhex(told["secret"]), told["providers"], listener, _until_stdin_ends)
        return
    if workspace is None:
        raise UsageError("name the workspace", remedy="for example `satchel keeper my-digest -- python program.py`")
    check_installed()
    place = find(workspace)
    secret, providers = secrets.token_bytes(32), addresses.real()
    listener = socket.create_server(("127.0.0.1", 0))
    base = f"http://127.0.0.1:{listener.getsockname()[1]}"
    variables = addresses.environment(base, secret, place.store.url, providers)
    if command:
        ctx.exit(_next_to(command, variables, secret, providers, listener))
    if as_json:
        click.echo(json.dumps(variables))
    else:
        for name, value in variables.items():
            click.echo(f"export {name}={shlex.quote(value)}")
        click.echo(f"the keeper of {visible(place.url)} listens; Ctrl-C ends it", err=True)
    sys.stdout.flush()
    with suppress(KeyboardInterrupt):
        _serve(secret, providers, listener, _until_a_signal)


def _serve(
    secret: bytes, providers: dict[str, str], listener: socket.socket, wait: Callable[[asyncio.Event], None]
) -> None:
    """Be the keeper. `wait` sets the event from which on only what arrives is read to its end."""
    from ...keeper import keep

    async def serve() -> None:
        until = asyncio.Event()
        wait(until)
        await keep(secret, providers, listener, until)

    asyncio.run(serve())


def _until_stdin_ends(until: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()

    def read() -> None:
        while os.read(0, 4096):
            pass
        with open(os.devnull, "w") as nothing:  # the supervisor's output has ended
            os.dup2(nothing.fileno(), 2)
        loop.call_soon_threadsafe(until.set)

    threading.Thread(target=read, name="satchel-lifeline", daemon=True).start()
    for number in (signal.SIGINT, signal.SIGTERM):  # those of the supervisor's group are for the runs
        signal.signal(number, signal.SIG_IGN if number == signal.SIGINT else signal.SIG_DFL)


def _until_a_signal(until: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()

    def end() -> None:
        until.set()
        for number in asked:  # the next one ends it at once
            loop.remove_signal_handler(number)

    asked = (signal.SIGINT, signal.SIGTERM)
    for number in asked:
        loop.add_signal_handler(number, end)


def _next_to(
    command: tuple[str, ...],
    variables: dict[str, str],
    secret: bytes,
    providers: dict[str, str],
    listener: socket.socket,
) -> int:
    """Run a command next to the keeper. Returns its exit code."""
    child = subprocess.Popen(command, env={**os.environ, **variables})

    def until(event: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, child.send_signal, number)

        def end() -> None:
            event.set()
            for number in (signal.SIGINT, signal.SIGTERM):  # one ends the keeper now, whatever still arrives
                loop.remove_signal_handler(number)

        def wait() -> None:
            child.wait()
            loop.call_soon_threadsafe(end)

        threading.Thread(target=wait, name="satchel-command", daemon=True).start()

    with suppress(KeyboardInterrupt):
        _serve(secret, providers, listener, until)
    code = child.wait()
    return code if code >= 0 else 128 - code
