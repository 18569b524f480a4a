"""The writing side: takes secrets out of records, collects them, and makes all waiting ones durable as one group."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from threading import get_ident
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from ..base import DEFINITION, AgentError, DoesNotFit, Refused, SatchelError, StorageFailed
from ..store import Store
from .blobs import filled
from .line import NO_CRC, AnyRecord, Line, now, written
from .people import Edited, Paused, PauseRequested, Resumed
from .records import AgentBegun, FileWritten, Migrated, PlanChanged, ResourceChanged, ScopeBegun, ScopeCommitted
from .segment import FOLDER
from .segment_log import AppendedSegments

if TYPE_CHECKING:
    import asyncio

    from ..secrets import Redactor

__all__ = ["RECORD_BYTES", "Journal"]

RECORD_BYTES = 16 << 20

ALONE_BYTES = 32 << 10
"""After so many bytes a group begins with a line that says everything, so that who follows a segment need not repeat
all of it."""

TENTHS = len("2026-11-01T00:00:00.0")
"""Records that are added in the same tenth of a second have the time of the first of them."""

_RECENT = 4
"""So many of the last records the `why.md` of a checkpoint tells."""

_NOBODY = 0
"""No thread has this number."""

_EXACT = (PauseRequested, Paused, Resumed)
"""Their times are compared with others, so they have their own, and so has the record after each."""


_NAMES = frozenset(
    (
        "agent",
        "agents",
        "blob",
        "calls",
        "checkpoint",
        "cut_off_at",
        "dropped",
        "due",
        "event",
        "expires",
        "file",
        "handed_to",
        "host",
        "how",
        "id",
        "idempotency_key",
        "key",
        "kind",
        "log",
        "mode",
        "model",
        "moved_to",
        "name",
        "other",
        "others",
        "outcome",
        "outline",
        "outputs",
        "path",
        "pause_file",
        "plan",
        "planned",
        "prompts",
        "python",
        "redone",
        "resume",
        "run_id",
        "run_nonce",
        "satchel",
        "saved",
        "schedule",
        "scope",
        "sha",
        "sha256",
        "status",
        "tier",
        "types",
        "until",
        "untaken",
        "url",
        "withdraws",
    )
)
"""Fields that name records, files, times and kinds, and those of the plan. They are compared, so a secret in one can't
be replaced. All others hold texts and values of agents and people, and so does a field that is new."""


class Segments(Protocol):
    """Where groups go. `is_full`: the next one begins a segment. `growing`: see `Journal`."""

    @property
    def is_full(self) -> bool: ...

    @property
    def growing(self) -> int: ...

    def write(self, lines: Sequence[Line], data: bytes) -> None:
        """Make a group durable. After an error it is unknown whether it is."""

    def roll_up(self) -> None:
        """Make reading cheap, at a stop."""

    def close(self) -> None: ...


class _Flight(Struct, frozen=True):
    """A group that is being written in another thread."""

    done: Future[None]
    lines: list[Line]


class _Sleeper(NamedTuple):
    seq: int  # the record it waits for
    woken: asyncio.Future[None]


class Journal:
    """One per opening of a workspace, used from one thread at a time, and from one event loop if there is one.

    There are two positions. `add` applies a record, or refuses it, and collects it. `flush` and `durable` make all
    collected records durable, in one group, and then call `on_durable` with it. Everything that others can see waits
    for that. After a failed write or sync nothing more is applied or written, and every call raises the error. If
    writing is a request over a network, or the loop has other work, the loop does not wait for it: one group at a time
    is written in a thread, and new records form the next one.
    """

    def __init__(
        self,
        store: Store,
        *,
        epoch: int,
        next_seq: int,
        apply: Callable[[Line], None],
        prev: str = NO_CRC,
        opening: str = "",
        segments: Segments | None = None,
        in_thread: bool = False,
    ):
        """`apply` is called with each line before it is collected. `add` raises its exception, and then the line does
        not exist. `prev`: the crc of the record before `next_seq`. `opening`: the nonce of this one. `segments`: where
        the groups go, if not to files that grow. `in_thread`: the loop never waits for a group, as where writing is a
        request."""
        self.epoch, self.opening = epoch, opening
        self.redactor: Redactor | None = None
        """Takes the secrets out of each record, if there are any."""
        self.bytes_added = 0
        self.waiting_bytes = 0
        self.recent: deque[Line] = deque(maxlen=_RECENT)  # the last ones that were added
        self.on_durable: Callable[[Sequence[Line]], None] | None = None
        """Called with each group once it is durable."""
        self.on_taken: Callable[[], None] | None = None
        """Called when all that was added is durable, or on its way."""
        self._store = store
        self._segments: Segments = segments or AppendedSegments(store)
        self._writer = ThreadPoolExecutor(1, "satchel-journal") if in_thread or store.abilities.remote else None
        self._only_in: int | None = None  # the one thread that may add and flush
        self._next_seq, self._prev, self._apply = next_seq, prev, apply
        self._alone_at = 0  # `bytes_added` at the last line that says everything
        self.generation = self.collectable = next_seq
        """The mark in the names of blobs (blobs.py), and the mark below which an unused blob may be
        removed."""
        self.durable_seq = next_seq - 1
        """Of the last record that is durable."""
        self._last: Line | None = None
        """The one that was added last."""
        self._waiting: list[Line] = []
        self._encoded: list[bytes] = []
        self._flight: _Flight | None = None
        self._wanted = False  # write the waiting records once the current group is written
        self._sleepers: list[_Sleeper] = []
        self._failed: SatchelError | None = None

    @property
    def next_seq(self) -> int:
        """The seq of the next record."""
        return self._next_seq

    @property
    def has_waiting(self) -> bool:
        """Whether records are neither durable nor being written; or never will be."""
        return bool(self._waiting) or self._failed is not None

    @property
    def under_way(self) -> Future[None] | None:
        """Ends when the group that is being written is durable, or raises its error. None without one."""
        return self._flight.done if self._flight is not None else None

    def check(self) -> None:
        """Raise the error of a failed write, if there is one: the state in memory may be in no storage."""
        if self._failed:
            raise self._failed
        if self._only_in not in (None, get_ident()):
            raise _ended()

    def give_up(self, error: SatchelError) -> None:
        """From any thread: nothing more is added or written. Every call raises the error from now on."""
        self._failed = self._failed or error

    async def lend(self) -> None:
        """No code may add or flush from now on, until a thread `take`s it: the loop goes on, and code that the agent
        has not awaited may still run there. Errors of what was added before come at the next call."""
        with suppress(SatchelError):
            while self._flight is not None or self._waiting:
                await self.durable(alone=True)
        self._only_in = _NOBODY

    def take(self) -> None:
        """Only this thread adds and flushes from now on."""
        self._only_in = get_ident()

    def give_back(self) -> None:
        """The loop may use it again."""
        self._only_in = None

    def add(self, record: AnyRecord) -> int:
        """Apply `record`, put it into the next group, and return its seq. DoesNotFit, with nothing changed, if it
        contradicts the record. AgentError or Refused for a secret that can't be redacted."""
        self.check()
        if self.redactor:
            record = _redacted(record, self.redactor)
        seq = self._next_seq
        commit = self._waiting[0].seq if self._waiting else seq
        says_all = not self._waiting and (self._segments.is_full or self.bytes_added - self._alone_at >= ALONE_BYTES)
        before = None if says_all else self._last
        at = now()
        if (
            before is not None
            and at[:TENTHS] == before.at[:TENTHS]
            and not isinstance(record, _EXACT)
            and not isinstance(before.record, _EXACT)
        ):
            at = before.at  # and need not be said again
        data, line = written(Line(seq, commit, at, self.epoch, record, self._prev, self.opening), before)
        if len(data) > RECORD_BYTES:
            raise SatchelError(
                f"a change of {len(data):,} bytes is too large for one record",
                remedy="keep large data in outputs/ (run.output) and only its name in the state",
            )
        try:
            self._apply(filled(self._store, line))
            self._next_seq, self._prev, self._last = seq + 1, line.crc, line
            self.recent.append(line)
            self._waiting.append(line)
            self._encoded.append(data)
            self.waiting_bytes += len(data)
            if before is None:
                self._alone_at = self.bytes_added
            self.bytes_added += len(data)
        except DoesNotFit:
            raise
        except BaseException as error:  # an interrupt in the middle: the state in memory can't be trusted
            self._fail(error)
            raise
        return seq

    def flush(self) -> None:
        """Make all records so far durable, and wait for it."""
        self.check()
        while True:
            while self._flight is not None:  # when one has ended, the next may have begun
                wait([self._flight.done])
                self._land(self._flight)
            self.check()
            if not self._waiting:
                return
            if self._writer is not None:
                self._take_off()
                continue
            lines, data = self._take()
            try:
                self._segments.write(lines, data)
            except BaseException as error:
                self._fail(error)
                raise
            self._written(lines)
            self._tell_taken()

    def flush_soon(self) -> None:
        """Like `flush`, but only begin if it takes a request over a network."""
        self.check()
        if self._writer is None:
            self.flush()
        elif self._flight is not None:
            self._wanted = True
            if self._flight.done.done():  # and the blocked loop has not handled it
                self._land(self._flight)
        elif self._waiting:
            self._take_off()

    async def durable(self, *, alone: bool) -> None:
        """Return when all records so far are durable.

        `alone` says that no other code is about to add: then it is flushed at once. Otherwise other tasks that are
        ready in this turn of the loop share the group.
        """
        self.check()
        if alone and self._writer is None:
            self.flush()
            if self._sleepers:
                self._wake(self._next_seq, None)
            return
        if not self._waiting and self._flight is None:
            return
        import asyncio  # code that only reads a journal needs no loop

        loop = asyncio.get_running_loop()
        sleeper = _Sleeper(self._next_seq - 1, loop.create_future())
        self._sleepers.append(sleeper)
        if alone and self._flight is None:
            self._take_off()
        elif len(self._sleepers) == 1 or self._writer is not None:
            loop.call_soon(self._flush_for_all)
        await sleeper.woken

    def begin_generation(self) -> None:
        """Blobs of the generation before this call stay: the record that will refer to one may not be added yet."""
        self.collectable, self.generation = self.generation, self._next_seq

    @property
    def growing(self) -> int:
        """The first record of the segment that this writer may still change; 0 where only the newest can change."""
        return self._segments.growing

    def roll_up(self) -> None:
        """At a stop: make the next opening cheap."""
        self._segments.roll_up()

    def end(self) -> None:
        """Nothing more is written: another process may own the workspace."""
        if self._flight is not None:
            wait([self._flight.done])
        self._close()
        self._failed = self._failed or _ended()

    def _close(self) -> None:
        self._segments.close()
        if self._writer is not None:
            self._writer.shutdown(wait=False)

    def _take(self) -> tuple[list[Line], bytes]:
        lines, self._waiting = self._waiting, []
        data = self._encoded[0] if len(self._encoded) == 1 else b"".join(self._encoded)
        self._encoded, self.waiting_bytes = [], 0
        return lines, data

    def _written(self, lines: list[Line]) -> None:
        self.durable_seq = lines[-1].seq
        if self.on_durable is not None:
            self.on_durable(lines)

    def _tell_taken(self) -> None:
        if self.on_taken is not None:
            self.on_taken()

    def _take_off(self) -> None:
        """Let the other thread write all waiting records."""
        assert self._writer is not None
        self._wanted = False
        lines, data = self._take()
        flight = self._flight = _Flight(self._writer.submit(self._segments.write, lines, data), lines)
        import asyncio

        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return  # without a loop, `flush` waits for it
        flight.done.add_done_callback(lambda _: _tell(loop, self._land, flight))
        self._tell_taken()

    def _land(self, flight: _Flight) -> None:
        """A group is written, or has failed. Its waiters continue, and the records that came meanwhile are next."""
        if self._flight is not flight:
            return  # a caller could not wait for the loop
        self._flight = None
        try:
            flight.done.result()
        except BaseException as error:
            self._fail(error)
            self._wake(self._next_seq, self._failed)
            return
        self._written(flight.lines)
        self._wake(flight.lines[-1].seq, None)
        if self._waiting and (self._sleepers or self._wanted):
            self._take_off()

    def _flush_for_all(self) -> None:
        if not self._sleepers or self._only_in is not None:
            return  # a caller that was alone has flushed for all, or the run is about to end
        if self._writer is not None:
            if self._waiting and self._flight is None:
                self._take_off()
            return
        try:
            self.flush()
        except Exception as error:
            self._wake(self._next_seq, error)
        else:
            self._wake(self._next_seq, None)

    def _wake(self, up_to: int, error: Exception | None) -> None:
        """Wake the waiters for `up_to` and for what came before it."""
        woken = [sleeper for sleeper in self._sleepers if sleeper.seq <= up_to]
        self._sleepers = [sleeper for sleeper in self._sleepers if sleeper.seq > up_to]
        for _, future in woken:
            if future.done():
                continue  # cancelled meanwhile
            if error:
                future.set_exception(error)
            else:
                future.set_result(None)

    def _fail(self, error: BaseException) -> None:
        """The group may or may not be in the storage; only a new opening can tell."""
        self._failed = error if isinstance(error, SatchelError) else StorageFailed("interrupted", path=FOLDER)
        if self._failed is not error:
            self._failed.__cause__ = error
        self._close()


