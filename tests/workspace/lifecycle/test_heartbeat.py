"""Beats: who may try to take a workspace, and when, and when its owner must not begin anything."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from fencing.bucket import Bucket, opened_store
from fencing.scheduler import Simulation

from satchel.runtime.live.stopping import StopRequests
from satchel.workspace.base.errors import LeaseHeld, StorageFailed
from satchel.workspace.inspect import lease
from satchel.workspace.inspect.lease import Lease
from satchel.workspace.journal import Fenced, Line, segment_path, written
from satchel.workspace.lifecycle import acquire
from satchel.workspace.lifecycle.acquire import Heartbeat, until_free
from satchel.workspace.store import Store

TTL = 30.0


class Clock:
    def __init__(self) -> None:
        self.now = 0.0  # as on a machine that has just been started

    def __call__(self) -> float:
        return self.now


def mine(epoch: int, pid: int = 7) -> Lease:
    return Lease(
        run_id="r",
        host="elsewhere",
        pid=pid,
        process_started="1",
        epoch=epoch,
        since="2026-11-01T00:00:00.000Z",
        url="s3://b",
        ttl=TTL,
    )


class Place:
    """A bucket, and processes that share nothing but it."""

    def __init__(self) -> None:
        self.bucket = Bucket()
        self.clock = Clock()

    def store(self) -> Store:
        return opened_store(Simulation(0), self.bucket, None)

    def beating(self, epoch: int, *, pid: int = 7) -> Heartbeat:
        """One whose beats the test makes itself."""
        beats = Heartbeat(self.store(), mine(epoch, pid), self.clock)
        beats._beat()
        beats.check()
        return beats

    def shown(self) -> Lease | None:
        return lease.read(self.store())

    def watch(self, between: Callable[[], None] = lambda: None) -> float:
        """Seconds until a process that watches may try to take it."""
        began = self.clock.now
        for pause, _ in until_free(self.store(), self.clock):
            self.clock.now += pause
            between()
        return self.clock.now - began


def test_whoever_watches_waits_for_a_whole_time_to_live_however_long_ago_the_last_beat_was() -> None:
    place = Place()
    place.beating(1)
    for elapsed in (0.0, TTL / 2, 100 * TTL):
        place.clock.now += elapsed
        assert place.watch() == TTL


def test_an_owner_that_beats_is_not_taken_over() -> None:
    place = Place()
    owner = place.beating(1)
    place.clock.now += 0.8 * TTL  # since its last beat

    def beat_at_the_last_moment() -> None:
        if place.clock.now >= 1.7 * TTL:
            owner._beat()

    with pytest.raises(LeaseHeld, match="process 7 on elsewhere"):
        place.watch(beat_at_the_last_moment)


def test_an_owner_stops_before_anybody_who_watches_can_have_lost_patience() -> None:
    """Its clock counts from before the write, the other's from after it has seen it."""
    place = Place()
    owner = place.beating(1)
    put = place.bucket.put

    def slow(*arguments: str) -> str:
        place.clock.now += 0.3 * TTL
        return put(*arguments)  # type: ignore[arg-type]

    with mock.patch.object(place.bucket, "put", slow):
        owner._beat()
    written = place.clock.now
    while owner.is_in_time:
        place.clock.now += 0.01
    assert place.clock.now - written < 0.65 * TTL, "the time that the write took counts against it"
    assert place.clock.now + 0.05 * TTL < written + TTL


def test_nobody_is_in_time_before_the_first_beat() -> None:
    """The system's clock may stand near zero."""
    beats = Heartbeat(Place().store(), mine(1), Clock())
    assert not beats.is_in_time


def test_an_owner_whose_first_beat_fails_does_not_begin() -> None:
    place = Place()
    beats = Heartbeat(place.store(), mine(1), place.clock)
    with mock.patch.object(place.bucket, "put", side_effect=StorageFailed("no")):
        beats.begin()
        beats._thread.join()
    assert not beats.is_in_time
    with pytest.raises(StorageFailed):
        beats.check()


def test_a_beat_that_fails_does_no_harm_while_the_last_one_counts() -> None:
    place = Place()
    owner = place.beating(1)
    with mock.patch.object(place.bucket, "put", side_effect=StorageFailed("no")):
        place.clock.now += TTL / 2
        owner._beat()
        owner.check()
        place.clock.now += TTL / 2
        owner._beat()
        with pytest.raises(StorageFailed):
            owner.check()


def test_a_later_owner_is_noticed_and_an_earlier_one_is_put_right() -> None:
    place = Place()
    earlier, later = place.beating(1), place.beating(2, pid=8)
    earlier._beat()
    with pytest.raises(LeaseHeld, match="process 8"):
        earlier.check()
    earlier.lost, earlier._version = None, None  # as one that was frozen just before its first beat
    earlier._beat()
    later._beat()
    later._beat()
    later.check()
    shown = place.shown()
    assert shown is not None and shown.epoch == 2


