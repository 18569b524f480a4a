"""The emergency stop: write it down, kill every process of a run, and check that none is left.

Imports little, because it must take less than a second.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from msgspec.structs import replace

from ...workspace import journal
from ...workspace.base import DEFINITION, SIGNAL, InvalidFile, LeaseHeld, SatchelError, UsageError
from ...workspace.formats import definition, pause_file
from ...workspace.inspect import Lease, Process, lease
from ...workspace.journal import now
from ...workspace.store import LOCK, FileChanged, Store
from ..agent import code
from .child import has_open, is_alive, kill_sessions, leads_session, open_files, parent, signal_if
from .forced_stop import after_stop

if TYPE_CHECKING:
    from ...workspace.secrets import Redactor

_PATIENCE = 5.0  # seconds until what was killed must be gone
_LOOK = 0.002
_REMOTE_LOOK = 1.0
_HEARTBEAT = 12.0
"""Seconds within which a process elsewhere obeys, or renews its lease at least once."""
_AT_ONCE = 16  # workspaces
_NAMED = 3  # other runs of a process

How = Literal["stopped", "idle", "new", "elsewhere", "draining", "failed"]


class StopResult(Struct, frozen=True):
    """The outcome for one workspace. `how`: processes were killed, or saw pause.yaml first; there were none; the run
    has never begun; they are on another machine, and will see pause.yaml; or an error prevented it."""

    url: str
    how: How
    killed: tuple[int, ...] = ()
    said: str = ""


def stop(stores: Sequence[Store], reason: str, by: str) -> list[StopResult]:
    """Stop the runs of these workspaces at once, whatever they do. Only a person can start them again: every start
    looks at pause.yaml, which is durable before the first process is killed."""
    if not stores:
        return []
    with _several() as several:
        running = list(several.map(_running, stores))
        refused = list(several.map(lambda store: _ask(store, reason, by), stores))
        killed = list(several.map(_kill, stores))
        stopped = {store.url for store in stores}
        kill_sessions({leader for found in killed for leader in found.leaders})
        list(several.map(_redact, stores))
        outcomes = several.map(_outcome, stores, running, refused, killed)
        return [
            replace(each, said=each.said or found.others(stopped)) for each, found in zip(outcomes, killed, strict=True)
        ]


def spared(stores: Sequence[Store]) -> dict[str, StopResult]:
    """Those, by URL, that a stop of all runs leaves as they are, with nothing written."""
    with _several() as several:
        return {found.url: found for found in several.map(_spared, stores) if found is not None}


def _several() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_AT_ONCE, "satchel-stop")


def _spared(store: Store) -> StopResult | None:
    """A run that no process has, and that has never begun or is paused until a person resumes it. None for what has to
    be stopped, and where the files don't tell."""
    with suppress(SatchelError, OSError):
        if lease.read(store) is not None:
            return None
        if not any(next(iter(store.list(folder)), None) for folder in (journal.FOLDER, journal.CHECKPOINTS)):
            return StopResult(store.url, "new", said="it has not begun")
        pause = lease.read_pause(store)
        if pause is not None and pause.status == "paused" and not pause.until and pause.reason != SIGNAL:
            return StopResult(store.url, "idle", said=f"paused before, and stays so: {pause.reason}")
    return None


def _running(store: Store) -> list[Process]:
    """The processes of this machine that run it now. They may see pause.yaml and end by themselves before the kill;
    then they count as stopped."""
    with suppress(SatchelError, OSError):
        held = lease.read(store) if store.abilities.lock else None
        if held is not None and held.host == socket.gethostname() and _names_the_owner(store, held):
            return [each for each in _processes(held) if each is not None]
    return []


def _processes(held: Lease) -> tuple[Process, Process | None]:
    """The process that runs it, and its supervisor, if that is its parent."""
    child, supervisor = Process(pid=held.pid, process_started=held.process_started), held.supervisor
    if supervisor is not None and parent(child.pid) not in (None, supervisor.pid):
        supervisor = None
    return child, supervisor