def _ended() -> AgentError:
    return AgentError("the run has ended", remedy="await every task before the run ends")


def _tell(loop: asyncio.AbstractEventLoop, land: Callable[[_Flight], None], flight: _Flight) -> None:
    """Notify the loop. In the writing thread."""
    with suppress(RuntimeError):  # the loop has ended, and `flush` or `end` waits
        loop.call_soon_threadsafe(land, flight)


# Records without secrets: the last thing that happens to a record before it is applied and written


def _redacted(record: AnyRecord, redactor: Redactor) -> AnyRecord:
    """The record with each secret in its texts and values replaced. AgentError, or Refused for what a person wrote, if
    a secret is where it can't be replaced: in the agent's data, in the plan, or in a name."""
    _check_secrets(record, redactor)
    found: AnyRecord = _without_secrets(record, redactor)
    return found


def _without_secrets(value: Any, redactor: Redactor) -> Any:
    if isinstance(value, Raw):
        data = bytes(value)
        new = redactor.json(data)
        return value if new is data else Raw(new)
    if not isinstance(value, Struct):
        return redactor.value(value)
    changed = {}
    for name in value.__struct_fields__:
        old = getattr(value, name)
        if old and _is_said(value, name, old) and (new := _without_secrets(old, redactor)) is not old:
            changed[name] = new
    return replace(value, **changed) if changed else value


