"""Make a workspace from a template: a sample of the installed package, or the definition and code of any workspace."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from ...schemas import Where, nearest
from ...workspace.base import (
    DEFINITION,
    OF_A_RUN,
    InvalidFile,
    SatchelError,
    UsageError,
    arguments,
    check_path,
    decode,
    fresh_run_id,
    slug,
    stamp,
    urls,
)
from ...workspace.formats import definition, yamltext
from ...workspace.inbound import archive
from ...workspace.inspect import transfer_file
from ...workspace.store import DiskStore, Store, Syscalls, settle_place
from ...workspace.views import TODO
from ..status import reach, use_options

_SAMPLES = "satchel.sample_workspaces"
_AGENTS = "agents/"
_NEVER = frozenset(("__pycache__", ".git", ".DS_Store"))


_LARGEST = 1 << 30
"""Bytes of a file that is copied."""

_IGNORED = ".gitignore"


class File(NamedTuple):
    path: str  # in the workspace
    source: bytes | Traversable  # what is in it, or where that lies
    mode: int | None

    def read(self) -> bytes:
        return self.source if isinstance(self.source, bytes) else self.source.read_bytes()


class Template(Struct, frozen=True):
    """The folder and name of a source."""

    name: str
    root: Traversable

    def definition(self) -> str:
        """The text of its workspace.yaml. InvalidFile if it is not valid, too large, or a link to elsewhere."""
        if isinstance(self.root, Path):
            data = DiskStore(self.root).read(DEFINITION, limit=definition.LIMIT).data
        else:
            data = self.root.joinpath(DEFINITION).read_bytes()
        text = decode(data, DEFINITION)
        definition.parse(text)
        return text

    def store(self) -> DiskStore:
        """Its folder, as the place of its agent's code. UsageError if the installed package is not a folder."""
        if not isinstance(self.root, Path):
            raise UsageError(
                f"the template {self.name!r} is not a folder on this machine, so its agent can't be asked",
                remedy="make the workspace without an input, and give that to the first start",
            )
        return DiskStore(self.root)

    def files(self) -> list[File]:
        """All files for a new workspace except workspace.yaml. Links are left out, because they may lead anywhere."""
        return list(_collect(self.root, ""))

    def about(self) -> str:
        """The first comment of its workspace.yaml that is for people."""
        lines = (line.strip() for line in self.definition().splitlines())
        comments = (line.lstrip("# ") for line in lines if line.startswith("#") and "yaml-language-server" not in line)
        return next(comments, "")

    def summary(self) -> str:
        """Like `about`, for a list that goes on: of a template that is not valid, why."""
        try:
            return self.about()
        except SatchelError as error:
            return f"not valid: {error}"


def samples() -> list[Template]:
    """The samples that come with Satchel, by name."""
    found = [Template(entry.name, entry) for entry in files(_SAMPLES).iterdir() if _is_workspace(entry)]
    return sorted(found, key=lambda template: template.name)


def find(name: str) -> Template:
    """A folder with a workspace.yaml, or a sample. UsageError lists the samples."""
    folder = Path(name)
    if _is_workspace(folder):
        return Template(folder.resolve().name, folder)
    known = {template.name: template for template in samples()}
    if name in known:
        return known[name]
    close = nearest(name, known)
    why = f"the folder has no {DEFINITION}" if folder.is_dir() else None
    there_are = f"the templates are {', '.join(known)}, and every folder with a {DEFINITION}" if known else None
    remedy = f"did you mean {close!r}?" if close else there_are
    raise UsageError(f"there is no template {name!r}", why=why, remedy=remedy)


def _is_workspace(folder: Traversable) -> bool:
    return folder.is_dir() and folder.joinpath(DEFINITION).is_file()


def _collect(folder: Traversable, above: str) -> Iterator[File]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        path = f"{above}{entry.name}"
        if entry.name in _NEVER or _is_of_a_run(path) or ".rejected." in entry.name:
            continue
        if isinstance(entry, Path) and entry.is_symlink():
            continue
        if entry.is_dir():
            yield from _collect(entry, f"{path}/")
        elif entry.is_file():
            status = entry.stat() if isinstance(entry, Path) else None
            if status and status.st_size > _LARGEST:
                raise UsageError("is larger than 1 GiB", path=path, remedy="copy the file by hand, or move it away")
            is_plan = entry.name == TODO and (not above or above.startswith(_AGENTS))
            if is_plan and stamp.read_markdown(entry.read_bytes()).stamp is not None:
                continue
            yield File(path, entry, status.st_mode & 0o777 if status else None)


def _is_of_a_run(path: str) -> bool:
    """Whether a file belongs to a run: its state, its sub-agents' state, or its inbox. agents/ may also contain
    code."""
    if path in (DEFINITION, transfer_file.MOVED, archive.INBOX) or path in OF_A_RUN:
        return True
    return path.startswith(_AGENTS) and path.rpartition("/")[2] in OF_A_RUN


# Settings


def with_settings(text: str, chosen: Mapping[str, Any]) -> str:
    """workspace.yaml with other values for its settings."""
    for key, value in chosen.items():
        settings = definition.parse(text).settings
        where = where_of(key, settings)
        if where is None:
            raise _unknown(key, settings)
        _check_kind(key, _at(settings, where), value)
        text = yamltext.set_value(text, ("settings", *where), value)
    return text