def _ask(store: Store, reason: str, by: str) -> str:
    """Write the emergency pause.yaml. Returns what prevented that, or nothing."""
    try:
        while True:
            with suppress(FileChanged):  # a person's save came between: it is looked at, too
                _write(store, reason, by)
                return ""
            store.refresh()
    except (SatchelError, OSError) as error:
        return str(error)


def _write(store: Store, reason: str, by: str) -> None:
    pause = lease.read_pause(store)
    if pause is not None and pause.asks_for_emergency:
        return
    redactor = _redactor(store, patterns=False)
    reason, by = (redactor.text(reason), redactor.text(by)) if redactor else (reason, by)
    values = {"status": "requested", "reason": reason, "by": by, "mode": "emergency", "expected_until": None}
    values |= {"requested_at": now(), "then": "cancel" if pause is not None and pause.mode == "cancel" else None}
    try:
        found = store.read(pause_file.PATH)
    except FileNotFoundError:
        with suppress(FileExistsError):
            store.create(pause_file.PATH, pause_file.new(values))
            return
        raise FileChanged from None
    try:
        data = pause_file.filled(found.data, values)
    except (InvalidFile, UsageError) as error:
        from ...workspace.inbound import RejectedFile, reject

        reject(store, RejectedFile(pause_file.PATH, error, found.data), pause_file.FATE)
        data = pause_file.new(values)
    store.replace(pause_file.PATH, data, if_version=found.version)


def _redact(store: Store) -> None:
    """Redact by patterns what was written. Only now: the agent can write a pattern into workspace.yaml that takes for
    ever, and must not stay alive by it."""
    with suppress(SatchelError, OSError, FileChanged):
        redactor, found = _redactor(store, patterns=True), store.read(pause_file.PATH)
        said = pause_file.parse(found.data)
        old = {"reason": said.reason, "by": said.by}
        if redactor and (new := redactor.value(old)) is not old:
            store.replace(pause_file.PATH, pause_file.filled(found.data, new), if_version=found.version)


def _redactor(store: Store, *, patterns: bool) -> Redactor | None:
    """None if the workspace has no rules, or if they can't be read, which must not prevent a stop."""
    with suppress(SatchelError, OSError):
        if (
            b"redact" in store.read(DEFINITION, limit=definition.LIMIT).data
        ):  # else nothing needs to be imported and parsed
            from ...workspace.inspect import define
            from ...workspace.secrets import redactor_of

            found = define(store)
            return redactor_of(found if patterns else replace(found, redact=replace(found.redact, patterns=())))
    return None


class _Found(Struct, frozen=True):
    """The processes that the lease names, and what was done to them."""

    lease: Lease | None
    killed: tuple[Process, ...] = ()
    leaders: tuple[int, ...] = ()  # those of the killed that had a session of their own
    refused: str = ""
    shared: frozenset[str] = frozenset()  # the folders of all runs of the killed process

    def others(self, stopped: Collection[str]) -> str:
        """What becomes of the runs that shared the process and were not to be stopped, in words."""
        if not self.killed or self.lease is None or not self.lease.is_shared:
            return ""
        others = sorted(self.shared - {*stopped})
        named = ", ".join(others[:_NAMED]) + (f" and {len(others) - _NAMED} more" if len(others) > _NAMED else "")
        which = f": {named}" if others else ""
        return f"other runs shared its process; `satchel serve` starts them again, each alone{which}"


def _kill(store: Store) -> _Found:
    """Stops the supervisor first. It would start the child again, and at the child's end it would write `drain` into
    the file that says `emergency`."""
    try:
        held = lease.read(store)
        if held is None or held.host != socket.gethostname() or not _names_the_owner(store, held):
            return _Found(held)
    except PermissionError:
        return _Found(held, refused=f"process {held.pid} belongs to another user" if held else "")
    except (SatchelError, OSError) as error:  # the others are stopped all the same
        return _Found(None, refused=str(error))
    child, supervisor = _processes(held)
    killed: list[Process] = []
    leaders: list[int] = []
    refused = ""
    shared = open_files(child.pid, f"/{LOCK}") if held.is_shared else ()
    if supervisor is not None:
        with suppress(PermissionError):  # told when it is to be killed
            signal_if(signal.SIGSTOP, supervisor.pid, supervisor.process_started)
    for process in (child, supervisor):
        if process is None:
            continue
        leads = leads_session(process.pid)
        try:
            if signal_if(signal.SIGKILL, process.pid, process.process_started):
                killed.append(process)
                leaders += [process.pid] if leads else []
        except PermissionError:
            refused = f"process {process.pid} belongs to another user"
    return _Found(held, tuple(killed), tuple(leaders), refused, frozenset(shared))


