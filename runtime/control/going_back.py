"""The methods of a handle that go back to an earlier moment of a run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...workspace.base import arguments
from .looking import Look
from .waiting import Steps, finish, finish_async

if TYPE_CHECKING:
    from ...workspace.transfer import Forked, Tell
    from .redoing import Redoing
    from .rewinding import Rewinding


class GoBack(Look):
    """The part of a `Handle` that goes back."""

    def rewind(
        self, *, to: str | int, forget: bool = False, reuse: bool = False, dry_run: bool = False, by: str | None = None
    ) -> Rewinding:  # fmt: skip
        """Return to an earlier record: data, plan and results of steps are those of that record, and what came after it
        is done again. It is added to the journal, so `rewind` can also undo it.

        `to`: a record's number; an item (`^3`, or its folder's name), whose beginning is meant; a checkpoint's file.
        Effects, answers of people, messages and outputs since then stay: an equal call of an effect returns its
        recorded result, an unequal one is asked about. With `forget`, effects are done again, under a new idempotency
        key; those in doubt stay in doubt. With `reuse`, equal calls of later steps return their recorded results, so
        that only what depends on a change is done again. `dry_run`: only say what it would do. Changes that people have
        made since then are undone, too, and stay in the journal.

        UsageError if there is no such earlier record, or the run is cancelled; LeaseHeld while a process runs it.
        """
        return finish("rewind", self._rewind(to, forget, reuse, dry_run, by))

    async def rewind_async(
        self, *, to: str | int, forget: bool = False, reuse: bool = False, dry_run: bool = False, by: str | None = None
    ) -> Rewinding:  # fmt: skip
        """`rewind`, without blocking the event loop."""
        return await finish_async(self._rewind(to, forget, reuse, dry_run, by))

    def _rewind(
        self, to: str | int, forget: bool, reuse: bool, dry_run: bool, by: str | None
    ) -> Steps[Rewinding]:  # fmt: skip
        from . import rewinding

        return rewinding.go_back(self, to, by, forget=forget, reuse=reuse, dry_run=dry_run)

    def redo(
        self, item: str, *, effects: bool = False, dry_run: bool = False, by: str | None = None
    ) -> Redoing:  # fmt: skip
        """Do an item again from its beginning, finished or open, with the state as it is now.

        `item`: its id, `^3`, or its folder's name; of a sub-agent after its path: `child/^3`. Its steps run again. An
        equal call of an effect returns its recorded result; with `effects`, it is done again under a new idempotency
        key. What is in doubt stays in doubt. `dry_run`: only say what it would do. UsageError if the item has not
        begun, LeaseHeld while a process runs it.
        """
        return finish("redo", self._redo(item, effects, dry_run, by))

    async def redo_async(
        self, item: str, *, effects: bool = False, dry_run: bool = False, by: str | None = None
    ) -> Redoing:  # fmt: skip
        """`redo`, without blocking the event loop."""
        return await finish_async(self._redo(item, effects, dry_run, by))

    def _redo(self, item: str, effects: bool, dry_run: bool, by: str | None) -> Steps[Redoing]:
        from . import redoing

        return redoing.redo(self, item, by, effects=effects, dry_run=dry_run)

    def fork(
        self, to: str | os.PathLike[str], *, at: str | int | None = None, run_id: str = "", effects: bool = False,
        reuse: bool = False, by: str | None = None, progress: Tell | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> Forked:  # fmt: skip
        """Start a new run at `to`, a folder or URL that is empty or missing, from an earlier moment of this one. This
        run is only read, also while a process runs it.

        `at`: as `to` of `rewind`; None is now. The new run has its own `run_id`, definition, code and documents as they
        are now, and data, plan, open items, messages and outputs of that moment. It knows the effects that this run has
        done since then: an equal call returns the recorded result, an unequal one is asked about. With `effects` it
        does them again. What is in doubt is verified or asked about. `reuse` as in `rewind`, `progress` and
        `storage_options` as in `move`.

        UsageError if there is no such record or `to` is not empty. After an interruption the same call begins again.
        """
        from . import forking

        arguments.no_loop("fork")
        return forking.fork(
            self,
            to,
            at,
            run_id=run_id,
            effects=effects,
            reuse=reuse,
            by=by,
            progress=progress,
            storage_options=storage_options,
        )

    async def fork_async(
        self, to: str | os.PathLike[str], *, at: str | int | None = None, run_id: str = "", effects: bool = False,
        reuse: bool = False, by: str | None = None, progress: Tell | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> Forked:  # fmt: skip
        """`fork`, without blocking the event loop; see `move_async`."""
        import asyncio

        return await asyncio.to_thread(
            self.fork, to, at=at, run_id=run_id, effects=effects, reuse=reuse, by=by, progress=progress,
            storage_options=storage_options,
        )  # fmt: skip
