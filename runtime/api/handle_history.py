"""`Handle.history`: what a run has done, and the ways back to an earlier moment of it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from ...workspace.base import arguments, visible
from ..status import Place, in_a_thread, in_both_ways, in_steps

if TYPE_CHECKING:
    from ...workspace.history import CallDetail, CostReport, RunTiming, StepHistory
    from ...workspace.transfer import ForkResult, Tell
    from ..agent import Agent
    from ..history import Blame, Difference, RedoResult, RehearsalResult, ReplayResult, RewindResult, ShowResult, Text
    from ..live import Watch
    from ..status import Execution, LogRow, ProcessLine, ProcessLog, Steps


class RunHistory:
    """The past of a run, and the ways back to it. Made by `Handle.history`.

    `log`, `process_log`, `show`, `diff`, `steps`, `call`, `timing`, `costs`, `blame` and `prompt` only read, also while
    a process runs the run. `rewind` and `redo` change it. `fork` and `replay` make another run, and `rehearse` does
    nothing but tell.
    """

    def __init__(self, place: Place):
        self._place = place

    def __repr__(self) -> str:
        return f"<RunHistory of {visible(self._place.url)}>"

    # Reading it

    def log(
        self,
        *,
        last: int | None = None,
        item: str | None = None,
        type: str | None = None,
        agent: str | None = None,
        step: str | None = None,
        since: str | timedelta | datetime | None = None,
        audit: bool = False,
        follow: bool = False,
    ) -> Iterator[LogRow]:
        """The records of the journal, oldest first.

        `last`: only so many, the newest; `item`: only those of an item (`3`, `^3`) or a named scope (`_NAME`); `type`:
        only those of a type (`step.completed`), or of several (`step.*`); `agent`: only those of a sub-agent and its
        own sub-agents, by its path (`left/deep`), or of the run's own agent (`.`); `step`: only those of the steps and
        effects of this name; `since`: only those since a time (`22:30`, `2026-11-22 22:30`, an aware datetime), or of
        the last `2h` (a timedelta); `audit`: only saved checkpoints, openings, and what people did. For a damaged
        journal it yields all readable records first, and then raises Damaged or InvalidFile. The torn end that a crash
        leaves is no error. UsageError, after the last record, for an item, an agent or a step that no record names.

        `follow`: then it waits, and also yields what becomes durable from now on, until the run is completed or
        cancelled. In an event loop use `Handle.events(follow=True)`.
        """
        from ..status import log

        wanted = log.filter_of(item, type, agent, step, since, audit)
        return log.log(self._place, last, wanted, follows=follow)

    def process_log(self, *, last: int | None = None, follow: bool = False) -> Iterator[ProcessLine]:
        """What the processes of the run have printed, oldest line first, redacted: what the agent prints, and what
        Satchel says. Each start of a process is marked with its time.

        Only of processes that `detach`, `serve` or the page has started, since others print to a terminal or to their
        program; of a run at a URL those of this machine, or what was uploaded. `last`: only so many lines; `follow` as
        in `log`. Not guaranteed: at a few MiB the log is started again, and only its newest 8 MiB are kept.
        """
        from ..status import log

        return log.process_lines(self._place, last, follows=follow)

    def process_log_page(self, *, before: int | None = None, after: int | None = None) -> ProcessLog:
        """A page of what the processes of the run have printed: the newest lines, those before a place, or those from a
        place on. It costs what is on it, however large the log is. Without a log, no lines and no `path`."""
        from ..status import log

        before, after = arguments.count("before", before, least=0), arguments.count("after", after, least=0)
        return log.process_page(self._place, before=before, after=after)

    def show(self, at: int | str = "latest") -> ShowResult:
        """The whole run as it was right after a record: state, plan and open items of every agent of the tree.

        `at` names the record: its number; `latest`; an item (`^3`, `3-title`, `AGENT/^3`), for the record right before
        that item began, the last time if it was done again; or a checkpoint by the name of its file or folder. Works
        while a process runs the run, and in spite of damage that comes after the record. UsageError for a record that
        does not exist, naming the newest, or that retention has removed, naming the first that is kept; Damaged.
        """
        from ..history import past

        return past.show(self._place, at)

    def diff(self, old: int | str | Place, new: int | str = "latest") -> Difference:
        """What differs from one record of the run to another, named as for `show`: values of the state, plans, and
        steps and effects that have another outcome or only one outcome.

        `old` may also be the handle of another run: then this run as it is now is compared with that one at `new`, and
        steps with those of the same item or scope that have the same name and arguments. Errors are those of `show`.
        """
        from ..history import past

        return past.diff(self._place, old, new)

    def steps(self, item: str | None = None, *, at: int | str | None = None) -> StepHistory:
        """What the items have done, finished or open: steps and effects with results, times, models, prompts and failed
        attempts; in the order in which the items began.

        `item`: only this one (`3`, `^3`, `3-title`, `_name`, `AGENT/^3`); `at`: as it was at this record, named as for
        `show`. Of items that had ended before the first kept record (`since` of the result), only effects are known,
        and their state is "pruned". For a damaged journal, what could be read, and `problem` says why there is no more.
        UsageError if the item has not begun.
        """
        from ..history import past

        return past.steps(self._place, item, at)

    def call(self, named: int | str) -> CallDetail:
        """One call of a step or an effect: arguments, result, attempts, times, prompts, costs, and who has answered.

        `named`: its item and its number in `steps` (`^3/2`, `3-title/2`, `_name/2`, `AGENT/^3/2`; `_agent/2` for what
        is in no item), or a record that is about it (42). If an item was done again, its last work is meant; a record
        names a call of any. UsageError for what names no call.
        """
        from ..history import past

        return past.call(self._place, str(named))

    def timing(self, item: str | None = None, *, at: int | str | None = None) -> RunTiming:
        """When each call worked and when it waited, by item, and when no process had the run. `item` and `at` as in
        `steps`, and `_agent` is what the agent has done in no item. Times are milliseconds since 1970, UTC."""
        from ..history import past

        return past.timing(self._place, item, at)

    def costs(self, *, at: int | str | None = None) -> CostReport:
        """What the run has cost (`run.spend`): by step, model, item and call, the highest first, and how the sum has
        grown. `at` as in `steps`."""
        from ..history import past

        return past.costs(self._place, at)

    def blame(self, path: str = "state.json") -> Blame:
        """Which record set each value at and below a path: an item's commit, with the prompts of its calls and the
        people who have answered in it, an edit, a migration.

        `path`: `state.json` or `todo.md`, of a sub-agent `agents/NAME/state.json`, and then what is in it:
        `state.json/summaries/a.txt` (a `/` in a key is `~1`, a `~` is `~0`), `todo.md/^3`. A value keeps its origin
        while it stays the same, wherever a list moves it. After a return to an earlier record it has the origin that it
        had there, and `brought_back_by`. UsageError for what is not there, naming the nearest.
        """
        from ..history import past

        return past.blame(self._place, path)

    def prompt(self, name: str, version: str) -> str:
        """The text of a prompt in a version that the run has used, as the record of a step names it, with its
        placeholders. UsageError if it is not kept, Damaged if it was changed."""
        from ...workspace.state import prompt_text

        self._place.store.refresh()
        return prompt_text(self._place.store, arguments.text("name", name), arguments.text("version", version))

    # Going back

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

        return rewind.go_back(self._place, to, by, forget=forget, reuse=reuse, dry_run=dry_run)

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

        return rewind.redo(self._place, item, by, effects=effects, dry_run=dry_run)

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
        `storage_options` as in `Handle.move`.

        UsageError if there is no such record or `to` is not empty. After an interruption the same call begins again.
        """
        from ..history import rewind

        return rewind.fork(
            self._place,
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
        `Handle.run`, the others as in `fork`. Signals pause it.

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
        return Replay(self._place, options)

    replay_async = replay.without_blocking

    def rehearse(self, *, code: str | os.PathLike[str] | None = None) -> RehearsalResult:
        """Try the code against this run, without doing anything.

        A copy of the run is entered in a process of its own, which gets no secrets of the environment but the keys of
        sealed values. Recorded calls return their results. A branch ends where it would call anything else: a step, an
        effect, a question, a resource. So only the agent's own lines run, and its imports. `code`: the folder with the
        new code; None for the code as the run would import it now. The result says what would differ from the code
        before.
        """
        from ..history import rehearse

        return rehearse(self._place.store, code)
