"""The OpenAI Agents SDK: a question and an answer are added to a session, as each turn of an agent does."""

from __future__ import annotations

import asyncio
from pathlib import Path

from agents import Session, SQLiteSession

from .pairing import Pairing


def sqlite(folder: Path, pairing: Pairing) -> None:
    session = SQLiteSession("benchmark", folder / "sessions.sqlite")
    asyncio.run(_turns(session, pairing))
    session.close()


def satchel(folder: Path, pairing: Pairing) -> None:
    from satchel.adapters.openai_agents import SatchelSession

    session = SatchelSession("benchmark", folder / "sessions")
    asyncio.run(_turns(session, pairing))
    session.close()


async def _turns(session: Session, pairing: Pairing) -> None:
    for number in range(len(await session.get_items()) // 2, pairing.total):
        answer = pairing.body()
        await session.add_items(
            [{"role": "user", "content": f"question {number}"}, {"role": "assistant", "content": answer}]
        )
