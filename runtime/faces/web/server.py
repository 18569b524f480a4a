"""Serves the page: the app of all routes, static files and errors; around it a guard, and nothing gets past it; and the
server that listens until it is stopped.

A page on this machine is not private: every site that its user visits may send requests to it. So each request is
checked, in this order:

- the method: GET, HEAD and POST
- the Host header, against sites that lead a name of theirs to this machine (DNS rebinding)
- where the browser says that the request comes from (`Sec-Fetch-Site`, `Origin`)
- the token, if the page asks for one: from `?token=` or the login form into a cookie that no script sees; for the
  metrics also as `Authorization: Bearer`, for the probes of an orchestrator not at all
- of a form: its size, and its own token, which only a page of this process can have written

Every answer forbids scripts, styles and frames of others, and copies in caches, except of scripts and styles.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import hmac
import secrets
import signal
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import uvicorn
from msgspec import Struct
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount
from starlette.staticfiles import StaticFiles

from ....workspace.base import LeaseHeld, SatchelError, StorageFailed, UsageError
from ...api import Overview
from ...supervision import Census
from ..http import HEALTHY, METRICS, READY, Address, Guesses, Names, bound, is_bearer, metric_routes, tokens_of
from . import contents, forms, listing, live, reading, starting
from .site import FOLDER, NoSuchRun, Site

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_LOOK_PATIENCE = 0.5
"""Seconds that a request for metrics waits for a look. Then it gets the numbers of the one before."""


def make_app(site: Site, rules: Rules | None = None) -> ASGIApp:
    """The whole page as an ASGI app. `rules` say who may use it; by default, every program of this machine."""
    # The paths of the last one match the others, too
    rooms = (contents, forms, listing, live, starting, reading)
    routes: list[BaseRoute] = [Mount("/static", StaticFiles(directory=FOLDER / "static"))]
    routes += metric_routes(site.census, functools.partial(site.runs, patience=_LOOK_PATIENCE))
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


# The guard

LOGIN = "/-/login"
BODY_LIMIT = 4 * 1024 * 1024
"""Bytes of a form. A text of 1 MiB takes three times as much if each character is escaped."""
LOGIN_LIMIT = 16 * 1024
"""Bytes of the login form, which strangers can send, too."""
FORM_PATIENCE = 30.0
"""Seconds in which a form must arrive."""
_FIELDS = 400
_BROWSERS = 1_000  # that are remembered
_METHODS = ("GET", "HEAD", "POST")
_FORM_COOKIE = "satchel-form"
_FORM = "application/x-www-form-urlencoded"

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # `no-referrer` would make the Origin of our own forms `null`; other sites get no referrer from this one either
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class Rules(Struct, frozen=True):
    """Who may use the page: who reaches it by one of the `names`, and knows the `token`; empty: none is needed."""

    names: Names = Names()
    token: str = ""


class Refusal(NamedTuple):
    """A request that does not reach the app."""

    status: int
    said: str


class _Visit(Struct):
    """One request, as far as the guard knows it."""

    scope: Scope
    headers: Headers
    cookies: dict[str, str]
    key: str  # of the browser: what its forms are signed for
    is_new: bool  # the browser gets its key with this answer

    @property
    def path(self) -> str:
        found: str = self.scope["path"]
        return found

    @property
    def is_static(self) -> bool:
        """It asks for a style or a script, which has nothing of a run."""
        return self.path.startswith("/static/")

    @property
    def is_open(self) -> bool:
        """The answer tells nothing of a run, so it needs no token."""
        return self.is_static or self.path in (HEALTHY, READY)

    @property
    def query(self) -> list[tuple[str, str]]:
        return parse_qsl(self.scope.get("query_string", b"").decode("ascii", "replace"), keep_blank_values=True)

    @property
    def is_get(self) -> bool:
        return bool(self.scope["method"] != "POST")


class Guard:
    """An ASGI app around the app. Routes find the fields of a form in `request.state.form`, a list of names and values,
    and what templates put into a form in `request.state.form_token`."""

    def __init__(self, app: ASGIApp, rules: Rules, render: Callable[..., str]):
        """`render` makes the HTML of a template from its name and facts."""
        self._app, self._rules, self._render = app, rules, render
        self._secret = secrets.token_bytes(32)
        self._cookie = f"satchel-{_sha('the name of the cookie', rules.token)[:8]}"  # pages at other ports have theirs
        self._pass = _sha("the pass", rules.token)
        self._guesses = Guesses()
        self._known: dict[str, None] = {}  # keys of browsers that have shown the token, the latest last

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            visit = self._visit(scope)
            await self._answer(visit, receive, _dressed(visit, send))
        else:  # websockets: there are none
            await send({"type": "websocket.close", "code": 1008})

    async def _answer(self, visit: _Visit, receive: Receive, send: Send) -> None:
        scope = visit.scope
        response: Response | None = None
        if (refusal := self._refusal(visit)) is not None:
            response = self._refused(refusal)
        elif self._may_guess(visit):
            response = self._refused(Refusal(429, "Your address has sent too many wrong tokens. Wait a few seconds."))
        elif self._needs_token(visit):
            response = await self._login(visit, receive)
        else:
            state: dict[str, Any] = scope.setdefault("state", {})
            state["form_token"] = self._form_token(visit.key)
            if not visit.is_get:
                body = await _body(visit, receive, BODY_LIMIT)
                if isinstance(body, Refusal):
                    response = self._refused(body)
                else:
                    state["form"] = fields = _fields(body)
                    receive = _again(body, receive)
                    response = self._unsigned(visit, fields)
        await (response or self._app)(scope, receive, send)

    def _visit(self, scope: Scope) -> _Visit:
        headers = Headers(scope=scope)
        cookies = _cookies(headers.getlist("cookie"))
        key = cookies.get(_FORM_COOKIE, "")
        is_new = len(key) != 43 or not key.replace("-", "").replace("_", "").isalnum()
        return _Visit(scope, headers, cookies, secrets.token_urlsafe(32) if is_new else key, is_new)

    # Where it comes from

    def _refusal(self, visit: _Visit) -> Refusal | None:
        headers = visit.headers
        if visit.scope["method"] not in _METHODS:
            return Refusal(405, "The page knows only GET, HEAD and POST.")
        hosts = headers.getlist("host")
        if not self._rules.names.are_named(hosts):
            return Refusal(421, "This page is not served at that address. `satchel page --name` adds one.")
        site = headers.get("sec-fetch-site", "")
        if visit.is_get:  # a link may lead here, but no image, script or fetch of another site
            if site in ("", "none", "same-origin") or headers.get("sec-fetch-mode") == "navigate":
                return None
            return Refusal(403, "Another site has asked for this.")
        origin = headers.get("origin", "null")
        is_ours = _netloc(origin) == hosts[0].strip().lower()
        if (site == "same-origin" and origin == "null") or (is_ours and site in ("", "same-origin")):
            return None
        return Refusal(403, "Another site has sent this form, or the browser does not say which.")

    def _refused(self, refusal: Refusal) -> Response:
        response = self._show(refusal.status, "That does not work", refusal.said)
        if refusal.status == 405:
            response.headers["allow"] = ", ".join(_METHODS)
        if refusal.status == 408:  # the rest of the form may never come
            response.headers["connection"] = "close"
        return response

    def _show(
        self,
        status: int,
        title: str,
        said: str,
        *,
        next: str = "",
        again: bool = False,
        action: str = "",
        form: Sequence[tuple[str, str]] = (),
    ) -> Response:
        """guard.html: with the login form if there is a `next`, or a `form` to send once more. `again`: the browser
        asks again at once."""
        facts = {"title": title, "said": said, "next": next, "again": again, "action": action, "form": form}
        return HTMLResponse(self._render("guard.html", **facts), status)

    # Who it is

    def _needs_token(self, visit: _Visit) -> bool:
        if not self._rules.token or visit.is_open:
            return False
        if visit.path == METRICS and is_bearer(visit.headers.getlist("authorization"), [self._rules.token]):
            return False
        is_known = _equal(visit.cookies.get(self._cookie, ""), self._pass)
        if is_known and not visit.is_new:
            self._known.pop(visit.key, None)
            self._known[visit.key] = None
            if len(self._known) > _BROWSERS:
                del self._known[next(iter(self._known))]
        return not is_known or visit.path == LOGIN or any(name == "token" for name, _ in visit.query)

    def _may_guess(self, visit: _Visit) -> bool:
        """Whether too much was guessed from its address to look at its token. A browser that has shown it before is no
        guesser: a person who uses the page can go on, and stop runs."""
        is_asked = bool(self._rules.token) and not visit.is_open
        return is_asked and visit.key not in self._known and self._guesses.are_too_many(visit.scope)

    async def _login(self, visit: _Visit, receive: Receive) -> Response:
        """Ask for the token, or take it. The answer leads to where the person wanted to go."""
        given = next((value for name, value in visit.query if name == "token"), None) if visit.is_get else None
        rest = urlencode([each for each in visit.query if each[0] != "token"])
        next_ = quote(visit.path) + (f"?{rest}" if rest else "") if visit.is_get else "/"
        if visit.path == LOGIN:
            next_ = "/"
            if not visit.is_get:
                body = await _body(visit, receive, LOGIN_LIMIT)
                if isinstance(body, Refusal):
                    return self._refused(body)
                form = dict(_fields(body))
                given, next_ = form.get("token", ""), _inside(form.get("next", "/"))
        if given is not None and _equal(given.strip(), self._rules.token):
            return self._let_in(visit, next_)
        if _equal(visit.cookies.get(self._cookie, ""), self._pass):
            return RedirectResponse(_inside(next_), 303)
        shown = given or visit.headers.get("authorization", "") or visit.cookies.get(self._cookie, "")
        await self._guesses.slow_down(visit.scope, shown)
        # After a link on another site the browser sends no strict cookie. It does when the page asks again by itself.
        again = visit.is_get and visit.headers.get("sec-fetch-site") == "cross-site"
        said = "" if given is None else "That is not the token."
        return self._show(200 if again else 401, "Satchel", said, next=_inside(next_), again=again)

    def _let_in(self, visit: _Visit, next_: str) -> Response:
        response = RedirectResponse(_inside(next_), 303)
        response.set_cookie(
            self._cookie, self._pass, httponly=True, samesite="strict", secure=visit.scope.get("scheme") == "https"
        )
        return response

    # What a form is signed with

    def _form_token(self, key: str) -> str:
        return hmac.new(self._secret, key.encode(), hashlib.sha256).hexdigest()

    def _unsigned(self, visit: _Visit, fields: list[tuple[str, str]]) -> Response | None:
        """What is shown instead of doing what a form without a valid token says: the same form once more, so that what
        a person has typed survives a restart of the page."""
        given = next((value for name, value in fields if name == "form_token"), "")
        if not visit.is_new and _equal(given, self._form_token(visit.key)):
            return None
        rest = [("form_token", self._form_token(visit.key)), *(each for each in fields if each[0] != "form_token")]
        said = "The page has been restarted since you opened it. Nothing was done yet."
        return self._show(403, "Send this again?", said, form=rest, action=quote(visit.path))


def _dressed(visit: _Visit, send: Send) -> Send:
    """Adds to each answer what it forbids, and to the first one the key that this browser's forms are signed for."""

    async def dressed(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.append(name, value)
            headers.setdefault("cache-control", "no-cache" if visit.is_static else "no-store")
            if visit.is_new and not visit.is_static:
                secure = "; Secure" if visit.scope.get("scheme") == "https" else ""
                headers.append("set-cookie", f"{_FORM_COOKIE}={visit.key}; Path=/; HttpOnly; SameSite=Lax{secure}")
        await send(message)

    return dressed


async def _body(visit: _Visit, receive: Receive, limit: int) -> bytes | Refusal:
    """The whole form, of at most `limit` bytes."""
    if visit.headers.get("content-type", "").partition(";")[0].strip().lower() != _FORM:
        return Refusal(415, "The page takes only plain forms.")
    length = visit.headers.get("content-length", "")
    if length.isdecimal() and int(length[:12]) > limit:
        return _TOO_LARGE
    try:
        async with asyncio.timeout(FORM_PATIENCE):
            return await _read(receive, limit)
    except TimeoutError:
        return Refusal(408, f"The form did not arrive in {FORM_PATIENCE:.0f} s.")


_TOO_LARGE = Refusal(413, "That is too much for a form. Edit large files in an editor.")


async def _read(receive: Receive, limit: int) -> bytes | Refusal:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return Refusal(400, "The form was cut off.")
        body += message.get("body", b"")
        if len(body) > limit:
            return _TOO_LARGE
        if not message.get("more_body"):
            return bytes(body)


def _fields(body: bytes) -> list[tuple[str, str]]:
    """The fields of a form. Browsers send each line break as CR LF. None of a form that is no form."""
    try:
        found = parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=_FIELDS, errors="strict")
    except ValueError:  # UnicodeDecodeError, too
        return []
    return [(name, value.replace("\r\n", "\n")) for name, value in found]


