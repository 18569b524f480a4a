"""What all requests share: the runs below the root, notes of what acts have done, and how a template is rendered, with
facts as words of a page: times, sizes, states."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, TimeoutError
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from msgspec import Struct
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from ....workspace.base import SatchelError, UsageError, moment_of, version, visible
from ....workspace.inbound import with_changes
from ....workspace.state import tone
from ... import api, present
from ...api import Handle, Overview, RunStatus, Seen, SeenRun
from ...supervision import Census

_MOST = 500


class Note(NamedTuple):
    """What an act has done, for the page after it. `next_run`: another one that asks something."""

    lines: tuple[str, ...]
    is_bad: bool = False
    next_run: str = ""


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

_FIRST = 0.2
"""Seconds after which it shows what a first listing has read so far, if many are left."""

_MANY = 50


class NoSuchRun(UsageError):
    """The root has no run of this name."""


class ListingProgress(NamedTuple):
    """How much of the first listing is read."""

    read: int
    total: int


class Site:
    """The runs below a root, for all requests. Its methods block, so an event loop calls them in threads."""

    def __init__(self, overview: Overview, census: Census | None = None, *, root: str = ""):
        """`census` is that of the overview. `root`: as a person has typed it."""
        self.overview, self.root = overview, root or overview.url
        self.census = census or Census(knows_due=False)
        self.progress = ListingProgress(0, 0)
        self.notes = Notes()
        self.stopping = asyncio.Event()  # set by the server, in its event loop
        self._looks = ThreadPoolExecutor(1, "satchel-page")
        self._look: Future[Seen] | None = None
        self.templates = _templates(self)

    def runs(self, *, patience: float | None = PATIENCE, now: bool = False) -> Seen | None:
        """All runs. If looking takes longer than `patience` seconds, the ones that were seen last; of the first look
        those that are read, and None if none is. None as `patience`: wait for it. `now`: look, although the last look
        is still current."""
        look = self._look
        if look is None or look.done():
            look = self._look = self._looks.submit(self.overview.look, now=now, progress=self._note)
        if patience is None:
            return look.result()
        for seconds in (min(_FIRST, patience), max(0.0, patience - _FIRST)):
            try:
                return look.result(seconds)
            except TimeoutError:
                if (seen := self.overview.seen) is not None and seen.unread > _MANY:
                    break
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

    def of_run(self, show: Callable[[RunRequest], Response]) -> Callable[[Request], Response]:
        """The answer to a request whose path names a run."""

        def answer(request: Request) -> Response:
            run = self.find(request.path_params["name"])
            return show(RunRequest(self, request, run, self.handle(run)))

        return answer

    def render(self, template: str, **facts: Any) -> str:
        return self.templates.get_template(template).render(facts)

    def page(self, request: Request, template: str, http_status: int = 200, **facts: Any) -> HTMLResponse:
        """The template as a whole page."""
        return HTMLResponse(self.render(template, request=request, **facts), http_status)

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


class RunRequest(Struct, frozen=True):
    """A request about one run, with a handle of its own."""

    site: Site
    request: Request
    run: SeenRun
    handle: Handle

    @property
    def name(self) -> str:
        return self.site.name_of(self.run)

    @property
    def query(self) -> QueryParams:
        return self.request.query_params

    def text(self, field: str) -> str:
        """A short text of the query."""
        return self.query.get(field, "").strip()[:200]

    def number(self, field: str, least: int = 0) -> int | None:
        """A number of the query. None if it is missing or none."""
        text = self.query.get(field, "")
        return max(least, int(text)) if text.isascii() and text.isdecimal() and len(text) <= 12 else None

    def page(self, template: str, **facts: Any) -> HTMLResponse:
        """A page about the run besides its live one, with the forms that stop it as it is now: `status`. None: that
        can't be read, and the run may be running all the same."""
        if "status" not in facts:
            facts["status"] = None
            with suppress(SatchelError):
                facts["status"] = self.handle.status(brief=True)
        return self.site.page(self.request, template, name=self.name, run=self.run, **facts)


def _as_name(below: str, url: str) -> str:
    name = below or url.rstrip("/").rpartition("/")[2] or "run"
    return name.encode(errors="backslashreplace").decode()


def run_url(name: str, *parts: str | int) -> str:
    """The path of a run's page, or of a page below it. Parts are names of Satchel, and numbers of records."""
    below = "/-/" + "/".join(quote(str(part), safe="") for part in parts) if parts else ""
    return f"/run/{quote(name)}{below}"


# Words of a page

LONG = 20_000
"""Characters of one text that a page shows at most."""

NOTICES = 8
"""Files of each kind that differ from what the run has written."""


def ago(at: str) -> Markup:
    """`3 min ago`, with the whole time as its title. The script keeps it current."""
    then = moment_of(at)
    if then is None:
        return escape(visible(at[:40]))
    return Markup('<time datetime="{}" title="{}" data-ago>{}</time>').format(
        then.isoformat(), _whole(then), present.ago(then)
    )


