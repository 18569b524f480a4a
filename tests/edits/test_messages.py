"""messages.jsonl: what people correct in it is obeyed, and what it only lacks is written again."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import satchel
from satchel import Item, Run, agent, step
from satchel.workspace import journal
from satchel.workspace.base.errors import InvalidFile, SatchelError, UsageError
from satchel.workspace.inspect import Report
from satchel.workspace.journal import Edited, segment_log
from satchel.workspace.lifecycle import opened, retention, workspace
from satchel.workspace.store import DiskStore

from .folder import Place
from .running import Gate, going

NAME = "messages.jsonl"
Lines = list[dict[str, Any]]

seen: list[list[Any]] = []
fails: set[str] = set()


@pytest.fixture(autouse=True)
def fresh() -> None:
    seen.clear()
    fails.clear()


@step
def think(text: str) -> str:
    return text.upper()


async def talk(run: Run[Any], item: Item) -> None:
    seen.append([message["content"] for message in run.messages.all()])
    run.messages.add("user", item.text)
    run.messages.add("assistant", await think(item.text))
    if item.text in fails:
        raise TypeError(item.text)


@agent
async def talker(run: Run[Any]) -> list[Any]:
    if not run.todo.items:
        await run.plan(None, ["a", "b", "c", "d"])
    await run.todo.each(talk)
    return [message["content"] for message in run.messages.all()]


@pytest.fixture
def talked(place: Place) -> Place:
    """Stopped in the third item: `a`, `A`, `b` and `B` are said."""
    place.agent = talker
    fails.add("c")
    assert place.run().status == "failed"
    fails.clear()
    seen.clear()
    return place


def lines_of(place: Place, path: str = NAME) -> Lines:
    return [json.loads(line) for line in place.text(path).splitlines()]


def said(place: Place, path: str = NAME) -> list[Any]:
    return [line["content"] for line in lines_of(place, path)]


def save(place: Place, lines: Lines, path: str = NAME) -> None:
    place.put(path, "".join(json.dumps(line) + "\n" for line in lines))


def new(content: Any, role: str = "system") -> dict[str, Any]:
    return {"role": role, "content": content}


CUT = {"cut": True}

ACTS: dict[str, tuple[Callable[[Lines], Lines], str, str]] = {
    "a word is changed": (lambda m: [m[0], m[1] | {"content": "Ah"}, *m[2:]], "a Ah b B", 'now says "Ah"'),
    "a role is changed": (lambda m: [m[0] | {"role": "system"}, *m[1:]], "a A b B", "which was of user"),
    "one is removed": (lambda m: [m[0], *m[2:]], "a b B", 'assistant: "A") is removed'),
    "the first are removed": (lambda m: m[2:], "b B", "is removed"),
    "one is inserted": (lambda m: [m[0], new("hm"), *m[1:]], "a hm A b B", "a new message of system before message"),
    "one comes first": (lambda m: [new("hm"), *m], "hm a A b B", "a new message"),
    "two are added": (lambda m: [*m, new("x"), new("y")], "a A b B x y", "at the end"),
    "two are inserted": (lambda m: [m[0], new("x"), new("y"), *m[1:]], "a x y A b B", "a new message"),
    "one is moved up": (lambda m: [m[2], m[0], m[1], m[3]], "b a A B", "is removed"),
    "one is copied": (lambda m: [*m[:2], new("a", "user"), *m[2:]], "a A a b B", "a new message of user"),
    "all at once": (lambda m: [new("x"), m[1] | {"content": "y"}, new("z"), m[3]], "x y z B", "is removed"),
    "it is cut": (lambda m: [*m[:2], CUT], "a A", "2 messages after message"),
    "the rest stays behind the cut": (lambda m: [*m[:2], CUT, *m[2:]], "a A", "are cut off"),
    "it goes on another way": (lambda m: [*m[:2], CUT, new("instead")], "a A instead", "are cut off"),
    "all is cut": (lambda m: [CUT], "", "4 messages of the conversation are cut off"),
    "another one begins": (lambda m: [CUT, new("hello")], "hello", "are cut off"),
    "one is changed and the end is missing": (lambda m: [m[0] | {"content": "x"}], "x A b B", "now says"),
    "the end is missing, and one is added": (lambda m: [m[0], new("x")], "a A b B x", "at the end"),
    "one is moved, and the rest stays behind a cut": (lambda m: [m[1], m[0], CUT, *m[2:]], "A a", "are cut off"),
    "new ones have a time": (lambda m: [m[0] | {"content": "x"}, m[1] | {"seq": m[1]["seq"]}], "x A b B", "says"),
}


@pytest.mark.sampled(every=7)
@pytest.mark.parametrize("name", ACTS)
def test_what_a_person_has_corrected_is_said_once_more(talked: Place, name: str) -> None:
    change, after, says = ACTS[name]
    before = lines_of(talked)
    save(talked, change(before))
    outcome = talked.run()
    assert outcome.status == "completed", outcome.error
    assert seen[0] == after.split() and said(talked)[: len(after.split())] == after.split()
    assert said(talked) == [*after.split(), "c", "C", "d", "D"] == outcome.result, "finished items are not done again"
    told = [each for record in talked.edited for each in record.says]
    assert says in " ".join(told) and all(record.file == NAME and record.by for record in talked.edited)
    assert [record.sha != "" for record in talked.edited] == [False] * (len(talked.edited) - 1) + [True]
    numbers = [line["seq"] for line in lines_of(talked)]
    assert len({*numbers}) == len(numbers)
    known = {line["seq"]: line["at"] for line in before}
    assert all(known.get(line["seq"], line["at"]) == line["at"] for line in lines_of(talked))
    assert not talked.look().is_anything and not talked.there("*rejected*")


def test_what_is_missing_at_the_end_is_never_an_edit(talked: Place) -> None:
    whole = talked.get(NAME)
    for length in range(len(whole) + 1):
        data = whole[:length] + b"\0" * (length % 2 * 7)
        talked.put(NAME, data)
        noticed = talked.look()
        assert not noticed.is_anything and not noticed.overruled, data
    for data in (whole[:40], b"", b"\n\n", b"\0" * 9, None):
        (talked.folder / NAME).unlink() if data is None else talked.put(NAME, data)
        talked.recover()
        assert talked.get(NAME) == whole and not talked.edited and not talked.there("*rejected*")
    assert talked.run().result == ["a", "A", "b", "B", "c", "C", "d", "D"]


def test_another_layout_is_no_edit(talked: Place) -> None:
    whole = talked.get(NAME)
    for data in (
        "".join(json.dumps(line, indent=None, separators=(" , ", " : ")) + "\r\n\r\n" for line in lines_of(talked)),
        "".join(json.dumps(line, sort_keys=True) + "\n" for line in lines_of(talked)),
        "\n".join(json.dumps({"role": line["role"], "content": line["content"]}) for line in lines_of(talked)),
    ):
        talked.put(NAME, data)
        assert "has the same content" in " ".join(talked.look().told)
        talked.recover()
        assert talked.get(NAME) == whole and not talked.edited


REFUSED: dict[str, tuple[Callable[[Lines], str | bytes], str]] = {
    "no JSON": (lambda m: f'{json.dumps(m[0])}\n{{"role": "user", content}}\n{json.dumps(m[1])}\n', "line 2"),
    "a text": (
        lambda m: f"Be brief.\n{json.dumps(m[0])}\n",
        'line 1: found "Be brief.", expected one message as JSON. Each message is one line, such as {"role": ',
    ),
    "a message over two lines": (
        lambda m: f'{{"role": "user",\n"content": "x"}}\n{json.dumps(m[0])}\n',
        "Add the }. Each message is one line",
    ),
    "no object": (lambda m: f'{json.dumps(m[0])}\n["user", "x"]\n', "line 2"),
    "no role": (lambda m: f'{json.dumps(m[0])}\n{{"content": "x"}}\n', "line 2 (role)"),
    "a number as its role": (lambda m: '{"role": 3, "content": "x"}\n', "line 1 (role)"),
    "no content": (lambda m: '{"role": "user"}\n', "line 1 (content)"),
    "another key": (lambda m: '{"role": "user", "content": "x", "name": "y"}\n', 'the key "name"'),
    "an unknown seq": (lambda m: '{"seq": 3, "role": "user", "content": "x"}\n', "line 1 (seq)"),
    "a later seq": (lambda m: json.dumps(m[0] | {"seq": 10**6}) + "\n", "line 1 (seq)"),
    "a seq of text": (lambda m: json.dumps(m[0] | {"seq": "7"}) + "\n", "line 1 (seq)"),
    "true for a seq": (lambda m: json.dumps(m[0] | {"seq": True}) + "\n", "line 1 (seq)"),
    "a seq twice": (lambda m: f"{json.dumps(m[0])}\n" * 2, "which line 1 has, too"),
    "another time": (lambda m: json.dumps(m[0] | {"at": "2020-01-01T00:00:00.000Z"}) + "\n", "line 1 (at)"),
    "no cut": (lambda m: f'{json.dumps(m[0])}\n{{"cut": false}}\n', "line 2"),
    "a cut at a message": (lambda m: json.dumps(m[0] | {"cut": True}) + "\n", "line 1"),
    "two cuts": (lambda m: '{"cut": true}\n{"cut": true}\n', "a second cut"),
    "a key twice": (lambda m: '{"role": "user", "role": "user", "content": "x"}\n', "line 1"),
    "bytes that are no text": (lambda m: b'{"role": "user", "content": "\xff"}\n', "UTF-8"),
    "an edit that was not saved to its end": (
        lambda m: json.dumps(m[0] | {"content": "x"}) + '\n{"role": "us',
        "line 2: found the beginning of a line",
    ),
    "another run's": (
        lambda m: "".join(json.dumps(line | {"at": "2020-01-01T00:00:00.000Z"}) + "\n" for line in m),
        "line 1 (at)",
    ),
}


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("name", REFUSED)
def test_what_can_not_be_taken_is_refused_with_its_line_and_kept(talked: Place, name: str) -> None:
    change, why = REFUSED[name]
    whole, theirs = talked.get(NAME), change(lines_of(talked))
    talked.put(NAME, theirs)
    theirs = talked.get(NAME)
    (refusal,) = talked.look().refusals
    assert why in str(refusal.error) and refusal.path == NAME
    with pytest.raises(SatchelError) as error:
        talked.run()
    assert why in str(error.value) and "messages.rejected.jsonl" in str(error.value)
    assert talked.get(NAME) == whole and talked.get("messages.rejected.jsonl") == theirs
    assert why in talked.text("messages.rejected.txt")
    assert talked.run().result == ["a", "A", "b", "B", "c", "C", "d", "D"]


def test_a_line_that_is_not_complete_is_no_message_and_is_kept(talked: Place) -> None:
    whole = talked.get(NAME)
    talked.put(NAME, theirs := whole + b'{"role": "user", "cont')
    said_of_it = talked.recover()
    assert talked.get(NAME) == whole and talked.get("messages.rejected.jsonl") == theirs
    assert any("incomplete line" in each and "messages.rejected.jsonl" in each for each in said_of_it)
    assert not talked.edited


def test_the_beginning_of_a_known_line_does_not_spoil_an_edit(talked: Place) -> None:
    found = lines_of(talked)
    rows = talked.get(NAME).splitlines()
    talked.put(NAME, json.dumps(found[0] | {"content": "x"}).encode() + b"\n" + rows[1][:30])
    talked.recover()
    assert said(talked) == ["x", "A", "b", "B"] and not talked.there("*rejected*")


def test_a_hole_at_the_end_does_not_spoil_an_edit(talked: Place) -> None:
    found = lines_of(talked)
    talked.put(NAME, json.dumps(found[0] | {"content": "x"}).encode() + b"\n" + b"\0" * 50)
    talked.recover()
    assert said(talked) == ["x", "A", "b", "B"] and not talked.there("*rejected*")


def test_an_edit_that_a_power_failure_brings_back_is_not_taken_twice(talked: Place) -> None:
    before = talked.get(NAME)
    save(talked, [*lines_of(talked), new("x")])
    theirs = talked.get(NAME)
    talked.recover()
    whole = talked.get(NAME)
    for data in (theirs, before, before[:50]):
        talked.put(NAME, data)
        talked.recover()
        assert talked.get(NAME) == whole and said(talked) == ["a", "A", "b", "B", "x"]
    assert len(talked.edited) == 1


@pytest.mark.sampled(every=7)
@pytest.mark.parametrize("name", ACTS)
def test_an_edit_is_lost_whose_records_a_power_failure_cuts_short(talked: Place, name: str) -> None:
    change, after, _ = ACTS[name]
    save(talked, change(lines_of(talked)))
    edited = talked.get(NAME)
    kept = talked.folder.with_name("kept")
    shutil.copytree(talked.folder, kept)
    with opened(DiskStore(talked.folder), "edit", Report()):
        pass
    last = sorted((talked.folder / "journal").glob("*.jsonl"))[-1]
    rows = last.read_bytes().splitlines(keepends=True)
    first = next(number for number, row in enumerate(rows) if b'"edited"' in row)
    shutil.rmtree(talked.folder)
    shutil.copytree(kept, talked.folder)
    last.write_bytes(b"".join(rows[: first + 1]))
    assert talked.get(NAME) == edited
    outcome = talked.run()
    assert outcome.status == "completed", outcome.error
    assert said(talked)[: len(after.split())] == after.split()


def test_an_older_file_is_rolled_forward(talked: Place) -> None:
    versions = [talked.get(NAME)]
    for change in (
        lambda m: [*m[:2], CUT],
        lambda m: [new("x"), *m],
        lambda m: [m[0], m[1] | {"content": "y"}, *m[2:]],
    ):
        save(talked, change(lines_of(talked)))
        talked.recover()
        versions.append(talked.get(NAME))
    edits = len(talked.edited)
    for older in versions[:-1]:
        talked.put(NAME, older)
        assert "older than the last edit" in " ".join(talked.look().told)
        talked.recover()
        assert talked.get(NAME) == versions[-1]
    assert len(talked.edited) == edits


def test_a_new_line_that_is_saved_again_without_its_number_is_the_same_one(talked: Place) -> None:
    found = lines_of(talked)
    save(talked, [found[0], new("x"), *found[1:], new("y")])
    talked.recover()
    save(talked, [found[0], new("x"), *found[1:3], found[3] | {"content": "z"}, new("y")])
    talked.recover()
    assert said(talked) == ["a", "x", "A", "b", "z", "y"]


def test_edits_of_edits(talked: Place) -> None:
    save(talked, [new("x"), *lines_of(talked)])
    talked.recover()
    found = lines_of(talked)
    save(talked, [found[0] | {"content": "xx"}, new("w"), *found[1:]])
    talked.recover()
    found = lines_of(talked)
    save(talked, [found[1], found[2], CUT])
    assert talked.run().result == ["w", "a", "c", "C", "d", "D"]


def test_a_conversation_may_be_begun_by_hand(place: Place) -> None:
    place.agent = talker
    save(place, [new("You are kind."), new("hi", "user")])
    assert place.run().status == "completed"
    assert said(place)[:4] == ["You are kind.", "hi", "a", "A"] and seen[0] == ["You are kind.", "hi"]


def test_a_finished_run_stays_finished(talked: Place) -> None:
    assert talked.run().status == "completed"
    found = lines_of(talked)
    save(talked, [*found[:2], CUT])
    seen.clear()
    assert talked.run().status == "completed" and not seen
    assert said(talked) == ["a", "A"]


def test_the_conversation_of_a_sub_agent(stopped: Place) -> None:
    assert stopped.run("bob 1").status == "failed"
    assert stopped.run("three").status == "failed"
    for path, name in (("agents/bob/messages.jsonl", "bob"), ("agents/bob/agents/carol/messages.jsonl", "bob/carol")):
        found = lines_of(stopped, path)
        save(stopped, [found[0] | {"content": "corrected"}, *found[1:], new("more")], path)
        stopped.recover()
        assert said(stopped, path) == ["corrected", *[line["content"] for line in found[1:]], "more"]
        assert stopped.edited[-1].agent == name and stopped.edited[-1].file == path
    assert stopped.run().status == "completed"


@pytest.mark.parametrize("crashes", [False, True])
def test_a_run_without_the_file_of_an_edit_has_the_edit(
    talked: Place, crashes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed when the edit was recorded, and before a file or a checkpoint showed it."""
    from satchel.workspace.lifecycle import opening

    found = lines_of(talked)
    save(talked, [new("x"), found[0], found[1] | {"content": "y"}, CUT])

    class Killed(BaseException):
        pass

    def kill(*words: Any, **named: Any) -> None:
        raise Killed

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(opening, "_project", kill)
        talked.recover()
    if crashes:
        (talked.folder / NAME).write_bytes(b"")
    assert talked.run().result == ["x", "a", "y", "c", "C", "d", "D"] == said(talked)


