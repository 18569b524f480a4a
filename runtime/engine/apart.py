"""What one of several open scopes of an agent changes: its own copies of the state and the plan, until its commit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Raw

from ...workspace.base import SatchelError, UsageError
from ...workspace.journal.records import Patch
from ...workspace.state import contradiction, json_patch
from ...workspace.todo import Plan, Splice
from ..steps import round_trip
from .live_state import Change, LiveState

Edit = Callable[[Plan], list[Splice]]
"""Changes a plan, and says what it has changed."""


class Contradiction(Exception):
    """Another commit has changed what this one would change. The scope is entered again; this is no failure of it."""


class Apart:
    """For one attempt. `base` is the data that the copy was made from; it never changes."""

    def __init__(self, live: LiveState, base: Any, path: str):
        self._base = base
        self.live = LiveState(live.codec, live.whole)
        self.live.restore(base, path)
        self.plan: Plan | None = None  # its own, once the scope has changed it
        self._edits: list[tuple[Edit, str]] = []

    def replan(self, plan: Plan, edit: Edit, highest: int, planned: str) -> None:
        """Change the copy of `plan`. The commit makes the same change again."""
        own = plan.copy() if self.plan is None else self.plan
        splices = edit(own)
        if splices := [*splices, *own.identify(highest)]:
            self.plan = own
            self._edits.append((edit, planned))

    def change(self, now: Any) -> Change:
        """The change of the recorded data, which are `now` in place of the base. Contradiction if it can't follow."""
        change = self.live.change()
        place = contradiction(change.patch, self._base, now)
        if place is not None:
            raise Contradiction(place)
        if now is not self._base:
            self._check_joined(change, now)
        return change

    def _check_joined(self, change: Change, now: Any) -> None:
        """Contradiction if the type does not allow both changes together: two more elements of a list that may get
        one."""
        patch: Patch = [
            {**each, "value": msgspec.json.decode(value)} if isinstance(value := each.get("value"), Raw) else each
            for each in change.patch
        ]
        try:
            round_trip.check_loads(self.live.whole, json_patch.apply(now, patch), patch, "run.state")
        except UsageError as error:
            raise Contradiction(str(error)) from error

    def edits(self) -> list[tuple[Edit, str]]:
        """The changes of the plan, each with the hash of a `run.plan`. From now on the scope has no plan of its own."""
        edits, self._edits, self.plan = self._edits, [], None
        return edits


def again(edit: Edit, plan: Plan) -> list[Splice]:
    """Make a change in the plan as it is now. Contradiction if it does not fit any more."""
    try:
        return edit(plan)
    except SatchelError as error:
        raise Contradiction(str(error)) from error
