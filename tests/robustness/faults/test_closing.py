"""A store that is gone leaves nothing behind, wherever it was used."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

from servers import Server

from satchel.workspace.store import open_store


def test_a_store_that_is_dropped_in_a_loop_leaves_that_loop_alone(seaweedfs: Server) -> None:
    """Its connections belong to the thread that made the requests, not to the agent's loop."""
    troubles: list[dict[str, Any]] = []
    gc.collect()
    gc.freeze()  # from here on it looks only at what this test makes

    async def use_one() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, trouble: troubles.append(trouble))
        store = open_store(seaweedfs.place(), seaweedfs.storage_options())
        store.replace("state.json", b"{}")
        before = asyncio.all_tasks()
        del store
        gc.collect()
        assert asyncio.all_tasks() == before
        await asyncio.sleep(0)
        gc.collect()

    asyncio.run(use_one())
    gc.collect()
    assert not troubles
