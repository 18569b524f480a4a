"""Wait until a workspace may be taken: a person may be saving a file, or its holder may be on another machine."""

from __future__ import annotations

from ...workspace.base import LeaseHeld, UsageError, since, visible
from ...workspace.inbound import saving
from ...workspace.inspect import Lease, lease
from ...workspace.lifecycle import acquire
from ...workspace.store import Store
from .place import Place
from .waiting import Steps


def holder(place: Place) -> str:
    """The process that would lose a workspace in a bucket, in words; empty if none has it. UsageError on a disk."""
    store = place.store
    if store.abilities.lock:
        raise UsageError(
            "there is nothing to take over on a disk",
            path=store.url,
            why="its lock is free as soon as the process that holds it ends",
            remedy=f"stop that process: `{place.command('stop')}`",
        )
    store.refresh()
    held = lease.read(store)
    return "" if held is None or lease.has_died(held) else described(store, held)


def check_free(store: Store) -> None:
    """LeaseHeld, without waiting, if the holder's last heartbeat is recent. On a disk the lock tells."""
    if not store.abilities.lock and (held := lease.holder(store)) is not None:
        raise LeaseHeld("another process is running this workspace", path=store.url, why=described(store, held))


def wait(place: Place) -> Steps[None]:
    """Wait until the workspace may be taken and no program is saving one of its files. LeaseHeld if its holder is
    alive. Calls `tell` with what it waits for."""
    store = place.store
    told: set[str] = set()
    for pause, path in saving.until_saved(store):
        if path not in told:
            place.tell(f"waiting: {saving.said(path)}")
        told.add(path)
        yield pause
    is_told = False
    for pause, held in acquire.until_free(store):
        if not is_told:
            place.tell(f"{described(store, held)}; waiting {held.ttl:.0f} s for its heartbeat")
            is_told = True
        yield pause


def described(store: Store, held: Lease) -> str:
    """Which process has it, since when, and its last heartbeat."""
    beaten = store.trace(lease.PATH).at
    last = f", last heartbeat at {since(beaten)}" if held.ttl and beaten else ""
    return visible(f"{held.process} has it since {since(held.since)}{last}")
