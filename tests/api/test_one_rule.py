"""All who take edits check them by the same schema and say the same, whether they run the agent's code or not."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cli.conftest import Cli
from jsonschema import Draft202012Validator
from pydantic import BaseModel
from referencing import Registry, Resource
from servers import Server

import satchel
from satchel import Item, Run, agent, effect, step
from satchel.runtime.api import Handle
from satchel.workspace.base.errors import InvalidFile, Refused
from satchel.workspace.inspect import look
from satchel.workspace.store import open_store
from satchel.workspace.views import schema_files

DEFINITION = "format: 1\nrun_id: {}\nagent: agent.py:main\n"


class Trip(BaseModel):
    city: str = ""
    days: int = 0


class State(BaseModel):
    budget: int = 100
    trip: Trip = Trip()
    past: list[Trip] = []
    notes: dict[str, Any] = {}


@step
def price(city: str) -> int:
    return len(city)


@step
def plan(city: str, days: int) -> list[Trip]:
    return [Trip(city=city, days=days)]


@step
def untyped(city: str):  # type: ignore[no-untyped-def]
    return {"city": city}


@effect
def book(city: str) -> Trip:
    return Trip(city=city)


async def work(run: Run[State], item: Item) -> None:
    run.state.budget -= await price(item.text)
    await plan(item.text, 1)
    await untyped(item.text)
    await book(item.text)
    if run.state.budget < 95:
        await run.ask(f"Go to {item.text}?", wait_for=0)


@agent(state=State)
async def main(run: Run[State]) -> str:
    if not run.todo.items:
        await run.plan("Trip", ["Rome", "Oslo"])
    await run.todo.each(work)
    return "done"


PRICE, PLAN, UNTYPED, BOOK = (f"steps/2-oslo/{name}.json" for name in ("01-price", "02-plan", "03-untyped", "04-book"))


class Waiting:
    """A run with an open question, in its second item."""

    def __init__(self, place: str):
        self.handle, self.store = satchel.open(place), open_store(place)
        self.store.replace("workspace.yaml", DEFINITION.format("trip-1").encode())
        assert self.handle.run(main).status == "waiting"

    def get(self, path: str) -> bytes:
        self.store.refresh()
        return self.store.read(path).data

    def changed(self, change: Callable[[Any], Any]) -> str:
        whole = json.loads(self.get("state.json"))
        change(whole["data"])
        return json.dumps(whole, indent=2)

    def with_result(self, path: str, result: Any) -> str:
        return json.dumps(json.loads(self.get(path)) | {"result": result}, indent=2)

    def save(self, text: str) -> None:
        self.store.replace("state.json", text.encode())


def without_stamp(data: bytes) -> Any:
    return {key: value for key, value in json.loads(data).items() if key != "at"}


@pytest.fixture
def waiting(tmp_path: Path) -> Waiting:
    (tmp_path / "trip").mkdir()
    return Waiting(str(tmp_path / "trip"))


READERS: dict[str, Callable[[Handle], Any]] = {
    "start": lambda handle: handle.resume(main),
    "answer": lambda handle: handle.answer("approve"),
    "rewind": lambda handle: handle.history.rewind(
        to=next(row.line.seq for row in handle.history.log(type="scope.committed"))
    ),
    "redo": lambda handle: handle.history.redo("1"),
}
"""Each opens the workspace, and takes what was saved there."""

WRONG: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a misspelt key": (
        lambda data: data.update(bugdet=7),
        "data.bugdet): found the unknown key `bugdet`, expected `budget`, `trip`, `past` or `notes`. "
        "Did you mean `budget`?",
    ),
    "a key of a part": (
        lambda data: data["trip"].update(citty="Rome"),
        "data.trip.citty): found the unknown key `citty`, expected `city` or `days`. Did you mean `city`?",
    ),
    "a key in a list": (
        lambda data: data["past"].append({"city": "Rome", "dayz": 2}),
        "data.past[0].dayz): found the unknown key `dayz`, expected `city` or `days`. Did you mean `days`?",
    ),
    "another type": (
        lambda data: data.update(budget="a lot"),
        'data.budget): found "a lot", expected a whole number. Write a whole number in its place',
    ),
}


@pytest.mark.sampled(every=5)
@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("reader", READERS)
def test_a_reader_takes_what_another_refuses(waiting: Waiting, reader: str, wrong: str) -> None:
    change, said = WRONG[wrong]
    good, text = waiting.get("state.json"), waiting.changed(change)
    waiting.save(text)
    with pytest.raises(InvalidFile, match=r"state\.json, line [0-9]+ ") as refusal:
        READERS[reader](waiting.handle)
    assert said in str(refusal.value)
    assert waiting.get("state.rejected.json") == text.encode() and waiting.get("state.json") == good


@pytest.mark.parametrize("wrong", WRONG)
def test_who_only_looks_says_something_else_or_nothing(waiting: Waiting, cli: Cli, wrong: str) -> None:
    change, said = WRONG[wrong]
    text, draft = waiting.changed(change), waiting.handle.files.draft("state.json")
    with pytest.raises(InvalidFile) as refusal:
        waiting.handle.files.edit("state.json", text, version=draft.version)
    assert said in str(refusal.value), "the page and MCP save nothing"
    waiting.save(text)
    assert said in str(waiting.handle.merge().refused[0])
    for command in ("status", "check"):
        assert said in " ".join(cli(command, waiting.handle.url).output.split())


def test_what_the_type_has_room_for_is_refused(waiting: Waiting) -> None:
    waiting.save(waiting.changed(lambda data: data["notes"].update(of={"any": "kind"})))
    waiting.handle.answer("approve")
    assert look(waiting.store).moment.root.data["notes"] == {"of": {"any": "kind"}}


RESULTS: dict[str, tuple[str, Any, str]] = {
    "another type": (
        PRICE,
        "a lot",
        '(result): found "a lot", expected a whole number. Write a whole number in its place',
    ),
    "null": (PRICE, None, "(result): found nothing (null), expected a whole number."),
    "within it": (
        PLAN,
        [{"city": "Oslo", "days": "2"}],
        '(result[0].days): found "2", expected a whole number. Remove the quotes',
    ),
    "a misspelt key": (
        PLAN,
        [{"citty": "Oslo", "days": 2}],
        "(result[0].citty): found the unknown key `citty`, expected `city` or `days`. Did you mean `city`?",
    ),
    "of an effect": (BOOK, "Oslo", '(result): found "Oslo", expected a mapping of keys to values.'),
}
"""A step's file, its result as a person writes it, and what is said."""


