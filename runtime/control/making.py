"""Make a workspace from a sample, or from the definition and code of another one."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import msgspec
from msgspec import Struct

from ...workspace.base import (
    DEFINITION,
    OF_A_RUN,
    InvalidFile,
    SatchelError,
    UsageError,
    arguments,
    check_path,
    fresh_run_id,
    slug,
    urls,
)
from ...workspace.formats import definition, yamltext
from ...workspace.inbound.inbox import archive
from ...workspace.store import Store, Syscalls, settle_place
from . import storage, template
from .opening import reach
from .template import File, Template

_IGNORED = ".gitignore"


class Made(Struct, frozen=True):
    """A new workspace: its `folder` or URL, its `run_id` and `settings`, the name of its `template`, and the `input`
    that its agent will get."""

    folder: str
    run_id: str
    settings: dict[str, Any]
    template: str
    input: dict[str, Any] = {}


def new(
    source: str | os.PathLike[str],
    to: str | os.PathLike[str],
    *,
    input: Mapping[str, Any] | None = None,
    run_id: str | None = None,
    settings: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Made:
    """Make the workspace `to`, a folder or URL that is empty or missing, from `source`: the name of a sample, or a
    folder with a workspace.yaml. It is durable when this returns: after a crash it is there, and every start finds the
    input.

    Copies definition, code and documents, never the state of a run. Without a `.gitignore`, one is written that leaves
    out what a run keeps. `input`: arguments of the agent by parameter, which are written into workspace.yaml, without
    the secrets that it names. With an input, the agent of `source` is imported, and values that it does not take are
    refused. `run_id`: the name of the run, for example that of a request; without it the run gets one of its own.
    `settings` replace those of workspace.yaml, by name, or by names joined by dots. workspace.yaml is written last, so
    a half copy is not a workspace; a failure leaves nothing behind. UsageError for wrong arguments, or if `to` is not
    free. In a running event loop call `new_async`.
    """
    typed, folder = arguments.place("source", source), urls.checked(arguments.target("to", to))
    chosen, given = arguments.mapping("settings", settings), arguments.mapping("input", input)
    if run_id is not None:
        arguments.text("run_id", run_id)
    if urls.is_remote(typed):
        raise UsageError(
            "a template must be on this machine",
            path=typed,
            remedy="copy its definition, code and documents into a folder",
        )
    found = template.find(typed)
    name = run_id if run_id is not None else fresh_run_id(slug(found.name) or "run")
    text = _named(found.definition(), name)
    text = template.with_settings(text, chosen)
    if input is not None:
        text = _with_input(text, given, found)
    files = list(found.files())
    if not urls.is_remote(folder) and all(file.path != _IGNORED for file in files):
        files.append(File(_IGNORED, _ignored().encode(), None))
    files.append(File(DEFINITION, text.encode(), None))
    if urls.is_remote(folder):
        _upload(reach(folder, storage_options), files)
    else:
        storage.use(folder, storage_options)
        _write(folder, files)
    said = definition.parse(text)
    return Made(folder, name, said.settings, found.name, said.input)


async def new_async(
    source: str | os.PathLike[str],
    to: str | os.PathLike[str],
    *,
    input: Mapping[str, Any] | None = None,
    run_id: str | None = None,
    settings: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Made:
    """`new` without blocking the event loop."""
    import asyncio

    return await asyncio.to_thread(
        new, source, to, input=input, run_id=run_id, settings=settings, storage_options=storage_options
    )


def _named(text: str, run_id: str) -> str:
    """workspace.yaml with the name of the new run. UsageError for one that no run can have."""
    named = yamltext.set_value(text, ("run_id",), run_id)
    try:
        definition.parse(named)
    except InvalidFile as error:
        (problem, *_) = error.problems
        raise UsageError(f"run_id can't be {run_id!r}", why=f"a name has {problem.expected}") from None
    return named


def _with_input(text: str, given: Mapping[str, Any], found: Template) -> str:
    """workspace.yaml with the arguments of the agent, which are checked against it. Runs code of the template."""
    from ...workspace.secrets import redactor_of  # only an input needs the agent
    from ..agent import Parameters, load

    said = definition.parse(text)
    parameters = Parameters(load(found.store(), said.agent).function, "the agent")
    checked = msgspec.json.decode(parameters.by_name({**said.input, **given}))
    kept = {name: checked[name] for name in (*said.input, *given)}
    text = yamltext.set_value(text, ("input",), redactor_of(said).value(kept))
    if len(text.encode()) > definition.LIMIT:
        raise UsageError(
            f"the input is too large for {DEFINITION}",
            why=f"the file may have {definition.LIMIT >> 10} KiB",
            remedy="write large data into a file, and give its path",
        )
    return text


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
    disk = Syscalls()
    with _undone_on_failure() as made:
        for file in files:
            full = os.path.join(folder, file.path)
            _make_folders(os.path.dirname(full), made)
            if file.path == DEFINITION:  # before it nothing counts, so all else is durable first
                _sync_folders(disk, made)
                settle_place(os.path.abspath(folder), disk)  # it may be there already, and empty
            with open(full, "xb") as stream:
                made.append(full)
                stream.write(file.read())
                stream.flush()
                disk.sync(stream.fileno())
            if file.mode is not None:
                os.chmod(full, file.mode | 0o200)
        disk.sync_folder(folder or ".")


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


def _sync_folders(disk: Syscalls, made: list[str]) -> None:
    """Make the names of everything that was made durable, up to that of the workspace itself."""
    for folder in {os.path.dirname(path) or "." for path in made}:
        disk.sync_folder(folder)


def _make_folders(folder: str, made: list[str]) -> None:
    if folder and not os.path.isdir(folder):
        _make_folders(os.path.dirname(folder), made)
        os.mkdir(folder)
        made.append(folder)
