"""A copy of a workspace for other people: one zip file, without secrets, and without what belongs to a process.

It holds the run as of one record, also while a process runs it: the journal up to that record, `todo.md` and
`state.json` as they were there, and the other files as they were at or before it. The same workspace at the same record
makes the same bytes.
"""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections.abc import Iterable
from contextlib import suppress

from .. import journal
from ..base import DEFINITION, SatchelError, StorageFailed, UsageError, fitting, stamp, urls, version
from ..formats import Definition, definition, yamltext
from ..inspect import ExportResult, define, goes_along, look_beside, transfer_file
from ..journal import Line, LineReader, as_it_says, blobs, whole, written
from ..secrets import redactor_of
from ..state import Moment, checkpoint
from ..store import Entry, Store, Syscalls, apart, read_if_there, walk
from ..views import STATE, TODO, projection
from . import copy_files
from .copy_files import READ_LIMIT, Tell

_BLOBS = f"{blobs.BLOBS}/"
_POINTS = f"{journal.CHECKPOINTS}/"
_LOOKS = 8
_DAY = (1980, 1, 1, 0, 0, 0)  # of every file in the zip, so that equal content makes equal bytes
_STAYING = frozenset((transfer_file.MOVED, transfer_file.EXPORT, transfer_file.EXPORT_ABOUT))


def export(store: Store, to: str, tell: Tell = lambda *_: None) -> ExportResult:
    """Write the zip file `to`, wholly or not at all. UsageError if it exists, or is inside the workspace."""
    urls.check_text(store.url)  # the zip says where it comes from
    path = os.path.abspath(urls.local(to))
    here = store.url.rstrip("/")
    if not store.abilities.remote and os.path.realpath(path).startswith(f"{os.path.realpath(here)}{os.sep}"):
        raise UsageError("is inside the workspace itself", path=path, remedy="name a file outside it")
    if os.path.lexists(path):
        raise _exists(path)
    store.refresh()
    defined = define(store)
    folder, name = os.path.split(path)
    end = f".{os.getpid()}.part"
    half = os.path.join(folder, fitting(name, end) + end)
    try:
        with open(half, "xb", opener=_private) as stream:
            with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
                done = _Packing(store, defined, archive, tell).pack()
            stream.flush()
            os.fsync(stream.fileno())
        _name(half, path)
        Syscalls().sync_folder(os.path.dirname(path))
    except OSError as error:
        if os.path.lexists(path):
            raise _exists(path) from None
        raise StorageFailed(
            "can't be written", path=path, why=error.strerror or str(error), remedy="name a file in another folder"
        ) from error
    finally:
        with suppress(OSError):
            os.unlink(half)
    return done


def _private(path: str, flags: int) -> int:
    return apart(os.open(path, flags, 0o600))


def _name(half: str, path: str) -> None:
    """Unlike a rename, a link never replaces a file. Some file systems have none."""
    try:
        os.link(half, path)
    except FileExistsError:
        raise
    except OSError:
        if os.path.lexists(path):
            raise
        os.rename(half, path)


def _exists(path: str) -> UsageError:
    return UsageError("exists already", path=path, remedy="name a file that does not exist yet")


