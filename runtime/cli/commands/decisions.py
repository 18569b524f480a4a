"""What a person tells a run. `satchel answer` and `merge`: what it asks a person to decide. `send` and `messages`:
tasks and messages for it, and where its conversation ends.
"""

from __future__ import annotations

import glob
import os
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import click
import msgspec
from click.shell_completion import CompletionItem
from msgspec.structs import asdict

from ....workspace.base import SatchelError, UsageError, decode, urls, visible
from ....workspace.inbound import inbox
from ...api import EXIT_CODES, AnswerResult, Handle, MergeResult, changes_of, say_what
from ...present import (
    CHOICES,
    choice_line,
    colour,
    conflict_json,
    conflict_lines,
    counted,
    cut,
    describe_answer,
    describe_revocation,
    offered_choices,
)
from .. import summary
from ..options import complete_folders, find, is_workspace, json_option, of_named, storage_option, workspace_argument
from ..output import columns, print_folded, print_json, print_remarks

_ID = re.compile("[ad][0-9]+")

_ANSWER_EXAMPLES = """\b
Examples:
  satchel answer my-run approve               the one open question
  satchel answer my-run a2 deny --by Ada --note "not before May"
  satchel answer my-run a3 '{amount: 250}'    where a JSON Schema asks for it
  satchel answer my-run a4 approve --set amount=50   with another argument
  satchel answer my-run a5 approve --standing  and later calls of this tool
  satchel answer my-run a5 --revoke           the later calls no more
  satchel answer my-run d1 done --result 4711  it has happened
  satchel answer my-run d1 redo               it has not: do it
"""


