"""A copy of a run at another place that follows its journal: a round sends what is new, in as few requests as possible.

Each piece of the journal is an object of its own, created exclusively at the name of its first record, as the segments
of a run in a bucket are (journal/segment_log.py). So the copy can be read at any time, and a fence that a restoration
puts at the next name stops the lost owner at its next piece. Only durable records are sent. What they need comes before
them (blobs), what shows them after them (readable files, checkpoints): a copy that ends anywhere can be opened.

Pieces that the disk has as one segment are replaced by it once there are many; names of other owners, and fences, are
names of the disk's journal as well, so they stay.

The history of the disk must continue that of the copy. If it does not, another owner has restored the run, or this
folder is an older state of it: LeaseHeld, and a person has to decide.
"""

from __future__ import annotations

import hashlib
import os
import re
import socket
from collections.abc import Callable, Iterable

import msgspec
from msgspec.structs import replace

from .. import journal
from ..base import DEFINITION, LeaseHeld, SatchelError, StorageFailed, UsageError, myself, shown, urls
from ..formats import decoder
from ..inspect import BackupMark, goes_along, transfer_file
from ..journal import FIRST, blobs, crc_of, first_of, now, segment_of, segment_path
from ..store import DiskStore, FileChanged, Store, Version, check_conditional_puts, read_if_there, walk
from ..views import STEPS, schema_files

_READ_LIMIT = 1 << 36
_ALONE = re.compile(
    rb'^\{"seq":[0-9]+,"prev":"[0-9a-f]{8}",(?:"commit":[0-9]+,)?"at":"[^"\\]+","epoch":[0-9]+,"opening":"',
    re.MULTILINE,
)
"""A line that says everything, so that a piece can begin with it."""

_OF_OPEN_ITEMS = re.compile(rf"(?:agents/[^/]+/)*{STEPS}/")
_PIECE_BYTES = 4 << 20
_PIECES = 64
"""So many pieces of one segment are replaced by the segment."""

_HELD_BYTES = 1 << 20
"""Readable files up to this size are read before the journal, so that they show nothing that it does not have."""

_NAMED = 3  # of what is left out
_ATTEMPTS = 3
_CONTENDED = "another process writes it again and again"
_NEEDED = {journal.FOLDER, blobs.BLOBS, os.path.dirname(blobs.BLOBS)}

_SENT = transfer_file.BACKUP_SENT
_BLOBS = f"{blobs.BLOBS}/"
_SEGMENT_BELOW = re.compile(rf"(.+)/{journal.FOLDER}/[0-9]{{12}}\.jsonl")
"""The segment of a workspace in a folder of the run, which a program holds."""

_SHOWING = (b'"type":"scope.committed"', b'"type":"closed"', b'"type":"checkpoint.saved"', b'"type":"paused"')
_ASKING = (b'"type":"doubt"', b'"type":"approval.asked"')


class _Sent(msgspec.Struct):
    """Which files the copy has, by their versions on the disk."""

    to: str
    began: str
    files: dict[str, str]


_sent = decoder(_Sent)


def backup_place(template: str, store: Store, run_id: str) -> str:
    """The place that `backup:` names; a path begins at the workspace. UsageError if it is none, or lies in the
    workspace."""
    folder = store.url.rstrip("/").rpartition("/")[2]
    if {"{", "}"} & {*template.replace("{run_id}", "").replace("{name}", "")}:
        raise UsageError("is no place for a backup", path=template, remedy="only {run_id} and {name} are replaced")
    place = template.replace("{run_id}", run_id).replace("{name}", folder)
    place = urls.checked(place)
    if not urls.is_remote(place):
        place = os.path.abspath(os.path.join(store.url, urls.local(place)))
        if f"{os.path.realpath(place)}/".startswith(f"{os.path.realpath(store.url)}/"):
            raise UsageError("is in the workspace", path=place, remedy="name a place on another machine")
    return place


