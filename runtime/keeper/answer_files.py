"""Answers of providers in the folder of a run, from their first byte until the result of their step is recorded.

`.satchel/answers/STEP-REQUEST-N.part` is one that still arrives, `….answer` a whole one: a line of JSON (`AnswerHead`)
and the bytes as the provider has sent them. `….asked`, with such a line only, is one that has hardly begun, or that is
written at its end. Their names are created exclusively. The prompt is in none of them.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from hashlib import blake2b

import msgspec
from msgspec import Struct

from ...workspace.base import ANSWERS, SatchelError
from ...workspace.formats import decoder
from ...workspace.inspect import lease
from ...workspace.store import Store
from . import wire

AGE = timedelta(days=7)
"""An older answer is removed at the next start of its run."""

LONGEST = 32 << 20
"""Bytes of an answer that is kept."""

_ASKED, _PART, _WHOLE = ".asked", ".part", ".answer"


class AnswerHead(Struct, frozen=True):
    """What an answer belongs to. `step` is the digest of a step's identity, empty if the request came without one;
    `request` that of method, path and body; the answer is the `n`th to equal requests. `process` on `host`, which
    `started` tells from others with its number, is the keeper that reads it for the run at `url`. Its `status`,
    `reason` and `headers` are not known before it begins."""

    run_id: str
    epoch: int
    step: str
    words: str  # the step, for people
    request: str
    n: int
    at: str  # when it was asked for: UTC, ISO 8601
    host: str
    process: int
    started: str
    url: str
    status: int = 0
    reason: str = ""
    headers: list[tuple[str, str]] = []
    v: int = 1

    @property
    def path(self) -> str:
        """Of the file that still grows."""
        return f"{ANSWERS}/{self.step or 'any'}-{self.request}-{self.n}{_PART}"

    @property
    def id(self) -> str:
        """Tells this answer from all others, wherever it lies."""
        return digest(*(each.encode() for each in (self.step, self.request, str(self.n), self.at)))

    def is_read_at(self, url: str) -> bool:
        """The keeper that reads it lives, on this machine, and writes it to the run at `url`. That of a run that was
        copied or has moved since writes to another place."""
        is_here = self.host == socket.gethostname() and self.url == url
        return is_here and lease.process_started(self.process) == self.started

    @property
    def kind(self) -> str:
        """The content type."""
        return self.header("content-type")

    def header(self, name: str) -> str:
        return next((value for key, value in self.headers if key.lower() == name), "")


_head = decoder(AnswerHead)


class KeptAnswer(Struct):
    """A file of an answer, as it was found. `is_whole`: all of the answer is there. `has_begun`: some of it may be."""

    head: AnswerHead
    body: bytes
    is_whole: bool
    path: str
    begins: int  # the place in the file where the answer begins

    @property
    def has_begun(self) -> bool:
        return not self.path.endswith(_ASKED)

    @property
    def said(self) -> wire.AnswerFacts | None:
        return understood(self.head, self.body)

    @property
    def in_background(self) -> wire.InBackground | None:
        """How the rest of it is fetched, if it is torn and its provider has that."""
        is_plain = not self.head.header("content-encoding")
        return wire.in_background(self.head.kind, self.body) if is_plain and not self.is_whole else None


def understood(head: AnswerHead, data: bytes) -> wire.AnswerFacts | None:
    """What an answer says. None if this can't be read."""
    body = wire.plain(data, head.header("content-encoding"))
    return None if body is None else wire.said(head.kind, body)


def digest(*parts: bytes) -> str:
    """Of texts that follow each other in this order."""
    found = blake2b(digest_size=10)
    for part in parts:
        found.update(len(part).to_bytes(8, "big") + part)
    return found.hexdigest()


def digest_of_step(agent: str, scope: str, name: str, arguments: str, n: int) -> str:
    """Of the identity of a step: the path of its agent, its scope, and its key there."""
    return digest(agent.encode(), scope.encode(), name.encode(), arguments.encode(), str(n).encode())


