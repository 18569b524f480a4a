"""The list of commands, loaded one by one, and the only place where an error becomes text and an exit code.

Commands and listeners of other distributions, and of Satchel's own faces, are found by their entry points:

`satchel.commands`    NAME = "module:attribute", a click command; `satchel NAME` calls it
`satchel.listeners`   what `satchel serve --listen` takes tasks by: `listening_of_options` of the face `http`
`satchel.meters`      what `--metrics` serves numbers by: `metering_of_options` of the face `http`

An entry point may name the extra that it needs, `"module:attribute [EXTRA]"`: an error then says what to install.
Looking for them reads the metadata of all installed distributions, which is slow. So it is done only for a word that is
no command of Satchel itself, and for the list of commands.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from ...schemas import nearest
from ...workspace.base import AgentError, Conflicting, LeaseHeld, Refused, SatchelError, StorageFailed, visible
from .output import print_json

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUPS = {
    "Run": {
        "new": ("launch", "Make a workspace from a sample."),
        "run": ("launch", "Run the agent, or resume it after a crash."),
        "resume": ("launch", "Resume a run that stopped."),
        "send": ("decisions", "Put a task or a message into the inbox of a run."),
        "answer": ("decisions", "Answer a question of a run."),
        "pause": ("pauses", "Stop runs at their next safe point."),
        "cancel": ("pauses", "End runs for good at their next safe point."),
        "stop": ("pauses", "Kill runs at once: the emergency stop."),
    },
    "Look": {
        "status": ("status", "Show the state of a run, and what to type next."),
        "ls": ("fleet", "List the workspaces under a folder."),
        "log": ("status", "Show what happened, one record a line."),
        "steps": ("timeline", "Show what the items of a run have done."),
        "show": ("timeline", "Show the run as it was at a record, or one call."),
        "diff": ("timeline", "Compare two moments of a run, or two runs."),
        "blame": ("timeline", "Show which record set each value."),
    },
    "Serve": {
        "serve": ("fleet", "Keep the workspaces under a folder running."),
        "keeper": ("keeper", "Hold the model calls of a run that a program starts."),
    },
    "History": {
        "rewind": ("returns", "Return a run to an earlier record."),
        "redo": ("returns", "Do an item again from its beginning."),
        "fork": ("returns", "Start a new run from an earlier moment of a run."),
        "replay": ("trials", "Do an item again in a fork, with another prompt or model, and compare."),
        "rehearse": ("trials", "Try new code against open runs, without doing anything."),
        "messages": ("decisions", "Cut off the conversation of a run."),
        "prune": ("files", "Remove old history that keep: no longer keeps."),
    },
    "Files": {
        "check": ("files", "Check all files, and show what a start would do."),
        "merge": ("decisions", "Resolve conflicts between edited files and the run."),
        "recover": ("files", "Repair the files after a crash, without running the agent."),
        "move": ("files", "Move a run to another place."),
        "copy": ("files", "Make a second copy of a run."),
        "export": ("files", "Write a run into a zip file, for other people to read."),
        "replicate": ("files", "Let a backup follow a run, or all runs of a folder."),
        "restore": ("files", "Go on from a backup, because the machine of the run is lost."),
    },
    "Setup": {
        "schema": ("shell", "Show what a file may contain, as JSON Schema."),
        "skill": ("shell", "Print an Agent Skill: how a coding agent handles runs."),
        "completion": ("shell", "Print the completion script for your shell."),
    },
}
"""The commands as `--help` groups them. Each with its module, where it is `NAME_command`, and what `--help` says, so
that the list needs no module."""
COMMANDS = {name: each for group in GROUPS.values() for name, each in group.items()}

_GROUPS_OF_PLUGINS = {"watch": "Look", "page": "Look", "fleet": "Serve", "mcp": "Serve"}
_OTHERS = "Of other distributions"

_COMMON = ("by", "yes", "as_json", "storage_option")
"""Options of many commands. The help of each shows its own options first."""

SYNONYMS = {
    "kill": "stop",
    "abort": "stop",
    "terminate": "stop",
    "quit": "stop",
    "list": "ls",
    "ps": "ls",
    "runs": "ls",
    "dir": "ls",
    "logs": "log",
    "history": "log",
    "events": "log",
    "journal": "log",
    "audit": "log --audit",
    "tail": "log -f",
    "follow": "log -f",
    "start": "run",
    "exec": "run",
    "execute": "run",
    "launch": "run",
    "continue": "resume",
    "unpause": "resume",
    "wake": "resume",
    "suspend": "pause",
    "hold": "pause",
    "init": "new",
    "create": "new",
    "samples": "new --list",
    "templates": "new --list",
    "approve": "answer",
    "approvals": "answer",
    "deny": "answer",
    "reject": "answer",
    "reply": "answer",
    "retry": "redo",
    "rerun": "redo",
    "rollback": "rewind",
    "undo": "rewind",
    "revert": "rewind",
    "reset": "rewind",
    "restart": "resume",
    "branch": "fork",
    "clone": "copy",
    "cp": "copy",
    "duplicate": "copy",
    "mv": "move",
    "rename": "move",
    "backup": "replicate",
    "sync": "replicate",
    "failover": "restore",
    "validate": "check",
    "verify": "check",
    "doctor": "check",
    "lint": "check",
    "fsck": "check",
    "repair": "recover",
    "fix": "recover",
    "resolve": "merge",
    "conflicts": "merge",
    "gc": "prune",
    "clean": "prune",
    "zip": "export",
    "archive": "export",
    "message": "send",
    "signal": "send",
    "submit": "send",
    "enqueue": "send",
    "info": "status",
    "describe": "status",
    "state": "status",
    "inspect": "show",
    "cat": "show",
    "view": "show",
    "call": "show",
    "compare": "diff",
    "trace": "steps",
    "timeline": "steps",
    "test": "rehearse",
    "experiment": "replay",
    "top": "watch",
    "tui": "watch",
    "monitor": "watch",
    "daemon": "serve",
    "worker": "serve",
    "up": "serve",
    "dask": "fleet",
    "ui": "page",
    "web": "page",
    "dev": "page",
    "dashboard": "page",
    "version": "--version",
    "help": "--help",
}
"""What other programs call it, with what to type after `satchel`. Looked up before words that are only spelt alike."""

_NO_COMMAND = dict.fromkeys(
    ("rm", "delete", "remove"),
    "a run is its folder. `satchel cancel WS` ends it for good; after that you can delete the folder",
)
"""Words for which there is no command, with what to do instead."""

_MOMENT = "a record, an item or a checkpoint follows"
_FOLLOWS = {
    "rewind": f"{_MOMENT} --to: `satchel rewind WS --to 42`",
    "fork": f"{_MOMENT} --at: `satchel fork WS DST --at 42`",
    "merge": "the version that counts follows --use: `satchel merge WS --use ours`",
    "log": "an item follows --item: `satchel log WS --item 3`",
    "pause": "a reason follows --reason",
    "run": "the input of the agent follows --input",
}
"""Of commands that get with an option what others get by its place."""

INTERRUPTED = 130
"""The exit code that a shell expects after Ctrl-C. A run that is interrupted is paused, which is 3."""
STORAGE = 8

_COMMAND_PLUGINS = "satchel.commands"
_LISTENER_PLUGINS = "satchel.listeners"
_METER_PLUGINS = "satchel.meters"

_EXAMPLES = """\b
Examples:
  satchel new digest my-digest     make a workspace from a sample
  satchel run my-digest            run its agent, or resume it after a crash
  satchel status my-digest         show its state, and what to type next
