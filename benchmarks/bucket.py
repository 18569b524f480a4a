"""The cost of a run in a bucket: requests, bytes and dollars, and time as multiples of one conditional PUT.

SeaweedFS on loopback replaces S3. A proxy (`tests/robustness/faults/proxy.py`) counts the requests; times are measured
without the proxy. In a child, `prepare SHAPE COUNT STOP URL` works and then stops itself; `resume SHAPE COUNT URL`
continues; `time SHAPE COUNT URL SMALL` prints the seconds until the agent is called and does something new, of a
listing and a PUT. The SHAPE of a history is `items` (ten steps in each, all committed) or `scope` (a single open one,
of which every result is still needed).
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any, NamedTuple

from satchel import Agent, Item, Run, agent, run, step
from satchel.workspace.formats import definition
from satchel.workspace.formats.definition import Definition
from satchel.workspace.store import open_store

from .measuring import REPOSITORY, Ground, Result, await_stopped, check_paused, child, spread, stop_itself

_WRITE, _READ = 0.005 / 1000, 0.0004 / 1000
"""S3 Standard in us-east-1, list price: PUT and LIST, GET and HEAD. DELETE is free; traffic within the region too."""

_OPENING = 16  # requests, the listing apart
_TOGETHER = 10  # steps at once while a history is made, and in each item
_RESULT = "x" * 198  # 200 bytes of JSON


@step
async def answer(number: int) -> str:
    return _RESULT


@step
async def answer_after(number: int) -> str:
    await asyncio.sleep(0.02)
    return _RESULT


def measure(ground: Ground) -> Iterator[Result]:
    sys.path[:0] = [str(REPOSITORY / "tests"), str(REPOSITORY / "tests/robustness")]
    from servers import SeaweedFS

    server = SeaweedFS.started(ground.folder / "seaweedfs")
    bench = Bench(ground, server)
    try:
        with environment(bench.server.environment()):
            yield from _strict(bench)
            yield from _pipelined(bench)
        yield from _a_step(bench)
        yield from _naive(bench)
        yield from _waiting(bench)
        yield from _resuming(bench)
    finally:
        server.kill()


@dataclass(slots=True)
class Bench:
    ground: Ground
    server: Any

    def workspace(self) -> str:
        """The URL of a new workspace. `run` gets the agent, so the one that it names is never imported."""
        url: str = self.server.place()
        self.put(f"{url}/workspace.yaml", definition.encode(Definition("benchmark", "benchmark.py:main")).encode())
        return url

    def put(self, url: str, data: bytes) -> None:
        bucket, _, key = url.removeprefix("s3://").partition("/")
        self.server.client.put_object(Bucket=bucket, Key=key, Body=data)

    @contextmanager
    def counted(self) -> Iterator[Any]:
        """A proxy for everything that is opened meanwhile."""
        from faults.proxy import proxying

        with proxying(self.server.endpoint) as proxy, environment(self.server.environment(proxy.url)):
            yield proxy


# Times


def _strict(bench: Bench) -> Iterator[Result]:
    """Steps and PUTs alternate, through one client."""
    url, calls = bench.workspace(), bench.ground.pick(150, 40)
    store = open_store(url)
    steps: list[float] = []
    puts: list[float] = []

    def put(number: int, data: bytes) -> None:
        began = time.perf_counter()
        store.create(f"other/{number:06d}", data)
        puts.append(time.perf_counter() - began)

    async def in_turns() -> None:
        for number in range(20):
            await answer(-number)
        store.refresh()
        newest = max(entry.path for entry in store.list("journal"))
        data = store.read(newest).data
        for number in range(calls):
            began = time.perf_counter()
            await answer(number)
            steps.append(time.perf_counter() - began)
            await asyncio.to_thread(put, number, data)

    _run(store, in_turns)
    ratio = median(steps) / median(puts)
    yield Result(
        "a strict step in a bucket",
        "time",
        "at most 1.3 conditional PUTs of the same bytes",
        ratio,
        1.3,
        f"{ratio:.2f} PUTs",
        f"step {spread(steps, 1e3)} ms, PUT {spread(puts, 1e3)} ms; {calls} pairs",
    )


def _pipelined(bench: Bench) -> Iterator[Result]:
    rounds, times = bench.ground.pick(5, 2), list[float]()

    async def all_rounds(run: Run[Any]) -> None:
        for number in range(rounds):
            began = time.perf_counter()
            for each in range(100):
                await answer_after(number * 100 + each)
            await run.output("round.txt", str(number))  # waits until all of them are durable
            times.append(time.perf_counter() - began)

    @agent(durability="pipelined")
    async def benchmark(run: Run[Any]) -> None:
        await run.scope("calls", all_rounds, run)

    _check(run(bench.workspace(), benchmark))
    share = median(times) / 2
    yield Result(
        "100 pipelined steps of 20 ms each in a bucket",
        "time",
        "at most 1.15 times their own time",
        share,
        1.15,
        f"{share:.3f} times",
        f"{spread(times)} s until all are durable; {rounds} rounds",
    )


# Requests


class Cost(NamedTuple):
    """The cost according to a tally of the proxy."""

    writes: int  # PUT, POST and LIST
    reads: int  # GET and HEAD
    deletes: int
    up: int

    @classmethod
    def of(cls, tally: Any) -> Cost:
        deletes = tally.count("DELETE")
        reads = tally.count("GET") + tally.count("HEAD")
        return cls(tally.count() - deletes - reads, reads, deletes, tally.up)

    @property
    def requests(self) -> int:
        return self.writes + self.reads + self.deletes

    @property
    def dollars(self) -> float:
        return self.writes * _WRITE + self.reads * _READ


def _a_step(bench: Bench) -> Iterator[Result]:
    calls, found = bench.ground.pick(600, 150), list[Any]()

    async def counted(proxy: Any) -> None:
        for number in range(20):
            await answer(-number)
        with proxy.tallying() as tallies:
            for number in range(calls):
                await answer(number)
        found.extend(tallies)

    with bench.counted() as proxy:
        _run(bench.workspace(), counted, proxy)
    (tally,) = found
    cost, journal = Cost.of(tally), tally.count("PUT", "journal")
    yield Result(
        "requests for a strict step",
        "count",
        "at most 1.3",
        cost.requests / calls,
        1.3,
        f"{cost.requests / calls:.2f} requests",
        f"{journal / calls:.2f} PUTs of the journal; {kinds(tally, calls)}",
    )
    yield Result(
        "bytes up for a strict step, result of 200 bytes",
        "bytes",
        "",
        cost.up / calls,
        None,
        f"{cost.up / calls:,.0f} bytes",
        _price(cost, calls, "steps"),
    )


def _naive(bench: Bench) -> Iterator[Result]:
    """The naive way: the whole state goes into one object, again after each step."""
    import boto3

    calls, state = bench.ground.pick(600, 150), dict[str, str]()
    with bench.counted() as proxy:
        client, url = boto3.session.Session().client("s3", region_name="us-east-1"), bench.server.place()
        bucket, _, key = url.removeprefix("s3://").partition("/")
        with proxy.tallying() as tallies:
            for number in range(calls):
                state[f"answer-{number}"] = _RESULT
                body = json.dumps({"at": number, "data": state}).encode()
                client.put_object(Bucket=bucket, Key=f"{key}/state.json", Body=body)
    cost = Cost.of(tallies[0])
    yield Result(
        "naive: state.json rewritten after each step",
        "bytes",
        "",
        cost.up / calls,
        None,
        f"{cost.up / calls:,.0f} bytes",
        f"a step, of {calls}, and grows with them: the last {len(body):,}; "
        f"{cost.requests / calls:.2f} requests, {_price(cost, calls, 'steps')}; no fence, no effects, no second writer",
    )


def _waiting(bench: Bench) -> Iterator[Result]:
    seconds = bench.ground.pick(30, 10)

    async def asks(run: Run[Any], ready: asyncio.Event) -> None:
        ready.set()
        await run.ask("May it?", wait_for=3600)

    async def works(run: Run[Any], ready: asyncio.Event) -> None:
        ready.set()
        await asyncio.sleep(3600)

    for name, waits in (("while it waits for an answer", asks), ("in a long step", works)):
        with bench.counted() as proxy:
            cost, tally = asyncio.run(_minute(bench, proxy, waits, seconds))
        per_minute = cost.requests * 60 / seconds
        dollars = cost.dollars * 60 / seconds
        yield Result(
            f"requests a minute, {name}",
            "count",
            "at most 30",
            per_minute,
            30,
            f"{per_minute:.0f} requests",
            f"{kinds(tally, seconds / 60)} a minute; ${dollars * 60 * 24 * 30:.2f} a month",
        )
    yield Result(
        "requests a minute, paused, waiting or asleep", "count", "none", 0, 0, "0 requests", "there is no process then"
    )


async def _minute(bench: Bench, proxy: Any, waits: Any, seconds: float) -> tuple[Cost, Any]:
    from satchel import run_async

    ready = asyncio.Event()

    @agent
    async def benchmark(run: Run[Any]) -> None:
        await waits(run, ready)

    task = asyncio.create_task(run_async(bench.workspace(), benchmark))
    await ready.wait()
    await asyncio.sleep(5)  # what a start writes is written
    with proxy.tallying() as tallies:
        ended, _ = await asyncio.wait([task], timeout=seconds)
    if ended:
        raise RuntimeError(f"it has not waited: {task.result()}")
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled() and (error := task.exception()):
        raise error
    return Cost.of(tallies[0]), tallies[0]


def _resuming(bench: Bench) -> Iterator[Result]:
    many = bench.ground.pick(10_000, 1_000)
    for shape, count, where in (
        ("scope", 20, "of an open scope"),
        ("scope", many, "of an open scope"),
        ("items", many, "in finished items"),
    ):
        for stop, words in (("clean", "a clean stop"), ("kill", "a SIGKILL")):
            url = bench.workspace()
            with environment(bench.server.environment()):
                await_stopped(child("bucket", "prepare", shape, count, stop, url), stop)
            with bench.counted() as proxy:
                child("bucket", "resume", shape, count, url).communicate()
                seen = _until_called(proxy)
            cost = Cost.of(seen)
            yield Result(
                f"requests to open after {words} and {count:,} steps {where}",
                "count",
                f"at most {_OPENING} and listings",
                cost.requests - seen.count("LIST"),
                _OPENING,
                f"{cost.requests - seen.count('LIST')} requests",
                f"{kinds(seen)}; {_price(cost, 1, 'openings')}",
            )
            if stop == "clean" and count == many:
                yield _opening_time(bench, shape, count, where, url)


def _until_called(proxy: Any) -> Any:
    """The requests before the mark that the child sets when its agent is called."""
    from faults.traffic import Tally

    seen = list(proxy.seen)
    mark = next(i for i, each in enumerate(seen) if each.key.endswith("/mark"))
    return Tally.of(seen[:mark])


_SHOWN = ("opening", "listing", "first_step")


class _Sample(NamedTuple):
    """Seconds."""

    opening: float  # until the agent is called
    first_step: float  # until it does something new
    listing: float
    put: float


def _opening_time(bench: Bench, shape: str, count: int, where: str, url: str) -> Result:
    with environment(bench.server.environment()):
        samples = [_timed(bench, shape, count, url) for _ in range(bench.ground.pick(5, 2))]
    times = [(each.opening - each.listing) / each.put for each in samples]
    opening, listing, first_step = ([getattr(each, name) for each in samples] for name in _SHOWN)
    return Result(
        f"opening with {count:,} steps {where} behind it",
        "time",
        "at most 10 PUTs and the listing",
        median(times),
        10,
        f"{spread(times)} PUTs",
        f"{spread(opening, 1e3)} ms, of it listing {spread(listing, 1e3)} ms; "
        f"PUT {spread([each.put for each in samples], 1e3)} ms; first new step after {spread(first_step, 1e3)} ms",
    )


def _timed(bench: Bench, shape: str, count: int, url: str) -> _Sample:
    out, _ = child("bucket", "time", shape, count, url, bench.workspace()).communicate()
    return _Sample(*map(float, out.split()))


def kinds(tally: Any, per: float = 1) -> str:
    rows = sorted(tally.requests.items(), key=lambda row: -row[1])
    return ", ".join(f"{n / per:.3g} {method} {kind}" for (method, kind), n in rows)


def _price(cost: Cost, times: int, unit: str) -> str:
    return f"${cost.dollars / times * 1000:.4f} for 1,000 {unit}"


@contextmanager
def environment(variables: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _run(workspace: Any, function: Any, *arguments: Any) -> None:
    @agent
    async def benchmark(run: Run[Any]) -> None:
        await run.scope("calls", function, *arguments)

    _check(run(workspace, benchmark))


def _check(outcome: Any) -> None:
    if outcome.error:
        raise outcome.error


# In the child


async def _nothing() -> None:
    pass


def _agent(shape: str, count: int, reached: Any, entered: Any = _nothing) -> Agent:
    """An agent that calls `entered` when it is called, and `reached` after `count` steps."""

    async def together(first: int) -> None:
        await asyncio.gather(*(answer(number) for number in range(first, first + _TOGETHER)))

    async def history() -> None:
        for first in range(0, count, _TOGETHER):
            await together(first)
        await reached()

    async def work(run: Run[Any], item: Item) -> None:
        first = int(item.text)
        await (together(first) if first < count else reached())

    @agent
    async def benchmark(run: Run[Any]) -> None:
        await entered()
        if shape == "scope":
            await run.scope("calls", history)
            return
        if not run.todo.items:
            await run.plan("Benchmark", [str(first) for first in range(0, count + 1, _TOGETHER)])
        await run.todo.each(work)

    return benchmark


def _prepare(shape: str, count: int, stop: str, url: str) -> None:
    async def reached() -> None:
        await stop_itself(stop)

    check_paused(run(url, _agent(shape, count, reached)))


def _resume(shape: str, count: int, url: str) -> None:
    beside = open_store(url)

    async def entered() -> None:
        beside.replace("outputs/mark", b"")

    async def reached() -> None:
        await stop_itself("clean")

    run(url, _agent(shape, count, reached, entered))


def _time(shape: str, count: int, url: str, small: str) -> None:
    async def entered() -> None:
        nonlocal opened
        opened = time.perf_counter() - began

    async def reached() -> None:
        print(opened, time.perf_counter() - began, listing, median(puts), flush=True)
        await stop_itself("clean")

    run(small, _agent(shape, _TOGETHER, _nothing))  # what is imported only when it is needed is imported now
    store, puts, opened = open_store(url), list[float](), 0.0
    store.refresh()
    began = time.perf_counter()
    store.refresh()
    listing = time.perf_counter() - began
    for number in range(9):
        began = time.perf_counter()
        store.create(f"outputs/other/{os.getpid()}-{number}", b"x" * 1000)
        puts.append(time.perf_counter() - began)

    began = time.perf_counter()
    run(store, _agent(shape, count, reached, entered))  # through the client that has put


if __name__ == "__main__":
    does = {"prepare": _prepare, "resume": _resume, "time": _time}[sys.argv[1]]
    does(sys.argv[2], int(sys.argv[3]), *sys.argv[4:])
