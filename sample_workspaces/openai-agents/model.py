"""A few rules that look like a model, so that the sample needs no key."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from agents import Model, ModelResponse, Usage, set_tracing_disabled
from agents.testing import assistant_message, function_call

set_tracing_disabled(True)  # else the SDK sends traces, if there is a key


class Rules(Model):
    """Asks for the weather in both cities, then for a flight to the sunny one."""

    async def get_response(self, system_instructions: Any, input: Any, *rest: Any, **more: Any) -> ModelResponse:
        seen = [item["output"] for item in input if item.get("type") == "function_call_output"]
        print(f"asking the model, who has seen {len(seen)} results")
        if not seen:
            output: list[Any] = [function_call("weather", {"city": city}, call_id=city) for city in ("Oslo", "Rome")]
        elif len(seen) == 2:
            output = [function_call("book", {"city": "Rome"}, call_id="book")]
        else:
            output = [assistant_message("; ".join(seen))]
        return ModelResponse(output, Usage(requests=1, total_tokens=10), None)

    def stream_response(self, *asked: Any, **more: Any) -> AsyncIterator[Any]:
        raise NotImplementedError
