"""A return to an earlier record: what came since is done again, but nothing outside happens twice."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import pytest
from cli.conftest import Cli, Make

import satchel
from satchel import Item, Key, Retry, Run, agent, effect, step
from satchel.runtime.api import Handle, RewindResult
from satchel.runtime.status import place
from satchel.workspace import journal
from satchel.workspace.base.errors import LeaseHeld, UsageError
from satchel.workspace.inspect.load import look
from satchel.workspace.inspect.report import Report
from satchel.workspace.journal import ScopeBegun, ScopeCommitted
from satchel.workspace.lifecycle.opening import opened
from satchel.workspace.store import DiskStore
from satchel.workspace.store.syscalls import Syscalls

Calls = list[str]


def mailing(calls: Calls, texts: list[str] | None = None) -> Any:
    """Reads and mails each item; the first one adds another to the plan, and the last spawns an agent that mails."""

    @step
    async def read(text: str) -> str:
        calls.append(f"read {text}")
        return text.upper()

    @effect
    async def send(text: str, *, key: Key) -> str:
        calls.append(f"send {text} {key}")
        return f"sent {text}"

    async def work(run: Run[Any], item: Item) -> None:
        text = await read(item.text)
        if item.text == "a":
            await run.todo.add("added", after=item)
        run.state[item.text] = await send(text)

    @agent
    async def child(run: Run[Any]) -> str:
        if not run.todo.items:
            await run.plan(None, ["x"])
        await run.todo.each(work)
        return str(run.state["x"])

    @agent
    async def main(run: Run[Any]) -> Any:
        if not run.todo.items:
            await run.plan("Mails", texts or ["a", "b", "c"])
        await run.todo.each(work)
        return [run.state, await run.spawn(child, "child")]

    return main


def made(calls: Calls, kind: str) -> Calls:
    return [" ".join(call.split()[:2]) for call in calls if call.startswith(kind)]


def finished(handle: Handle, calls: Calls) -> tuple[Any, dict[str, Any]]:
    """A run that has completed, and its data."""
    main = mailing(calls)
    ended = handle.run(main)
    assert ended.status == "completed", ended.error
    return main, data(handle)


def data(handle: Handle) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((Path(handle.url) / "state.json").read_text())["data"]
    return found


def is_sound(handle: Handle) -> bool:
    checked = handle.check()
    assert checked.ok, checked.problems
    return True


def test_work_since_then_is_kept_or_an_effect_is_repeated(make: Make) -> None:
    calls: Calls = []
    handle = satchel.open(make())
    main, before = finished(handle, calls)
    calls.clear()
    found = handle.history.rewind(to="^3")  # b, behind the added one
    assert found.is_done and found.status == "paused" and not found.forgotten
    assert [each.call for each in found.effects] == ['send("text":"B")', 'send("text":"C")', 'send("text":"X")']
    assert any("item 3 ('b') will be done again" in say for say in found.says)
    assert data(handle).keys() == {"a", "added"} and "- [ ] b ^3" in (Path(handle.url) / "todo.md").read_text()
    assert is_sound(handle)
    ended = handle.resume(main)
    assert ended.status == "completed" and data(handle) == before, ended.error
    assert calls == ["read b", "read c", "read x"] and is_sound(handle)


def test_a_return_can_not_be_undone(make: Make) -> None:
    calls: Calls = []
    handle = satchel.open(make())
    main, before = finished(handle, calls)
    end = look(handle.store).moment.seq
    handle.history.rewind(to="^1")
    assert data(handle) == {}
    back = handle.history.rewind(to=end)
    assert back.to == end and not back.effects and data(handle) == before
    calls.clear()
    assert handle.resume(main).status == "completed" and calls == [] and is_sound(handle)


@pytest.mark.parametrize("to", ["first", "^1", "^2"])
def test_an_item_that_is_planned_again_mails_again(make: Make, to: str) -> None:
    """It gets another id then, and is known by its text."""
    calls: Calls = []
    handle = satchel.open(make())
    main, before = finished(handle, calls)
    calls.clear()
    found = handle.history.rewind(to=2 if to == "first" else to)
    assert is_sound(handle)
    ended = handle.resume(main)
    assert ended.status == "completed" and data(handle) == before, ended.error
    assert made(calls, "send") == [] and made(calls, "read")[-1] == "read x" and is_sound(handle)
    assert ("todo.md: the plan is made again" in found.says) == (to == "first")


def test_a_forgotten_effect_has_the_key_of_the_first(make: Make) -> None:
    calls: Calls = []
    handle = satchel.open(make())
    main, before = finished(handle, calls)
    keys = {call.split()[1]: call.split()[2] for call in calls if call.startswith("send")}
    calls.clear()
    planned = handle.history.rewind(to="^3", forget=True, dry_run=True)
    assert not planned.is_done and look(handle.store).moment.status == "completed"
    found = asyncio.run(handle.history.rewind_async(to="^3", forget=True))
    assert found.forgotten and found.effects == planned.effects and found.says == planned.says
    assert handle.resume(main).status == "completed" and data(handle) == before
    assert made(calls, "send") == ["send B", "send C", "send X"] and is_sound(handle)
    again = {call.split()[1]: call.split()[2] for call in calls if call.startswith("send")}
    assert not set(again.values()) & set(keys.values()), "the receiver would take them for the first ones"
    calls.clear()
    handle.history.rewind(to="^3")
    assert handle.resume(main).status == "completed" and made(calls, "send") == []


def test_a_return_that_forgets_can_not_be_undone(make: Make) -> None:
    calls: Calls = []
    handle = satchel.open(make())
    main, before = finished(handle, calls)
    end = look(handle.store).moment.seq
    handle.history.rewind(to="^3", forget=True)
    handle.history.rewind(to=end)
    assert [each.call for each in handle.history.rewind(to="^3").effects][:1] == ['send("text":"B")']
    calls.clear()
    assert handle.resume(main).status == "completed" and data(handle) == before
    assert made(calls, "send") == [], "the effects that were done are not on record"


def test_an_effect_is_repeated_after_returns_to_both_sides_of_one(make: Make) -> None:
    """The first return takes the items out of the plan, and they get other ids. The second returns to their first ids,
    the third to the others."""
    calls: Calls = []
    handle = satchel.open(make())
    main, before = finished(handle, calls)
    middle = next(row.line.seq for row in handle.history.log(type="step.completed", item="3"))
    for to in (2, middle):
        handle.history.rewind(to=to)
        calls.clear()
        assert handle.resume(main).status == "completed" and data(handle) == before and is_sound(handle)
        assert made(calls, "send") == []
    again = [row.line.seq for row in handle.history.log(type="step.completed") if row.record["call"] == '("text":"b")'][
        1
    ]
    found = handle.history.rewind(to=again)
    assert 'send("text":"B")' not in [each.call for each in found.effects], "it was on record then"
    calls.clear()
    assert handle.resume(main).status == "completed" and data(handle) == before and is_sound(handle)
    assert made(calls, "send") == []


def test_an_effect_is_repeated_after_a_return_to_a_return(make: Make) -> None:
    """To before the items were planned again."""
    calls: Calls = []
    handle = satchel.open(make())
    main, before = finished(handle, calls)
    end = look(handle.store).moment.seq
    handle.history.rewind(to=2)
    back = look(handle.store).moment.seq
    handle.history.rewind(to=end)
    handle.history.rewind(to=back)
    calls.clear()
    assert handle.resume(main).status == "completed" and data(handle) == before and is_sound(handle)
    assert made(calls, "send") == []
    handle.history.rewind(to=back)
    calls.clear()
    assert handle.resume(main).status == "completed" and data(handle) == before and is_sound(handle)
    assert made(calls, "send") == []
    assert not look(handle.store).moment.root.left, "an item with such a text would get effects of another"


def test_an_effect_in_doubt_is_forgotten(make: Make) -> None:
    calls: Calls = []

    @effect
    async def pay(text: str) -> str:
        calls.append(text)
        raise TimeoutError("no answer")

    async def work(run: Run[Any], item: Item) -> None:
        run.state[item.text] = await pay(item.text)

    @agent
    async def main(run: Run[Any]) -> None:
        if not run.todo.items:
            await run.plan(None, ["one", "two"])
        await run.todo.each(work)

    handle = satchel.open(make())
    assert handle.run(main).status == "waiting"
    found = handle.history.rewind(to=2, forget=True)
    assert [(each.call, each.is_in_doubt) for each in found.effects] == [('pay("text":"one")', True)]
    ended = handle.resume(main)
    assert ended.status == "waiting" and calls == ["one"], "it was done again"
    (question,) = handle.questions()
    handle.answer("done", question.id, result="paid")
    assert handle.resume(main).status == "waiting" and calls == ["one", "two"] and is_sound(handle)
    assert data(handle) == {"one": "paid"}


def test_an_answer_is_asked_for_again(make: Make) -> None:
    asked: Calls = []

    async def work(run: Run[Any], item: Item) -> None:
        asked.append(item.text)
        answer = await run.ask(f"Grant {item.text}?", choices=["approve", "deny"], wait_for=0)
        run.state[item.text] = answer.decision

    @agent
    async def main(run: Run[Any]) -> None:
        if not run.todo.items:
            await run.plan(None, ["a"])
        await run.todo.each(work)

    handle = satchel.open(make())
    assert handle.run(main).status == "waiting"
    handle.answer("deny")
    assert handle.resume(main).status == "completed"
    found = handle.history.rewind(to="^1", forget=True)
    assert not found.effects and data(handle) == {}
    assert handle.resume(main).status == "completed" and data(handle) == {"a": "deny"} and not handle.questions()


def test_a_return_into_an_item_loses_its_first_steps(make: Make) -> None:
    calls: Calls = []

    @step
    async def count(number: int) -> int:
        calls.append(str(number))
        return number

    async def work(run: Run[Any], item: Item) -> None:
        run.state["sum"] = sum([await count(number) for number in range(4)])

    @agent
    async def main(run: Run[Any]) -> None:
        if not run.todo.items:
            await run.plan(None, ["a"])
        await run.todo.each(work)

    handle = satchel.open(make())
    assert handle.run(main).status == "completed"
    steps = [row.line.seq for row in handle.history.log(type="step.completed")]
    handle.history.rewind(to=steps[1])
    assert len(list((Path(handle.url) / "steps").rglob("*.json"))) == 2
    calls.clear()
    assert handle.resume(main).status == "completed" and calls == ["2", "3"] and data(handle) == {"sum": 6}


def test_own_calls_that_a_return_undoes_are_not_told(make: Make) -> None:
    """`steps` shows them apart, as an item that was undone. A return to where they counted brings them back."""

    @step
    async def read(text: str) -> str:
        return text.upper()

    @effect
    async def send(text: str, *, key: Key) -> str:
        return text

    @agent
    async def child(run: Run[Any]) -> str:
        return await read("child")

    @agent
    async def main(run: Run[Any]) -> None:
        await read("first")
        await run.scope("marked", read, "marked")
        await read("second")
        await send("mail")
        await run.spawn(child, "child")

    def told() -> list[tuple[str, str, list[str]]]:
        return [
            (work.agent, work.state, [str(call.result) for call in work.calls]) for work in handle.history.steps().work
        ]

    handle = satchel.open(make())
    handle.run(main)
    marked = ("", "committed", ["MARKED"])
    first = [("", "open", ["FIRST", "SECOND", "mail"]), marked, ("child", "open", ["CHILD"])]
    assert told() == first
    end = handle.history.steps().moment.seq
    seq = next(call.seq for work in handle.history.steps().work for call in work.calls if call.result == "MARKED")
    handle.history.rewind(to=seq)
    undone = [("", "undone", ["SECOND"]), ("child", "undone", ["CHILD"])]
    assert told() == [("", "open", ["FIRST", "mail"]), ("", "open", ["MARKED"]), *undone]
    handle.resume(main)
    again = [("", "open", ["FIRST", "mail", "SECOND"]), marked, ("child", "open", ["CHILD"]), *undone]
    assert told() == again
    assert not [each for each in handle.history.diff(end, "latest").calls if each.kind != "changed"]
    handle.history.rewind(to=end)
    assert told() == [*first, *undone], "what had been made again"


def test_a_return_into_an_item_and_back_loses_its_steps(make: Make) -> None:
    """`steps` shows what was undone of it; `diff` with the moment before is empty, and `blame` names who had ticked."""
    calls: Calls = []
    handle = satchel.open(make())
    finished(handle, calls)
    end, first = handle.history.steps().moment.seq, handle.history.steps().work
    b = next(work for work in first if work.title == "b")
    marked = handle.history.blame("todo.md").values
    handle.history.rewind(to=b.begun)
    part, open_ = (work for work in handle.history.steps().work if work.title == "b" and not work.agent)
    assert (part.state, [call.step for call in part.calls]) == ("undone", ["read"])
    assert (open_.state, [call.step for call in open_.calls]) == ("open", ["send"]), "an effect stays done"
    handle.history.rewind(to=end)
    assert handle.history.steps().work == first
    differs = handle.history.diff(end, "latest")
    assert not (differs.data or differs.plans or differs.calls)
    assert handle.history.blame("todo.md").values == marked


def test_equal_items_are_blamed_on_one_record_after_a_return(make: Make) -> None:
    handle = satchel.open(make())

    @agent
    async def main(run: Run[Any]) -> None:
        await run.plan("Checks", ["check"])
        await run.scope("marked", lambda: None)
        await run.todo.add("check")
        await run.scope("after", lambda: None)

    handle.run(main)
    before = handle.history.blame("todo.md").values
    assert len({each.origin.seq for each in before}) == 2
    handle.history.rewind(to=before[-1].origin.seq)
    assert handle.history.blame("todo.md").values == before


def test_an_effect_is_said_to_stay_done_though_its_item_may_never_come_again(make: Make, cli: Cli) -> None:
    handle = satchel.open(make())
    finished(handle, [])
    found = handle.history.rewind(to="^1", dry_run=True)
    assert [each.title for each in found.effects if each.is_gone] == ["added"]
    shown = cli("rewind", handle.url, "--to", "^1", "--dry-run").stdout
    assert shown.count("stays done, if an item of this name comes again") == 1 and shown.count("stays done\n") == 4


def test_an_effect_that_is_forgotten_is_not_told(make: Make) -> None:
    calls: Calls = []
    handle = satchel.open(make())
    main, _ = finished(handle, calls)
    b = next(work for work in handle.history.steps().work if work.title == "b")
    handle.history.rewind(to=b.begun, forget=True)
    assert handle.resume(main).status == "completed"
    works = [
        (work.state, [call.step for call in work.calls]) for work in handle.history.steps().work if work.title == "b"
    ]
    assert works == [("undone", ["read", "send"]), ("committed", ["read", "send"])]


def test_undone_calls_are_confused_with_their_equals(make: Make) -> None:
    """Each is known by its own record: with an equal result, with another one, and after failed attempts."""
    rolled, failed = iter(range(1, 9)), iter((True, False) * 4)

    @step
    async def read(text: str) -> str:
        return text.upper()

    @step
    async def roll() -> int:
        return next(rolled)

    @step(retry=Retry(attempts=3, first=0.01))
    async def flaky() -> str:
        if next(failed):
            raise ConnectionError("down")
        return "up"

    @agent
    async def main(run: Run[Any]) -> None:
        await run.scope("marked", read, "marked")
        for call in (read("b"), roll(), flaky()):
            await call

    def calls(state: str) -> list[tuple[object, int, int]]:
        works = [work for work in handle.history.steps().work if not work.scope and work.state == state]
        return [(call.result, call.seq, len(call.troubles)) for work in works for call in work.calls]

    handle = satchel.open(make())
    handle.run(main)
    first, end = calls("open"), handle.history.steps().moment.seq
    marked = next(call.seq for work in handle.history.steps().work if work.scope for call in work.calls)
    handle.history.rewind(to=marked)
    assert (calls("open"), calls("undone")) == ([], first)
    handle.resume(main)
    second, again = calls("open"), handle.history.steps().moment.seq
    assert [call[0] for call in second] == ["B", 2, "up"] and calls("undone") == first
    handle.history.rewind(to=again - 1)
    assert (calls("open"), calls("undone")) == (second, first), "it undoes no call"
    handle.history.rewind(to=end)
    assert (calls("open"), calls("undone")) == (first, second)
    handle.history.rewind(to=again)
    assert (calls("open"), calls("undone")) == (second, first)


@pytest.mark.usefixtures("holder_stays")
def test_a_run_goes_back_while_a_process_has_it(make: Make) -> None:
    handle = satchel.open(make())
    _, before = finished(handle, [])
    with (
        opened(DiskStore(handle.url), "recover", Report()) as workspace,
        pytest.raises(LeaseHeld, match="already running"),
    ):
        handle.history.rewind(to=3)
    assert data(handle) == before and workspace


def test_a_run_goes_to_where_it_never_was(make: Make) -> None:
    handle = satchel.open(make())
    _, before = finished(handle, [])
    newest = look(handle.store).moment.seq
    for to in (0, newest, newest + 5, "^77", "nothing"):
        with pytest.raises(UsageError):
            handle.history.rewind(to=to)
    assert data(handle) == before and look(handle.store).moment.seq == newest
    for row in handle.history.log(type="checkpoint.saved"):
        assert handle.history.rewind(to=str(row.record["file"]), dry_run=True).to == int(row.record["file"][12:24])
    other = satchel.open(make(name="cancelled"))
    other.run(mailing([]))
    other.history.rewind(to=4)
    other.cancel()
    assert other.run(mailing([])).status == "cancelled"
    with pytest.raises(UsageError, match="satchel fork"):
        other.history.rewind(to=4)


def told_in_steps(handle: Handle) -> list[int]:
    """The records of all calls, whether they count or were undone. That of an effect may be told twice."""
    calls = [call for work in handle.history.steps().work for call in work.calls]
    steps = [call.seq for call in calls if not call.effect]
    return sorted([*steps, *{call.seq for call in calls if call.effect}])


def done_in_log(handle: Handle) -> list[int]:
    return [row.line.seq for row in handle.history.log(type="step.completed")]


@pytest.mark.sampled(every=5, rest="soak")
@pytest.mark.parametrize("seed", range(8))
def test_returns_anywhere_end_otherwise_than_one_run(make: Make, seed: int) -> None:
    """Also in the middle of an item, of a sub-agent and of the answers to earlier returns."""
    print(f"seed {seed}")
    choose, calls = random.Random(seed), list[str]()
    handle = satchel.open(make())
    main, before = finished(handle, calls)
    for _ in range(5):
        end = look(handle.store).moment.seq
        handle.history.rewind(to=choose.randrange(1, end))
        assert is_sound(handle) and told_in_steps(handle) == done_in_log(handle)
        if choose.random() < 0.7:
            ended = handle.resume(main)
            assert ended.status == "completed" and data(handle) == before, ended.error
    assert handle.resume(main).status == "completed" and data(handle) == before and is_sound(handle)
    assert sorted(made(calls, "send")) == ["send A", "send ADDED", "send B", "send C", "send X"]
    whole = journal.read(handle.store, after=0)
    assert whole.next_seq == look(handle.store).moment.seq + 1


class Stopped(BaseException):
    """Ends this process, as far as the disk can tell."""


class Dying(Syscalls):
    """Dies before the given change of the disk."""

    def __init__(self, at: int):
        self.left = at

    def _count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Stopped

    def write(self, fd: int, data: bytes) -> None:
        self._count()
        super().write(fd, data)

    def rename(self, source: str, target: str) -> None:
        self._count()
        super().rename(source, target)

    def link(self, source: str, target: str) -> None:
        self._count()
        super().link(source, target)

    def unlink(self, path: str) -> None:
        self._count()
        super().unlink(path)


def test_a_killed_return_ends_between_two_moments(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: Calls = []
    handle = satchel.open(make())
    main, before = finished(handle, calls)
    calls.clear()
    died, seen = 0, set[int]()
    for at in range(0, 48, 3):
        with monkeypatch.context() as patched:
            patched.setattr(place, "open_store", lambda url, at=at: DiskStore(url, Dying(at)))
            dying = satchel.open(handle.url)
        try:
            dying.history.rewind(to="^3")
        except Stopped:
            died += 1
        assert handle.recover().run_id == "demo-1a2b" and is_sound(handle)
        seen.add(len(data(handle)))
        ended = handle.resume(main)
        assert ended.status == "completed" and data(handle) == before and is_sound(handle), ended.error
    assert made(calls, "send") == [] and died > 5 and seen == {2, 4}, "as before, or as afterwards"


def test_the_command_forgets_without_a_question(make: Make, cli: Cli) -> None:
    folder = make()
    handle = satchel.open(folder)
    finished(handle, [])
    shown = cli("rewind", str(folder), "--to", "^3", "--dry-run")
    assert (
        "would return to record" in shown.output and 'send("text":"B")' in shown.output and "stays done" in shown.output
    )
    refused = cli("rewind", str(folder), "--to", "^3", "--forget")
    assert refused.exit_code == 2 and "3 effects would be done again" in refused.output and "--yes" in refused.output
    assert look(handle.store).moment.status == "completed"
    done = cli("rewind", str(folder), "--to", "^3", "--forget", "--yes", "--json")
    found = json.loads(done.stdout)
    assert done.exit_code == 0 and found["is_done"] and len(found["effects"]) == 3, done.output
    twice = cli("rewind", str(folder), "--to", str(found["to"]), "--forget", "--dry-run")
    assert "no effect was done since then" in twice.output, twice.output
    assert "returned to record" in cli("rewind", str(folder), "--to", "^1").output
    assert "rewound     to record" in cli("log", str(folder)).output
    assert isinstance(handle.history.rewind(to=3), RewindResult)


def test_a_plan_from_before_the_run_is_lost(make: Make) -> None:
    folder = make()
    (folder / "todo.md").write_text("# Mine\n\n- [ ] a\n- [ ] b\n")
    handle, calls = satchel.open(folder), list[str]()
    main = mailing(calls)
    assert handle.run(main).status == "completed"
    with pytest.raises(UsageError, match="had not read your todo"):
        handle.history.rewind(to=1)
    handle.history.rewind(to="^1")
    text = (folder / "todo.md").read_text()
    assert "# Mine" in text and text.count("- [ ]") == 2 and data(handle) == {}
    calls.clear()
    assert handle.resume(main).status == "completed" and made(calls, "send") == [] and is_sound(handle)


@pytest.mark.parametrize("forks", [False, True])
def test_an_item_with_a_new_id_forgets_its_effects_when_steps_are_reused(
    make: Make, tmp_path: Path, forks: bool
) -> None:
    """Its plan is made again after a return. Then a second return goes to a moment when it has no id yet."""
    calls: Calls = []
    handle, main = satchel.open(make()), mailing(calls, ["b"])
    assert handle.run(main).status == "completed"
    first = calls.copy()
    handle.history.rewind(to=3)
    assert handle.resume(main).status == "completed"
    begun = [
        row.line.seq
        for row in handle.history.log()
        if isinstance(row.line.record, ScopeBegun) and row.line.record.title == "b"
    ]
    calls.clear()
    if forks:
        handle = satchel.open(handle.history.fork(tmp_path / "fork", at=begun[-1] - 1, reuse=True).to)
    else:
        handle.history.rewind(to=begun[-1] - 1, reuse=True)
    assert handle.resume(main).status == "completed"
    assert not calls, f"{first} were done before"


@pytest.mark.sampled(every=5)
@pytest.mark.parametrize("seed", range(6))
def test_an_item_is_known_by_ids_of_several_returns_and_forgets_its_effects(make: Make, seed: int) -> None:
    """Returns to before the plan, to before the item had an id, to when it had one, and to when it was done."""
    calls: Calls = []
    choose, handle, main = random.Random(seed), satchel.open(make()), mailing(calls, ["b"])
    assert handle.run(main).status == "completed"
    done = {call.split()[1] for call in calls if call.startswith("send")}
    calls.clear()
    for _ in range(12):
        rows = [row.line for row in handle.history.log()]
        of_it = [
            line.seq for line in rows if isinstance(line.record, ScopeBegun | ScopeCommitted) and line.record.scope
        ]
        seq = choose.choice([3, *(seq + by for seq in of_it for by in (-1, 0))])
        handle.history.rewind(to=min(seq, rows[-1].seq - 1), reuse=choose.random() < 0.7)
        if choose.random() < 0.4:
            assert handle.resume(main).status == "completed"
    assert handle.resume(main).status == "completed"
    assert not [call for call in calls if call.startswith("send")], f"{done} were done before"
    assert handle.check().ok
