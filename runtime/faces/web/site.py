"""What all requests share: the runs below the root, how a template is rendered, and notes of what acts have done."""

from __future__ import annotations

import asyncio
import secrets
import threading
from concurrent.futures import Future, ThreadPoolExecutor, TimeoutError
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse

from ....workspace.base import SatchelError, UsageError, version, visible
from ... import api, present
from ...api import Handle, Overview, RunStatus, Seen, SeenRun
from . import facts, words

_MOST = 500


class Note(NamedTuple):
    """What an act has done, for the page after it."""

    lines: tuple[str, ...]
    is_bad: bool = False


class Notes:
    """The newest notes, by a name that only the browser knows that has acted. They end with the process."""

    def __init__(self) -> None:
        self._notes: dict[str, Note] = {}
        self._lock = threading.Lock()  # protects `_notes`: acts run in threads

    def keep(self, note: Note) -> str:
        name = secrets.token_urlsafe(16)
        with self._lock:
            self._notes[name] = note
            while len(self._notes) > _MOST:
                del self._notes[next(iter(self._notes))]
        return name

    def of(self, request: Request) -> Note | None:
        """The note that the request names."""
        return self._notes.get(request.query_params.get("note", ""))


FOLDER = Path(__file__).parent
PATIENCE = 1.0
"""Seconds that a page waits for a listing. Then it shows the one before, or that it is loading."""


class NoSuchRun(UsageError):
    """The root has no run of this name."""


class ListingProgress(NamedTuple):
    """How much of the first listing is read."""

    read: int
    total: int


class Site:
    """The runs below a root, for all requests. Its methods block, so an event loop calls them in threads."""

    def __init__(self, overview: Overview, *, root: str = ""):
        """`root`: as a person has typed it."""
        self.overview, self.root = overview, root or overview.url
        self.progress = ListingProgress(0, 0)
        self.notes = Notes()
        self.stopping = asyncio.Event()  # set by the server, in its event loop
        self._looks = ThreadPoolExecutor(1, "satchel-page")
        self._look: Future[Seen] | None = None
        self.templates = _templates(self)

    def runs(self, *, patience: float | None = PATIENCE, now: bool = False) -> Seen | None:
        """All runs. If looking takes longer than `patience` seconds, the ones that were seen last; None if that is the
        first look. None as `patience`: wait for it. `now`: look, although the last look is still current."""
        look = self._look
        if look is None or look.done():
            look = self._look = self._looks.submit(self.overview.look, now=now, progress=self._note)
        try:
            return look.result(patience)
        except TimeoutError:
            return self.overview.seen

    def known(self, name: str) -> SeenRun | None:
        """The run with this name among those that were seen last. Does not look."""
        return self._named(self.overview.seen, name)

    def find(self, name: str) -> SeenRun:
        """The run with the name `name` in URLs. NoSuchRun if there is none."""
        seen = self.overview.seen or self.runs(patience=None)
        found = self._named(seen, name)
        if found is None:  # it may be new. In a bucket the next listing will tell
            found = self._named(self.runs(patience=None, now=not self.overview.is_remote), name)
        if found is None:
            raise NoSuchRun(f"there is no run {name!r}", remedy="look for it in the list of all runs")
        return found

    def handle(self, run: SeenRun) -> Handle:
        """A handle of its own on a run, which shares no listing with the others."""
        return api.open(run.url)

    def render(self, template: str, **facts: Any) -> str:
        return self.templates.get_template(template).render(facts)

    def page(self, request: Request, template: str, http_status: int = 200, **facts: Any) -> HTMLResponse:
        """The template as a whole page."""
        return HTMLResponse(self.render(template, request=request, **facts), http_status)

    def run_page(
        self, request: Request, template: str, run: SeenRun, handle: Handle, http_status: int = 200, **facts: Any
    ) -> HTMLResponse:
        """A page about one run besides its live one, with the forms that stop it as it is now: `status`. None: that
        can't be read, and the run may be running all the same."""
        if "status" not in facts:
            facts["status"] = status_of(handle)
        return self.page(request, template, http_status, name=self.name_of(run), run=run, **facts)

    def _note(self, read: int, total: int) -> None:
        self.progress = ListingProgress(read, total)

    def _named(self, seen: Seen | None, name: str) -> SeenRun | None:
        return next((run for run in seen.runs if self.name_of(run) == name), None) if seen else None

    def name_of(self, run: SeenRun) -> str:
        """A run's name in URLs and for people: its path below the root. A root that is a run itself goes by the name of
        its folder. Bytes that are no UTF-8 are escaped."""
        return _as_name(run.name, run.url)

    def name_at(self, url: str) -> str:
        """The name of the run at a URL or path below the root, also of one that was not seen yet."""
        return _as_name(url.removeprefix(self.overview.url.rstrip("/")).strip("/"), url)


def _as_name(below: str, url: str) -> str:
    name = below or url.rstrip("/").rpartition("/")[2] or "run"
    return name.encode(errors="backslashreplace").decode()


def status_of(handle: Handle) -> RunStatus | None:
    """Where a run is, in brief. None if it can't be read."""
    try:
        return handle.status(brief=True)
    except SatchelError:
        return None


def run_url(name: str, *parts: str | int) -> str:
    """The path of a run's page, or of a page below it. Parts are names of Satchel, and numbers of records."""
    below = "/-/" + "/".join(quote(str(part), safe="") for part in parts) if parts else ""
    return f"/run/{quote(name)}{below}"


_WORDS = (
    "approval_line",
    "budget_lines",
    "call_name",
    "choice_meaning",
    "cost",
    "describe_reply",
    "describe_retry",
    "detail",
    "expiry_line",
    "inbox_line",
    "pause_lines",
    "schedule_lines",
    "usage_line",
)
"""What templates call of `present`."""


def _templates(site: Site) -> Environment:
    found = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )
    found.filters.update(words.FILTERS)
    names = {"site": site, "run_url": run_url, "name_of": site.name_of, "version": version(), "zone": words.zone}
    told = {name: getattr(present, name) for name in _WORDS}
    found.globals.update(
        names, **told, notices=facts.notices, times=facts.times, wanted=api.wanted, new_key=secrets.token_urlsafe
    )
    return found


def _finalize(value: Any) -> Any:
    """Each value that a template shows. Characters that change the direction of text become visible; Jinja2 escapes
    the rest."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value
