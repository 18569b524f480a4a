"""A new run from an earlier moment of another one: the two share their past, and nothing outside happens twice."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import sys
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import warm
from cli.conftest import Cli, Make
from properties import ROUNDS, seed

import satchel
from satchel import Item, Run, agent, effect
from satchel.runtime.api import Handle
from satchel.workspace.base.errors import SatchelError, UsageError
from satchel.workspace.inspect.load import look
from satchel.workspace.inspect.report import Report
from satchel.workspace.journal import Lineage, StepStarted
from satchel.workspace.lifecycle.opening import opened
from satchel.workspace.store import DiskStore

from .test_rewinding import Calls, Dying, Stopped, data, finished, is_sound, made, mailing


def forked(handle: Handle, name: str = "fork", **options: Any) -> Handle:
    folder = Path(handle.url).parent / name
    found = handle.history.fork(folder, **options)
    assert found.to == str(folder) and found.source == handle.url
    return satchel.open(folder)


def contents(folder: str) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}


def test_the_fork_repeats_an_effect_or_the_source_changes(make: Make) -> None:
    calls: Calls = []
    handle = satchel.open(make())
    main, before = finished(handle, calls)
    files = contents(handle.url)
    calls.clear()
    fork = forked(handle, at="^3")
    assert contents(handle.url) == files, "the source is only read"
    assert is_sound(fork) and data(fork).keys() == {"a", "added"}
    moment = look(fork.store).moment
    assert (
        moment.run_id != "demo-1a2b" and f"run_id: {moment.run_id}\n" in (Path(fork.url) / "workspace.yaml").read_text()
    )
    assert moment.run_nonce != look(handle.store).moment.run_nonce
    ended = fork.resume(main)
    assert ended.status == "completed" and data(fork) == before, ended.error
    assert calls == ["read b", "read c", "read x"] and is_sound(fork)
    assert fork.status().moment and not fork.check().problems


def test_a_run_with_a_long_name_has_no_fork(make: Make) -> None:
    handle = satchel.open(make())
    definition = Path(handle.url, "workspace.yaml")
    definition.write_text(definition.read_text().replace("demo-1a2b", "-".join(["long"] * 12) + "-end"))
    finished(handle, [])
    names = [look(handle.store).moment.run_id]
    assert len(names[0]) == 63
    for name in ("fork", "fork of it"):
        handle = forked(handle, name)
        names.append(look(handle.store).moment.run_id)
    assert len(set(names)) == 3 and all(name.startswith("long-long-") for name in names)


def test_nobody_learns_where_a_fork_comes_from(make: Make, cli: Cli) -> None:
    handle = satchel.open(make())
    finished(handle, [])
    fork = forked(handle, at=12, run_id="second", by="Bob")
    first = next(iter(fork.history.log()))
    assert first.who.startswith("Bob, process") and " of Bob" in cli("log", fork.url, "--audit").stdout
    assert (first.line.seq, first.record["why"]) == (13, "fork")
    assert first.record["forked"] == {"url": handle.url, "run_id": "demo-1a2b", "seq": 12}
    assert look(fork.store).moment.forked == Lineage(handle.url, "demo-1a2b", 12)
    shown = cli("status", fork.url).output
    assert f"forked    from record 12 of demo-1a2b in {handle.url}"[:70] in shown and "second" in shown
    assert json.loads(cli("status", fork.url, "--json").stdout)["forked"]["seq"] == 12
    assert cli("log", fork.url).exit_code == 0
    assert fork.history.rewind(to=13, dry_run=True).to == 13
    with pytest.raises(SatchelError, match="record 5"):
        fork.history.rewind(to=5)


def test_a_fork_has_lost_the_prompts_that_it_is_held_to(make: Make) -> None:
    folder = make(extra="prompts: pinned\n")
    prompt = folder / "prompts/sum.md"
    prompt.parent.mkdir()
    prompt.write_text("Sum up {{what}}")

    async def work(run: Run[Any], item: Item) -> None:
        run.state[item.text] = str(run.prompt("sum", what=item.text))

    @agent
    async def main(run: Run[Any]) -> None:
        if not run.todo.items:
            await run.plan("Sums", ["a", "b"])
        await run.todo.each(work)

    handle = satchel.open(folder)
    assert handle.run(main).status == "completed"
    prompt.write_text("Sum up {{what}} in one word")
    fork = forked(handle, at="^2")
    assert fork.resume(main).status == "completed"
    assert data(fork) == {"a": "Sum up a", "b": "Sum up b"} == data(handle)


def test_a_fork_of_now_differs_from_its_source(make: Make) -> None:
    calls: Calls = []
    folder = make()
    (folder / "prompts").mkdir()
    (folder / "prompts/brief.md").write_text("Be brief.\n")
    handle = satchel.open(folder)
    _, before = finished(handle, calls)
    calls.clear()
    fork = asyncio.run(handle.history.fork_async(folder.parent / "fork"))
    there = satchel.open(fork.to)
    assert data(there) == before and look(there.store).moment.status == "completed"
    assert (Path(fork.to) / "prompts/brief.md").read_text() == "Be brief.\n"
    assert there.run(mailing(calls)).status == "completed" and calls == []


def test_forgotten_effects_are_answered(make: Make) -> None:
    calls: Calls = []
    handle = satchel.open(make())
    main, before = finished(handle, calls)
    keys = {call.split()[2] for call in calls if call.startswith("send")}
    calls.clear()
    fork = forked(handle, at="^3", effects=True)
    assert fork.resume(main).status == "completed" and data(fork) == before
    assert made(calls, "send") == ["send B", "send C", "send X"]
    assert not keys & {call.split()[2] for call in calls if call.startswith("send")}


def test_an_effect_in_doubt_is_done_by_both(make: Make) -> None:
    """Even one that is idempotent: under another key the receiver would do it again."""
    calls: Calls = []

    @effect(idempotent=True)
    async def pay(text: str) -> str:
        calls.append(text)
        raise Stopped

    async def work(run: Run[Any], item: Item) -> None:
        run.state[item.text] = await pay(item.text)

    @agent
    async def main(run: Run[Any]) -> None:
        if not run.todo.items:
            await run.plan(None, ["one"])
        await run.todo.each(work)

    handle = satchel.open(make())
    with pytest.raises(Stopped):
        handle.run(main)
    (started,) = (row.line.seq for row in handle.history.log() if isinstance(row.line.record, StepStarted))
    for number, at in enumerate((started, 3, None)):
        fork = forked(handle, f"fork{number}", at=at)
        calls.clear()
        ended = fork.resume(main)
        assert ended.status == "waiting" and calls == [], (at, ended)
        (question,) = fork.questions()
        fork.answer("done", question.id, result="paid")
        assert fork.resume(main).status == "completed" and calls == [] and data(fork) == {"one": "paid"}


def test_a_running_run_is_disturbed_by_a_fork(make: Make) -> None:
    handle = satchel.open(make())
    main, before = finished(handle, [])
    with opened(DiskStore(handle.url), "recover", Report()) as workspace:
        fork = forked(handle, at="^2")
        workspace.close()
    assert fork.resume(main).status == "completed" and data(fork) == before
    assert is_sound(handle)


@pytest.mark.parametrize("many", [4, pytest.param(8 * ROUNDS, marks=pytest.mark.slow)])
def test_an_effect_is_repeated_by_one_of_many_forks(make: Make, many: int) -> None:
    """Forks of anywhere, and forks of forks."""
    choose, calls = random.Random(seed()), list[str]()
    runs = [satchel.open(make())]
    main, before = finished(runs[0], calls)
    for number in range(many):
        source = choose.choice(runs)
        moment = look(source.store).moment
        first = moment.forked.seq + 2 if moment.forked else 1
        fork = forked(source, f"fork{number}", at=choose.randrange(first, moment.seq + 1))
        assert is_sound(fork)
        ended = fork.resume(main)
        assert ended.status == "completed" and data(fork) == before, ended.error
        runs.append(fork)
    assert sorted(made(calls, "send")) == ["send A", "send ADDED", "send B", "send C", "send X"]


WRITING = """
from satchel import agent, step

