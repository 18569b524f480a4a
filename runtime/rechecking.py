"""What is verified again after a pause, when the world may have changed: outputs by size, version and hash, effects by
`verify`. Within bounds: a pause must not cost more than it is worth."""

from __future__ import annotations

import hashlib
import os
import time

from ..workspace.errors import SatchelError
from ..workspace.moment import Moment
from ..workspace.record import Key, Output, StepCompleted
from ..workspace.store import Store

EACH, IN_ALL = 10.0, 60.0
"""Seconds that the verification of one effect may take, and that of all after one pause."""

ALL = "~"
"""After every time."""

Place = tuple[str, str, Key]
"""Agent, scope and call."""

_LIMIT = 1 << 32


def outputs(store: Store, moment: Moment, *, reads_all: bool) -> list[str]:
    """What is wrong with what the agents have made, in words. One of the recorded size and version is not read, unless
    it `reads_all`. What is not read after so many seconds as effects get is told in one line."""
    complaints = []
    ends, unread = time.monotonic() + IN_ALL, 0
    folders = dict.fromkeys(os.path.dirname(path) for path in moment.outputs)
    sizes = {entry.path: entry.size for folder in folders for entry in store.list(folder)}
    for path, output in sorted(moment.outputs.items()):
        if path not in sizes:
            complaints.append(f"{path} is missing; the run had made it ({output.bytes:,} bytes)")
        elif sizes[path] != output.bytes:
            complaints.append(f"{path} is not what the run had made: {_of(sizes[path], output)}")
        elif reads_all or store.version(path) != output.version:
            if time.monotonic() > ends:
                unread += 1
            elif (wrong := _wrong(store, path, output)) is not None:
                complaints.append(wrong)
    if unread:
        complaints.append(f"outputs that were not compared with their hashes, since that took too long: {unread}")
    return complaints


def _wrong(store: Store, path: str, output: Output) -> str | None:
    try:
        data = store.read(path, limit=_LIMIT).data
    except (SatchelError, OSError) as error:
        return f"{path} can't be read: {error}"
    if hashlib.sha256(data).hexdigest() == output.sha256:
        return None
    return f"{path} is not what the run had made: {_of(len(data), output)}"


def _of(size: int, output: Output) -> str:
    return f"{size:,} bytes, {output.bytes:,} were made"


class Rechecks:
    """The effects that are on record as done and are to be verified when they are reached: those of the open scopes, if
    they were recorded `up_to` a time, and those that a person is still asked about because `verify` has contradicted
    the record."""

    def __init__(self, moment: Moment, *, up_to: str = ""):
        self.verified = 0
        self.unknown: list[str] = []  # why some could not be verified, in words
        self.left_over: list[str] = []  # those for which no time was left, in words
        self.seconds_left = IN_ALL
        self._wanted: set[Place] = set()
        if not (up_to or moment.doubts):
            return
        for agent in moment.agents.values():
            for key, scope in agent.scopes.items():
                effects = [each for each in scope.done.values() if is_of_its_own(each)]
                asked = {each.key for each in moment.doubts.values() if (each.agent, each.scope) == (agent.path, key)}
                self._wanted |= {
                    (agent.path, key, each.key) for each in effects
                    if (up_to and scope.when.get(each.key, "") <= up_to) or each.key in asked
                }  # fmt: skip

    def take(self, place: Place) -> bool:
        """Whether this one is to be verified. Only the first time."""
        if place not in self._wanted:
            return False
        self._wanted.discard(place)
        return True

    def told(self) -> list[str]:
        """What has come of it, in words."""
        told = [f"effects on record as done that were verified again: {self.verified}"] if self.verified else []
        told += [f"could not be verified again, and is taken as done: {text}" for text in self.unknown]
        if self.left_over:
            told.append(
                f"effects that were not verified again and are taken as done, since {IN_ALL:.0f} s were used up: "
                f"{len(self.left_over)}, the first {self.left_over[0]}"
            )
        return told

    def put_back(self, place: Place) -> None:
        """It was contradicted: an equal call is to find out the same."""
        self._wanted.add(place)


def is_of_its_own(done: StepCompleted) -> bool:
    """Whether the record is the effect's own word; that of a person is not doubted."""
    return done.effect and done.how in ("returned", "verified")
