"""`copy`, `move` and `restore`, from the first look to the last removed file. After a kill at any point the same call
continues.

At the destination: `.satchel/moving.json` first (it stays), then the files, the journal, workspace.yaml last. A move
writes its tombstone at the source between the journal and workspace.yaml. So at every moment at most one of the two is
a workspace; and until the destination is one, everything is still at the source. Then what was moved is removed there,
and nothing else: changed or added files stay.

`restore` goes on from a backup, because the machine of the run is lost. A fence comes first: an object at the name
where the lost owner would have to put its next records. So an owner that comes back learns it at its next piece of the
journal, and what it had sent before is all known here. Then the mark of the backup says where the run is now, for
people and for that owner. Then everything is copied. What the lost owner did after its last record here is not known.
So the manifest that `acquire.judge` finds at the first opening lets the run ask before each effect that has no record,
unless a person has said that nothing was done.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from .. import journal
from ..base import DEFINITION, LeaseHeld, NewerFormat, SatchelError, UsageError, shown, urls, version
from ..formats import definition
from ..inbound import rejection
from ..inspect import (
    BackupMark,
    Kind,
    LostPlace,
    Manifest,
    Restored,
    Tombstone,
    define,
    goes_along,
    is_passing,
    lease,
    look,
    read_definition,
    transfer_file,
)
from ..journal import Fenced, Line, Tail, now, segment_path
from ..lifecycle import acquire
from ..store import (
    DISPLACED,
    LOCK,
    Entry,
    FileChanged,
    FileContent,
    Store,
    Syscalls,
    Version,
    make_place,
    open_store,
    read_if_there,
    walk,
)
from ..views import guarded_files, schema_files
from . import copy_files
from .copy_files import READ_LIMIT, Still, Tell, TransferredFile, differs, each_of, finished, hashes, proves, transfer

_KEPT = frozenset((transfer_file.MOVED, LOCK))


class TransferResult(Struct):
    """The result of a transfer."""

    kind: Kind
    run_id: str
    source: str
    to: str
    seq: int = 0  # of a restoration: the last record of the lost place
    was_done: bool = False  # by an earlier call, which has said the rest
    resumed: bool = False  # an earlier call had begun
    files: int = 0
    bytes: int = 0
    copied: int = 0  # files that this call has brought; the others were there
    sha256: str = ""  # of the list of files, see copy_files.digest
    is_clean: bool = True  # its last process has closed it; otherwise the next opening repairs it
    notes: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)  # files that have changed or came meanwhile, and were not removed


def copy(source: Store, to: Store, *, by: str, tell: Tell = lambda *_: None) -> TransferResult:
    """Make a second copy of a run. Its first opening there asks a person whether it may continue.

    UsageError if the destination holds anything else, LeaseHeld if the run is active, InvalidFile or NewerFormat if its
    identity can't be read, StorageFailed if a file did not arrive unchanged.
    """
    transfer_file.refuse_backup(source)
    transfer_file.refuse_overtaken(source)
    refuse_overlap(source, to.url)
    run_id = define(source).run_id
    with _still(source), held(to):
        source.refresh()
        result = TransferResult("copy", run_id, source.url, to.url)
        mine = Manifest(run_id=run_id, kind="copy", source=source.url, to=to.url, began=now(), by=by)
        there = transfer_file.read(to)
        if there is not None and there.is_same_journey(mine) and to.version(DEFINITION) is not None:
            result.was_done = True
        else:
            _look(source, result)
            finish(to, bring(source, to, mine, result, tell))
    return result


def move(source: Store, to: Store, *, by: str, tell: Tell = lambda *_: None) -> TransferResult:
    """Move a run. A tombstone stays, and files that people have changed here meanwhile.

    Errors as in `copy`.
    """
    transfer_file.refuse_backup(source)
    transfer_file.refuse_overtaken(source)
    refuse_overlap(source, to.url)
    run_id = _run_at(source)
    _refuse_elsewhere(source, to, run_id)
    with _owned(source, run_id) as newest, held(to):
        source.refresh()
        result = TransferResult("move", run_id, source.url, to.url)
        gone = transfer_file.read_tombstone(source)
        sent: dict[str, TransferredFile] = {}
        if gone is not None and gone.run_id == run_id:
            result.resumed, result.sha256 = True, gone.sha256
        else:
            gone = None
            _look(source, result)
        if gone is not None and _lives(to, run_id):
            result.was_done = not transfer_file.read_leaving(source)
        else:
            mine = Manifest(run_id=run_id, kind="move", source=source.url, to=to.url, began=now(), by=by)
            sent = bring(source, to, mine, result, tell)
            if newest is not None:
                _refuse_faster(source, newest, is_leaving=gone is not None)
            _leave(source, result, sent, by, is_begun=gone is not None)
            if newest is not None:
                _refuse_faster(source, newest, is_leaving=True)
            finish(to, sent)
        result.left = clear(source, sent, tell)
    if source.abilities.lock:
        source.remove(lease.PATH)  # of a process that was killed; it is no longer used
    return result


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
    for pause, _ in acquire.until_free(source):
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
                guarded_files.remove(source, lease.PATH, left)
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


def _look(source: Store, result: TransferResult) -> None:
    """The state in which it is transferred. Damage is copied as it is: the journal is the source of truth at both
    places."""
    try:
        moment = look(source).moment
    except NewerFormat:
        raise  # which files belong to it is not known
    except SatchelError as error:
        result.is_clean = False
        result.notes.append(f"it can't be opened as it is ({error}); Satchel copied it unchanged")
        return
    result.is_clean = moment.clean
    if any(source.list(DISPLACED)):
        rejection.put_back_displaced(source, moment)  # people's saves, which are recognised only at their own place
    if not moment.clean:
        result.notes.append("its last process did not close it; the next opening repairs that")


def bring(source: Store, to: Store, mine: Manifest, result: TransferResult, tell: Tell) -> dict[str, TransferredFile]:
    """Copies everything but workspace.yaml, which is in the result."""
    if source.version(DEFINITION) is None:
        raise UsageError(
            "is not a workspace, and the other place is not one either",
            path=source.url,
            why=f"there is no {DEFINITION}, nor at {to.url}",
            remedy=f"put {DEFINITION} back at one of them",
        )
    copy_files.refuse_faults(source, to)
    result.resumed |= claim(to, mine, tell)
    sent = transfer(source, to, tell)
    data, at = definition_of(source)
    sha, md5 = hashes(data)
    sent[DEFINITION] = TransferredFile(DEFINITION, len(data), sha, md5, at, was_there=False, data=data)
    result.files, result.bytes = len(sent), sum(each.size for each in sent.values())
    result.copied = sum(not each.was_there for each in sent.values())
    result.sha256 = copy_files.digest((each.path, each.sha256) for each in sent.values())
    return sent


def definition_of(source: Store) -> FileContent:
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
        clear(to, {}, tell)
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
    for entry in walk(to):
        path = entry.path
        if path in (LOCK, lease.PATH) or is_passing(path):
            continue
        if is_back and (path == transfer_file.MOVED or (not entry.size and copy_files.may_be_stub(to, path))):
            continue
        raise _not_empty(to, path)
    for fault in copy_files.unlisted(to):
        raise _not_empty(to, fault.path)


def _not_empty(to: Store, path: str) -> UsageError:
    why = f"there is {shown(path)}"
    return UsageError("is not empty", path=to.url, why=why, remedy="name a place that is empty, or does not exist yet")


def _leave(source: Store, result: TransferResult, sent: dict[str, TransferredFile], by: str, *, is_begun: bool) -> None:
    """After the tombstone, the run is no longer here. LeaseHeld if there is one of another call. `is_begun`: this
    continues an earlier move."""
    transfer_file.write_leaving(source, {each.path: each.sha256 for each in sent.values()})
    stone = Tombstone(run_id=result.run_id, to=result.to, at=now(), by=by, satchel=version(), sha256=result.sha256)
    there = transfer_file.read_tombstone(source)
    if there is not None and there.run_id == result.run_id and not is_begun:
        raise finished(source, f"{there.by} moves it to {there.to}")
    if source.abilities.lock or source.version(transfer_file.MOVED) is not None:
        source.replace(transfer_file.MOVED, transfer_file.encode_tombstone(stone))
        return
    try:
        source.create(transfer_file.MOVED, transfer_file.encode_tombstone(stone))
    except FileExistsError:
        raise finished(source, f"there is a {transfer_file.MOVED} now") from None


def finish(to: Store, sent: dict[str, TransferredFile]) -> None:
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


def clear(store: Store, sent: Mapping[str, TransferredFile], tell: Tell) -> list[str]:
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
    entries = [entry.path for entry in walk(store)]
    going = [path for path in entries if path in leaving and path != DEFINITION]
    rubbish = [path for path in entries if is_passing(path) or schema_files.is_copy(path)]
    tell("clearing", 0, len(going))
    for number, _ in enumerate(each_of(remove, going, store), 1):
        tell("clearing", number, len(going))
    store.remove_many(rubbish)
    left = [entry.path for entry in walk(store) if _is_left(store, entry)]
    left += [shown(fault.path) for fault in copy_files.unlisted(store)]
    store.remove(transfer_file.PATH)  # how it had come here
    store.remove(transfer_file.LEAVING)
    _tidy(store, "")
    return left


def _remove(store: Store, path: str, leaving: Mapping[str, str], sent: Mapping[str, TransferredFile]) -> None:
    version = store.version(path)
    if version is None:
        return
    is_same = path in sent and sent[path].version == version
    if not is_same:
        try:
            is_same = hashes(store.read(path, limit=READ_LIMIT).data)[0] == leaving[path]
        except FileNotFoundError:
            return
    if is_same and copy_files.may_be_stub(store, path):
        with suppress(FileChanged):  # then it is left
            store.replace(path, b"", if_version=version)
    elif is_same:
        guarded_files.remove(store, path, version)


def _is_left(store: Store, entry: Entry) -> bool:
    if entry.path in _KEPT or (not entry.size and copy_files.may_be_stub(store, entry.path)):
        return False
    return goes_along(entry.path) or entry.path.startswith(f"{DISPLACED}/")


def _tidy(store: Store, folder: str) -> None:
    for inner in [*store.folders(folder)]:
        _tidy(store, inner)
    store.tidy(folder)


@contextmanager
def destination(typed: str, source: Store) -> Iterator[Store]:
    """The store at `typed`, to which the body brings a workspace. A missing folder is made, durably, and removed again
    if the body fails before anything is in it."""
    typed = urls.checked(typed)
    if urls.is_remote(typed):
        store = open_store(typed)
        refuse_overlap(source, store.url)
        yield store
        return
    folder = urls.local(typed)
    refuse_overlap(source, os.path.realpath(folder))
    calls, made = Syscalls(), list[str]()
    try:
        make_place(folder, made, calls)
        yield open_store(folder)
    except BaseException:
        for path in reversed(made):
            with suppress(OSError):
                calls.rmdir(path)
        raise


def refuse_overlap(source: Store, url: str) -> None:
    """UsageError if the two places are one, or one is inside the other, or a file can't name one of them."""
    urls.check_text(source.url)
    urls.check_text(url)
    here, there = source.url.rstrip("/"), url.rstrip("/")
    if here == there or (not urls.is_remote(here) and not urls.is_remote(there) and _is_same_folder(here, there)):
        raise UsageError("is the place where the run already is", path=url, remedy="name another place")
    if there.startswith(f"{here}/"):
        raise UsageError("is inside the workspace itself", path=url, remedy="name a place outside it")
    if here.startswith(f"{there}/"):
        raise UsageError("contains the workspace itself", path=url, remedy="name a place next to it")


