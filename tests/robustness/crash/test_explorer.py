"""Whatever a kill or a power failure leaves of a workspace opens, and nothing that was acknowledged is missing."""

from __future__ import annotations

import getpass
import itertools
import os
import platform
import random
import socket
import time

import pytest
from properties import ROUNDS

from . import legal, memory
from .explorer import Explorer, Tally
from .legal import Chain, Crash, Torn
from .memory import ROOT, Memory
from .steady import steady
from .workloads import WORKLOADS

SEED = int(os.environ.get("SATCHEL_SEED") or 1)

_STATES = {
    "growth": 5200,
    "agent": 3100,
    "commits": 3100,
    "effects": 2250,
    "streams": 2100,
    "pipelined": 1850,
    "outputs": 1800,
    "persons-plan": 1150,
}
"""How many distinct states the exploration of a whole workload goes through at least: more than 20,000 in all.
One round is one part of each."""

_PARTS = {"growth": 4, "agent": 4, "pipelined": 4}
"""The longest explorations are in so many tests, so that several processes share them. The others are in two."""

_CHEAP = ("commits", "effects", "streams", "outputs", "persons-plan")


def _explore(name: str, seed: int, every: int, per_call: int = 2) -> Tally:
    tally = Explorer(WORKLOADS[name], seed, per_call, every=every).explore()
    print(f"{name}, seed {seed}: {tally}")
    return tally


@pytest.mark.parametrize("name", [*WORKLOADS][::4])
def test_a_crashed_workspace_opens_with_all_that_was_acknowledged(name: str) -> None:
    """Every 320th call of every fourth workload; which ones, and what is lost, follows from the seed. The slow tests
    take many more, of all workloads."""
    assert _explore(name, SEED, every=320).states