def _complete_question(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """A folder, then the questions of the workspace that was named or is the current folder, then their choices."""
    named = list(ctx.params.get("words") or ())
    if any(urls.is_remote(word) for word in (*named, incomplete)):
        return []  # a key press must not wait for a network
    folder = named.pop(0) if named and os.path.isdir(named[0]) else None
    try:
        questions = find(folder).questions()
    except (SatchelError, OSError):
        return complete_folders(ctx, parameter, incomplete)
    if named:
        chosen = [question for question in questions if question.id == named[0]]
    else:
        chosen = questions if len(questions) == 1 else []
    items = [] if named else [CompletionItem(each.id, help=each.text) for each in questions]
    items += [CompletionItem(choice) for question in chosen for choice in question.choices]
    found = [item for item in items if str(item.value).startswith(incomplete)]
    return found or ([] if folder or named else complete_folders(ctx, parameter, incomplete))


@click.command("answer", epilog=_ANSWER_EXAMPLES)
@click.argument("words", nargs=-1, metavar="[WS] [ID] DECISION", shell_complete=_complete_question)
@click.option(
    "--set",
    "changes",
    metavar="NAME=VALUE",
    multiple=True,
    help="Approve it with another argument, as YAML. Can be repeated; the others stay as they were asked.",
)
@click.option("--standing", is_flag=True, help="Approve each later call of this tool in the run, too.")
@click.option("--revoke", is_flag=True, help="Revoke a standing approval. It holds before the next call begins.")
@click.option("--result", metavar="RESULT", help="What an effect that has happened returned, as JSON or text.")
@click.option("--by", metavar="NAME", help="Who answers. [default: user@host]")
@click.option("--note", metavar="TEXT", default="", help="A note to the answer. The run records it.")
@json_option
@storage_option
def answer_command(
    words: tuple[str, ...],
    changes: tuple[str, ...],
    standing: bool,
    revoke: bool,
    result: str | None,
    by: str | None,
    note: str,
    as_json: bool,
) -> None:
    """Answer a question of an agent (a1, a2, ...), or say whether an effect has happened (d1, d2, ...).

    `satchel status` shows the questions. You can leave out ID if only one question is open. This command runs no code
    of the agent. If a process is running the workspace, that process reads the answer from the file of the question.
    """
    if revoke:
        place, id = _revoked(words, changes or standing or result is not None or note)
        done = place.revoke(id, by=by)
    else:
        place, id, decision = _split_answer(words)
        arguments = changes_of(changes) if changes else None
        done = place.answer(
            decision, id, arguments=arguments, standing=standing, result=result, by=by, note=note, typed=True
        )
    print_remarks(done.report, err=True)
    if as_json:
        print_json(_answer_as_json(done))
    elif revoke:
        click.echo(visible(describe_revocation(done)))
    else:
        _tell_answer(place, done)


def _answer_as_json(done: AnswerResult) -> dict[str, Any]:
    return {
        "id": done.id,
        "is_recorded": done.is_recorded,
        "file": done.file,
        "answer": msgspec.to_builtins(done.answer),
        "was_before": done.was_before,
        "waits_for": done.waits_for or None,
        "questions": summary.questions_json(done.questions),
    }


def _revoked(words: tuple[str, ...], others: object) -> tuple[Handle, str]:
    """The workspace and the question, or an empty text. `others`: options that revoke nothing."""
    if others:
        raise UsageError("--revoke goes with --by only")
    match words:
        case (folder, id):
            return find(folder), id
        case (id,) if _ID.fullmatch(id) and not is_workspace(id):
            return find(None), id
        case (folder,):
            return find(folder), ""
        case ():
            return find(None), ""
        case _:
            raise UsageError("--revoke takes the workspace and the question", remedy="`satchel answer WS a1 --revoke`")


def _tell_answer(place: Handle, done: AnswerResult) -> None:
    click.echo(visible(describe_answer(done)))
    if not done.is_recorded:
        return
    if done.questions:
        left = counted(len(done.questions), "question")
        click.echo(f"{left} still open: {place.command('status')}", err=True)
    elif not done.was_before:
        summary.print_next(place)


def _answer_in_order(command: str, id: str, decision: str) -> UsageError:
    return UsageError(
        f"there is no question {decision!r}",
        remedy=f"the question comes before the answer: `{command} {id} {shlex.quote(decision)}`",
    )


def _split_answer(words: tuple[str, ...]) -> tuple[Handle, str, str]:
    """The workspace, the question or an empty text, and the answer."""
    match words:
        case (folder, id, decision) if _ID.fullmatch(id) or not _ID.fullmatch(decision):
            return find(folder), id, decision
        case (folder, decision, id):
            raise _answer_in_order(find(folder).command("answer"), id, decision)
        case (folder, decision) if is_workspace(folder):
            place = find(folder)
            if _ID.fullmatch(decision):
                raise say_what(place, decision)
            return place, "", decision
        case (id, decision):
            if not _ID.fullmatch(id):
                if _ID.fullmatch(decision) and is_workspace("."):
                    raise _answer_in_order("satchel answer", decision, id)
                find(id)  # says that there is no such workspace
            return find(None), id, decision
        case (word,) if is_workspace(word):
            place = find(word)
            raise say_what(place, "")
        case (word,):
            place = find(None)
            if _ID.fullmatch(word):
                raise say_what(place, word)
            return place, "", word
        case _:
            raise UsageError(
                "name the workspace, the question and the answer",
                remedy="for example `satchel answer WS a1 approve`; `satchel status WS` shows the questions",
            )


_MERGE_EXAMPLES = """\b
Examples:
  satchel merge my-digest                 show both versions
  satchel merge my-digest --use theirs    use the file where they differ
  satchel merge my-digest --use ours      use the run (your version is kept)
  satchel merge my-digest --use edited    use the whole file as it is now
"""


@click.command("merge", epilog=_MERGE_EXAMPLES)
@workspace_argument
@click.option(
    "--use",
    "side",
    type=click.Choice(["ours", "theirs", "edited"]),
    help="Where they differ, use the run (ours) or the file (theirs); or use the whole file as it is now (edited).",
)
@click.option(
    "--file", "files", multiple=True, metavar="PATH", help="Only this file. [default: all files with conflicts]"
)
@json_option
@click.pass_context
def merge_command(
    ctx: click.Context,
    workspace: str | None,
    side: Literal["ours", "theirs", "edited"] | None,
    files: tuple[str, ...],
    as_json: bool,
) -> None:
    """Show where an edited file and the run conflict, and resolve the conflict.

    Changes that do not conflict are always merged. Without --use, nothing changes. A version that is not used is kept
    next to the file, as NAME.rejected.EXT. A file that is missing, empty or older resolves nothing: what you wrote
    stays in conflicts/ until you resolve the conflict here, or save a file that merges. Exit code 4 while a conflict is
    open, 2 if a file was refused.
    """
    place = find(workspace)
    found = place.merge(side, files=files)
    if not found.settled:
        _show_merge(place, found, as_json=as_json)
        ctx.exit(2 if found.refused else EXIT_CODES["waiting"] if found.open else 0)
    if as_json:
        print_json(
            {
                "settled": list(found.settled),
                "use": side,
                "open": [each.path for each in found.open],
                "report": [msgspec.to_builtins(each) for each in found.report],
            }
        )
    else:
        print_remarks(found.report[1:])
        for each in found.open:
            click.echo(f"{click.style('conflict', fg='yellow')} {visible(each.path)}: {visible(str(each.places[0]))}")
        if found.open:
            click.echo(f"next: {place.command('merge')}", err=True)
        else:
            summary.print_next(place)
    ctx.exit(EXIT_CODES["waiting"] if found.open else 0)


def _show_merge(place: Handle, found: MergeResult, *, as_json: bool) -> None:
    from ...api import of_error  # which comes with all checks

    refused = [problem for error in found.refused for problem in of_error(error)]
    if as_json:
        print_json(
            {
                "conflicts": [*map(conflict_json, found.conflicts)],
                "refused": [*map(asdict, refused)],
                "merged": found.merged,
            }
        )
        return
    width = columns(sys.stdout) or 200
    for problem in refused:
        print_folded(f"refused  {problem}", 9)
    for said in found.merged:
        print_folded(f"merged   {said}", 9)
    for conflict in found.conflicts:
        click.echo(click.style(f"conflict {visible(conflict.path)}", fg="yellow"))
        for text, tone in conflict_lines(conflict):
            click.echo(click.style(cut(visible(text), width), fg=colour(tone)))
        for choice in offered_choices(conflict):
            print_folded(f"  --use {choice.use:<7} {choice_line(choice)}", 16)
            for say in choice.says:
                print_folded(f"{'':16}{say}", 16)
    if found.conflicts:
        click.echo(f"{counted(len(found.conflicts), 'file')} with conflicts:")
        for side, said in CHOICES.items():
            kept = "; keep the file's version as NAME.rejected.EXT" if side == "ours" else ""
            click.echo(f"  {place.command('merge', '--use', side)}: {said}{kept}")
    elif not found.refused and not found.merged:
        click.echo("nothing to merge: the files and the run agree")


_FILE = re.compile(r"\S+\.(md|txt|yaml|yml|json)")
"""A word that looks like this is hardly the text of a task."""
_OF_PAGES = ("http", "https")
"""URLs that may be the whole text of a task."""

_SEND_EXAMPLES = """\b
Examples:
  satchel send my-digest "Summarise the letter of 3 May as well"
  satchel send my-digest @order-17.yaml @order-18.yaml
  pbpaste | satchel send my-digest -
  satchel send my-digest --key "order 17" @order-17.yaml
  satchel send my-digest --message "Ada is on holiday; ask Grace instead"
"""


def _complete_content(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    if ctx.params.get("words"):
        return [CompletionItem(f"@{path}") for path in sorted(glob.glob(f"{glob.escape(incomplete.lstrip('@'))}*"))]
    return complete_folders(ctx, parameter, incomplete)


@click.command("send", epilog=_SEND_EXAMPLES)
@click.argument("words", nargs=-1, metavar="[WS] TEXT|@FILE|-...", shell_complete=_complete_content)
@click.option("--message", "as_message", is_flag=True, help="Send a message to the agent, not a task.")
@click.option("--key", default="", metavar="KEY", help="Send it once, however often the command is repeated.")
@json_option
@storage_option
def send_command(words: tuple[str, ...], as_message: bool, key: str, as_json: bool) -> None:
    """Put tasks into the inbox of a run: a text, files (@order.yaml: .md and .txt are texts; .yaml, .yml and .json are
    data), or standard input (-).

    This works whether or not a process runs the workspace. Prints the paths.
    """
    place, contents = _split(words)
    sent = place.send(*map(_content, contents), message=as_message, key=key)
    if as_json:
        print_json([{"file": each.file, "kind": each.kind} for each in sent])
    else:
        for each in sent:
            click.echo(visible(urls.join(place.url, each.file)))


def _split(words: tuple[str, ...]) -> tuple[Handle, tuple[str, ...]]:
    match words:
        case ():
            raise UsageError("say what to send", remedy='for example `satchel send WS "the task"`')
        case (word,) if is_workspace(word) and urls.protocol(word) not in _OF_PAGES:
            raise UsageError(f"say what to send to {word}", remedy='for example `satchel send WS "the task"`')
        case (word,):
            return find(None), (word,)
        case (folder, *contents):
            return find(folder), tuple(contents)
    raise AssertionError(words)


def _content(word: str) -> str | Path:
    """The meaning of a word on the command line: standard input, a file, or a text, whatever files there are."""
    if word == "-":
        return decode(sys.stdin.buffer.read(inbox.LIMIT + 1), "standard input")
    if word.startswith("@"):
        return Path(word[1:])
    if _FILE.fullmatch(word):
        raise UsageError(
            f"{word} is the name of a file",
            remedy=f"`@{word}` sends what is in it; a text like this is sent from standard input (`-`)",
        )
    return word


_MESSAGES_EXAMPLES = """\b
Examples:
  satchel messages cut my-digest --after 57    "seq": 57 is the last
  satchel messages cut my-digest --after 0     it begins again
"""
_NEWEST = 50


def _complete_message(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The newest messages of the workspace that was named."""
    agent = ctx.params.get("agent") or ""
    return of_named(ctx, lambda place: _newest(place, agent), incomplete)


def _newest(place: Handle, agent: str) -> Iterator[CompletionItem]:
    found = next((each.messages for each in place.history.show().agents if each.path == agent), None)
    for each in (found or ())[-_NEWEST:]:
        text = f"{each['role']}: {msgspec.json.encode(each['content']).decode()}"
        yield CompletionItem(str(each["seq"]), help=cut(visible(text), 60))


@click.group("messages", epilog=_MESSAGES_EXAMPLES)
def messages_command() -> None:
    """Cut off the conversation of a run. To change it, edit messages.jsonl."""


@messages_command.command("cut", epilog=_MESSAGES_EXAMPLES)
@click.argument("workspace", metavar="WS", shell_complete=complete_folders)
@click.option(
    "--after",
    type=click.IntRange(min=0),
    required=True,
    metavar="SEQ",
    shell_complete=_complete_message,
    help="The `seq` of the message that becomes the last one, or 0: none stays.",
)
@click.option("--agent", default="", metavar="AGENT", help="The conversation of a sub-agent, such as left/deep.")
@json_option
@storage_option
def messages_cut_command(workspace: str, after: int, agent: str, as_json: bool) -> None:
    """End the conversation after a message. What comes after it is no longer said, and stays in the log.

    It is an edit of messages.jsonl. A process that runs the workspace takes it at its next safe point. A call of a tool
    and its results are not parted.
    """
    place = find(workspace)
    found = place.files.cut_messages(after, agent=agent)
    if as_json:
        print_json({**asdict(found), "exit_code": 0, "report": [*map(asdict, found.report)]})
        return
    print_remarks(each for each in found.report[1:] if each.kind != "edited")
    for say in found.says or ("nothing comes after it",):
        print_folded(f"{found.file}: {say}", 2)
    if found.waits_for:
        click.echo(visible(f"{found.waits_for} takes it at its next safe point"), err=True)
    elif found.says:
        summary.print_next(place)
