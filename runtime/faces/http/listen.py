"""Tasks by HTTP: `POST /inbox/RUN` puts one into the inbox of a run, `GET /healthz` says that this process listens.

A 202 means that the task is on the storage. No answer does not mean that it is not: a sender that tries again gives
each task an `Idempotency-Key`. A thread answers the requests while `serve` turns in the main thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, BinaryIO
from weakref import WeakValueDictionary

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ....workspace.base import InvalidFile, KeyReused, SatchelError, StorageFailed, UsageError, decode
from ....workspace.formats import jsontext
from ....workspace.inbound import inbox
from ...api import UNNAMED, Below
from .access import HttpProblem, Senders, address_of, answering, given_token, handlers, healthy, tokens_of

PATIENCE = 30.0
"""Seconds in which the body of a request must arrive."""

_RETRY_AFTER = "30"  # seconds
_LONGEST_KEY = 255  # characters
_TEXT = ("text/plain", "text/markdown")


def app(below: Below, senders: Senders) -> Starlette:
    door = Door(below, senders)
    return Starlette(
        routes=[
            Route("/inbox/{run:path}", door.receive, methods=["POST"]),
            Route("/healthz", healthy, methods=["GET"]),
        ],
        exception_handlers=handlers("tasks go to POST /inbox/RUN"),
    )


class Door:
    def __init__(self, below: Below, senders: Senders):
        self._below, self._senders = below, senders
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    async def receive(self, request: Request) -> Response:
        await self._senders.check(request)
        key = _key(request)
        content = _content(request, await _body(request))
        name: str = request.path_params["run"]
        if not key:
            return await run_in_threadpool(self._send, name, content, key)
        # Of two requests with one key the second has to see the file of the first.
        lock = self._locks.setdefault((name, key), asyncio.Lock())
        async with lock:
            return await run_in_threadpool(self._send, name, content, key)

    def _send(self, name: str, content: Any, key: str) -> Response:
        """In a thread."""
        try:
            handle = self._below.find(name)
            if handle is None:
                raise HttpProblem(
                    404, f"there is no run {name!r}", "name its path below the root, which `satchel ls` shows after it"
                )
            (sent,) = handle.send(content, key=key)
        except KeyReused as error:
            raise HttpProblem(422, "the Idempotency-Key was used for another task", str(error)) from None
        except UsageError as error:
            raise HttpProblem(409, "the run takes no tasks", str(error)) from None
        except InvalidFile as error:
            if (error.path or "").startswith(UNNAMED):
                raise HttpProblem(400, "this can't be a task", str(error)) from None
            raise HttpProblem(500, "the run can't be read", str(error)) from None
        except (StorageFailed, OSError) as error:
            raise HttpProblem(503, "the storage failed", str(error), Retry_After=_RETRY_AFTER) from None
        except SatchelError as error:
            raise HttpProblem(500, "the run can't be read", str(error)) from None
        return JSONResponse({"run": name, "file": sent.file}, 202)


def _key(request: Request) -> str:
    keys = request.headers.getlist("idempotency-key")
    if len(keys) > 1:
        raise HttpProblem(400, "there are two Idempotency-Keys")
    key = keys[0] if keys else ""
    if len(key) > _LONGEST_KEY:
        raise HttpProblem(400, f"the Idempotency-Key has more than {_LONGEST_KEY} characters")
    return key


async def _body(request: Request) -> bytes:
    """Refused before more than the limit is in memory."""
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length) > inbox.LIMIT:
        raise _too_large()
    body = bytearray()
    try:
        async with asyncio.timeout(PATIENCE):
            async for part in request.stream():
                body += part
                if len(body) > inbox.LIMIT:
                    raise _too_large()
    except TimeoutError:
        raise HttpProblem(408, f"the body did not arrive in {PATIENCE:.0f} s", Connection="close") from None
    except ClientDisconnect:
        raise HttpProblem(400, "the body is not complete") from None
    return bytes(body)


def _too_large() -> HttpProblem:
    """What still comes is dropped as it arrives, because many clients read no answer before they have sent it all."""
    return HttpProblem(413, f"more than {inbox.LIMIT >> 20} MiB", "put large content elsewhere, and name it")


def _content(request: Request, body: bytes) -> Any:
    """What `Handle.send` takes: a text, or JSON data."""
    kinds = request.headers.getlist("content-type")
    if len(kinds) > 1:
        raise HttpProblem(400, "there are two Content-Types")
    written = kinds[0] if kinds else ""
    kind = written.partition(";")[0].strip().lower()
    is_json = kind == "application/json" or kind.endswith("+json")
    if kind in _TEXT or is_json:
        try:
            text = decode(body, "the body")
        except InvalidFile as error:
            raise HttpProblem(400, "the body is not UTF-8", str(error)) from None
        value = _json(text) if is_json else text
        if isinstance(value, str) and not value.strip():
            raise HttpProblem(400, "the body is empty")
        if is_json:
            _check_kind(value)
        return value
    raise HttpProblem(415, f"a body of the type {kind or 'nothing'!r}", f"send {', '.join(_TEXT)} or application/json")


def _json(text: str) -> Any:
    """As strictly as a file: of a key that is there twice, the sender may mean the other one."""
    try:
        return jsontext.load(text, "the body")
    except InvalidFile as error:
        raise HttpProblem(400, "the body is not JSON", str(error)) from None


def _check_kind(value: Any) -> None:
    """The token is for tasks and messages. A time of a schedule would count as taken, and the true one never come."""
    if inbox.is_firing(value):
        raise HttpProblem(
            422,
            "a time of a schedule can't be sent",
            "`schedule:` in workspace.yaml makes them, and `satchel serve` "
            "puts them into the inbox; send a task without `kind`, or with another one",
        )


_TOKEN = "SATCHEL_LISTEN_TOKEN"


@contextmanager
def listening(
    root: str,
    written: str,
    *,
    token: str | None = None,
    names: Sequence[str] = (),
    storage_options: Mapping[str, Any] | None = None,
) -> Iterator[str]:
    """Take tasks for the runs below `root` while the body runs. Gives the URL. If it fails meanwhile, this process gets
    SIGTERM, so that the body ends, and the error is raised then. `token` is what requests must show; None: nothing.
    `names`: other names that it is served at, as behind a proxy.

    UsageError for an address that is wrong or taken, a missing token, and an address that others can reach without one.
    """
    wanted = address_of(written)
    if token is None and not wanted.is_local:
        raise UsageError("--no-token is for addresses of this machine", path=written, remedy="set a token")
    tokens = tokens_of(token or "")
    if token is not None and not tokens:
        raise UsageError(
            "listening needs a token",
            remedy="set SATCHEL_LISTEN_TOKEN or --token-file (`openssl rand -hex 32` makes one), or use --no-token for "
            "an address of this machine",
        )
    below = Below(root, storage_options)
    with answering(app(below, Senders.at(wanted, tokens, names)), wanted, written) as url:
        yield url


def listening_of_options(
    root: str,
    written: str,
    *,
    token_file: BinaryIO | None,
    no_token: bool,
    names: Sequence[str],
    storage_options: Mapping[str, Any],
) -> AbstractContextManager[str]:
    """`listening` as the options of `satchel serve` ask for it. The token: of `token_file`, or SATCHEL_LISTEN_TOKEN."""
    token = None if no_token else given_token(_TOKEN, token_file)
    return listening(root, written, token=token, names=names, storage_options=storage_options)
