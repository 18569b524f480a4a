"""Groups as objects: each is there when it is acknowledged, and reading takes few requests however many they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from random import Random
from typing import Any
from unittest import mock

import pytest
from fencing.bucket import Bucket, opened_store
from fencing.scheduler import Killed, Simulation
from linked import linked

from satchel.workspace import journal
from satchel.workspace.base.errors import LeaseHeld, StorageFailed
from satchel.workspace.journal import Before, Fenced, Line, StepStarted, encode, segment_log, written
from satchel.workspace.journal.segment import segment_path
from satchel.workspace.journal.segment_log import SegmentObjects
from satchel.workspace.store import Store
from satchel.workspace.store.bucket import BucketStore

AT = "2026-11-01T00:00:00.000Z"
MOST_GETS = 6


class Pool:
    """Its work is done when the test says so."""

    def __init__(self, *_: object) -> None:
        self._jobs: list[tuple[Future[None], Callable[[], None]]] = []

    def submit(self, job: Callable[[], None]) -> Future[None]:
        self._jobs.append((Future(), job))
        return self._jobs[-1][0]

    def work(self) -> None:
        for done, job in self._jobs:
            done.set_result(job())
        self._jobs.clear()

    def shutdown(self, wait: bool = True) -> None: ...


@pytest.fixture(autouse=True)
def _rolled_up_by_the_test() -> Iterator[None]:
    with mock.patch.object(segment_log, "ThreadPoolExecutor", Pool):
        yield


class Place:
    """A bucket with a fence in it, and a writer behind that."""

    def __init__(self) -> None:
        self.bucket = Bucket()
        self.calls = 0
        self.die_at = 0  # at this request; 0: never
        self.written: list[Line] = []
        self.store = self.opened()
        data, fence = written(Line(1, 1, AT, 1, Fenced(), opening="0" * 16))
        path = segment_path(1)
        self.store.create(path, data)
        self.next_seq = 2
        self.lines = [fence]
        self.segments = SegmentObjects(self.store, path, self.store.version(path) or "", data)

    def opened(self) -> BucketStore:
        store = opened_store(Simulation(0), self.bucket, None)
        once = store._requests.once

        def counted(method: str, *arguments: Any, **more: Any) -> Any:
            self._count()
            answer = once(method, *arguments, **more)
            self._count()
            return answer

        store._requests.once = counted  # type: ignore[method-assign]
        return store

    def _count(self) -> None:
        self.calls += 1
        if self.calls == self.die_at:
            raise Killed

    def commit(self, *sizes: int) -> None:
        """A group of records of about so many bytes each."""
        first = self.next_seq
        lines = [
            Line(
                first + no,
                first,
                AT,
                1,
                StepStarted(scope="", no=1, step=f"s{first + no}", args="", n=0, call="x" * size, idempotency_key="k"),
                opening="0" * 16,
            )
            for no, size in enumerate(sizes)
        ]
        lines, data = linked(lines, self.lines[-1].crc)
        self.segments.write(lines, data)
        self.lines += lines
        self.next_seq += len(lines)
        pool: Any = self.segments._roller
        pool.work()

    def gets(self, after: int = 0) -> int:
        """How many it takes to read all that is acknowledged, which is there."""
        store, fetched = opened_store(Simulation(0), self.bucket, None), 0
        fetch = store._requests.fetch

        def counted(*arguments: Any, **more: Any) -> Any:
            nonlocal fetched
            fetched += 1
            return fetch(*arguments, **more)

        store._requests.fetch = counted  # type: ignore[method-assign]
        found = [*journal.read(store, after=after, before=Before(at=AT, epoch=1, opening="0" * 16)).lines]
        is_all_there = found[: len(self.lines) - after] == self.lines[after:]
        assert is_all_there, f"of {len(self.lines)} records behind {after} are left {[line.seq for line in found]}"
        return fetched

    @property
    def names(self) -> list[int]:
        return journal.segments(opened_store(Simulation(0), self.bucket, None))


def some_sizes(random: Random) -> list[int]:
    """Of one group: small ones mostly, or any."""
    largest = random.choice((50, 50, 2_000, 20_000, 60_000))
    return [random.randrange(largest) for _ in range(random.choice((1, 1, 1, 2, 5)))]


def test_many_small_commits_are_read_with_few_requests() -> None:
    place = Place()
    for count in range(300):
        place.commit(100)
        if count % 10 == 0:
            assert place.gets() <= MOST_GETS
    assert len(place.names) < 300
    place.segments.roll_up()
    assert place.gets() <= 2 and len(place.names) == 2


def test_an_object_that_is_full_stays_when_the_next_one_is_begun() -> None:
    """Even if it was the only one that was rolled up, and so the last."""
    place = Place()
    with mock.patch.object(segment_log, "ROLLED_BYTES", 300):
        for size in range(2000, 200, -200):
            place.commit(size)
            place.segments.roll_up()
            place.gets()


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("seed", range(12))
def test_commits_of_any_sizes_are_read_with_few_requests(seed: int) -> None:
    random, place = Random(seed), Place()
    for _ in range(30):
        place.commit(*some_sizes(random))
        assert place.gets(after=random.randrange(place.next_seq - 1)) <= MOST_GETS
        if random.random() < 0.1:
            place.segments.roll_up()
    assert place.gets() <= MOST_GETS


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 6))])
def test_a_crash_at_any_request_leaves_all_that_was_acknowledged_and_few_objects_to_read(seed: int) -> None:
    for die_at in range(1, 400):
        random, place = Random(seed), Place()
        place.die_at = place.calls + die_at
        try:
            for _ in range(25):
                place.commit(*some_sizes(random))
            place.segments.roll_up()
        except Killed:
            assert place.gets() <= MOST_GETS
            continue
        assert place.calls < place.die_at, "there was no such request"
        print(f"{die_at - 1} places to die in")
        return
    raise AssertionError("more requests than expected")


def test_what_is_rolled_up_goes_into_a_new_object_when_one_is_full() -> None:
    place = Place()
    with mock.patch.object(segment_log, "ROLLED_BYTES", 200_000):
        for _ in range(120):
            place.commit(9_000)
        place.segments.roll_up()
    sizes = [len(data) for key, data in place.bucket.copy().items()]
    assert len(sizes) in range(6, 12) and max(sizes) < 260_000
    assert place.gets() == len(sizes)
    assert place.gets(after=place.next_seq - 2) <= 2, "the end does not take all of it"


def test_a_roll_up_that_fails_loses_nothing_and_is_made_up_for() -> None:
    place = Place()
    with mock.patch.object(place.store, "replace", side_effect=StorageFailed("no")) as replace:
        for _ in range(40):
            place.commit(9_000)
            place.gets()
        assert replace.call_count > 3
    for _ in range(10):
        place.commit(9_000)
    assert place.gets() <= MOST_GETS and len(place.names) <= MOST_GETS


def test_what_a_roll_up_could_not_remove_does_no_harm() -> None:
    place = Place()
    with mock.patch.object(place.store, "remove_many", side_effect=StorageFailed("no")):
        for _ in range(20):
            place.commit(9_000)
        assert len(place.names) == 21
        place.segments.roll_up()
    place.gets()


def test_a_roll_up_that_was_given_up_and_arrives_after_all_is_ones_own() -> None:
    place = Place()
    replace = place.store.replace

    def arrives(*arguments: Any, **more: Any) -> Any:
        replace(*arguments, **more)
        raise StorageFailed("no answer")

    with mock.patch.object(place.store, "replace", arrives):
        place.commit(100)
        place.segments.roll_up()
    place.commit(100)
    place.segments.roll_up()
    assert not place.segments._fenced
    assert place.gets() <= 2 and place.names == [1, 3]


@pytest.mark.parametrize(
    "theirs", [encode(Line(1, 1, AT, 1, Fenced(), opening="1" * 16)), b""], ids=["of another owner", "moved away"]
)
def test_an_object_that_somebody_else_has_changed_is_left_alone(theirs: bytes) -> None:
    place = Place()
    place.commit(100)
    opened_store(Simulation(0), place.bucket, None).replace(segment_path(1), theirs)
    place.segments.roll_up()
    place.commit(100)
    place.segments.roll_up()
    assert place.bucket.copy()[segment_path(1)] == theirs and place.names == [1, 2, 3]


def test_a_name_that_is_taken_ends_this_writer() -> None:
    place = Place()
    place.commit(100)
    opened_store(Simulation(0), place.bucket, None).create(segment_path(3), b"somebody's")
    with pytest.raises(LeaseHeld, match="taken over"):
        place.commit(100)
    assert place.bucket.copy()[segment_path(3)] == b"somebody's"


def test_no_segment_repeats_one_that_others_may_be_rolled_up_into() -> None:
    """Else what a crash leaves of the segments would seem to make that one needless."""
    place = Place()
    place.commit(100)
    create = place.store.create

    def meanwhile(path: str, data: bytes) -> None:
        create(path, data)
        place.segments._roll_up()

    with mock.patch.object(place.store, "create", meanwhile):
        place.commit(100)
    place.commit(100)
    place.commit(100)
    assert [row[:8] for row in place.bucket.copy()[segment_path(4)].split(b"\n")] == [b'{"seq":4', b""]
    assert [row[:8] for row in place.bucket.copy()[segment_path(5)].split(b"\n")] == [b'{"seq":4', b'{"seq":5', b""]
    place.gets()


def test_rolling_up_nothing_asks_for_nothing() -> None:
    place = Place()
    before = place.calls
    place.segments.roll_up()
    assert place.calls == before


def test_a_reader_sees_all_while_others_roll_up() -> None:
    """Its listing shows names that are gone when it fetches them."""
    place = Place()
    for _ in range(5):
        place.commit(9_000)
    store: Store = opened_store(Simulation(0), place.bucket, None)
    read, is_first = store.read, [True]

    def slow(path: str, **more: Any) -> Any:
        if is_first:
            is_first.clear()
            place.segments.roll_up()
        return read(path, **more)

    with mock.patch.object(store, "read", slow), suppress(Killed):
        assert [*journal.read(store, after=0).lines] == place.lines
