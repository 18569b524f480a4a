"""The workers of a scheduler: what one does with a run, until it stops; and, for a dispatcher, the connection to the
scheduler, which of its workers can have runs, and which have fallen silent."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any, Literal, NamedTuple

import distributed
from distributed import Worker, get_worker
from distributed.core import Status

from satchel import Handle, UsageError
from satchel import open as open_run
from satchel.errors import SatchelError, StorageFailed

NAME = "satchel-run"
"""What the keys of all tasks begin with, and so what the dashboard calls them."""

TOPIC = "satchel"
"""Where workers tell what happens to their runs, for all dispatchers and the dashboard."""

FAILED, REFUSED, WAITING, STORAGE, UNSEEN = 1, 2, 4, 8, -1
_ENDING = (Status.closing_gracefully, Status.closing, Status.closed)

_LOG = logging.getLogger("distributed.worker.satchel")
_LOG.setLevel(logging.INFO)

_all_stop = threading.Event()


class Ended(NamedTuple):
    """How a run has stopped on a worker. `code` is the exit code of `satchel run`, or UNSEEN: the worker has no such
    folder."""

    code: int
    why: str
    worker: str


class RootsSeen(NamedTuple):
    """What a worker has."""

    version: str
    missing: list[str]  # of the folders that it was asked for


def look_around(roots: list[str]) -> RootsSeen:
    """Whether runs below these roots can run here."""
    return RootsSeen(version("satchel"), [root for root in roots if "://" not in root and not os.path.isdir(root)])


def stop_all() -> None:
    """Stop the runs of this worker at a safe point, and let none begin."""
    _all_stop.set()


def run_here(url: str, drain_timeout: float | None, isolate: Literal["process", "none"] | None) -> Ended:
    """Run it until it stops, in a process of its own or, as `isolate` and the workspace say, in one that it shares with
    other runs of this worker. The end of the worker, by SIGTERM, a smaller cluster or its lifetime, pauses it at a safe
    point. If this process is killed, the run's process notices, and does the same."""
    worker = get_worker()
    if "://" not in url and not os.path.isfile(os.path.join(url, "workspace.yaml")):
        return Ended(UNSEEN, f"there is no {url}", worker.address)

    def tell(text: str) -> None:
        _tell(worker, url, "warned", text)

    _tell(worker, url, "started", f"on {worker.address}")
    try:
        handle = open_run(url)
        ended = handle.supervise(
            drain_timeout=drain_timeout,
            options=["--quiet"],
            tell=tell,
            should_stop=lambda: worker.status in _ENDING or _all_stop.is_set(),
            isolate=isolate,
        )
    except (SatchelError, OSError) as error:
        return Ended(STORAGE if isinstance(error, StorageFailed | OSError) else REFUSED, str(error), worker.address)
    why = ended.why or _told(handle, ended.exit_code)
    _LOG.info("%s: exit code %s%s", url, ended.exit_code, why and f": {why}")
    return Ended(ended.exit_code, why, worker.address)


def _told(handle: Handle, code: int) -> str:
    """What its files say of a run that needs a person."""
    with suppress(SatchelError, OSError):
        if code == FAILED and (failure := handle.result.failure) is not None:
            return f"{failure.kind}: {failure.message}"
        if code == WAITING:
            return "; ".join(f"{each.id}: {each.text}" for each in handle.questions())
    return ""


def _tell(worker: Worker, url: str, kind: str, text: str) -> None:
    _LOG.info("%s: %s %s", url, kind, text)
    worker.log_event(TOPIC, {"folder": url, "kind": kind, "text": text})


ANSWER = 10.0
"""Seconds for an answer of the scheduler, or of a new worker."""

_AGAIN = 0.5  # seconds until a scheduler is asked again

_SILENT = 30.0
"""Seconds without a heartbeat after which a worker is given up. It runs no code of an agent, so it always has time for
one."""


async def connect(address: str, security: Any) -> Any:
    """A Client. A scheduler that is just being started may come within seconds; after these OSError or TimeoutError.
    ValueError for what is no address."""
    until = time.monotonic() + ANSWER
    while True:
        client = None
        try:
            client = distributed.Client(
                address, security=security, asynchronous=True, set_as_default=False, timeout=ANSWER
            )
            return await client
        except BaseException as error:
            if client is not None:
                with suppress(Exception):  # else Dask closes it at the end of the program, where no loop runs
                    await client.close()
            if not isinstance(error, OSError | TimeoutError) or time.monotonic() > until:
                raise
        await asyncio.sleep(_AGAIN)


