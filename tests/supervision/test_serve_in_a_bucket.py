"""What `serve` asks a bucket for while runs wait there, and what it learns from that. The clock is the test's."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from benchmarks import waiting
from benchmarks.measuring import Ground
from msgspec.structs import replace
from servers import Server as S3

import satchel
from satchel import Run, agent
from satchel.runtime.supervision import roots, run_server
from satchel.runtime.supervision.roots import UrlRoot
from satchel.runtime.supervision.run_server import Server
from satchel.runtime.supervision.supervisor import Supervisor
from satchel.workspace.base.errors import StorageFailed
from satchel.workspace.inspect import lease
from satchel.workspace.store import open_store
from satchel.workspace.store.remote_store import RemoteStore
from satchel.workspace.store.s3 import Requests

from .supervised import PATIENCE, wait_until

NAP = timedelta(days=30)
DEFINITION = b"format: 1\nrun_id: nap-1\nagent: agent.py:main\n"
PAGES = 10  # in one answer of a server there are 1,000 objects, too many for a test

Asked = list[tuple[str, str]]


@agent
async def sleeper(run: Run[dict[str, Any]]) -> None:
    await run.sleep(NAP.total_seconds())


@agent
async def asker(run: Run[dict[str, Any]]) -> None:
    await run.ask("Go on?", choices=["yes", "no"], wait_for=0)


class Served:
    """A `serve` below a URL, turned by hand, whose children never begin."""

    def __init__(self, s3: S3, monkeypatch: pytest.MonkeyPatch):
        self._s3, self.url = s3, s3.place()
        self.bucket, _, self.prefix = self.url.removeprefix("s3://").partition("/")
        self.now = datetime.now(UTC)
        self.asked: Asked = []
        self.told: list[tuple[str, str]] = []
        monkeypatch.setattr(run_server, "Supervisor", self._supervisor)
        answer = Requests._answer

        async def counted(requests: Requests, method: str, arguments: Any, seconds: float) -> Any:
            self.asked.append((method, str(arguments.get("Prefix", arguments.get("Key", "")))))
            return await answer(requests, method, arguments, seconds)

        monkeypatch.setattr(Requests, "_answer", counted)

    def begin(self) -> None:
        store = open_store(self.url)
        self.server = Server(
            self.url,
            100,
            lambda event: self.told.append((event.kind, event.folder.rpartition("/")[2])),
            clock=lambda: self.now,
            store=store,
        )

    def _supervisor(self, *_: Any) -> Any:
        return mock.Mock(spec=Supervisor, code=None, wake_at=float("inf"))

    def put(self, path: str, data: bytes) -> None:
        self._s3.client.put_object(Bucket=self.bucket, Key=f"{self.prefix}/{path}", Body=data)

    def get(self, path: str) -> bytes:
        found: bytes = self._s3.client.get_object(Bucket=self.bucket, Key=f"{self.prefix}/{path}")["Body"].read()
        return found

    def paths(self, folder: str) -> list[str]:
        listed = self._s3.client.list_objects_v2(Bucket=self.bucket, Prefix=f"{self.prefix}/{folder}/")
        return [each["Key"].removeprefix(f"{self.prefix}/") for each in listed.get("Contents", ())]

    def run(self, name: str, main: satchel.Agent) -> None:
        self.put(f"{name}/workspace.yaml", DEFINITION)
        assert satchel.run(f"{self.url}/{name}", main).status in ("sleeping", "waiting")

    def copy(self, name: str, to: str) -> None:
        for path in self.paths(name):
            self.put(f"{to}{path.removeprefix(name)}", self.get(path))

    def child(self, name: str) -> Any:
        """What stands for the process that runs it; give it a `code` to end it."""
        (known,) = (known for known in self.server._known if known.folder == f"{self.url}/{name}")
        return known.supervisor

    def objects(self, name: str) -> dict[str, bytes]:
        return {path: self.get(path) for path in self.paths(name)}

    def lay(self, name: str, objects: dict[str, bytes]) -> None:
        """From now on these are all that there are of a run."""
        for path in {*self.paths(name)} - objects.keys():
            self._s3.client.delete_object(Bucket=self.bucket, Key=f"{self.prefix}/{path}")
        for path, data in objects.items():
            self.put(path, data)

    def turn(self, *, everything: bool = False) -> Asked:
        """What is asked for in a turn, in the look that comes of what has ended, and in the turn that starts what is
        due."""
        self.asked.clear()
        if everything:
            self.server._lookout.looked_at = float("-inf")
        for _ in range(3):
            self.server.turn()
            for thread in [self.server._thread, *(known.thread for known in self.server._known)]:
                if thread is not None:
                    thread.join()
        return [(method, key.removeprefix(self.prefix).strip("/")) for method, key in self.asked]


def start(name: str) -> Asked:
    """What a start asks for, before its child does: whether another `serve` has started it; and the claim."""
    return [("list_objects_v2", name), ("put_object", f"{name}/{lease.CLAIM}")]


@pytest.fixture
def served(seaweedfs: S3, monkeypatch: pytest.MonkeyPatch) -> Served:
    for name, value in seaweedfs.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(RemoteStore, "pages", PAGES)
    return Served(seaweedfs, monkeypatch)


def test_sleeping_runs_cost_more_than_a_listing(served: Served) -> None:
    served.run("a", sleeper)
    for name in "bc":
        served.copy("a", name)
    served.begin()
    first = served.turn(everything=True)
    assert [key for method, key in first if method == "list_objects_v2"] == [""]
    assert [key[0] for method, key in sorted(first) if method == "get_object"] == ["a", "b", "c"], "one for each run"
    assert served.turn(everything=True) == [("list_objects_v2", "")], "nothing has changed"
    assert served.turn() == [], "the next look is not due"


def test_a_sleeper_is_woken_by_the_next_listing(served: Served) -> None:
    """By its time, with a listing of its own folder: the next of everything may be far off."""
    served.run("a", sleeper)
    for name in ("b", "gone"):
        served.copy("a", name)
    served.run("c", asker)
    served.begin()
    served.turn(everything=True)
    served.now += NAP - timedelta(minutes=1)
    assert served.turn() == [] and ("started", "a") not in served.told
    for path in served.paths("gone"):
        served._s3.client.delete_object(Bucket=served.bucket, Key=f"{served.prefix}/{path}")
    served.now += timedelta(minutes=2)
    asked = served.turn()
    assert asked[:4] == [("list_objects_v2", name) for name in ("a", "b", "gone", "")], "what is gone is let go of"
    assert sorted(asked[4:]) == sorted([*start("a"), *start("b")])
    assert served.turn() == [], "a time comes once"
    started = sorted(each for each in served.told if each[0] != "warned")
    assert started == [("started", "a"), ("started", "b")], "each in a thread of its own"


@pytest.mark.slow
def test_an_answer_or_a_task_is_not_found_by_a_listing(served: Served) -> None:
    served.run("a", asker)
    served.begin()
    served.turn(everything=True)
    form = served.get("a/approvals/a1.yaml").decode()
    served.put("a/approvals/a1.yaml", form.replace("decision:", "decision: yes", 1).encode())
    served.turn(everything=True)
    assert served.told == [("started", "a")]


def test_a_time_of_a_schedule_waits_for_the_next_listing(served: Served) -> None:
    served.put("a/workspace.yaml", DEFINITION + b"schedule: [{cron: '0 9 * * *'}]\n")
    served.begin()
    served.turn(everything=True)
    served.now += timedelta(days=1)
    served.turn()
    assert [path for path in served.paths("a") if "inbox/" in path] and served.told == [("started", "a")]


def test_the_child_of_one_run_has_all_of_them_listed(served: Served) -> None:
    served.run("a", sleeper)
    served.copy("a", "b")
    served.begin()
    served.turn(everything=True)
    known = next(known for known in served.server._known if known.folder.endswith("/a"))
    known.supervisor = mock.Mock(spec=Supervisor, code=3, why="", error="so it is")
    served.asked.clear()
    served.server._poll(known)
    assert [key.removeprefix(f"{served.prefix}/") for method, key in served.asked] == ["a/"]


def test_a_run_that_has_failed_since_the_listing_is_started_again(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The listing shows it running, with a lease; when the lease is read it is gone."""
    before: dict[str, bytes] = {}

    @agent
    async def failing(run: Run[dict[str, Any]]) -> None:
        before.update(served.objects("a"))
        raise ValueError("a person has to look")

    served.put("a/workspace.yaml", DEFINITION)
    assert satchel.run(f"{served.url}/a", failing).status == "failed"
    after = served.objects("a")
    assert f"a/{lease.PATH}" in before and f"a/{lease.PATH}" not in after
    served.lay("a", before)
    served.begin()
    folders = served.server._root.folders

    def late() -> Iterator[tuple[str, str]]:
        found = [*folders()]
        served.lay("a", after)
        return iter(found)

    with monkeypatch.context() as patched:
        patched.setattr(served.server._root, "folders", late)
        served.turn(everything=True)
    assert not served.server.is_idle, "the next listing tells"
    served.turn(everything=True)
    assert served.told == [] and served.server.is_idle