def test_an_own_beat_that_was_given_up_and_arrived_is_nobody_elses() -> None:
    place = Place()
    owner = place.beating(1)
    with mock.patch.object(owner._store, "exchange", side_effect=StorageFailed("unknown")):
        owner._beat()
    place.store().replace(lease.PATH, lease.encode(owner._lease))  # it arrives
    owner._beat()
    owner._beat()
    owner.check()
    place.clock.now += 1
    owner._beat()
    assert owner._beaten == place.clock.now


def test_a_file_that_was_removed_is_written_again() -> None:
    place = Place()
    owner = place.beating(1)
    place.store().remove(lease.PATH)
    owner._beat()
    owner._beat()
    owner.check()
    assert place.shown() is not None


def test_an_error_of_any_kind_is_told_to_whoever_waits_for_a_beat() -> None:
    place = Place()
    owner = place.beating(1)
    with mock.patch.object(owner._store, "exchange", side_effect=RuntimeError("the interpreter ends")):
        owner._beat()
    with pytest.raises(StorageFailed, match="the interpreter ends"):
        owner.check()


def test_a_lease_that_cannot_be_fetched_is_not_a_free_workspace() -> None:
    place = Place()
    place.beating(1)
    store = place.store()
    with mock.patch.object(store, "read", side_effect=StorageFailed("no")), pytest.raises(StorageFailed):
        list(until_free(store, place.clock))


def test_a_workspace_whose_owner_has_ended_is_free_at_once() -> None:
    place = Place()
    owner = place.beating(1)
    owner._thread.start()
    owner.end()
    assert place.shown() is None and place.watch() == 0.0


@pytest.mark.parametrize("request_", ["exchange", "remove"])
def test_one_request_that_fails_at_the_end_leaves_the_lease(request_: str) -> None:
    place = Place()
    owner = place.beating(1)
    owner._thread.start()
    real, failing = getattr(owner._store, request_), [StorageFailed("the credentials have expired")]

    def once(*arguments: Any, **more: Any) -> Any:
        if failing and threading.current_thread() is threading.main_thread():
            raise failing.pop()
        return real(*arguments, **more)

    with mock.patch.object(owner._store, request_, once):
        owner.end()
    assert not failing and place.shown() is None


def test_a_storage_that_is_gone_at_the_end_is_tried_for_ever() -> None:
    place = Place()
    owner = place.beating(1)
    owner._thread.start()
    with mock.patch.object(owner._store, "remove", side_effect=StorageFailed("no")) as removed:
        owner.end()
    assert removed.call_count == acquire._LAST_TRIES and place.shown() is not None


def test_an_owner_that_wakes_up_when_the_next_has_ended_takes_itself_for_the_owner() -> None:
    """The next one has removed its lease. Its fence is there."""
    place = Place()
    earlier = place.beating(1)
    line = Line(2, 2, "2026-11-01T00:00:00.000Z", 2, Fenced(), "0" * 8, "1" * 16)
    place.store().create(segment_path(2), written(line)[0])
    place.store().remove(lease.PATH)
    earlier._beat()
    with pytest.raises(LeaseHeld, match="written to the journal"):
        earlier.check()
    assert place.shown() is None, "it has left no lease"


def test_one_that_ends_while_others_watch_frees_it() -> None:
    place = Place()
    place.beating(1)
    assert place.watch(lambda: place.store().remove(lease.PATH)) == TTL / acquire._LOOKS


def test_an_end_does_not_remove_what_a_later_owner_has_written() -> None:
    place = Place()
    earlier = place.beating(1)
    place.beating(2, pid=8)
    earlier._thread.start()
    earlier.end()
    shown = place.shown()
    assert shown is not None and shown.epoch == 2


def test_with_a_clock_that_runs_twice_as_fast_two_would_act_at_once() -> None:
    """So these tests do tell whether anybody watches for a whole time-to-live."""
    place = Place()
    owner = place.beating(1)
    for pause, _ in until_free(place.store(), lambda: place.clock.now * 2):
        place.clock.now += pause / 2
    assert owner.is_in_time


def test_no_effect_begins_before_its_owner_has_beaten_again() -> None:
    place = Place()
    owner = place.beating(1)
    looked: list[float] = []

    def going_on() -> None:
        looked.append(place.clock.now)
        if len(looked) == 3:
            owner._beat()

    run: Any = SimpleNamespace(
        _workspace=SimpleNamespace(owned=SimpleNamespace(heartbeat=owner), follower=None), check_going_on=going_on
    )
    asyncio.run(StopRequests.check_has_it(run))
    assert not looked, "it is in time"
    place.clock.now += TTL
    asyncio.run(StopRequests.check_has_it(run))
    assert len(looked) == 3
    place.beating(2, pid=8)
    place.clock.now += TTL
    looked.clear()
    with pytest.raises(LeaseHeld, match="process 8"):
        asyncio.run(StopRequests.check_has_it(run))
