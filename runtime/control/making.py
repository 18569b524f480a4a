"""Make a workspace from a sample, or from the definition and code of another one."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from msgspec import Struct

from ...workspace.base import DEFINITION, OF_A_RUN, SatchelError, UsageError, arguments, check_path, slug, urls
from ...workspace.formats import definition, yamltext
from ...workspace.people.inbox import archive
from ...workspace.store import Store
from . import storage, template
from .opening import reach
from .template import File

_IGNORED = ".gitignore"


class Made(Struct, frozen=True):
    """A new workspace: its `folder` or URL, its `run_id` and `settings`, and the name of its `template`."""

    folder: str
    run_id: str
    settings: dict[str, Any]
    template: str


def new(
    source: str | os.PathLike[str],
    to: str | os.PathLike[str],
    *,
    settings: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Made:
    """Make the workspace `to`, a folder or URL that is empty or missing, from `source`: the name of a sample, or a
    folder with a workspace.yaml.

    Copies definition, code and documents, never the state of a run. Without a `.gitignore`, one is written that leaves
    out what a run keeps. The new run gets its own name. `settings` replace
    those of workspace.yaml, by name, or by names joined by dots. workspace.yaml is written last, so a half copy is not
    a workspace; a failure leaves nothing behind. UsageError for wrong arguments, or if `to` is not free.
    """
    typed, folder = arguments.place("source", source), urls.checked(arguments.place("to", to))
    chosen = arguments.mapping("settings", settings)
    if urls.is_remote(typed):
        raise UsageError(
            "a template must be on this machine",
            path=typed,
            remedy="copy its definition, code and documents into a folder",
        )
    found = template.find(typed)
    run_id = f"{slug(found.name) or 'run'}-{os.urandom(2).hex()}"
    text = yamltext.set_value(found.definition(), ("run_id",), run_id)
    text = template.with_settings(text, chosen)
    files = list(found.files())
    if not urls.is_remote(folder) and all(file.path != _IGNORED for file in files):
        files.append(File(_IGNORED, _ignored().encode(), None))
    files.append(File(DEFINITION, text.encode(), None))
    if urls.is_remote(folder):
        _upload(reach(folder, storage_options), files)
    else:
        storage.use(folder, storage_options)
        _write(folder, files)
    return Made(folder, run_id, definition.parse(text).settings, found.name)


def _ignored() -> str:
    """What git leaves out: the run. A clone with a part of it could act as the same run once more."""
    names = sorted(OF_A_RUN - {"outputs"} | {archive.FOLDER})
    lines = "".join(f"/{name}\n/agents/**/{name}\n" for name in names)
    return (
        f"# Satchel: what a run keeps, and what may be secret. outputs/ can be committed.\n{lines}__pycache__/\n.env\n"
    )


def _write(folder: str, files: list[File]) -> None:
    """Write all files, workspace.yaml last, so that a half copy is not a workspace. A failure leaves nothing behind."""
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
    """The same into a bucket. Files that others create there at the same moment are not overwritten."""
    if next(store.list(""), None) is not None or next(store.folders(""), None) is not None:
        raise UsageError("is not empty", path=store.url, remedy="name a place that is empty")
    for file in files:  # send nothing that would not arrive
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
            raise UsageError(
                "another process is making a workspace there", path=store.url, remedy="name another place"
            ) from error
        raise


@contextmanager
def _undone_on_failure() -> Iterator[list[str]]:
    """Yields a list for files and folders that the body makes; removes them if it fails."""
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
