"""The methods of a handle that go back to an earlier moment of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .looking import Look
from .waiting import Steps, finish, finish_async

if TYPE_CHECKING:
    from .rewinding import Rewinding


class GoBack(Look):
    """The part of a `Handle` that goes back."""

    def rewind(
        self, *, to: str | int, forget: bool = False, dry_run: bool = False, by: str | None = None
    ) -> Rewinding:  # fmt: skip
        """Return to an earlier record: data, plan and results of steps are those of that record, and what came after it
        is done again. It is added to the journal, so `rewind` can also undo it.

        `to`: a record's number; an item (`^3`, or its folder's name), whose beginning is meant; a checkpoint's file.
        Effects, answers of people, messages and outputs since then stay: an equal call of an effect returns its
        recorded result, an unequal one is asked about. With `forget`, effects are done again, under a new idempotency
        key; those in doubt stay in doubt. `dry_run`: only say what it would do. Changes that people have made since
        then are undone, too, and stay in the journal.

        UsageError if there is no such earlier record, or the run is cancelled; LeaseHeld while a process runs it.
        """
        return finish("rewind", self._rewind(to, forget, dry_run, by))

    async def rewind_async(
        self, *, to: str | int, forget: bool = False, dry_run: bool = False, by: str | None = None
    ) -> Rewinding:  # fmt: skip
        """`rewind`, without blocking the event loop."""
        return await finish_async(self._rewind(to, forget, dry_run, by))

    def _rewind(self, to: str | int, forget: bool, dry_run: bool, by: str | None) -> Steps[Rewinding]:
        from . import rewinding

        return rewinding.go_back(self, to, by, forget=forget, dry_run=dry_run)