def _again(body: bytes, receive: Receive) -> Receive:
    """`receive`, for an app that reads the body once more."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return messages.pop() if messages else await receive()

    return again


def _cookies(headers: Iterable[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in (part for header in headers for part in header.split(";")):
        try:
            found |= {name: each.value for name, each in SimpleCookie(part.strip()).items()}
        except CookieError:  # another server's on this machine
            continue
    return found


def _inside(path: str) -> str:
    """The path if it leads to this page and nowhere else."""
    is_ours = path.isprintable() and urlsplit(path)[:2] == ("", "") and not path.startswith(("//", "/\\"))
    return path if path.startswith("/") and is_ours else "/"


def _netloc(origin: str) -> str:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def _equal(given: str, wanted: str) -> bool:
    """In constant time."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), wanted.encode())


def _sha(what: str, token: str) -> str:
    return hmac.new(token.encode(), f"satchel page: {what}".encode(), hashlib.sha256).hexdigest()


# The server

_GRACE = 1
"""Seconds that requests get at the end."""


class Access(Struct, frozen=True):
    """Where the page listens, and who may use it: who knows the `token`, if there is one. `names`: other names that the
    page is served at, as behind a proxy.

    UsageError if the token is too short, or if other machines could use the page without one.
    """

    address: Address
    token: str = ""
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if len(tokens_of(self.token)) > 1:
            raise UsageError("the token of the page has white space", remedy="write one token")
        if not self.token and not self.address.is_local:
            raise UsageError(
                f"on {self.address.host} the page needs a token",
                why="other machines reach it there, and it can stop runs",
                remedy="give it with --token-file or SATCHEL_PAGE_TOKEN, or listen on a unix socket",
            )

    @property
    def rules(self) -> Rules:
        ours = self.address.names
        return Rules(Names((*ours.known, *self.names), ours.any_address), self.token)


