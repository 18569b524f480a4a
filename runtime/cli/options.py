"""What commands share on the command line: the workspace, a position in its history, options of storage, of time and of
a start, and what a start asks at a terminal: to adopt a copy, to take a run over, what to do with files of a
checkpoint.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from ...workspace.base import DEFINITION, LeaseHeld, SatchelError, UsageError, seconds_of, urls, visible
from .. import api

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem
    from msgspec import Struct

F = TypeVar("F", bound=Callable[..., Any])

Decorator = Callable[[F], F]


def together(*options: Decorator[Any]) -> Decorator[Any]:
    """These options, in this order, as one."""

    def add(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return add


def gathered(kind: type[Struct], argument: str, *options: Decorator[Any]) -> Decorator[Any]:
    """These options, which the command gets as one `kind`, by its fields."""

    def add(function: Callable[..., None]) -> Callable[..., None]:
        @wraps(function)
        def call(*args: Any, **given: Any) -> None:
            fields = {name: given.pop(name) for name in kind.__struct_fields__}
            function(*args, **{argument: kind(**fields)}, **given)

        return call

    return together(*options, add)


_KEPT = "satchel.storage_options"
_TEXTS = ("key", "secret", "token", "username", "user", "password", "passphrase", "profile", "account_key", "sas_token")
"""Options that are text even if they look like a number."""


def storage_option(function: F) -> F:
    """For every command that takes a workspace. The command itself does not get the value; `given` returns it."""
    return click.option(
        "--storage-option",
        multiple=True,
        metavar="K=V",
        expose_value=False,
        callback=_keep,
        help="An option of the storage behind a URL, with its fsspec name: endpoint_url=... You can repeat it.",
    )(function)


def _keep(ctx: click.Context, parameter: click.Parameter, words: tuple[str, ...]) -> None:
    """Errors never show the words, because most of them are secret."""
    found: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        name = name.strip()
        if not equals or not name:
            raise click.BadParameter("a storage option is NAME=VALUE, as in endpoint_url=http://127.0.0.1:8333")
        found[name] = value if name in _TEXTS else _value(value)
    ctx.meta[_KEPT] = found


def _value(text: str) -> Any:
    """JSON if it can be parsed; else text, also for a number that JSON would change."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return text if isinstance(value, float | int) and json.dumps(value) != text else value


def given() -> dict[str, Any]:
    """The options on this command line."""
    ctx = click.get_current_context(silent=True)
    options: dict[str, Any] = ctx.meta.get(_KEPT, {}) if ctx else {}
    return options


def find(typed: str | None, *, is_child: bool = False, with_options: bool = True) -> api.Handle:
    """The handle of the workspace at `typed`, or in the current folder. It does not look whether one is there: the
    methods of the handle do. `is_child`: a parent process has already looked, so the storage gets as much time as in a
    run. `with_options`: the storage options are for this one."""
    options, patience = given() if with_options else None, None if is_child else api.PATIENCE
    try:
        return api.open(typed, storage_options=options, tell=tell, patience=patience)
    except UsageError as error:
        if (mistaken := _in_order(typed)) is not None:
            raise mistaken from error
        raise


def find_both(source: str, to: str) -> tuple[api.Handle, dict[str, Any] | None]:
    """The workspace at `source`, and the storage options of `to`: those that were given are for the ends that are
    URLs."""
    is_remote = urls.is_remote(to)
    return find(source, with_options=urls.is_remote(source) or not is_remote), given() if is_remote else None


def _in_order(typed: str | None) -> UsageError | None:
    """What to say if the command line names a workspace, but not first, where the command expects it."""
    ctx = click.get_current_context(silent=True)
    if ctx is None or (typed and is_workspace(typed)):
        return None
    arguments = [each.name or "" for each in ctx.command.params if each.param_type_name == "argument"]
    if "workspaces" in arguments:
        return None  # each word is one
    given = [ctx.params.get(name) for name in arguments]
    words = [word for value in given for word in (value if isinstance(value, tuple) else (value,)) if word]
    named = next((word for word in words if word != typed and os.path.isfile(os.path.join(word, DEFINITION))), None)
    if named is None:
        return None
    has_options = any(
        ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE for name in ctx.params if name not in arguments
    )
    command = shlex.join(["satchel", ctx.info_name or "", named, *(word for word in words if word != named)])
    what = f"{typed} is" if typed else "the current folder is"
    remedy = f"the workspace comes first: `{command}{' ...' if has_options else ''}`"
    return UsageError(f"{what} not a workspace, but {named} is", remedy=remedy)


