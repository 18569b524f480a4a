"""What a scope leaves in the state can be loaded, and comes back as it was; else the scope fails, with the place."""

from __future__ import annotations

import asyncio
import datetime
import enum
import json
import uuid
from collections import defaultdict
from collections.abc import Callable
from dataclasses import InitVar, dataclass, field
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, NotRequired, TypedDict

import msgspec
import pydantic
import pytest

import satchel
from satchel import Item, Run, agent, run, step
from satchel.runtime.agent import Codec, round_trip, unchecked
from satchel.runtime.live.data import LiveState
from satchel.workspace.base.errors import NotSerializable, Refused, SatchelError, UsageError
from satchel.workspace.inspect.load import look
from satchel.workspace.store import DiskStore


@dataclass
class Row:
    text: str = ""
    tags: list[str] = field(default_factory=list)


@dataclass
class Plain:
    score: int = 0
    name: str = ""
    row: Row = field(default_factory=Row)
    rows: list[Row] = field(default_factory=list)
    by_name: dict[str, Row] = field(default_factory=dict)
    nested: dict[int, dict[str, list[Plain]]] = field(default_factory=dict)
    more: Any = None


class Typed(TypedDict, total=False):
    score: int
    name: str
    row: Row
    rows: list[Row]
    by_name: dict[str, Row]
    nested: dict[int, dict[str, list[Plain]]]
    more: Any


class Packed(msgspec.Struct):
    score: int = 0
    name: str = ""
    row: Row = msgspec.field(default_factory=Row)
    rows: list[Row] = []
    by_name: dict[str, Row] = {}
    nested: dict[int, dict[str, list[Plain]]] = {}
    more: Any = None


class Model(pydantic.BaseModel):
    score: int = 0
    name: str = ""
    row: Row = Row()
    rows: list[Row] = []
    by_name: dict[str, Row] = {}
    nested: dict[int, dict[str, list[Plain]]] = {}
    more: Any = None


KINDS = [Plain, Typed, Packed, Model]


def put(state: Any, name: str, value: Any) -> None:
    if isinstance(state, dict):
        state[name] = value
    else:
        setattr(state, name, value)


def get(state: Any, name: str) -> Any:
    return state[name] if isinstance(state, dict) else getattr(state, name)


class Color(enum.StrEnum):
    RED = "red"


@pytest.mark.sampled(every=5)
@pytest.mark.parametrize("parallel", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("name", "value", "place"),
    [
        ("score", 0.5, "run.state.score"),
        ("name", None, "run.state.name"),
        ("rows", [Row(), Row(tags=["a", 7])], "run.state.rows[1].tags[1]"),  # type: ignore[list-item]
        ("by_name", {"a b": Row(text=5)}, 'run.state.by_name["a b"].text'),  # type: ignore[arg-type]
    ],
)
def test_a_value_of_another_type_is_committed_and_refused_at_every_later_start(
    workspace: Path, kind: Any, name: str, value: Any, place: str, parallel: int
) -> None:
    undone: list[str] = []
    is_mended: list[bool] = []

    async def work(run: Run[Any], item: Item) -> None:
        if not is_mended:
            put(run.state, name, value)

    async def undo(run: Run[Any]) -> None:
        undone.append("undone")

    @agent(state=kind, on_cancel=undo)
    async def main(run: Run[Any]) -> None:
        await run.plan(None, ["One"])
        await run.todo.each(work, parallel=parallel)

    outcome = run(workspace, main)
    assert outcome.status == "failed" and isinstance(outcome.error, UsageError), outcome
    assert f"{place} does not fit its type: " in str(outcome.error) and "annotation" in str(outcome.error)
    is_mended.append(True)
    assert run(workspace, main).raise_for_status().status == "completed"
    (workspace / "inbox").mkdir(exist_ok=True)
    (workspace / "inbox/more.md").write_text("more")
    assert run(workspace, main).status == "completed", "a completed run takes a new task"
    (workspace / "todo.md").write_text((workspace / "todo.md").read_text() + "- [ ] Two\n")
    (workspace / "pause.yaml").write_text("mode: cancel\nreason: enough\n")
    assert run(workspace, main).status == "cancelled" and undone == ["undone"]


