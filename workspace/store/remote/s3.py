"""Requests to an S3 server: s3fs's client with our own retries.

s3fs makes the session, so users give credentials, profiles, endpoints and encryption in the usual way. Its own file
calls are not used: they retry writes with unknown results, drop conditions on large files and hide errors.
"""

from __future__ import annotations

import asyncio
import functools
import json
import random
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from ...base import StorageFailed, UsageError, version
from ..contract import AT_ONCE
from .s3_errors import Unanswered, judged, unsuitable

PATIENCE = 100.0
"""Seconds during which a request is repeated before it has failed."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
_ANSWER_WITHIN = 60.0  # all of one request; a body is given a second more for each of these:
_BYTES_A_SECOND = 256 << 10

_NEEDED = {"put_object": "ETag", "get_object": "ETag"}
"""What a real answer contains: a proxy may answer 200 to anything."""

_CLOSED_WITHIN = 0.1  # seconds

T = TypeVar("T")


class Body(NamedTuple):
    data: bytes
    size: int  # of the whole object; `data` is empty if that is more than was wanted
    facts: Mapping[str, Any]  # the rest of the answer


class Patience:
    """How long one operation is repeated, however many requests it takes."""

    def __init__(self, seconds: float):
        self._until = time.monotonic() + seconds
        self._seconds = seconds
        self._tries = 0

    def wait(self, trouble: Unanswered, what: str, path: str) -> None:
        """Wait until the next attempt, or StorageFailed if there is no time left."""
        longest = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2**self._tries)
        self._tries += 1
        pause = max(trouble.pause or 0.0, random.uniform(longest / 2, longest))  # so that clients don't come at once
        if time.monotonic() + pause > self._until:
            raise StorageFailed(
                what,
                path=path,
                why=f"{trouble.why}, for {self._seconds:.0f} s",
                remedy="check the network and the server, then run `satchel resume`: nothing that was acknowledged is "
                "lost",
            ) from None
        time.sleep(pause)


class Requests:
    """For one bucket. Used from any thread; the requests themselves run on fsspec's."""

    def __init__(self, bucket: str, options: Mapping[str, Any], patience: float = PATIENCE):
        self.place = f"s3://{bucket}"
        self._bucket, self._patience = bucket, patience
        self._fs = _file_system(options, self.place)

    @property
    def server(self) -> str:
        """The server, without secrets that a URL may contain."""
        client = getattr(self._fs, "_s3", None)
        place = urlsplit(client.meta.endpoint_url if client else self._fs.endpoint_url or "")
        try:
            return f"{place.hostname or 'S3'}{f':{place.port}' if place.port else ''}"
        except ValueError:
            return "S3"

    @property
    def encryption(self) -> str:
        """The algorithm that the options ask for at each write; empty if the bucket decides."""
        return str(self._fs.s3_additional_kwargs.get("ServerSideEncryption", ""))

    def patience(self) -> Patience:
        return Patience(self._patience)

    def call(self, method: str, what: str, path: str, **arguments: Any) -> Mapping[str, Any]:
        """One operation of S3, repeated after trouble: so only for operations that may happen twice. `what` is for the
        error."""
        patience = self.patience()
        while True:
            try:
                return self.once(method, what, path, **arguments)
            except Unanswered as trouble:
                patience.wait(trouble, what, path)

    def once(self, method: str, what: str, path: str, **arguments: Any) -> Mapping[str, Any]:
        """The same without a repetition. Raises outcomes (s3_errors.py) and the errors for people."""
        seconds = _ANSWER_WITHIN + len(arguments.get("Body", b"")) / _BYTES_A_SECOND
        return self._wait(what, path, self._answer, method, arguments, seconds)

    def fetch(self, what: str, path: str, limit: int, patience: Patience | None = None, **arguments: Any) -> Body:
        """The whole body of an object, or nothing if the object has more than `limit` bytes."""
        patience = patience or self.patience()
        while True:
            try:
                return self._wait(what, path, self._fetch, limit, arguments)
            except Unanswered as trouble:
                patience.wait(trouble, what, path)

    async def _fetch(self, limit: int, arguments: Mapping[str, Any]) -> Body:
        answer = await self._answer("get_object", arguments, _ANSWER_WITHIN)
        size = int(answer["ContentLength"])
        async with answer["Body"] as stream:
            if size > limit:
                stream.close()
                return Body(b"", size, answer)
            async with asyncio.timeout(_ANSWER_WITHIN + size / _BYTES_A_SECOND):
                data = await stream.read()
        if len(data) != size:
            raise Unanswered(f"{self.server} sent {len(data)} bytes of {size}")
        return Body(data, size, answer)

    async def _answer(self, method: str, arguments: Mapping[str, Any], seconds: float) -> Any:
        async with asyncio.timeout(seconds):
            return await self._send(method, arguments)

    async def _send(self, method: str, arguments: Mapping[str, Any]) -> Any:
        try:
            await self._fs.set_session()
        except (TypeError, ValueError, KeyError, AttributeError) as error:  # of making a client, not of a request
            raise unsuitable(error, self.place) from None
        client = await self._fs.get_s3(self._bucket)
        function = getattr(client, method)
        if "Metadata" in arguments:  # besides what the options say
            theirs = self._fs.s3_additional_kwargs.get("Metadata", {})
            arguments = {**arguments, "Metadata": {**theirs, **arguments["Metadata"]}}
        known = self._fs._get_s3_method_kwargs(function, Bucket=self._bucket, **arguments)
        if dropped := arguments.keys() - known.keys():  # a condition that is not sent would be a write without one
            raise UsageError(
                "the installed botocore is too old",
                why=f"it does not know {', '.join(sorted(dropped))}",
                remedy="`pip install --upgrade s3fs aiobotocore`",
            )
        answer = await function(**known)
        if (needed := _NEEDED.get(method)) and not answer.get(needed):
            raise Unanswered(f"{self.server} sent an answer that is not valid S3")
        return answer

    def _wait(self, what: str, path: str, request: Callable[..., Coroutine[Any, Any, T]], *args: Any) -> T:
        loop = self._fs.loop  # refused in a process that was forked off; then nothing was begun
        future = asyncio.run_coroutine_threadsafe(request(*args), loop)
        try:
            return future.result()
        except Exception as error:
            raise judged(error, what, path, self.place, self.server) from None
        except BaseException:
            future.cancel()
            raise


