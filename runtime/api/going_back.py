"""The methods of a handle that go back to an earlier moment of a run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..status import in_a_thread, in_both_ways, in_steps
from .readonly import ReadonlyHandle

if TYPE_CHECKING:
    from ...workspace.transfer import ForkResult, Tell
    from ..agent import Agent
    from ..history import RedoResult, RehearsalResult, ReplayResult, RewindResult, Text
    from ..live import Watch
    from ..status import Execution, Steps


class GoBack(ReadonlyHandle):
    """The part of a `Handle` that goes back."""

    @in_steps
    def rewind(
        self, *, to: str | int, forget: bool = False, reuse: bool = False, dry_run: bool = False, by: str | None = None
    ) -> Steps[RewindResult]:
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
        from ..history import rewind

        return rewind.go_back(self, to, by, forget=forget, reuse=reuse, dry_run=dry_run)

    rewind_async = rewind.without_blocking

    @in_steps
    def redo(
        self, item: str, *, effects: bool = False, dry_run: bool = False, by: str | None = None
    ) -> Steps[RedoResult]:
        """Do an item again from its beginning, finished or open, with the state as it is now.

        `item`: its id, `^3`, or its folder's name; of a sub-agent after its path: `child/^3`. Its steps run again. An
        equal call of an effect returns its recorded result; with `effects`, it is done again under a new idempotency
        key. What is in doubt stays in doubt. `dry_run`: only say what it would do. UsageError if the item has not
        begun, LeaseHeld while a process runs it.
        """
        from ..history import rewind

        return rewind.redo(self, item, by, effects=effects, dry_run=dry_run)

    redo_async = redo.without_blocking

    @in_a_thread
    def fork(
        self,
        to: str | os.PathLike[str],
        *,
        at: str | int | None = None,
        run_id: str = "",
        effects: bool = False,
        reuse: bool = False,
        by: str | None = None,
        progress: Tell | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> ForkResult:
        """Start a new run at `to`, a folder or URL that is empty or missing, from an earlier moment of this one. This
        run is only read, also while a process runs it.

        `at`: as `to` of `rewind`; None is now. The new run has its own `run_id`, definition, code and documents as they
        are now, and data, plan, open items, messages and outputs of that moment. It knows the effects that this run has
        done since then: an equal call returns the recorded result, an unequal one is asked about. With `effects` it
        does them again. What is in doubt is verified or asked about. `reuse` as in `rewind`, `progress` and
        `storage_options` as in `move`.

        UsageError if there is no such record or `to` is not empty. After an interruption the same call begins again.
        """
        from ..history import fork

        return fork.fork(
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

    fork_async = fork.without_blocking

    def rehearse(self, *, code: str | os.PathLike[str] | None = None) -> RehearsalResult:
        """Try the code against this run, without doing anything.

        A copy of the run is entered in a process of its own, which gets no secrets of the environment but the keys of
        sealed values. Recorded calls return their results. A branch ends where it would call anything else: a step, an
        effect, a question, a resource. So only the agent's own lines run, and its imports. `code`: the folder with the
        new code; None for the code as the run would import it now. The result says what would differ from the code
        before.
        """
        from ..history import rehearse

        return rehearse(self.store, code)

    @in_both_ways
    def replay(
        self,
        item: str,
        to: str | os.PathLike[str],
        *,
        settings: Mapping[str, Any] | None = None,
        prompts: Mapping[str, Text] | Text | None = None,
        agent: Agent | None = None,
        watch: Watch | None = None,
        run_id: str = "",
        by: str | None = None,
        progress: Tell | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> Execution[ReplayResult]:
        """Do one item again in a fork at `to`, with other prompts or settings, and compare it with the first time. This
        run is only read.

        `item`: its id, `^3`, its folder's name, or a named scope, `_setup`; what it has done the last time counts. The
        fork begins right before it, as of `fork`, and stops when the item is done. `settings`: other values by name, or
        by names joined by dots. `prompts`: other texts by name, or one for the only prompt that the item has used; a
        path (`pathlib.Path`) is a file that has it. The item's other prompts are the versions that it has used. Other
        settings and the code are as they are now, also under `on_drift: refuse`; `report` says what has changed.

        A replay does no effect: an equal call returns its recorded result, and before any other the run stops. It sends
        no notices. What has stopped it is in the result, and so are errors of the agent. Then only `resume` continues
        the fork, as a run; `run` and `serve` leave it alone, also if the replay was killed. `agent` and `watch` as in
        `run`, the others as in `fork`. Signals pause it.

        UsageError for an item that has not begun, one of a sub-agent, a task of the inbox, a name that is not known,
        and if `to` is not empty.
        """
        from ..history import Replay, ReplayOptions

        options = ReplayOptions(
            item=item,
            to=to,
            settings=settings,
            prompts=prompts,
            agent=agent,
            watch=watch,
            run_id=run_id,
            by=by,
            progress=progress,
            storage_options=storage_options,
        )
        return Replay(self, options)

    replay_async = replay.without_blocking