def _is_same_folder(one: str, other: str) -> bool:
    """A bind mount, or a file system that ignores upper and lower case."""
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False


_TRIES = 10


def restore(
    source: Store, to: Store, *, by: str, again: bool = False, certain: bool = False, tell: Tell = lambda *_: None
) -> TransferResult:
    """Bring the run of the backup `source` to `to`. If it is interrupted, the same call continues it.

    `again`: also if it was restored to another place before, which is lost as well. `certain`: the lost owner has done
    nothing after the last record of the backup. UsageError if `source` is no whole backup, or `to` is not empty.
    """
    mark, _ = _mark_of(source, to.url, again=again)
    refuse_overlap(source, to.url)
    run_id = mark.run_id
    with held(to):
        result = TransferResult("restore", run_id, source.url, to.url)
        if to.version(DEFINITION) is not None and _is_of(to, source, run_id):
            result.was_done = True
            return result
        manifest = Manifest(run_id=run_id, kind="restore", source=source.url, to=to.url, began=now(), by=by)
        resumed = claim(to, manifest, tell)  # before the fence: a mistyped place must not stop a living owner
        lost = _fence_off(source, to.url, by, again=again)
        result.seq, result.is_clean = lost.seq, False
        sent = bring(source, to, manifest, result, tell)
        result.resumed = resumed
        manifest = replace(manifest, lost=replace(lost, certain=certain))
        to.replace(transfer_file.PATH, transfer_file.encode(manifest))
        finish(to, sent)
    return result


