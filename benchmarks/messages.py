"""Whether a message, and a slice of the conversation, cost the same at the end of a long one as at its beginning."""

from __future__ import annotations

import time
from collections.abc import Iterator
from statistics import median
from typing import Any

from satchel import Run, agent, run
from satchel.workspace.store import DiskStore, FileContent, Version
from satchel.workspace.views.conversation import NAME

from .measuring import Ground, Result, spread

_EARLY, _LATE = 200, 20_000
_SLICE = 20
_TEXT = "x" * 400


class _Counting(DiskStore):
    """Counts the bytes of messages.jsonl that are read and appended."""

    taken = given = 0

    def read(self, path: str, *, limit: int = 1 << 30) -> FileContent:
        found = super().read(path, limit=limit)
        self.taken += len(found.data) * (path == NAME)
        return found

    def tail(self, path: str, size: int) -> bytes:
        found = super().tail(path, size)
        self.taken += len(found) * (path == NAME)
        return found

    def create(self, path: str, data: bytes) -> Version:
        self.given += len(data) * (path == NAME)
        return super().create(path, data)

    def append(self, path: str, data: bytes, **how: Any) -> Version:
        self.given += len(data) * (path == NAME)
        return super().append(path, data, **how)


class _Stop(Exception):
    pass


def measure(ground: Ground) -> Iterator[Result]:
    workspace = ground.workspace("messages")
    rounds = ground.pick(400, 100)
    adding: dict[int, list[float]] = {}
    slicing: dict[int, list[float]] = {}
    store = _Counting(workspace)

    async def fill(run: Run[Any], upto: int) -> None:
        for _ in range(upto - len(run.messages)):
            run.messages.add("user", _TEXT)

    async def measured(run: Run[Any], at: int) -> None:
        for _ in range(rounds):
            began = time.perf_counter()
            run.messages.add("user", _TEXT)
            between = time.perf_counter()
            run.messages.slice(last=_SLICE)
            ended = time.perf_counter()
            adding.setdefault(at, []).append(between - began)
            slicing.setdefault(at, []).append(ended - between)

    @agent
    async def talk(run: Run[Any]) -> None:
        for at in (_EARLY, _LATE):
            await run.scope(f"fill {at}", fill, run, at)
            await run.scope(f"measure {at}", measured, run, at)
        raise _Stop  # a run that has completed is not entered again

    @agent
    async def go_on(run: Run[Any]) -> None:
        store.taken = 0
        run.messages.slice(last=_SLICE)

    for main in (talk, go_on):
        error = run(store, main).error
        if error and not isinstance(error, _Stop):
            raise error
    for name, found in (("adding a message", adding), (f"a slice of {_SLICE} messages", slicing)):
        ratio = median(found[_LATE]) / median(found[_EARLY])
        yield Result(
            f"{name}, {_LATE:,} over {_EARLY}",
            "time",
            "at most 1.2",
            ratio,
            1.2,
            f"{ratio:.2f} times",
            f"{spread(found[_LATE], 1e6)} over {spread(found[_EARLY], 1e6)} µs",
        )
    size = (workspace / NAME).stat().st_size
    yield Result(
        "bytes written to messages.jsonl",
        "bytes",
        "its size",
        store.given / size,
        1,
        f"{store.given / size:.3f} times",
        f"{size:,} bytes",
    )
    yield Result(
        f"bytes read for a slice of {_SLICE}, after a restart",
        "bytes",
        "at most 128 KiB",
        store.taken,
        128 << 10,
        f"{store.taken:,} bytes",
        f"of {size:,}",
    )
