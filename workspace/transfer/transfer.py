"""`copy` and `move`, from the first look to the last removed file. After a kill at any point the same call continues.

At the destination: `.satchel/moving.json` first (it stays), then the files, the journal, workspace.yaml last. A move
writes its tombstone at the source between the journal and workspace.yaml. So at every moment at most one of the two is
a workspace; and until the destination is one, everything is still at the source.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from msgspec import Struct, field

from .. import journal
from ..base import DEFINITION, LeaseHeld, NewerFormat, SatchelError, UsageError, shown, version
from ..formats import definition
from ..inspect import Kind, Manifest, Tombstone, define, lease, look, read_definition, transfer_file
from ..journal import segment_path
from ..journal.records import now
from ..lifecycle import acquire, heartbeat
from ..people.edits import displaced
from ..store import DISPLACED, LOCK, Content, Store
from ..views import stable_read
from . import cleanup, ends, inventory
from .copy_files import Sent, Tell, differs, hashes, proves, transfer
from .preconditions import finished


class Journey(Struct):
    """The result of a transfer."""

    kind: Kind
    run_id: str
    source: str
    to: str
    was_done: bool = False  # by an earlier call, which has said the rest
    resumed: bool = False  # an earlier call had begun
    files: int = 0
    bytes: int = 0
    copied: int = 0  # files that this call has brought; the others were there
    sha256: str = ""  # of the list of files, see inventory.digest
    is_clean: bool = True  # its last process has closed it; otherwise the next opening repairs it
    notes: list[str] = field(default_factory=list)
    left: list[str] = field(
        default_factory=list
    )  # files that were not removed, since they have changed or came meanwhile


def copy(source: Store, to: Store, *, by: str, tell: Tell = lambda *_: None) -> Journey:
    """Make a second copy of a run. Its first opening there asks a person whether it may continue.

    UsageError if the destination holds anything else, LeaseHeld if the run is active, InvalidFile or NewerFormat if its
    identity can't be read, StorageFailed if a file did not arrive unchanged.
    """
    ends.refuse_overlap(source, to.url)
    run_id = define(source).run_id
    with _still(source), held(to):
        source.refresh()
        journey = Journey("copy", run_id, source.url, to.url)
        mine = Manifest(run_id=run_id, kind="copy", source=source.url, to=to.url, began=now(), by=by)
        there = transfer_file.read(to)
        if there is not None and there.is_same_journey(mine) and to.version(DEFINITION) is not None:
            journey.was_done = True
        else:
            _look(source, journey)
            _define(to, _bring(source, to, mine, journey, tell))
    return journey


def move(source: Store, to: Store, *, by: str, tell: Tell = lambda *_: None) -> Journey:
    """Move a run. A tombstone stays, and files that people have changed here meanwhile.

    Errors as in `copy`.
    """
    ends.refuse_overlap(source, to.url)
    run_id = _run_at(source)
    _refuse_elsewhere(source, to, run_id)
    with _owned(source, run_id) as newest, held(to):
        source.refresh()
        journey = Journey("move", run_id, source.url, to.url)
        gone = transfer_file.read_tombstone(source)
        sent: dict[str, Sent] = {}
        if gone is not None and gone.run_id == run_id:
            journey.resumed, journey.sha256 = True, gone.sha256
        else:
            gone = None
            _look(source, journey)
        if gone is not None and _lives(to, run_id):
            journey.was_done = not transfer_file.read_leaving(source)
        else:
            mine = Manifest(run_id=run_id, kind="move", source=source.url, to=to.url, began=now(), by=by)
            sent = _bring(source, to, mine, journey, tell)
            if newest is not None:
                _refuse_faster(source, newest, is_leaving=gone is not None)
            _leave(source, journey, sent, by, is_begun=gone is not None)
            if newest is not None:
                _refuse_faster(source, newest, is_leaving=True)
            _define(to, sent)
        journey.left = cleanup.clear(source, sent, tell)
    if source.abilities.lock:
        source.remove(lease.PATH)  # of a process that was killed; it is no longer used
    return journey


def _run_at(source: Store) -> str:
    """The run that is here, or that is on its way from here."""
    if source.version(DEFINITION) is None and (gone := transfer_file.read_tombstone(source)) is not None:
        return gone.run_id
    transfer_file.refuse(source)
    return read_definition(source).run_id


def _refuse_elsewhere(source: Store, to: Store, run_id: str) -> None:
    gone = transfer_file.read_tombstone(source)
    if gone is not None and gone.run_id == run_id and gone.to != to.url:
        raise transfer_file.moved_error(source.url, gone, is_cleared=source.version(transfer_file.LEAVING) is None)


@contextmanager
def _still(source: Store) -> Iterator[None]:
    """No process runs it. Where there is no lock and nothing may be written, a process that begins meanwhile is found
    by its writes: `transfer` ends only without any."""
    for pause, _ in heartbeat.until_free(source):
        time.sleep(pause)
    with lease.held(source):
        yield


@contextmanager
def _owned(source: Store, run_id: str) -> Iterator[int | None]:
    """No process runs it, and a frozen one can't continue: without a lock a fence excludes it.

    Yields the newest segment that may exist while no other process runs it: that fence, 0 if it was never run, or what
    an earlier call has carried that has written the tombstone. None where there is a lock.
    """
    with _still(source):
        gone = transfer_file.read_tombstone(source)
        if source.abilities.lock:
            yield None
        elif gone is not None and gone.run_id == run_id:
            left = source.version(lease.PATH)  # by an earlier call, which was killed
            yield max(map(journal.first_of, transfer_file.read_leaving(source)), default=0)
            if left is not None:
                stable_read.remove(source, lease.PATH, left)
        elif (seen := look(source)).moment.seq == 0:
            yield 0
        else:
            with acquire.owned(source, seen, take_over=True) as mine:
                assert mine.fence is not None
                yield mine.fence.seq


def _refuse_faster(source: Store, newest: int, *, is_leaving: bool) -> None:
    """Without a lock: a process that began to run it meanwhile has written a fence before it listed journal/ again, and
    `leaving.json` came before the tombstone. So at least one of the two sees the other; it does not matter what was
    already copied."""
    source.refresh()
    if (found := max(journal.segments(source), default=0)) > newest:
        if is_leaving:  # by this call, or an earlier one that it continues
            source.remove(transfer_file.MOVED)
            source.remove(transfer_file.LEAVING)
        raise LeaseHeld(
            "another process began to run this workspace",
            path=source.url,
            why=f"it has written {segment_path(found)}",
            remedy="wait until it ends, or stop it with `satchel pause --wait`; then run the same command again",
        )


def held(to: Store) -> AbstractContextManager[None]:
    """Where there is a lock, two processes can't bring something here at once. Elsewhere `moving.json` is the claim: it
    is created exclusively, and the lease of the source excludes a second transfer from there."""
    return to.lock() if to.abilities.lock else nullcontext()


def _lives(store: Store, run_id: str) -> bool:
    return store.version(DEFINITION) is not None and read_definition(store).run_id == run_id


def _look(source: Store, journey: Journey) -> None:
    """The state in which it is transferred. Damage is copied as it is: the journal is the source of truth at both
    places."""
    try:
        moment = look(source).moment
    except NewerFormat:
        raise  # which files belong to it is not known
    except SatchelError as error:
        journey.is_clean = False
        journey.notes.append(f"it can't be opened as it is ({error}); Satchel copied it unchanged")
        return
    journey.is_clean = moment.clean
    if any(source.list(DISPLACED)):
        displaced.put_back(source, moment)  # people's saves, which are recognised only at their own place
    if not moment.clean:
        journey.notes.append("its last process did not close it; the next opening repairs that")


def _bring(source: Store, to: Store, mine: Manifest, journey: Journey, tell: Tell) -> dict[str, Sent]:
    """Copies everything but workspace.yaml, which is in the result."""
    if source.version(DEFINITION) is None:
        raise UsageError(
            "is not a workspace, and the other place is not one either",
            path=source.url,
            why=f"there is no {DEFINITION}, nor at {to.url}",
            remedy=f"put {DEFINITION} back at one of them",
        )
    inventory.refuse_faults(source, to)
    journey.resumed |= claim(to, mine, tell)
    sent = transfer(source, to, tell)
    data, at = definition_of(source)
    sha, md5 = hashes(data)
    sent[DEFINITION] = Sent(DEFINITION, len(data), sha, md5, at, was_there=False, data=data)
    journey.files, journey.bytes = len(sent), sum(each.size for each in sent.values())
    journey.copied = sum(not each.was_there for each in sent.values())
    journey.sha256 = inventory.digest((each.path, each.sha256) for each in sent.values())
    return sent


def definition_of(source: Store) -> Content:
    """The source's workspace.yaml, which was there a moment ago."""
    try:
        return source.read(DEFINITION, limit=definition.LIMIT)
    except FileNotFoundError:
        raise LeaseHeld(
            "another process has moved this run away in the meantime",
            path=source.url,
            remedy="look for it at the other place; nothing is lost",
        ) from None


