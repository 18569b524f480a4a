"""The files that a run has made, as text: outputs, recovered answers, and the reasons of refused edits."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from . import facts
from .past import LOG, number
from .site import Site

_LIMIT = 64 << 20
"""Bytes of a file that the page reads at most."""

_SHOWN = 200_000
"""Characters of it that are shown; the download has all."""


def routes(site: Site) -> list[BaseRoute]:
    """The routes of this module."""

    def page(show: Callable[[Site, Request], Response]) -> Callable[[Request], Response]:
        return lambda request: show(site, request)

    return [Route("/run/{name:path}/-/files", page(all_files)), Route("/run/{name:path}/-/file", page(one_file))]


def all_files(site: Site, request: Request) -> Response:
    """The outputs, by name."""
    run = site.find(request.path_params["name"])
    handle = site.handle(run)
    standing = handle.status(brief=True)
    begin = number(request, "begin") or 0
    found = facts.outputs(standing)
    return site.run_page(
        request,
        "files.html",
        run,
        handle,
        standing=standing,
        files=found[begin : begin + LOG],
        begin=begin,
        total=len(found),
        most=LOG,
    )


def one_file(site: Site, request: Request) -> Response:
    """A readable file as text, redacted; with `?raw` as a download. Never as a page of its own, because a stranger may
    have written it."""
    run = site.find(request.path_params["name"])
    path, handle = request.query_params.get("path", ""), site.handle(run)
    data = handle.read(path, limit=_LIMIT)
    if "raw" in request.query_params:
        name = quote(path.rpartition("/")[2])
        headers = {"content-disposition": f"attachment; filename*=UTF-8''{name}", "x-content-type-options": "nosniff"}
        return Response(data, media_type="application/octet-stream", headers=headers)
    is_text = b"\0" not in data[:8192]
    text = data[: _SHOWN * 4].decode(errors="replace")[:_SHOWN] if is_text else ""
    return site.run_page(
        request,
        "file.html",
        run,
        handle,
        path=path,
        text=text,
        bytes=len(data),
        is_text=is_text,
        is_cut=is_text and len(text) >= _SHOWN,
    )