def tell(line: str) -> None:
    """Print what a person should know while a command runs."""
    click.echo(visible(line), err=True)


def is_workspace(word: str) -> bool:
    """Whether a word of the command line is a workspace, or a URL, which can be nothing else."""
    return urls.is_remote(word) or os.path.isfile(os.path.join(urls.local(word), DEFINITION))


def complete_folders(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Nothing for a URL, because a key press must not wait for a network."""
    from click.shell_completion import CompletionItem

    return [] if "://" in incomplete else [CompletionItem(incomplete, type="dir")]


def workspace_argument(function: F) -> F:
    """The argument [WS]. The command gets it as `workspace`, for `find`."""
    argument = click.argument("workspace", required=False, metavar="[WS]", shell_complete=complete_folders)
    return argument(storage_option(function))


def all_option(text: str) -> Callable[[F], F]:
    """The option --all [ROOT], which the command gets as `root`."""
    return click.option(
        "--all", "root", metavar="[ROOT]", is_flag=False, flag_value=".", shell_complete=complete_folders, help=text
    )


def json_option(function: F) -> F:
    """For a command whose result is one JSON value: a refusal is one, too."""
    text = "Print JSON, for programs."
    return click.option("--json", "as_json", is_flag=True, callback=note_json, help=text)(function)


by_option = click.option("--by", metavar="NAME", help="Who asks for it. [default: user@host]")

yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")


def note_json(ctx: click.Context, _: click.Parameter, value: bool) -> bool:
    """Remember that a refusal is to be JSON, in one line."""
    if ctx.obj is not None:  # completion has none
        ctx.obj["json"] = value
    return value


class Length(click.ParamType):  # type: ignore[type-arg]  # generic for the checker only
    """A length of time, `90s`, in seconds."""

    name = "length"

    def convert(self, value: Any, parameter: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            return seconds_of(value)
        except UsageError as error:
            self.fail(f"{error.what}: {error.remedy}", parameter, ctx)


drain_timeout_option = click.option(
    "--drain-timeout",
    type=Length(),
    metavar="TIME",
    help="How long a stop waits for running work before it interrupts it. Default: workspace.yaml, or 120s.",
)


# A start


adopt_option = click.option(
    "--adopt",
    is_flag=True,
    help="Continue here, although this may be a copy of a run elsewhere. Says what is there, and asks at a terminal.",
)
end_other_option = click.option(
    "--end-other",
    is_flag=True,
    help="With --adopt: end the run at its other place, if that can be reached. Nothing starts there any more.",
)


def confirm_adoption(
    place: api.Handle, *, ends_other: bool = False, reaches_out: bool = False, asks: bool = True
) -> None:
    """Say what an adoption does, ask at a terminal, and end the run at the other place if the person says so. Unless it
    `reaches_out`, as a start does, no other storage is contacted."""
    from ...workspace.inspect import look  # a supervisor reads no run
    from ...workspace.lifecycle import acquire

    try:
        other = acquire.other(place.store, look(place.store).moment, reaches_out=reaches_out)
    except SatchelError:
        return  # the command itself says what is wrong
    if other is None:
        return
    click.echo(visible(f"{other.says}."), err=True)
    if not other.url:
        click.echo(
            "That place can't be reached, so nothing stops the run there: make sure that it never runs.", err=True
        )
    elif not ends_other:
        click.echo(visible(f"The run at {other.url} is left as it is, and can go on."), err=True)
    if asks and sys.stdin.isatty():
        if not click.confirm("Continue the run here?", err=True):
            raise UsageError("was not adopted", path=place.url, why="nothing was changed, here or there")
        if other.url and not ends_other:
            ends_other = click.confirm(visible(f"End it at {other.url} for good?"), err=True)
    if ends_other:
        click.echo(visible(f"ended the run at {place.end_other()}: nothing starts there any more"), err=True)


take_over_option = click.option(
    "--take-over",
    is_flag=True,
    help="In a bucket: take the run from its last process without waiting for a heartbeat. Asks first.",
)


def confirm_take_over(place: api.Handle) -> None:
    """Ask whether to take the workspace from its holder. LeaseHeld if not."""
    holder = place.holder()
    if not holder:
        return
    click.echo(f"{holder}. If that process still runs, it will stop before its next effect.", err=True)
    click.echo("An effect that it has already started can't be stopped. What it recorded is kept.", err=True)
    agrees = False
    with suppress(click.Abort):  # no person is there to be asked
        agrees = click.confirm("Take the run over?", err=True)
    if not agrees:
        raise LeaseHeld("was not taken over", path=place.url, why=holder)


def ask_about_copies(place: api.Handle) -> bool:
    """Ask and record the answer. False where no person can answer, or nothing of the kind is asked."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    question = next(filter(_is_about_copies, place.questions()), None)
    if question is None:
        return False
    click.echo(visible(question.text), err=True)
    decision = click.prompt("Your answer", type=click.Choice(question.choices), err=True)
    for remark in place.answer(decision, question.id).report:
        click.echo(visible(f"{remark.kind}  {remark.text}"), err=True)
    return True


def _is_about_copies(question: api.OpenQuestion) -> bool:
    from ...workspace.journal import ApprovalAsked  # most runs ask nothing

    asked = question.question.asked
    return isinstance(asked, ApprovalAsked) and asked.back is not None


# Positions


def split(words: tuple[str, ...], most: int) -> tuple[api.Handle, tuple[str, ...]]:
    """The workspace, or that of the current folder, and the words after it, `most` of them."""
    is_named = bool(words) and (is_workspace(words[0]) or not (is_workspace(".") or _is_of_a_run(words[0])))
    rest = words[1:] if is_named else words
    if len(rest) > most:
        find(words[0])  # says that there is no such workspace
        raise click.UsageError(f"there are too many arguments: {' '.join(rest[most:])}")
    return find(words[0] if is_named else None), rest


def _is_of_a_run(word: str) -> bool:
    """Whether it is rather a record, an item or a file of a run than a folder that is not there."""
    from ...workspace.history import LATEST  # reads the past, which most commands do not

    return word.isdecimal() or word == LATEST or word.startswith(("^", "state.json", "todo.md", "messages.jsonl"))


Completing = Callable[[click.Context, click.Parameter, str], "list[CompletionItem]"]


def completing(make: Callable[[api.Handle], Iterable[CompletionItem]]) -> Completing:
    """Completes a folder, then what `make` finds in the workspace that was named, or is the current folder."""

    def complete(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        named = list(ctx.params.get("words") or ())
        if any(urls.is_remote(word) for word in (*named, incomplete)):
            return []  # a key press must not wait for a network
        try:
            every = make(find(named[0] if named and is_workspace(named[0]) else None))
        except (SatchelError, OSError):
            return complete_folders(ctx, parameter, incomplete)
        found = [item for item in every if str(item.value).startswith(incomplete)]
        return found + ([] if named else complete_folders(ctx, parameter, incomplete))

    return complete


def complete_moment(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The checkpoints and items of the workspace that was named, or is the current folder: the value of an option."""
    return of_named(ctx, _moments, incomplete, default=".")


def complete_item(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The items of the workspace that was named."""
    return of_named(ctx, _items, incomplete)


def complete_change(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The settings and prompts of the workspace that was named, as `--set` takes them."""
    from click.shell_completion import CompletionItem

    return of_named(ctx, lambda place: map(CompletionItem, api.changes(place)), incomplete)


def of_named(
    ctx: click.Context, make: Callable[[api.Handle], Iterable[CompletionItem]], incomplete: str, default: str = ""
) -> list[CompletionItem]:
    """What `make` finds in the workspace that was named, also while the option that is completed has no value."""
    words = [ctx.params.get("workspace"), *(ctx.params.get("words") or ()), *ctx.args]
    named = next((word for word in words if word and word[:1] != "-"), "")  # not taken yet while an option has no value
    if default and not (named and is_workspace(named)):
        named = default
    try:
        found = make(find(named)) if named and not urls.is_remote(named) else ()
        return [item for item in found if str(item.value).startswith(incomplete)]
    except (SatchelError, OSError):
        return []


def _moments(place: api.Handle) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    from ...workspace.history import LATEST
    from ...workspace.state import checkpoint

    points = [path.removeprefix("checkpoints/").removesuffix(".json") for path in checkpoint.paths(place.store)]
    return [*_items(place), *map(CompletionItem, points), CompletionItem(LATEST)]


def _items(place: api.Handle) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    works = {work.names[0]: work.title for work in place.history.steps().work if work.scope}
    return [CompletionItem(name, help=title) for name, title in works.items()]


complete_position = completing(_moments)
"""The checkpoints and items."""
