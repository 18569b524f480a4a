"""What a run may use, and what it says it has used."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import warm
from noticing import Watching

from satchel import Item, Run, agent, run, step
from satchel.runtime.live import limits
from satchel.workspace.base.errors import AgentError, Refused, UsageError
from satchel.workspace.formats import yamltext
from satchel.workspace.inspect import load
from satchel.workspace.state.run_state import Moment
from satchel.workspace.store import open_store

HEAD = "format: 1\nrun_id: test-1\nagent: agent.py:main\n"


def budget(workspace: Path, **limits: Any) -> None:
    (workspace / "workspace.yaml").write_text(HEAD + f"budget: {json.dumps(limits)}\n" if limits else HEAD)


def moment(workspace: Path) -> Moment:
    return load.look(open_store(str(workspace))).moment


def pause(workspace: Path) -> dict[str, Any]:
    found: dict[str, Any] = yamltext.load((workspace / "pause.yaml").read_text(), "pause.yaml").value
    return found


def spending(calls: list[str], **amount: Any) -> Any:
    @step
    async def pay(run: Run[Any], what: str) -> None:
        run.spend(**amount)
        calls.append(what)

    @agent
    async def main(run: Run[Any]) -> None:
        for what in "abcdef":
            await pay(what=what)

    return main


@pytest.mark.parametrize(
    ("limit", "amount", "reason"),
    [
        ({"usd": 5}, {"usd": 1.7}, "cost: the budget of $5.00 is used up ($5.10)"),
        ({"tokens": 30}, {"tokens": 10}, "cost: the budget of 30 tokens is used up (30)"),
        ({"steps": 3}, {}, "cost: the budget of 3 steps is used up (3)"),
    ],
)
@pytest.mark.parametrize("durability", ["strict", "pipelined"])
def test_a_run_goes_on_when_its_budget_is_used_up(
    workspace: Path, calls: list[str], limit: dict[str, Any], amount: dict[str, Any], reason: str, durability: Any
) -> None:
    budget(workspace, **limit)
    main = spending(calls, **amount)
    main = agent(durability=durability)(main.function)
    assert run(workspace, main).status == "paused"
    assert calls == ["a", "b", "c"]
    assert (pause(workspace)["reason"], pause(workspace)["by"]) == (reason, "the budget")


@pytest.mark.parametrize("wake", [False, True])
def test_a_run_whose_budget_is_used_up_is_gone_on_with(workspace: Path, calls: list[str], wake: bool) -> None:
    budget(workspace, usd=2)
    main = spending(calls, usd=1.0)
    run(workspace, main)
    before = (workspace / "pause.yaml").read_text()
    with pytest.raises(Refused) as caught:
        run(workspace, main, wake=wake)
    said = str(caught.value)
    assert "the budget of $2.00 is used up ($2.00)" in said
    assert "budget: usd:" in said
    assert (workspace / "pause.yaml").read_text() == before
    assert moment(workspace).status == "paused"
    (workspace / "pause.yaml").write_text(before.replace("status: paused", "status: resume"))
    with pytest.raises(Refused):
        run(workspace, main)
    budget(workspace, usd=200)
    (workspace / "pause.yaml").write_text(before)
    assert run(workspace, main).status == "paused"
    assert run(workspace, main, wake=True).status == "completed"
    assert "".join(calls) == "abcdef"
    assert moment(workspace).usage.usd == 6


def test_the_last_step_that_uses_it_up_keeps_the_run_from_completing(workspace: Path, calls: list[str]) -> None:
    budget(workspace, usd=6, steps=6)
    assert run(workspace, spending(calls, usd=1.0)).status == "completed"


@pytest.mark.parametrize("durability", ["strict", "pipelined"])
def test_steps_that_begin_together_exceed_the_budget(workspace: Path, calls: list[str], durability: Any) -> None:
    budget(workspace, steps=7)

    @step
    async def work(number: int) -> None:
        await asyncio.sleep(0.01)
        calls.append(str(number))

    @agent(durability=durability)
    async def main(run: Run[Any]) -> None:
        await asyncio.gather(*(work(number) for number in range(40)))

    assert run(workspace, main).status == "paused"
    assert len(calls) == 7


def test_a_step_that_fails_counts(workspace: Path, calls: list[str]) -> None:
    budget(workspace, steps=3)

    @step
    async def fail(number: int) -> None:
        calls.append("failed")
        raise ValueError

    @step
    async def work(number: int) -> None:
        calls.append("worked")

    @agent
    async def main(run: Run[Any]) -> None:
        for number in range(6):
            with pytest.raises(ValueError):
                await fail(number)
            await work(number)

    assert run(workspace, main).status == "paused"
    assert calls.count("worked") == 3


@pytest.mark.parametrize("where", ["thread", "to_thread", "bare thread"])
def test_what_a_thread_spends_is_lost(workspace: Path, where: str) -> None:
    @step
    def pay(run: Run[Any]) -> None:
        for _ in range(50):
            run.spend(tokens=1)

    @step
    async def pay_elsewhere(run: Run[Any]) -> None:
        def spend() -> None:
            for _ in range(50):
                run.spend(tokens=1)

        if where == "to_thread":
            await asyncio.to_thread(spend)
        else:
            thread = threading.Thread(target=spend)
            thread.start()
            await asyncio.to_thread(thread.join)

    @agent
    async def main(run: Run[Any]) -> None:
        await asyncio.gather(*((pay if where == "thread" else pay_elsewhere)() for _ in range(4)))

    outcome = run(workspace, main)
    assert outcome.status == "completed", outcome.error
    assert moment(workspace).usage.tokens == 200


def test_what_an_item_spends_counts_twice_when_it_is_entered_again(workspace: Path, crash: Any) -> None:
    @step
    async def model(text: str) -> int:
        return 100

    async def work(run: Run[Any], item: Any) -> None:
        for text in ("a", "b", "b"):
            run.spend(tokens=await model(text))
        run.spend(tokens=1)
        if run.attempt == 1:
            await run.checkpoint()
            raise crash
        await model("c")
        run.spend(tokens=100)

    @agent
    async def main(run: Run[Any]) -> None:
        if not run.todo.items:
            await run.plan(None, ["one", "two"])
        await run.todo.each(work)

    with pytest.raises(crash):
        run(workspace, main)
    assert moment(workspace).usage.tokens == 301
    assert run(workspace, main).status == "completed"
    assert moment(workspace).usage.tokens == 802


def test_what_a_step_has_spent_in_an_attempt_that_crashed_is_forgotten(workspace: Path, crash: Any) -> None:
    @step
    async def pay(run: Run[Any]) -> None:
        run.spend(usd=1)
        await run.checkpoint()
        if run.attempt == 1:
            raise crash

    @agent
    async def main(run: Run[Any]) -> None:
        await pay()

    with pytest.raises(crash):
        run(workspace, main)
    run(workspace, main)
    assert moment(workspace).usage.usd == 2


def test_a_sub_agent_has_a_budget_of_its_own(workspace: Path, calls: list[str]) -> None:
    budget(workspace, usd=4)
    child = spending(calls, usd=1.0)

    @agent
    async def main(run: Run[Any]) -> None:
        await asyncio.gather(run.spawn(child, "one"), run.spawn(child, "two"))

    assert run(workspace, main).status == "paused"
    assert len(calls) == 4


def test_a_block_that_is_not_to_be_interrupted_is_cut_off_by_the_budget(workspace: Path, calls: list[str]) -> None:
    budget(workspace, steps=1)
    main = spending(calls)

    @agent
    async def held(run: Run[Any]) -> None:
        async with run.uninterrupted("all"):
            await main.function(run)
        await main.function(run)

    assert run(workspace, held).status == "paused"
    assert "".join(calls) == "abcdef"


def test_an_agent_that_only_spends_is_never_stopped(workspace: Path) -> None:
    budget(workspace, usd=3)

    @agent
    async def main(run: Run[Any]) -> None:
        while True:
            run.spend(usd=1)
            await asyncio.sleep(0.1)

    assert run(workspace, main).status == "paused"
    assert moment(workspace).usage.usd == 4


@pytest.mark.parametrize(
    "amount",
    [
        {"tokens": -1},
        {"output_tokens": -1},
        {"tokens": 2, "output_tokens": 3},
        {"tokens": 2, "model": None},
        {"tokens": True},
        {"tokens": 1.5},
        {"usd": -0.01},
        {"usd": float("nan")},
        {"usd": float("inf")},
        {"usd": True},
        {"usd": "5"},
    ],
)
def test_an_expense_that_is_none_is_recorded(workspace: Path, amount: dict[str, Any]) -> None:
    outcome = run(workspace, spending([], **amount))
    assert isinstance(outcome.error, UsageError)
    assert moment(workspace).usage.usd == moment(workspace).usage.tokens == 0


def test_what_is_spent_after_the_end_goes_unsaid(workspace: Path) -> None:
    runs: list[Run[Any]] = []

    @agent
    async def main(run: Run[Any]) -> None:
        runs.append(run)

    run(workspace, main)
    with pytest.raises(AgentError, match="after the run had stopped"):
        runs[0].spend(usd=1)


def test_nobody_is_warned_before_the_budget_is_used_up(workspace: Path, calls: list[str]) -> None:
    budget(workspace, usd=10, tokens=100)
    watch = Watching()
    assert run(workspace, spending(calls, usd=1.5, tokens=1), watch=watch).status == "completed"
    assert watch.lines == [("budget", "$9.00 of $10.00 used")]


def test_a_warning_of_what_was_spent_goes_ahead_of_its_record(workspace: Path) -> None:
    budget(workspace, tokens=10)
    durable: list[bool] = []

    class Looking(Watching):
        def noticed(self, kind: str, text: str) -> None:
            durable.append(moment(workspace).usage.tokens == 9)

    def work(run: Run[Any], item: Item) -> None:
        run.spend(tokens=9)

    @agent
    async def main(run: Run[Any]) -> None:
        await run.plan(None, ["a"])
        await run.todo.each(work)

    assert run(workspace, main, watch=Looking()).status == "completed"
    assert durable == [True]


def test_a_run_takes_longer_than_it_may(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    budget(workspace, time="1h")
    ahead = timedelta()
    monkeypatch.setattr(limits, "utc_now", lambda: datetime.now(UTC) + ahead)
    monkeypatch.setattr(limits, "TICK", 0.01)
    watch = Watching()

    @agent
    async def main(run: Run[Any]) -> None:
        nonlocal ahead
        ahead = timedelta(minutes=50)
        await asyncio.sleep(0.1)
        ahead = timedelta(minutes=61)
        await asyncio.sleep(30)

    assert run(workspace, main, watch=watch).status == "paused"
    assert pause(workspace)["reason"].startswith("cost: the budget of 3600 s is used up (366")
    assert watch.lines[0][0] == "budget"
    assert watch.lines[0][1].startswith("300")
    assert watch.lines[0][1].endswith(" s of 3600 s used")


def test_a_time_that_is_over_is_not_noticed_before_the_next_look(workspace: Path) -> None:
    budget(workspace, time="0.3s")

    @agent
    async def main(run: Run[Any]) -> None:
        await asyncio.sleep(30)

    assert run(workspace, main).status == "paused"
    with pytest.raises(Refused):
        run(workspace, main, wake=True)


def satchel(workspace: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return warm.run(
        [sys.executable, "-m", "satchel", *words, str(workspace)], capture_output=True, text=True, timeout=60
    )


_AGENT = """
from satchel import Run, agent, step

@step
async def pay(run: Run, n: int) -> None:
    run.spend(usd=2.51)

@agent
async def main(run):
    for n in range(4):
        await pay(n=n)
"""


def test_status_says_nothing_of_the_budget_and_resume_exits_with_another_code(workspace: Path) -> None:
    budget(workspace, usd=5, tokens=1000)
    (workspace / "agent.py").write_text(_AGENT)
    assert satchel(workspace, "run").returncode == 3
    told = satchel(workspace, "status").stdout
    assert "$5.02 of $5.00" in told
    assert "0 of 1000 tokens" in told
    shown = json.loads(satchel(workspace, "status", "--json").stdout)
    assert shown["budget"] == {
        "tokens": {"used": 0, "limit": 1000, "used_up": False},
        "usd": {"used": 5.02, "limit": 5, "used_up": True},
    }
    refused = satchel(workspace, "resume")
    assert refused.returncode == 2
    assert "5.02" in refused.stderr
    budget(workspace, usd=50)
    assert satchel(workspace, "resume").returncode == 0
