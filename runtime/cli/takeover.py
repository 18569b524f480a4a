"""Waits until a workspace may be taken: a person may be saving a file, or its holder may live where no lock tells."""

from __future__ import annotations

import time

import click

from ...workspace import heartbeat, lease, saving
from ...workspace.errors import LeaseHeld, UsageError
from ...workspace.lease import Lease
from ...workspace.store import Store
from .place import Place
from .words import since, visible

option = click.option(
    "--take-over", is_flag=True,
    help="In a bucket: don't wait for the process that had it to show whether it lives. Asks first.",
)  # fmt: skip


def confirm(place: Place) -> None:
    """Ask whether the workspace is to be taken from its holder. LeaseHeld if it is not."""
    store = place.store
    if store.abilities.lock:
        raise UsageError(
            "there is nothing to take over on a disk", path=store.url,
            why="its lock is free the moment that the process which holds it is gone",
            remedy=f"stop that process: `{place.command('stop')}`",
        )  # fmt: skip
    store.refresh()
    held = lease.read(store)
    if held is None or lease.has_died(held):
        return
    click.echo(f"{described(store, held)}. If it still works, it will stop before its next effect;", err=True)
    click.echo("one that it is just doing can't be stopped. What it has acknowledged is kept.", err=True)
    if not click.confirm("Take the run over?", err=True):
        raise LeaseHeld("was left to its holder", path=store.url, why=described(store, held))


def check_free(store: Store) -> None:
    """LeaseHeld, without waiting, if the holder was heard of lately. A lock tells by itself."""
    if not store.abilities.lock and (held := lease.holder(store)) is not None:
        raise LeaseHeld("another process is running this workspace", path=store.url, why=described(store, held))


def wait(store: Store) -> None:
    """Return when the workspace may be taken, and no program is saving one of its files; LeaseHeld if its holder lives.
    Says what is waited for."""
    told: set[str] = set()
    for pause, path in saving.until_saved(store):
        if path not in told:
            click.echo(visible(f"waiting: {saving.said(path)}"), err=True)
        told.add(path)
        time.sleep(pause)
    is_told = False
    for pause, held in heartbeat.until_free(store):
        if not is_told:
            click.echo(f"{described(store, held)}; waiting {held.ttl:.0f} s to see whether it lives", err=True)
            is_told = True
        time.sleep(pause)


def described(store: Store, held: Lease) -> str:
    """Who has it, since when, and when it last said so."""
    beaten = store.trace(lease.PATH).at
    last = f", last heard of at {since(beaten)}" if held.ttl and beaten else ""
    return visible(f"{held.process} has it since {since(held.since)}{last}")