def claim(to: Store, mine: Manifest, tell: Tell) -> bool:
    """Write at the destination what is coming. True if an earlier call has. UsageError if the place is not free for
    it."""
    to.refresh()
    if to.version(DEFINITION) is not None:
        held = read_definition(to).run_id
        which = "this run already" if held == mine.run_id else f"the run {held}"
        raise UsageError(f"holds {which}", path=to.url, remedy="name a place that is empty, or does not exist yet")
    old = transfer_file.read_tombstone(to)
    is_back = old is not None and old.run_id == mine.run_id
    if is_back:  # a move away may be unfinished, and then it still says how the run had come before
        cleanup.clear(to, {}, tell)
    there = transfer_file.read(to)
    if there is None:
        _refuse_strange(to, is_back)
        try:
            to.create(transfer_file.PATH, transfer_file.encode(mine))
        except FileExistsError:
            raise LeaseHeld(
                "another process is bringing a run here", path=to.url, remedy="wait until it ends"
            ) from None
    elif not there.is_same_journey(mine):
        raise UsageError(
            "holds an unfinished copy of another run, or of another moment",
            path=to.url,
            why=f"the run {there.run_id} is on its way here from {there.source} since {there.began}",
            remedy=f"{there.remedy}; or name another place",
        )
    if is_back:
        to.remove(transfer_file.MOVED)
    return there is not None


