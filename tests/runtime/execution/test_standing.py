"""Standing approvals: they count for one tool of one agent with one code, and until they are revoked."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import warm
from page.conftest import make
from servers import Server

import satchel
from satchel import Item, Run, UsageError, agent, effect, run
from satchel.runtime.api import answers as answering
from satchel.workspace.inbound import approval_files as files
from satchel.workspace.store import open_store

from .test_asking import fill_in, records


def paying(calls: list[Any], *, before: Callable[[str], Any] = lambda text: None, tool: str = "pay") -> Any:
    """An agent that asks before it pays, for each item."""

    @effect
    def pay(to: str) -> str:
        calls.append(to)
        return f"paid {to}"

    async def work(run: Run[dict[str, Any]], item: Item) -> None:
        answer = await run.ask(f"Pay {item.text}?", arguments={"to": item.text}, tool=tool, wait_for=0)
        arguments = answer.arguments
        await asyncio.to_thread(before, item.text)
        if answer == "approve":
            await pay(**arguments)
        run.state[item.text] = [answer.decision, answer.by, answer.how]

    @agent
    async def main(run: Run[dict[str, Any]]) -> None:
        if not run.todo.items:
            await run.plan(None, ["ada", "eve", "bob"])
        await run.todo.each(work)

    return main


def data(workspace: Path) -> Any:
    return json.loads((workspace / "state.json").read_text())["data"]


@pytest.mark.parametrize("way", ["file", "python"])
def test_a_standing_approval_asks_again_or_its_uses_are_not_recorded(workspace: Path, way: str) -> None:
    calls: list[Any] = []
    main = paying(calls)
    run(workspace, main)
    form = (workspace / "approvals/a1.yaml").read_text()
    assert "\ntool: pay\n" in form and "each later call of pay" in form and "\nstanding:\n" in form
    if way == "file":
        fill_in(workspace, "a1", "approve", standing="true", by="Ada")
    else:
        done = satchel.open(workspace).answer("approve", standing=True, by="Ada")
        assert done.answer and done.answer.standing
        assert satchel.open(workspace).answer("approve", "a1", standing=True).was_before
        with pytest.raises(UsageError, match="already answered"):
            satchel.open(workspace).answer("approve", "a1")
    assert run(workspace, main).status == "completed" and calls == ["ada", "eve", "bob"]
    assert data(workspace)["bob"] == ["approve", "Ada", "standing"]
    assert not (workspace / "approvals/a2.yaml").exists()
    uses = [record for record in records(workspace, "approval.answered") if record.get("how") == "standing"]
    assert [(use["id"], use["by"], use["under"]) for use in uses] == [("a2", "Ada", "a1"), ("a3", "Ada", "a1")]
    standing = satchel.open(workspace).status().approved["a1"]
    assert (standing.tool, standing.uses, standing.told) == ("pay", 2, {})
    told = (workspace / "approvals/a1.yaml").read_text().splitlines()[0]
    assert "and each later call of pay, by Ada" in told and "write false as standing" in told


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize(
    ("decision", "typed", "said"),
    [
        ("deny", {"standing": "true"}, "unless the decision is approve"),
        ("approve", {"standing": "true", "arguments": "{to: eve}"}, "together with changed arguments"),
        ("approve", {"standing": "'yes'"}, "standing"),
    ],
)
def test_an_answer_stands_that_can_not(workspace: Path, decision: str, typed: dict[str, str], said: str) -> None:
    calls: list[Any] = []
    run(workspace, paying(calls))
    path = fill_in(workspace, "a1", decision, **typed)
    assert run(workspace, paying(calls)).status == "waiting" and said in path.read_text() and not calls
    assert not satchel.open(workspace).status().approved


def test_an_answer_without_a_tool_stands(workspace: Path) -> None:
    calls: list[Any] = []
    run(workspace, paying(calls, tool=""))
    with pytest.raises(UsageError, match="has not said which tool"):
        satchel.open(workspace).answer("approve", standing=True)


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("other", ["tool", "agent", "code", "fork"])
def test_an_approval_stands_for_another_tool_agent_code_or_run(
    workspace: Path, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = """
from satchel import agent

@agent
async def inner(run):
    return (await run.ask("Inner?", tool="pay", wait_for=0)).how

@agent
async def main(run):
    first = await run.ask("First?", tool="pay", wait_for=0)
    second = await run.ask("Second?", tool="pay", wait_for=0)
    await run.ask("Stop?", wait_for=0)
    return await OTHER
