"""Fences, one case at a time; tests/robustness/fencing has all of them at once."""

from __future__ import annotations

import zlib
from typing import Any
from unittest import mock

import pytest
from fencing.bucket import Bucket, opened_store
from fencing.scheduler import Simulation

from satchel.workspace import journal
from satchel.workspace.base.errors import LeaseHeld
from satchel.workspace.inspect.load import look
from satchel.workspace.inspect.report import Report
from satchel.workspace.journal import Fenced, Line, Opened, StepStarted, encode, segment_log, written
from satchel.workspace.journal.segment import segment_path
from satchel.workspace.lifecycle import acquire
from satchel.workspace.lifecycle.acquire import Owned
from satchel.workspace.lifecycle.opening import opened
from satchel.workspace.state import checkpoint

AT = "2026-11-01T00:00:00.000Z"


@pytest.fixture(autouse=True)
def _any_bucket() -> Any:
    with mock.patch.object(acquire, "check_conditional_puts", lambda store: None):
        yield


class Place:
    def __init__(self) -> None:
        self.bucket = Bucket()
        self.bucket.put("workspace.yaml", b"format: 1\nrun_id: r\nagent: a:b\n", "", None, None)

    def store(self) -> Any:
        return opened_store(Simulation(0), self.bucket, None)

    def owner(self) -> Writer:
        store = self.store()
        return Writer(store, acquire._take(store, look(store)))

    def all(self) -> list[Line]:
        return [*journal.read(self.store(), after=0).lines]


class Writer:
    def __init__(self, store: Any, owned: Owned):
        assert owned.fence is not None and owned.segments is not None
        self.store, self.owned = store, owned
        self.fence, self.segments = owned.fence, owned.segments
        self.next_seq = owned.begin()
        self.crc = owned.seen.moment.crc

    def commit(self) -> Line:
        step = StepStarted(scope="", no=1, step=f"s{self.next_seq}", args="", n=0, idempotency_key="k")
        epoch, opening = self.owned.epoch, self.owned.opening
        data, line = written(Line(self.next_seq, self.next_seq, AT, epoch, step, self.crc, opening))
        self.segments.write([line], data)
        self.next_seq, self.crc = self.next_seq + 1, line.crc
        return line


def test_the_next_owner_comes_behind_all_that_was_acknowledged_and_the_earlier_one_is_out() -> None:
    place = Place()
    first = place.owner()
    said = first.commit()
    second = place.owner()
    assert (first.owned.epoch, second.owned.epoch) == (1, 2)
    assert place.all() == [first.fence, said, second.fence]
    with pytest.raises(LeaseHeld, match="taken over"):
        first.commit()
    assert place.all()[-1] == second.fence


def test_commits_that_came_after_the_look_are_known_and_counted() -> None:
    """A fault that the model has found: two owners had one epoch, and the later one did not know what the earlier one
    had written."""
    place = Place()
    late = place.store()
    seen = look(late)
    first = place.owner()
    said = [first.commit(), first.commit()]
    second = Writer(late, acquire._take(late, seen))
    assert second.owned.epoch == 2 and second.fence.seq == 4
    assert second.owned.seen.moment.seq == 4 and second.next_seq == 5
    assert place.all() == [first.fence, *said, second.fence]


def test_the_nonce_of_effect_keys_is_drawn_a_second_time() -> None:
    """Another process begins the run, and is killed, between the look that finds it new and the fence."""
    place = Place()
    late = place.store()
    seen = look(late)
    with opened(place.store(), "run", Report()) as first:
        nonce = first.moment.run_nonce
    with opened(late, "run", Report(), seen=seen) as second:
        assert second.moment.run_nonce == nonce != ""
    found = [line.record.found for line in place.all() if isinstance(line.record, Opened)]
    assert found == ["new", "crash"]


@pytest.mark.parametrize("covered", [False, True])
def test_a_fence_where_segments_were_rolled_up_meanwhile_is_not_ones_own(covered: bool) -> None:
    place = Place()
    first = place.owner()
    first.commit()
    late = place.store()
    seen = look(late)  # up to record 2
    said = [first.commit() for _ in range(4)]
    if covered:
        checkpoint.write(first.store, look(place.store()).moment, {})
    first.segments.roll_up()
    second = Writer(late, acquire._take(late, seen))
    assert "journal/000000000003.jsonl" in place.bucket.objects, "its first fence was too late, and stays"
    assert second.fence.seq == said[-1].seq + 1
    assert second.owned.seen.moment.seq == second.fence.seq
    assert [line.seq for line in place.all()] == [*range(1, second.fence.seq + 1)]
    for _ in range(3):
        place.owner()
    assert [line.seq for line in place.all() if isinstance(line.record, Fenced)] == [1, *range(7, 11)]


