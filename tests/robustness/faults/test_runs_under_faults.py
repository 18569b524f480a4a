"""Whole runs on a network that breaks: each ends right, or stops with a clear error and ends right after a resume.

Nothing that was acknowledged is done again, and no effect is done twice.
"""

from __future__ import annotations

from typing import Any

import pytest
from servers import BUCKET, Server

from faults.faults import FAULTS, late, partition, slow_down, without
from faults.proxy import proxying
from faults.working import DEFINITION, ITEMS, Machine, Midway, World, check, opened, tell_clearly, undisturbed
from satchel import Run, agent, step
from satchel.workspace import journal
from satchel.workspace.base.errors import LeaseHeld, UsageError
from satchel.workspace.inspect.load import look
from satchel.workspace.lifecycle import acquire

KINDS = {"journal": 3, "checkpoints": 0, "lease": 1, "projections": 1, "bucket": 1, None: 12}
"""What the requests are about that go wrong, and how many of them go well before."""
QUICK = {
    ("dropped after", "journal"),
    ("403", "journal"),
    ("403", "lease"),
    ("truncated", None),
    ("500, but done", "lease"),
}


def _pairs() -> list[Any]:
    pairs = [(fault, kind) for fault in FAULTS for kind in KINDS]
    tiers = [pytest.mark.slow if number % 5 < 2 else pytest.mark.soak for number in range(len(pairs))]
    return [pair if pair in QUICK else pytest.param(*pair, marks=tier) for pair, tier in zip(pairs, tiers, strict=True)]


@pytest.mark.parametrize("fault, kind", _pairs())
def test_a_run_ends_right_or_says_why_not(
    seaweedfs: Server,
    prefix: str,
    machines: list[Machine],
    monkeypatch: pytest.MonkeyPatch,
    fault: str,
    kind: str | None,
) -> None:
    """The fault strikes twice in a row: the request that is to mend it, too."""
    monkeypatch.setenv(acquire.TTL_VARIABLE, "8" if kind == "lease" else "4")
    # A beat takes more than two seconds if it is twice asked to wait for one. If the run ends meanwhile, it leaves its
    # lease to those who watch it, and how long it waits before that is not what is tested here.
    monkeypatch.setattr(acquire, "_PATIENCE", 60.0)
    machine, world = machines[0], World()
    times = 2 if fault != "403" else 1
    with machine.proxy.plant(FAULTS[fault], kind=kind, times=times, skip=KINDS[kind]) as planted:
        machine.run(world.agent())
    assert planted.struck
    tell_clearly(machine)
    for _ in range(2):
        if not machine.is_completed:
            machine.run(world.agent())
            tell_clearly(machine)
    check(seaweedfs, prefix, world, ITEMS)