class _Packing:
    def __init__(self, store: Store, defined: Definition, archive: zipfile.ZipFile, tell: Tell):
        self._store, self._definition, self._archive = store, defined, archive
        self._redactor = redactor_of(defined)
        self._tell, self._done, self._total = tell, 0, 0
        self._redacted: list[str] = []
        self._left_out = ["locks, leases, temporary files, logs of processes and compiled Python"]

    def pack(self) -> ExportResult:
        """Files that follow the journal are read before it, and blobs, which it refers to, after it. So nothing in the
        zip is newer than its journal, and nothing that the journal refers to is missing."""
        entries = [entry for entry in walk(self._store) if _goes_out(entry.path)]
        clean = [entry for entry in entries if not self._is_secret(entry.path)]
        if hidden := len(entries) - len(clean):
            self._left_out.append(f"files with a secret in their names: {hidden}")
        entries = clean
        self._left_out += [f"{fault.path}: {fault.why}" for fault in copy_files.unlisted(self._store)]
        self._total = sum(entry.size for entry in entries)
        views: dict[str, bytes] = {}
        points: dict[str, bytes] = {}
        for entry in sorted(entries):
            path = entry.path
            if path.startswith((_BLOBS, f"{journal.FOLDER}/")) or (data := self._read(entry)) is None:
                continue
            if path.startswith(_POINTS):
                points[path] = data
            elif path.rpartition("/")[2] in (STATE, TODO):
                views[path] = data
            else:
                self._add(path, data)
        moment, segments = self._journal(points)
        self._advance(sum(entry.size for entry in entries if entry.path.startswith(f"{journal.FOLDER}/")))
        self._views(views, moment)
        self._history(points, segments)
        return self._note(moment)

    def _is_secret(self, path: str) -> bool:
        """Whether its name has a secret. Numbers and hashes that Satchel gives are none, whatever a rule matches."""
        name = (
            "" if path.startswith((_BLOBS, f"{journal.FOLDER}/")) else path.removeprefix(_POINTS).lstrip("0123456789")
        )
        return self._redactor.text(name) != name

    def _read(self, entry: Entry) -> bytes | None:
        """None if it has disappeared meanwhile."""
        self._advance(entry.size)
        return self._read_path(entry.path)

    def _read_path(self, path: str) -> bytes | None:
        found = read_if_there(self._store, path, limit=READ_LIMIT)
        return found.data if found is not None else None

    def _advance(self, size: int) -> None:
        self._done = min(self._done + size, self._total)
        self._tell("copying", self._done, self._total)

    def _add(self, path: str, data: bytes) -> None:
        clean = self._redactor.file(path, data)
        if clean != data:
            self._redacted.append(path)
            clean = self._definition_of(clean) if path == DEFINITION else clean
        self._write(path, clean)

    def _definition_of(self, clean: bytes) -> bytes:
        """A rule of `redact:` may match its own text. Then only what makes it a workspace is kept."""
        known = self._definition
        with suppress(SatchelError):
            if definition.parse(clean).run_id == known.run_id:
                return clean
        return yamltext.dump({"format": 1, "run_id": known.run_id, "agent": known.agent}).encode()

    def _write(self, path: str, data: bytes) -> None:
        info = zipfile.ZipInfo(f"{self._definition.run_id}/{path}", _DAY)
        info.compress_type, info.create_system, info.external_attr = zipfile.ZIP_DEFLATED, 3, 0o644 << 16
        self._archive.writestr(info, data)

    def _journal(self, points: dict[str, bytes]) -> tuple[Moment | None, dict[str, bytes]]:
        """The newest moment, and the journal up to it. A journal that can't be opened goes out as it is. Adds to
        `points` the checkpoints up to it that have come meanwhile: a journal that was pruned meanwhile begins with
        one."""
        for _ in range(_LOOKS):
            self._store.refresh()
            try:
                moment = look_beside(self._store).moment
            except SatchelError as error:
                self._left_out.append(f"what the journal says in its damaged parts: {error}")
                moment = None
            pruned = journal.kept_files(self._store)
            kept = [*map(journal.kept_path, pruned)]
            paths = [*map(journal.segment_path, journal.segments(self._store)), *kept]
            found = {path: self._read_path(path) for path in paths}
            segments = {path: data for path, data in found.items() if data is not None}
            last = moment.seq if moment is not None else 0
            for path in checkpoint.paths(self._store):
                if path not in points and checkpoint.position_of(path) <= last and (data := self._read_path(path)):
                    points[path] = data
            if len(segments) == len(found) and (moment is None or _can_begin(points, max(pruned, default=0))):
                cut = {path: data if path in kept else _up_to(data, last) for path, data in segments.items()}
                return moment, {path: data for path, data in cut.items() if data or path in kept}
        raise StorageFailed("keeps changing", path=journal.FOLDER, remedy="try again when the run has stopped")

    def _views(self, views: dict[str, bytes], moment: Moment | None) -> None:
        """The plans and states: as of the moment, unless a person has edited one."""
        known: dict[str, bytes] = {}
        if moment is not None and not moment.is_new:
            for agent in moment.agents.values():
                known[agent.folder + STATE] = projection.state_file(moment, agent)
                known[agent.folder + TODO] = projection.todo_file(moment, agent)
        for path, data in views.items():
            read = stamp.read_json if path.endswith(".json") else stamp.read_markdown
            self._add(path, known[path] if path in known and read(data).untouched else data)

    def _history(self, points: dict[str, bytes], segments: dict[str, bytes]) -> None:
        """Checkpoints, journal and blobs. If secrets are in them, from before `redact:` named these, the journal is
        written again. Then the checkpoints and their folders stay here: they belong to the journal as it was."""
        found = {entry.path: self._read(entry) for entry in self._store.list(blobs.BLOBS)}
        texts = {path: data for path, data in found.items() if data is not None}
        clean = {path: self._clean(data) for path, data in texts.items()}
        names = {path: path if clean[path] == texts[path] else _name_of(path, clean[path]) for path in texts}
        rows = [row for data in segments.values() for row in data.split(b"\n") if row]
        if any(path != name for path, name in names.items()) or any(self._clean(row) != row for row in rows):
            self._redacted += [path for path, name in names.items() if path != name]
            points = {}
            try:
                segments = self._again(segments.values(), names)
                self._redacted += segments
                self._left_out.append("the checkpoints, because the journal was redacted")
            except (ValueError, SatchelError):
                segments = {}
                self._left_out.append("the journal and the checkpoints, because they have secrets and are not whole")
        for path, data in sorted(points.items()):
            self._add(path, data)
        for path, data in segments.items():
            self._write(path, data)
        for path, name in names.items():
            self._write(name, clean[path])

    def _clean(self, data: bytes) -> bytes:
        """A record, or a result."""
        with suppress(ValueError, RecursionError):
            return self._redactor.json(data)
        return self._redactor.data(data)

    def _again(self, segments: Iterable[bytes], names: dict[str, str]) -> dict[str, bytes]:
        """The records without secrets, in one segment, since each checksum depends on the records before it.
        ValueError or a SatchelError if they are not whole, or can't be redacted."""
        renamed = [
            (old[len(_BLOBS) :].encode(), new[len(_BLOBS) :].encode()) for old, new in names.items() if old != new
        ]
        made: list[bytes] = []
        before: Line | None = None
        for number, (row, line) in enumerate(journal.once(segments), 1):
            if line is None:
                raise ValueError("a record can't be read")
            data = self._redactor.json(whole(row, line))
            for old, new in renamed:
                data = data.replace(old, new)
            record = as_it_says(data)
            if record is None or line.seq != number:
                raise ValueError(f"record {line.seq}")
            now = Line(
                line.seq, line.commit, line.at, line.epoch, record, before.crc if before else line.prev, line.opening
            )
            again = written(now, before)
            made.append(again.data)
            before = again.line
        return {journal.segment_path(1): b"".join(made)}

    def _note(self, moment: Moment | None) -> ExportResult:
        done = ExportResult(
            run_id=self._definition.run_id,
            url=self._store.url,
            seq=moment.seq if moment else 0,
            at=moment.last_at if moment else "",
            satchel=version(),
            files=len(self._archive.namelist()),
            redacted=sorted(self._redacted),
            left_out=self._left_out,
            not_set=self._redactor.not_set,
        )
        for path, data in (
            (transfer_file.EXPORT, transfer_file.encode(done)),
            (transfer_file.EXPORT_ABOUT, transfer_file.about_export(done)),
        ):
            self._write(path, self._redactor.file(path, data))
        return done


def _goes_out(path: str) -> bool:
    return goes_along(path) and path not in _STAYING


def _can_begin(points: Iterable[str], pruned: int) -> bool:
    """Whether a journal that is pruned up to that record has a checkpoint to begin with."""
    return not pruned or any((journal.checkpoint_position(path) or 0) >= pruned for path in points)


def _up_to(data: bytes, seq: int) -> bytes:
    """The whole lines of a segment up to record `seq` (0: all)."""
    rows = data.split(b"\n")[:-1]
    reader, last = LineReader(), len(rows)
    for number, row in enumerate(rows if seq else ()):
        with suppress(ValueError, SatchelError):  # damage that a checkpoint covers stays as it is
            if reader.parse(row).seq > seq:
                last = number
                break
    return b"".join(row + b"\n" for row in rows[:last])


def _name_of(path: str, data: bytes) -> str:
    """The name of a blob with other content: it has the hash."""
    return f"{_BLOBS}{hashlib.sha256(data).hexdigest()}-{path.rpartition('-')[2]}"