def _refuse_strange(to: Store, is_back: bool) -> None:
    for entry in inventory.walk(to):
        path = entry.path
        if path in (LOCK, lease.PATH) or inventory.is_passing(path):
            continue
        if is_back and (path == transfer_file.MOVED or (not entry.size and inventory.may_be_stub(to, path))):
            continue
        raise _not_empty(to, path)
    for fault in inventory.unlisted(to):
        raise _not_empty(to, fault.path)


def _not_empty(to: Store, path: str) -> UsageError:
    why = f"there is {shown(path)}"
    return UsageError("is not empty", path=to.url, why=why, remedy="name a place that is empty, or does not exist yet")


def _leave(source: Store, journey: Journey, sent: dict[str, Sent], by: str, *, is_begun: bool) -> None:
    """After the tombstone, the run is no longer here. LeaseHeld if there is one of another call. `is_begun`: this
    continues an earlier move."""
    transfer_file.write_leaving(source, {each.path: each.sha256 for each in sent.values()})
    stone = Tombstone(run_id=journey.run_id, to=journey.to, at=now(), by=by, satchel=version(), sha256=journey.sha256)
    there = transfer_file.read_tombstone(source)
    if there is not None and there.run_id == journey.run_id and not is_begun:
        raise finished(source, f"{there.by} moves it to {there.to}")
    if source.abilities.lock or source.version(transfer_file.MOVED) is not None:
        source.replace(transfer_file.MOVED, transfer_file.encode_tombstone(stone))
        return
    try:
        source.create(transfer_file.MOVED, transfer_file.encode_tombstone(stone))
    except FileExistsError:
        raise finished(source, f"there is a {transfer_file.MOVED} now") from None


def _define(to: Store, sent: dict[str, Sent]) -> None:
    """The last file: from now on it is a workspace."""
    one = sent[DEFINITION]
    try:
        to.create(DEFINITION, one.data)
    except FileExistsError:
        raise finished(to, f"there is a {DEFINITION} now") from None
    to.refresh()
    if not proves(to, one):
        to.remove(DEFINITION)
        raise differs(to, DEFINITION)
