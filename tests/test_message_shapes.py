"""What the messages of packages say: each text, call, result and image in them, and nothing twice."""

from __future__ import annotations

from typing import Any

import pytest

from satchel.runtime.present import message_parts, message_role

PNG = "iVBORw0KGgo="
URL = f"data:image/png;base64,{PNG}"


def said(content: Any) -> list[tuple[Any, ...]]:
    """The parts of a message, without what is empty."""
    found = message_parts(content)
    return [
        tuple(each for each in (part.kind, part.name, part.id, part.text or part.value) if each not in ("", None))
        + (("failed",) if part.is_error else ())
        for part in found
    ]


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        ("hello", [("text", "hello")]),
        ({"role": "tool", "tool_call_id": "a", "content": "[1, 2]"}, [("result", "a", [1, 2])]),
        (
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": '{"x": 1}'}}],
            },
            [("call", "f", "a", {"x": 1})],
        ),
        ({"role": "assistant", "content": "", "refusal": "no"}, [("text", "no")]),
        (
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "hi"}]},
            [("text", "hi")],
        ),
        (
            {"type": "function_call", "name": "f", "arguments": "{}", "call_id": "c", "id": "fc"},
            [("call", "f", "c", {})],
        ),
        ({"type": "function_call_output", "call_id": "c", "output": "done"}, [("result", "c", "done")]),
        ({"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "hm"}]}, [("thought", "hm")]),
        (
            {"type": "web_search_call", "id": "w", "action": {"query": "q"}},
            [("call", "web_search", "w", {"query": "q"})],
        ),
        ({"role": "user", "content": [{"type": "input_image", "image_url": URL}]}, [("image", URL)]),
        ({"role": "user", "content": [{"type": "image_url", "image_url": {"url": URL}}]}, [("image", URL)]),
        (
            [{"type": "thinking", "thinking": "t"}, {"type": "tool_use", "id": "u", "name": "n", "input": {"a": 1}}],
            [("thought", "t"), ("call", "n", "u", {"a": 1})],
        ),
        (
            [
                {
                    "type": "tool_result",
                    "tool_use_id": "u",
                    "content": [{"type": "text", "text": "no"}],
                    "is_error": True,
                }
            ],
            [("result", "u", "no", "failed")],
        ),
        (
            [
                {
                    "type": "tool_result",
                    "tool_use_id": "u",
                    "content": [{"type": "text", "text": "a"}, {"type": "image", "source": {"data": PNG}}],
                }
            ],
            [("result", "u", "a"), ("image", PNG)],
        ),
        (
            {"type": "assistant", "uuid": "x", "message": {"role": "assistant", "content": "of Claude"}},
            [("text", "of Claude")],
        ),
        ({"any": "thing"}, [("json", {"any": "thing"})]),
        ([1, 2], [("json", [1, 2])]),
        ({"type": "image_url", "image_url": {"url": 3}}, [("json", {"type": "image_url", "image_url": {"url": 3}})]),
        ({"type": "text", "text": None}, [("json", {"type": "text", "text": None})]),
        (None, []),
        ("  ", []),
    ],
)
def test_a_message_says_something_else(content: Any, wanted: list[Any]) -> None:
    assert said(content) == wanted


def test_a_message_of_pydantic_ai_is_json() -> None:
    messages = pytest.importorskip("pydantic_ai.messages")
    to_json = pytest.importorskip("pydantic_core").to_jsonable_python
    asked = messages.ModelRequest(
        parts=[
            messages.SystemPromptPart("Be brief"),
            messages.UserPromptPart(["look", messages.BinaryContent(b"\x89PNG\r\n\x1a\n", media_type="image/png")]),
            messages.ToolReturnPart("mail", {"sent": 1}, "c1"),
        ]
    )
    answered = messages.ModelResponse(
        parts=[
            messages.ThinkingPart("hm"),
            messages.TextPart("Hi"),
            messages.ToolCallPart("mail", '{"to": "ada"}', "c1"),
        ]
    )
    assert said(to_json(asked, bytes_mode="base64")) == [
        ("text", "Be brief"),
        ("text", "look"),
        ("image", PNG),
        ("result", "mail", "c1", {"sent": 1}),
    ]
    assert said(to_json(answered)) == [("thought", "hm"), ("text", "Hi"), ("call", "mail", "c1", {"to": "ada"})]


def test_a_message_of_langchain_is_json() -> None:
    """As `message_to_dict`, `dumpd` and `model_dump` write it; Anthropic's calls are in it twice."""
    core = pytest.importorskip("langchain_core.messages")
    dumpd = pytest.importorskip("langchain_core.load").dumpd
    use = {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}}
    call = {"name": "f", "args": {"a": 1}, "id": "t1"}
    made = core.AIMessage(content=[{"type": "text", "text": "hello"}, use], tool_calls=[call])
    for message, role, wanted in (
        (made, "assistant", [("text", "hello"), ("call", "f", "t1", {"a": 1})]),
        (core.AIMessage(content="", tool_calls=[call]), "assistant", [("call", "f", "t1", {"a": 1})]),
        (
            core.HumanMessage(content=[{"type": "image", "base64": PNG, "mime_type": "image/png"}]),
            "user",
            [("image", PNG)],
        ),
        (core.ToolMessage("ok", tool_call_id="t1", name="f"), "tool", [("result", "f", "t1", "ok")]),
    ):
        for content in (core.message_to_dict(message), dumpd(message), message.model_dump(mode="json")):
            assert (message_role("row", content), said(content)) == (role, wanted)


def test_a_deep_message_ends_the_page() -> None:
    deep: Any = "x"
    for _ in range(5000):
        deep = {"role": "user", "content": [deep]}
    assert [part.kind for part in message_parts(deep)] == ["json"]
