"""`checkpoints/README.md`: the checkpoints that are there, for people, each with the command that returns to it.

A row is made when its checkpoint is written. Later rows are taken from the file, if it is as it was written; else from
the checkpoints themselves.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple, get_args

from ..base import InvalidFile, SatchelError, counted, decode, one_line, stamp
from ..journal import CHECKPOINTS, FOLDER, first_kept, read
from ..journal.records import Occasion, Saved
from ..state import Moment, Usage, checkpoint
from ..store import Store
from .write_behind import AtOnce, Behind

PATH = f"{CHECKPOINTS}/README.md"
_LIMIT = 1 << 24
_ROW = re.compile(r"^\| .* \| `satchel rewind .*--to ([0-9]{12}(?:-[a-z0-9_-]+)?)` \|$", re.M)
_HEAD = """# Checkpoints

Each line is a moment of this run, the newest first. Its command returns the stopped run to it; {where}.
With `--dry-run` it only says what it would do. Another `satchel rewind` undoes it. Or copy `todo.md` and `state.json`
from the folder of a checkpoint over those of the run: the next start asks what you mean.

Satchel writes this file again whenever a checkpoint comes or goes.

| moment | reason | item | cost so far | command |
| --- | --- | --- | --- | --- |
"""


class Point(NamedTuple):
    """A checkpoint for people."""

    path: str
    seq: int
    at: str
    why: str
    usage: Usage

    @property
    def item(self) -> str:
        """The one that is open, or was committed, by the name of its folders. Empty if the name of the checkpoint has
        the reason in place of one."""
        words = self.path.rpartition("/")[2].removesuffix(".json").removesuffix("_unclean")[13:]
        return "" if words in get_args(Occasion) else words


class CheckpointIndex:
    """The file, for one opened workspace. A document of the projector. Errors are ignored: nothing depends on it."""

    def __init__(self, store: Store, moment: Moment, behind: Behind | None = None):
        self._store, self._moment, self._behind = store, moment, behind or AtOnce()
        self._rows: dict[str, str] = {}  # by the path of the checkpoint

    def add(self, path: str, why: Occasion) -> None:
        """A checkpoint of the moment as it is now was written, or is about to be."""
        self._rows[path] = row(self._store, point_of(self._moment, path, why))

    @property
    def is_current(self) -> bool:
        """Whether the file says which checkpoints there are. Where a look is a request: whether there is a file."""
        if self._store.abilities.remote:
            return self._store.version(PATH) is not None or not checkpoint.paths(self._store)
        return self._known().keys() == {*checkpoint.paths(self._store)}

    def write(self) -> None:
        moment = self._moment
        at = moment.seq, moment.epoch, moment.run_id
        self._behind.do(FOLDER, partial(self._write, *at))  # after what is being removed there

    def _write(self, seq: int, epoch: int, run_id: str) -> None:
        try:
            there = checkpoint.paths(self._store)
            if not there:
                return
            rows = self._rows if self._rows.keys() >= {*there} else {**self._known(), **self._rows}
            if missing := [path for path in there if path not in rows]:
                rows = {**rows, **_read(self._store, missing)}
            self._rows = {path: rows[path] for path in there}
            head = _HEAD.format(where=_where(self._store))
            body = head + "".join(f"{self._rows[path]}\n" for path in reversed(there))
            self._store.replace(PATH, stamp.sign_markdown(body.encode(), seq, epoch, run_id), sync="data")
        except (SatchelError, OSError):
            pass

    def _known(self) -> dict[str, str]:
        """The rows of the file; none if it is not as it was written, or for another place."""
        try:
            found = stamp.read_markdown(self._store.read(PATH, limit=_LIMIT).data, self._moment.run_id)
            text = decode(found.body, PATH)
        except (FileNotFoundError, InvalidFile):
            return {}
        if not found.untouched or not text.startswith(_HEAD.format(where=_where(self._store))):
            return {}
        return {f"{CHECKPOINTS}/{match[1]}.json": match[0] for match in _ROW.finditer(text)}


def point_of(moment: Moment, path: str, why: Occasion) -> Point:
    said: str = why
    if why == "stop":
        said += f": the run is {moment.status}" + (f" ({moment.reason})" if moment.reason else "")
    return Point(path, checkpoint.position_of(path), moment.last_at, said, moment.usage)


def row(store: Store, point: Point) -> str:
    usage = point.usage
    cost = [counted(usage.steps, "step")]
    cost += [f"{usage.tokens:,} tokens"] if usage.tokens else []
    cost += [f"{usage.usd:.4f} USD"] if usage.usd else []
    when = f"{point.at[:10]} {point.at[11:19]} UTC" if point.at else "unknown"
    cells = (f"{when}, record {point.seq:,}", _cell(point.why), _cell(point.item), ", ".join(cost))
    return f"| {' | '.join(cells)} | `{command(store, point.path)}` |"


def command(store: Store, path: str) -> str:
    """The command that returns to a checkpoint. It names no folder of this machine, since folders move."""
    place = f"{store.url} " if store.abilities.remote else ""
    return f"satchel rewind {place}--to {path.rpartition('/')[2].removesuffix('.json')}"


def _where(store: Store) -> str:
    return "type it on any machine that reaches the bucket" if store.abilities.remote else "type it in the run's folder"


def _cell(text: str) -> str:
    """On one line, as text and no Markdown of its own."""
    line = one_line(text, 80).replace("|", "¦").replace("`", "'")
    return f"`{line}`" if line else ""


def _read(store: Store, paths: list[str]) -> dict[str, str]:
    """The rows of checkpoints, from themselves and from the journal."""
    return {point.path: row(store, point) for point in _points(store, paths)}


def _points(store: Store, paths: list[str]) -> Iterator[Point]:
    lines = read(store, after=first_kept(store) - 1).lines
    whys = {line.record.file: line.record.why for line in lines if isinstance(line.record, Saved)}
    for path in paths:
        try:
            moment, _ = checkpoint.load(store, path)
            yield point_of(moment, path, whys.get(path, "stop"))
        except (ValueError, SatchelError, FileNotFoundError):
            yield Point(path, checkpoint.position_of(path), "", "it can't be read", Usage())
