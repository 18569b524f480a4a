"""A fleet of runs on a disk and in a bucket, through kills and freezes of everything that has part in it: none is lost,
no effect is done twice, and a kill repeats at most the steps that it has cut off."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest
from properties import seed
from servers import Server

import satchel
from satchel.errors import StorageFailed
from satchel.results import RunStatus

distributed = pytest.importorskip("distributed", reason="Dask is not installed: `pip install --editable '.[test]'`")
import psutil  # noqa: E402
from dask_cluster import Cluster, Tree  # noqa: E402
from waits import PATIENCE  # noqa: E402

WORKING = """
import asyncio, os, time
from satchel import NotDone, Run, agent, effect, step

OUTSIDE = os.environ["OUTSIDE"]

def note(text):
    fd = os.open(OUTSIDE, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, f"{text}\\n".encode())
    os.close(fd)

@step
async def think(name: str, i: int) -> int:
    note(f"step {name} {i} {os.getpid()} {time.time()}")
    await asyncio.sleep(0.5)
    return i

async def is_sent(name, i):
    with open(OUTSIDE) as file:
        if f"effect {name} {i}\\n" not in file:
            raise NotDone
    return i

@effect(verify=is_sent)
async def send(name: str, i: int) -> int:
    note(f"effect {name} {i}")
    return i

@agent
async def main(run: Run) -> int:
    for i in range(4):
        await think(run.id, i)
        await send(run.id, i)
    return 4
