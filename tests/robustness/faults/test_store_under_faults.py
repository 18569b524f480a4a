"""Whatever goes wrong on the way: a store answers right, or says clearly that it can't; never something wrong.

One store serves all cases of a fault: what one case breaks must not reach the next.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

import pytest
import waits
from servers import BUCKET, SECRET, Server

from faults.faults import FAULTS, late, shortened, slow_down
from faults.proxy import Fault, Proxy, proxying
from satchel.workspace.base.errors import StorageFailed
from satchel.workspace.store import FileChanged, Store
from satchel.workspace.store.bucket import BucketStore

OLD, NEW, RIVAL = b"what was there\n" * 40, b"what is to be there\n" * 50, b"what somebody else has written\n" * 30
PATIENCE = 30.0  # seconds for which the store tries: the machine that runs the tests may stand still for some
SHORT = 0.25  # and for which it tries what can't succeed
QUICK = {"config_kwargs": {"connect_timeout": 1, "read_timeout": 0.3}}


@dataclass
class Place:
    """A workspace, seen through a store whose requests go wrong, and from behind."""

    server: Server
    proxy: Proxy
    prefix: str
    store: Store
    cases: int = 0

    @property
    def path(self) -> str:
        """Of each case another, so that nothing is known of it."""
        return f"{self.cases}.json"

    def put(self, path: str, data: bytes) -> None:
        """As another process of Satchel does it."""
        self.server.client.put_object(
            Bucket=BUCKET, Key=f"{self.prefix}/{path}", Body=data, Metadata={"satchel-write": "another"}
        )

    def there(self, path: str) -> bytes | None:
        try:
            return self.server.client.get_object(Bucket=BUCKET, Key=f"{self.prefix}/{path}")["Body"].read()
        except self.server.client.exceptions.NoSuchKey:
            return None

    def remove(self, path: str) -> None:
        self.server.client.delete_object(Bucket=BUCKET, Key=f"{self.prefix}/{path}")


@pytest.fixture(scope="module")
def place(seaweedfs: Server) -> Iterator[Place]:
    with proxying(seaweedfs.endpoint) as proxy:
        yield open_place(seaweedfs, proxy)


def open_place(server: Server, proxy: Proxy, patience: float = PATIENCE) -> Place:
    prefix = server.place().removeprefix(f"s3://{BUCKET}/")
    return Place(server, proxy, prefix, reopened(server, proxy, prefix, patience))


def reopened(server: Server, proxy: Proxy, prefix: str, patience: float = PATIENCE) -> Store:
    return BucketStore(BUCKET, prefix, {**server.storage_options(proxy.url), **QUICK}, patience=patience)


@dataclass(frozen=True)
class Case:
    """An operation, and what is right."""

    call: Callable[[Place], Any]
    allowed: tuple[Any, ...]  # what it may return, or the exception it may raise, besides StorageFailed
    before: bytes | None = OLD  # what is there before
    after: bytes | None = OLD  # what is there after it has returned
    unsure: bool = False  # if it fails, `after` may be there, or `before`


def _version(place: Place) -> str:
    version = place.store.version(place.path)
    assert version
    return version


def _stale(place: Place) -> str:
    """A version that somebody has replaced since it was looked at."""
    version = _version(place)
    place.put(place.path, RIVAL)
    return version


def _listed(place: Place) -> bytes:
    """What was there before, if the listing shows it."""
    place.store.refresh()
    return OLD if (place.path, len(OLD)) in place.store.list("") else b""


CASES: dict[str, Case] = {
    "read": Case(lambda place: place.store.read(place.path).data, (OLD,)),
    "read what is not there": Case(lambda place: place.store.read(place.path), (FileNotFoundError,), None, None),
    "tail": Case(lambda place: place.store.tail(place.path, 5), (OLD[-5:],)),
    "part": Case(lambda place: place.store.part(place.path, 1, 2), (OLD[1:3],)),
    "list": Case(_listed, (OLD,)),
    "create": Case(lambda place: place.store.create(place.path, NEW) and None, (None,), None, NEW, True),
    "create what is taken": Case(lambda place: place.store.create(place.path, NEW), (FileExistsError,)),
    "create what a rival has written alike": Case(
        lambda place: place.store.create(place.path, OLD), (FileExistsError,)
    ),
    "replace": Case(lambda place: place.store.replace(place.path, NEW) and None, (None,), OLD, NEW, True),
    "replace what is not there": Case(
        lambda place: place.store.replace(place.path, NEW) and None, (None,), None, NEW, True
    ),
    "replace if": Case(
        lambda place: place.store.replace(place.path, NEW, if_version=_version(place)) and None, (None,), OLD, NEW, True
    ),
    "replace if, changed": Case(
        lambda place: place.store.replace(place.path, NEW, if_version=_stale(place)), (FileChanged,), OLD, RIVAL
    ),
    "exchange": Case(
        lambda place: place.store.exchange(place.path, NEW, if_version=_version(place)) and None,
        (None,),
        OLD,
        NEW,
        True,
    ),
    "exchange, changed": Case(
        lambda place: place.store.exchange(place.path, NEW, if_version=_stale(place)), (FileChanged,), OLD, RIVAL
    ),
    "exchange for nothing": Case(
        lambda place: place.store.exchange(place.path, NEW, if_version=None) and None, (None,), None, NEW, True
    ),
    "append": Case(lambda place: place.store.append(place.path, NEW) and None, (None,), OLD, OLD + NEW, True),
    "append to nothing": Case(lambda place: place.store.append(place.path, NEW) and None, (None,), None, NEW, True),
    "remove": Case(lambda place: place.store.remove(place.path), (None,), OLD, None, True),
    "remove many": Case(lambda place: place.store.remove_many([place.path]), (None,), OLD, None, True),
}


def play(place: Place, case: Case, fault: Fault, times: int | None, patience: float = PATIENCE) -> BaseException | None:
    """Do it under the fault, with so much patience; the StorageFailed if it said so."""
    place.remove(place.path)
    place.cases += 1
    if case.before is not None:
        place.put(place.path, case.before)
    place.store.refresh()
    failed = None
    impatient = mock.patch.object(place.store._requests, "_patience", patience)
    with place.proxy.plant(fault, times=times) as planted, impatient:
        try:
            found = case.call(place)
        except StorageFailed as error:
            failed = error
        except (OSError, FileChanged) as error:
            found = type(error)
    assert planted.struck
    if failed is None:
        assert found in case.allowed
        assert place.there(place.path) == case.after
    else:
        text = str(failed)
        assert failed.why and failed.remedy and SECRET not in text and "Signature" not in text
        allowed = (case.before, case.after) if case.unsure or case.after == RIVAL else (case.before,)
        assert place.there(place.path) in allowed
    return failed


def holds_again(place: Place) -> None:
    """What one case broke is whole for the next."""
    there = place.there(place.path)
    place.store.refresh()
    version = place.store.version(place.path)
    assert (version is None) is (there is None)
    if there is not None:
        assert place.store.read(place.path) == (there, version)


QUICK_ONES = ("dropped after", "403", "truncated")


def slowly(name: str) -> Any:
    """Those that take long, or do what another one does as well, are for the slow tests."""
    return name if name in QUICK_ONES else pytest.param(name, marks=pytest.mark.slow)


@pytest.mark.sampled(every=4, rest="soak")
@pytest.mark.parametrize("fault", [slowly(name) for name in FAULTS])
@pytest.mark.parametrize("case", CASES)
def test_one_request_that_goes_wrong_changes_no_answer(place: Place, case: str, fault: str) -> None:
    failed = play(place, CASES[case], FAULTS[fault], times=1)
    assert (failed is None) is (fault != "403"), failed
    holds_again(place)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_requests_that_all_go_wrong_end_in_a_clear_error(seaweedfs: Server, fault: str) -> None:
    with proxying(seaweedfs.endpoint) as proxy:
        place = open_place(seaweedfs, proxy)
        for name, case in CASES.items():
            failed = play(place, case, FAULTS[fault], times=None, patience=SHORT)
            assert failed is not None or fault in ("slow", "truncated"), f"{name} can't have worked"
            holds_again(place)


def test_what_is_throttled_for_a_while_waits_and_is_done(place: Place) -> None:
    with place.proxy.plant(slow_down(), times=None) as planted:
        done: list[Any] = []
        thread = threading.Thread(target=lambda: done.append(place.store.replace("throttled.json", NEW)))
        thread.start()
        planted.await_strike(3)
        assert not done
    thread.join(waits.PATIENCE)
    assert len(done) == 1 and place.there("throttled.json") == NEW
    place.remove("throttled.json")


@pytest.mark.parametrize("name", ["create", "replace if", "exchange", "append"])
def test_a_conditional_write_that_arrives_late_does_nothing(place: Place, name: str) -> None:
    """The client has given it up, sent it again, and gone on. Then the network delivers the first one."""
    case = CASES[name]
    since = len(place.proxy.seen)
    with place.proxy.plant(late, method="PUT"):
        place.cases += 1
        if case.before is not None:
            place.put(place.path, case.before)
        place.store.refresh()
        assert case.call(place) in case.allowed
        version = place.store.read(place.path).version
        place.store.replace(place.path, b"the next", if_version=version)
    first = next(each for each in place.proxy.seen[since:] if each.fault == "late")
    place.proxy.await_answer(first)
    assert first.status == 412
    assert place.there(place.path) == b"the next"
    place.remove(place.path)


@pytest.mark.parametrize("name", ["read", "list", "append"])
def test_an_answer_that_was_shortened_on_its_way_is_not_believed(place: Place, name: str) -> None:
    """Its length is that of what came, so only the hash or the form of it tells."""
    assert play(place, CASES[name], shortened(), times=1) is None
    holds_again(place)


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)])
def test_many_threads_on_a_bad_network_lose_nothing(seaweedfs: Server, seed: int) -> None:
    """What was acknowledged is there, each exactly once, whatever happens to one request in four."""
    print(f"seed {seed}")
    with proxying(seaweedfs.endpoint) as proxy:
        place = open_place(seaweedfs, proxy, patience=20)
        for number, name in enumerate(("dropped before", "dropped after", "500, but done", "503", "truncated")):
            proxy.plant(FAULTS[name], times=None, chance=0.05, seed=seed * 100 + number)
        rounds, trouble = 12, list[BaseException]()

        def work(number: int) -> None:
            try:
                _work(place.store, number, rounds)
            except BaseException as error:
                trouble.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert not trouble and not any(thread.is_alive() for thread in threads)
        assert sum(bool(each.fault) for each in proxy.seen) > 10
        for number in range(4):
            for each in range(rounds):
                assert place.there(f"{number}/created-{each}") == f"{number}.{each}".encode()
            assert place.there(f"{number}/counter") == str(rounds).encode()
            assert place.there(f"{number}/log") == b"".join(b"%d\n" % each for each in range(rounds))
        place.store.refresh()
        assert len([*place.store.list("0")]) == rounds + 2


def _work(store: Store, number: int, rounds: int) -> None:
    version = store.replace(f"{number}/counter", b"0")
    for each in range(rounds):
        store.create(f"{number}/created-{each}", f"{number}.{each}".encode())
        version = store.replace(f"{number}/counter", str(each + 1).encode(), if_version=version)
        store.append(f"{number}/log", b"%d\n" % each)
        if each % 4 == 0:
            store.refresh()
        assert store.read(f"{number}/counter") == (str(each + 1).encode(), version)
        with pytest.raises(FileExistsError):
            store.create(f"{number}/created-{each}", b"another")