@step
def think(text: str) -> str:
    return text * 40_000

async def work(run, item):
    run.messages.add("user", item.text)
    await run.output(f"{item.id}.txt", item.text)
    await run.output("last.txt", item.text)
    run.state["size"] = len(await think(item.text))

@agent
async def main(run):
    if not run.todo.items:
        await run.plan(None, ["ab", "cd", "ef"])
    await run.todo.each(work)
"""


def test_what_a_fork_can_not_copy_is_left_behind_in_silence(make: Make) -> None:
    handle = satchel.open(make(WRITING))
    assert handle.run().status == "completed"
    source, to = Path(handle.url), Path(handle.url).parent / "fork"
    (source / "docs").mkdir()
    (source / "link").symlink_to("docs")
    for name in ("docs/trail.", "docs/two\nlines"):
        (source / name).write_text("x")
    (source / "outputs/odd.").write_text("it is no file of the fork, whatever it is called")
    with pytest.raises(UsageError, match="can't be transferred") as refused:
        handle.history.fork(to, at=5)
    assert all(name in str(refused.value) for name in ("link", "docs/trail.", r"docs/two\nlines"))
    assert "odd." not in str(refused.value) and not to.exists(), "something was copied"
    for name in ("link", "docs/trail.", "docs/two\nlines"):
        (source / name).unlink()
    assert is_sound(satchel.open(handle.history.fork(to, at=5).to))


def test_a_fork_has_the_files_of_another_moment(make: Make) -> None:
    handle = satchel.open(make(WRITING))
    assert handle.run().status == "completed"
    (seq,) = (row.line.seq for row in handle.history.log(type="step.completed") if row.record["scope"] == "2")
    found = handle.history.fork(Path(handle.url).parent / "fork", at=seq)
    fork = Path(found.to)
    assert sorted(path.name for path in (fork / "outputs").iterdir()) == ["1.txt"]
    assert found.left_out == ("outputs/last.txt",), "it was written again since"
    assert [json.loads(line)["content"] for line in (fork / "messages.jsonl").read_text().splitlines()] == ["ab"]
    (blob,) = (fork / ".satchel/blobs").iterdir()
    assert blob.stat().st_nlink == 2, "a blob never changes, so both have one file"
    there = satchel.open(fork)
    assert is_sound(there) and there.resume().status == "completed" and is_sound(there)
    assert len((fork / "messages.jsonl").read_text().splitlines()) == 3
    assert (fork / "outputs/last.txt").read_text() == "ef"


@pytest.mark.slow
def test_a_killed_fork_leaves_half_a_run(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    from satchel.workspace.transfer import transfer

    handle = satchel.open(make(WRITING))
    assert handle.run().status == "completed"
    size = data(handle)
    files, died = contents(handle.url), 0

    def open_dying(at: int) -> Callable[[str], DiskStore]:
        return lambda url: DiskStore(url, Dying(at))

    for at in range(0, 90, 3):
        to = Path(handle.url).parent / f"fork{at}"
        with monkeypatch.context() as patched:
            patched.setattr(transfer, "open_store", open_dying(at))
            try:
                handle.history.fork(to, at="^2")
            except Stopped:
                died += 1
        if not (to / "workspace.yaml").exists():
            with pytest.raises(UsageError) as refused:
                satchel.open(to).run()
            if (to / ".satchel/moving.json").exists():
                begun = next(work.begun for work in handle.history.steps().work if work.scope == "2")
                assert f"`satchel fork {handle.url} {to} --at {begun - 1} --run-id demo-1a2b-" in str(refused.value)
                with pytest.raises(UsageError, match=f"another moment.*--at {begun - 1}"):
                    handle.history.fork(to, at="^3")
                other = Path(make(name=f"other{at}"))
                satchel.open(other).run()
                with pytest.raises(UsageError):
                    satchel.open(other).history.fork(to)
            handle.history.fork(to, at="^2")
        there = satchel.open(to)
        assert there.run().status == "completed" and data(there) == size and is_sound(there)
        assert contents(handle.url) == files
    assert died > 10


def _dying(at: int, url: str) -> DiskStore:
    return DiskStore(url, Dying(at))


def test_a_killed_fork_of_a_run_that_went_on_is_not_continued(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same command begins again, from the moment that is the newest now."""
    from satchel.workspace.transfer import transfer

    handle = satchel.open(make(WRITING))
    assert handle.run().status == "completed"
    to = Path(handle.url).parent / "fork"
    at = 0
    while not (to / ".satchel/moving.json").exists():
        at += 1
        with monkeypatch.context() as patched, pytest.raises(Stopped):
            patched.setattr(transfer, "open_store", partial(_dying, at))
            handle.history.fork(to)
    assert not (to / "workspace.yaml").exists()
    with pytest.raises(UsageError, match=f"`satchel fork {handle.url} {to} --run-id"):
        satchel.open(to).run()
    handle.history.rewind(to="^2")
    found = handle.history.fork(to)
    assert found.seq == handle.status(brief=True).moment.seq and is_sound(satchel.open(to))  # type: ignore[union-attr]