@pytest.mark.sampled(every=5)
@pytest.mark.parametrize("wrong", RESULTS)
@pytest.mark.parametrize("reader", READERS)
def test_a_result_that_the_step_never_returns_is_taken(waiting: Waiting, reader: str, wrong: str) -> None:
    path, result, said = RESULTS[wrong]
    good, text = waiting.get(path), waiting.with_result(path, result)
    waiting.store.replace(path, text.encode())
    with pytest.raises(InvalidFile, match=rf"{path}, line [0-9]+ ") as refusal:
        READERS[reader](waiting.handle)
    assert said in str(refusal.value)
    assert waiting.get(path.replace(".json", ".rejected.json")) == text.encode()
    assert without_stamp(waiting.get(path)) == without_stamp(good)


@pytest.mark.parametrize("wrong", RESULTS)
def test_who_only_looks_says_nothing_of_a_result(waiting: Waiting, cli: Cli, wrong: str) -> None:
    path, result, said = RESULTS[wrong]
    waiting.store.replace(path, waiting.with_result(path, result).encode())
    assert said in str(waiting.handle.merge().refused[0])
    for command in ("status", "check"):
        assert said in " ".join(cli(command, waiting.handle.url).output.split())


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize(
    ("path", "result"), [(PRICE, 3), (PLAN, []), (PLAN, [{"days": 2}]), (UNTYPED, "what you like"), (BOOK, {"days": 9})]
)
def test_a_result_of_the_type_is_refused(waiting: Waiting, path: str, result: Any) -> None:
    waiting.store.replace(path, waiting.with_result(path, result).encode())
    assert waiting.handle.check().ok
    waiting.handle.answer("approve")
    assert waiting.handle.resume(main).status in ("completed", "waiting")


def test_an_edited_result_can_be_edited_to_anything(waiting: Waiting) -> None:
    waiting.store.replace(PRICE, waiting.with_result(PRICE, 3).encode())
    waiting.handle.recover()
    waiting.store.replace(PRICE, waiting.with_result(PRICE, "3").encode())
    with pytest.raises(InvalidFile, match="expected a whole number"):
        waiting.handle.recover()


@pytest.mark.parametrize("path", [PRICE, PLAN, UNTYPED, BOOK])
def test_an_editor_does_not_know_what_a_step_returns(waiting: Waiting, path: str) -> None:
    """The file names its schema, and that refers to others next to it."""

    def load(uri: str) -> Resource[Any]:
        return Resource.from_contents(json.loads(Path(uri.removeprefix("file:")).read_text()))

    def problems(text: str) -> list[str]:
        value = json.loads(text)
        file = (Path(waiting.handle.url, path).parent / value["$schema"]).resolve()
        schema = {**json.loads(file.read_text()), "$id": f"file:{file}"}
        found = Draft202012Validator(schema, registry=Registry(retrieve=load)).iter_errors(value)  # type: ignore[call-arg]
        return [each.json_path for each in found]

    assert problems(waiting.get(path).decode()) == []
    assert problems(waiting.with_result(path, 1.5)) == ([] if path == UNTYPED else ["$.result"])
    assert problems(waiting.get(path).decode().replace('"status": "completed"', '"status": "?"')) == ["$.status"]