@pytest.mark.sampled(every=12, rest="soak")
@pytest.mark.parametrize("seed", range(1, 13))
def test_a_run_on_a_bad_network(
    seaweedfs: Server, prefix: str, machines: list[Machine], monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """All kinds of trouble, one request in eight, and credentials that expire now and then."""
    print(f"seed {seed}")
    monkeypatch.setenv(acquire.TTL_VARIABLE, "4")
    machine, world = machines[0], World()
    for number, name in enumerate(("dropped before", "dropped after", "500, but done", "503", "truncated")):
        machine.proxy.plant(FAULTS[name], times=None, chance=0.025, seed=100 * seed + number)
    machine.proxy.plant(FAULTS["403"], times=4, chance=0.02, seed=100 * seed + 9)
    for _ in range(10):
        machine.run(world.agent())
        tell_clearly(machine)
        if machine.is_completed:
            break
    assert sum(bool(each.fault) for each in machine.proxy.seen) > 3
    check(seaweedfs, prefix, world, ITEMS)


def test_throttled_for_a_while_it_waits(seaweedfs: Server, prefix: str, machines: list[Machine]) -> None:
    machine, world = machines[0], World()
    machine.store = opened(seaweedfs, machine.proxy.url, prefix, patience=60)
    with machine.proxy.plant(slow_down(), method="PUT", kind="journal", skip=5, times=None) as planted:
        machine.start(world.agent())
        planted.await_strike(4)
    machine.wait()
    assert machine.is_completed, machine.error
    check(seaweedfs, prefix, world, ITEMS)


def test_a_partition_that_outlives_the_lease(
    seaweedfs: Server, prefix: str, machines: list[Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old owner is cut off in a long step. Another one takes over and finishes; the old one does nothing more."""
    monkeypatch.setenv(acquire.TTL_VARIABLE, "2")
    old, new = machines
    old.store = opened(seaweedfs, old.proxy.url, prefix, patience=60)
    world = World()
    midway = Midway()
    old.start(world.agent(midway))
    midway.await_reached()
    with partition(old.proxy):
        new.run(world.agent())
        assert new.is_completed, new.error
        midway.go_on()
        check(seaweedfs, prefix, world, ITEMS)
    old.wait()
    assert isinstance(old.error, LeaseHeld), (old.error, old.outcome)
    check(seaweedfs, prefix, world, ITEMS)


def test_a_partition_that_the_lease_outlives(
    seaweedfs: Server, prefix: str, machines: list[Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner is back in time: whoever wanted to take over is refused, and the owner goes on."""
    monkeypatch.setenv(acquire.TTL_VARIABLE, "6")
    old, new = machines
    old.store = opened(seaweedfs, old.proxy.url, prefix, patience=60)
    world, other = World(), World()
    midway = Midway()
    old.start(world.agent(midway))
    midway.await_reached()
    with partition(old.proxy, silent=False) as cut:
        new.start(other.agent())
        cut.await_strike(2)
    new.wait()
    assert isinstance(new.error, LeaseHeld), (new.error, new.outcome)
    midway.go_on()
    old.wait()
    assert old.is_completed, old.error
    assert not other.executed and not other.done
    check(seaweedfs, prefix, world, [*ITEMS, "two, after all"])


@pytest.mark.slow
def test_a_partition_that_outlives_the_lease_and_nobody_takes_over(
    seaweedfs: Server, prefix: str, machines: list[Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner begins no effect while it can't tell; back, it sees that nobody has, and goes on."""
    monkeypatch.setenv(acquire.TTL_VARIABLE, "1")
    machine, world = machines[0], World()
    machine.store = opened(seaweedfs, machine.proxy.url, prefix, patience=60)
    midway = Midway()
    machine.start(world.agent(midway))
    midway.await_reached()
    with partition(machine.proxy) as cut:
        midway.go_on()
        cut.await_strike(6)  # each waits for half a second
        assert world.done == {"one": 1, "two": 1}
    machine.wait()
    assert machine.is_completed, machine.error
    check(seaweedfs, prefix, world, [*ITEMS, "two, after all"])


@pytest.mark.slow
def test_a_commit_that_arrives_again_after_it_was_rolled_up(
    seaweedfs: Server, prefix: str, machines: list[Machine]
) -> None:
    """Its name is free by then, so the bucket takes it. Whoever reads has to know better."""
    machine = machines[0]

    @step
    async def fill(number: int) -> str:
        return "x" * 3000

    async def work() -> None:
        for number in range(30):
            await fill(number)

    @agent
    async def main(run: Run[Any]) -> int:
        await run.scope("calls", work)
        return 7

    with machine.proxy.plant(late, method="PUT", kind="journal", skip=3) as planted:
        machine.run(main)
        assert machine.is_completed, machine.error
    held = next(each for each in machine.proxy.seen if each.fault == "late")
    machine.proxy.await_answer(held)
    assert held.status == 200 and planted.struck
    seen = look(undisturbed(seaweedfs, prefix))
    assert seen.moment.status == "completed"
    lines = journal.read(undisturbed(seaweedfs, prefix), after=0).lines
    assert [line.seq for line in lines] == list(range(1, seen.moment.seq + 1))


@pytest.mark.slow  # starts a second server; tests/workspace/store/test_probe.py has the same without a run
@pytest.mark.parametrize("unknown", [("If-None-Match",), ("If-Match",), ("If-None-Match", "If-Match")])
def test_a_bucket_that_knows_no_conditions_is_refused(moto: Server, unknown: tuple[str, ...]) -> None:
    world, prefix = World(), moto.place().removeprefix(f"s3://{BUCKET}/")
    moto.client.put_object(Bucket=BUCKET, Key=f"{prefix}/workspace.yaml", Body=DEFINITION)
    with proxying(moto.endpoint) as proxy:
        machine = Machine(proxy, opened(moto, proxy.url, prefix))
        with proxy.plant(without(*unknown), times=None):
            machine.run(world.agent())
        assert isinstance(machine.error, UsageError), (machine.error, machine.outcome)
        assert unknown[0] in str(machine.error) and machine.error.remedy
        assert not world.executed and not world.done
