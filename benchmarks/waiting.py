"""The cost of `serve` while 1,000 runs sleep in a bucket, and how late it wakes one.

`serve` is the real one, in this process, over SeaweedFS on loopback. A proxy counts its requests from the start of one
look at everything to the start of the next, which is all that it repeats. One more run sleeps for a shorter time, and
is started at its time.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, NamedTuple

from satchel import Run, agent, run
from satchel.results import ServeEvent
from satchel.runtime.supervision.run_server import Server
from satchel.workspace.store import open_store

from .bucket import Bench, Cost, environment, kinds
from .measuring import REPOSITORY, Ground, Result

_MONTH = 30 * 24 * 3600
_BYTES_OUT = 0.09e-9  # dollars a byte, if it leaves the region

_SOURCE = """
from satchel import agent

@agent
async def main(run):
    await run.sleep({seconds})
"""


class _Seen(NamedTuple):
    tally: Any  # from the beginning of a look to that of the next
    seconds: float
    started: dict[str, datetime]  # runs that were started
    objects: int


def measure(ground: Ground) -> Iterator[Result]:
    sys.path.insert(0, str(REPOSITORY / "tests"))
    from servers import SeaweedFS

    many = ground.pick(1000, 100)
    server = SeaweedFS.started(ground.folder / "seaweedfs")
    bench = Bench(ground, server)
    try:
        root = server.place()
        with environment(server.environment()):
            _sleep(f"{root}/first", 30 * 24 * 3600)
            _copy(bench, root, many)
            until = _sleep(f"{root}/woken", ground.pick(110, 20))
        with bench.counted() as proxy:
            seen = _serve(proxy, root, until)
    finally:
        server.kill()
    cost = Cost.of(seen.tally)
    dollars, down = cost.dollars * _MONTH / seen.seconds, seen.tally.down * _MONTH / seen.seconds
    yield Result(
        f"serve over {many:,} sleeping runs in a bucket",
        "count",
        "at most 5 dollars a month",
        dollars,
        5,
        f"{dollars:.2f} dollars a month",
        f"{kinds(seen.tally)} in {seen.seconds:.1f} s, for {seen.objects:,} objects; "
        f"{down / 1e9:,.0f} GB a month, {down * _BYTES_OUT:,.0f} dollars if they leave the region",
    )
    late = (seen.started["woken"] - until).total_seconds()
    yield Result(
        f"woken among {many:,} sleeping runs",
        "time",
        "at most 10 s after its time",
        late,
        10,
        f"{late:.1f} s",
        "until its process was started",
    )


def _sleep(url: str, seconds: float) -> datetime:
    """A run that sleeps. Returns until when."""

    @agent
    async def benchmark(run: Run[Any]) -> None:
        await run.sleep(seconds)

    store = open_store(url)
    store.create("workspace.yaml", b"format: 1\nrun_id: %s\nagent: agent.py:main\n" % url.rpartition("/")[2].encode())
    store.create("agent.py", _SOURCE.format(seconds=seconds).encode())
    outcome = run(url, benchmark, accept_drift=True)
    if outcome.status != "sleeping":
        raise outcome.error or RuntimeError(outcome.status)
    return datetime.fromisoformat(outcome.until)


def _copy(bench: Bench, root: str, many: int) -> None:
    """Object by object: the cost of waiting depends only on their number."""
    client, (bucket, _, prefix) = bench.server.client, root.removeprefix("s3://").partition("/")
    listed = client.list_objects_v2(Bucket=bucket, Prefix=f"{prefix}/first/")["Contents"]
    bodies = {each["Key"]: client.get_object(Bucket=bucket, Key=each["Key"])["Body"].read() for each in listed}

    def copy(number: int) -> None:
        for key, body in bodies.items():
            name = key.removeprefix(f"{prefix}/first")
            client.put_object(Bucket=bucket, Key=f"{prefix}/{number:04d}{name}", Body=body)

    with ThreadPoolExecutor(8) as threads:
        for _ in threads.map(copy, range(1, many)):
            pass


def _serve(proxy: Any, root: str, until: datetime) -> _Seen:
    started: dict[str, datetime] = {}
    events: list[ServeEvent] = []

    def told(event: ServeEvent) -> None:
        events.append(event)
        if event.kind == "started":
            started[event.folder.rpartition("/")[2]] = datetime.now(UTC)

    store = open_store(root)
    server = Server(root, 4, told, store=store)
    looks: list[int] = []
    while len(looks) < 3 or "woken" not in started:
        asked = len(proxy.seen)
        before = server._lookout.looked_at
        server.turn()
        if server._lookout.looked_at != before and server._is_looking:
            looks.append(asked)
        if (datetime.now(UTC) - until).total_seconds() > 120:
            raise RuntimeError(f"it was not woken: {len(looks)} looks, {events}")
        time.sleep(1)
    objects = sum(1 for _ in store._listing(""))  # type: ignore[attr-defined]
    server.stops = True
    while server.running:
        server.turn()
        time.sleep(0.1)
    seconds = proxy.seen[looks[2]].at - proxy.seen[looks[1]].at
    return _Seen(type(proxy.tally()).of(proxy.seen[looks[1] : looks[2]]), seconds, started, objects)