# Calls of tools


def _openai() -> list[Any]:
    call = {"role": "assistant", "tool_calls": [{"id": "t1", "type": "function"}, {"id": "t2", "type": "function"}]}
    results = [{"role": "tool", "tool_call_id": id, "content": "sun"} for id in ("t1", "t2")]
    return ["weather?", call, *results, "sunny"]


def _anthropic() -> list[Any]:
    call = [{"type": "text", "text": "let me see"}, {"type": "tool_use", "id": "t1"}, {"type": "tool_use", "id": "t2"}]
    results = [{"type": "tool_result", "tool_use_id": id, "content": "sun"} for id in ("t1", "t2")]
    return ["weather?", call, results, "sunny"]


def _pydantic() -> list[Any]:
    call = {"kind": "response", "parts": [{"part_kind": "tool-call", "tool_name": "sky", "tool_call_id": "t1"}]}
    result = {"kind": "request", "parts": [{"part_kind": "tool-return", "tool_name": "sky", "tool_call_id": "t1"}]}
    return ["weather?", call, result, "sunny"]


def _responses() -> list[Any]:
    return [
        "weather?",
        {"type": "function_call", "call_id": "t1"},
        {"type": "function_call_output", "call_id": "t1", "output": "sun"},
        "sunny",
    ]


