"""The source of a new workspace: a sample of the installed package, or the definition and code of any workspace."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct

from ...schemas import Where, nearest
from ...workspace.base import DEFINITION, OF_A_RUN, InvalidFile, UsageError, decode, stamp
from ...workspace.formats import definition, yamltext
from ...workspace.inbound.inbox import archive
from ...workspace.inspect import transfer_file
from ...workspace.store import DiskStore
from ...workspace.views import TODO

_SAMPLES = "satchel.sample_workspaces"
_AGENTS = "agents/"
_NEVER = frozenset(("__pycache__", ".git", ".DS_Store"))


_LARGEST = 1 << 30
"""Bytes of a file that is copied."""


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
    if path in (DEFINITION, transfer_file.MOVED, archive.FOLDER) or path in OF_A_RUN:
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