def test_a_sub_agents_state_is_committed_and_refused_at_every_later_start(workspace: Path) -> None:
    async def work(run: Run[Plain], item: Item) -> None:
        run.state.score = 0.5  # type: ignore[assignment]

    @agent(state=Plain)
    async def child(run: Run[Plain]) -> None:
        await run.plan(None, ["One"])
        await run.todo.each(work)

    @agent
    async def main(run: Run) -> None:
        await run.spawn(child, "child")

    for _ in range(2):
        outcome = run(workspace, main)
        assert outcome.status == "failed" and "run.state.score does not fit its type" in str(outcome.error)


def test_a_default_that_does_not_fit_its_own_field_is_recorded(workspace: Path) -> None:
    @dataclass
    class Sloppy:
        name: str = None  # type: ignore[assignment]

    @agent(state=Sloppy)
    async def main(run: Run[Sloppy]) -> None: ...

    Sloppy.__annotations__["name"] = str  # this module's annotations are texts
    outcome = run(workspace, main)
    assert isinstance(outcome.error, UsageError) and "the state.name does not fit its type" in str(outcome.error)
    assert not look(DiskStore(workspace)).moment.root.has_data


class Loose(pydantic.BaseModel):
    score: int = 0


WHERE: dict[str, Callable[[Any], Any]] = {
    "": lambda state: state,
    ".row": lambda state: get(state, "row"),
    ".rows[1]": lambda state: get(state, "rows")[1],
    ".by_name.ada": lambda state: get(state, "by_name")["ada"],
    '.nested[7]["a b"].row': lambda state: get(state, "nested")[7]["a b"][0].row,
}


@pytest.mark.sampled(every=5)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("where", WHERE)
def test_an_attribute_that_the_class_does_not_have_is_kept_until_the_next_start(
    workspace: Path, kind: Any, where: str
) -> None:
    """It changes nothing in the JSON of the state, so no commit would look there."""
    if not where and kind is not Plain:
        pytest.skip("only an object of a plain class takes such an attribute")

    async def fill(run: Run[Any]) -> None:
        nested = {7: {"a b": [Plain(row=Row())], "b": []}}
        for name, value in {"row": Row(), "rows": [Row(), Row()], "by_name": {"ada": Row()}, "nested": nested}.items():
            put(run.state, name, value)

    async def work(run: Run[Any]) -> None:
        WHERE[where](run.state).extra = 1

    @agent(state=kind)
    async def main(run: Run[Any]) -> None:
        await run.scope("fill", fill, run)
        await run.scope("work", work, run)

    outcome = run(workspace, main)
    place = f"run.state{where}.extra".replace('"].row', '"][0].row')
    assert isinstance(outcome.error, NotSerializable), outcome
    assert str(outcome.error).startswith(f"{place} can't be kept"), outcome.error
    assert "has no field 'extra'" in str(outcome.error)


def test_a_list_that_contains_itself_twice_is_looked_at_without_end() -> None:
    rows: list[Any] = [Row()]
    rows += [rows, rows]
    state = Plain(rows=rows)
    round_trip.check_attributes(state, Plain, "run.state")
    rows[0].extra = 1
    with pytest.raises(NotSerializable, match=r"run\.state\.rows\[0\]\.extra can't be kept"):
        round_trip.check_attributes(state, Plain, "run.state")


@dataclass
class Counted:
    rows: list[int] = field(default_factory=list)

    @cached_property
    def total(self) -> int:
        return sum(self.rows)


def test_a_cached_property_of_the_state_is_refused(workspace: Path) -> None:
    """The class declares it, and any object of it has it."""

    async def work(run: Run[Counted]) -> int:
        run.state.rows.append(run.state.total + 1)
        return run.state.total

    @agent(state=Counted)
    async def main(run: Run[Counted]) -> int:
        return await run.scope("work", work, run)

    assert run(workspace, main).raise_for_status().result == 0