@pytest.mark.parametrize("at", [1, 2])
def test_a_fork_has_no_history_because_of_where_it_begins(make: Make, at: int) -> None:
    """Right after the first record, it is taken for a journal that is whole."""
    handle = satchel.open(make())
    main, before = finished(handle, [])
    fork = forked(handle, at=at)
    sent = dict.fromkeys(("1", "2", "3", "4"), "send")
    assert {work.scope: work.calls[0].step for work in fork.history.steps().work if not work.agent} == sent, (
        "of the source"
    )
    assert fork.history.diff("latest", "latest").is_empty and not fork.history.blame("state.json").problem
    assert fork.resume(main).status == "completed" and is_sound(fork)
    assert not fork.history.diff(at, at).calls and {change.path for change in fork.history.diff(at, "latest").data} == {
        ""
    }
    assert {each.origin.kind for each in fork.history.blame("state.json").values} == {"commit"}
    assert {work.title for work in fork.history.steps().work} == {"a", "b", "c", "added", "x"} and data(fork) == before


KILLED = """
import os, signal, sys
import satchel
from satchel.workspace.store import DiskStore, Syscalls
from satchel.workspace.transfer import transfer

class Killed(Syscalls):
    written = 0

    def _count(self):
        Killed.written += 1
        if Killed.written == int(sys.argv[3]):
            os.kill(os.getpid(), signal.SIGKILL)

for name in ("write", "sync_folder", "link", "rename", "unlink"):
    def call(self, *arguments, name=name):
        getattr(Syscalls, name)(self, *arguments)
        if os.path.exists(f"{sys.argv[2]}/workspace.yaml"):
            self._count()
    setattr(Killed, name, call)

transfer.open_store = lambda url: DiskStore(url, Killed())
print(satchel.open(sys.argv[1]).history.fork(sys.argv[2], at="^2", run_id="second").run_id)
"""


