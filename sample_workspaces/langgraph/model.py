"""The model of the graph: a rule that plays one, so that the sample needs no key."""

from __future__ import annotations

from satchel import step


@step
async def ask_model(question: str) -> str:
    """Put a call of your model here. Its answer is on record when this returns."""
    print(f"asking: {question}")
    return "sun" if "Rome" in question else "rain"
