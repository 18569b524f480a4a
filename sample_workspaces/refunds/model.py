"""The model of the agent: an endpoint, or a few rules that look like one, so that the sample runs without a key."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator

from pydantic_ai import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel

SECONDS_A_WORD = 0.05


def endpoint(model: str) -> str | None:
    """The model of an endpoint, if the environment names one."""
    there = os.environ.get("OPENAI_API_KEY") or os.environ.get("OPENAI_BASE_URL")
    return f"openai-chat:{model}" if there else None


async def rules(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
    """Look up all orders at once, refund all that exist, and write a letter word by word."""
    prompts = [part for each in messages for part in each.parts if isinstance(part, UserPromptPart)]
    returned = [
        part
        for each in messages
        if isinstance(each, ModelRequest)
        for part in each.parts
        if isinstance(part, ToolReturnPart)
    ]
    looked_up = [part.model_response_object() for part in returned if part.tool_name == "look_up"]
    orders = [each for each in looked_up if "number" in each]
    numbers = re.findall(r"\d{4}", str(prompts[0].content))
    refunded = [str(part.content) for part in returned if part.tool_name == "refund"]
    if numbers and not looked_up:
        for place, number in enumerate(numbers):
            yield {place: DeltaToolCall("look_up", json.dumps({"number": number}), tool_call_id=f"look-up-{number}")}
    elif orders and not refunded:
        for place, order in enumerate(orders):
            wanted = json.dumps({"number": order["number"], "cents": order["cents"]})
            yield {place: DeltaToolCall("refund", wanted, tool_call_id=f"refund-{order['number']}")}
    else:
        found = ". ".join(refunded) or "We have found no such order"
        letter = f"Dear customer,\n\nwe are sorry. {found}.\n\nYour support"
        for word in re.findall(r"\S+\s*", letter.removeprefix(begun(messages))):
            yield word
            await asyncio.sleep(SECONDS_A_WORD)


def begun(messages: list[ModelMessage]) -> str:
    """The beginning of the letter, if this is to continue one that was cut off."""
    parts = messages[-2].parts if isinstance(messages[-2], ModelResponse) else ()
    return "".join(part.content for part in parts if isinstance(part, TextPart))


RULES = FunctionModel(stream_function=rules, model_name="rules")
