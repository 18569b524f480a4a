"""What two programs that were killed again and again may have left: one history, which a reading of the record alone
tells, and which explains all that each of them was told."""

from __future__ import annotations

import hashlib
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import satchel
from satchel.results import Row
from satchel.workspace import journal
from satchel.workspace.journal import Edited, FileWritten
from satchel.workspace.store import Store, open_store, walk

from . import program
from .program import LOGS, data_of, read, value_of

_HERE = Path(__file__).parent


class Violation(AssertionError):
    """A promise was broken."""


class Version(NamedTuple):
    seq: int
    sha256: str  # empty: it was removed
    is_edit: bool = False


def play(url: str, folder: Path, seed: int, kills: int, *, saves_in: Path | None = None) -> str:
    """Let two programs at it until so many were killed; then check. A person saves files in the folder `saves_in`."""
    rng, diaries = random.Random(seed), {name: folder / f"{name}.jsonl" for name in ("a", "b")}
    running: dict[str, subprocess.Popen[bytes]] = {}
    saved: dict[str, bytes] = {}
    try:
        for number in range(kills):
            for name, diary in diaries.items():
                if name not in running:
                    command = [sys.executable, "-m", "holding.program", url, name, str(seed), str(diary)]
                    running[name] = subprocess.Popen(command, cwd=_HERE.parent)
            name = rng.choice([*running])
            _wait_for_calls(running[name], diaries[name], rng.choice((1, 3, 8)))
            if saves_in is not None and rng.random() < 0.5:
                _save(saves_in, f"person {number}", saved, rng)
            time.sleep(rng.random() * 0.02)
            running[name].send_signal(signal.SIGKILL)
            running.pop(name).wait()
    finally:
        for each in running.values():
            each.kill()
            each.wait()
    told = {name: read(diary) for name, diary in diaries.items()}
    return check(url, told, saved)


def _wait_for_calls(process: subprocess.Popen[bytes], diary: Path, calls: int) -> None:
    """So many more calls have returned."""
    until, end = len(read(diary)) + 2 * calls, time.monotonic() + 120
    while len(read(diary)) < until:
        if process.poll() is not None:
            raise Violation(f"a program has ended by itself, with {process.returncode}")
        if time.monotonic() > end:
            raise Violation("a program hangs")
        time.sleep(0.002)


def _save(files: Path, text: str, saved: dict[str, bytes], rng: random.Random) -> None:
    """As an editor does. The person saves no file a second time: what it has not been taken of would be gone."""
    path = rng.choice((*program.PATHS, f"of a person {len(saved)}.txt"))
    if path in saved or not files.exists():
        return
    saved[path] = data = f"{text}\n".encode()
    target = files / path
    target.parent.mkdir(exist_ok=True)
    new = files.parent / ".new"
    new.write_bytes(data)
    new.replace(target)


# What must be true


def check(url: str, told: dict[str, list[dict[str, Any]]], saved: dict[str, bytes]) -> str:
    with satchel.hold(url, kind="oracle", wait=100) as held:
        if saved:
            time.sleep(1.0)  # the last save settles
        rows = {log: held.rows(log) for log in LOGS}
        files = {each.path: held.get(each.path) for each in held.list()}
    store = open_store(url)
    history = _history(store)
    calls = [each for diary in told.values() for each in _calls(diary)]
    for log in LOGS:
        _rows(rows[log], [each for each in calls if each.get("log") == log], log)
    _puts(history, calls)
    _saves(store, history, saved)
    for path, versions in history.items():
        found, last = files.get(path), versions[-1]
        has = (found.version, hashlib.sha256(found.data).hexdigest()) if found is not None else (last.seq, "")
        if has != (last.seq, last.sha256):
            raise Violation(f"{path} is {has}, and its last version {last}")
    shown = {each.path.removeprefix("files/"): store.read(each.path).data for each in walk(store, "files")}
    shown = {path: data for path, data in shown.items() if ".rejected" not in path}
    if shown != {path: found.data for path, found in files.items() if found is not None}:
        raise Violation(f"files/ shows {[*shown]}, and there are {[*files]}")
    returned = sum(each["end"] is not None for each in calls)
    return f"{len(calls)} calls, {returned} returned, {sum(map(len, rows.values()))} rows, {len(saved)} saves"


