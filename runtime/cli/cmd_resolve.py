"""`satchel resolve`: answer the question whether an effect has happened."""

from __future__ import annotations

import getpass
import os
import socket
import sys

import click
import msgspec
from click.shell_completion import CompletionItem

from ...workspace import blobs, jsontext
from ...workspace.agentmoment import Kept
from ...workspace.errors import InvalidFile, SatchelError, UsageError
from ...workspace.looking import look
from ...workspace.moment import Moment
from ...workspace.names import DEFINITION
from ...workspace.opening import opened
from ...workspace.record import Resolved
from ...workspace.report import Report
from .output import columns, remarks
from .place import Place, complete_folders, find
from .words import counted, visible

_NO_RESULT = "\0"  # --done without a value; no argument can hold it

_WITH_RESULT = "--done-with"

_EXAMPLES = """\b
Examples:
  satchel resolve my-digest d1 --done 4711   it has, and returned 4711
  satchel resolve my-digest d1 --done        it has, and returned nothing
  satchel resolve my-digest d1 --redo        it has not, and may be done
"""


def _complete(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """A folder, or the questions of the workspace that was named or is the current folder."""
    named = ctx.params.get("words") or ()
    try:
        moment = look(find(named[0] if named else None).store).moment
    except (SatchelError, OSError):
        return complete_folders(ctx, parameter, incomplete)
    ids = [CompletionItem(id, help=doubt.step) for id, doubt in moment.doubts.items() if id.startswith(incomplete)]
    return ids or complete_folders(ctx, parameter, incomplete)


class _Resolve(click.Command):
    """click takes the value in `--done=-5` for another option, because that of --done may be left out."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given = ((_WITH_RESULT, word[len("--done=") :]) if word.startswith("--done=") else (word,) for word in args)
        return super().parse_args(ctx, [word for words in given for word in words])


@click.command("resolve", cls=_Resolve, short_help="Answer whether an effect has happened.", epilog=_EXAMPLES)
@click.argument("words", nargs=-1, metavar="[WS] ID", shell_complete=_complete)
@click.option("--done", metavar="[RESULT]", is_flag=False, flag_value=_NO_RESULT, default=None,
              help="It has happened, and this is what it returned: JSON, or else plain text.")  # fmt: skip
@click.option(_WITH_RESULT, "done_with", hidden=True)
@click.option("--redo", is_flag=True, help="It has not happened; it is done when the run goes on.")
@click.option("--by", metavar="NAME", help="Who says so. [default: user@host]")
def command(words: tuple[str, ...], done: str | None, done_with: str | None, redo: bool, by: str | None) -> None:
    """Settle a doubt: an effect of which nothing says whether it has happened.

    The question and its ID are shown by `satchel status`. Nothing of the agent is run here.
    """
    place, id = _split(words)
    done = done if done_with is None else done_with
    if (done is None) != redo:
        raise UsageError("say one of --done and --redo", why="it either has happened or has not")
    moment = look(place.store).moment
    _check_id(moment, id, place)
    result = _parse(done) if done is not None else b""
    report = Report()
    with opened(place.store, "resolve", report) as workspace:
        if id not in workspace.moment.doubts:  # answered by somebody else in this moment
            workspace.close()
            _check_id(workspace.moment, id, place)
        kept = blobs.keep(place.store, result, workspace.journal.epoch) if result else Kept()
        workspace.journal.add(
            Resolved(
                id=id, outcome="not_done" if redo else "done", by=by or _me(), result=kept.result, blob=kept.blob
            )
        )  # fmt: skip
        workspace.journal.flush()
        workspace.close()
        left = len(workspace.moment.doubts)
    for line in remarks(report.remarks[1:], columns(sys.stderr)):
        click.echo(line, err=True)
    what = "is done when the run goes on" if redo else "counts as done"
    click.echo(f"{id} is answered: it {what}")
    if left:
        click.echo(f"{counted(left, 'question')} still open: {place.command('status')}", err=True)
    else:
        click.echo(f"next: {place.command('resume')}", err=True)


def _split(words: tuple[str, ...]) -> tuple[Place, str]:
    match words:
        case (folder, id):
            return find(folder), id
        case (word,) if os.path.isfile(os.path.join(word, DEFINITION)):
            place = find(word)
            _check_id(look(place.store).moment, "", place)
            raise AssertionError("no question has an empty id")
        case (id,):
            return find(None), id
        case _:
            raise UsageError(
                "name the workspace and the question", remedy="as in `satchel resolve WS d1 --redo`; "
                "`satchel status WS` shows the questions",
            )  # fmt: skip


def _check_id(moment: Moment, id: str, place: Place) -> None:
    if id in moment.doubts:
        return
    open_ones = [f"{key} ({doubt.step}{doubt.call})" for key, doubt in moment.doubts.items()]
    raise UsageError(
        f"there is no open question {id!r}" if id else "say which question",
        why=f"open: {', '.join(open_ones)}" if open_ones else "none is open",
        remedy=None if open_ones else f"`{place.command('status')}` shows where the run stands",
    )


def _parse(done: str) -> bytes:
    """The result as JSON on one line, as the journal holds it; empty for none."""
    if done == _NO_RESULT:
        return b""
    try:
        value = jsontext.load(done, "--done")
    except InvalidFile:
        value = done
    try:
        return msgspec.json.encode(value)
    except (msgspec.MsgspecError, UnicodeEncodeError, OverflowError) as error:
        raise UsageError("the result can't be kept", path="--done", why=str(error)) from None


def _me() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = f"uid {os.getuid()}"
    return visible(f"{user}@{socket.gethostname()}")