def _names_the_owner(store: Store, held: Lease) -> bool:
    """Whether the lease's process has this workspace. The lease alone proves nothing: it comes along with a copy of the
    folder, and a stranger may have written it."""
    if held.url != store.url:
        return False
    if not store.abilities.lock:
        return True
    with suppress(LeaseHeld), store.lock():
        return False
    return has_open(held.pid, os.path.join(store.url, LOCK)) is not False


def _outcome(store: Store, running: Sequence[Process], refused: str, found: _Found) -> StopResult:
    pids = tuple(process.pid for process in found.killed)
    if refused or found.refused:
        return StopResult(store.url, "failed", pids, refused or found.refused)
    if store.abilities.remote:
        return _outcome_over_there(store, found, pids)
    give_up = time.monotonic() + _PATIENCE
    while (gone := _is_gone(store, {*running, *found.killed})) is not True:
        if gone is not False:  # the others are stopped all the same
            return StopResult(store.url, "failed", pids, str(gone))
        if found.lease is not None and found.lease.host != socket.gethostname():
            return StopResult(store.url, "elsewhere", (), f"{found.lease.process} runs it")
        if time.monotonic() > give_up:
            return StopResult(store.url, "failed", pids, _who_is_left(found))
        time.sleep(_LOOK)
    over = after_stop(store)
    return StopResult(store.url, "stopped" if pids or running else "idle", pids, "" if pids or running else over)


def _outcome_over_there(store: Store, found: _Found, pids: tuple[int, ...]) -> StopResult:
    """For a workspace without a lock: what was killed here must be gone, and processes elsewhere have one poll to
    obey."""
    held, give_up = found.lease, time.monotonic() + _PATIENCE
    while alive := [each.pid for each in found.killed if is_alive(each.pid, each.process_started)]:
        if time.monotonic() > give_up:
            return StopResult(store.url, "failed", pids, f"process {alive[0]} has not ended")
        time.sleep(_LOOK)
    for pid in pids:
        code.clear(pid)
    if held is None:
        return StopResult(store.url, "idle", said=after_stop(store))
    if pids or lease.has_died(held):
        return StopResult(store.url, "stopped" if pids else "idle", pids)
    who, renewed, before = held.process, False, store.version(lease.PATH)
    give_up = time.monotonic() + _HEARTBEAT
    while time.monotonic() < give_up:
        time.sleep(_REMOTE_LOOK)
        try:
            store.refresh()
            version, pause = store.version(lease.PATH), lease.read_pause(store)
        except (SatchelError, OSError) as error:
            return StopResult(store.url, "elsewhere", pids, f"{who} runs it, and the storage can't be reached: {error}")
        if version is None or (pause is not None and not pause.asks_for_emergency):
            return StopResult(store.url, "stopped", pids, f"{who} has stopped")
        renewed = renewed or version != before
    sign = "runs it" if renewed else f"has sent no heartbeat for {_HEARTBEAT:.0f} s"
    return StopResult(store.url, "elsewhere", pids, f"{who} {sign}")


def _is_gone(store: Store, told: Collection[Process]) -> bool | Exception:
    """Whether none of those processes is left and the lock is free. So there is no process whose lease we could not
    read, none in a container with other numbers, none that has just begun. An error if the lock can't be tried."""
    if any(is_alive(process.pid, process.process_started) for process in told):
        return False
    try:
        with store.lock():
            return True
    except LeaseHeld:
        return False
    except (SatchelError, OSError) as error:
        return error


def _who_is_left(found: _Found) -> str:
    alive = [each.pid for each in found.killed if is_alive(each.pid, each.process_started)]
    if alive:
        return f"process {alive[0]} has not ended"
    return "a process that is not visible from here holds the lock; it will read pause.yaml"