@dataclass
class Ring:
    name: str = ""
    next: Ring | None = None


class Link(pydantic.BaseModel):
    name: str = ""
    next: Link | None = None


@pytest.mark.parametrize("kind", [Ring, Link])
def test_a_state_that_contains_itself_is_refused_without_a_place(workspace: Path, kind: Any) -> None:
    async def work(run: Run[Any]) -> None:
        run.state.next = run.state

    @agent(state=kind)
    async def main(run: Run[Any]) -> None:
        await run.scope("work", work, run)

    outcome = run(workspace, main)
    assert isinstance(outcome.error, NotSerializable) and str(outcome.error).startswith("run.state.next.next"), outcome
    assert "contains itself" in str(outcome.error)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (object(), "a value of the type object is not JSON"),
        ([{"in": object()}], "a value of the type object is not JSON"),
        (b"\xff", "invalid utf-8"),
        (float("nan"), "nan is not JSON"),
        ([None, float("inf")], "inf is not JSON"),
    ],
)
def test_what_a_model_can_not_dump_is_refused_without_a_place_or_stays_in_the_state(
    workspace: Path, value: Any, why: str
) -> None:
    """pydantic has None for NaN, and an error of its own for the rest. The next scope does not commit it, either."""

    async def spoil(run: Run[Model]) -> None:
        run.state.score += 1
        run.state.more = value

    async def go_on(run: Run[Model]) -> int:
        return run.state.score

    @agent(state=Model)
    async def main(run: Run[Model]) -> int:
        with pytest.raises(NotSerializable, match=rf"run\.state.* can't be kept: .*{why}"):
            await run.scope("spoil", spoil, run)
        return await run.scope("go on", go_on, run)

    assert run(workspace, main).raise_for_status().result == 0


@pytest.mark.parametrize("value", [object(), float("nan")])
def test_a_result_that_a_model_can_not_dump_has_no_place(workspace: Path, value: Any) -> None:
    @step
    async def made() -> list[Model]:
        return [Model(), Model(more={"in": value})]

    @agent
    async def main(run: Run[Any]) -> None:
        await made()

    outcome = run(workspace, main)
    assert isinstance(outcome.error, NotSerializable), outcome
    assert str(outcome.error).startswith("the result of made[1].more.in can't be kept"), outcome.error


class Guarded(pydantic.BaseModel):
    score: float = 0
    hidden: float = pydantic.Field(0, exclude=True)
    text: str | None = None


def test_a_number_that_no_json_contains_is_refused(workspace: Path) -> None:
    async def work(run: Run[Guarded]) -> None:
        run.state.hidden = float("inf")
        run.state.score = 2

    @agent(state=Guarded)
    async def main(run: Run[Guarded]) -> float:
        await run.scope("work", work, run)
        return run.state.score

    assert run(workspace, main).raise_for_status().result == 2


@dataclass
class WithClass:
    known: ClassVar[Any] = object()
    given: InitVar[int] = 3
    score: int = 0


def test_a_variable_of_a_class_is_a_part_of_its_objects(workspace: Path) -> None:
    """It may be anything, and is in no JSON: not in that of an input, either, which is a step's argument here."""
    (workspace / "workspace.yaml").write_text("format: 1\nrun_id: t-1\nagent: agent.py:main\ninput: {of: {score: 2}}\n")

    @step
    async def look(of: WithClass) -> int:
        return of.score

    @agent
    async def main(run: Run[Any], of: WithClass) -> int:
        return await look(of)

    assert run(workspace, main).raise_for_status().result == 2


