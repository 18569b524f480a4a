"""A model that says what is written here, turn by turn, so that the sample needs no key."""

from __future__ import annotations

from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult

NOTE = {"file_path": "/trip.md", "content": "# Trip\n"}
BOOKED = {"file_path": "/trip.md", "old_string": "# Trip\n", "new_string": "# Trip\n- a flight to Rome\n"}
TODOS = [{"content": "look at the weather", "status": "completed"}, {"content": "book", "status": "in_progress"}]
TURNS: list[list[tuple[str, dict[str, Any]]]] = [
    [("write_file", NOTE), ("weather", {"city": "Rome"})],
    [("write_todos", {"todos": TODOS}), ("book", {"city": "Rome"})],
    [("edit_file", BOOKED)],
]


class Script(BaseChatModel):
    @property
    def _llm_type(self) -> str:
        return "script"

    def bind_tools(self, tools: Any, **options: Any) -> Any:
        return self

    def _generate(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **options: Any
    ) -> ChatResult:
        turn = sum(each.type == "ai" for each in messages)
        print(f"asking the model, turn {turn + 1}")
        named = TURNS[turn] if turn < len(TURNS) else []
        calls = [{"name": name, "args": args, "id": f"{turn}-{name}"} for name, args in named]
        answer = AIMessage("" if calls else "The flight is booked.", tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=answer)])
