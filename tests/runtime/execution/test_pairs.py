"""A slice parts no call of a tool from its results, whatever package has made the messages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from satchel import Run, agent, run
from satchel.runtime.execution.messages import LOOK_BACK, Pairs
from satchel.workspace.views.conversation import mentions


class Turn(NamedTuple):
    """What one message says."""

    calls: tuple[str, ...] = ()
    results: tuple[str, ...] = ()


def of_chat(turn: Turn) -> Any:
    if turn.calls:
        calls = [{"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}} for id in turn.calls]
        return {"role": "assistant", "content": None, "tool_calls": calls}
    if turn.results:
        return {"role": "tool", "tool_call_id": turn.results[0], "content": '{"tool_calls": [{"id": "c1"}]}'}
    return {"role": "user", "content": "hello"}


def of_chat_without_role(turn: Turn) -> Any:
    whole = of_chat(turn)
    return whole["content"] if not (turn.calls or turn.results) else {**whole, "tool_calls": whole.get("tool_calls")}


def of_responses(turn: Turn) -> Any:
    items: list[Any] = [
        {"type": "function_call", "id": f"fc_{id}", "call_id": id, "name": "f", "arguments": "{}"} for id in turn.calls
    ]
    items += [{"type": "function_call_output", "call_id": id, "output": "found"} for id in turn.results]
    return items or {"role": "user", "content": [{"type": "input_text", "text": "hello"}]}


def of_one_item(turn: Turn) -> Any:
    """As a loop over `response.output` adds them: each item is a message of its own."""
    items = of_responses(turn)
    return items[0] if isinstance(items, list) and len(items) == 1 else items


def of_other_calls(turn: Turn) -> Any:
    items: list[Any] = [{"type": "custom_tool_call", "call_id": id, "name": "f", "input": ""} for id in turn.calls]
    items += [{"type": "custom_tool_call_output", "call_id": id, "output": "found"} for id in turn.results]
    return items or "hello"


def of_anthropic(turn: Turn) -> Any:
    blocks: list[Any] = [{"type": "text", "text": "so"}]
    blocks += [{"type": "tool_use", "id": id, "name": "f", "input": {"tool_use_id": "c1"}} for id in turn.calls]
    inner = [{"type": "tool_use", "id": "c1"}]
    blocks += [{"type": "tool_result", "tool_use_id": id, "content": inner} for id in turn.results]
    return blocks


def of_anthropic_message(turn: Turn) -> Any:
    return {"role": "assistant" if turn.calls else "user", "content": of_anthropic(turn)}


def of_pydantic_ai(turn: Turn) -> Any:
    message: ModelMessage
    if turn.calls:
        message = ModelResponse([TextPart("so"), *(ToolCallPart("f", {"tool_call_id": "c1"}, id) for id in turn.calls)])
    elif turn.results:
        inner = {"part_kind": "tool-call", "tool_call_id": "c1"}
        message = ModelRequest([ToolReturnPart("f", inner, tool_call_id=id) for id in turn.results])
    else:
        message = ModelRequest([UserPromptPart("hello")])
    return ModelMessagesTypeAdapter.dump_python([message], mode="json")[0]


def of_pydantic_ai_retry(turn: Turn) -> Any:
    """A tool asks for another try. A retry that is about no tool has an id, too."""
    if turn.calls:
        return of_pydantic_ai(turn)
    parts = [_retry(id, tool_name="f") for id in turn.results]
    return {"kind": "request", "parts": parts or [_retry("c1", tool_name=None)]}


def _retry(id: str, tool_name: str | None) -> dict[str, Any]:
    return {"part_kind": "retry-prompt", "content": "no", "tool_name": tool_name, "tool_call_id": id}


SHAPES: list[Callable[[Turn], Any]] = [
    of_chat,
    of_chat_without_role,
    of_responses,
    of_one_item,
    of_other_calls,
    of_anthropic,
    of_anthropic_message,
    of_pydantic_ai,
    of_pydantic_ai_retry,
]
CONVERSATION = [
    Turn(),
    Turn(calls=("c1", "c2")),
    Turn(results=("c1",)),
    Turn(results=("c2",)),
    Turn(),
    Turn(),
    Turn(calls=("c3",)),
    Turn(results=("c3",)),
    Turn(calls=("c1",)),  # a model that counts its calls anew in each answer
    Turn(results=("c1",)),
]
EXPECTED = {1: 2, 2: 2, 3: 2, 4: 4, 5: 5, 6: 6, 7: 6, 8: 6, 9: 9, 10: 10, 11: 10}
"""How many messages a slice of at most so many has."""


def sliced(workspace: Path, contents: list[Any], **asked: Any) -> list[Any]:
    async def talk(run: Run[Any]) -> list[Any]:
        for content in contents:
            run.messages.add("assistant", content)
        return [each["content"] for each in run.messages.slice(**asked)]

    @agent
    async def main(run: Run[Any]) -> list[Any]:
        return list(await run.scope("talk", talk, run))

    found = run(workspace, main).raise_for_status().result
    assert isinstance(found, list)
    return found


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_a_slice_begins_with_results_whose_calls_were_cut_off(shape: Callable[[Turn], Any]) -> None:
    for turn in CONVERSATION:
        found = [*mentions(msgspec.json.decode(msgspec.json.encode(shape(turn))))]
        assert [id for what, id in found if what == "call"] == [*turn.calls]
        assert [id for what, id in found if what == "result"] == [*turn.results]
    for most, expected in EXPECTED.items():
        pairs = Pairs()
        for turn in reversed(CONVERSATION):
            pairs.add(shape(turn))
        assert pairs.length(most) == expected, most


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
@pytest.mark.parametrize("most", [3, 7])
def test_a_run_gets_a_slice_that_a_model_refuses(workspace: Path, shape: Callable[[Turn], Any], most: int) -> None:
    contents = msgspec.json.decode(msgspec.json.encode([shape(turn) for turn in CONVERSATION]))
    assert sliced(workspace, contents, last=most) == contents[-EXPECTED[most] :]


def test_tokens_part_a_call_from_its_results(workspace: Path) -> None:
    contents = [of_chat(turn) for turn in CONVERSATION]
    asked = {"tokens": 70, "count": lambda text: 10}
    assert sliced(workspace, contents, **asked) == contents[-6:]


def test_results_without_a_call_hide_the_conversation(workspace: Path) -> None:
    """Nothing is cut off of them: they came without one."""
    lost = of_chat(Turn(results=("lost",)))
    pairs = Pairs()
    for content in ("last", lost, *map(str, range(2 * LOOK_BACK)), lost, "first"):
        pairs.add(content)
    assert pairs.lack_calls and all(pairs.length(most) == most for most in range(2 * LOOK_BACK + 5))
    contents = [*map(str, range(2 * LOOK_BACK)), lost, "last"]
    assert sliced(workspace, contents, last=5) == contents[-5:]


def test_a_newest_message_whose_call_is_nowhere_is_left_out(workspace: Path) -> None:
    contents = ["first", *map(str, range(LOOK_BACK)), of_chat(Turn(results=("lost",)))]
    assert sliced(workspace, contents, last=1) == contents[-1:]


IDS = some.sampled_from("abc")
TURNS = some.lists(
    some.builds(Turn, calls=some.lists(IDS, max_size=2, unique=True).map(tuple))
    | some.builds(Turn, results=some.lists(IDS, max_size=2, unique=True).map(tuple)),
    max_size=12,
)


@given(turns=TURNS, most=some.integers(1, 12))
def test_a_slice_of_any_conversation_parts_a_pair(turns: list[Turn], most: int) -> None:
    pairs = Pairs()
    for turn in reversed(turns):
        pairs.add(of_anthropic(turn))
    length = pairs.length(min(most, len(turns)))
    assert length == 0 if not turns else 1 <= length <= len(turns)

    def parts(length: int) -> bool:
        """Whether the newest call before a result of the slice is cut off."""
        begin = len(turns) - length
        for at in range(begin, len(turns)):
            for id in turns[at].results:
                before = [number for number in range(at) if id in turns[number].calls]
                if before and before[-1] < begin:
                    return True
        return False

    assert not parts(length)
    assert length <= most or all(parts(each) for each in range(1, length))
