"""State that the type of new code does not know: it is never lost without a word."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

import msgspec
import pytest
from pydantic import BaseModel

import satchel
from satchel import Agent, Refused, Run, UsageError, agent, migration, run
from satchel.errors import InvalidFile
from satchel.runtime.agent import Codec


class Mail(msgspec.Struct):
    to: str = ""
    text: str = ""


@dataclass
class Before:
    sent: dict[str, str] = field(default_factory=dict)
    settings: dict[str, dict[str, str]] = field(default_factory=dict)
    count: int = 0


def writing(kind: Any, **options: Any) -> Agent[..., Any]:
    async def begin(run: Run[Any]) -> None:
        state = run.state
        if isinstance(state, dict):
            state.update({"sent": {"ada": "yes"}, "count": 1})
        else:
            state.sent["ada"], state.count = "yes", 1

    @agent(state=kind, **options)
    async def main(run: Run[Any]) -> None:
        await run.scope("mail ada", begin, run)
        await run.ask("Go on?", wait_for=0)

    return main


def reading(kind: Any, **options: Any) -> Agent[..., Any]:
    async def more(run: Run[Any]) -> int:
        run.state.count += 1
        return int(run.state.count)

    @agent(state=kind, **options)
    async def main(run: Run[Any]) -> int:
        return await run.scope("count", more, run)

    return main


@dataclass
class Shorter:
    to: str = ""


@dataclass
class MailOrNone:
    mail: Mail | str | None = None
    pair: tuple[int, Mail] = (0, Mail())
    count: int = 0


@dataclass
class ShorterOrNone:
    mail: Shorter | str | None = None
    pair: tuple[int, Mail] = (0, Mail())
    count: int = 0


@dataclass
class ShorterInAPair:
    mail: Mail | str | None = None
    pair: tuple[int, Shorter] = (0, Shorter())
    count: int = 0


@pytest.mark.parametrize(("kind", "key"), [(ShorterOrNone, "mail.text"), (ShorterInAPair, "pair[1].text")])
def test_a_key_is_lost_where_several_types_may_stand(workspace: Path, kind: Any, key: str) -> None:
    async def begin(run: Run[MailOrNone]) -> None:
        run.state.mail, run.state.pair = Mail("ada", "hello"), (1, Mail("bob", "hi"))

    @agent(state=MailOrNone)
    async def main(run: Run[MailOrNone]) -> None:
        await run.scope("mail ada", begin, run)
        await run.ask("Go on?", wait_for=0)

    assert run(workspace, main).status == "waiting"
    with pytest.raises(Refused, match=f"no key `{re.escape(key)}`"):
        run(workspace, reading(kind), wake=True)


@dataclass
class Plain:
    mails: dict[str, str] = field(default_factory=dict)
    settings: dict[str, dict[str, str]] = field(default_factory=dict)
    count: int = 0


class Model(BaseModel):
    mails: dict[str, str] = {}
    settings: dict[str, dict[str, str]] = {}
    count: int = 0


class Struct(msgspec.Struct):
    mails: dict[str, str] = {}
    settings: dict[str, dict[str, str]] = {}
    count: int = 0


@pytest.fixture
def begun(workspace: Path) -> Path:
    assert run(workspace, writing(Before)).status == "waiting"
    return workspace


def data(workspace: Path) -> Any:
    return msgspec.json.decode((workspace / "state.json").read_bytes())["data"]


@pytest.mark.parametrize("kind", [Plain, Model, Struct])
def test_a_field_that_was_renamed_without_a_migration_is_dropped(begun: Path, kind: Any) -> None:
    with pytest.raises(Refused) as refused:
        run(begun, reading(kind), wake=True)
    said = str(refused.value)
    assert "the agent's state type has no key `sent`" in said and "'mail ada' has written it, in record" in said
    for way in ("@migration", "@agent(drop=('sent',))", 'unknown="keep"'):
        assert said.count(way) == 1
    assert data(begun)["sent"] == {"ada": "yes"}
    assert satchel.open(begun).status().state == "waiting", "nothing has changed"


@pytest.mark.parametrize("kind", [Plain, Model, Struct])
def test_an_agent_that_drops_a_key_does_so_without_a_word(begun: Path, kind: Any) -> None:
    outcome = run(begun, reading(kind, drop=("sent",)), wake=True)
    assert outcome.result == 2 and "sent" not in data(begun)
    assert any("has dropped" in each.text and "sent" in each.text for each in outcome.report.remarks)
    assert run(begun, reading(kind)).status == "completed"


@pytest.mark.parametrize("kind", [Plain, Model, Struct])
def test_an_agent_that_keeps_what_it_does_not_know_loses_it(begun: Path, kind: Any) -> None:
    assert run(begun, reading(kind, unknown="keep"), wake=True).result == 2
    assert data(begun) == {"mails": {}, "settings": {}, "sent": {"ada": "yes"}, "count": 2}
    assert run(begun, reading(Before), wake=True).result == 2, "and back: `count` is answered from the record"


def test_recorded_state_is_walked_again_and_again_at_a_start(begun: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the opening, so that a refusal changes nothing; and when the agent is entered, for what it drops."""
    walks: list[object] = []
    walk = Codec.unknown_keys
    monkeypatch.setattr(Codec, "unknown_keys", lambda codec, given: walks.append(given) or walk(codec, given))
    assert run(begun, reading(Before), wake=True).status == "completed"
    assert len(walks) == 2


