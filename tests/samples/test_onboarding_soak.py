"""Rounds of pause, resume, SIGTERM, SIGKILL, emergency, approval and denial over `onboarding`.

SATCHEL_SEED chooses others.
"""

from __future__ import annotations

import json
import os
import random
import re
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import properties
import pytest
from waits import PATIENCE

from .newcomers import ONBOARDING

SEED = int(os.environ.get("SATCHEL_SEED", random.SystemRandom().randrange(10**6)))
ROUNDS = 10 * properties.ROUNDS
AT_ONCE = 2
SOAKING = Path(__file__).with_name("soaking.py")


class Server(NamedTuple):
    port: int
    box: Path


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """The mail server, as README.md of the sample starts it: on another port, and for another mailbox."""
    readme = (ONBOARDING / "README.md").read_text()
    found = re.search(r"(?m)^    python (-m aiosmtpd .*) 127.0.0.1:8025 (.*) mailbox$", readme)
    assert found, "README.md does not say how to start a mail server"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = [*found[1].split(), f"127.0.0.1:{port}", *found[2].split(), str(tmp_path / "box")]
    with subprocess.Popen([sys.executable, *words]) as process:
        try:
            until = time.monotonic() + PATIENCE
            while True:
                with suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
                    break
                assert time.monotonic() < until and process.poll() is None, "the mail server does not start"
                time.sleep(0.02)
            yield Server(port, tmp_path / "box")
        finally:
            process.kill()


def soak(server: Server, rounds: int, seed: int = SEED, fault: str = "") -> tuple[int, Counter[str], str]:
    """Two processes that play rounds: the worse exit code, what happened in numbers, and what they said of failures."""
    shares = [rounds // AT_ONCE + (number < rounds % AT_ONCE) for number in range(AT_ONCE)]
    environment = {**os.environ, "TMPDIR": str(server.box.parent)}  # where a failed round is kept
    processes = [
        subprocess.Popen(
            [sys.executable, str(SOAKING), str(seed + number), str(share), str(server.port), str(server.box), fault],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for number, share in enumerate(shares)
    ]
    counts: Counter[str] = Counter()
    failures = ""
    for process in processes:
        said, failed = process.communicate(timeout=3600)
        failures += failed
        if process.returncode == 0:
            counts.update(json.loads(said))
    return max(process.returncode for process in processes), counts, failures


@pytest.mark.slow
def test_nothing_is_lost_and_nothing_is_doubled_whatever_happens(server: Server) -> None:
    print(f"SATCHEL_SEED={SEED}")
    code, counts, failures = soak(server, ROUNDS)
    print(", ".join(f"{name} {count}" for name, count in sorted(counts.items())))
    assert code == 0, f"SATCHEL_SEED={SEED}\n{failures}"
    assert counts["rounds"] == ROUNDS
    opened, released = counts["resources opened"], counts["resources released"]
    assert opened == released + counts["resources lost to kills"] > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault, words",
    [("verify", "mails: ["), ("denial", "privileges, approved False: [("), ("leak", "times and closed it 0")],
)
def test_the_soak_would_find_it(server: Server, fault: str, words: str) -> None:
    """A `verify` that always says that the mail has not come; a privilege that is set without being approved; a
    connection that is not closed."""
    code, _, failures = soak(server, 40, seed=7, fault=fault)
    assert code != 0 and words in failures, failures