def test_a_sleep_that_a_child_began_ends_with_a_listing_of_everything(served: Served) -> None:
    served.put("a/workspace.yaml", DEFINITION)
    served.begin()
    served.turn(everything=True)
    child = served.child("a")
    served.run("a", sleeper)
    served.now = datetime.now(UTC)
    child.code, child.why, child.error = 5, "", ""
    served.turn()
    served.now += NAP - timedelta(minutes=1)
    assert served.turn() == []
    served.now += timedelta(minutes=2)
    assert served.turn() == [("list_objects_v2", "a"), *start("a")]
    assert served.told == [("started", "a"), ("sleeping", "a"), ("started", "a")]


def test_a_start_that_the_storage_has_failed_waits_for_a_listing_of_everything(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """People are told that it starts again in a second."""
    monkeypatch.setattr(run_server, "_FIRST", 0.0)
    served.put("a/workspace.yaml", DEFINITION)
    served.begin()
    served.turn(everything=True)
    child = served.child("a")
    served.now += timedelta(seconds=1)
    child.code, child.why, child.error = 8, "the storage", ""
    served.turn()
    assert served.told == [("started", "a"), ("storage", "a"), ("started", "a")]


def test_one_run_whose_storage_fails_keeps_the_others_from_being_looked_at(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task of a schedule could not be written, so what is there is unknown, and can't be listed either."""
    answer, refused = Requests._answer, list[str]()

    async def failing(requests: Requests, method: str, arguments: Any, seconds: float) -> Any:
        if method == "put_object" or (method == "list_objects_v2" and refused == ["put_object"]):
            refused.append(method)
            raise StorageFailed("is refused")
        return await answer(requests, method, arguments, seconds)

    served.put("a/workspace.yaml", DEFINITION + b"schedule: [{cron: '0 9 * * *', wait: true}]\n")
    served.run("b", sleeper)
    served.begin()
    served.turn(everything=True)
    monkeypatch.setattr(Requests, "_answer", failing)
    served.now += NAP + timedelta(days=1)
    served.turn(everything=True)
    assert refused == ["put_object", "list_objects_v2", "put_object"]
    assert {("storage", "a"), ("storage", "b")} <= {*served.told}, "b is looked at, and its claim is refused, too"


def test_storage_that_hangs_for_one_run_delays_signals_and_other_runs(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, asked = threading.Event(), threading.Event()

    def hang() -> None:
        asked.set()
        assert answers.wait(60)

    for name in "abc":
        served.put(f"{name}/workspace.yaml", DEFINITION)
    opens = run_server.open_store
    monkeypatch.setattr(run_server, "open_store", lambda url: hang() if url.endswith("/c") else opens(url))
    served.begin()
    served.server._lookout.looked_at = float("-inf")
    served.server.turn()
    assert served.server._thread is not None
    served.server._thread.join()
    served.server.turn()
    wait_until(lambda: {("started", "a"), ("started", "b")} <= set(served.told) and asked.is_set())
    assert ("started", "c") not in served.told, "it still waits for the storage"
    first, second = served.child("a"), served.child("b")
    asked.clear()
    first.poll.side_effect = hang
    wait_until(lambda: not any(known.is_busy for known in served.server._known if known.supervisor))
    served.server.turn()
    assert asked.wait(60)
    served.server.ask(signal.SIGTERM)
    wait_until(lambda: served.server.turn() or second.ask.called)
    assert not first.ask.called, "its thread still hangs"
    second.code, second.why, second.error = 3, "", ""
    wait_until(lambda: served.server.turn() or ("paused", "b") in served.told)
    first.poll.side_effect = None
    answers.set()
    wait_until(lambda: served.server.turn() or first.ask.called)
    first.code, first.why, first.error = 3, "", ""
    wait_until(lambda: served.server.turn() or served.server.is_idle)
    assert not served.server.running and ("started", "c") not in served.told


@pytest.mark.parametrize(("pages", "every"), [(0, 4), (1, 4), (10, 40), (100, 400)])
def test_the_price_grows_with_the_number_of_runs(
    served: Served, monkeypatch: pytest.MonkeyPatch, pages: int, every: int
) -> None:
    monkeypatch.setattr(RemoteStore, "pages", pages)
    assert UrlRoot(open_store(served.url)).every == every


def test_a_lease_is_left_over_because_nobody_has_looked(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two listings every lease is the same."""
    served.put("a/workspace.yaml", DEFINITION)
    served.put(f"a/{lease.PATH}", b"{}")
    root = UrlRoot(open_store(served.url))
    ((_, folder),) = root.folders()
    later = time.monotonic() + 61
    monkeypatch.setattr(roots, "time", mock.Mock(monotonic=lambda: later))
    assert root.is_renewed(folder) is None
    root.refresh([folder])
    assert root.is_renewed(folder) is False


def test_a_single_look_of_a_dispatcher_misses_what_may_be_held(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roots, "_SILENCE", 0.1)
    monkeypatch.setattr(roots, "_A_PAGE", 0.1)
    served.put("new/workspace.yaml", DEFINITION)
    served.put("killed/workspace.yaml", DEFINITION.replace(b"nap", b"killed"))
    held = replace(lease.mine(open_store(f"{served.url}/killed"), "killed-1", 1, ttl=30), host="elsewhere")
    served.put(f"killed/{lease.PATH}", lease.encode(held))

    async def looked() -> list[list[str]]:
        return [[each.run_id for each in look.runs] async for look in satchel.due(served.url, once=True)]

    looks = asyncio.run(asyncio.wait_for(looked(), PATIENCE))
    assert looks[0] == ["nap-1"] and sorted(looks[-1]) == ["killed-1", "nap-1"]


@pytest.mark.slow
def test_a_sleeper_is_not_woken_by_a_real_child(tmp_path: Path) -> None:
    """No test has a real `serve` over a bucket wake a real run, except the benchmark. So this is the benchmark."""

    class Few(Ground):
        def pick(self, normal: int, quick: int) -> int:
            return {1000: 3, 110: 15}[normal]

    assert len([*waiting.measure(Few(tmp_path))]) == 2, "else it says what has happened instead"


def test_pages_are_counted(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    store = open_store(served.url, served._s3.storage_options())
    assert store.pages == 1
    monkeypatch.setattr("satchel.workspace.store.remote_store.PAGE", 2)
    for number in range(5):
        served.put(f"{number}", b"")
    store.refresh()
    assert store.pages == 3
