"""`satchel schema`, `skill` and `completion`: texts for editors, coding agents and shells."""

from __future__ import annotations

import os
from importlib import resources

import click
from click.shell_completion import CompletionItem, ShellComplete, get_completion_class

from .... import schemas
from ....schemas import nearest
from ....workspace.base import DEFINITION, UsageError, decode
from ....workspace.formats import jsontext
from ....workspace.store import open_store
from ..output import print_json, visible_json

_DATA = ".satchel/schemas/data.json"

_SCHEMA_EXAMPLES = """\b
Examples:
  satchel schema --list
  satchel schema workspace
  satchel schema data          in a workspace: the state of its agent
"""


def _complete_schema(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in schemas.names() if name.startswith(incomplete)]


@click.command("schema", epilog=_SCHEMA_EXAMPLES)
@click.argument("name", required=False, shell_complete=_complete_schema)
@click.option("--list", "as_list", is_flag=True, help="List all schemas, and the files that they describe.")
@click.option("--json", "as_json", is_flag=True, help="With --list: print JSON. A schema is always JSON.")
def schema_command(name: str | None, as_list: bool, as_json: bool) -> None:
    """Print the JSON Schema (2020-12) of a kind of file."""
    if name is None or as_list:
        titles = {each: str(schemas.schema(each).get("title", "")) for each in schemas.names()}
        if as_json:
            print_json(titles)
        else:
            for each, title in titles.items():
                click.echo(f"{each:<12}{title}")
        return
    if name not in schemas.names():
        close = nearest(name, schemas.names())
        raise UsageError(
            f"there is no schema {name!r}",
            remedy=(f"did you mean {close!r}? " if close else "") + f"there are {', '.join(schemas.names())}",
        )
    click.echo(_own_data() if name == "data" and os.path.isfile(DEFINITION) else schemas.text(name), nl=False)


def _own_data() -> str:
    """The agent's own schema, as its last run has written it. Before the first run anything is allowed."""
    try:
        data = open_store(".").read(_DATA).data
    except FileNotFoundError:
        return schemas.text("data")
    return visible_json(jsontext.dump(jsontext.load(decode(data, _DATA), _DATA)))


_SKILL_EXAMPLES = """\b
Examples:
  mkdir -p .claude/skills/satchel
  satchel skill > .claude/skills/satchel/SKILL.md
"""


@click.command("skill", epilog=_SKILL_EXAMPLES)
def skill_command() -> None:
    """Print an Agent Skill: a SKILL.md that tells a coding agent how to read, correct and continue runs.

    Put it into a folder called satchel where your coding agent looks for skills.
    """
    click.echo(resources.files(__package__.rpartition(".")[0]).joinpath("SKILL.md").read_text("utf-8"), nl=False)


_COMPLETION_EXAMPLES = """\b
Examples:
  satchel completion bash > ~/.local/share/bash-completion/completions/satchel
  satchel completion zsh > ~/.zfunc/_satchel       with fpath+=~/.zfunc
  satchel completion fish > ~/.config/fish/completions/satchel.fish
"""


@click.command("completion", epilog=_COMPLETION_EXAMPLES)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion_command(ctx: click.Context, shell: str) -> None:
    """Print the script that completes commands, workspaces, questions and templates.

    To try it in this shell: eval "$(satchel completion bash)"
    """
    kind = get_completion_class(shell)
    assert kind is not None and ctx.parent is not None
    completion = kind(ctx.parent.command, {}, "satchel", "_SATCHEL_COMPLETE")
    click.echo(ShellComplete.source(completion))  # click's own check starts bash, which may not be installed
