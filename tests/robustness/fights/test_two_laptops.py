"""Four processes fight over one run in a bucket, and are killed, frozen and cut off meanwhile.

At the end there is one history, and every effect has happened once, or was in doubt and a person was asked. Rounds are
seeded: SATCHEL_SEED takes others.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.process import BaseProcess
from typing import Any

import msgspec
import pytest
from faults.faults import partition
from faults.proxy import Proxy, proxying
from properties import ROUNDS
from servers import Server

from fights import laptop
from satchel.workspace import journal
from satchel.workspace.base.errors import LeaseHeld
from satchel.workspace.inbound import Reply, find_question
from satchel.workspace.inspect.load import look
from satchel.workspace.inspect.report import Report
from satchel.workspace.journal import Doubt, Fenced, StepStarted
from satchel.workspace.lifecycle import acquire
from satchel.workspace.lifecycle.opening import opened
from satchel.workspace.state.question_state import DONE, REDO
from satchel.workspace.store import Store, open_store

SEED = int(os.environ.get("SATCHEL_SEED") or 20261122)
PARTS = 2 * ROUNDS
_FIGHTS = min(ROUNDS, 2)  # of a part
LAPTOPS = 4
TTL = 0.8
CHAOS = (1.5, 3.5)  # seconds
PATIENCE = 450.0  # seconds: on a busy machine a lease is lost at each stall

forking = multiprocessing.get_context("forkserver")
forking.set_forkserver_preload([laptop.__name__])


class Deliveries:
    """Counts what arrives."""

    def __init__(self) -> None:
        self.parcels: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                parcel = self.rfile.read(int(self.headers["Content-Length"])).decode()
                outer.parcels.append(parcel)
                body = f"receipt {len(outer.parcels)}".encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/"

    @contextmanager
    def open(self) -> Iterator[Deliveries]:
        thread = threading.Thread(target=self.server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield self
        finally:
            self.server.shutdown()
            thread.join()
            self.server.server_close()


class Laptop:
    def __init__(self, url: str, options: dict[str, Any], proxy: Proxy, deliveries: str, seed: int):
        self.proxy, self._seed = proxy, seed
        self._args = (url, options, deliveries)
        self.process: BaseProcess
        self.start()

    def start(self) -> None:
        self._seed += 1000
        self.process = forking.Process(target=laptop.run, args=(*self._args, self._seed), daemon=True)
        self.process.start()

    def signal(self, number: signal.Signals) -> None:
        if self.process.is_alive():
            assert self.process.pid
            with suppress(ProcessLookupError):  # it may end meanwhile
                os.kill(self.process.pid, number)

    def end(self) -> None:
        self.process.kill()
        self.process.join()


class Fight:
    """One round."""

    def __init__(self, server: Server, seed: int, stack: ExitStack):
        self.choose = random.Random(seed)
        self.url = server.place()
        self.store = open_store(self.url, server.storage_options())
        self.store.replace("workspace.yaml", b"format: 1\nrun_id: fight-1\nagent: laptop.py:fighter\n")
        self.deliveries = stack.enter_context(Deliveries().open())
        proxies = [stack.enter_context(proxying(server.endpoint)) for _ in range(LAPTOPS)]
        self.laptops = [
            Laptop(self.url, server.storage_options(proxy.url), proxy, self.deliveries.url, seed + number)
            for number, proxy in enumerate(proxies)
        ]
        stack.callback(self.end)
        self.asked: set[str] = set()

    def end(self) -> None:
        for each in self.laptops:
            each.end()

    def chaos(self) -> None:
        """Begins when one of them is at work."""
        while not journal.segments(self.store):
            time.sleep(0.05)
            self.store.refresh()
        until = time.monotonic() + self.choose.uniform(*CHAOS)
        while time.monotonic() < until:
            time.sleep(self.choose.uniform(0.0, 0.2))
            victim = self.choose.choice(self.laptops)
            match self.choose.choice(["kill", "freeze", "cut"]):
                case "kill":
                    victim.end()
                    victim.start()
                case "freeze":
                    victim.signal(signal.SIGSTOP)
                    self._later(lambda victim=victim: victim.signal(signal.SIGCONT))
                case "cut":
                    planted = partition(victim.proxy, silent=self.choose.random() < 0.5)
                    self._later(planted.lift)

    def _later(self, call: Any) -> None:
        timer = threading.Timer(self.choose.uniform(0.1, 2 * TTL), call)
        timer.start()

    def come_to_an_end(self) -> None:
        """Let them go on undisturbed, and answer what they ask, until the run has completed."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            multiprocessing.connection.wait([each.process.sentinel for each in self.laptops], timeout=1.0)
            codes = {each.process.exitcode for each in self.laptops}
            unknown = codes - {None, laptop.COMPLETED, laptop.WAITING, -signal.SIGKILL}
            assert not unknown, codes
            if laptop.WAITING in codes:
                self.end()
                self._answer()
                for each in self.laptops:
                    each.start()
            elif laptop.COMPLETED in codes:
                return
        raise AssertionError(f"the run has not come to its end: {look(self.store).moment.status}")

    def _answer(self) -> None:
        """As a person who looks up which parcels have arrived, and resumes a run that is stuck after three crashes."""
        while True:
            try:
                with suppress(FileNotFoundError):
                    pause = self.store.read("pause.yaml").data
                    assert b"stuck: " in pause, pause
                    self.store.replace("pause.yaml", pause.replace(b"status: paused", b"status: resume"))
                with opened(self.store, "answer", Report()) as workspace:
                    for id, doubt in [*workspace.moment.doubts.items()]:
                        question = find_question(workspace.moment, id)
                        assert question is not None
                        parcel = msgspec.json.decode(bytes(arguments_of(self.store, doubt)))["parcel"]
                        has_arrived = parcel in self.deliveries.parcels
                        reply = Reply(DONE if has_arrived else REDO, "the driver", "", msgspec.Raw(b'"receipt"'))
                        if not has_arrived:
                            reply = reply._replace(result=msgspec.Raw())
                        workspace.desk.record(workspace.journal, question, reply, "command")
                        self.asked.add(parcel)
                    workspace.close()
                return
            except LeaseHeld:
                continue  # a laptop that was killed a moment ago is still thought alive

    def check(self) -> None:
        self.store.refresh()
        lines = journal.read(self.store, after=0).lines
        assert [line.seq for line in lines] == [*range(1, len(lines) + 1)]
        epochs = [line.epoch for line in lines]
        assert epochs == sorted(epochs)
        fences = [line.epoch for line in lines if isinstance(line.record, Fenced)]
        assert len(set(fences)) == len(fences)
        delivered = Counter(self.deliveries.parcels)
        expected = {f"parcel for house {number}" for number in range(laptop.ITEMS)}
        assert delivered.keys() == expected
        doubted = asked_about(lines)
        twice = {parcel for parcel, times in delivered.items() if times > 1}
        assert twice <= doubted, (delivered, doubted)
        moment = look(self.store).moment
        assert moment.status == "completed" and len(moment.root.data["delivered"]) == laptop.ITEMS


