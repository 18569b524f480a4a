"""A few rules that look like a model, so that the sample needs no key."""

from __future__ import annotations

from pydantic_ai import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel


def rules(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Asks for the weather in both cities, then for a flight to the sunny one."""
    seen = [str(part.content) for each in messages for part in each.parts if isinstance(part, ToolReturnPart)]
    print(f"asking the model, who has seen {len(seen)} results")
    if not seen:
        return ModelResponse([ToolCallPart("weather", {"city": city}) for city in ("Oslo", "Rome")])
    if len(seen) == 2:
        return ModelResponse([ToolCallPart("book", {"city": "Rome"})])
    return ModelResponse([TextPart("; ".join(seen))])


RULES = FunctionModel(rules, model_name="rules")
