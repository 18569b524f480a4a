"""The texts of prompts that a run has used, kept by their content: records name versions, and the files change."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from typing import Any, NamedTuple

from .. import journal
from ..base import AgentError, Damaged, SatchelError, UsageError, check_path, decode, urls
from ..secrets import Redactor
from ..store import Store, open_store

FOLDER = "prompts"
"""The files that a person writes, `NAME.md`."""

KEPT = ".satchel/prompts"
PINNED = "pinned"
"""What a `configured` record calls the versions that the run is held to."""

_VERSION = re.compile(r"[0-9a-f]{12}")
_NAMED = re.compile(rb'"([0-9a-f]{12})"')


def version_of(data: bytes) -> str:
    """The start of the file's SHA-256."""
    return hashlib.sha256(data).hexdigest()[:12]


def path_of(name: str) -> str:
    """The file of a prompt. UsageError for a name that can't be one."""
    return check_path(f"{FOLDER}/{name}.md")


class Text(NamedTuple):
    data: bytes
    path: str  # for people


class Shelf:
    """The files of a run's prompts: those of its own folder, and for other names those of a `folder` that runs share
    (`prompts: {folder: ...}`). A file can't lead out of the folder by a link."""

    def __init__(self, store: Store, folder: str = ""):
        self._store, self._folder = store, folder

    @cached_property
    def _shared(self) -> Store | None:
        """None without one, and if it is not there."""
        if not self._folder:
            return None
        try:
            return open_store(urls.resolve(self._store.url, self._folder))
        except UsageError:
            return None

    def read(self, name: str) -> Text:
        """A file as it is now. FileNotFoundError without one."""
        path = path_of(name)
        try:
            return Text(self._store.read(path).data, path)
        except FileNotFoundError:
            if self._shared is None:
                raise
            return Text(self._shared.read(f"{name}.md").data, self._in_shared(name))

    def shown(self, name: str) -> str:
        """The path of a file, for people."""
        path = path_of(name)
        return self._in_shared(name) if self._folder and self._store.version(path) is None else path

    def files(self) -> dict[str, bytes]:
        """The prompt files that can be read, by name."""
        shared = {} if self._shared is None else dict(_files(self._shared, "", ""))
        return {**shared, **dict(_files(self._store, FOLDER, f"{FOLDER}/"))}

    def missing(self, name: str) -> UsageError:
        """The error for a prompt that is not there."""
        if self._folder and self._shared is None:
            what = f"there is no prompt {name!r}, and no folder {self._folder}"
            remedy = "restore the folder, or correct `prompts:` in workspace.yaml"
            return UsageError(what, path=path_of(name), remedy=remedy)
        there = ", ".join(f"{known}.md" for known in sorted(self.files()))
        remedy = f"the prompts are: {there}" if there else "write the file"
        return UsageError(f"there is no prompt {name!r}", path=self.shown(name), remedy=remedy)

    def _in_shared(self, name: str) -> str:
        return f"{self._folder.rstrip('/')}/{name}.md"


def _files(store: Store, folder: str, prefix: str) -> Iterator[tuple[str, bytes]]:
    for entry in store.list(folder):
        if entry.path.endswith(".md"):
            try:
                data = store.read(entry.path).data
            except (OSError, SatchelError):
                continue  # told when it is used
            yield entry.path.removeprefix(prefix).removesuffix(".md"), data
    for inner in store.folders(folder):
        yield from _files(store, inner, prefix)


def keep(store: Store, name: str, data: bytes, redactor: Redactor) -> str:
    """Keep the content of a prompt's file, durably when this returns. Returns its version. AgentError for a secret in
    it: the kept text would have it when the file has lost it."""
    check_no_secret(name, data, redactor)
    version = version_of(data)
    if store.version(f"{KEPT}/{version}.md") is None:
        store.replace(f"{KEPT}/{version}.md", data)
    return version


def check_no_secret(name: str, data: bytes, redactor: Redactor) -> None:
    """AgentError if the content of a prompt has a secret."""
    for _, rule in redactor.found_in(data.decode(errors="replace")) if redactor else ():
        raise AgentError(
            "has a secret",
            path=path_of(name),
            why=rule,
            remedy="write {{name}} in its place, and give the value to run.prompt",
        )


def prompt_text(store: Store, name: str, version: str) -> str:
    """The text of the prompt `name` in a `version` that the run has used, with its placeholders. UsageError if it is
    not kept, Damaged if it was changed."""
    path, kept = path_of(name), f"{KEPT}/{version}.md"
    if not _VERSION.fullmatch(version):
        raise UsageError(f"{version!r} is no version of a prompt", remedy="it has 12 digits of 0-9 and a-f")
    try:
        data = store.read(kept).data
    except FileNotFoundError:
        with suppress(FileNotFoundError):
            data = store.read(path).data
            if version_of(data) == version:
                return decode(data, path)
        raise UsageError(
            f"the prompt {name}@{version} is not kept",
            path=KEPT,
            why="this run has not used it, or the file was removed",
            remedy=f"restore {kept} from a backup",
        ) from None
    if version_of(data) != version:
        raise Damaged("is not the prompt that was used", path=kept, remedy="restore the file from a backup")
    return decode(data, kept)


def unused(store: Store, gone: Collection[str], more: Callable[[], bytes]) -> list[str]:
    """The kept versions that neither the journal nor a checkpoint names, except the files that are about to be `gone`.
    `more` returns what will be kept of those. Only under the lock: an agent keeps a version before a record names it.

    FileNotFoundError if a file has been removed meanwhile: then another process is pruning."""
    kept = (entry.path for entry in store.list(KEPT))
    left = {path for path in kept if _VERSION.fullmatch(path.rpartition("/")[2].removesuffix(".md"))}
    named = {entry.path for folder in (journal.FOLDER, journal.CHECKPOINTS) for entry in store.list(folder)}
    for data in journal.may_name(store, sorted(named - {*gone}) if left else ()):
        left -= _named_in(data)
    return sorted(left - _named_in(more())) if left else []


def _named_in(data: bytes) -> set[str]:
    return {f"{KEPT}/{found.decode()}.md" for found in _NAMED.findall(data)}


def pinned(config: Mapping[str, Any]) -> dict[str, str] | None:
    """The versions by name, as the configuration of a run has them. None if it is not held to any."""
    found = config.get(PINNED)
    return {str(name): str(version) for name, version in found.items()} if isinstance(found, dict) else None


def released(config: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """The configuration of a run that is not held to these prompts."""
    known = pinned(config)
    if known is None:
        return dict(config)
    return {**config, PINNED: {name: version for name, version in known.items() if name not in names}}


def held(shelf: Shelf, config: Mapping[str, Any]) -> Iterator[str]:
    """In words, the files that differ from the versions that a run of this configuration is held to."""
    for name, version in (pinned(config) or {}).items():
        try:
            if version_of(shelf.read(name).data) == version:
                continue
            found = "has changed"
        except FileNotFoundError:
            found = "is missing"
        except (SatchelError, OSError):
            found = "can't be read"
        yield f"{shelf.shown(name)} {found}; the run keeps the version {version} (`prompts: pinned`)"