def test_an_edit_by_a_person_lets_a_key_be_lost(begun: Path) -> None:
    """The check before the opening leaves it to the opening whether the edit is about that key."""
    (begun / "todo.md").write_text("- [ ] write to Grace\n")
    with pytest.raises(Refused, match="no key `sent`"):
        run(begun, reading(Plain), wake=True)
    edit(begun, lambda data: data.update(count=5))
    with pytest.raises(InvalidFile, match="the unknown key `sent`"):
        run(begun, reading(Plain), wake=True)
    assert data(begun)["sent"] == {"ada": "yes"}
    edit(begun, lambda data: data.pop("sent"))
    assert run(begun, reading(Plain), wake=True).result == 2


def edit(workspace: Path, change: Callable[[Any], Any]) -> None:
    file = workspace / "state.json"
    document = msgspec.json.decode(file.read_bytes())
    change(document["data"])
    file.write_bytes(msgspec.json.format(msgspec.json.encode(document)))


def test_two_versions_take_turns(begun: Path) -> None:
    for number in range(2, 6):
        kept = reading_again(Plain if number % 2 else Before, number, unknown="keep")
        run(begun, kept, wake=True)
        assert data(begun)["count"] == number
    assert data(begun)["sent"] == {"ada": "yes"} and data(begun)["count"] == 5


def reading_again(kind: Any, number: int, **options: Any) -> Agent[..., Any]:
    async def more(run: Run[Any]) -> int:
        run.state.count += 1
        return int(run.state.count)

    @agent(state=kind, **options)
    async def main(run: Run[Any]) -> None:
        await run.scope(f"count {number}", more, run)
        await run.ask("Go on?", wait_for=0)

    return main


@dataclass
class Old:
    mails: dict[str, dict[str, str]] = field(default_factory=dict)


@dataclass
class Inner:
    to: str = ""


@dataclass
class New:
    mails: dict[str, Inner] = field(default_factory=dict)


def test_a_nested_key(workspace: Path) -> None:
    async def begin(run: Run[Any]) -> None:
        run.state.mails["a"] = {"to": "ada", "text": "hello"}

    async def change(run: Run[Any]) -> None:
        run.state.mails["a"].to = "bob"
        run.state.mails["b"] = Inner("cyd")

    @agent(state=Old)
    async def old(run: Run[Any]) -> None:
        await run.scope("begin", begin, run)
        await run.ask("?", wait_for=0)

    def new(**options: Any) -> Agent[..., Any]:
        @agent(state=New, **options)
        async def main(run: Run[Any]) -> None:
            await run.scope("change", change, run)

        return main

    run(workspace, old)
    with pytest.raises(Refused, match=r"no key `mails\.a\.text`"):
        run(workspace, new(), wake=True)
    run(workspace, new(unknown="keep"), wake=True)
    assert data(workspace)["mails"] == {"a": {"to": "bob", "text": "hello"}, "b": {"to": "cyd"}}


def test_a_key_in_a_list_is_lost_although_it_was_to_be_kept(workspace: Path) -> None:
    class Old(TypedDict, total=False):
        mails: list[dict[str, str]]

    @dataclass
    class New:
        mails: list[Mail] = field(default_factory=list)

    async def begin(run: Run[Any]) -> None:
        run.state["mails"] = [{"to": "ada", "text": "x", "old": "y"}]

    @agent(state=Old)
    async def old(run: Run[Any]) -> None:
        await run.scope("begin", begin, run)
        await run.ask("?", wait_for=0)

    @agent(state=New, unknown="keep")
    async def new(run: Run[Any]) -> None: ...

    @agent(state=New, drop=("mails.old",))
    async def drops(run: Run[Any]) -> int:
        return len(run.state.mails)

    run(workspace, old)
    with pytest.raises(Refused, match="in a list"):
        run(workspace, new, wake=True)
    assert run(workspace, drops, wake=True).result == 1


def test_what_a_migration_leaves_over_is_lost(begun: Path) -> None:
    @migration(2)
    def rename(data: dict[str, Any]) -> dict[str, Any]:
        return {**data, "mails": data["sent"]}  # and forgets to remove `sent`

    outcome = run(begun, reading(Plain, migrations=[rename]), wake=True)
    assert outcome.status == "paused" and "no key `sent`" in satchel.open(begun).status().moment.reason


def test_a_sub_agent_that_knows_less(workspace: Path) -> None:
    async def begin(run: Run[Any]) -> None:
        run.state.sent["ada"] = "yes"

    @agent(state=Before)
    async def old(run: Run[Any]) -> None:
        await run.scope("begin", begin, run)
        await run.ask("?", wait_for=0)

    @agent(state=Plain)
    async def new(run: Run[Any]) -> None: ...

    def parent(child: Any) -> Agent[..., Any]:
        @agent
        async def main(run: Run[Any]) -> None:
            await run.spawn(child, "helper")

        return main

    run(workspace, parent(old))
    assert run(workspace, parent(new), wake=True).status == "paused"
    assert "agents/helper/state.json" in satchel.open(workspace).status().moment.reason


def test_an_input_whose_type_has_lost_a_key(workspace: Path) -> None:
    @dataclass
    class Old:
        a: int = 1
        b: int = 2

    @dataclass
    class New:
        a: int = 1

    def made(kind: Any) -> Agent[..., Any]:
        async def main(run: Run[Any], what: Any) -> None:
            await run.ask("?", wait_for=0)

        main.__annotations__["what"] = kind
        return agent(main)

    run(workspace, made(Old), Old())
    with pytest.raises(UsageError, match="has no key `b` any more"):
        run(workspace, made(New), wake=True)


@pytest.mark.parametrize("options", [{"drop": "sent"}, {"drop": ("",)}, {"drop": (5,)}, {"unknown": "lose"}])
def test_wrong_options(options: Any) -> None:
    with pytest.raises(UsageError):
        reading(Plain, **options)
