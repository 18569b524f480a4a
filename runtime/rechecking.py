"""What is verified again after a stop that was forced or an emergency: outputs by their hashes, effects by `verify`."""

from __future__ import annotations

import hashlib

from ..workspace.errors import SatchelError
from ..workspace.moment import Moment
from ..workspace.record import Key, StepCompleted
from ..workspace.store import Store

Place = tuple[str, str, Key]
"""Agent, scope and call."""

_LIMIT = 1 << 32


def outputs(store: Store, moment: Moment) -> list[str]:
    """What is wrong with what the agents have made, in words."""
    complaints = []
    for path, output in sorted(moment.outputs.items()):
        try:
            data = store.read(path, limit=_LIMIT).data
        except FileNotFoundError:
            complaints.append(f"{path} is missing; the run had made it ({output.bytes:,} bytes)")
            continue
        except (SatchelError, OSError) as error:
            complaints.append(f"{path} can't be read: {error}")
            continue
        if hashlib.sha256(data).hexdigest() != output.sha256:
            complaints.append(f"{path} is not what the run had made: {len(data):,} bytes, {output.bytes:,} were made")
    return complaints


class Rechecks:
    """The effects that are on record as done and are to be verified when they are reached: all of the open scopes after
    an unclean stop, and those that a person is still asked about because `verify` has contradicted the record."""

    def __init__(self, moment: Moment, *, is_unclean: bool = False):
        self.verified = 0
        self.unknown: list[str] = []  # why some could not be verified, in words
        self._wanted: set[Place] = set()
        if not (is_unclean or moment.doubts):
            return
        for agent in moment.agents.values():
            for key, scope in agent.scopes.items():
                effects = [each for each in scope.done.values() if is_of_its_own(each)]
                asked = {each.key for each in moment.doubts.values() if (each.agent, each.scope) == (agent.path, key)}
                self._wanted |= {
                    (agent.path, key, each.key) for each in effects if is_unclean or each.key in asked
                }  # fmt: skip

    def take(self, place: Place) -> bool:
        """Whether this one is to be verified. Only the first time."""
        if place not in self._wanted:
            return False
        self._wanted.discard(place)
        return True

    def told(self) -> list[str]:
        """What has come of it, in words."""
        verified = [f"effects on record as done that were verified again: {self.verified}"] if self.verified else []
        return verified + [f"could not be verified again, and is taken as done: {text}" for text in self.unknown]

    def put_back(self, place: Place) -> None:
        """It was contradicted: an equal call is to find out the same."""
        self._wanted.add(place)


def is_of_its_own(done: StepCompleted) -> bool:
    """Whether the record is the effect's own word; that of a person is not doubted."""
    return done.effect and done.how in ("returned", "verified")
