"""What goes between a client and a bucket: HTTP messages as they are on the wire, and what each request is about."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import BinaryIO, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

_KINDS = {
    "journal": "journal",
    "checkpoints": "checkpoints",
    "lease.json": "lease",
    "blobs": "blobs",
    "partials": "partials",
    "recovered": "partials",
    "inbox": "inbox",
    "approvals": "approvals",
    "pause.yaml": "pause",
    "workspace.yaml": "definition",
    "outputs": "outputs",
}


class Message(NamedTuple):
    """A request or an answer. The headers stay as they came, for they are signed; the body is still encoded."""

    first: str  # the request line or the status line
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def get(self, name: str) -> str:
        return _get(self.headers, name)

    @property
    def status(self) -> int:
        return int(self.first.split(" ", 2)[1])

    def without(self, *names: str) -> Message:
        dropped = {name.lower() for name in names}
        return self._replace(headers=tuple(pair for pair in self.headers if pair[0].lower() not in dropped))

    def having(self, name: str, value: str) -> Message:
        return self.without(name)._replace(headers=(*self.without(name).headers, (name, value)))

    @property
    def head(self) -> bytes:
        lines = [self.first, *(f"{name}: {value}" for name, value in self.headers), "", ""]
        return "\r\n".join(lines).encode("latin-1")


@dataclass(slots=True)
class Seen:
    """One request that came to the proxy, in the order of their coming."""

    method: str  # as the price list has it: LIST is one of its own, and deleting several is a DELETE
    kind: str  # what of a workspace it is about
    key: str  # "bucket/key"
    up: int  # bytes of the body
    down: int = 0
    status: int | None = None  # None: the client got no answer
    fault: str = ""  # what was done to it
    condition: str = ""  # the header that says when it is to be done, with its value
    at: float = field(default_factory=time.monotonic)


@dataclass(frozen=True, slots=True)
class Tally:
    """Requests added up."""

    requests: Counter[tuple[str, str]]  # by method and kind
    up: int
    down: int

    @classmethod
    def of(cls, seen: Iterable[Seen]) -> Tally:
        seen = list(seen)
        counts = Counter((each.method, each.kind) for each in seen)
        return cls(counts, sum(each.up for each in seen), sum(each.down for each in seen))

    def count(self, method: str | None = None, kind: str | None = None) -> int:
        return sum(n for (m, k), n in self.requests.items() if method in (None, m) and kind in (None, k))


def describe(request: Message) -> Seen:
    verb, target, _ = request.first.split(" ", 2)
    url = urlsplit(target)
    query = parse_qs(url.query, keep_blank_values=True)
    key = unquote(url.path).lstrip("/")
    bucket, _, inside = key.partition("/")
    if not inside and "delete" in query:
        is_each = request.body.count(b"<ETag>") == request.body.count(b"<Object>")
        return Seen("DELETE", "several", bucket, len(request.body), condition="ETag of each" if is_each else "")
    if not inside and verb == "GET":
        listing = "list-type" in query or "prefix" in query or not query
        return Seen("LIST" if listing else verb, "bucket", f"{bucket}/{query.get('prefix', [''])[0]}", 0)
    conditions = [f"{name}: {value}" for name in ("If-Match", "If-None-Match") if (value := request.get(name))]
    return Seen(verb, kind_of(inside), key, len(request.body), condition=", ".join(conditions))


def kind_of(key: str) -> str:
    """What of a workspace an object is; the workspace may lie at any depth of the bucket."""
    if not key:
        return "bucket"
    found = [_KINDS[part] for part in key.split("/") if part in _KINDS]
    return found[0] if found else "internal" if "/.satchel/" in f"/{key}" else "projections"


def read_head(stream: BinaryIO) -> Message | None:
    """The next message without its body; None at the end of the connection."""
    first = stream.readline(65536)
    if not first.endswith(b"\n"):
        return None
    headers = []
    while (line := stream.readline(65536)) not in (b"\r\n", b"\n"):
        if not line:
            return None
        name, _, value = line.decode("latin-1").partition(":")
        headers.append((name, value.strip()))
    return Message(first.decode("latin-1").rstrip("\r\n"), tuple(headers), b"")


def read_body(stream: BinaryIO, message: Message, *, of_answer_to: str | None = None) -> Message | None:
    """The message with its body; None if the connection ended in it."""
    if of_answer_to is not None and (of_answer_to == "HEAD" or message.status in (204, 304)):
        return message
    if "chunked" in message.get("Transfer-Encoding").lower():
        chunks = _chunks(stream)
        return None if chunks is None else message._replace(body=chunks)
    if length := message.get("Content-Length"):
        body = stream.read(int(length))
        return message._replace(body=body) if len(body) == int(length) else None
    return message if of_answer_to is None else message._replace(body=stream.read())


def _chunks(stream: BinaryIO) -> bytes | None:
    """A chunked body, encoded as it is."""
    found = bytearray()
    while line := stream.readline():
        found += line
        size = int(re.split(rb"[;\r\n]", line)[0], 16)
        if size == 0:
            while (trailer := stream.readline()) not in (b"\r\n", b"\n", b""):
                found += trailer
            return bytes(found + trailer)
        found += stream.read(size + 2)
    return None


def _get(headers: tuple[tuple[str, str], ...], name: str) -> str:
    return next((value for each, value in headers if each.lower() == name.lower()), "")