@pytest.mark.sampled(every=5)
@pytest.mark.parametrize("name", WORKLOADS)
def test_a_recording_is_the_same_on_any_machine(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow it is, and whatever it is called. Otherwise another machine explores other crashes, and a planted
    fault is found on some of them only."""
    explorer, rng = Explorer(WORKLOADS[name], SEED, per_call=1), random.Random(SEED)
    with steady():
        calls = [step.call for step in explorer.record().log]
    jumps = (rng.choice((0, 0, 0, 0.001, 0.03, 0.2)) for _ in itertools.count())
    clock = itertools.accumulate(jumps, initial=time.monotonic())
    monkeypatch.setattr(time, "monotonic", clock.__next__)
    monkeypatch.setattr(socket, "gethostname", lambda: "a-rather-long-name." * 3)
    monkeypatch.setattr(getpass, "getuser", lambda: "x")
    monkeypatch.setattr(platform, "python_version", lambda: "3.14.10")
    with steady():
        assert [step.call for step in explorer.record().log] == calls


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "part"), [(name, part) for name in _STATES for part in range(1 if ROUNDS == 1 else _PARTS.get(name, 2))]
)
def test_no_crash_at_any_call_loses_anything(name: str, part: int) -> None:
    """Every 16th or 32nd call of the workloads without edits and sub-agents; a soak tries every call. The seed chooses
    those of a part."""
    every = _PARTS.get(name, 2) * (8 if ROUNDS == 1 else 1)
    tally = _explore(name, SEED + 6 + part, every=every, per_call=3 if name in _CHEAP else 2)
    assert tally.states >= _STATES[name] / every * 0.8


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(WORKLOADS.keys() - _STATES.keys()))
def test_more_crashes_around_edits_and_sub_agents_lose_nothing(name: str) -> None:
    assert _explore(name, SEED + 2, every=52 // min(ROUNDS, 4)).states


# What the model of a power failure allows


def _states(system: Memory) -> list[dict[str, bytes]]:
    losses = list(legal.power_failures(system.nodes, random.Random(1), 1000))
    return [legal.survivors(system.nodes, each) for each in losses]


def _written(system: Memory, name: str, data: bytes) -> int:
    fd = system.open_new(f"{ROOT}/{name}")
    system.write(fd, data)
    return fd


def test_a_synced_file_without_a_synced_name_may_be_gone_but_never_torn() -> None:
    system = Memory()
    system.sync(_written(system, "a", b"whole"))
    assert {frozenset(state.items()) for state in _states(system)} == {frozenset(), frozenset({("a", b"whole")})}


def test_an_unsynced_file_may_be_empty_torn_or_zeros() -> None:
    system = Memory()
    _written(system, "a", b"x" * 6000)
    system.sync_folder(ROOT)
    found = {state["a"] for state in _states(system)}
    assert {b"", b"x" * 6000, b"x" * 3000, bytes(6000), bytes(4096) + b"x" * 1904, b"x" * 512} <= found


def test_what_was_synced_before_an_append_stays() -> None:
    system = Memory()
    fd = _written(system, "a", b"old")
    system.sync_data(fd)
    system.sync_folder(ROOT)
    system.write(fd, b"new")
    found = {state["a"] for state in _states(system)}
    assert {b"old", b"oldnew", b"old\0\0\0"} <= found
    assert all(each.startswith(b"old") for each in found)


def test_a_replaced_file_is_old_or_new_and_both_names_may_be_lost() -> None:
    system = Memory(memory.planted({"a": b"old"}, ("tmp",)))
    system.sync(_written(system, "tmp/1", b"new"))
    system.rename(f"{ROOT}/tmp/1", f"{ROOT}/a")
    assert {state["a"] for state in _states(system)} == {b"old", b"new"}
    assert any(state["a"] == b"old" and "tmp/1" not in state for state in _states(system))
    assert any(state["a"] == b"new" and "tmp/1" in state for state in _states(system))


def test_a_lost_folder_takes_what_was_synced_in_it() -> None:
    system = Memory()
    system.mkdir(f"{ROOT}/d")
    system.sync(_written(system, "d/a", b"x"))
    system.sync_folder(f"{ROOT}/d")
    assert {frozenset(state) for state in _states(system)} == {frozenset(), frozenset({"d/a"})}


def test_a_removal_may_be_undone_by_a_power_failure_but_not_by_a_kill() -> None:
    system = Memory(memory.planted({"a": b"x"}))
    system.unlink(f"{ROOT}/a")
    assert memory.files(legal.state_after(system.log, Crash(0))) == {}
    assert {frozenset(state) for state in _states(system)} == {frozenset(), frozenset({"a"})}


def test_changes_of_one_name_stay_in_order() -> None:
    system = Memory(memory.planted({"tmp/1": b"1", "tmp/2": b"2"}))
    for number in (1, 2):
        system.rename(f"{ROOT}/tmp/{number}", f"{ROOT}/a")
    assert {state.get("a") for state in _states(system)} == {None, b"1", b"2"}
    (chain,) = (each for each in legal.chains(system.nodes) if each.path == "a")
    assert legal.survivors(system.nodes, {chain: 1})["a"] == b"1"


def test_a_rename_inside_a_folder_is_one_change() -> None:
    system = Memory(memory.planted({"a": b"x"}))
    system.rename(f"{ROOT}/a", f"{ROOT}/b")
    assert {frozenset(state) for state in _states(system)} == {frozenset({"a"}), frozenset({"b"})}


def test_a_rename_between_two_folders_leaves_the_file_in_one_of_them_or_in_both() -> None:
    system = Memory(memory.planted({"a": b"x"}, ("d",)))
    system.rename(f"{ROOT}/a", f"{ROOT}/d/a")
    assert {frozenset(state) for state in _states(system)} == {
        frozenset({"a", "d/"}),
        frozenset({"a", "d/a"}),
        frozenset({"d/a"}),
    }


def test_a_kill_leaves_the_page_cache_for_a_later_power_failure() -> None:
    system = Memory()
    _written(system, "a", b"x" * 10)
    killed = Memory(legal.state_after(system.log, Crash(1, cut=4)))
    assert memory.files(killed.nodes) == {"a": b"x" * 6}
    killed.sync_folder(ROOT)
    assert {state["a"] for state in _states(killed)} >= {b"", b"x" * 3, b"x" * 6, bytes(6)}


def test_a_torn_file_is_what_its_losses_say() -> None:
    system = Memory()
    _written(system, "a", b"abcdef")
    number = system.log[-1].call.node
    assert legal.survivors(system.nodes, {number: Torn(5, ((1, 3), (4, 6)))}) == {"a": b"a\0\0d\0"}
    assert isinstance(legal.chains(system.nodes)[0], Chain)
