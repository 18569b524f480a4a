"""Crashes of copy, move and fork from one folder to another one that is made for it, seen from the root of the disk.

After each crash the same command is typed again, and after that the power fails once more. What a command has told must
be there, and of a move always the run itself, at one of the two places.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Literal, NamedTuple
from unittest import mock

from satchel.workspace.base import SatchelError
from satchel.workspace.history import moment_at
from satchel.workspace.inspect import look, transfer_file
from satchel.workspace.store import DiskStore
from satchel.workspace.transfer import copy, destination, fork, move, transfer

from . import legal, memory
from .checker import Violation
from .legal import Crash
from .memory import ROOT, Memory, Nodes, Step, files
from .play import playing
from .steady import new_process, steady
from .workloads import go_on

TO = "/made/for/it"
TOLD = "told"
_POINT = re.compile(r"checkpoints/[^/]+\.json")

Name = Literal["copy", "move", "fork"]


class Told(NamedTuple):
    """What a command has done when it tells of it."""

    log: Sequence[Step]
    tree: Mapping[str, bytes]  # of the destination


def source() -> Nodes:
    """A run with results, messages and an open item."""
    system = Memory(memory.planted({"workspace.yaml": b"format: 1\nrun_id: carried\nagent: agent.py:main\n"}))
    new_process()
    with playing(system) as play:
        play.start()
        go_on(play)
        scope = play.begin()
        assert scope
        play.step(scope, "read", 70_000)
        play.workspace.close("paused", "enough")
    return memory.placed({f"{ROOT[1:]}/{path}": data for path, data in files(system.nodes).items() if data})


def carry(name: Name, nodes: Nodes) -> Told:
    """The command in a new process, up to the line that it prints."""
    new_process()
    system = Memory(nodes)
    with _on(system), destination(TO, here := DiskStore(ROOT, system)) as there:
        if name == "fork":
            moment = look(here).moment
            fork(here, there, moment_at(here, moment.seq), moment, by="somebody", run_id="forked")
        else:
            (copy if name == "copy" else move)(here, there, by="somebody")
    system.acknowledge(TOLD)
    return Told(system.log, _carried(system.nodes))


@contextmanager
def _on(system: Memory) -> Iterator[None]:
    with (
        mock.patch.object(transfer, "Syscalls", lambda: system),
        mock.patch.object(transfer, "open_store", lambda url: DiskStore(url, system)),
    ):
        yield


def _carried(nodes: Nodes) -> dict[str, bytes]:
    return {path: data for path, data in files(nodes, TO).items() if transfer_file.goes_along(path)}


def explore(name: Name, seed: int, *, every: int, per_call: int) -> int:
    """Returns the number of crashes. Violation if a promise is broken."""
    rng, tried = random.Random(f"{name}-{seed}"), 0
    with steady():
        start = source()
        whole = carry(name, start)
        for at in range(seed % every, len(whole.log), every):
            for crash in _crashes(whole.log, at, rng, per_call):
                tried += 1
                _try_again(name, whole, crash)
    return tried


def _crashes(log: Sequence[Step], at: int, rng: random.Random, per_call: int) -> Iterator[Crash]:
    nodes = log[at].nodes
    yield from itertools.islice(legal.kills(log, at), 2)
    yield Crash(at, 0, legal.harshest(nodes))
    yield from (Crash(at, 0, losses) for losses in legal.power_failures(nodes, rng, per_call))


def _try_again(name: Name, whole: Told, crash: Crash) -> None:
    left = legal.state_after(whole.log, crash)
    was_told = whole.log[crash.at].call.fact == TOLD
    if was_told:
        _holds(name, whole.tree, left, crash)
        return
    try:
        again = carry(name, left)
    except SatchelError as error:
        if not _is_done(name, left):
            raise _violation(name, crash, f"the same command is refused: {error}") from error
        return
    last = len(again.log) - 1
    _holds(name, whole.tree, legal.state_after(again.log, Crash(last, 0, legal.harshest(again.log[last].nodes))), crash)


def _is_done(name: Name, left: Nodes) -> bool:
    """A copy or fork that has its workspace.yaml is whole, and says so."""
    return name != "move" and "workspace.yaml" in files(left, TO)


def _holds(name: Name, wanted: Mapping[str, bytes], left: Nodes, crash: Crash) -> None:
    found = _carried(left)
    needed = [path for path in wanted if _is_durable(path) and (name != "fork" or not _is_of_an_opening(path))]
    if missing := [path for path in needed if path not in found]:
        raise _violation(name, crash, f"it was told, and the destination lacks {', '.join(missing)}")
    moment = look(DiskStore(TO, Memory(left))).moment
    if not moment.root.has_plan or "1" not in moment.root.results:
        raise _violation(name, crash, "it was told, and the run at the destination is another one")


def _is_durable(path: str) -> bool:
    """Not the files that an opening makes again from the journal."""
    return path.startswith(("workspace.yaml", "journal/", ".satchel/blobs/")) or bool(_POINT.fullmatch(path))


def _is_of_an_opening(path: str) -> bool:
    """Each opening of the fork has its own."""
    return path.startswith("journal/0") or (path.startswith("checkpoints/") and not path.endswith("-fork.json"))


def _violation(name: str, crash: Crash, what: str) -> Violation:
    kind = "a kill" if crash.losses is None else "a power failure"
    return Violation(f"{name}, {kind} after call {crash.at}: {what}")