def clock(at: str) -> Markup:
    """The time of day in UTC, with the date if that is not today. The script puts it into the zone of the browser."""
    then = moment_of(at)
    if then is None:
        return escape(visible(at[:40]))
    is_today = then.date() == datetime.now(UTC).date()
    return Markup('<time datetime="{}" title="{}" data-clock>{}</time>').format(
        then.isoformat(), _whole(then), f"{then:%H:%M:%S} UTC" if is_today else _whole(then)
    )


def _whole(then: datetime) -> str:
    return f"{then:%Y-%m-%d %H:%M:%S} UTC"


def zone() -> str:
    """The zone of this machine, for times that people type without one."""
    return datetime.now().astimezone().tzname() or "UTC"


_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d(?:\.\d+)?)(?: UTC|Z)(?: \([^()]* ago\)| \(in [^()]*\))?")


def timed(text: object, *times: str) -> Markup:
    """A sentence of Satchel with these times in it as on the rest of the page. Without how long ago they are, which
    would soon be untrue. Others stay: they are in the words of agents and people."""
    shown, found, at = visible(str(text)), Markup(), 0
    own = {then.replace(microsecond=0) for each in times if (then := moment_of(each)) is not None}
    for match in _TIME.finditer(shown):
        then = moment_of(f"{match[1]}T{match[2]}Z")
        if then is not None and then.replace(microsecond=0) in own:
            found += escape(shown[at : match.start()]) + clock(then.isoformat())
            at = match.end()
    return found + escape(shown[at:])


def times(status: RunStatus) -> list[str]:
    """The times that the words about its state, its pause and its schedule tell."""
    moment, holder = status.moment, status.holder
    found = [holder.since if holder else "", status.heard]
    for pause in (moment.pause if moment else None, status.wish):
        found += [pause.until] if pause else []
    found += [moment.until] if moment else []
    for each in status.schedule:
        found += [each.next, each.last.due if each.last else ""]
    return [each for each in found if each]


def notices(status: RunStatus) -> list[present.StatusLine]:
    """What is to be said of its files: at most `NOTICES` of each kind, so that none hides the others."""
    kinds, found = Counter[tuple[str, object]](), list[present.StatusLine]()
    for each in present.file_lines(status):
        kind = each.title, each.tone
        kinds[kind] += 1
        if kinds[kind] <= NOTICES:
            found.append(each)
    return found + [
        present.StatusLine(title, f"and {number - NOTICES} more ({title})")
        for (title, _), number in kinds.items()
        if number > NOTICES
    ]


def one_line(text: object, width: int = 120) -> str:
    """A text in one line, cut to `width` characters."""
    line = " ".join(str(text)[: width * 8].split())
    return line if len(line) <= width else line[: width - 1].rstrip() + "…"


def cut(text: object, width: int = LONG) -> str:
    """The beginning of a text, or of what an error says."""
    return str(text)[:width]


def as_json(value: Any, indent: int | None = 2) -> str:
    """JSON for people."""
    return json.dumps(value, indent=indent, ensure_ascii=False)


def utc(ms: int) -> str:
    """A time in milliseconds since 1970, as records have it."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")


def query(values: Mapping[str, object]) -> str:
    """The query of a URL, without what is empty."""
    return urlencode({name: str(value) for name, value in values.items() if value})


def as_typed(text: str) -> Markup:
    """A text in a field that a person edits: escaped, but each character as it is. HTML would take CR for a LF."""
    return escape(text).replace("\r", Markup("&#13;"))


def coded(text: object) -> Markup:
    """A sentence with what is between backticks as code."""
    parts = _CODE.split(visible(str(text)))
    return Markup().join(Markup("<code>{}</code>").format(each) if at % 2 else each for at, each in enumerate(parts))


_CODE = re.compile("`([^`\n]+)`")

FILTERS: dict[str, Callable[..., Any]] = {
    "tone": tone,
    "ago": ago,
    "clock": clock,
    "timed": timed,
    "coded": coded,
    "one_line": one_line,
    "cut": cut,
    "as_json": as_json,
    "query": query,
    "number": "{:,}".format,
    "utc": utc,
    "usd": present.usd,
    "seconds": present.duration,
    "size": present.size,
    "as_typed": as_typed,
    "call_tone": lambda state: present.CALLS.get(state, "good" if state == "completed" else "active"),
    "with_changes": with_changes,
}
"""The filters of the templates."""


# Templates

_WORDS = (
    "answer_line",
    "argument_rows",
    "attempt_line",
    "budget_lines",
    "call_facts",
    "call_name",
    "choice_meaning",
    "choice_tone",
    "cost",
    "covered",
    "describe_cost",
    "describe_ms",
    "describe_reply",
    "describe_retry",
    "detail",
    "diagnose",
    "expiry_line",
    "inbox_line",
    "limits_to_raise",
    "mark_line",
    "missing_log",
    "pause_lines",
    "question_title",
    "queue_lines",
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
    found.filters.update(FILTERS)
    names = {"site": site, "run_url": run_url, "name_of": site.name_of, "version": version(), "zone": zone}
    told = {name: getattr(present, name) for name in _WORDS}
    found.globals.update(names, **told, notices=notices, times=times, wanted=api.wanted, new_key=secrets.token_urlsafe)
    return found


def _finalize(value: Any) -> Any:
    """Each value that a template shows. Characters that change the direction of text become visible; Jinja2 escapes
    the rest."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value