LOST = [
    ({7: True}, "[7] can't be kept: as a key, an int comes back as text. Use text as keys"),
    ({1: "x", "1": "y"}, " can't be kept: the keys 1 and '1' have the same text"),
    ({Color.RED: 1}, "as a key, a Color comes back as text"),
    ((1, 2), " can't be kept: a tuple comes back as a list. Put a list there"),
    ({1, 2}, "a set comes back as a list. Put a list there"),
    (datetime.datetime(2026, 1, 1), "a datetime comes back as a str. Put values of JSON's own types there"),
    (datetime.date(2026, 1, 1), "a date comes back as a str"),
    (Decimal("1.5"), "a Decimal comes back as a str"),
    (uuid.UUID(int=7), "a UUID comes back as a str"),
    (Color.RED, "a Color comes back as a str"),
    (b"bytes", "a bytes comes back as a str"),
    (float("nan"), "nan is not JSON"),
    (Row("a"), "a Row comes back as a dict"),
    (Loose(), "a Loose comes back as a dict"),
    (defaultdict(list, a=[1]), "a defaultdict comes back as a dict"),
]


@pytest.mark.sampled(every=7)
@pytest.mark.parametrize("parallel", [1, 2])
@pytest.mark.parametrize(("value", "why"), LOST, ids=lambda each: type(each).__name__)
@pytest.mark.parametrize("kind", [dict, Plain, Typed, Packed, Model])
def test_an_untyped_value_is_another_one_after_a_restart(
    workspace: Path, kind: Any, value: Any, why: str, parallel: int
) -> None:
    async def work(run: Run[Any], item: Item) -> None:
        put(run.state, "more", {"deep": [0, value]})

    @agent(state=kind)
    async def main(run: Run[Any]) -> None:
        await run.plan(None, ["One"])
        await run.todo.each(work, parallel=parallel)

    outcome = run(workspace, main)
    assert outcome.status == "failed" and isinstance(outcome.error, NotSerializable), outcome
    assert str(outcome.error).startswith("run.state.more.deep[1]") and why in str(outcome.error)


@dataclass
class Keyed:
    seen: dict[int, bool] = field(default_factory=dict)
    pair: tuple[int, str] = (0, "")
    days: dict[datetime.date, list[Decimal]] = field(default_factory=dict)
    ids: set[uuid.UUID] = field(default_factory=set)
    color: Color | None = None
    mixed: dict[int | str, str] = field(default_factory=dict)
    total: float = 0.0


class KeyedModel(pydantic.BaseModel):
    seen: dict[int, bool] = {}
    pair: tuple[int, str] = (0, "")
    days: dict[datetime.date, list[Decimal]] = {}
    ids: set[uuid.UUID] = set()
    color: Color | None = None
    total: float = 0.0


@pytest.mark.parametrize("parallel", [1, 2])
@pytest.mark.parametrize("kind", [Keyed, KeyedModel])
def test_a_typed_state_does_not_come_back_as_its_annotations_say(
    workspace: Path, kind: Any, parallel: int, crash: Any
) -> None:
    is_first: list[bool] = [True]

    async def work(run: Run[Any], item: Item) -> None:
        state = run.state
        state.seen[7] = True
        state.pair = (1, "a")
        state.days[datetime.date(2026, 1, 1)] = [Decimal("1.50")]
        state.ids |= {uuid.UUID(int=7)}
        state.color, state.total = Color.RED, 3

    @agent(state=kind)
    async def main(run: Run[Any]) -> None:
        await run.plan(None, ["One"])
        await run.todo.each(work, parallel=parallel)
        if is_first:
            is_first.clear()
            raise crash
        state = run.state
        assert state.seen == {7: True} and state.pair == (1, "a") and state.color is Color.RED and state.total == 3.0
        assert state.days == {datetime.date(2026, 1, 1): [Decimal("1.50")]} and state.ids == {uuid.UUID(int=7)}

    with pytest.raises(crash):
        run(workspace, main)
    run(workspace, main).raise_for_status()


def live(kind: Any, data: Any) -> LiveState:
    found = LiveState(Codec(kind, "the state"))
    found.restore(data, "state.json")
    return found