"""


class Commands(click.Group):
    """Imports a command's module when it is called, and none at all for `--version`. `--help` imports those of
    plugins only, for what they say about themselves."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*COMMANDS, *plugin_names()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return _common_last(_load_plugin(cmd_name)) if cmd_name in plugin_names() else None
        name, text = COMMANDS[cmd_name]
        module = importlib.import_module(f".commands.{name}", __package__)
        command: click.Command = getattr(module, f"{cmd_name}_command")
        command.short_help = text
        return _common_last(command)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Like click's, which only guesses what a mistyped command may mean if it has loaded them all."""
        name = args[0]
        is_known = name in COMMANDS or name.startswith("-") or ctx.resilient_parsing
        if not is_known and name not in plugin_names():
            raise click.UsageError(f"no such command {name!r}{_meant(*args[:2])}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        told = {title: {name: text for name, (_, text) in group.items()} for title, group in GROUPS.items()}
        for name in plugin_names():
            told.setdefault(_GROUPS_OF_PLUGINS.get(name, _OTHERS), {})[name] = _plugin_summary(name)
        width = max(len(name) for group in told.values() for name in group)
        for title, group in told.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:<{width}}", text) for name, text in group.items()])

    def main(self, args: Sequence[str] | None = None, *_: Any, **extra: Any) -> Any:
        """Like click's, but every error ends in a few lines on stderr and its exit code."""
        words = sys.argv[1:] if args is None else list(args)
        extra |= {"prog_name": "satchel", "standalone_mode": False}
        if os.environ.get("NO_COLOR"):
            extra.setdefault("color", False)
        asked: dict[str, bool] = extra.setdefault("obj", {})
        said, has_died = "", False
        is_supervised = words[1:2] == ["--supervised"]
        if is_supervised:  # before click, so that a refused option is also reported and is no crash
            from ..live import supervisor_link

            supervisor_link.begin(words[2])
        try:
            code = super().main(words, **extra)
        except Exception as error:
            has_died = isinstance(error.__cause__, SystemExit)  # from the agent: a crash for the supervisor
            if asked.get("json") and isinstance(error, SatchelError) and not (is_supervised and has_died):
                error = _refuse(error)
            code, said = tell_error(error, with_traceback="--traceback" in words), str(error)
        code = code if isinstance(code, int) else 0
        if is_supervised and not has_died:
            supervisor_link.leave(code, said)
        sys.exit(code)


