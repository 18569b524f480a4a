"""`clean`: whatever comes from outside, what it returns can be recorded and comes back equal."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

import satchel
from satchel import Run, agent, clean, run, step
from satchel.workspace.base.errors import NotSerializable


def deep(levels: int, inner: Any = 1) -> Any:
    for number in range(levels):
        inner = {"a": inner} if number % 2 else [inner]
    return inner


@pytest.mark.parametrize(
    "text, cleaned",
    [
        ("plain, é, 日, 😀, \ufeff, \x00", "plain, é, 日, 😀, \ufeff, \x00"),
        ("a\ud800b", "a\ufffdb"),
        ("\udc00", "\ufffd"),
        ("\ud83d\ude00", "😀"),  # as two pieces of a stream bring it
        ("\ud800\ud83d\ude00\ude00", "\ufffd😀\ufffd"),
        ("\ufeff\ud83d", "\ufeff\ufffd"),
    ],
    ids=ascii,
)
def test_half_of_a_surrogate_pair_stays(text: str, cleaned: str) -> None:
    assert clean(text) == cleaned
    assert clean([{text: (text, 1)}]) == [{cleaned: (cleaned, 1)}]


def test_a_number_that_is_none_stays() -> None:
    found = json.loads('{"a": [NaN, Infinity, -Infinity, 1e400, 1e300, -0.0, 12345678901234567890123]}')
    assert clean(found) == {"a": [None, None, None, None, 1e300, -0.0, 12345678901234567890123]}


def test_what_can_be_recorded_is_another_object() -> None:
    for value in ("text", 5, None, True, 1.5, [1, "a"], {"a": {"b": [None]}}, ("a", 1), b"bytes", deep(64)):
        assert clean(value) is value


@pytest.mark.parametrize("levels", [65, 90, 91, 200, 263])
def test_what_is_nested_too_deep_is_lost(levels: int) -> None:
    value: Any = clean(deep(levels))
    for _ in range(64):
        value = value["a"] if isinstance(value, dict) else value[0]
    assert isinstance(value, str) and json.loads(value) == deep(levels - 64)


def test_what_has_no_end_is_followed_for_ever() -> None:
    circle: list[Any] = []
    circle += [circle, {"a": circle}, 1]
    assert clean(circle) == ["…", {"a": "…"}, 1]
    assert clean(deep(60, circle)) == deep(60, ["…", {"a": "…"}, 1])
    for value in (deep(100, circle), deep(100_000)):
        found: Any = clean(value)
        for _ in range(64):
            found = found["a"] if isinstance(found, dict) else found[0]
        assert found == "…"


def test_another_value_is_changed() -> None:
    """It is no text from outside. What can't be recorded of it is an error, as without `clean`."""
    value = object()
    assert clean(value) is value and clean([value, "\ud800"]) == [value, "\ufffd"]


@step
async def fetch(what: Any) -> Any:
    return what


JSON = some.recursive(
    some.none() | some.booleans() | some.integers() | some.floats() | some.text(some.characters()),
    lambda inner: some.lists(inner) | some.dictionaries(some.text(some.characters()), inner),
    max_leaves=20,
)


@given(value=JSON)
def test_something_from_outside_can_not_be_kept(value: Any) -> None:
    cleaned = clean(value)
    again = json.loads(json.dumps(cleaned))
    assert again == cleaned and clean(cleaned) is cleaned
    json.dumps(cleaned, ensure_ascii=False, allow_nan=False).encode()


def test_a_run_dies_of_what_a_tool_says(workspace: Path) -> None:
    said = {"\ud800": ["\udfff", math.nan, deep(95)]}

    @agent
    async def main(run: Run[Any]) -> Any:
        async def talk() -> Any:
            with pytest.raises(NotSerializable):
                await fetch(said)
            found = await fetch(clean(said))
            assert await fetch(found) == found
            run.messages.add("tool", found)
            return found

        return await run.scope("talk", talk)

    first = run(workspace, main).raise_for_status()
    assert first.result == clean(said)
    assert run(workspace, main, wake=True).raise_for_status().result == first.result


_MODEL = """
from types import SimpleNamespace as Some

CALLS = __CALLS__
asked = 0


async def create(messages, **options):
    global asked
    asked += 1

    async def chunks():
        said = [each["content"] for each in messages if each["role"] == "tool"]
        if said:
            yield Some(choices=[Some(delta=Some(content="; ".join(said) + " a\\ud800b", tool_calls=None))])
            return
        for number, text in enumerate(CALLS):
            function = Some(name="weather" if number % 2 else "book", arguments=text)
            part = Some(index=number, id=f"c{number}", function=function)
            yield Some(choices=[Some(delta=Some(content=None, tool_calls=[part]))])

    return chunks()


client = Some(chat=Some(completions=Some(create=create)))
"""


def test_the_loop_of_the_page_dies_of_what_a_model_writes(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[3] / "docs/own-agent.md").read_text()
    (workspace / "agent.py").write_text(page.split("```python chat/agent.py\n")[1].split("```")[0])
    texts = [
        "no JSON",
        '{"city": NaN}',
        "[]",
        '{"town": "Rome"}',
        "{}",
        '{"city": "a\\ud800b"}',
        "[" * 100_000,
        "1e400",
    ]
    deep_city = json.dumps({"city": deep(150)})
    (workspace / "model.py").write_text(_MODEL.replace("__CALLS__", ascii([*texts, deep_city, deep_city, "\ud800"])))
    monkeypatch.syspath_prepend(str(workspace))
    monkeypatch.setitem(sys.modules, "model", None)  # what was imported by that name comes back after this test
    del sys.modules["model"]
    first = run(workspace)
    assert first.status == "waiting", first.error
    for question in first.approvals:
        satchel.open(workspace).answer("deny", question.id)
    outcome = run(workspace).raise_for_status()
    assert outcome.result.count("error: ") >= 6 and outcome.result.endswith("a\ufffdb")
    assert sys.modules["model"].asked == 2, "the model is asked again for what is on record"
