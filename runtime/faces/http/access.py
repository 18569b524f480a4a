"""Where a server listens, and who may send requests to it; and what the servers for programs share: what an error looks
like, and the thread that answers.

An address is `PORT`, `HOST:PORT`, `[IPV6]:PORT` or `unix:PATH`. A site can lead a name of its own to this machine (DNS
rebinding), so that its scripts may read what a server here answers. Their requests have that name as `Host`. So a
server answers only to names that are its own.

A token comes from the environment or from a file, never from the command line, which `ps` shows to all users. Who asks
from one address may show a few wrong ones. Each further one is answered a second after the one before. While many wait
for that, nothing from this address is looked at, so that no more can be tried by asking at once. What was shown before
says nothing new, so a sender with an old token hinders no other one behind the same proxy.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
import re
import signal
import socket
import stat
import threading
import time
from asyncio import sleep
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, BinaryIO, NamedTuple

import uvicorn
from msgspec import Struct, field
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ....workspace.base import SatchelError, UsageError

_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


class Names(Struct, frozen=True):
    """`known`: the names besides those of this machine for itself. `any_address`: the server listens on all addresses
    of this machine, and each may be its name: no site can lead an address anywhere."""

    known: tuple[str, ...] = ()
    any_address: bool = False

    def have(self, host: str) -> bool:
        """Whether a `Host` header, or the network location of a URL, names this server. The port does not matter, since
        a tunnel has another one."""
        name = _without_port(host.strip().lower())
        if name in _LOOPBACK or name in (each.lower() for each in self.known):
            return True
        return self.any_address and is_address(name)

    def are_named(self, hosts: Sequence[str]) -> bool:
        """Whether the `Host` headers of a request are one, and it names this server."""
        return len(hosts) == 1 and self.have(hosts[0])


def _without_port(host: str) -> str:
    name, _, port = host.rpartition(":")
    return name if name and port.isdecimal() and (":" not in name or name.endswith("]")) else host


def is_address(name: str) -> bool:
    """Whether it is an address, and not a name."""
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


_WRITTEN = re.compile(r"(?:(?P<host>[^\[\]:/\s]+|\[[0-9A-Fa-f:.]+\]):)?(?P<port>[0-9]{1,5})", re.ASCII)
_ANY = ("0.0.0.0", "::")
_BACKLOG = 128


class Address(NamedTuple):
    """A port of a host (0: a free one), or the path of a unix socket."""

    host: str = "127.0.0.1"
    port: int = 0
    path: str = ""

    @property
    def is_local(self) -> bool:
        """Whether only processes of this machine can connect."""
        if self.path or self.host.lower() == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def names(self) -> Names:
        """What it can be reached by."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return Names((host,), any_address=self.host in _ANY)

    @property
    def url(self) -> str:
        """For people. `unix:PATH` for a socket."""
        if self.path:
            return f"unix:{self.path}"
        return f"http://[{self.host}]:{self.port}" if ":" in self.host else f"http://{self.host}:{self.port}"


def address_of(written: str) -> Address:
    """A port alone is one of 127.0.0.1. UsageError if it is no address."""
    scheme, colon, path = written.partition(":")
    if scheme == "unix" and colon and path:
        return Address(path=os.path.expanduser(path))
    match = _WRITTEN.fullmatch(written)
    if match is None or int(match["port"]) > 65535:
        raise UsageError(f"{written!r} is no address", remedy="write PORT, HOST:PORT, [IPV6]:PORT or unix:PATH")
    return Address((match["host"] or Address().host).strip("[]"), int(match["port"]))


@contextmanager
def bound(place: Address) -> Iterator[tuple[socket.socket, Address]]:
    """A socket that takes connections until the end of the body, and where: with the port that was found. Only this
    user can connect to a unix socket. UsageError if the address is taken."""
    with ExitStack() as stack:
        try:
            found, where = _made(place)
            stack.enter_context(found)
            _bind(found, where)
            found.listen(_BACKLOG)
        except (OSError, UnicodeError) as error:  # the latter: a name that no host can have, such as `a..b`
            why = getattr(error, "strerror", None) or str(error)
            raise UsageError(f"can't listen on {place.url}", why=why, remedy="choose another address") from error
        if place.path:
            stack.callback(os.unlink, place.path)
        yield found, place if place.path else place._replace(port=found.getsockname()[1])


