"""`satchel new`: make a workspace from a sample, or from another workspace."""

from __future__ import annotations

import os
import secrets
import shlex
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import click
from click.shell_completion import CompletionItem

from ...workspace import definition, urls, yamltext
from ...workspace.errors import SatchelError, UsageError
from ...workspace.names import DEFINITION, check_path, slug
from ...workspace.store import Store
from . import storage, template
from .place import complete_folders, reach
from .storage import storage_option
from .template import File, Template
from .words import one_line, visible

_EXAMPLES = """\b
Examples:
  satchel new --list
  satchel new digest my-digest
  satchel new digest my-digest --set sources=~/notes --set limit=5
  satchel new my-digest other-digest      the same agent, a run of its own
  satchel new digest s3://bucket/my-digest
"""


def _complete(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    names = [CompletionItem(each.name) for each in template.samples() if each.name.startswith(incomplete)]
    return names or complete_folders(ctx, parameter, incomplete)


@click.command("new", short_help="Make a workspace from a sample.", epilog=_EXAMPLES)
@click.argument("source", metavar="TEMPLATE", required=False, shell_complete=_complete)
@click.argument("folder", metavar="DEST", required=False, shell_complete=complete_folders)
@click.option("--set", "chosen", metavar="KEY=VALUE", multiple=True, help="Change a setting; may be given again.")
@click.option("--list", "as_list", is_flag=True, help="Show the samples that come with Satchel.")
@storage_option
def command(source: str | None, folder: str | None, chosen: tuple[str, ...], as_list: bool) -> None:
    """Make the workspace DEST, a folder or URL, from TEMPLATE: a sample, or any folder with a workspace.yaml.

    Definition, code and documents are copied, never the state of a run. The new run gets a name of its own.
    """
    if as_list:
        _list()
        return
    if source is None or folder is None:
        raise UsageError("name a template and a folder to make", remedy="as in `satchel new digest my-digest`; "
                         "`satchel new --list` shows the samples")  # fmt: skip
    if urls.is_remote(source):
        raise UsageError("a template lies on this machine", path=source,
                         remedy="copy its definition, code and documents into a folder")  # fmt: skip
    folder = urls.checked(folder)
    found = template.find(urls.local(source))
    run_id = f"{slug(found.name) or 'run'}-{secrets.token_hex(2)}"
    text = yamltext.set_value(found.definition(), ("run_id",), run_id)
    text = template.with_settings(text, chosen)
    files = [*found.files(), File(DEFINITION, text.encode(), None)]
    if urls.is_remote(folder):
        _upload(reach(folder), files)
    else:
        storage.use(folder)
        folder = urls.local(folder)
        _write(folder, files)
    _say(folder, text, found)


def _list() -> None:
    for each in template.samples():
        try:
            about = each.about()
        except SatchelError as error:
            about = f"not valid: {error}"
        click.echo(f"{each.name:<16}{one_line(about, 100)}".rstrip())


def _write(folder: str, files: list[File]) -> None:
    """All files, workspace.yaml last: what is not whole is not a workspace. A failure leaves nothing behind."""
    if os.path.lexists(folder) and not os.path.isdir(folder):
        raise UsageError("is a file", path=folder, remedy="name a folder that does not exist yet")
    if os.path.isdir(folder) and os.listdir(folder):
        raise UsageError("is not empty", path=folder, remedy="name a folder that does not exist yet")
    with _undone_on_failure() as made:
        for file in files:
            full = os.path.join(folder, file.path)
            _make_folders(os.path.dirname(full), made)
            with open(full, "xb") as stream:
                made.append(full)
                stream.write(file.read())
            if file.mode is not None:
                os.chmod(full, file.mode | 0o200)


def _upload(store: Store, files: list[File]) -> None:
    """The same into a bucket. What somebody else makes there at the same moment is not overwritten."""
    if next(store.list(""), None) is not None or next(store.folders(""), None) is not None:
        raise UsageError("is not empty", path=store.url, remedy="name a place where nothing is yet")
    for file in files:  # nothing is sent that would not arrive
        check_path(file.path)
    made: list[str] = []
    try:
        for file in files:
            store.create(file.path, file.read())
            made.append(file.path)
    except BaseException as error:
        for path in reversed(made):
            with suppress(SatchelError, OSError):
                store.remove(path)
        if isinstance(error, FileExistsError):
            raise UsageError("is being made by somebody else, too", path=store.url,
                             remedy="name another place") from error  # fmt: skip
        raise


@contextmanager
def _undone_on_failure() -> Iterator[list[str]]:
    """Files and folders that the body has made, in that order; removed again if it fails."""
    made: list[str] = []
    try:
        yield made
    except BaseException as error:
        for path in reversed(made):
            with suppress(OSError):
                (os.rmdir if os.path.isdir(path) else os.unlink)(path)
        if isinstance(error, OSError):
            where = str(error.filename or "")
            raise UsageError("can't be made", path=where, why=error.strerror or str(error)) from error
        raise


def _make_folders(folder: str, made: list[str]) -> None:
    if folder and not os.path.isdir(folder):
        _make_folders(os.path.dirname(folder), made)
        os.mkdir(folder)
        made.append(folder)


def _say(folder: str, text: str, source: Template) -> None:
    new = definition.parse(text)
    click.echo(f"{visible(folder)} is the run {click.style(new.run_id, bold=True)}, made from {visible(source.name)}")
    for name, value in new.settings.items():
        click.echo(f"  {one_line(yamltext.dump({name: value}), 100)}")
    click.echo(visible(f"next: {shlex.join(['satchel', 'run', folder])}"))