@pytest.mark.parametrize("every", [11, pytest.param(1, marks=pytest.mark.slow)])
def test_a_fork_that_is_killed_when_it_is_complete_is_refused_or_interrupted(make: Make, cli: Cli, every: int) -> None:
    """A real kill after each call from workspace.yaml on. The same command says that it is complete."""
    handle = satchel.open(make(WRITING))
    assert handle.run().status == "completed"
    base = Path(handle.url).parent
    for at in count(1, every):
        to = base / f"fork{at}"
        ended = warm.run([sys.executable, "-c", KILLED, handle.url, str(to), str(at)], capture_output=True, text=True)
        if ended.returncode == 0:
            break
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        fork = satchel.open(to)
        status = fork.status()
        assert (status.state, status.moment and status.moment.reason) == ("paused", "forked"), at
        assert satchel.ls(to)[0].state == "paused" and fork.check().ok and not fork.history.steps().problem
        assert fork.history.diff("latest", "latest").is_empty and not fork.history.blame().problem
        note = to / ".satchel/moving.json"
        if at % 2:
            assert not fork.recover().questions and not note.exists(), "an opening removes it"
        if note.exists():
            said = cli("fork", handle.url, str(to), "--at", "^2", "--run-id", "second")
            assert said.exit_code == 0 and "already; it is complete" in said.output and not note.exists()
        else:
            with pytest.raises(UsageError, match="a complete fork of this one from record"):
                handle.history.fork(to, at="^2", run_id="second")
        assert fork.resume().status == "completed" and is_sound(fork) and data(fork) == data(handle)
    assert at > 11