def arguments_of(store: Store, doubt: Doubt) -> msgspec.Raw:
    started = [line.record for line in journal.read(store, after=0).lines if isinstance(line.record, StepStarted)]
    return next(record.arguments for record in started if record.key == doubt.key)


def asked_about(lines: Any) -> set[str]:
    started = {
        line.record.key: msgspec.json.decode(bytes(line.record.arguments))["parcel"]
        for line in lines
        if isinstance(line.record, StepStarted)
    }
    return {started[line.record.key] for line in lines if isinstance(line.record, Doubt)}


def fight(server: Server, seed: int) -> Fight:
    with ExitStack() as stack:
        round = Fight(server, seed, stack)
        round.chaos()
        round.come_to_an_end()
        round.end()
        round.check()
    return round


@pytest.fixture
def short_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(acquire.TTL_VARIABLE, str(TTL))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gcs", "azure"])
def test_one_fight_ends_in_one_history(kind: str, request: pytest.FixtureRequest, short_lease: None) -> None:
    print(f"seed {SEED}", flush=True)
    fight(request.getfixturevalue(kind), SEED)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_fights_end_in_one_history(seaweedfs: Server, short_lease: None, part: int) -> None:
    asked = 0
    for number in range(part, _FIGHTS * PARTS, PARTS):
        print(f"seed {SEED + number}", flush=True)
        asked += bool(fight(seaweedfs, SEED + number).asked)
    print(f"{_FIGHTS} rounds; in {asked} of them a person was asked")
