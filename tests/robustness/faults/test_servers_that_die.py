"""The server is restarted, or killed, in the middle of work: what it had acknowledged is there when it is back."""

from __future__ import annotations

import itertools
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from servers import BUCKET, SECRET, SeaweedFS, Server

from faults import working
from faults.proxy import proxying
from faults.working import DEFINITION, ITEMS, Machine, Midway, World, check
from satchel.workspace.base.errors import StorageFailed
from satchel.workspace.store import Store
from satchel.workspace.store.bucket import BucketStore

PREFIX = "runs/a"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """One of its own, to be killed."""
    server = SeaweedFS.started(tmp_path)
    yield server
    server.kill()


def opened(server: Server, patience: float) -> Store:
    options = {**server.storage_options(), "config_kwargs": {"connect_timeout": 1, "read_timeout": 3}}
    return BucketStore(BUCKET, PREFIX, options, patience=patience)


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_writers_wait_for_a_server_that_comes_back(server: Server, how: signal.Signals) -> None:
    store = opened(server, patience=60)
    created, trouble = list[int](), list[BaseException]()
    counted = 0
    moved, enough = threading.Condition(), threading.Event()

    def create() -> None:
        """As the journal does it: one object after another, each exclusively."""
        for number in itertools.count():
            store.create(f"journal/{number:012d}.jsonl", b"%d\n" % number)
            with moved:
                created.append(number)
                moved.notify_all()
            if enough.is_set():
                return

    def count() -> None:
        """As the lease is written: the same object, each time only if it is as it was left."""
        nonlocal counted
        version = store.replace("lease.json", b"0")
        while not enough.is_set():
            version = store.replace("lease.json", str(counted + 1).encode(), if_version=version)
            counted += 1

    def work(function: object) -> None:
        try:
            function()  # type: ignore[operator]
        except BaseException as error:
            trouble.append(error)
            enough.set()

    def await_more(count: int) -> None:
        with moved:
            wanted = len(created) + count
            assert moved.wait_for(lambda: len(created) >= wanted or trouble, 60)

    threads = [threading.Thread(target=work, args=(function,)) for function in (create, count)]
    for thread in threads:
        thread.start()
    for _ in range(2):
        await_more(10)
        server.stop(how)
        server.start()
    await_more(10)
    enough.set()
    for thread in threads:
        thread.join(60)
    assert not trouble
    again = opened(server, patience=10)
    assert [entry.path for entry in again.list("journal")] == [f"journal/{n:012d}.jsonl" for n in created]
    for number in created:
        assert again.read(f"journal/{number:012d}.jsonl").data == b"%d\n" % number
    assert again.read("lease.json").data == str(counted).encode()


@pytest.mark.slow
def test_a_server_that_does_not_come_back_is_a_clear_error(server: Server) -> None:
    store, patient = opened(server, patience=1), opened(server, patience=60)
    patient.create("journal/1.jsonl", b"1")
    server.kill()
    for call in (
        lambda: store.read("todo.md"),
        lambda: store.refresh(),
        lambda: store.replace("todo.md", b"-"),
        lambda: store.create("journal/2.jsonl", b"2"),
        lambda: store.remove("todo.md"),
    ):
        with pytest.raises(StorageFailed) as error:
            call()
        assert f"127.0.0.1:{server.port}" in str(error.value) and error.value.remedy
        assert SECRET not in str(error.value)
    server.start()
    patient.create("journal/2.jsonl", b"2")
    assert patient.read("journal/1.jsonl").data == b"1"


@pytest.mark.slow
def test_a_run_outlives_its_server(server: Server) -> None:
    """The server is killed in the middle of the run and comes back; the run waits, and ends right."""
    prefix = server.place().removeprefix(f"s3://{BUCKET}/")
    server.client.put_object(Bucket=BUCKET, Key=f"{prefix}/workspace.yaml", Body=DEFINITION)
    world, midway = World(), Midway()
    with proxying(server.endpoint) as proxy:
        machine = Machine(proxy, working.opened(server, proxy.url, prefix, patience=60))
        machine.start(world.agent(midway))
        midway.await_reached()
        server.kill()
        midway.go_on()
        server.start()
        machine.wait()
        assert machine.is_completed, machine.error
        check(server, prefix, world, [*ITEMS, "two, after all"])