class Replica:
    """The copy of the run in `source` at `to`. Used by one thread at a time. After an error: `begin` again."""

    def __init__(self, source: DiskStore, to: Store, run_id: str):
        self.source, self.to, self.run_id = source, to, run_id
        self.seq = 0
        """The last record that the copy has."""
        self.shows = False
        """Records since the last `complete` that the readable files show."""
        self._crc = ""
        self._segment = 0  # of the disk, with the record `seq`
        self._offset = 0  # of its bytes, so many are in the copy
        self._repeated = b""  # of these, the last ones from a line on that says everything
        self._own = set[int]()  # the pieces of that segment of which each one ends where the next one begins
        self._newest = 0  # the piece that ends with the record `seq`
        self._unfit: set[str] = set()  # what no copy can have: links, and names that are not valid on every system
        self._left: set[str] = set()  # the files that the copy had at the beginning
        self._sent: dict[str, Version] = {}  # by path, the versions on the disk
        self._is_sent_kept = True  # the file that remembers `_sent` says the same
        self._mark: BackupMark | None = None
        self._mark_version: Version | None = None

    @property
    def left_out(self) -> str:
        """What of the run no copy can have, in words."""
        paths = sorted(shown(os.fsencode(path).decode(errors="backslashreplace")) for path in self._unfit)
        more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
        named = f"{', '.join(paths[:_NAMED])}{more}"
        return f"left out of it: {named} (a link, or a name that is not valid on every system)" if paths else ""

    def begin(self, *, tell: Callable[[int, int], None] = lambda done, total: None) -> None:
        """See how far the copy is, and make it if there is none. LeaseHeld if the run is at another place now,
        UsageError if the place can't be used."""
        self.to.refresh()
        self._read_mark()
        if self._mark is None:
            self._claim()
        elif self._mark.run_id != self.run_id:
            raise UsageError(
                f"holds a backup of the run {self._mark.run_id}",
                path=self.to.url,
                remedy="name another place; {run_id} in it is replaced by the id of each run",
            )
        assert self._mark is not None
        if self._mark.whole and self._find_end():
            self._sent = self._remembered()
            self._left = {entry.path for entry in walk(self.to)}
            return
        self._begin_anew(tell)

    def _read_mark(self) -> None:
        found = read_if_there(self.to, transfer_file.BACKUP_MARK)
        self._mark = transfer_file.parse_mark(found.data) if found is not None else None
        self._mark_version = found.version if found is not None else None

    def _claim(self) -> None:
        strange = next((entry.path for entry in walk(self.to) if goes_along(entry.path)), None)
        if strange is not None or self._mark_version is not None:
            raise UsageError(
                "is not empty, and no backup",
                path=self.to.url,
                why=f"there is {strange or transfer_file.BACKUP_MARK}",
                remedy="name a place that is empty, or does not exist yet",
            )
        if self.to.abilities.exclusive_create:
            check_conditional_puts(self.to)
        mark = BackupMark(
            run_id=self.run_id, source=self.source.url, host=socket.gethostname(), by=myself(), began=now()
        )
        try:
            self._mark_version = self.to.create(transfer_file.BACKUP_MARK, transfer_file.encode(mark))
        except FileExistsError:
            raise StorageFailed("another process begins a backup there", path=self.to.url) from None
        self._mark = mark

    # The journal

    def _find_end(self) -> bool:
        """Where both agree. False if the disk has pruned what the copy would need. LeaseHeld if they don't."""
        end = self._end_of_copy()
        if end is None:
            return False
        seq, crc, path = end
        firsts = journal.segments(self.source)
        of_it = max((first for first in firsts if first <= seq), default=0)
        if not of_it:
            assert self._mark is not None
            if not firsts or self._mark.restored is not None or self._mark.source != self.source.url:
                raise self._overtaken(path)
            return False  # it has pruned them
        data = self.source.read(segment_path(of_it), limit=_READ_LIMIT).data
        data = data[: data.rfind(b"\n") + 1]
        segment = segment_of(segment_path(of_it), data, of_it, 0, FIRST, is_last=True)
        at = seq - segment.begins
        if at >= len(segment.rows) or crc_of(segment.rows[at]) != crc:
            raise self._overtaken(path)
        self.seq, self._crc, self._segment = seq, crc, of_it
        self._offset = sum(len(row) + 1 for row in segment.rows[: at + 1])
        self._repeated = _from_alone(b"", data[: self._offset])
        self._newest = first_of(path)
        after = {first for first in journal.segments(self.to) if first > of_it}
        self._own = after if len(after) == 1 else set()
        return True

    def _end_of_copy(self) -> tuple[int, str, str] | None:
        """The last record, its checksum, and the segment. None if it has no journal."""
        for first in reversed(journal.segments(self.to)):
            path = segment_path(first)
            data = self.to.read(path, limit=_READ_LIMIT).data
            segment = segment_of(path, data, first, 0, FIRST, is_last=True)
            if segment.rows:  # else a server has kept an empty object of a sender that was killed
                return segment.due - 1, crc_of(segment.rows[-1]), path
        return None

    def follow(self) -> int:
        """Send the new records. Returns how many. LeaseHeld if another owner has restored the run."""
        before = self.seq
        while data := self._new():
            self._send(data)
        return self.seq - before

    def _new(self) -> bytes:
        """Whole new lines of one segment, durable on the disk."""
        while True:
            if self._segment:
                try:
                    data = self.source.grown(segment_path(self._segment), self._offset)
                except FileNotFoundError:  # merged into an older one, or pruned
                    self._relocate()
                    continue
                if data := data[: data.rfind(b"\n", 0, _PIECE_BYTES) + 1] or data[: data.find(b"\n") + 1]:
                    return data
            following = [first for first in journal.segments(self.source) if first > self.seq]
            if not following:
                return b""
            if following[0] > self.seq + 1:
                if self._segment and self.source.grown(segment_path(self._segment), self._offset):
                    continue  # it has grown before the next one began
                raise StorageFailed("the journal was pruned faster than the backup follows", path=journal.FOLDER)
            self._segment, self._offset, self._repeated, self._own = following[0], 0, b"", set()

    def _relocate(self) -> None:
        of_it = max((first for first in journal.segments(self.source) if first <= self.seq), default=0)
        if not of_it:
            raise StorageFailed("the journal was pruned faster than the backup follows", path=journal.FOLDER)
        data = self.source.read(segment_path(of_it), limit=_READ_LIMIT).data
        rows = data.split(b"\n")[: self.seq - of_it + 1]
        self._segment, self._offset = of_it, sum(len(row) + 1 for row in rows)
        self._repeated = _from_alone(b"", data[: self._offset])

    def _send(self, data: bytes) -> None:
        rows = data.count(b"\n")
        if b'"blob":"' in data:
            self._send_files(entry.path for entry in self.source.list(blobs.BLOBS))
        path = segment_path(self.seq + 1)
        body = data if _ALONE.match(data) else self._repeated + data
        try:
            self.to.create(path, body)
        except FileExistsError:
            rows, data = self._sent_before(path, data)
        self._newest = self.seq + 1
        self._own.add(self._newest)
        self.seq += rows
        self._offset += len(data)
        self._repeated = _from_alone(self._repeated, data)
        self._crc = crc_of(data[:-1].rpartition(b"\n")[2])
        self.shows |= any(kind in data for kind in _SHOWING + _ASKING)

    def _sent_before(self, path: str, data: bytes) -> tuple[int, bytes]:
        """The part of `data` that the object at `path` has: its answer was lost, or another process follows, too.
        LeaseHeld if the object is another's."""
        self.to.refresh(journal.FOLDER)
        found = read_if_there(self.to, path, limit=_READ_LIMIT)
        if found is not None and not found.data:
            raise self._hollow(path, found.version)
        if found is None:
            raise StorageFailed("an object came and went", path=path)
        segment = segment_of(path, found.data, self.seq + 1, 0, FIRST, is_last=True)
        theirs = segment.rows[self.seq + 1 - segment.begins :]
        if len(theirs) > data.count(b"\n"):  # it has looked at the disk later
            data = self.source.grown(segment_path(self._segment), self._offset)
        mine = data.split(b"\n")[: len(theirs)]
        if not theirs or [*theirs] != mine:
            raise self._overtaken(path)
        return len(theirs), b"".join(row + b"\n" for row in mine)

    def _hollow(self, path: str, version: Version) -> StorageFailed:
        """Some servers keep an empty object of a PUT whose sender was killed. The next round takes its place."""
        self.to.remove(path, if_version=version)
        return StorageFailed("an empty object was in the place of the next records", path=path)

    def _overtaken(self, path: str) -> LeaseHeld:
        self._read_mark()
        mark = self._mark
        here = self.source.url
        if mark is not None and mark.restored is not None:
            what = f"the run was restored from its backup to {mark.restored.to}"
            why = f"{mark.restored.by} did so at {mark.restored.at}; what this place has done since is not there"
        elif mark is not None and mark.source != here:
            what, why = f"the run was restored from its backup to {mark.source}", f"its records go on there ({path})"
        else:
            what, why = "the backup has records that are not here", f"this folder is an older state of the run ({path})"
        return LeaseHeld(
            what,
            path=here,
            why=f"{why}. If both go on, both act",
            remedy="compare them (`satchel log`), and go on at one place. To go on here, type "
            f"`satchel resume --adopt {here}`, and name another place as its backup",
        )

    # The other files

    def complete(self, *, is_last: bool = False) -> None:
        """Send the journal, then all other files that have changed, and remove what is gone. `is_last`: nothing will
        follow soon.

        Files in steps/ come and go with each item, and the journal has what they say. So they are sent only if nothing
        was committed for a while."""
        is_quiet, known = is_last or not self.shows, {*self._sent, *self._left}
        try:
            held = self._look()
        except (SatchelError, OSError):
            self.follow()  # a file that can't be read must not hold up the journal
            raise
        self.follow()
        self._write_mark(whole=True)  # before the files: it fails if the run was restored meanwhile
        self._send_held({path: found for path, found in held.items() if is_quiet or not _OF_OPEN_ITEMS.match(path)})
        self._remove_gone(known, {*held})
        self.to.refresh(journal.FOLDER)
        if is_last or len(self._own) >= _PIECES or self._has_strange_pieces():
            self._merge_pieces()
        self.shows = False
        if is_last:
            self._remember()

    def _remember(self) -> None:
        """For the next process, which need not read every file to see what the copy has."""
        assert self._mark is not None
        if not self._is_sent_kept:
            data = msgspec.json.encode(_Sent(self.to.url, self._mark.began, self._sent))
            self.source.replace(_SENT, data, sync="no")
            self._is_sent_kept = True

    def _remembered(self) -> dict[str, Version]:
        assert self._mark is not None
        found = read_if_there(self.source, _SENT, limit=_READ_LIMIT)
        try:
            sent = _sent.decode(found.data) if found is not None else None
        except (msgspec.MsgspecError, UnicodeDecodeError):
            sent = None
        if sent is None or (sent.to, sent.began) != (self.to.url, self._mark.began):
            return {}
        return {path: version for path, version in sent.files.items() if self.to.version(path) is not None}

    def _begin_anew(self, tell: Callable[[int, int], None]) -> None:
        """Bring everything."""
        assert self._mark is not None
        if self._mark.whole or self._mark.source != self.source.url:
            self._write_mark(whole=False)
        self._left = {entry.path for entry in walk(self.to)}
        known = {*self._sent, *self._left}
        held = self._look()
        firsts = journal.segments(self.source)
        self.seq = firsts[-1] - 1 if firsts else 0
        self._segment = self._offset = 0
        total = len(held)
        for done, (path, (version, data)) in enumerate(sorted(held.items(), key=lambda each: _rank(each[0]))):
            tell(done, total)
            if path.startswith(_BLOBS) or (first_of(path) and path != segment_path(firsts[-1])):
                self._send_file(path, version, data)
        if firsts:
            self._segment = firsts[-1]
            if (there := self.to.version(segment_path(self._segment))) is not None:
                self.to.remove(segment_path(self._segment), if_version=there)  # of an attempt that was cut off
        self.follow()
        self._send_held(held)
        self._remove_gone(known, {*held})
        tell(total, total)
        self._write_mark(whole=True)

    def _look(self) -> dict[str, tuple[Version, bytes | None]]:
        """All files that belong to the run, with their versions, and the content of those that have changed and are
        small."""
        found: dict[str, tuple[Version, bytes | None]] = {}
        unfit = list[str]()
        for entry, version in self.source.files(left=lambda path, _: unfit.append(path)):
            if not goes_along(entry.path) or entry.path == transfer_file.MOVED or schema_files.is_copy(entry.path):
                continue
            data = None
            is_shown = not first_of(entry.path) and not _SEGMENT_BELOW.fullmatch(entry.path)
            if self._sent.get(entry.path) != version and entry.size <= _HELD_BYTES and is_shown:
                there = read_if_there(self.source, entry.path, limit=_READ_LIMIT)
                if there is None:
                    continue
                data, version = there
            found[entry.path] = version, data
        self._unfit = {path for path in unfit if goes_along(path)}
        if needed := self._unfit & _NEEDED:
            raise UsageError("is a link", path=min(needed), remedy="a backup needs the folder itself there")
        return found

    def _send_held(self, held: dict[str, tuple[Version, bytes | None]]) -> None:
        for path in sorted(held, key=_rank):
            if first_of(path) < self._segment or not first_of(path):
                self._send_file(path, *held[path])

    def _send_files(self, paths: Iterable[str]) -> None:
        for path in paths:
            if path not in self._sent and (version := self.source.version(path)) is not None:
                self._send_file(path, version, None)

    def _send_file(self, path: str, version: Version, data: bytes | None) -> None:
        """If the copy does not have it as it is."""
        if self._sent.get(path) == version:
            return
        if below := _SEGMENT_BELOW.fullmatch(path):
            self._send_segment_below(path, below[1])
            return
        if data is None:
            found = read_if_there(self.source, path, limit=_READ_LIMIT)
            if found is None:
                return
            data, version = found
            if _BLOBS not in path and not first_of(path):  # it may show more than was sent before it
                self.follow()
                self._follow_around(path)
        there = self.to.version(path) if path not in self._sent else None  # what was sent is another version
        if there is None or not self._is_there(path, there, data):
            self.to.replace(path, data, sync="data")
        self._sent[path] = version
        self._is_sent_kept = False

    def _send_segment_below(self, path: str, folder: str) -> None:
        """Another process that follows, too, or a new owner may have sent more of it: it must not become less. A
        restoration after the look at the owner is seen by the version, which was looked at before."""
        for _ in range(_ATTEMPTS):
            there = self.to.version(path)
            self._check_owner(path)
            found = read_if_there(self.source, path, limit=_READ_LIMIT)
            if found is None:
                return
            self._send_files(entry.path for entry in self.source.list(f"{folder}/{blobs.BLOBS}"))
            try:
                if there is None:
                    self.to.create(path, found.data)
                elif not self._is_there(path, there, found.data):
                    self.to.replace(path, found.data, sync="data", if_version=there)
            except (FileExistsError, FileChanged):
                self.to.refresh(os.path.dirname(path))
                continue
            self._sent[path] = found.version
            self._is_sent_kept = False
            return
        raise StorageFailed(_CONTENDED, path=path)

    def _follow_around(self, path: str) -> None:
        """Send the journal of the workspace below the run that this file is in."""
        while path := path.rpartition("/")[0]:
            for entry, version in self.source.files(f"{path}/{journal.FOLDER}"):
                if _SEGMENT_BELOW.fullmatch(entry.path):
                    self._send_file(entry.path, version, None)

    def _is_there(self, path: str, version: Version, data: bytes) -> bool:
        md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
        if version.strip('"') == md5:
            return True
        return not self.to.abilities.remote and self.to.read(path, limit=_READ_LIMIT).data == data

    def _remove_gone(self, known: set[str], there: set[str]) -> None:
        """Files that the disk no longer had when `there` was looked at: of those that this process had sent or found
        before. Others are new, or an owner that has come after it has sent them. Of the journal only names before the
        last segment: a late process must not find its next name free. What is behind a link now stays as it was."""
        gone = [
            path
            for path in known - there
            if goes_along(path) and first_of(path) < max(1, self._segment) and not self._is_unfit(path)
        ]
        if gone and DEFINITION in there:  # else the workspace itself is going away
            self.to.remove_many(gone)
            for path in gone:
                self._sent.pop(path, None)
            self._left = set()

    def _is_unfit(self, path: str) -> bool:
        return path in self._unfit or ("/" in path and self._is_unfit(path.rpartition("/")[0]))

    def _has_strange_pieces(self) -> bool:
        """Another process follows, too, and was slower: it has found names free whose pieces had been merged. Its piece
        there may end behind the next one, and who reads the copy takes of each piece what comes before the next."""
        return any(self._segment < first <= self.seq and first not in self._own for first in journal.segments(self.to))

    def _merge_pieces(self) -> None:
        """Put the pieces of the last segment into its own object. The newest piece stays: it shows the end."""
        path = segment_path(self._segment)
        there = self.to.version(path)
        self.follow()  # another process that follows, too, may have merged more: it must not become less
        if path != segment_path(self._segment):
            return
        pieces = [first for first in journal.segments(self.to) if self._segment < first <= self.seq]
        if there is None or not pieces:
            return
        data = self.source.read(path, limit=_READ_LIMIT).data[: self._offset]
        try:
            self.to.replace(path, data, if_version=there)
        except FileChanged:
            return  # another process follows, too
        self.to.remove_many([segment_path(first) for first in pieces if first != self._newest])
        self._own = {self._newest}

    def _write_mark(self, *, whole: bool) -> None:
        """LeaseHeld if the run was restored meanwhile."""
        for _ in range(_ATTEMPTS):
            mark = self._mark
            assert mark is not None
            new = replace(
                mark,
                source=self.source.url,
                host=socket.gethostname(),
                seq=self.seq,
                at=now(),
                whole=whole,
                restored=None,
            )
            try:
                self._mark_version = self.to.replace(
                    transfer_file.BACKUP_MARK, transfer_file.encode(new), if_version=self._mark_version
                )
                self._mark = new
                return
            except FileChanged:
                self._check_owner(transfer_file.BACKUP_MARK)
        raise StorageFailed(_CONTENDED, path=transfer_file.BACKUP_MARK)

    def _check_owner(self, path: str) -> None:
        """LeaseHeld if the run was restored, or follows to this copy from another place."""
        self._read_mark()
        if self._mark is None or self._mark.restored is not None or self._mark.source != self.source.url:
            raise self._overtaken(path) from None


def _from_alone(before: bytes, data: bytes) -> bytes:
    """The end of `before + data`, from its last line on that says everything."""
    starts = [found.start() for found in _ALONE.finditer(data)]
    return data[starts[-1] :] if starts else before + data


def _rank(path: str) -> tuple[int, str]:
    """Blobs, the journal, what shows it, what says that it is pruned, and last what makes it a workspace."""
    if path == DEFINITION:
        return 4, path
    if path.startswith(f"{journal.FOLDER}/"):
        return (1 if first_of(path) else 3), path
    return (0 if _BLOBS in path else 1 if _SEGMENT_BELOW.fullmatch(path) else 2), path