def test_a_fork_goes_where_something_is(make: Make, cli: Cli) -> None:
    folder = make()
    handle = satchel.open(folder)
    with pytest.raises(UsageError, match="the run has not begun"):
        handle.history.fork(folder.parent / "fork")
    finished(handle, [])
    for to in (folder, folder / "inside", make(name="other")):
        with pytest.raises(UsageError):
            handle.history.fork(to)
    with pytest.raises(UsageError, match="is the run_id of the source"):
        handle.history.fork(folder.parent / "fork", run_id="demo-1a2b")
    assert not (folder.parent / "fork").exists()
    refused = cli("fork", str(folder), str(folder.parent / "fork"), "--at", "^3", "--effects")
    assert refused.exit_code == 2 and "3 effects would be done again" in refused.output
    done = cli("fork", str(folder), str(folder.parent / "fork"), "--at", "^3", "--json")
    found = json.loads(done.stdout)
    assert (
        done.exit_code == 0
        and len(found["effects"]) == 3
        and found["run_id"] == look(DiskStore(found["to"])).moment.run_id
    )
    assert "forked" in cli("fork", str(folder), str(folder.parent / "more"), "--run-id", "more").output


def test_a_fork_is_born_damaged(make: Make, cli: Cli) -> None:
    """Its first status tells of missing files, or of a sub-agent that it does not have yet, or a file is empty."""
    handle = satchel.open(make())
    finished(handle, [])
    fork = forked(handle, at="^3")
    assert not [remark.text for remark in fork.status().report if "missing" in remark.text]
    assert not [path for path, content in contents(fork.url).items() if not content and "/journal/" in path]
    assert json.loads((Path(fork.url) / "state.json").read_text())["agents"] == {"child": "new"}
    shown = cli("status", fork.url).output
    assert "child  new" in shown and "restored" not in shown
    (Path(fork.url) / "todo.md").unlink()
    fork.recover()
    assert [remark.text for remark in fork.status().report if "todo.md was missing" in remark.text]


def test_a_fork_from_within_an_item_that_runs_nothing_again_has_no_steps(make: Make, cli: Cli) -> None:
    handle = satchel.open(make())
    main, before = finished(handle, [])
    (commit,) = (row.line.seq for row in handle.history.log(type="scope.committed") if row.record["scope"] == "3")
    fork = forked(handle, at=commit - 1)
    assert fork.resume(main).status == "completed" and data(fork) == before
    (work,) = fork.history.steps("^3").work
    assert (work.title, work.state, [call.step for call in work.calls]) == ("b", "committed", ["read", "send"])
    assert fork.history.diff("latest", "latest").is_empty and handle.history.diff(fork).data == []
