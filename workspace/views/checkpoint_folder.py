"""A folder next to each checkpoint that people can open: `todo.md` and `state.json` of every agent, and `why.md`; and
`checkpoints/README.md`, which lists the checkpoints, each with the command that returns to it.

Satchel never reads what the files of a folder say about the run. If a person copies `todo.md` or `state.json` over that
of the run, their stamp says where they come from. Two folders differ only where the run differs, and in these stamps.
`why.md`, the last file written, has the hashes of the others.

A row of the list is made when its checkpoint is written. Later rows are taken from the file, if it is as it was
written; else from the checkpoints themselves.
"""

from __future__ import annotations

import hashlib
import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple, get_args

from ..base import InvalidFile, SatchelError, counted, decode, one_line, stamp, usd, visible
from ..journal import CHECKPOINTS, FOLDER, Line, Occasion, Saved, checkpoint_position, first_kept, read
from ..state import AgentMoment, Moment, Usage, checkpoint
from ..store import LARGE_LIMIT, Store
from .guarded_files import Behind
from .projection import STATE, TODO, state_file, todo_copy

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

WHY = "why.md"

_RETURN = ("## Return", "")

_WAITING_FILES = 1024


_FILE = re.compile(r"^- `([^`\n]+)` ([0-9a-f]{64})$", re.M)


class CheckpointRow(NamedTuple):
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

    def __init__(self, store: Store, moment: Moment, behind: Behind):
        self._store, self._moment, self._behind = store, moment, behind
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


def point_of(moment: Moment, path: str, why: Occasion) -> CheckpointRow:
    said: str = why
    if why == "stop":
        said += f": the run is {moment.status}" + (f" ({moment.reason})" if moment.reason else "")
    return CheckpointRow(path, checkpoint.position_of(path), moment.last_at, said, moment.usage)


def row(store: Store, point: CheckpointRow) -> str:
    usage = point.usage
    cost = [counted(usage.steps, "step")]
    cost += [f"{usage.tokens:,} tokens"] if usage.tokens else []
    cost += [usd(usage.usd)] if usage.usd else []
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


def _points(store: Store, paths: list[str]) -> Iterator[CheckpointRow]:
    lines = read(store, after=first_kept(store) - 1).lines
    whys = {line.record.file: line.record.why for line in lines if isinstance(line.record, Saved)}
    for path in paths:
        try:
            moment, _ = checkpoint.load(store, path)
            yield point_of(moment, path, whys.get(path, "stop"))
        except (ValueError, SatchelError, FileNotFoundError):
            yield CheckpointRow(path, checkpoint.position_of(path), "", "it can't be read", Usage())


_AGENTS, _AGENTS_REMOTELY = 50, 8
"""More agents of a tree are not shown: a folder must not become thousands of files."""

_WAITING_BYTES, _REMOTE_BYTES = 4 << 20, 1 << 20
"""While so much waits to be written, a milestone gets no folder; and in a bucket none gets one that is larger."""


class NewCheckpoint(NamedTuple):
    """A checkpoint that was just written. `name` is the item that was committed, if it was one; `records` are the last
    ones, and the last of them is the checkpoint's own."""

    path: str
    why: Occasion
    name: str
    records: Sequence[Line]


class _File(NamedTuple):
    path: str
    size: int
    job: Callable[[], object]