def _common_last(command: click.Command) -> click.Command:
    """The command, with the options that many have after its own."""
    command.params.sort(key=lambda each: _COMMON.index(each.name) if each.name in _COMMON else -1)
    for each in command.commands.values() if isinstance(command, click.Group) else ():
        _common_last(each)
    return command


@functools.cache
def _entry_points(group: str) -> dict[str, list[EntryPoint]]:
    """The entry points of a group by name, in the order of the names. Two for one name: two distributions have it."""
    from importlib.metadata import entry_points

    found: dict[str, list[EntryPoint]] = {}
    for each in sorted(entry_points(group=group), key=lambda each: (each.name, _owner(each))):
        found.setdefault(each.name, []).append(each)
    return found


def plugin_names() -> list[str]:
    """The commands of plugins."""
    return [*_entry_points(_COMMAND_PLUGINS)]


def _load_plugin(name: str) -> click.Command:
    """The command of a plugin. Refused if two distributions have it, or if it cannot be imported."""
    loaded = _loaded(f"the command {name!r}", _entry_points(_COMMAND_PLUGINS)[name])
    if not isinstance(loaded, click.Command):
        (entry,) = _entry_points(_COMMAND_PLUGINS)[name]
        raise Refused(f"the command {name!r} of {_owner(entry)} is no click command", why=f"it is {loaded!r}")
    return loaded


def _plugin_summary(name: str) -> str:
    """What `--help` says about the command of a plugin. One that can't be used says why."""
    try:
        return _load_plugin(name).get_short_help_str(limit=100)
    except Refused as error:
        return f"(can't be used: {visible(str(error).splitlines()[0])})"


def listener() -> Any:
    """What opens the listener of `satchel serve --listen`."""
    return _only(_LISTENER_PLUGINS, "the listener of `satchel serve --listen`", "listen")


def meter() -> Any:
    """What serves metrics: a function of a `Census`, an address, a file with a token (or None) and further names. It
    returns a context that gives the URL."""
    return _only(_METER_PLUGINS, "the server of `--metrics`", "metrics")


def _only(group: str, what: str, extra: str) -> Any:
    found = [entry for entries in _entry_points(group).values() for entry in entries]
    if not found:
        raise Refused(
            f"no installed distribution has {what}", remedy=f"install it with `pip install 'satchel[{extra}]'`"
        )
    return _loaded(what, found)


def _loaded(what: str, entries: list[EntryPoint]) -> Any:
    if len(entries) > 1:
        owners = " and ".join(_owner(each) for each in entries)
        raise Refused(f"{what} is in {owners}", why="only one can have it", remedy="uninstall one of them")
    (entry,) = entries
    try:
        return entry.load()
    except Exception as error:  # whatever a module of others does when it is imported
        why = f"{type(error).__name__}: {error}"
        remedy = f"repair or uninstall {_owner(entry)}"
        if isinstance(error, ModuleNotFoundError) and entry.extras:
            remedy = f"install it with `pip install '{_owner(entry)}[{','.join(entry.extras)}]'`"
        raise Refused(f"{what} of {_owner(entry)} can't be imported", why=why, remedy=remedy) from error


