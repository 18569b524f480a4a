"""The runs below a folder or URL, by name: their folder, relative to the root. What a tool needs besides its arguments,
and the files of the runs as resources: `satchel://RUN/PATH`."""

from __future__ import annotations

import base64
import json
import mimetypes
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import mcp_types as types
from mcp import MCPError

from ....workspace.base import DEFINITION, SatchelError, UsageError, arguments, myself, urls, visible
from ....workspace.inspect import transfer_file
from ... import api
from ...api import Handle, RunStatus, is_run, leads_below
from . import descriptions
from .descriptions import RunSummary

_NAMED = 20  # runs that an error names


class Runs:
    """Each method looks again: nothing is kept, so a server can be killed at any moment. Methods block."""

    def __init__(self, root: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None):
        typed = urls.checked(arguments.place("root", root))
        self._is_remote = urls.is_remote(typed)
        self.root = typed.rstrip("/") if self._is_remote else os.path.realpath(typed)
        api.open_all(typed, storage_options=storage_options)  # says now what is wrong with the root
        self._is_run = is_run(self.root)

    @property
    def is_remote(self) -> bool:
        """Whether each look is a request over a network."""
        return self._is_remote

    def all(self) -> dict[str, Handle]:
        """A handle on each run, by name, in the order of the names."""
        found = {self.name(each): each for each in api.open_all(self.root)}
        return {name: found[name] for name in sorted(found)}

    def statuses(self) -> dict[str, RunStatus]:
        """The brief status of each run, by name, in the order of the names. Includes places that a run has left."""
        found = {self._name_at(each.folder): each for each in api.ls(self.root)}
        return {name: found[name] for name in sorted(found)}

    def find(self, name: str) -> Handle:
        """The run of this name, or with this run_id if only one has it. UsageError names those that there are."""
        if (found := self.at(name)) is not None:
            return found
        statuses = self.statuses()
        same = [known for known, each in statuses.items() if each.definition and each.definition.run_id == name]
        if len(same) == 1 and (found := self.at(same[0])) is not None:
            return found
        known = [*statuses]
        more = f" and {len(known) - _NAMED} more" if len(known) > _NAMED else ""
        there = f"there are: {', '.join(known[:_NAMED])}{more}" if known else "there is none"
        raise UsageError(
            f"there is no run {name!r}",
            why=there,
            remedy="name one of them" if known else f"`satchel new` makes one below {self.root}",
        )

    def _run_above(self, name: str) -> str | None:
        """The run in whose folder this name leads. What lies there are its files, perhaps copied from strangers."""
        if self._is_run:
            return self.root
        names = name.split("/")
        places = (f"{self.root}/{'/'.join(names[:number])}" for number in range(1, len(names)))
        return next(filter(is_run, places), None)

    def at(self, name: str) -> Handle | None:
        """The run of this name, found without a look at the others; None if there is none."""
        places = [self.root] if name == self._own_name else []
        if leads_below(name, is_remote=self._is_remote) and self._run_above(name) is None:
            places.append(f"{self.root}/{name}")
        return next((handle for place in places if (handle := self._opened(place)) is not None), None)

    def _opened(self, place: str) -> Handle | None:
        """None if no run is there, or was there before it moved."""
        if not self._is_remote and (os.path.realpath(place) != place or not os.path.isdir(place)):
            return None
        handle = api.open(place)
        try:
            is_run = any(handle.store.version(name) is not None for name in (DEFINITION, transfer_file.MOVED))
        except SatchelError:
            return handle  # its methods say what is wrong
        return handle if is_run else None

    @property
    def _own_name(self) -> str:
        """The name of the root, for the case that it is a workspace itself."""
        return self.root.rpartition("/")[2]

    def name(self, handle: Handle) -> str:
        """The name of a run of this root."""
        return self._name_at(handle.url)

    def _name_at(self, place: str) -> str:
        return place.removeprefix(self.root).strip("/") or self._own_name


_LONGEST = 40  # characters of a client's name