class CheckpointFolders:
    """The folders that wait to be written, for one opened workspace. A document of the projector, which gives it its
    share of the time. Errors are ignored: nothing depends on these files."""

    def __init__(self, store: Store, behind: Behind):
        self._store, self._behind = store, behind
        self._waiting: deque[_File] = deque()
        self._last = ""  # the folder that was added last
        self._is_remote = store.abilities.remote

    def add(self, moment: Moment, point: NewCheckpoint) -> None:
        """`write` shall write the folder of this checkpoint of the `moment`. At a stop it is written at once, after
        those that still wait; in a bucket, meanwhile, and the others are dropped."""
        at_stop = point.why == "stop"
        waiting = sum(file.size for file in self._waiting)
        if not at_stop and (waiting > _WAITING_BYTES or len(self._waiting) > _WAITING_FILES):
            return
        if at_stop and self._is_remote:
            self._waiting.clear()
        self._waiting += self._files(moment, point)
        self._waiting.append(_File(CHECKPOINTS, 0, partial(sweep, self._store)))
        while at_stop and self.write():
            pass

    def write(self) -> bool:
        if self._waiting:
            path, _, job = self._waiting.popleft()
            self._behind.do(path, partial(_quietly, job))
        return bool(self._waiting)

    def _files(self, moment: Moment, point: NewCheckpoint) -> Iterator[_File]:
        folder = folder_of(point.path)
        files = _shown(moment, folder.rpartition("/")[2], _AGENTS_REMOTELY if self._is_remote else _AGENTS)
        if self._is_remote and sum(map(len, files.values())) > _REMOTE_BYTES:
            return
        earlier = [each for each in map(folder_of, checkpoint.paths(self._store)) if each < folder]
        there = {self._last, *self._store.folders(CHECKPOINTS)}
        shown = [each for each in earlier if each in there]
        previous = _named(earlier[-1]) if earlier else "none is kept"
        returns = command(self._store, point.path)
        told = _why(moment, point, previous, files, returns).encode()
        files[WHY] = stamp.sign_markdown(told, moment.seq, moment.epoch, moment.run_id)
        for name, data in files.items():
            yield _File(f"{folder}/{name}", len(data), partial(self._replace, point.path, f"{folder}/{name}", data))
        self._last = folder
        if shown and not self._is_remote:
            path = f"{shown[-1]}/{WHY}"
            yield _File(path, 0, partial(_tell_next, self._store, path, folder, moment.seq, moment.run_id))

    def _replace(self, of: str, path: str, data: bytes) -> None:
        if self._store.version(of) is not None:  # else it is no longer kept
            self._store.replace(path, data, sync="data")


def folder_of(path: str) -> str:
    """The folder of the checkpoint `path`."""
    return path.removesuffix(".json")


def sweep(store: Store) -> None:
    """Remove the folders whose checkpoint is gone, except files in them that Satchel does not write."""
    kept = set(map(folder_of, checkpoint.paths(store)))
    gone = [folder for folder in _folders(store) if folder not in kept]
    store.remove_many([path for folder in gone for path in _ours(store, folder)])


def edited(store: Store) -> Iterator[str]:
    """The files of these folders that are not as Satchel has written them."""
    for folder in _folders(store):
        try:
            read = stamp.read_markdown(store.read(f"{folder}/{WHY}", limit=LARGE_LIMIT).data)
        except FileNotFoundError:
            continue  # not completely written
        text = read.body.decode(errors="replace")
        run = re.search(r"^- Run: `([^`\n]+)`", text, re.M)
        if not read.stamp or not run or read.stamp.sha.encode() != stamp.sha_of_markdown(read.body, run[1]):
            yield f"{folder}/{WHY}"
        for name, sha in _FILE.findall(text):
            with suppress(FileNotFoundError):
                if hashlib.sha256(store.read(f"{folder}/{name}", limit=LARGE_LIMIT).data).hexdigest() != sha:
                    yield f"{folder}/{name}"


def _folders(store: Store) -> Iterator[str]:
    return (path for path in store.folders(CHECKPOINTS) if checkpoint_position(f"{path}.json") is not None)


def _ours(store: Store, folder: str) -> Iterator[str]:
    """`why.md` last: while it is there, `edited` knows the others."""
    for agent in store.folders(f"{folder}/agents"):
        yield from _ours(store, agent)
    yield from (entry.path for entry in store.list(folder) if entry.path.rpartition("/")[2] in (STATE, TODO, WHY))


def _quietly(job: Callable[[], object]) -> None:
    with suppress(SatchelError, OSError):
        job()