"""
    others = {"tool": 'run.ask("Third?", tool="send", wait_for=0)', "agent": 'run.spawn(inner, "inner")'}
    call = others.get(other, 'run.ask("Third?", tool="pay", wait_for=0)')
    (workspace / "agent.py").write_text(source.replace("OTHER", call))
    handle = satchel.open(workspace)
    handle.run()
    handle.answer("approve", standing=True)
    assert [each.id for each in handle.run().questions] == ["a3"] and handle.status().approved["a1"].uses == 1
    handle.answer("go on")
    if other == "code":
        (workspace / "agent.py").write_text(source.replace("OTHER", call) + "# new\n")
    if other == "fork":
        handle.history.fork(workspace.parent / "fork")
        handle = satchel.open(workspace.parent / "fork")
        assert not handle.status().approved
        ended = handle.resume()
    else:
        ended = handle.run()
    assert ended.status == "waiting" and len(ended.questions) == 1, ended.error
    taken_back = "Second?"  # no call has begun that it was about
    assert ended.questions[0].text == {"tool": "Third?", "agent": "Inner?"}.get(other, taken_back)
    if other == "code":
        assert not handle.status().approved
        assert "revoked by a change of the code" in (workspace / "approvals/a1.yaml").read_text().splitlines()[0]


def test_an_open_question_about_the_tool_is_not_covered(workspace: Path) -> None:
    """Asked before the approval that counts for it, by a concurrent call."""

    @agent
    async def main(run: Run) -> list[str]:
        asked = [run.ask(f"Pay {name}?", tool="pay", wait_for=0) for name in ("ada", "eve")]
        return [answer.how for answer in await asyncio.gather(*asked)]

    assert len(run(workspace, main).approvals) == 2
    satchel.open(workspace).answer("approve", "a1", standing=True)
    assert run(workspace, main).result == ["command", "standing"]
    assert (workspace / "approvals/a2.yaml").read_text().startswith("# answered: approve, by ")


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("way", ["file", "command"])
@pytest.mark.parametrize("stops", [True, False])
def test_a_call_begins_after_its_approval_was_revoked(workspace: Path, way: str, stops: bool) -> None:
    """Revoked between the use of the approval and the intent, by a person or another process."""
    calls: list[Any] = []

    def revoke() -> None:
        if way == "file":
            path = workspace / "approvals/a1.yaml"
            path.write_text(path.read_text().replace("\nstanding: true\n", "\nstanding: false\n"))
        else:
            done = satchel.open(workspace).revoke(by="Bob")
            assert done.id == "a1" and (done.is_recorded or done.waits_for)

    def before(text: str) -> None:
        if text == "eve" and stops and not revoked:
            revoked.append(text)
            revoke()

    revoked: list[str] = []
    main = paying(calls, before=before)
    run(workspace, main)
    satchel.open(workspace).answer("approve", standing=True, by="Ada")
    outcome = run(workspace, main)
    if not stops:
        assert outcome.status == "completed" and calls == ["ada", "eve", "bob"]
        return
    assert outcome.status == "waiting" and calls == ["ada"]
    assert [each.id for each in outcome.approvals] == ["a2"] and "\ndecision:\n" in (
        workspace / "approvals/a2.yaml"
    ).read_text()
    (record,) = records(workspace, "approval.revoked")
    assert record["id"] == "a1" and (way == "file" or record["by"] == "Bob")
    told = (workspace / "approvals/a1.yaml").read_text()
    assert "until it was revoked by" in told.splitlines()[0] and "\nstanding: false\n" in told
    assert satchel.open(workspace).revoke("a1").was_before
    satchel.open(workspace).answer("deny", "a2")
    assert [each.id for each in run(workspace, main).approvals] == ["a3"] and calls == ["ada"]
    satchel.open(workspace).answer("approve", "a3")
    assert run(workspace, main).status == "completed" and calls == ["ada", "bob"]


@pytest.mark.slow
def test_a_call_in_a_bucket_begins_after_its_approval_was_revoked(
    seaweedfs: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By another process, which can't take the run: it writes the file, and the run looks for it at the intent."""
    for name, value in seaweedfs.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(answering, "_REMOTE_PATIENCE", 0.0)
    url = seaweedfs.place()
    open_store(url).create("workspace.yaml", b"format: 1\nrun_id: test-1\nagent: agent.py:main\n")
    calls: list[Any] = []

    def before(text: str) -> None:
        if text == "eve" and not answers:
            answers.append(satchel.open(url).revoke(by="Bob"))

    answers: list[satchel.results.AnswerResult] = []
    main = paying(calls, before=before)
    assert run(open_store(url), main).status == "waiting"
    satchel.open(url).answer("approve", standing=True, by="Ada")
    outcome = run(open_store(url), main)
    assert not answers[0].is_recorded and answers[0].waits_for
    assert outcome.status == "waiting" and calls == ["ada"] and [each.id for each in outcome.approvals] == ["a2"]
    (revoked,) = satchel.open(url).history.log(type="approval.revoked")
    assert revoked.record["by"] == "Bob"
    assert "until it was revoked by Bob" in open_store(url).read("approvals/a1.yaml").data.decode()