def kept(store: Store, known: Iterable[str] = ()) -> Iterator[KeptAnswer]:
    """The answers in the folder of a run. What is no answer is left out; it stays where it is. `known`: the stems of
    some that a list may lack, because their files get their other name while it is made."""
    listed = (stem(entry.path) for entry in store.list(ANSWERS) if entry.path.endswith((_ASKED, _PART, _WHOLE)))
    for name in dict.fromkeys((*listed, *known)):
        if found := begun(store, name) or load(store, name + _ASKED) or begun(store, name):
            yield found


def begun(store: Store, stem: str) -> KeptAnswer | None:
    """An answer that has begun, by its stem."""
    return load(store, stem + _PART) or load(store, stem + _WHOLE)


def load(store: Store, path: str) -> KeptAnswer | None:
    """An answer by its path. None if there is none."""
    try:
        first, newline, body = store.read(path, limit=LONGEST + (1 << 20)).data.partition(b"\n")
        head: AnswerHead = _head.decode(first)
    except (OSError, SatchelError, msgspec.DecodeError):
        return None
    is_whole = path.endswith(_WHOLE)
    return KeptAnswer(head, body, is_whole, path, len(first) + 1) if newline and head.v == 1 else None


def stem(path: str) -> str:
    """The name of an answer's file, whether all of it is there or not."""
    return path.removesuffix(_PART).removesuffix(_WHOLE).removesuffix(_ASKED)


def whole(path: str) -> str:
    """The path of the file once all of it is there."""
    return stem(path) + _WHOLE


def is_old(head: AnswerHead) -> bool:
    try:
        return datetime.now(UTC) - datetime.fromisoformat(head.at) > AGE
    except (ValueError, TypeError):
        return True


class AnswerFile:
    """The file of an answer that still arrives. Blocks; for one thread at a time. What can't be written is not kept,
    and the answer itself goes on."""

    def __init__(self, store: Store, head: AnswerHead):
        self._store, self.head, self.path = store, head, head.path
        self.is_there = False

    @property
    def is_whole(self) -> bool:
        """All of the answer is in it."""
        return self.is_there and self.path.endswith(_WHOLE)

    def ask(self) -> None:
        """It is asked for. FileExistsError if another answer has the name."""
        name = stem(self.head.path)
        if any(self._store.version(name + each) is not None for each in (_PART, _WHOLE)):
            raise FileExistsError(name)
        self.path = name + _ASKED
        self._store.create(self.path, self._first)
        self.is_there = True

    def begin(self) -> None:
        """FileExistsError if another answer has the name, or has begun."""
        asked = self.path if self.is_there else ""
        self._store.create(self.head.path, self._first)
        self.path, self.is_there = self.head.path, True
        if asked:
            self._store.remove(asked)

    @property
    def _first(self) -> bytes:
        """The first line. A cookie is a secret, and serves the connection that it came by."""
        headers = [each for each in self.head.headers if each[0].lower() != "set-cookie"]
        return msgspec.json.encode(msgspec.structs.replace(self.head, headers=headers)) + b"\n"

    def add(self, data: bytes) -> None:
        self._check()
        if data:
            self._store.append(self.path, data)

    def finish(self, data: bytes) -> None:
        """The answer is whole, with `data` at its end."""
        self._check()
        self._store.append(self.path, data, durable=True)
        self._store.rename(self.path, whole(self.path))
        self.path = whole(self.path)

    def _check(self) -> None:
        """FileNotFoundError if another keeper, or who goes back, has removed it: `append` would make it again."""
        if not self.is_there or self._store.version(self.path) is None:
            self.is_there = False
            raise FileNotFoundError(f"{self.path} was removed")

    def write(self, body: bytes) -> None:
        """All of it at once: where files can't grow, and if it was only clear at the end that it may be kept."""
        asked = self.path if self.is_there else ""
        self._store.create(whole(self.head.path), self._first + body)
        self.path, self.is_there = whole(self.head.path), True
        if asked:
            self._store.remove(asked)

    def remove(self) -> None:
        if self.is_there:
            self.is_there = False
            with suppress(OSError, SatchelError):  # its age removes it
                self._store.remove(self.path)
