"""What one of several open scopes of an agent changes: its own copies of the state and the plan, until its commit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Raw

from ...workspace.base import UsageError
from ...workspace.journal.records import Patch
from ...workspace.state import contradiction, json_patch
from ...workspace.todo import Plan, Splice
from ..steps import round_trip
from .assigned import Containers
from .live_state import Change, LiveState
from .own_plan import Contradiction, OwnPlan, PlanEdit


class Apart:
    """For one attempt. `base` is the data that the copy was made from; it never changes."""

    def __init__(self, live: LiveState, base: Any, path: str):
        self._base = base
        self.live = LiveState(live.codec, live.whole, keeps_unknown=live.keeps_unknown)
        self.live.restore(base, path)
        self._containers = Containers(self.live.value)
        self._own: OwnPlan | None = None  # once the scope has changed it

    @property
    def plan(self) -> Plan | None:
        """The plan with the changes of the scope, if it has made some."""
        return None if self._own is None else self._own.plan

    def replan(self, plan: Plan, edit: PlanEdit, free_id: Callable[[Plan], str]) -> bool:
        """Make a change in the copy of `plan`. The commit makes the same change again. Returns whether there is one."""
        own = OwnPlan(plan, free_id) if self._own is None else self._own
        if is_change := own.change(edit):
            self._own = own
        return is_change

    def change(self, now: Any) -> Change:
        """The change of the recorded data, which are `now` in place of the base. Contradiction if it can't follow."""
        change = self.live.change()
        place = contradiction(self._containers.places(self.live.value, change.patch), self._base, now)
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

    def replan_again(self, plan: Plan) -> list[Splice]:
        """Make the changes of the scope in `plan`. From now on the scope has no plan of its own. Contradiction if they
        do not fit any more."""
        own, self._own = self._own, None
        return [] if own is None else own.again(plan)