def _made(place: Address) -> tuple[socket.socket, Any]:
    """A socket, and what to bind it to."""
    if place.path:
        _remove_left_over(place.path)
        return socket.socket(socket.AF_UNIX), place.path
    family, kind, _, _, where = socket.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)[0]
    found = socket.socket(family, kind)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return found, where


def _bind(found: socket.socket, where: Any) -> None:
    before = os.umask(0o177)
    try:
        found.bind(where)
    finally:
        os.umask(before)


def _remove_left_over(path: str) -> None:
    """A process that was killed leaves its socket. One that answers stays: then `bind` fails."""
    with suppress(FileNotFoundError):
        if not stat.S_ISSOCK(os.stat(path, follow_symlinks=False).st_mode):
            return
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(path)
            except ConnectionRefusedError:
                os.unlink(path)


# Tokens


_LEAST = 16  # characters
_LONGEST = 10_000  # characters of a file
_MAKE = "`openssl rand -hex 32` makes one"


def given_token(variable: str, file: BinaryIO | None) -> str:
    """What the file has, or else the variable of the environment, which is removed: the runs that this process starts
    must not have the token of those who may start runs. Empty if there is neither.

    UsageError if it is there and has no token, or one that no request can show. An empty file may be a command that
    failed, so it must not let everybody in.
    """
    found = os.environ.pop(variable, None)
    if file is not None:
        found = file.read(_LONGEST).decode("ascii", "replace")
    place = file.name if file is not None else variable
    if found is None:
        return ""
    if not found.strip():
        raise UsageError("there is no token", path=place, remedy=_MAKE)
    if not found.isascii() or not "".join(found.split()).isprintable():
        raise UsageError("the token has other characters than ASCII", path=place, remedy=_MAKE)
    return found


def tokens_of(written: str) -> tuple[str, ...]:
    """The valid tokens: several, with white space between them, while one replaces another; perhaps none. UsageError if
    one is too short."""
    found = tuple(written.split())
    if any(len(each) < _LEAST for each in found):
        raise UsageError(f"the token has fewer than {_LEAST} characters", remedy=_MAKE)
    return found


def is_bearer(headers: Sequence[str], tokens: Sequence[str]) -> bool:
    """Whether the `Authorization` headers of a request are one, and it has one of the tokens. A proxy may look at
    another one of several. Takes the same time for each wrong one."""
    scheme, _, shown = headers[0].partition(" ") if len(headers) == 1 else ("", "", "")
    matches = [hmac.compare_digest(shown.strip().encode("utf-8", "replace"), each.encode()) for each in tokens]
    return scheme.lower() == "bearer" and any(matches)


PAUSE = 1.0
"""Seconds between two answers."""

FREE = 10
"""Wrong tokens that are answered at once."""

WAITING = 10
"""Answers that an address may wait for."""

_KNOWN = 100  # wrong tokens of an address that are remembered
_ADDRESSES = 1_000


class _Guesser(Struct):
    """An address. `due`: when all that it has tried is paid for, by time.monotonic."""

    due: float = 0.0
    shown: dict[bytes, None] = field(default_factory=dict)


class Guesses:
    """The wrong tokens that a server was shown. For one event loop. A `scope` is that of ASGI."""

    def __init__(self) -> None:
        self._guessers: dict[str, _Guesser] = {}

    def are_too_many(self, scope: Mapping[str, Any]) -> bool:
        """Whether a request is to be refused without a look at its token."""
        found = self._guessers.get(_sender(scope))
        return found is not None and found.due - time.monotonic() > (FREE + WAITING - 1) * PAUSE

    async def slow_down(self, scope: Mapping[str, Any], shown: str) -> None:
        """Wait before the answer to a wrong token. Empty: none was shown, which is no guess."""
        if (wait := self._count(_sender(scope), shown) if shown else 0.0) > 0:
            await sleep(wait)

    def _count(self, address: str, shown: str) -> float:
        """The seconds that the answer has to wait."""
        now = time.monotonic()
        if address not in self._guessers and len(self._guessers) >= _ADDRESSES:
            self._guessers = {key: each for key, each in self._guessers.items() if each.due > now}
        guesser = self._guessers.setdefault(address, _Guesser())
        digest = hashlib.sha256(shown.encode("utf-8", "replace")).digest()
        if digest in guesser.shown:
            return 0.0
        guesser.shown[digest] = None
        if len(guesser.shown) > _KNOWN:
            del guesser.shown[next(iter(guesser.shown))]
        guesser.due = max(guesser.due, now) + PAUSE
        return guesser.due - now - FREE * PAUSE