@dataclass
class _Worker:
    threads: int
    beat: float  # the time of its last heartbeat, by the clock of the scheduler
    since: float = field(default_factory=time.monotonic)  # when that was first seen
    trouble: str | None = None  # why no run can be there; None: it has not answered yet


class Workers:
    """`roots` are those that each of them must see. `tell` is called with a kind of event, an address, and a text."""

    def __init__(self, roots: list[str], tell: Callable[[str, str, str], None]):
        self._roots, self._tell = roots, tell
        self._known: dict[str, _Worker] = {}
        self._asking: asyncio.Task[None] | None = None
        self.failed: UsageError | None = None
        """No worker can have a run."""

    @property
    def good(self) -> dict[str, int]:
        """The threads of those that can have runs."""
        return {address: worker.threads for address, worker in self._known.items() if worker.trouble == ""}

    @property
    def has_bad(self) -> bool:
        return len(self.good) < len(self._known)

    def are_there(self, addresses: frozenset[str]) -> bool:
        """Whether one of them is."""
        return bool(addresses & self._known.keys())

    def forget(self) -> None:
        """They are those of another scheduler."""
        self._known.clear()
        if self._asking is not None:
            self._asking.cancel()

    def refuse(self, address: str, trouble: str) -> None:
        """From now on it gets no run."""
        if address in self._known:
            self._known[address].trouble = trouble
            self._tell("refused", address, trouble)

    async def update(self, client: Any, seen: dict[str, Any]) -> None:
        """`seen` is what the scheduler says of them now."""
        now = time.monotonic()
        for address, its in seen.items():
            known = self._known.get(address)
            if known is None:
                self._known[address] = _Worker(its["nthreads"], its["last_seen"])
            elif its["last_seen"] != known.beat:
                known.beat, known.since, known.threads = its["last_seen"], now, its["nthreads"]
            elif now > known.since + _SILENT:
                await self._give_up(client, address)
        for address in self._known.keys() - seen.keys():
            del self._known[address]
        new = [address for address, worker in self._known.items() if worker.trouble is None]
        if new and (self._asking is None or self._asking.done()):
            self._asking = asyncio.create_task(self._ask(client, new))

    async def _give_up(self, client: Any, address: str) -> None:
        """Let the scheduler give its tasks to other workers. By itself it would do so after minutes."""
        processing = await client.processing(workers=[address])
        names = ", ".join(key[1] for keys in processing.values() for key in keys if key[0] == NAME)
        text = f"the worker has been silent for {_SILENT:.0f} s: it is frozen or cut off"
        stays = "; those on a disk stay locked until their processes end"
        self._tell("late", address, f"{text}. It has {names}{stays}" if names else text)
        await client.scheduler.unregister(address=address, stimulus_id=f"satchel-silent-{time.time()}")

    async def _ask(self, client: Any, new: list[str]) -> None:
        try:
            asked = client.run(look_around, self._roots, workers=new, on_error="return")
            answers = await asyncio.wait_for(asked, ANSWER)
        except (OSError, TimeoutError):
            return  # one of them is frozen, or has just gone
        for address in new:
            seen = answers.get(address)
            if address in self._known and not isinstance(seen, OSError):
                trouble = self._trouble(seen)
                self._known[address].trouble = trouble
                if trouble:
                    self._tell("refused", address, trouble)
        if self._known and all(worker.trouble for worker in self._known.values()):
            self.failed = UsageError(
                "no worker can have a run",
                why="; ".join(f"{address}: {worker.trouble}" for address, worker in self._known.items()),
                remedy="give all workers this version of Satchel, and roots that they see: a shared folder or a bucket",
            )

    def _trouble(self, seen: object) -> str:
        if not isinstance(seen, RootsSeen):
            return f"Satchel can't be used there ({type(seen).__name__}: {seen})"
        if seen.version != (ours := version("satchel")):
            return f"it has Satchel {seen.version}, and this dispatcher {ours}"
        unseen = ", ".join(seen.missing)
        return f"it does not see {unseen}: that is on another machine, or not mounted there" if unseen else ""
