"""What the references of a run hold, found out while the agent runs: a large file takes time to read."""

from __future__ import annotations

import asyncio

from ...workspace.base import SatchelError
from ...workspace.journal.records import Configured
from ..engine import Context
from . import preflight, references


class Contents:
    """For one opening. What is not found by its end is not recorded; the next start has nothing to compare then."""

    def __init__(self, context: Context):
        self._context = context
        self._looking: dict[str, asyncio.Task[None]] = {}
        self._is_over = False

    def find_unknown(self) -> None:
        """Look at the references whose content is not recorded."""
        workspace = self._context.workspace
        config = workspace.moment.config
        recorded = preflight.contents_in(config)
        for reference in (*workspace.definition.references, *config.get("references", ())):
            if workspace.redactor.text(reference) not in recorded:
                self.find(reference)

    def find(self, reference: str) -> None:
        """Look at one, and record it. If that is under way, it is not begun again."""
        if reference not in self._looking and not self._is_over:
            looking = asyncio.create_task(self._find(reference), name=f"reference {references.shown(reference)}")
            self._looking[reference] = looking
            looking.add_done_callback(lambda _: self._looking.pop(reference))

    async def end(self, *, waits: bool) -> None:
        """Find no more. With `waits`, what is under way has some seconds."""
        self._is_over = True
        if not (looking := list(self._looking.values())):
            return
        if waits:
            await asyncio.wait(looking, timeout=references.LIMIT)
        for task in looking:
            task.cancel()
        await asyncio.wait(looking)

    async def _find(self, reference: str) -> None:
        workspace = self._context.workspace
        key = workspace.redactor.text(reference)
        known = preflight.contents_in(workspace.moment.config).get(key, {})
        found = await references.look(reference, workspace.store.url, known)
        config = workspace.moment.config  # as it is after that
        contents = preflight.contents_in(config)
        if not found.content or found.file or contents.get(key) == found.content:
            return
        try:
            workspace.journal.add(Configured(config={**config, preflight.CONTENTS: {**contents, key: found.content}}))
        except SatchelError as error:
            self._context.stopping.fail(error)
