"""What happens on a worker: one run, until it stops."""

from __future__ import annotations

import logging
import os
import threading
from contextlib import suppress
from importlib.metadata import version
from typing import Literal, NamedTuple

from distributed import Worker, get_worker
from distributed.core import Status

from satchel import Handle
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