def _owner(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else entry.value


def _meant(name: str, then: str = "") -> str:
    """What to do instead of an unknown command, as the end of a sentence."""
    word = name.casefold()
    if word in _NO_COMMAND:
        return f": {_NO_COMMAND[word]}"
    known = (*COMMANDS, *plugin_names())
    if word == "help" and then in known:
        meant: str | None = f"{then} --help"
    else:
        meant = SYNONYMS.get(word) or nearest(name, known)
    return f". Did you mean {meant!r}?" if meant else ""


@click.command(cls=Commands, epilog=_EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=lambda *_: _say_version(*_),
    help="Show the version of Satchel.",
)
@click.option("--traceback", is_flag=True, expose_value=False, help="Show the traceback of an unexpected error.")
def group() -> None:
    """Runs AI agents over workspaces: folders that hold a whole run and survive kill -9."""


def main() -> None:
    """The entry point of the command line."""
    if None in (sys.stdin, sys.stdout, sys.stderr):  # closed, as by `>&-`
        from ...workspace.store import open_standard

        open_standard()
        for number, name in enumerate(("stdin", "stdout", "stderr")):
            setattr(sys, name, getattr(sys, name) or open(number, "w" if number else "r", closefd=False))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a terminal may not be able to show every character
    group.main()


def code_of(error: SatchelError) -> int:
    """1: it failed. 2: refused, and a person can correct it. 4: a person has to decide. 6: another process has it. 8:
    the storage failed, and the same start may succeed later."""
    if isinstance(error, LeaseHeld):
        return 6
    if isinstance(error, Conflicting):
        return 4
    if isinstance(error, StorageFailed):
        return STORAGE
    return 1 if isinstance(error, AgentError) else 2


def refused(error: SatchelError) -> dict[str, object]:
    """What a program gets instead of an outcome."""
    said = {"kind": type(error).__name__, "message": str(error)}
    return {"status": "refused", "exit_code": code_of(error), "error": said}


def _refuse(error: SatchelError) -> Exception:
    """Print it for a program. Returns what a person should be told: an OSError if stdout takes nothing."""
    try:
        print_json(refused(error), indent=None)  # one line, as `log` prints
    except OSError as failed:
        return failed
    return error


def tell_error(error: Exception, *, with_traceback: bool) -> int:
    """Print on stderr what went wrong and what to do. Returns the exit code."""
    if with_traceback and not isinstance(error, click.ClickException | click.Abort):
        import traceback

        traceback.print_exception(error)
    match error:
        case click.Abort():
            _line("interrupted")
            return INTERRUPTED
        case click.exceptions.NoArgsIsHelpError():
            click.echo(error.format_message(), err=True)
            return 2
        case click.UsageError():
            said = error.format_message()
            _line(said[:1].lower() + said[1:].removesuffix("."))
            if error.ctx is not None:
                if (follows := _FOLLOWS.get(error.ctx.info_name or "")) and _is_misplaced(error):
                    click.echo(f"  {follows}", err=True)
                click.echo(f"  {error.ctx.command_path} --help shows how to use it", err=True)
            return 2
        case click.ClickException():
            _line(error.format_message())
            return 2
        case SatchelError():
            _line(str(error))
            return code_of(error)
        case FileNotFoundError(filename=None) if not _has_folder():
            _line("the current folder was removed: `cd` to another one")
            return 2
        case OSError():
            where = f"{error.filename}: " if error.filename else ""
            _line(f"{where}{error.strerror or error}")
            return STORAGE
        case _:
            _line(
                f"Satchel has an internal error ({type(error).__name__}: {error}). Nothing that was recorded is "
                "lost; please report the error with the output of `--traceback`"
            )
            return 1


def _has_folder() -> bool:
    """Whether the current folder is still there."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return False
    return True


def _is_misplaced(error: click.UsageError) -> bool:
    """Whether a word has no place, or an option is missing that would have taken it."""
    is_missing = isinstance(error, click.MissingParameter) and isinstance(error.param, click.Option)
    return is_missing or "extra argument" in error.format_message()


def _line(text: str) -> None:
    first, *more = visible(text).splitlines() or [""]
    mark = click.style("satchel:", fg="red", bold=True)
    click.echo("\n".join((f"{mark} {first}", *(f"  {line}" for line in more))), err=True)


def _say_version(ctx: click.Context, option: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from ...workspace.base import version

        click.echo(f"satchel {version()}")
        ctx.exit()
