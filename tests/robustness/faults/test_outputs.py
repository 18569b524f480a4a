"""Outputs in a bucket: what another owner has made since, or a person, is never replaced by a write from before."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from servers import BUCKET, Server

from faults.faults import delayed, drop_after, hang, late
from faults.working import Machine, opened, undisturbed
from satchel import Item, Run, agent
from satchel.runtime.agent.declaration import Agent
from satchel.workspace.base.errors import LeaseHeld
from satchel.workspace.inspect.load import look
from satchel.workspace.inspect.report import last
from satchel.workspace.lifecycle import acquire

REPORT = "outputs/report.md"


def writing(*texts: str) -> Agent:
    """An agent that makes its report of each of these, in an item of its own."""

    @agent
    async def main(run: Run[Any]) -> None:
        if not run.todo.items:
            await run.plan("Report", [f"draft {number}" for number in range(len(texts))])
        left = iter(texts)

        async def named(run: Run[Any], item: Item) -> None:
            await run.output("report.md", next(left))

        await run.todo.each(named)

    return main


def there(server: Server, prefix: str, path: str = REPORT) -> str:
    answer = server.client.get_object(Bucket=BUCKET, Key=f"{prefix}/{path}")
    return str(answer["Body"].read().decode())


def is_as_recorded(server: Server, prefix: str) -> bool:
    """Whether the output is what the journal says that the run has made."""
    made = look(undisturbed(server, prefix)).moment.outputs[REPORT]
    return hashlib.sha256(there(server, prefix).encode()).hexdigest() == made.sha256


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("has_written", [False, True])
def test_an_owner_that_was_frozen_before_its_output_replaces_that_of_the_next(
    seaweedfs: Server, prefix: str, machines: list[Machine], monkeypatch: pytest.MonkeyPatch, has_written: bool
) -> None:
    """It wakes up when the next owner has completed the run. Once it had made that output before, once it had not."""
    monkeypatch.setenv(acquire.TTL_VARIABLE, "0.5")
    old, new = machines
    first = ["the first draft"] if has_written else []
    old.store = opened(seaweedfs, old.proxy.url, prefix, patience=60)
    held = old.proxy.plant(delayed(), method="PUT", kind="outputs", skip=len(first), times=None)
    old.start(writing(*first, "by the old owner"))
    held.await_strike()
    with old.proxy.plant(hang(), kind="lease", times=None):
        new.run(writing("by the new owner"))
        assert new.is_completed, (new.error, new.outcome)
        assert there(seaweedfs, prefix) == "by the new owner"
        held.lift()
        old.wait()
    assert isinstance(old.error, LeaseHeld), (old.error, old.outcome)
    assert there(seaweedfs, prefix) == "by the new owner" and is_as_recorded(seaweedfs, prefix)


@pytest.mark.parametrize(
    "seed",
    [1, *(pytest.param(seed, marks=pytest.mark.slow if seed < 6 else pytest.mark.soak) for seed in range(2, 41))],
)
def test_an_output_that_arrives_late_replaces_a_newer_one(
    seaweedfs: Server, prefix: str, machines: list[Machine], seed: int
) -> None:
    """The client has given it up, sent it again and gone on. The network delivers the first ones at the end."""
    print(f"seed {seed}")
    machine, since = machines[0], len(machines[0].proxy.seen)
    drafts = [f"draft {number}" for number in range(6)]
    planted = machine.proxy.plant(late, method="PUT", kind="outputs", times=4, chance=0.8, seed=seed)
    machine.run(writing(*drafts))
    assert machine.is_completed, machine.error
    planted.lift()
    delayed_ones = [each for each in machine.proxy.seen[since:] if each.fault == "late"]
    for each in delayed_ones:
        machine.proxy.await_answer(each)
        assert each.status == 412
    assert len(delayed_ones) == planted.struck > 0
    assert there(seaweedfs, prefix) == drafts[-1] and is_as_recorded(seaweedfs, prefix)


def test_an_output_whose_answer_was_lost_is_taken_for_anothers(
    seaweedfs: Server, prefix: str, machines: list[Machine]
) -> None:
    """Sent again, it is refused because of what it has written itself."""
    machine = machines[0]
    with machine.proxy.plant(drop_after, method="PUT", kind="outputs", times=2) as planted:
        machine.run(writing("one", "two"))
    assert machine.is_completed and planted.struck == 2, machine.error
    assert there(seaweedfs, prefix) == "two" and is_as_recorded(seaweedfs, prefix)
    assert kept(seaweedfs, prefix) == []


def kept(server: Server, prefix: str) -> list[str]:
    """What lies in outputs/ besides the report."""
    found = server.client.list_objects_v2(Bucket=BUCKET, Prefix=f"{prefix}/outputs/").get("Contents", [])
    return [each["Key"].removeprefix(f"{prefix}/") for each in found if each["Key"] != f"{prefix}/{REPORT}"]


def test_what_a_person_saves_between_two_drafts_is_lost(
    seaweedfs: Server, prefix: str, machines: list[Machine]
) -> None:
    """The second draft was on its way when the person saved."""
    machine = machines[0]
    machine.store = opened(seaweedfs, machine.proxy.url, prefix, patience=60)
    held = machine.proxy.plant(delayed(), method="PUT", kind="outputs", skip=1)
    machine.start(writing("one", "two", "three"))
    held.await_strike()
    seaweedfs.client.put_object(Bucket=BUCKET, Key=f"{prefix}/{REPORT}", Body=b"a person's")
    held.lift()
    machine.wait()
    assert machine.is_completed, machine.error
    assert there(seaweedfs, prefix) == "three" and is_as_recorded(seaweedfs, prefix)
    assert there(seaweedfs, prefix, "outputs/report.rejected.md") == "a person's"
    assert kept(seaweedfs, prefix) == ["outputs/report.rejected.md", "outputs/report.rejected.txt"]
    assert any("outputs/report.rejected.md" in remark.text for remark in last(machine.store))