def _is_said(of: Struct, name: str, value: Any) -> bool:
    match name:
        case "args":  # of a failure; elsewhere a hash
            return isinstance(value, Raw)
        case "step":  # of an edit; elsewhere a name
            return isinstance(value, Struct)
        case "patch":  # of the agent's data it is checked
            return isinstance(of, Edited) and of.file == DEFINITION
        case "why":  # elsewhere a kind
            return isinstance(of, ResourceChanged)
    return name not in _NAMES


def _check_secrets(record: AnyRecord, redactor: Redactor) -> None:
    by_person = isinstance(record, Edited) or (isinstance(record, PlanChanged) and record.by == "person")
    error = Refused if by_person else AgentError
    if isinstance(record, ScopeCommitted | Migrated | Edited) and getattr(record, "file", "") != DEFINITION:
        for each in record.patch:
            value = each.get("value")
            value = msgspec.json.decode(value) if isinstance(value, Raw) else value
            for part in reversed(str(each["path"]).split("/")[1:]):  # each is a key, with the escapes of a JSON Pointer
                value = {part.replace("~1", "/").replace("~0", "~"): value}
            for at, rule in redactor.found_in(value, "run.state"):
                raise error(
                    f"{at} has a secret",
                    why=rule,
                    remedy="read the secret from the environment where it is used, or make it a `Sealed` value",
                )
    for splice in getattr(record, "plan", ()):
        for _, rule in redactor.found_in(splice.text):
            raise error("a line of todo.md has a secret", why=rule, remedy="name it in the plan without its value")
    names: tuple[str, ...] = ()
    match record:
        case ScopeBegun():
            names = (record.scope,)
        case AgentBegun():
            names = (record.agent,)
        case ScopeCommitted():
            names = (*record.outputs, record.key)
        case FileWritten():
            names = (record.path,)
    for name in names:
        redactor.check_name(name)
