"""The meaning of an S3 server's answer, or of no answer: repeat, look again, or tell a person.

Texts contain only codes and names, and the client's own errors are not chained to ours: they may quote URLs, headers
and messages with credentials.
"""

from __future__ import annotations

import re
from email.utils import parsedate_to_datetime
from time import time
from typing import Any

from ...base import StorageFailed, UsageError

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
_RENEW = "renew the credentials, then run `satchel resume`: nothing that was recorded is lost"
_LONGEST_PAUSE = 60.0


class RequestOutcome(Exception):
    """The outcome of one request. None of these leaves the store."""


class NoSuchObject(RequestOutcome):
    """404: there is no such object, or no such setting of a bucket. Its text is the code."""


class Unmet(RequestOutcome):
    """412: the condition was false, or an earlier sending of the same request has made it false."""


class Unanswered(RequestOutcome):
    """No answer, or one that says to try again. It is unknown whether a write has happened."""

    def __init__(self, why: str, *, pause: float | None = None, waiting: bool = True):
        super().__init__(why)
        self.why = why
        self.pause = pause  # seconds, if the server says
        self.waiting = waiting  # False: try again at once


class OutOfRange(RequestOutcome):
    """416: there is less than the requested range, so nothing."""


class Unable(UsageError):
    """405 or 501: the server does not know this request, or a condition of it."""


class Denied(StorageFailed):
    """403. For a GET it may also mean 404, if the policy allows listing only below a prefix, as it should."""


def judged(error: Exception, what: str, path: str, place: str, server: str) -> Exception:
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
        return StorageFailed(
            what, path=path, why="this machine's clock is wrong", remedy="set it, then run `satchel resume`"
        )
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
        what,
        path=path,
        why=f"{server} answered {code} ({status})",
        remedy="check the server, then run `satchel resume`",
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
    return unsuitable(error, place) if isinstance(error, of_client.BotoCoreError) else error


def unsuitable(error: Exception, place: str) -> UsageError:
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
        seconds = float(told) if re.fullmatch(r"[0-9]+", told) else parsedate_to_datetime(told).timestamp() - time()
    except ValueError:
        return None
    return min(max(seconds, 0.0), _LONGEST_PAUSE)