"""
STEPS = 4


class Plan(NamedTuple):
    on_disk: int
    in_bucket: int
    workers: int
    threads: int
    kills: int
    freezes: int
    schedulers: int
    dispatchers: int
    frozen: float = 40.0  # seconds that a worker stays frozen


class Chaos:
    """What is done to a cluster, in an order of chance."""

    def __init__(self, cluster: Cluster, plan: Plan, roots: list[str], urls: list[str], seed: int):
        self.cluster, self.plan, self.roots, self.urls = cluster, plan, roots, urls
        self.random = random.Random(seed)
        self.cut_off: list[tuple[str, float]] = []  # runs whose processes were killed or frozen, and when
        self._frozen: list[tuple[float, Tree, list[psutil.Process]]] = []

    def mend(self) -> None:
        """Start what is missing, as systemd would. A worker ends with its scheduler, and when it was given up."""
        for _ in range(self.plan.workers - len(self._live())):
            self.cluster.start_worker(self.plan.threads)
        if not self.cluster.dispatchers or self.cluster.dispatchers[-1].process.poll() is not None:
            self.cluster.start_dispatcher(*self.roots)

    def play(self) -> None:
        """All that is planned, and then whole again."""
        plan = self.plan
        acts = [self._kill] * plan.kills + [self._freeze] * plan.freezes
        acts += [self._kill_scheduler] * plan.schedulers + [self._kill_dispatcher] * plan.dispatchers
        self.random.shuffle(acts)
        acts.insert(len(acts) // 2, self._submit_again)
        self._pace = 4 * STEPS * len(self.urls) // len(acts)  # so that they are spread over the whole
        for act in acts:
            self._wait_for_steps()
            act()
            self._thaw()
            self.mend()
        while self._frozen:
            time.sleep(0.5)
            self._thaw()

    def _wait_for_steps(self) -> None:
        """So that each kill meets something: until some steps were begun, or no run is left."""
        goal, until = len(self.lines()) + self.random.randint(1, self._pace), time.monotonic() + PATIENCE
        while len(lines := self.lines()) < goal and time.monotonic() < until:
            if sum(kind == "effect" for kind, *_ in lines) == STEPS * len(self.urls):
                break
            time.sleep(0.05)
            self._thaw()
            self.mend()

    def lines(self) -> list[list[str]]:
        with suppress(FileNotFoundError):
            return [line.split() for line in (self.cluster.folder / "outside").read_text().splitlines()]
        return []

    def _running(self, processes: list[psutil.Process]) -> list[str]:
        found = []
        for each in processes:
            with suppress(psutil.Error):
                words = each.cmdline()
                found += words[-1:] * ("--supervised" in words)
        return found

    def _live(self) -> list[Tree]:
        frozen = [tree for _, tree, _ in self._frozen]
        return [each for each in self.cluster.workers if each.process.poll() is None and each not in frozen]

    def _kill(self) -> None:
        """A worker with all that it has started, or one run."""
        tree = self.random.choice(self._live())
        processes = tree.all()
        runs = [each for each in processes if self._running([each])]
        if runs and self.random.random() < 0.5:
            run = self.random.choice(runs)
            self.cut_off += [(folder, time.time()) for folder in self._running([run])]
            with suppress(psutil.Error):
                run.kill()
            return
        self.cut_off += [(folder, time.time()) for folder in self._running(processes)]
        tree.kill()

    def _freeze(self) -> None:
        tree = self.random.choice(self._live())
        processes = tree.freeze()
        self.cut_off += [(folder, time.time()) for folder in self._running(processes)]
        self._frozen.append((time.monotonic() + self.plan.frozen, tree, processes))

    def _thaw(self) -> None:
        """Half of them go on, as after a pause of their machine; the others are killed."""
        for each in [*self._frozen]:
            until, tree, processes = each
            if time.monotonic() > until:
                self._frozen.remove(each)
                if self.random.random() < 0.5:
                    for process in processes:
                        with suppress(psutil.Error):
                            process.send_signal(signal.SIGCONT)
                else:
                    tree.kill()

    def _kill_scheduler(self) -> None:
        self.cluster.scheduler.kill()
        self.cluster.scheduler = self.cluster.start_scheduler()

    def _kill_dispatcher(self) -> None:
        self.cluster.dispatchers[-1].kill()

    def _submit_again(self) -> None:
        """All of them, under other keys."""
        from satchel.adapters.dask.workers import run_here

        async def submit() -> None:
            async with distributed.Client(self.cluster.address, asynchronous=True, set_as_default=False) as client:
                for url in self.urls:
                    distributed.fire_and_forget(client.submit(run_here, url, None, key=f"again-{url}"))
                await asyncio.sleep(1)

        asyncio.run(submit())


def explore(plan: Plan, folder: Path, s3: Server, monkeypatch: pytest.MonkeyPatch, seed: int) -> str:
    """Returns the figures, in words."""
    for name, value in s3.environment().items():
        monkeypatch.setenv(name, value)
    disk, bucket = folder / "runs", s3.place()
    template = folder / "template"
    template.mkdir()
    (template / "workspace.yaml").write_text("format: 1\nrun_id: template-1\nagent: agent.py:main\n")
    (template / "agent.py").write_text(WORKING)
    disk.mkdir()
    names = [f"d{number}" for number in range(plan.on_disk)] + [f"b{number}" for number in range(plan.in_bucket)]
    random.Random(seed).shuffle(names)  # those that were made first are started first
    urls = [f"{disk if name[0] == 'd' else bucket}/{name}" for name in names]
    for name, url in zip(names, urls, strict=True):
        satchel.new(template, url, run_id=name)
    where = {"OUTSIDE": str(folder / "cluster/outside"), "XDG_STATE_HOME": str(folder / "state")}
    cluster = Cluster(folder / "cluster", {**s3.environment(), **where})
    chaos = Chaos(cluster, plan, [str(disk), bucket], urls, seed)
    began = time.monotonic()
    try:
        chaos.mend()
        chaos.play()
        left = _wait(chaos, [str(disk), bucket])
        took = time.monotonic() - began
    finally:
        cluster.end()
    lines = chaos.lines()
    effects = Counter((name, i) for kind, name, i, *_ in lines if kind == "effect")
    steps = Counter((name, i) for kind, name, i, *_ in lines if kind == "step")
    repeated = sum(count - 1 for count in steps.values())
    figures = (
        f"{len(urls)} runs, {plan.kills} kills, {plan.freezes} freezes of workers, {len(chaos.cut_off)} runs cut off, "
        f"{took:.0f} s: {len(left)} lost, {effects.total() - len(effects)} doubled effects, {repeated} repeated steps"
    )
    print(figures, _at_work_again(chaos))
    assert not left, (figures, [(each.folder, each.state) for each in left], cluster.told(len(cluster.dispatchers) - 1))
    assert effects == {(name, str(i)): 1 for name in names for i in range(STEPS)}, figures
    assert steps.keys() == effects.keys() and repeated <= 2 * len(chaos.cut_off), figures
    return figures


def _wait(chaos: Chaos, roots: list[str]) -> list[RunStatus]:
    """Until all have completed, or nothing goes on for a long time. Returns those that have not completed."""
    until, before = time.monotonic() + PATIENCE, 0
    while True:
        left = None
        with suppress(StorageFailed):  # the server has much to do
            left = [each for root in roots for each in satchel.ls(root) if each.state != "completed"]
        lines = len(chaos.lines())
        if lines > before:
            until, before = time.monotonic() + PATIENCE, lines
        if left is not None and (not left or time.monotonic() > until):
            return left
        chaos.mend()
        time.sleep(2)


def _at_work_again(chaos: Chaos) -> str:
    """How long it took until those that were cut off were at work again, as far as they had to be."""
    begun: dict[str, list[float]] = {}
    for kind, name, *more in chaos.lines():
        if kind == "step":
            begun.setdefault(name, []).append(float(more[2]))
    waits: dict[str, list[float]] = {"d": [], "b": []}
    for url, at in chaos.cut_off:
        name = url.rpartition("/")[2]
        if later := [each for each in begun.get(name, ()) if each > at]:
            waits[name[0]].append(min(later) - at)
    return ", ".join(
        f"{kind}: {len(found)} at work again after {sorted(found)[len(found) // 2]:.1f} s in the middle, "
        f"{max(found):.1f} s at most"
        for kind, found in waits.items()
        if found
    )


@pytest.mark.long
@pytest.mark.slow
def test_what_a_kill_leaves_is_lost_or_done_twice(
    tmp_path: Path, seaweedfs: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Plan(8, 6, workers=2, threads=3, kills=4, freezes=1, schedulers=1, dispatchers=1)
    explore(plan, tmp_path, seaweedfs, monkeypatch, seed=seed())


@pytest.mark.long
@pytest.mark.soak
@pytest.mark.slow
def test_what_many_kills_leave_is_lost_or_done_twice(
    tmp_path: Path, seaweedfs: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Plan(120, 80, workers=3, threads=4, kills=40, freezes=10, schedulers=2, dispatchers=3)
    explore(plan, tmp_path, seaweedfs, monkeypatch, seed=seed())
