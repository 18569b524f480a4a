"""Which calls run for long, in `.satchel/running.json`: for people who look at an active run.

A step has no record at its start, so nothing else says that it runs. The file only informs. Nothing is recovered from
it, and a missing or damaged one says nothing. It is written when a call has lasted for some time, and not when a call
ends: the journal tells that. So a reader leaves out calls that have ended since. A stop removes it, and so does each
opening: a crash leaves it, and a power failure may bring it back, or tear it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from msgspec import Struct
from msgspec.json import Decoder

from ..formats import decoder, jsontext
from ..journal import Key
from ..store import Store, read_own
from .guarded_files import Behind

PATH = ".satchel/running.json"
FORMAT = 1
MOST = 1000
"""Calls in the file: those that have run longest."""

_LIMIT = 4 << 20


class ListedCall(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A call, as its record will name it."""

    agent: str = ""
    scope: str
    no: int
    step: str
    args: str
    n: int
    call: str  # its arguments, shortened and redacted
    since: str  # when it began; of a call that was tried again, its first attempt
    failures: int = 0  # of its scope, when this was written: with one more, the call has ended

    @property
    def key(self) -> Key:
        return self.step, self.args, self.n


class RunningCalls(Struct, frozen=True, kw_only=True):
    """The content of the file. `epoch` names the process that has written it."""

    format: int = FORMAT
    run_id: str
    epoch: int
    at: str
    calls: list[ListedCall]


_file: Decoder[RunningCalls] = decoder(RunningCalls)


def encode(calls: RunningCalls) -> bytes:
    return jsontext.encode(calls)


def read(store: Store) -> RunningCalls | None:
    """None without a file that is valid and of this version. In a bucket one request, if the listing shows the file."""
    found = read_own(store, PATH, _file, limit=_LIMIT)
    return found if found is not None and found.format == FORMAT else None


class RunningDocument:
    """The file as one of the projector's. `calls` returns its content, None if there is nothing to say."""

    def __init__(self, store: Store, behind: Behind, calls: Callable[[], RunningCalls | None]):
        self._store, self._behind, self._calls = store, behind, calls
        self._was_written = self._is_over = False

    def end(self) -> bool:
        """No call runs any more: the next `write` removes the file. Returns whether there is one."""
        self._is_over = True
        return self._was_written

    def write(self) -> None:
        """Without a sync: after a power failure the process is gone, and so is what the file says."""
        if self._is_over:
            self._was_written = False
            self._behind.do(PATH, partial(self._store.remove, PATH))
        elif (calls := self._calls()) is not None:
            self._was_written = True
            self._behind.do(PATH, partial(self._store.replace, PATH, encode(calls), sync="no"))
