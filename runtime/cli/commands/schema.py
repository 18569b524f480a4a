"""`satchel schema`: print a JSON Schema."""

from __future__ import annotations

import os

import click
from click.shell_completion import CompletionItem

from .... import schemas
from ....schemas import nearest
from ....workspace.base import DEFINITION, UsageError, decode
from ....workspace.formats import jsontext
from ....workspace.store import open_store
from ..render.output import print_json
from ..render.words import visible_json

_DATA = ".satchel/schemas/data.json"

_EXAMPLES = """\b
Examples:
  satchel schema --list
  satchel schema workspace
  satchel schema data          in a workspace: the state of its agent
"""


def _complete(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in schemas.names() if name.startswith(incomplete)]


@click.command("schema", epilog=_EXAMPLES)
@click.argument("name", required=False, shell_complete=_complete)
@click.option("--list", "as_list", is_flag=True, help="List all schemas, and the files that they describe.")
@click.option("--json", "as_json", is_flag=True, help="With --list: print JSON. A schema is always JSON.")
def command(name: str | None, as_list: bool, as_json: bool) -> None:
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
