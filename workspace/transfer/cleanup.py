"""Remove from a place what has been moved, and nothing else: changed or added files stay."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from .. import journal
from ..base import DEFINITION, shown
from ..inspect import transfer_file
from ..store import DISPLACED, LOCK, Entry, FileChanged, Store
from ..views import schema_copies, stable_read
from . import inventory
from .copy_files import READ_LIMIT, Sent, Tell, each_of, hashes
from .preconditions import Still, finished

_KEPT = frozenset((transfer_file.MOVED, LOCK))


def clear(store: Store, sent: Mapping[str, Sent], tell: Tell) -> list[str]:
    """Remove what `leaving.json` lists. Returns what is left except the tombstone. `sent` is what was just read here;
    without it, each file is read again to see whether it is unchanged. LeaseHeld if another process has finished this,
    and may have brought the run back."""
    store.refresh()
    leaving, version = transfer_file.read_leaving(store), store.version(transfer_file.LEAVING)
    if sent and leaving != {each.path: each.sha256 for each in sent.values()}:
        raise finished(store, f"{transfer_file.LEAVING} is not what Satchel wrote")
    if not leaving:
        return []

    def look() -> None:
        store.refresh(journal.FOLDER)
        if store.version(transfer_file.LEAVING) != version:
            raise finished(store, f"{transfer_file.LEAVING} has changed")

    still = Still(look)

    def remove(path: str) -> None:
        still.check()
        _remove(store, path, leaving, sent)

    if DEFINITION in leaving:
        remove(DEFINITION)
        store.settle("")
    entries = [entry.path for entry in inventory.walk(store)]
    going = [path for path in entries if path in leaving and path != DEFINITION]
    rubbish = [path for path in entries if inventory.is_passing(path) or schema_copies.is_copy(path)]
    tell("clearing", 0, len(going))
    for number, _ in enumerate(each_of(remove, going, store), 1):
        tell("clearing", number, len(going))
    store.remove_many(rubbish)
    left = [entry.path for entry in inventory.walk(store) if _is_left(store, entry)]
    left += [shown(fault.path) for fault in inventory.unlisted(store)]
    store.remove(transfer_file.PATH)  # how it had come here
    store.remove(transfer_file.LEAVING)
    _tidy(store, "")
    return left


def _remove(store: Store, path: str, leaving: Mapping[str, str], sent: Mapping[str, Sent]) -> None:
    version = store.version(path)
    if version is None:
        return
    is_same = path in sent and sent[path].version == version
    if not is_same:
        try:
            is_same = hashes(store.read(path, limit=READ_LIMIT).data)[0] == leaving[path]
        except FileNotFoundError:
            return
    if is_same and inventory.may_be_stub(store, path):
        with suppress(FileChanged):  # then it is left
            store.replace(path, b"", if_version=version)
    elif is_same:
        stable_read.remove(store, path, version)


def _is_left(store: Store, entry: Entry) -> bool:
    if entry.path in _KEPT or (not entry.size and inventory.may_be_stub(store, entry.path)):
        return False
    return inventory.goes_along(entry.path) or entry.path.startswith(f"{DISPLACED}/")


def _tidy(store: Store, folder: str) -> None:
    for inner in [*store.folders(folder)]:
        _tidy(store, inner)
    store.tidy(folder)