@pytest.mark.parametrize("many", [0, 5000])
@pytest.mark.parametrize("value", ["x", "y"])
def test_a_second_key_with_the_same_text_replaces_the_first(value: str, many: int) -> None:
    """In a state of any size, next to the first or far from it, with the same value or another."""
    rows = {f"row {number}": "x" for number in range(many)}
    state = live(dict[str, Any], {"seen": {"7": "x", **rows}})
    state.value["seen"][7] = value
    with pytest.raises(NotSerializable, match=r"run.state.seen can't be kept: the keys '7' and 7 have the same text"):
        state.change()
    typed = live(Keyed, {"mixed": {"7": "x", **rows}})
    typed.value.mixed[7] = value
    with pytest.raises(NotSerializable, match=r"run.state.mixed can't be kept: the keys '7' and 7 have the same text"):
        typed.change()


@pytest.mark.parametrize("kind", [dict, Typed, Plain, Packed, Model])
def test_a_commit_checks_what_has_not_changed(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def encoded(value: Any, what: str) -> bytes:
        data = unchecked(value, what)
        sizes.append(len(data))
        return data

    monkeypatch.setattr(round_trip, "unchecked", encoded)
    rows = [{"text": "x" * 180} for _ in range(1000)]
    found = live(dict[str, Any] if kind is dict else kind, {"rows": rows, "by_name": {"a": rows[0]}, "score": 0})
    make: Any = dict if kind is dict else Row
    for turn in range(3):
        sizes.clear()
        get(found.value, "rows").append(make(text="y" * 180))
        put(get(found.value, "rows")[500], "text", f"z{turn}")
        get(found.value, "by_name")[f"b {turn}"] = make(text="y")
        put(found.value, "score", turn + 1)
        change = found.change()
        found.committed(change)
        if turn:  # the first adds what has a default
            assert len(change.patch) == 4 and sum(sizes) < 500, sizes


Few = Annotated[list[int], msgspec.Meta(max_length=2)]


@dataclass
class Ruled:
    few: Few = field(default_factory=list)
    low: int = 0
    high: int = 9
    rows: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError("low is above high")


class RuledModel(pydantic.BaseModel):
    few: list[int] = pydantic.Field(default_factory=list, max_length=2)
    low: int = 0
    high: int = 9

    @pydantic.model_validator(mode="after")
    def ordered(self) -> RuledModel:
        if self.low > self.high:
            raise ValueError("low is above high")
        return self


class Needed(TypedDict):
    name: str
    more: NotRequired[int]


@pytest.mark.parametrize(
    ("kind", "data", "change", "why"),
    [
        (Ruled, {"few": [1, 2]}, lambda state: state.few.append(3), "run.state.few"),
        (Ruled, {}, lambda state: setattr(state, "low", 10), "low is above high"),
        (RuledModel, {"few": [1, 2]}, lambda state: state.few.append(3), "run.state"),
        (RuledModel, {}, lambda state: setattr(state, "low", 10), "low is above high"),
        (Needed, {"name": "a"}, lambda state: state.pop("name"), "missing required field `name`"),
        (Needed, {"name": "a"}, lambda state: state.update(nmae="b"), "run.state.nmae"),
        (dict[str, Needed], {"a": {"name": "a"}}, lambda state: state["a"].pop("name"), "run.state.a"),
        (dict[str, int | list[str]], {"a": 1}, lambda state: state.update(a=[1]), "run.state.a"),
        (dict[int, list[int]], {"1": [1]}, lambda state: state[1].append("a"), "run.state[1][1]"),
        (dict[str, list[Row]], {"a": [{}]}, lambda state: state["a"].append({"text": "b"}), "run.state.a[1]"),
        (dict[str, list[Row]], {"a": [{}]}, lambda state: state["a"].__setitem__(0, {"text": "b"}), "run.state.a[0]"),
        (dict[str, Row | None], {"a": {}}, lambda state: setattr(state["a"], "text", None), "run.state.a.text"),
    ],
)
def test_a_rule_of_a_type_around_the_change_is_broken_by_what_is_recorded(
    kind: Any, data: Any, change: Any, why: str
) -> None:
    """A field, a length, an order of two fields: each is judged where the whole that it is about is known."""
    state = live(kind, data)
    change(state.value)
    with pytest.raises(SatchelError) as caught:
        state.change()
    assert why in str(caught.value), caught.value


def test_two_items_that_the_type_allows_one_by_one_are_recorded_together(workspace: Path) -> None:
    """Each appends to a list that may get one more."""
    begun: list[str] = []

    async def work(run: Run[Ruled], item: Item) -> None:
        begun.append(item.text)
        run.state.few.append(len(begun))
        await both.wait() if len(begun) < 2 else both.set()

    @agent(state=Ruled)
    async def main(run: Run[Ruled]) -> None:
        async def fill(run: Run[Ruled]) -> None:
            run.state.few.append(0)

        await run.scope("fill", fill, run)
        await run.plan(None, ["One", "Two"])
        await run.todo.each(work, parallel=2)

    both = asyncio.Event()
    outcome = run(workspace, main)
    assert outcome.status == "failed" and "run.state.few does not fit its type" in str(outcome.error)
    assert (workspace / "todo.md").read_text().count("[x]") == 1
    assert len(look(DiskStore(workspace)).moment.root.data["few"]) == 2


@pytest.mark.parametrize("value", [{7: True}, (1,), Color.RED])
def test_progress_is_another_value_at_the_next_attempt(workspace: Path, value: Any) -> None:
    @step
    async def long(run: Run) -> None:
        await run.progress({"at": value})

    @agent
    async def main(run: Run) -> None:
        await long()

    outcome = run(workspace, main)
    assert isinstance(outcome.error, NotSerializable) and str(outcome.error).startswith("the progress.at")


@pytest.mark.parametrize("role", [5, None, "\ud800"])
def test_a_role_that_is_no_text_stops_the_run_at_the_commit(workspace: Path, role: Any) -> None:
    async def work(run: Run) -> None:
        run.messages.add(role, "text")

    @agent
    async def main(run: Run) -> None:
        await run.scope("work", work, run)

    outcome = run(workspace, main)
    assert isinstance(outcome.error, SatchelError) and "role" in str(outcome.error)


@pytest.mark.parametrize("reason", [5, None, "\ud800"])
def test_a_reason_that_is_no_text_stops_the_run_at_the_commit(workspace: Path, reason: Any) -> None:
    async def work(run: Run, item: Item) -> None:
        item.skip(reason)

    @agent
    async def main(run: Run) -> None:
        await run.plan(None, ["One"])
        await run.todo.each(work)

    outcome = run(workspace, main)
    assert isinstance(outcome.error, SatchelError) and "reason" in str(outcome.error)


class Bounded(pydantic.BaseModel):
    """A rule that no schema has: `satchel merge` does not run the agent's code."""

    low: int = 0
    seen: int = 0

    @pydantic.field_validator("low")
    @classmethod
    def is_low(cls, value: int) -> int:
        if value > 9:
            raise ValueError("low is too high")
        return value


def test_a_merge_of_what_only_the_type_refuses_leaves_no_way_out(workspace: Path) -> None:
    """The next start refuses to enter the agent and names the file; an edit of the file settles it."""

    async def work(run: Run[Bounded]) -> None:
        run.state.seen += 1

    @agent(state=Bounded)
    async def main(run: Run[Bounded]) -> int:
        await run.scope("work", work, run)
        await run.pause("wait")
        return run.state.low

    assert run(workspace, main).status == "paused"
    file = workspace / "state.json"
    whole = json.loads(file.read_text())
    del whole["at"], whole["data"]["seen"]
    whole["data"]["low"] = 10
    file.write_text(json.dumps(whole))
    assert satchel.open(workspace).merge("theirs").settled == ("state.json",)
    with pytest.raises(Refused, match=r"(?s)state.json: .*low is too high.* or correct `data` in the file"):
        satchel.open(workspace).resume(main)
    file.write_text(file.read_text().replace('"low": 10', '"low": 5'))
    assert satchel.open(workspace).resume(main).raise_for_status().result == 5