class _Marked(NamedTuple):
    mark: BackupMark
    version: Version


def _mark_of(source: Store, to: str, *, again: bool) -> _Marked:
    source.refresh()
    found = read_if_there(source, transfer_file.BACKUP_MARK)
    mark = transfer_file.parse_mark(found.data) if found is not None else None
    if found is None or mark is None:
        raise UsageError(
            "is no backup",
            path=source.url,
            why=f"it has no {transfer_file.BACKUP_MARK}",
            remedy="`satchel move` and `satchel copy` bring a workspace to another place; `satchel ls` shows backups",
        )
    if not mark.whole:
        raise UsageError(
            "is not a whole backup",
            path=source.url,
            why=f"it was begun at {mark.began} and has not got all files of {mark.source} yet",
            remedy="if the run still exists there, type `satchel replicate`",
        )
    if mark.restored is not None and mark.restored.to != to and not again:
        done = mark.restored
        raise UsageError(
            f"was restored to {done.to} already",
            path=source.url,
            why=f"{done.by} did so at {done.at}; if both copies went on, both would act",
            remedy="if that one is lost as well, and will not come back, type the same with --again (`again=True`)",
        )
    return _Marked(mark, found.version)


def _is_of(to: Store, source: Store, run_id: str) -> bool:
    there = transfer_file.read(to)
    is_same = there is not None and (there.kind, there.source) == ("restore", source.url)
    return is_same and read_definition(to).run_id == run_id


def _fence_off(source: Store, to: str, by: str, *, again: bool) -> LostPlace:
    """From here on the lost owner can't add to the backup. Returns its last record."""
    seen = look(source)

    def look_again(mine: Line | None) -> tuple[int, Tail]:
        source.refresh()
        found = look(source)
        return found.moment.epoch, found.tail

    fence = journal.fence(source, seen.moment.epoch, seen.tail, look_again)
    seen = look(source)
    before = [line for line in seen.tail.lines if line.seq < fence.line.seq and not isinstance(line.record, Fenced)]
    at = before[-1].at if before else seen.moment.last_at
    seq = before[-1].seq if before else fence.line.seq - 1
    for _ in range(_TRIES):
        mark, version = _mark_of(source, to, again=again)
        done = Restored(to=to, at=now(), by=by, seq=seq)
        with suppress(FileChanged):  # its owner had not found the fence, or another call restores it
            data = transfer_file.encode(replace(mark, restored=done))
            source.replace(transfer_file.BACKUP_MARK, data, if_version=version)
            return LostPlace(source=mark.source, seq=seq, at=at)
    raise UsageError("is written again and again", path=source.url, remedy="stop the run at its old place")