def _at(settings: Any, where: Where) -> Any:
    for part in where:
        settings = settings[part]
    return settings


def _check_kind(key: str, old: Any, new: Any) -> None:
    """UsageError for what is no number in place of a number, or neither true nor false in place of one of them. Null is
    for the agent to judge."""
    if new is None:
        return
    for kind, name in ((bool, "true or false"), ((int, float), "a number")):
        if isinstance(old, kind):
            if not isinstance(new, kind) or isinstance(new, bool) != isinstance(old, bool):
                raise UsageError(f"the setting {key!r} is {name}, and {new!r} is not", why=f"it is {old!r} now")
            return


class Setting(NamedTuple):
    """A setting of a template: its name, or names joined by dots, its value there, and the comment above or behind
    it."""

    name: str
    value: Any
    about: str


def settings_of(text: str) -> list[Setting]:
    """The settings of a workspace.yaml, those in mappings one by one."""
    document, lines = yamltext.load(text, DEFINITION), text.splitlines()
    return [
        Setting(".".join(path[1:]), value, _note(lines, document.line(path) - 1))
        for path, value in _settings(definition.parse(text).settings, ("settings",))
    ]


def _settings(values: Mapping[str, Any], above: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, value in values.items():
        if isinstance(value, dict) and value and not any("." in each for each in (name, *value)):
            yield from _settings(value, (*above, name))
        else:
            yield (*above, name), value


def _note(lines: list[str], at: int) -> str:
    first = at
    while first and lines[first - 1].lstrip().startswith("#"):
        first -= 1
    behind = lines[at].partition(" #")[2] if first == at else ""
    return " ".join(each.strip().lstrip("#").strip() for each in [*lines[first:at], behind]).strip()


def typed_settings(words: Iterable[str]) -> dict[str, Any]:
    """Settings from the command line: `key=value`."""
    return {key: value_of(value) for key, value in pairs(words, "--set folder=~/notes")}


def pairs(words: Iterable[str], example: str) -> Iterator[tuple[str, str]]:
    """Keys and values as they were typed."""
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise UsageError(f"--set {word!r} is not KEY=VALUE", remedy=f"for example {example}")
        yield key, value


def where_of(key: str, settings: Mapping[str, Any]) -> Where | None:
    """The path to a setting: its name, or names joined by dots. None if there is none."""
    if key in settings:
        return (key,)
    path, value = key.split("."), settings
    for part in path:
        if not isinstance(value, dict) or part not in value:
            return None
        value = value[part]
    return tuple(path)


def _unknown(key: str, settings: Mapping[str, Any]) -> UsageError:
    if not settings:
        return UsageError(f"there is no setting {key!r}", why="this template has no settings")
    close = nearest(key, settings)
    names = f"Its settings are {', '.join(settings)}"
    return UsageError(
        f"there is no setting {key!r} in this template", remedy=f"did you mean {close!r}? {names}" if close else names
    )


def value_of(text: str) -> Any:
    """A typed value as YAML in one line: a number, true, null, [a, b], {a: 1}; everything else is text."""
    try:
        root = yamltext.load(text, "--set").root
    except InvalidFile:
        if text[:1] in ("[", "{", '"', "'"):
            raise
        root = None
    is_plain = root is None or (root.kind == "scalar" and root.style == "plain" and isinstance(root.value, str))
    if root is None or is_plain or root.style == "block":
        return os.path.expanduser(text) if text.startswith("~/") else text
    return root.value


class NewWorkspace(Struct, frozen=True):
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
) -> NewWorkspace:
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
    found = find(typed)
    name = run_id if run_id is not None else fresh_run_id(slug(found.name) or "run")
    text = _named(found.definition(), name)
    text = with_settings(text, chosen)
    if input is not None:
        text = _with_input(text, given, found)
    files = list(found.files())
    if not urls.is_remote(folder) and all(file.path != _IGNORED for file in files):
        files.append(File(_IGNORED, _ignored().encode(), None))
    files.append(File(DEFINITION, text.encode(), None))
    if urls.is_remote(folder):
        _upload(reach(folder, storage_options), files)
    else:
        use_options(folder, storage_options)
        _write(folder, files)
    said = definition.parse(text)
    return NewWorkspace(folder, name, said.settings, found.name, said.input)


async def new_async(
    source: str | os.PathLike[str],
    to: str | os.PathLike[str],
    *,
    input: Mapping[str, Any] | None = None,
    run_id: str | None = None,
    settings: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> NewWorkspace:
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
    try:
        loaded = load(found.store(), said.agent)
    except SatchelError:
        raise
    except Exception as error:  # whatever its own code does
        raise UsageError(
            "the agent of the template can't be imported, so its input can't be checked",
            why=f"{type(error).__name__}: {error}",
            remedy="correct that, or make the workspace without an input",
        ) from error
    parameters = Parameters(loaded.function, "the agent")
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
    names = sorted(OF_A_RUN - {"outputs"} | {archive.INBOX})
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
