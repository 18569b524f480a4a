"""`satchel new`: make a workspace from a sample, or from another workspace."""

from __future__ import annotations

import shlex

import click
from click.shell_completion import CompletionItem

from ....workspace.base import SatchelError, UsageError
from ....workspace.formats import yamltext
from ...control import new, samples, typed_settings
from ..options.place import complete_folders, is_workspace
from ..options.storage import given, storage_option
from ..render.words import one_line, visible

_EXAMPLES = """\b
Examples:
  satchel new --list
  satchel new digest my-digest
  satchel new digest my-digest --set sources=~/notes --set limit=5
  satchel new my-digest other-digest      the same agent, another run
  satchel new digest s3://bucket/my-digest
"""


def _complete(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    names = [CompletionItem(each.name) for each in samples() if each.name.startswith(incomplete)]
    return names or complete_folders(ctx, parameter, incomplete)


@click.command("new", epilog=_EXAMPLES)
@click.argument("source", metavar="TEMPLATE", required=False, shell_complete=_complete)
@click.argument("folder", metavar="DEST", required=False, shell_complete=complete_folders)
@click.option("--set", "chosen", metavar="KEY=VALUE", multiple=True, help="Change a setting. You can repeat it.")
@click.option("--list", "as_list", is_flag=True, help="List the samples that come with Satchel.")
@storage_option
def command(source: str | None, folder: str | None, chosen: tuple[str, ...], as_list: bool) -> None:
    """Make the workspace DEST, a folder or URL, from TEMPLATE: a sample, or any folder with a workspace.yaml.

    Copies the definition, code and documents, but never the state of a run. The new run gets its own name.
    """
    if as_list:
        _list()
        return
    if source is None or folder is None:
        raise UsageError(
            "name a template and a folder to make",
            remedy="for example `satchel new digest my-digest`; `satchel new --list` shows the samples",
        )
    known = {each.name for each in samples()}
    if folder in known and source not in known and not is_workspace(source):
        raise UsageError(
            f"there is no template {source!r}, but {folder!r} is one",
            remedy=f"the template comes first: `{shlex.join(['satchel', 'new', folder, source])}`",
        )
    made = new(source, folder, settings=typed_settings(chosen), storage_options=given())
    run_id = click.style(made.run_id, bold=True)
    click.echo(f"{visible(made.folder)} is the run {run_id}, made from {visible(made.template)}")
    for name, value in made.settings.items():
        click.echo(f"  {one_line(yamltext.dump({name: value}), 100)}")
    click.echo(visible(f"next: {shlex.join(['satchel', 'run', made.folder])}"))


def _list() -> None:
    for each in samples():
        try:
            about = each.about()
        except SatchelError as error:
            about = f"not valid: {error}"
        click.echo(f"{each.name:<16}{one_line(about, 100)}".rstrip())