def _sender(scope: Mapping[str, Any]) -> str:
    """Empty for a unix socket."""
    return (scope.get("client") or ("",))[0] or ""


# What answers programs


class HttpProblem(Exception):
    """An answer that is not 202, in the form of RFC 9457."""

    def __init__(self, status: int, title: str, detail: str = "", **headers: str):
        super().__init__(title)
        self.status, self.title, self.detail = status, title, detail
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


class Senders(Struct, frozen=True):
    """Who may ask: who shows one of the `tokens`. Without tokens every request to one of the `names` is accepted,
    except from web pages."""

    tokens: tuple[str, ...]
    names: Names
    guesses: Guesses = field(default_factory=Guesses)

    @classmethod
    def at(cls, place: Address, tokens: tuple[str, ...], names: Sequence[str] = ()) -> Senders:
        """Who may ask a server at `place`. It goes by this machine's name and by other `names`, too; with a token also
        by each address, since no site can lead one anywhere."""
        ours = place.names
        return cls(tokens, Names((*ours.known, socket.gethostname(), *names), ours.any_address or bool(tokens)))

    async def check(self, request: Request) -> None:
        """HttpProblem for a request that is not let in."""
        if not self.names.are_named(request.headers.getlist("host")):
            raise HttpProblem(421, "this is not served at that name", "`satchel serve --name HOST` adds one")
        await self.check_token(request.scope, request.headers.getlist("authorization"))
        if not self.tokens and "origin" in request.headers:
            raise HttpProblem(403, "requests of web pages need a token", "start `satchel serve` with one")

    async def check_token(self, scope: Mapping[str, Any], shown: Sequence[str]) -> None:
        """HttpProblem if a token is needed, and these `Authorization` headers have none. A `scope` is that of ASGI."""
        if self.tokens and self.guesses.are_too_many(scope):
            raise HttpProblem(429, "too many wrong tokens", "correct the token", Retry_After="10")
        if self.tokens and not is_bearer(shown, self.tokens):
            await self.guesses.slow_down(scope, "\n".join(shown))
            raise HttpProblem(401, "no valid token", "send `Authorization: Bearer TOKEN`", WWW_Authenticate="Bearer")


async def healthy(request: Request) -> Response:
    """This process answers."""
    return JSONResponse({"status": "ok"})


def handlers(here: str) -> dict[Any, Callable[[Request, Exception], Awaitable[Response]]]:
    """The answers to requests that fail. `here` says what is served, in words."""

    async def not_here(request: Request, error: Exception) -> Response:
        return await _tell(request, HttpProblem(404, "nothing is here", here))

    return {HttpProblem: _tell, 404: not_here, 405: _not_so}


async def _not_so(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return await _tell(request, HttpProblem(405, f"{request.method} does nothing here", **(error.headers or {})))


async def _tell(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, HttpProblem)
    said = {"title": problem.title, "status": problem.status, "detail": problem.detail}
    return JSONResponse(said, problem.status, problem.headers, media_type="application/problem+json")


_AT_ONCE = 500
"""Connections. One more gets 503."""

_GRACE = 10
"""Seconds that requests get at the end."""


@contextmanager
def answering(app: Starlette, wanted: Address, written: str) -> Iterator[str]:
    """A thread answers requests while the body runs. Gives the URL. If it fails meanwhile, this process gets SIGTERM,
    so that the body ends, and the error is raised then. UsageError if the address is taken."""
    with bound(wanted) as (found, place):
        config = uvicorn.Config(
            app,
            loop="asyncio",
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            limit_concurrency=_AT_ONCE,
            timeout_graceful_shutdown=_GRACE,
        )
        server = uvicorn.Server(config)
        failed: list[BaseException] = []

        def work() -> None:
            try:
                server.run([found])
            except BaseException as error:
                failed.append(error)
            if not server.should_exit:
                os.kill(os.getpid(), signal.SIGTERM)

        thread = threading.Thread(target=work, name="satchel-listen", daemon=True)
        thread.start()
        try:
            yield place.url
        finally:
            server.should_exit = True
            thread.join()
    if failed:
        raise SatchelError("the listener failed", path=written, why=repr(failed[0])) from failed[0]
