"""The files of the runs as resources: `satchel://RUN/PATH`."""

from __future__ import annotations

import base64
import json
import mimetypes

import mcp_types as types
from mcp import MCPError

from ...workspace.base import SatchelError
from . import describing
from .runs import Runs

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
            files = handle.files()
        except SatchelError:
            continue  # `status` says what is wrong with it
        for file in files:
            if (name, file.path) <= after:
                continue
            if len(found) == _PAGE:
                last = describing.of_uri(found[-1].uri)
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
            types.INVALID_PARAMS, describing.error(f"{cursor!r} is no cursor of this server", cursor)
        ) from None


def _resource(run: str, path: str, size: int) -> types.Resource:
    return types.Resource(
        uri=describing.uri(run, path),
        name=f"{run}/{path}",
        description=f"{path} of the run {run}",
        mime_type=_kind(path),
        size=size,
    )


def templates() -> types.ListResourceTemplatesResult:
    return types.ListResourceTemplatesResult(
        resource_templates=[
            types.ResourceTemplate(
                uri_template=f"{describing.SCHEME}{{run}}/{{+path}}",
                name="file of a run",
                description="A file of a run, such as todo.md, state.json or outputs/report.md. `run` as list_runs "
                "names it, percent-encoded.",
            )
        ]
    )


def read(runs: Runs, uri: str) -> types.ReadResourceResult:
    """The content of a file: as text if it is UTF-8."""
    place = describing.of_uri(uri)
    try:
        if place is None:
            raise _unknown(uri, f"a resource is {describing.SCHEME}RUN/PATH")
        data = runs.find(place[0]).read(place[1], limit=LIMIT)
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
    said = describing.error(f"Resource not found: {why}", (uri, *(describing.of_uri(uri) or ())))
    return MCPError(types.INVALID_PARAMS, said, {"uri": describing.error(uri, uri)})