def test_a_revocation_without_a_process_is_lost(workspace: Path) -> None:
    calls: list[Any] = []
    run(workspace, paying(calls))
    handle = satchel.open(workspace)
    with pytest.raises(UsageError, match="none is in force"):
        handle.revoke()
    handle.answer("approve", standing=True)
    with pytest.raises(UsageError, match=r"in force: a1 \(pay\)"):
        handle.revoke("a7")
    assert handle.revoke(by="Bob").is_recorded and handle.revoke("a1").was_before
    assert "until it was revoked by Bob" in (workspace / "approvals/a1.yaml").read_text()
    outcome = run(workspace, paying(calls))
    assert outcome.status == "waiting" and calls == ["ada"] and not handle.status().approved


@pytest.mark.sampled(every=5)
@pytest.mark.parametrize("decision", ["approve", "deny"])
@pytest.mark.parametrize("kind", ["retry", "verify", "answer", "step"])
def test_a_call_begins_again_after_its_approval_was_revoked(workspace: Path, kind: str, decision: str) -> None:
    """It had begun, its end is open or it has failed, and it is about to be tried again: in the same process or by
    the next one."""
    calls: list[str] = []

    def bank(to: str, *, key: str = "") -> str:
        calls.append(to)
        if calls.count("eve") == 1 and to == "eve":
            if kind in ("retry", "verify", "step"):
                assert satchel.open(workspace).revoke(by="Bob").id == "a1"
            raise ConnectionResetError
        return to

    def nothing(to: str, key: str) -> str:
        raise satchel.NotDone

    again = satchel.Retry(attempts=2, first=0.01)
    if kind == "step":
        pay = satchel.step(bank, name="pay", retry=again)
    elif kind == "verify":
        pay = effect(bank, name="pay", verify=nothing, retry=again)
    else:
        pay = effect(bank, name="pay", idempotent=kind == "retry", retry=again if kind == "retry" else None)

    async def work(run: Run[dict[str, Any]], item: Item) -> None:
        answer = await run.ask(f"Pay {item.text}?", arguments={"to": item.text}, tool="pay", wait_for=0)
        if answer == "approve":
            await pay(**answer.arguments)

    @agent
    async def main(run: Run[dict[str, Any]]) -> None:
        if not run.todo.items:
            await run.plan(None, ["ada", "eve", "bob"])
        await run.todo.each(work)

    handle = satchel.open(workspace)
    run(workspace, main)
    handle.answer("approve", standing=True, by="Ada")
    outcome = run(workspace, main)
    if kind == "answer":  # a person allows it again, and then revokes the approval
        assert [each.id for each in handle.questions()] == ["d1"]
        handle.answer("redo")
        assert handle.revoke(by="Bob").is_recorded
        outcome = run(workspace, main)
    assert calls == ["ada", "eve"], outcome
    assert outcome.status == "waiting" and [each.id for each in outcome.approvals] == ["a2"]
    assert "\ndecision:\n" in (workspace / "approvals/a2.yaml").read_text()
    handle.answer(decision, "a2")
    outcome = run(workspace, main)
    if (kind, decision) == ("retry", "deny"):  # how it ended is open, and the agent does not call it again
        assert [each.id for each in handle.questions()] == ["d1"]
        handle.answer("redo")
        outcome = run(workspace, main)
    assert [each.id for each in outcome.approvals] == ["a3"]
    assert calls == ["ada", "eve", *["eve"] * (decision == "approve")]


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("damage", ["", "standing: false", "run_id: other\nid: a1\nstanding: false", "{"])
def test_a_file_that_is_none_revokes_an_approval(workspace: Path, damage: str) -> None:
    """Absence is never an instruction."""
    calls: list[Any] = []
    run(workspace, paying(calls))
    satchel.open(workspace).answer("approve", standing=True)
    (workspace / "approvals/a1.yaml").write_text(damage)
    assert run(workspace, paying(calls)).status == "completed" and calls == ["ada", "eve", "bob"]


