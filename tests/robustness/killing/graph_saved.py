"""The graph of `graph`, with the SQLite saver of LangGraph."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from killing.graph import subject


@asynccontextmanager
async def sqlite(outside: Path) -> AsyncIterator[AsyncSqliteSaver]:
    outside.parent.mkdir(exist_ok=True)
    async with AsyncSqliteSaver.from_conn_string(str(outside.with_suffix(".sqlite"))) as saver:
        yield saver


SUBJECT = subject(sqlite)