def _calls(diary: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each with its `end` and `result`, if it has returned."""
    found = []
    for each, after in zip(diary, [*diary[1:], None], strict=True):
        if each["kind"] == "begun":
            has_ended = after is not None and after["kind"] in ("returned", "conflicting")
            end = after["at"] if after is not None and has_ended else None
            is_refused = after is not None and after["kind"] == "conflicting"
            found.append({**each, "end": end, "is_refused": is_refused, "result": (after or {}).get("result")})
    return found


def _rows(rows: Any, calls: list[dict[str, Any]], log: str) -> None:
    there = [value_of(row) for row in rows]
    if len(set(there)) != len(there):
        raise Violation(f"{log}: rows are doubled: {[each for each in there if there.count(each) > 1][:5]}")
    if [row.seq for row in rows] != sorted(row.seq for row in rows):
        raise Violation(f"{log}: the rows are not in the order of their numbers")
    place = {value: at for at, value in enumerate(there)}
    ends: dict[str, tuple[float, int]] = {}  # of an append, by its last row: when it had returned
    for call in calls:
        if call["call"] != "append":
            continue
        at = [place.get(value) for value in call["rows"]]
        if (at[0] is None) != any(each is None for each in at):
            raise Violation(f"{log}: an append is torn: {call} is at {at}")
        if at[0] is None and call["end"] is not None:
            raise Violation(f"{log}: an append that had returned is lost: {call}")
        if at[0] is not None and at != [*range(at[0], at[0] + len(at))]:
            raise Violation(f"{log}: the rows of an append are not together: {call} is at {at}")
        if call["end"] is not None:
            _is_numbered(rows, at[-1], call)
            ends[call["rows"][-1]] = call["end"], at[-1] or 0
    for call in calls:
        if call["call"] == "rows" and call["end"] is not None:
            seen = call["result"]
            if seen != there[: len(seen)]:
                raise Violation(f"{log}: a reader has seen rows that are no beginning of the log: {seen[-3:]}")
            if missing := [value for value, (end, at) in ends.items() if end < call["at"] and at >= len(seen)]:
                raise Violation(f"{log}: a reader has not seen {missing}, which had been appended before")
    known = {value for call in calls if call["call"] == "append" for value in call["rows"]}
    if strange := [value for value in there if value not in known]:
        raise Violation(f"{log}: no program has appended {strange}")


def _is_numbered(rows: list[Row], at: int | None, call: dict[str, Any]) -> None:
    if at is None or rows[at].seq != call["result"]:
        raise Violation(f"an append was told another number than its last row has: {call}")


def _history(store: Store) -> dict[str, list[Version]]:
    """By path, all versions, as the record has them."""
    found: dict[str, list[Version]] = {}
    for line in journal.read(store, after=journal.first_kept(store) - 1).lines:
        match line.record:
            case FileWritten(path=path, content=content):
                found.setdefault(path, []).append(Version(line.seq, content.sha256 if content is not None else ""))
            case Edited(file=file, written=content) if content is not None:
                path = file.removeprefix("files/")
                found.setdefault(path, []).append(Version(line.seq, content.sha256, is_edit=True))
    return found


def _puts(history: dict[str, list[Version]], calls: list[dict[str, Any]]) -> None:
    """Each that has returned is in the history once, over the version that it knew."""
    puts = [call for call in calls if call["call"] == "put"]
    for call in puts:
        versions, sha256 = history.get(call["path"], []), hashlib.sha256(data_of(call)).hexdigest()
        at = [place for place, each in enumerate(versions) if each.sha256 == sha256 and not each.is_edit]
        if len(at) > 1 or (at and call["is_refused"]):
            raise Violation(f"a put counts twice, or was refused and counts: {call}")
        if call["end"] is None or call["is_refused"]:
            continue
        if not at or versions[at[0]].seq != call["result"]:
            raise Violation(f"a put that had returned is lost: {call}")
        if call["if_version"] is not None:
            before = versions[at[0] - 1] if at[0] else Version(0, "")
            if (before.seq if before.sha256 else 0) != call["if_version"]:
                raise Violation(f"a put was made over {before}: {call}")
    texts = {(call["path"], call["text"]): call for call in puts}
    for call in calls:
        if call["call"] == "get" and call["result"] is not None:
            version, text = call["result"]
            if not any(each.seq == version for each in history[call["path"]]):
                raise Violation(f"a reader has seen a version that there never was: {call}")
            put = texts.get((call["path"], text))
            if put is None and not text.startswith("person"):
                raise Violation(f"a reader has seen what no program has put: {call}")


def _saves(store: Store, history: dict[str, list[Version]], saved: dict[str, bytes]) -> None:
    """What a person has saved counts, or is kept."""
    kept = {store.read(each.path).data for each in walk(store, "files") if ".rejected" in each.path}
    for path, data in saved.items():
        sha256 = hashlib.sha256(data).hexdigest()
        times = sum(each.is_edit and each.sha256 == sha256 for each in history.get(path, []))
        if times > 1:
            raise Violation(f"what a person has saved as {path} counts {times} times")
        if not times and data not in kept:
            raise Violation(f"what a person has saved as {path} is lost")