_KILLED = """
import os, signal
from pathlib import Path
from satchel import NotDone, agent, effect

HERE = Path(TMP)

def die(where):
    mark = HERE / f"died-{where}"
    if where in ("eve between", "ada after", "bob between", "bob before") and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)

def paid(to, key):
    bank = HERE / "bank.txt"
    if not bank.exists() or f"{key} {to}" not in bank.read_text().splitlines():
        raise NotDone
    return "paid"

@effect(verify=paid)
def pay(to: str, *, key: str) -> str:
    die(f"{to} before")
    with (HERE / "bank.txt").open("a") as file:
        file.write(f"{key} {to}\\n")
    die(f"{to} after")
    return "paid"

async def work(run, item):
    answer = await run.ask(f"Pay {item.text}?", arguments={"to": item.text}, tool="pay", wait_for=0)
    arguments = answer.arguments
    die(f"{item.text} between")
    if answer == "approve":
        run.state[item.text] = await pay(**arguments)

@agent
async def main(run):
    if not run.todo.items:
        await run.plan(None, ["ada", "eve", "bob"])
    await run.todo.each(work, parallel=2)
"""


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("place", ["disk", "bucket"])
def test_a_kill_forgets_a_standing_approval_or_uses_it_twice(
    place: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle, options = make(tmp_path / "run", _KILLED.replace("TMP", repr(str(tmp_path)))), []
    if place == "bucket":
        server: Server = request.getfixturevalue("seaweedfs")
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        satchel.new(tmp_path / "run", url := f"{server.place()}/run")
        handle, options = satchel.open(url), ["--take-over"]

    def start() -> int:
        command = [sys.executable, "-m", "satchel", "run", "--in-process", *options, handle.url]
        return warm.run(command, capture_output=True, timeout=120).returncode

    assert start() == 4
    handle.answer("approve", "a1", standing=True)
    codes = [start()]
    while codes[-1] == -signal.SIGKILL:
        codes.append(start())
    assert codes[-1] == 0 and len([*tmp_path.glob("died-*")]) == 4
    assert sorted(line.split()[1] for line in (tmp_path / "bank.txt").read_text().splitlines()) == ["ada", "bob", "eve"]
    uses = [row.record for row in handle.history.log(type="approval.answered") if row.record.get("how") == "standing"]
    assert len(uses) == handle.status().approved["a1"].uses == 2
    assert handle.revoke().is_recorded


@pytest.mark.parametrize("is_shown", [True, False])
def test_a_revocation_in_the_file_of_a_stopped_run_is_written_over(workspace: Path, is_shown: bool) -> None:
    """Also where a crash came before the file showed the answer."""
    calls: list[Any] = []
    run(workspace, paying(calls))
    form = fill_in(workspace, "a1", "approve", standing="true").read_text()
    satchel.open(workspace).answer("approve", standing=True)
    path = workspace / "approvals/a1.yaml"
    text = path.read_text() if is_shown else form
    path.write_text(text.replace("\nstanding: true\n", "\nstanding: false\n"))
    assert run(workspace, paying(calls)).status == "waiting" and calls == ["ada"]
    assert "until it was revoked by" in path.read_text().splitlines()[0]
    assert not satchel.open(workspace).status().approved


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize(
    ("typed", "said"),
    [("standing: fasle", 'found "fasle"'), ("standing: 'false'", 'found "false"'), ("standin: false", "standing")],
)
def test_a_misspelt_revocation_is_refused_without_a_word(workspace: Path, typed: str, said: str) -> None:
    calls: list[Any] = []
    run(workspace, paying(calls))
    satchel.open(workspace).answer("approve", standing=True)
    path = workspace / "approvals/a1.yaml"
    path.write_text(path.read_text().replace("\nstanding: true\n", f"\n{typed}\n"))
    outcome = run(workspace, paying(calls))
    status = satchel.open(workspace).status()
    for remarks in (outcome.report.remarks, status.report):
        (told,) = [each.text for each in remarks if each.kind == "wanted" and "approvals/a1.yaml" in each.text]
        assert "approvals/a1.yaml, line " in told and said in told and "kept as approvals/a1.rejected.yaml" in told
    assert "approvals/a1.rejected.txt" in status.refused
    assert "\nstanding: true\n" in path.read_text()
    path.write_text(path.read_text().replace("\nstanding: true\n", "\nstanding: false\n"))
    assert not [each for each in satchel.open(workspace).status().report if "rejected" in each.text]


def test_an_approval_can_not_be_revoked_after_many_uses(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answers of so many later questions are remembered for their files."""
    monkeypatch.setattr(files, "_LOOKED_AT", 20)

    @agent
    async def main(run: Run) -> None:
        for number in range(30):
            await run.ask(f"Pay {number}?", tool="pay", wait_for=0)

    run(workspace, main)
    satchel.open(workspace).answer("approve", standing=True)
    assert run(workspace, main).status == "completed"
    done = satchel.open(workspace).revoke("a1", by="Bob")
    assert done.is_recorded and done.answer and not done.answer.standing
    assert "until it was revoked by Bob" in (workspace / "approvals/a1.yaml").read_text().splitlines()[0]


@pytest.mark.parametrize("what", ["code", "fork"])
def test_what_an_approval_has_allowed_outlives_it(workspace: Path, what: str) -> None:
    """Approved under it, not begun, and then done by other code or another run."""
    source = """
from satchel import agent, effect

@effect
def pay(to: str) -> str:
    with (HERE / "paid").open("a") as file:
        file.write(to)
    return to

@agent
async def main(run):
    for to in ("ada", "eve"):
        answer = await run.ask(f"Pay {to}?", tool="pay", wait_for=0)
        if to == "eve" and not (HERE / "on").exists():
            raise TypeError("stop")
        if answer == "approve":
            await pay(to)
"""
    source = f"from pathlib import Path\nHERE = Path({str(workspace.parent)!r})\n{source}"
    (workspace / "agent.py").write_text(source)
    handle = satchel.open(workspace)
    handle.run()
    handle.answer("approve", standing=True)
    assert handle.run().status == "failed" and handle.status().approved["a1"].told
    (workspace.parent / "on").touch()
    if what == "code":
        (workspace / "agent.py").write_text(source + "# new\n")
    else:
        handle.history.fork(workspace.parent / "fork")
        handle = satchel.open(workspace.parent / "fork")
        assert not (answered := handle.status()).approved, answered
    outcome = handle.resume()
    assert outcome.status == "waiting" and [each.id for each in outcome.questions] == ["a2"]
    assert (workspace.parent / "paid").read_text() == "ada"
    handle.answer("deny", "a2")
    assert handle.run().status == "completed" and (workspace.parent / "paid").read_text() == "ada"


def paying_at_once(calls: list[str], order: str, may_go_on: Callable[[str], bool], kind: str) -> Any:
    """An agent that asks about all payments, and then makes them in this order, in one scope."""

    def bank(to: str) -> str:
        calls.append(to)
        return to

    def bank_in_euro(to: str, currency: str = "EUR") -> str:
        return bank(to)

    if kind == "step":
        pay: Any = satchel.step(bank, name="pay")
    else:
        pay = effect(bank_in_euro if kind == "default" else bank, name="pay")

    @agent
    async def main(run: Run) -> None:
        await run.ask("Pay ada?", tool="pay", arguments={"to": "ada"}, wait_for=0)
        names = ["eve", "bob", "cyd"]
        given = [{} if kind == "bare" else {"arguments": {"to": name}} for name in names]
        asked = [
            run.ask(f"Pay {name}?", tool="pay", wait_for=0, **each)
            for name, each in zip(names, given, strict=True)  # type: ignore[arg-type]
        ]
        answers = dict(zip(names, await asyncio.gather(*asked), strict=True))
        for name in order.split():
            if not may_go_on(name):
                raise TypeError("stop")
            if answers[name] == "approve":
                await pay(name)

    return main


@pytest.mark.sampled(every=7, rest="soak")
@pytest.mark.parametrize("kind", ["effect", "step", "default", "bare"])
@pytest.mark.parametrize("order", ["bob eve cyd", "eve bob cyd", "cyd bob eve"])
@pytest.mark.parametrize("done", [1, 2, 3])
def test_the_wrong_one_of_two_approved_calls_counts_as_begun(workspace: Path, order: str, done: int, kind: str) -> None:
    """They have one tool and one scope. Those that have not begun are asked about again, whichever they are."""
    calls: list[str] = []
    goes_on = False

    def may_go_on(name: str) -> bool:
        return goes_on or order.split().index(name) < done

    main = paying_at_once(calls, order, may_go_on, kind)
    run(workspace, main)
    handle = satchel.open(workspace)
    handle.answer("approve", standing=True)
    outcome = run(workspace, main)
    assert calls == order.split()[:done] and outcome.status == ("failed" if done < 3 else "completed")
    assert handle.revoke("a1", by="Bob").is_recorded
    left = {each.text: each.id for each in handle.questions()}
    wanted = {f"Pay {name}?" for name in order.split()[done:]}
    assert wanted <= left.keys() and (left.keys() == wanted or not (kind != "bare" or done == 3))
    goes_on = True
    for id in left.values():
        handle.answer("deny", id)
    assert run(workspace, main).status == "completed" and calls == order.split()[:done]
