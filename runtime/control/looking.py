"""What can be seen of a run from outside. Nothing here changes the workspace or runs code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from .place import Place
from .waiting import finish, finish_async

if TYPE_CHECKING:
    from ...workspace.lifecycle import Cut
    from .checking import Checked, Tried
    from .history import Result, Row
    from .questions import OpenQuestion
    from .standing import Standing


class Look(Place):
    """The part of a `Handle` that only looks."""

    def status(self, *, brief: bool = False) -> Standing:
        """Where the run stands: what is done, what is under way, what is wanted from a person, what to do next.

        Only looks, and raises nothing: what is wrong with the workspace is in the result, as `problem`.
        `brief`: without what takes reading more files: what people have edited, streams, the last report, budget and
        schedule.
        """
        from . import standing

        return standing.status(self, brief=brief)

    def check(self, *, progress: Callable[[int, int], None] | None = None) -> Checked:
        """Check every file against its schema and against what is on record, and tell what the next opening would do.
        Changes nothing, and runs no code. What is wrong is in the result; UsageError if there is no workspace.

        `progress` is called with how many records of how many were read.
        """
        from . import checking

        return finish("check", checking.check(self, progress))

    async def check_async(self, *, progress: Callable[[int, int], None] | None = None) -> Checked:
        """`check`, without blocking the event loop; `progress` is called in a thread."""
        from . import checking

        return await finish_async(checking.check(self, progress))

    def try_storage(self) -> Tried:
        """What the storage can be trusted with, be there a workspace or not yet: a lock is tried on a disk; in a bucket
        conditional writes, with a small file that is removed again. UsageError or StorageFailed if it does not keep
        what it states."""
        from . import checking

        return checking.try_storage(self.store)

    def log(self, *, last: int | None = None, item: str | None = None, type: str | None = None) -> Iterator[Row]:
        """The records of the journal, oldest first, as they are read.

        `last`: only so many, the newest; `item`: only those of an item (`3`, `^3`) or a named scope (`_NAME`); `type`:
        only those of a type (`step.completed`). Of a damaged journal all that can be read comes first, and then the
        error is raised: Damaged, InvalidFile. The torn end that a crash leaves is no error.
        """
        from . import history

        return history.log(self, last, item, type)

    @property
    def result(self) -> Result:
        """What the run has come to, as it is on record now: its state, outputs and items. The value that the agent has
        returned is not on record; the `run` that it ended has it."""
        from . import history

        return history.result(self)

    def questions(self) -> list[OpenQuestion]:
        """The open questions, in the order they were asked."""
        from ...workspace.inspect import look_beside
        from .questions import questions_of

        return questions_of(look_beside(self.store).moment, self)

    def plan_cut(self, truncate_at: int) -> Cut:
        """What cutting the journal off behind a record would forget: `records`, and `effects` that would be done again.
        Changes nothing. Damaged if not all up to there is good; Refused in a bucket."""
        from ...workspace.lifecycle import truncate

        return truncate.plan(self.store, truncate_at)

    def holder(self) -> str:
        """In a bucket, the process that a take-over would take the run from, in words; empty if none has it. If it
        still works, it stops before its next effect. UsageError on a disk, where a lock tells."""
        from . import takeover

        return takeover.holder(self)