def test_each_step_has_a_schema_of_its_own(waiting: Waiting) -> None:
    schemas = {json.loads(waiting.get(path))["$schema"] for path in (PRICE, PLAN, UNTYPED, BOOK)}
    assert len(schemas) == 4
    files = [entry.path for entry in waiting.store.list(schema_files.FOLDER)]
    assert len(files) == 3, "what has no type, and methods of the run, have the schema step.json"


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("damage", [None, b"", b"{", b"[]", b'{"$defs": {"-result": 3}}'])
def test_a_missing_or_damaged_schema_of_a_result_refuses_what_is_right(waiting: Waiting, damage: bytes | None) -> None:
    (path,) = {
        entry.path for entry in waiting.store.list(schema_files.FOLDER) if entry.path in waiting.get(PRICE).decode()
    }
    if damage is None:
        waiting.store.remove(path)
    else:
        waiting.store.replace(path, damage)
    problems = [found.file for found in waiting.handle.check().problems]
    assert problems == ([] if damage is None else [path])
    waiting.store.replace(PRICE, waiting.with_result(PRICE, 3).encode())
    waiting.handle.answer("approve")
    assert waiting.handle.resume(main).status in ("completed", "waiting")


@pytest.mark.parametrize("torn", [b"", b'{"$defs": {"-res', b"\0" * 300])
def test_what_a_power_failure_leaves_of_a_schema_is_a_fault_for_ever(waiting: Waiting, torn: bytes) -> None:
    """It is renamed without a sync."""
    handle = waiting.handle
    for clear in (handle.recover, handle.prune, partial(handle.resume, main)):
        path = next(entry.path for entry in waiting.store.list(schema_files.FOLDER))
        waiting.store.replace(path, torn)
        assert [found.file for found in handle.check().problems] == [path]
        clear()
        assert handle.check().ok, clear


def test_a_fork_checks_nothing_until_it_has_run(waiting: Waiting, tmp_path: Path) -> None:
    forked = waiting.handle.history.fork(tmp_path / "fork")
    for path, key, wrong in ((PRICE, "result", "a lot"), ("state.json", "data", {"bugdet": 1})):
        file = Path(forked.to, path)
        file.write_text(json.dumps(json.loads(file.read_text()) | {key: wrong}))
        with pytest.raises(InvalidFile, match=f"{path}, line"):
            satchel.open(forked.to).recover()


@dataclass
class Old:
    n: int = 0
    gone: int = 0


@dataclass
class New:
    n: int = 0
    more: int = 0


def pausing(state: type, **options: Any) -> Any:
    async def main(run: Run[Any]) -> Any:
        await run.pause("here")

    return agent(state=state, **options)(main)


def test_an_edit_for_the_code_of_now_is_checked_by_that_of_before(tmp_path: Path) -> None:
    """A start asks the type itself: `more` is new, and the agent drops `gone`."""
    (tmp_path / "workspace.yaml").write_text(DEFINITION.format("old-1"))
    handle = satchel.open(tmp_path)
    assert handle.run(pausing(Old)).status == "paused"
    file = tmp_path / "state.json"
    file.write_text(file.read_text().replace('"n": 0', '"n": 7, "more": 8'))
    assert handle.resume(pausing(New, drop=("gone",))).status == "completed"
    assert look(open_store(str(tmp_path))).moment.root.data == {"n": 7, "more": 8}


def test_a_key_in_a_list_that_nothing_keeps_is_taken(tmp_path: Path) -> None:
    @dataclass
    class Kept:
        all: list[Old] = field(default_factory=list)

    (tmp_path / "workspace.yaml").write_text(DEFINITION.format("old-1"))
    handle, file = satchel.open(tmp_path), tmp_path / "state.json"
    main = pausing(Kept, unknown="keep")
    assert handle.run(main).status == "paused"
    good = file.read_text()
    file.write_text(good.replace('"all": []', '"all": [{"n": 1, "m": 2}]'))
    with pytest.raises(Refused, match=r"data\.all\[0\]: found the unknown key `m`. .* it is in a list"):
        handle.resume(main)
    file.write_text(good.replace('"all": []', '"all": [], "m": 2'))
    assert handle.resume(main).status == "completed"
    assert look(open_store(str(tmp_path))).moment.root.data == {"all": [], "m": 2}


def test_in_a_bucket_an_unknown_key_is_taken_and_lost(seaweedfs: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in seaweedfs.environment().items():
        monkeypatch.setenv(name, value)
    waiting = Waiting(seaweedfs.place())
    change, said = WRONG["a misspelt key"]
    waiting.save(waiting.changed(change))
    with pytest.raises(InvalidFile) as refusal:
        waiting.handle.answer("approve")
    assert said in str(refusal.value)
