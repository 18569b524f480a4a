"""The app: the routes of all modules, the static files, and what an error looks like."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

from ...workspace.base import LeaseHeld, SatchelError, StorageFailed, UsageError
from . import acting, correcting, files, live, past, reading, stopping_all
from .guard import Guard, Rules
from .site import FOLDER, NoSuchRun, Site

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp


def make_app(site: Site, rules: Rules | None = None) -> ASGIApp:
    """The whole page as an ASGI app. `rules` say who may use it; by default, every program of this machine."""
    rooms = (
        acting,
        correcting,
        stopping_all,
        live,
        past,
        files,
        reading,
    )  # the paths of the last one match the others, too
    routes = [Mount("/static", StaticFiles(directory=FOLDER / "static"))]
    routes += [route for module in rooms for route in module.routes(site)]

    def error(request: Request, error: Exception) -> HTMLResponse:
        said = error if isinstance(error, SatchelError) else None
        detail = "" if said else _said(error)
        # What can't be shown may be running all the same, so its page can stop it
        run = site.known(request.path_params.get("name", ""))
        name = site.name_of(run) if run else ""
        return site.page(
            request, "error.html", status_of(error), title=_title(error), error=said, detail=detail, name=name
        )

    handlers: dict[Any, Any] = dict.fromkeys((SatchelError, HTTPException, Exception), error)
    return Guard(Starlette(routes=routes, exception_handlers=handlers), rules or Rules(), site.render)


def status_of(error: Exception) -> int:
    """The HTTP status of an error."""
    match error:
        case HTTPException():
            return error.status_code
        case NoSuchRun():
            return 404
        case UsageError():
            return 400
        case LeaseHeld():
            return 409
        case StorageFailed():
            return 503
        case SatchelError():
            return 422
        case _:
            return 500


def _title(error: Exception) -> str:
    match status_of(error):
        case 404:
            return "Not found"
        case 503:
            return "The storage does not answer"
        case 500:
            return "An internal error"
        case _:
            return "That does not work"


def _said(error: Exception) -> str:
    if isinstance(error, HTTPException):
        return error.detail
    return f"{type(error).__name__}: {error}. Nothing that was recorded is lost. The terminal of the server says more"
