"""Types of JSON that are made in one thread while another needs them: that one died of a segmentation fault."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import make_dataclass
from typing import Any

import pytest
import warm

from satchel.runtime.agent.codec import Codec
from satchel.workspace.formats import jsontext

RACE = '''
import threading, typing
from satchel.workspace.inspect import lease

class Slow:
    asked = 0

    def __getitem__(self, found):  # first of a lease, then of a process, which is in the middle of the lease
        self.asked += 1
        if self.asked == 2:
            first.set()
            second.wait(1)
        return typing.Annotated[found]

lease.Annotated = Slow()
first, second = threading.Event(), threading.Event()
data = b"""{"run_id": "r", "host": "h", "pid": 1, "process_started": "1", "epoch": 1, "since": "", "url": "u",
           "supervisor": {"pid": 2, "process_started": "1"}}"""
thread = threading.Thread(target=lease.parse, args=(data,))
thread.start()
first.wait(0.1)
for _ in range(100):
    assert lease.parse(data).host == "h"
second.set()
thread.join()
'''


def test_two_threads_that_read_their_first_lease_at_once_die() -> None:
    """Seen twice as `satchel stop --all` that died of SIGSEGV after it had written its pause.yaml."""
    done = warm.run([sys.executable, "-c", RACE], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)
    assert done.returncode == 0, done.stdout


def test_two_threads_make_a_decoder_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    inside, most, lock = 0, 0, threading.Lock()
    barrier = threading.Barrier(4)

    class Counting:
        def __init__(self, kind: Any, **options: Any):
            nonlocal inside, most
            with lock:
                inside += 1
                most = max(most, inside)
            threading.Event().wait(0.01)
            with lock:
                inside -= 1

    monkeypatch.setattr(jsontext, "Decoder", Counting)
    kinds = [make_dataclass(f"Kind{n}", [("a", int)]) for n in range(4)]

    def make(kind: type) -> None:
        barrier.wait()
        Codec(kind, "a test")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(make, kinds))
    assert most == 1
