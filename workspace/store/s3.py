"""Requests to an S3 server: s3fs's client with our own retries; and what an answer, or no answer, means: repeat, look
again, or tell a person.

s3fs makes the session, so users give credentials, profiles, endpoints and encryption in the usual way. Its own file
calls are not used: they retry writes with unknown results, drop conditions on large files and hide errors.

Texts contain only codes and names, and the client's own errors are not chained to ours: they may quote URLs, headers
and messages with credentials.
"""

from __future__ import annotations

import asyncio
import functools
import json
import random
import re
import time
from base64 import b64encode
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from datetime import datetime
from email.utils import parsedate_to_datetime
from hashlib import md5
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from ..base import StorageFailed, UsageError, version
from .contract import AT_ONCE

PATIENCE = 100.0
"""Seconds during which a request is repeated before it has failed."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
_ANSWER_WITHIN = 60.0  # all of one request; a body is given a second more for each of these:
_BYTES_A_SECOND = 256 << 10

_NEEDED = {"put_object": "ETag", "get_object": "ETag"}
"""What a real answer contains: a proxy may answer 200 to anything."""

_CLOSED_WITHIN = 0.1  # seconds

_BUSY = frozenset((429, 500, 502, 503, 504))
_BUSY_CODES = frozenset(
    (
        "SlowDown",
        "RequestTimeout",
        "InternalError",
        "ServiceUnavailable",
        "Throttling",
        "ThrottlingException",
        "RequestLimitExceeded",
        "TooManyRequests",
    )
)
_EXPIRED = frozenset(("ExpiredToken", "ExpiredTokenException", "InvalidToken", "TokenRefreshRequired"))
_WRONG_KEY = frozenset(("InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidSecurity", "MissingSecurityHeader"))
_RENEW = "renew the credentials, then start it again: nothing that was recorded is lost"
_LONGEST_TOLD = 60.0

T = TypeVar("T")


class RequestOutcome(Exception):
    """The outcome of one request. None of these leaves the store."""


class NoSuchObject(RequestOutcome):
    """404: there is no such object, or no such setting of a bucket. Its text is the code."""


class Unmet(RequestOutcome):
    """412: the condition was false, or an earlier sending of the same request has made it false."""


class Unanswered(RequestOutcome):
    """No answer, or one that says to try again. It is unknown whether a write has happened."""

    def __init__(self, why: str, *, pause: float | None = None):
        super().__init__(why)
        self.why = why
        self.pause = pause  # seconds, if the server says


class OutOfRange(RequestOutcome):
    """416: there is less than the requested range, so nothing."""


class Unable(UsageError):
    """405 or 501: the server does not know this request, or a condition of it."""


class Denied(StorageFailed):
    """403. For a GET it may also mean 404, if the policy allows listing only below a prefix, as it should."""


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
                remedy="check the network and the server, then start it again: nothing that was acknowledged is lost",
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
        """One operation of S3, not repeated. Raises outcomes and the errors for people."""
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
            raise _unsuitable(error, self.place) from None
        client = await self._fs.get_s3(self._bucket)
        function = getattr(client, method)
        if "Metadata" in arguments:  # besides what the options say
            theirs = self._fs.s3_additional_kwargs.get("Metadata", {})
            arguments = {**arguments, "Metadata": {**theirs, **arguments["Metadata"]}}
        if method == "put_object":  # else SeaweedFS takes the head of one, its sender killed, for an empty object
            checksum = md5(arguments["Body"], usedforsecurity=False).digest()
            arguments = {**arguments, "ContentMD5": b64encode(checksum).decode()}
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
            raise _judged(error, what, path, self.place, self.server) from None
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
        raise _unsuitable(error, place) from None
    fs.close_session = _close
    return fs


def _session(options: Mapping[str, Any]) -> Any:
    """Like that of s3fs, except for three things. The dates: botocore's parser takes longer for the thousand of a
    listing than S3 does for the rest. The files that describe S3 to botocore: they take two thirds of the time to make
    a client, so all sessions of a process share them. `Expect: 100-continue`: each PUT would wait for a round trip
    before it sends its body, and bodies are small."""
    from aiobotocore.session import AioSession  # type: ignore[import-untyped]
    from botocore.handlers import add_expect_header  # type: ignore[import-untyped]

    session = AioSession(**options)
    session.unregister("before-call.s3", add_expect_header)
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


# The meaning of an answer


def _judged(error: Exception, what: str, path: str, place: str, server: str) -> Exception:
    """The outcome for an error of the client, or the error for a person."""
    from botocore.exceptions import ClientError  # type: ignore[import-untyped]

    if isinstance(error, ClientError):
        return _answered(error.response, what, path, place, server)
    return _unanswered(error, what, path, place, server)


def _answered(response: Any, what: str, path: str, place: str, server: str) -> Exception:
    facts = response.get("ResponseMetadata", {})
    status = int(facts.get("HTTPStatusCode") or 0)
    code = _plain(response.get("Error", {}).get("Code")) or str(status)
    if code == "NoSuchBucket":
        return UsageError(
            "there is no such bucket",
            path=place,
            why=f"{server} does not have it for these credentials",
            remedy="make the bucket, or correct the URL or the endpoint (`endpoint_url`, AWS_ENDPOINT_URL)",
        )
    if status == 412 or code == "PreconditionFailed":
        return Unmet()
    if status == 409:  # others are writing it at this moment
        return Unanswered(f"{server} answered {code} (409)")
    if status == 416:
        return OutOfRange()
    if code in _EXPIRED:
        return StorageFailed(what, path=path, why=f"the credentials have expired ({code})", remedy=_RENEW)
    if status in _BUSY or code in _BUSY_CODES:
        return Unanswered(f"{server} answered {code} ({status})", pause=_pause(facts.get("HTTPHeaders", {})))
    if status == 404:
        return NoSuchObject(code)
    if code == "RequestTimeTooSkewed":
        return StorageFailed(what, path=path, why="this machine's clock is wrong", remedy="set it, then start it again")
    if code in _WRONG_KEY:
        return StorageFailed(what, path=path, why=f"{server} does not know these credentials ({code})", remedy=_RENEW)
    if status in (401, 403):
        action = re.search(r"\b(?:s3|kms):[A-Za-z]+", str(response.get("Error", {}).get("Message")))
        why = f"{server} does not allow {action.group() if action else 'it'} ({code}, {status})"
        return Denied(what, path=path, why=why, remedy=f"give the credentials that permission, or {_RENEW}")
    if status in (301, 307, 400) and code in ("PermanentRedirect", "AuthorizationHeaderMalformed", "301", "307"):
        return UsageError(
            "the bucket is in another region",
            path=place,
            why=f"{server} answered {code}",
            remedy="set AWS_DEFAULT_REGION or the option `client_kwargs`",
        )
    if status in (400, 405, 501) and code in ("NotImplemented", "MethodNotAllowed"):
        return Unable(
            what,
            path=path,
            why=f"{server} can't do that ({code}, {status})",
            remedy="use a server that has conditional writes",
        )
    return StorageFailed(
        what, path=path, why=f"{server} answered {code} ({status})", remedy="check the server, then start it again"
    )


def _unanswered(error: Exception, what: str, path: str, place: str, server: str) -> Exception:
    from botocore import exceptions as of_client  # type: ignore[import-untyped]
    from botocore.parsers import ResponseParserError  # type: ignore[import-untyped]

    kind = type(error).__name__
    if isinstance(error, of_client.SSLError):
        return StorageFailed(
            what,
            path=path,
            why=f"no trusted connection to {server} ({kind})",
            remedy="check the endpoint's scheme and certificate (AWS_CA_BUNDLE)",
        )
    if isinstance(error, of_client.EndpointConnectionError | of_client.ConnectTimeoutError):
        return Unanswered(f"no connection to {server}; is the endpoint right?")
    if isinstance(error, of_client.NoCredentialsError | of_client.PartialCredentialsError):
        return StorageFailed(
            what,
            path=path,
            why="there are no credentials",
            remedy="set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the storage options `key` and "
            "`secret`",
        )
    if isinstance(error, of_client.CredentialRetrievalError | of_client.TokenRetrievalError | of_client.SSOError):
        return StorageFailed(what, path=path, why=f"the credentials can't be fetched ({kind})", remedy=_RENEW)
    if isinstance(error, of_client.HTTPClientError | of_client.ConnectionError | OSError | EOFError):
        return Unanswered(f"the connection to {server} failed ({kind})")
    if isinstance(error, of_client.IncompleteReadError | ResponseParserError) or _of_aiohttp(error):
        return Unanswered(f"the answer of {server} broke off ({kind})")
    return _unsuitable(error, place) if isinstance(error, of_client.BotoCoreError) else error


def _unsuitable(error: Exception, place: str) -> UsageError:
    """The error for settings that no client accepts, or an impossible name of a bucket."""
    return UsageError(
        "can't be opened with these settings",
        path=place,
        why=type(error).__name__ + _named(error),
        remedy="check the URL, the storage options, AWS_* and the profile",
    )


def _of_aiohttp(error: Exception) -> bool:
    from aiohttp import ClientError

    return isinstance(error, ClientError)


def _named(error: Exception) -> str:
    """The option that the client does not know, which Python puts in quotes. Never its value."""
    name = re.search(r"argument '([a-z_]{1,40})'", str(error)) if isinstance(error, TypeError) else None
    return f": there is no option {name.group(1)}" if name else ""


def _plain(code: Any) -> str:
    return code if isinstance(code, str) and re.fullmatch(r"[A-Za-z0-9.]{1,60}", code) else ""


def _pause(headers: Any) -> float | None:
    """The seconds in `Retry-After`."""
    told = str(headers.get("retry-after", "")).strip()
    if not told:
        return None
    try:
        seconds = (
            float(told) if re.fullmatch(r"[0-9]+", told) else parsedate_to_datetime(told).timestamp() - time.time()
        )
    except ValueError:
        return None
    return min(max(seconds, 0.0), _LONGEST_TOLD)
