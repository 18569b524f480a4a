"""`satchel serve --listen` is killed again and again while clients post: what it has accepted is there once."""

from __future__ import annotations

import collections
import http.client
import json
import random
import socket
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
import warm
from properties import ROUNDS, seed

import satchel

pytest.importorskip("uvicorn")
pytest.importorskip("starlette")

from .test_receiving import make

KILLS = 32 * ROUNDS
CLIENTS = 4
TURNS = 8  # how often the run takes its tasks meanwhile
PATIENCE = 120.0
TAKING = """
from satchel import agent

async def work(run, task):
    run.state.setdefault("seen", []).append(task.text)

@agent
async def main(run):
    while True:
        await run.inbox.each(work)
        await run.pause("enough for now")  # and `serve` does not start it again
"""
TOKEN = "a-token-for-tests-9c2f"


class Traffic:
    """Clients that post one task after the other, each with a key of its own, and try again until it is accepted. Some
    give up earlier, as senders do."""

    def __init__(self, socket_path: str, seed: int):
        self._path, self._seed = socket_path, seed
        self.accepted: dict[str, set[str]] = collections.defaultdict(set)  # text -> the files that were named
        self.given_up: set[str] = set()
        self.failures = 0
        self.found_again = 0  # tasks that an earlier attempt had written, whose answer was lost
        self.wrong: list[str] = []
        self._changed = threading.Condition()
        self._is_up, self.ends = threading.Event(), threading.Event()
        self._threads = [threading.Thread(target=self._post_all, args=(number,)) for number in range(CLIENTS)]

    def __enter__(self) -> Traffic:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ends.set()
        self._is_up.set()
        for thread in self._threads:
            thread.join(PATIENCE)

    def goes_on(self, is_up: bool) -> None:
        self._is_up.set() if is_up else self._is_up.clear()

    def wait_for(self, count: int) -> None:
        """Until so many more were accepted."""
        with self._changed:
            goal = len(self.accepted) + count
            assert self._changed.wait_for(lambda: len(self.accepted) >= goal or self.wrong, PATIENCE)

    def _post_all(self, client: int) -> None:
        chance = random.Random(f"{self._seed} {client}")
        number = 0
        while not self.ends.is_set():
            number += 1
            text = f"task {client}-{number}"
            patience = chance.choice((1, 2, 1000))
            while not self._post(text):
                patience -= 1
                if not patience or self.ends.is_set():
                    self.given_up.add(text)
                    break
                self._is_up.wait(PATIENCE)

    def _post(self, text: str) -> bool:
        began = f"{datetime.now(UTC):%Y%m%dT%H%M%S.%f}"
        connection = http.client.HTTPConnection("localhost")
        try:
            with socket.socket(socket.AF_UNIX) as connection.sock:
                connection.sock.settimeout(PATIENCE)
                connection.sock.connect(self._path)
                headers = {"authorization": f"Bearer {TOKEN}", "content-type": "text/plain", "idempotency-key": text}
                connection.request("POST", "/inbox/letters", text, headers)
                answer = connection.getresponse()
                body = answer.read()
        except (OSError, http.client.HTTPException):
            self.failures += 1
            return False
        with self._changed:
            if answer.status != 202:
                self.wrong.append(f"{text}: {answer.status} {body!r}")
            else:
                file = json.loads(body)["file"]
                self.accepted[text].add(file)
                self.found_again += file.removeprefix("inbox/") < began
            self._changed.notify()
        return True


def written(folder: Path) -> collections.Counter[str]:
    """How many files there are of each task, waiting or done."""
    return collections.Counter(
        file.read_text().strip() for place in ("inbox", "inbox/done") for file in (folder / place).glob("*.md")
    )


@pytest.mark.slow
def test_an_accepted_task_is_lost_or_doubled_by_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(seed())
    monkeypatch.setenv("SATCHEL_LISTEN_TOKEN", TOKEN)
    folder = make(tmp_path / "runs" / "letters")
    (folder / "agent.py").write_text(TAKING)
    with (folder / "workspace.yaml").open("a") as file:
        file.write("keep: {inbox: all}\n")
    handle = satchel.open(folder)
    assert handle.run().status == "paused"
    path = str(tmp_path / "socket")
    command = [sys.executable, "-m", "satchel", "serve", "--json", "--listen", f"unix:{path}", str(folder.parent)]
    with Traffic(path, seed) as traffic:
        for kill in range(KILLS):
            with warm.Popen(command, stdout=subprocess.PIPE, text=True) as served:
                try:
                    assert served.stdout is not None
                    assert json.loads(served.stdout.readline())["event"] == "listening"
                    traffic.goes_on(True)
                    traffic.wait_for(chance.randrange(4))
                    time.sleep(chance.random() * 0.004)  # where in the next requests it is killed
                finally:
                    traffic.goes_on(False)
                    served.kill()
            assert not traffic.wrong
            if kill % (KILLS // TURNS) == 0:
                found = written(folder)
                assert {*found.values()} <= {1}, "before the run takes one of them"
                assert handle.resume().status == "paused"
    found = written(folder)
    print(f"{traffic.failures=} {traffic.found_again=}")
    assert not traffic.wrong
    assert traffic.failures >= KILLS // 4, "the kills have hit no requests"
    assert len(traffic.accepted) >= KILLS and traffic.given_up
    assert {text: found[text] for text in traffic.accepted} == dict.fromkeys(traffic.accepted, 1)
    assert set(found) <= {*traffic.accepted, *traffic.given_up} and max(found.values()) == 1
    assert all(len(files) == 1 for files in traffic.accepted.values())
    assert handle.resume().status == "paused"
    seen = json.loads((folder / "state.json").read_text())["data"]["seen"]
    assert sorted(text.strip() for text in seen) == sorted(found)