_THREADS = 16
"""For what all live pages share. Each run that is looked at has one of its own, so a storage that hangs takes none."""


class PageServer(uvicorn.Server):
    """Ends the streams of events when it stops: they never end by themselves."""

    def __init__(self, config: uvicorn.Config, site: Site):
        super().__init__(config)
        self._site = site

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(_THREADS, "satchel-page-live"))
        await super().serve(sockets)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._site.stopping.set()
        await super().shutdown(sockets)


def serve_page(
    root: str,
    access: Access,
    *,
    tell: Callable[[str], None],
    opens: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> None:
    """Serve the page of the runs below `root` until SIGINT or SIGTERM. Call it in the main thread.

    `tell` is called with the URL once it listens. `opens`: show it in the browser of this machine. UsageError if `root`
    is no folder, or the address is taken.
    """
    census = Census(knows_due=False)
    overview = Overview(root, census=census, storage_options=storage_options)
    with bound(access.address) as (listener, address):
        site = Site(overview, census, root=root)
        site.runs(patience=0)  # so that the first page need not wait for it
        config = uvicorn.Config(
            make_app(site, access.rules),
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            timeout_graceful_shutdown=_GRACE,
        )
        url = address.url if address.path else f"{address.url}/"
        tell(url)
        if opens and not address.path:
            import webbrowser

            webbrowser.open(url)
        # uvicorn raises the signal again after it has stopped: this process is to end normally
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, lambda *_: None)
        asyncio.run(PageServer(config, site).serve([listener]))
