"""A notice as a signed HTTP request, by the scheme of https://www.standardwebhooks.com: the receiver can tell who has
sent it, when, and whether it has got it before.

Every attempt has the same id, and the time and signature of its own. A redirect counts as a refusal: another host would
get what this one is trusted with.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import http.client
import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from ...schemas import Problem
from ...workspace.base import DEFINITION, InvalidFile, version
from ...workspace.formats import Definition, Webhook
from ...workspace.formats import definition as definition_file
from ...workspace.store import Store

PAUSES = (0.5, 1.0, 2.0, 4.0)
"""Seconds between the attempts."""

_PATIENCE = 5.0  # seconds without a byte in an attempt
_PREFIX = "whsec_"
_AGAIN = (408, 425, 429)
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class NotSent(Exception):
    """Why, in words that have nothing secret."""


class Malformed(NotSent):
    """The secret is none."""


def resolved(written: str) -> str:
    """A text with each `${NAME}` replaced from the environment. KeyError if a name is missing there."""
    return _VARIABLE.sub(lambda found: os.environ[found[1]], written)


def check(store: Store, definition: Definition) -> None:
    """InvalidFile if a webhook can't work as it is written. What this machine lacks, a variable or a file, is told when
    a notice is sent."""
    wrong = []
    for number, place in enumerate(definition.notify):
        for key, said in _malformed(place) if isinstance(place, Webhook) else ():
            wrong.append((("notify", number, key), said))
    if wrong:
        place_of = definition_file.places(store.read(DEFINITION).data)
        raise InvalidFile(DEFINITION, [said._replace(place=place_of(where)) for where, said in wrong])


def _malformed(webhook: Webhook) -> Iterator[tuple[str, Problem]]:
    """Its wrong keys. Neither the URL nor the secret is shown."""
    with suppress(KeyError):
        try:
            host_of(resolved(webhook.webhook))
        except NotSent:
            yield "webhook", Problem("", "another address", "an http or https URL without a user name", "Correct it")
    with suppress(KeyError, NotSent):
        try:
            keys_of(webhook)
        except Malformed:
            remedy = f"Make one with `echo {_PREFIX}$(openssl rand -base64 32)`"
            yield "secret", Problem("", "a secret of another form", f"{_PREFIX} and base64", remedy)


def host_of(url: str) -> str:
    """The part of the URL that may be shown."""
    try:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
            raise ValueError
        return f"{parts.hostname}:{parts.port}" if parts.port else parts.hostname
    except ValueError:
        raise NotSent("a webhook has an http or https URL without a user name") from None


def deliver(url: str, keys: list[bytes], id: str, body: bytes, *, until: float, failed: Callable[[str], None]) -> None:
    """Send it, again after a failure that may pass, until the time `until` (time.monotonic). NotSent if it was not
    accepted. `failed` is called with the reason before it is sent again."""
    opener = urllib.request.build_opener(_NoRedirects)
    for pause in (*PAUSES, None):
        try:
            _post(opener, url, signed(keys, id, int(time.time()), body), body, until)
            return
        except urllib.error.HTTPError as error:
            error.close()
            why = f"it answered {error.code}"
            may_pass = error.code >= 500 or error.code in _AGAIN
        except (http.client.InvalidURL, ValueError):
            why, may_pass = "its URL has a space, or characters besides ASCII", False
        except (OSError, http.client.HTTPException) as error:
            cause = getattr(error, "reason", error)
            why, may_pass = getattr(cause, "strerror", None) or type(cause).__name__, True
        if not may_pass or pause is None or time.monotonic() + pause >= until:
            raise NotSent(why)
        failed(why)
        time.sleep(pause)


def _post(opener: Any, url: str, headers: dict[str, str], body: bytes, until: float) -> None:
    request = urllib.request.Request(url, body, headers, method="POST")
    patience = max(0.1, min(_PATIENCE, until - time.monotonic()))
    with opener.open(request, timeout=patience):
        pass  # what it says is of no interest


def signed(keys: list[bytes], id: str, at: int, body: bytes) -> dict[str, str]:
    """The headers: one signature for each key, so that a receiver may change its key."""
    said = b"%s.%d.%s" % (id.encode(), at, body)
    signatures = (base64.b64encode(hmac.digest(key, said, "sha256")).decode() for key in keys)
    return {
        "content-type": "application/json",
        "user-agent": f"satchel/{version()}",
        "webhook-id": id,
        "webhook-timestamp": str(at),
        "webhook-signature": " ".join(f"v1,{each}" for each in signatures),
    }


def keys_of(webhook: Webhook) -> list[bytes]:
    """The keys that its secret names, read now: several secrets have spaces between them. KeyError if the variable is
    missing, NotSent if they can't be used."""
    if webhook.secret.startswith("$"):
        text = resolved(webhook.secret)
    else:
        try:
            with open(os.path.expanduser(webhook.secret), encoding="utf-8") as file:
                text = file.read()
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or "it is not text"
            raise NotSent(f"the file with its secret can't be read: {why}") from None
    try:
        keys = [base64.b64decode(each.removeprefix(_PREFIX), validate=True) for each in text.split()]
    except binascii.Error:
        keys = []
    if not keys or not all(each.startswith(_PREFIX) for each in text.split()) or not all(keys):
        raise Malformed(f"its secret is not {_PREFIX} and base64")
    return keys


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None