def _shown(moment: Moment, name: str, most: int) -> dict[str, bytes]:
    """The files of the agents by their path in the folder `name`: the root, unfinished agents, then others."""
    order = sorted(moment.agents.values(), key=lambda agent: (bool(agent.path), agent.has_ended))
    chosen = {agent.path for agent in order[:most]}
    files: dict[str, bytes] = {}
    for agent in moment.agents.values():
        if agent.path in chosen:
            files |= _of_agent(moment, agent, name)
    return files


def _of_agent(moment: Moment, agent: AgentMoment, name: str) -> dict[str, bytes]:
    plan = {f"{agent.folder}{TODO}": todo_copy(moment, agent, name)} if agent.has_plan else {}
    return {**plan, f"{agent.folder}{STATE}": state_file(moment, agent, checkpoint=name)}


def _why(moment: Moment, point: NewCheckpoint, previous: str, files: dict[str, bytes], returns: str) -> str:
    reason = f": {_quoted(moment.reason)}" if moment.reason else ""
    why = {
        "milestone": f"the milestone {point.name}" if point.name else "the agent called `run.checkpoint()`",
        "stop": f"the process stopped, and the run is {moment.status}{reason}",
    }.get(point.why, point.why)
    *before, own = map(_words, point.records)
    hidden = len(moment.agents) - sum(name.endswith(STATE) for name in files)
    told = [
        f"# Checkpoint {moment.seq}",
        "",
        f"- Run: `{moment.run_id}`, start {moment.attempt}",
        f"- When: {moment.last_at}",
        f"- Why: {why}",
        f"- Record: {own}",
        "",
        "A resume reads the file next to this folder, never the folder. Changes in it have no effect. If you copy",
        "`todo.md` and `state.json` over those of the run, its next start asks what you mean.",
        "",
        "## Before",
        "",
        *(f"- {each}" for each in before),
        f"- The previous checkpoint at that time: {previous}",
        "",
        "## Files",
        "",
        *(f"- `{name}` {hashlib.sha256(data).hexdigest()}" for name, data in files.items()),
        *([f"- {hidden} more sub-agents are not shown here"] if hidden else []),
        "",
        "## After",
        "",
        f"- {_next(moment)}",
        "",
        *_RETURN,
        f"`{returns}`",
        "",
    ]
    return "\n".join(told)


def _next(moment: Moment) -> str:
    task = moment.root.plan.next_to_do()
    return f"The next open item of the plan: {_quoted(task.text)}" if task else "The plan has no open item"


def _named(folder: str) -> str:
    """No link: each checkpoint goes when `keep:` no longer keeps it, and a link to it would then lead nowhere."""
    return f"`{folder.rpartition('/')[2]}`"


def _tell_next(store: Store, path: str, following: str, seq: int, run_id: str) -> None:
    """Write into the `why.md` of a checkpoint that the next one, of record `seq`, is in the folder `following`, unless
    a person has changed it."""
    try:
        found = stamp.read_markdown(store.read(path, limit=LARGE_LIMIT).data)
    except FileNotFoundError:
        return
    if found.stamp is None or found.stamp.sha.encode() != stamp.sha_of_markdown(found.body, run_id):
        return
    at, epoch, _ = found.stamp
    before, heading, command = found.body.rpartition(b"\n%s\n" % _RETURN[0].encode())
    told = f"- Records {at + 1} to {seq}\n- The next checkpoint at that time: {_named(following)}\n".encode()
    body = before + told + heading + command
    store.replace(path, stamp.sign_markdown(body, at, epoch, run_id), sync="data")


def _words(line: Line) -> str:
    """A record in one line, as in the log."""
    from .record_words import describe_record  # a run that never rests writes no folder

    return f"{line.seq}, {line.at[11:19]}: {_quoted(describe_record(line.record).line)}"


def _quoted(text: str) -> str:
    """On one line, so that it is no Markdown of its own."""
    line = visible(" ".join(text.split()))[:120].replace("`", "'")
    return f"`{line}`"
