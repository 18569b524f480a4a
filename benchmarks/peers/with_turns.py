"""Pydantic AI: an agent that calls a tool in each turn, bare and with the adapter. No model is asked."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from pydantic_ai import Agent, ModelMessage, ModelResponse, TextPart, ToolCallPart, UsageLimits
from pydantic_ai.models.function import AgentInfo, FunctionModel

from .pairing import Pairing


def bare(folder: Path, pairing: Pairing) -> None:
    """It keeps nothing."""
    asyncio.run(_ask(_agent(pairing)))


def satchel(folder: Path, pairing: Pairing) -> None:
    from satchel import Run, agent
    from satchel.adapters.pydantic_ai import SatchelDurability

    from .with_satchel import start

    turns = _agent(pairing, SatchelDurability())

    @agent
    async def benchmark(run: Run[Any]) -> None:
        await _ask(turns)

    start(folder, benchmark)


async def _ask(turns: Agent[None, str]) -> None:
    await turns.run("Work.", usage_limits=UsageLimits(request_limit=None))


def _agent(pairing: Pairing, *capabilities: Any) -> Agent[None, str]:
    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        number = len(messages) // 2
        return ModelResponse([ToolCallPart("work", {"number": number}) if number < pairing.total else TextPart("done")])

    turns = Agent(FunctionModel(model), name="turns", capabilities=[*capabilities])

    @turns.tool_plain
    async def work(number: int) -> str:
        return pairing.body()

    return turns