SHAPES = {"openai": _openai, "anthropic": _anthropic, "pydantic": _pydantic, "responses": _responses}


def conversing(place: Place, contents: list[Any]) -> None:
    async def say(run: Run[Any]) -> None:
        for content in contents:
            run.messages.add("user", content)

    @agent
    async def main(run: Run[Any]) -> None:
        await run.scope("say", say, run)

    place.agent = main
    assert place.run().status == "completed"


@pytest.mark.parametrize("shape", SHAPES)
def test_a_call_that_is_removed_takes_its_results_along(place: Place, shape: str) -> None:
    contents = SHAPES[shape]()
    conversing(place, contents)
    found = lines_of(place)
    save(place, [found[0], *found[2:]])
    place.recover()
    assert said(place) == [contents[0], contents[-1]]
    assert "the result of a call that is removed" in " ".join(place.edited[0].says)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_call_that_is_reworded_away_takes_its_results_along(place: Place, shape: str) -> None:
    conversing(place, SHAPES[shape]())
    found = lines_of(place)
    save(place, [found[0], found[1] | {"content": "I guess"}, *found[2:]])
    place.recover()
    assert said(place) == ["weather?", "I guess", "sunny"]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_result_is_not_removed_alone_nor_cut_off(place: Place, shape: str) -> None:
    conversing(place, SHAPES[shape]())
    found = lines_of(place)
    for change in ([*found[:2], *found[3:]], [*found[:2], CUT]):
        save(place, change)
        (refusal,) = place.look().refusals
        assert 'line 2: found the call "t1"' in str(refusal.error), refusal.error
    save(place, [found[0], CUT])
    place.recover()
    assert said(place) == ["weather?"]


