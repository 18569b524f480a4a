"""A chat model for deep agents that answers by a function of the messages."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic import Field

Answer = list[tuple[str, dict[str, Any]]] | str
"""The calls of tools that a model wants, or a text."""


def rounds(*turns: Answer) -> Callable[[list[BaseMessage]], Answer]:
    """These answers one after the other, and then a text of what the tools have returned."""

    def answer(messages: list[BaseMessage]) -> Answer:
        turn = sum(each.type == "ai" for each in messages)
        return turns[turn] if turn < len(turns) else json.dumps(outputs(messages))

    return answer


def outputs(messages: list[BaseMessage]) -> list[Any]:
    """What the tools have returned."""
    return [each.content for each in messages if each.type == "tool"]


class Answering(BaseChatModel):
    """Keeps the messages of each request in `asked`."""

    answer: Callable[[list[BaseMessage]], Answer]
    asked: list[list[BaseMessage]] = Field(default_factory=list)
    tick: Callable[[], None] = lambda: None

    @property
    def _llm_type(self) -> str:
        return "answering"

    def bind_tools(self, tools: Any, **options: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **more: Any) -> Any:
        self.asked.append(messages)
        self.tick()
        answer, turn = self.answer(messages), sum(each.type == "ai" for each in messages)
        self.tick()
        calls: list[Any] = []
        if not isinstance(answer, str):
            calls = [{"name": name, "args": args, "id": f"{turn}-{n}"} for n, (name, args) in enumerate(answer)]
        usage: Any = {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}
        message = AIMessage(answer if isinstance(answer, str) else "", tool_calls=calls, usage_metadata=usage)
        return ChatResult(generations=[ChatGeneration(message=message)])