def test_of_two_who_take_it_at_once_one_has_it_first() -> None:
    place = Place()
    other = place.store()
    seen = look(other)
    create = other.create
    taken: list[Writer] = []

    def meanwhile(path: str, data: bytes) -> None:
        if not taken:
            taken.append(place.owner())
        create(path, data)

    with mock.patch.object(other, "create", meanwhile):
        second = Writer(other, acquire._take(other, seen))
    assert [taken[0].fence.seq, second.fence.seq] == [1, 2] and second.owned.epoch == 2


def test_whoever_is_always_too_late_gives_up() -> None:
    place = Place()
    store = place.store()
    with (
        mock.patch.object(store, "create", side_effect=FileExistsError),
        pytest.raises(LeaseHeld, match=f"{segment_log._TRIES} attempts"),
    ):
        acquire._take(store, look(store))


def test_a_new_owner_need_not_look_twice_if_nothing_has_come() -> None:
    place = Place()
    place.owner().commit()
    store = place.store()
    seen = look(store)
    with mock.patch.object(acquire, "look", side_effect=AssertionError):
        owned = acquire._take(store, seen)
    assert owned.seen is seen and owned.fence is not None and owned.begin() == owned.fence.seq + 1 == 4


def test_the_same_fence_is_known_by_its_nonce() -> None:
    """Two processes may write the same line at the same moment."""
    place = Place()
    with mock.patch.object(segment_log, "now", lambda: AT):
        place.owner()
        found = place.all()[0]
        twin = Line(1, 1, AT, 1, Fenced(), opening="0" * 16)
        assert found != twin
        with pytest.raises(FileExistsError):
            place.store().create(segment_path(1), encode(found))


def test_an_owner_whose_journal_is_its_own_is_told_that_another_has_it() -> None:
    place = Place()
    segment_log.check_newest(place.store(), 1)  # before there is a journal
    owner = place.owner()
    for _ in range(3):
        owner.owned.check_has_it(owner.store)
        owner.commit()
    owner.segments.roll_up()
    owner.owned.check_has_it(owner.store)


@pytest.mark.parametrize("how", ["fenced", "moved away", "newer", "no record"])
def test_an_owner_that_another_has_followed_takes_itself_for_the_owner(how: str) -> None:
    place = Place()
    owner = place.owner()
    owner.commit()
    line = Line(owner.next_seq, owner.next_seq, AT, 2, Fenced(), owner.crc, "2" * 16)
    bodies = {
        "fenced": written(line)[0],
        "moved away": b"",
        "newer": unknown(written(line)[0]),
        "no record": b"something\n",
    }
    place.store().create(segment_path(owner.next_seq), bodies[how])
    with pytest.raises(LeaseHeld, match=segment_path(owner.next_seq)):
        owner.owned.check_has_it(owner.store)


@pytest.mark.parametrize("way", ["replace", "append"])
def test_a_file_of_the_next_owner_is_replaced_by_one_who_has_lost_the_workspace(way: str) -> None:
    place = Place()
    old = place.owner()
    with acquire._asked_by(old.store, old.owned):
        write = getattr(old.store, way)
        write("partials/a", b"1")
        place.store().replace("partials/a", b"a person's")
        write("partials/a", b"2")
        assert place.store().read("partials/a").data in (b"2", b"a person's2"), "it is still this owner's to write"
        new = place.owner()
        new.store.replace("partials/a", b"the next owner's")
        with pytest.raises(LeaseHeld):
            write("partials/a", b"3")
    assert place.store().read("partials/a").data == b"the next owner's"


def unknown(data: bytes) -> bytes:
    """The record with a type that this Satchel does not know."""
    body = data.replace(b'"type":"fenced"', b'"type":"moated"').rpartition(b',"crc":"')[0]
    return b'%s,"crc":"%08x"}\n' % (body, zlib.crc32(b"}", zlib.crc32(body)))