class Asking(NamedTuple):
    """One call. `client` is what the client calls itself."""

    runs: Runs
    allowed: frozenset[str]
    client: str

    @property
    def by(self) -> str:
        """Who acts, for the record: the person of this process, and the client."""
        client = visible(" ".join(self.client.split()))[:_LONGEST]
        return f"{myself()} over MCP ({client})" if client else f"{myself()} over MCP"

    def status(self, handle: Handle) -> RunSummary:
        """The status of a run, read now."""
        return descriptions.status(self.runs.name(handle), handle.status(), self.allowed)


LIMIT = 1 << 20
"""Bytes of a file that is handed out."""

_PAGE = 200
_KINDS = {
    ".md": "text/markdown",
    ".json": "application/json",
    ".jsonl": "application/jsonl",
    ".yaml": "application/yaml",
    ".txt": "text/plain",
}


def listed(runs: Runs, cursor: str | None) -> types.ListResourcesResult:
    """The files of all runs, by run and path, a page at a time."""
    after = _position(cursor)
    found: list[types.Resource] = []
    for name, handle in runs.all().items():
        if name < after[0]:
            continue
        try:
            files = handle.files.list()
        except SatchelError:
            continue  # `status` says what is wrong with it
        for file in files:
            if (name, file.path) <= after:
                continue
            if len(found) == _PAGE:
                last = descriptions.of_uri(found[-1].uri)
                return types.ListResourcesResult(resources=found, next_cursor=json.dumps(last))
            found.append(_resource(name, file.path, file.bytes))
    return types.ListResourcesResult(resources=found)


def _position(cursor: str | None) -> tuple[str, str]:
    if cursor is None:
        return "", ""
    try:
        run, path = json.loads(cursor)
        return str(run), str(path)
    except (ValueError, TypeError, RecursionError):
        raise MCPError(
            types.INVALID_PARAMS, descriptions.error(f"{cursor!r} is no cursor of this server", cursor)
        ) from None


def _resource(run: str, path: str, size: int) -> types.Resource:
    return types.Resource(
        uri=descriptions.uri(run, path),
        name=f"{run}/{path}",
        description=f"{path} of the run {run}",
        mime_type=_kind(path),
        size=size,
    )


def templates() -> types.ListResourceTemplatesResult:
    return types.ListResourceTemplatesResult(
        resource_templates=[
            types.ResourceTemplate(
                uri_template=f"{descriptions.SCHEME}{{run}}/{{+path}}",
                name="file of a run",
                description="A file of a run, such as todo.md, state.json or outputs/report.md. `run` as list_runs "
                "names it, percent-encoded.",
            )
        ]
    )


def read(runs: Runs, uri: str) -> types.ReadResourceResult:
    """The content of a file: as text if it is UTF-8."""
    place = descriptions.of_uri(uri)
    try:
        if place is None:
            raise _unknown(uri, f"a resource is {descriptions.SCHEME}RUN/PATH")
        data = runs.find(place[0]).files.read(place[1], limit=LIMIT)
    except SatchelError as error:
        raise _unknown(uri, str(error)) from error
    except FileNotFoundError:
        raise _unknown(uri, "the file is gone") from None
    contents: types.TextResourceContents | types.BlobResourceContents
    try:
        contents = types.TextResourceContents(uri=uri, mime_type=_kind(place[1]) or "text/plain", text=data.decode())
    except UnicodeDecodeError:
        contents = types.BlobResourceContents(
            uri=uri, mime_type=_kind(place[1]) or "application/octet-stream", blob=base64.b64encode(data).decode()
        )
    return types.ReadResourceResult(contents=[contents])


def _kind(path: str) -> str | None:
    name = path.rpartition("/")[2]
    return _KINDS.get(f".{name.rpartition('.')[2]}") or mimetypes.guess_type(name)[0]


def _unknown(uri: str, why: str) -> MCPError:
    said = descriptions.error(f"Resource not found: {why}", (uri, *(descriptions.of_uri(uri) or ())))
    return MCPError(types.INVALID_PARAMS, said, {"uri": descriptions.error(uri, uri)})