def test_a_message_that_says_more_than_a_result_is_not_removed_with_the_call(place: Place) -> None:
    contents = _anthropic()
    contents[2] = [*contents[2], {"type": "text", "text": "and I add"}]
    conversing(place, contents)
    found = lines_of(place)
    save(place, [found[0], *found[2:]])
    (refusal,) = place.look().refusals
    assert 'line 2: found the result of the call "t1"' in str(refusal.error)


def test_one_of_two_calls_takes_its_own_result_along(place: Place) -> None:
    contents = _openai()
    conversing(place, contents)
    found = lines_of(place)
    one = contents[1] | {"tool_calls": contents[1]["tool_calls"][:1]}
    save(place, [found[0], found[1] | {"content": one}, *found[2:]])
    place.recover()
    assert said(place) == [contents[0], one, contents[2], contents[4]]


def test_a_result_without_a_call_is_not_inserted(place: Place) -> None:
    conversing(place, ["hi"])
    save(place, [*lines_of(place), new({"role": "tool", "tool_call_id": "t9", "content": "x"}, "tool")])
    (refusal,) = place.look().refusals
    assert isinstance(refusal.error, InvalidFile) and 'line 2: found the result of the call "t9"' in str(refusal.error)


# Secrets


def test_an_edit_neither_brings_a_secret_nor_changes_what_stands_for_one(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_KEY", "s3cr3t-value")
    place.put("workspace.yaml", "format: 1\nrun_id: run-1\nagent: agent.py:main\nredact: {env: [API_KEY]}\n")
    conversing(place, ["the key is s3cr3t-value", "ok"])
    found = lines_of(place)
    assert found[0]["content"] == "the key is [redacted:API_KEY]"
    save(place, [found[0] | {"content": "the key was [redacted:API_KEY]"}, found[1], new("use s3cr3t-value", "user")])
    place.recover()
    assert said(place) == ["the key was [redacted:API_KEY]", "ok", "use [redacted:API_KEY]"]
    for path in place.folder.rglob("*"):
        assert path.is_dir() or b"s3cr3t-value" not in path.read_bytes(), path
    save(place, [*lines_of(place), new("s3cr3t-value"), {"role": 3}])
    with pytest.raises(SatchelError) as error:
        place.recover()
    assert "s3cr3t" not in str(error.value) and b"s3cr3t" not in place.get("messages.rejected.jsonl")


# While it runs


def make(gate: Gate) -> Any:
    @step
    def pause(name: str) -> None:
        gate.pass_through(name)

    async def item(run: Run[Any], item: Item) -> None:
        seen.append([message["content"] for message in run.messages.all()])
        run.messages.add("user", item.text)
        await pause(f"{item.text} 1")
        run.messages.add("assistant", item.text.upper())

    @agent
    async def main(run: Run[Any]) -> list[Any]:
        if not run.todo.items:
            await run.plan(None, ["a", "b", "c"])
        await run.todo.each(item)
        return [message["content"] for message in run.messages.all()]

    return main


LIVE: dict[str, tuple[Callable[[Lines], Lines], str]] = {
    "changed": (lambda m: [m[0], m[1] | {"content": "Ah"}], "a Ah b B"),
    "removed": (lambda m: m[1:], "A b B"),
    "inserted": (lambda m: [m[0], new("x"), m[1]], "a x A b B"),
    "added": (lambda m: [*m, new("x")], "a A b B x"),
    "cut": (lambda m: [m[0], CUT], "a b B"),
    "cut, and another way": (lambda m: [CUT, new("x")], "b B x"),
}


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("name", LIVE)
def test_an_edit_is_merged_with_what_comes_meanwhile(place: Place, name: str) -> None:
    gate = Gate("b 1")
    change, after = LIVE[name]
    with going(place, make(gate), gate) as running:
        running.reach("b 1")
        running.until(lambda: place.there(NAME) and len(lines_of(place)) == 2, "the conversation")
        save(place, change(lines_of(place)))
        running.until_told(f"{NAME} was saved")
        gate.open()
        outcome = running.end()
    assert outcome.result == said(place) == [*after.split(), "c", "C"], running.told.lines
    assert seen[-1] == after.split() and len(seen) == 3, "nothing was done again"
    assert not place.there("*rejected*") and place.edited[-1].file == NAME


def test_a_refused_edit_does_not_stop_a_run_that_goes_on(place: Place) -> None:
    gate = Gate("b 1")
    with going(place, make(gate), gate) as running:
        running.reach("b 1")
        running.until(lambda: place.there(NAME) and len(lines_of(place)) == 2, "the conversation")
        place.put(NAME, "no JSON\n")
        running.until_told("refused: messages.jsonl, line 1")
        gate.open()
        outcome = running.end()
    assert outcome.result == said(place) == ["a", "A", "b", "B", "c", "C"] and not place.edited
    assert place.text("messages.rejected.jsonl") == "no JSON\n"


@pytest.mark.parametrize("data", [None, b"", b'{"seq":'])
def test_a_file_that_is_lost_during_the_run_is_restored(place: Place, data: bytes | None) -> None:
    gate = Gate("b 1", "c 1")
    with going(place, make(gate), gate) as running:
        running.reach("b 1")
        running.until(lambda: place.there(NAME) and len(lines_of(place)) == 2, "the conversation")
        (place.folder / NAME).unlink() if data is None else place.put(NAME, data)
        gate.open("b 1")
        running.reach("c 1")
        running.until(lambda: place.there(NAME) and place.get(NAME).endswith(b'"B"}\n'), "the file")
        gate.open()
        outcome = running.end()
    assert outcome.result == said(place) == ["a", "A", "b", "B", "c", "C"]
    assert not place.edited and not place.there("*rejected*")


def test_the_journal_says_what_the_file_says(talked: Place) -> None:
    save(talked, [new("x"), *lines_of(talked)[1:]])
    talked.recover()
    (line,) = [each for each in journal.read(talked.store, after=0).lines if _is_new(each.record)]
    assert line.seq == lines_of(talked)[0]["seq"] and line.at == lines_of(talked)[0]["at"]


def _is_new(record: Any) -> bool:
    return isinstance(record, Edited) and any(not each.seq for each in record.messages)


# Where it is told, and cut off by a command


def test_every_view_of_the_past_tells_the_edit(talked: Place) -> None:
    first = talked.moment.seq
    found = lines_of(talked)
    save(talked, [new("x"), found[0] | {"content": "y"}, *found[2:]])
    handle = satchel.open(talked.folder)
    noticed = handle.status().noticed
    assert noticed is not None and len(noticed.edits) == 3
    planned = " ".join(handle.check().planned)
    assert "now says" in planned and "is removed" in planned and "a new message" in planned
    talked.recover()
    records = [row.record for row in handle.history.log(type="edited")]
    assert [each["file"] for each in records] == [NAME] * 3 and all(each["by"] for each in records)
    changes = {(each.kind, (each.old or each.new or {})["content"]) for each in handle.history.diff(first).messages}
    assert changes == {("added", "x"), ("changed", "a"), ("removed", "A")}
    origins = {each.value["content"]: each.origin for each in handle.history.blame(NAME).values}
    assert {content: each.kind for content, each in origins.items()} == {
        "x": "edit",
        "y": "edit",
        "b": "commit",
        "B": "commit",
    }
    assert origins["x"].by == records[0]["by"] and origins["b"].title == "b"
    assert [each.value["content"] for each in handle.history.blame(f"{NAME}/{found[0]['seq']}").values] == ["y"]
    with pytest.raises(UsageError, match="there is no"):
        handle.history.blame(f"{NAME}/{found[1]['seq']}")
    shown = [[each["content"] for each in handle.history.show(at).agents[0].messages or ()] for at in (first, "latest")]
    assert shown == [["a", "A", "b", "B"], ["x", "y", "b", "B"]]
    assert handle.history.diff("latest", "latest").is_empty


def test_a_conversation_is_cut_off(talked: Place) -> None:
    handle, found = satchel.open(talked.folder), lines_of(talked)
    cut = handle.files.cut_messages(found[1]["seq"])
    assert cut.says == (f"2 messages after message {found[1]['seq']} are cut off",)
    assert said(talked) == ["a", "A"] and not cut.waits_for and not talked.look().is_anything
    assert handle.files.cut_messages(found[1]["seq"]).says == ()
    for wrong in (found[2]["seq"], 10**6):
        with pytest.raises(UsageError, match="has no message"):
            handle.files.cut_messages(wrong)
    with pytest.raises(UsageError, match="no agent 'bob'"):
        handle.files.cut_messages(0, agent="bob")
    handle.files.cut_messages(0)
    assert said(talked) == []
    assert talked.run().result == ["c", "C", "d", "D"]


def test_a_cut_that_is_refused_is_taken_later(talked: Place) -> None:
    before, seq = talked.get(NAME), lines_of(talked)[1]["seq"]
    state = talked.get("state.json")
    talked.put("state.json", state.decode().replace('"format": 1', '"format": 1, "note": 1'))
    with pytest.raises(SatchelError, match=r"state\.json"):
        satchel.open(talked.folder).files.cut_messages(seq)
    assert talked.get(NAME) == before


def test_the_same_cut_is_made_twice(talked: Place) -> None:
    talked.put(NAME, '{"cut": true}\n')
    os.utime(talked.folder / NAME, (1e9, 1e9))
    fails.add("d")
    assert talked.run().status == "failed" and said(talked) == ["c", "C"]
    talked.put(NAME, '{"cut": true}\n')
    talked.recover()
    assert said(talked) == []
    fails.clear()
    assert talked.run().result == ["d", "D"]
    handle = satchel.open(talked.folder)
    for _ in range(2):
        assert handle.files.cut_messages(0).says
        assert said(talked) == []
        save(talked, [new("x"), new("y")])
        talked.recover()


def test_a_cut_goes_with_an_edit_that_is_not_taken_yet(talked: Place) -> None:
    found = lines_of(talked)
    save(talked, [found[0] | {"content": "x"}, *found[1:], new("y")])
    satchel.open(talked.folder).files.cut_messages(found[1]["seq"])
    assert said(talked) == ["x", "A"]


def test_a_call_is_not_cut_off_from_its_result(place: Place) -> None:
    conversing(place, _openai())
    found, whole = lines_of(place), place.get(NAME)
    with pytest.raises(InvalidFile, match='line 2: found the call "t1"'):
        satchel.open(place.folder).files.cut_messages(found[1]["seq"])
    assert place.get(NAME) == whole


def test_a_run_that_goes_on_takes_the_cut_at_its_next_safe_point(place: Place) -> None:
    gate = Gate("b 1")
    with going(place, make(gate), gate) as running:
        running.reach("b 1")
        running.until(lambda: place.there(NAME) and len(lines_of(place)) == 2, "the conversation")
        cut = satchel.open(place.folder).files.cut_messages(lines_of(place)[0]["seq"])
        assert cut.waits_for and cut.says
        running.until_told(f"{NAME} was saved")
        gate.open()
        outcome = running.end()
    assert outcome.result == said(place) == ["a", "b", "B", "c", "C"]


# Where the journal goes another way


def test_a_fork_has_the_conversation_of_its_moment(talked: Place, tmp_path: Path) -> None:
    before = talked.moment.seq
    found = lines_of(talked)
    save(talked, [new("x"), found[0], found[1] | {"content": "y"}, CUT])
    talked.recover()
    handle = satchel.open(talked.folder)
    for at, expected in ((before, ["a", "A", "b", "B"]), (None, ["x", "a", "y"])):
        handle.history.fork(tmp_path / f"fork-{at}", at=at)
        fork = Place(tmp_path / "other")
        fork.folder, fork.store, fork.agent = tmp_path / f"fork-{at}", DiskStore(tmp_path / f"fork-{at}"), talker
        assert said(fork) == expected
        lines = lines_of(fork)
        save(fork, [lines[0], lines[1] | {"content": "z"}, *lines[2:]])  # of a message that its journal does not have
        fork.recover()
        assert said(fork) == [expected[0], "z", *expected[2:]]
        (fork.folder / NAME).unlink()
        assert fork.run().result == [expected[0], "z", *expected[2:], "c", "C", "d", "D"] == said(fork)


def test_a_return_to_an_earlier_record_keeps_the_conversation(talked: Place) -> None:
    save(talked, [new("x"), *lines_of(talked)])
    talked.recover()
    satchel.open(talked.folder).history.rewind(to="^2")
    assert said(talked) == ["x", "a", "A", "b", "B"]
    (talked.folder / NAME).unlink()
    assert talked.run().result == ["x", "a", "A", "b", "B", "b", "B", "c", "C", "d", "D"]


def test_a_pruned_run_has_its_edits(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_log, "SEGMENT_BYTES", 2000)
    monkeypatch.setattr(segment_log, "MANY", 10**6)
    monkeypatch.setattr(workspace, "REREAD_BYTES", 2000)
    monkeypatch.setattr(retention, "ENOUGH", 2000)
    names = [f"i{number}" for number in range(60)]

    @agent
    async def main(run: Run[Any]) -> None:
        if not run.todo.items:
            await run.plan(None, names)
        await run.todo.each(talk)

    place.agent = main
    place.edit("workspace.yaml", ("agent.py:main\n", "agent.py:main\nkeep: {history: 20, checkpoints: 1}\n"))
    fails.add("i9")
    assert place.run().status == "failed"
    found = lines_of(place)
    save(place, [new("x"), found[0] | {"content": "y"}, *found[3:]])
    fails.clear()
    assert place.run().status == "completed"
    kept = [line.record for line in journal.kept_lines(place.store)]
    assert journal.first_kept(place.store) > 50 and sum(isinstance(record, Edited) for record in kept) == 3
    expected = ["x", "y", *[text for name in names for text in (name, name.upper())][3:]]
    assert said(place) == expected
    (place.folder / NAME).unlink()
    place.recover()
    assert said(place) == expected
    save(place, [lines_of(place)[1], CUT])
    place.recover()
    assert said(place) == ["y"]


def test_a_run_without_its_journal_goes_on_with_the_file(talked: Place) -> None:
    save(talked, [new("x"), *lines_of(talked)])
    talked.recover()
    shutil.rmtree(talked.folder / "journal")
    talked.recover()
    assert said(talked) == ["x", "a", "A", "b", "B"]