_TEXTS = ("key", "secret", "token", "endpoint_url", "profile")
"""Options that must be text. Otherwise only a request would find the mistake."""


def _file_system(options: Mapping[str, Any], place: str) -> Any:
    try:
        from fsspec.config import conf  # type: ignore[import-untyped]
        from s3fs import S3FileSystem  # type: ignore[import-untyped]
    except ImportError as error:
        raise UsageError(
            "can't be opened: s3fs is not installed", path=place, why=str(error), remedy="`pip install s3fs`"
        ) from None
    given = {name: _typed(value) for name, value in {**conf.get("s3", {}), **options}.items()}
    for name in _TEXTS:
        if not isinstance(given.get(name) or "", str):
            raise UsageError(f"the storage option {name} is not a text", path=place, remedy="write it as a text")
    more = given.pop("config_kwargs", None) or {}
    if not isinstance(more, dict):
        raise UsageError("the storage option config_kwargs is no dict", path=place, remedy="write names with values")
    config = {
        "connect_timeout": 5,
        "read_timeout": 15,
        "request_checksum_calculation": "when_required",
        "response_checksum_validation": "when_required",
        "user_agent": f"satchel/{version()}",
        "max_pool_connections": AT_ONCE,
        **more,
        "retries": {"total_max_attempts": 1},
    }
    ours = {"use_listings_cache": False, "skip_instance_cache": True, "asynchronous": False, "config_kwargs": config}
    try:
        fs = S3FileSystem(**{**given, **ours})
        fs.session = fs.session or _session(fs.kwargs)
    except Exception as error:  # s3fs and botocore have no common error for wrong options or values
        raise unsuitable(error, place) from None
    fs.close_session = _close
    return fs


def _session(options: Mapping[str, Any]) -> Any:
    """Like that of s3fs, except for two things. The dates: botocore's parser takes longer for the thousand of a listing
    than S3 does for the rest. The files that describe S3 to botocore: they take two thirds of the time to make a
    client, so all sessions of a process share them."""
    from aiobotocore.session import AioSession  # type: ignore[import-untyped]

    session = AioSession(**options)
    session.register_component("data_loader", _loader(session.get_config_variable("data_path")))
    session.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=timestamp)
    return session


@functools.cache
def _loader(data_path: str | None) -> Any:
    from botocore.loaders import create_loader  # type: ignore[import-untyped]

    return create_loader(data_path)


def timestamp(text: Any) -> datetime:
    """ISO 8601 of a listing, RFC 9110 of a header; botocore parses other forms, which takes longer."""
    from botocore.utils import parse_timestamp  # type: ignore[import-untyped]

    for parse in (datetime.fromisoformat, parsedate_to_datetime):
        with suppress(ValueError, TypeError, AttributeError):
            if (found := parse(text)).tzinfo is not None:
                return found
    return parse_timestamp(text)  # type: ignore[no-any-return]


def _close(loop: asyncio.AbstractEventLoop | None, client: Any) -> None:
    """Called when a store is gone, in any thread. s3fs's own function would close the client in the loop that happens
    to run there, such as an agent's, to which the connections do not belong."""
    if loop is None or not loop.is_running():
        return
    try:
        is_here = asyncio.get_running_loop() is loop
    except RuntimeError:
        is_here = False
    closed = asyncio.run_coroutine_threadsafe(client.__aexit__(None, None, None), loop)
    if not is_here:
        with suppress(Exception):  # there is no caller left to report it to
            closed.result(_CLOSED_WITHIN)


def _typed(value: Any) -> Any:
    """An option from a command line or the environment is text, whatever its type."""
    if isinstance(value, str) and (value.lower() in ("true", "false") or value.startswith("{")):
        try:
            return json.loads(value if value.startswith("{") else value.lower())
        except ValueError:
            return value
    return value
