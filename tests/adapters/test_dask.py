"""A fleet: runs on the workers of a real cluster, whose processes are stopped, killed and frozen."""

from __future__ import annotations

import json
import os
import signal
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import satchel

dask = pytest.importorskip("distributed", reason="Dask is not installed: `pip install --editable '.[test]'`")
from dask_cluster import Cluster  # noqa: E402
from servers import Server  # noqa: E402
from waits import PATIENCE  # noqa: E402

pytestmark = pytest.mark.slow  # a worker takes seconds to start

COUNTING = """
import asyncio, os
from satchel import Run, agent, step

@step
async def count(i: int) -> int:
    with open(os.environ["SEEN"], "a") as file:
        file.write(f"{os.getppid()} {os.getpid()} {i}\\n")
    await asyncio.sleep(0.2)
    return i

@agent
async def main(run: Run) -> int:
    return sum([await count(i) for i in range(SIZE)])
"""

ASKING = """
from satchel import Run, agent

@agent
async def main(run: Run) -> str:
    return await run.ask("Go on?", choices=["yes", "no"])
"""


def make(folder: Path, source: str = COUNTING, size: int = 3) -> Path:
    folder.mkdir(parents=True)
    (folder / "workspace.yaml").write_text(f"format: 1\nrun_id: {folder.name}-1\nagent: agent.py:main\n")
    (folder / "agent.py").write_text(source.replace("SIZE", str(size)))
    return folder


def wait_until(is_so: Callable[[], Any], what: Callable[[], str] = str) -> None:
    until = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < until, f"it has never come to that: {what()}"
        time.sleep(0.2)


def states(root: Path) -> list[str]:
    return [each.state for each in satchel.ls(root)]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "runs").mkdir()
    return tmp_path / "runs"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path / "cluster", {"SEEN": str(tmp_path / "seen")})
    yield cluster
    cluster.end()


def seen(cluster: Cluster) -> list[list[int]]:
    """What steps have begun: the process of the supervisor, of the run, and the number."""
    with suppress(FileNotFoundError):
        text = (cluster.folder.parent / "seen").read_text()
        return [[int(each) for each in line.split()] for line in text.splitlines()]
    return []


def test_what_is_due_is_not_run_by_the_workers(cluster: Cluster, root: Path) -> None:
    """Also what waits: it occupies no worker, of which there is one, with one thread. Two dispatchers share the
    tasks."""
    for number in range(4):
        make(root / f"asks{number}", ASKING)
    for number in range(2):
        make(root / f"counts{number}")
    make(root / "fails", "from satchel import agent\n\n@agent\nasync def main(run):\n    raise KeyError('a')\n")
    cluster.start_worker(1)
    fleets = [cluster.start_dispatcher("--once", str(root)) for _ in range(2)]
    assert [fleet.process.wait(PATIENCE) for fleet in fleets] == [0, 0], cluster.told()
    assert sorted(states(root)) == ["completed"] * 2 + ["failed"] + ["waiting"] * 4
    told = [json.loads(line) for number in range(2) for line in cluster.told(number).splitlines()]
    ended = {(each["event"], os.path.basename(each["folder"]), each["text"]) for each in told}
    assert ended >= {
        ("completed", "counts0", ""),
        ("waiting", "asks0", "a1: Go on?"),
        ("failed", "fails", "KeyError: 'a'"),
    }
    assert len({pid for _, pid, _ in seen(cluster)}) == 2 and len(seen(cluster)) == 2 * 3, "each once"


def test_a_frozen_worker_is_waited_for(
    tmp_path: Path, root: Path, seaweedfs: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is named with its runs. The one in a bucket is taken over, and its late writer is fenced off; the one on a
    disk is locked until its process is killed."""
    for name, value in seaweedfs.environment().items():
        monkeypatch.setenv(name, value)
    bucket = seaweedfs.place()
    template = make(tmp_path / "template", size=60)
    urls = [str(root / "disk"), f"{bucket}/bucket"]
    for url in urls:
        satchel.new(template, url, run_id=url.rpartition("/")[2])
    on_disk, in_bucket = map(satchel.open, urls)
    cluster = Cluster(tmp_path / "cluster", {"SEEN": str(tmp_path / "seen"), "XDG_STATE_HOME": str(tmp_path / "state")})
    try:
        frozen = cluster.start_worker(2)
        cluster.start_dispatcher(str(root), bucket)
        wait_until(lambda: len({pid for _, pid, _ in seen(cluster)}) == 2, cluster.told)
        frozen.freeze()
        cluster.start_worker(2)
        wait_until(lambda: "has been silent for 30 s" in cluster.told(), cluster.told)
        late = next(line for line in cluster.told().splitlines() if "has been silent" in line)
        assert all(url in late for url in urls)
        wait_until(lambda: in_bucket.status().state == "completed", cluster.told)
        assert on_disk.status().state == "running"
        frozen.kill()
        wait_until(lambda: on_disk.status().state == "completed", cluster.told)
    finally:
        cluster.end()


def test_a_fleet_has_no_numbers_of_what_its_workers_do(cluster: Cluster, root: Path) -> None:
    openmetrics = pytest.importorskip("prometheus_client.openmetrics.parser")
    make(root / "asks", ASKING)
    make(root / "counts")
    cluster.start_worker(2)
    cluster.start_dispatcher("--metrics", "0", str(root))
    wait_until(lambda: "/metrics" in cluster.told(), cluster.told)
    url = json.loads(cluster.told().splitlines()[0])["text"]

    def numbers() -> dict[str, float]:
        asked = urllib.request.Request(url, headers={"accept": "application/openmetrics-text"})
        with urllib.request.urlopen(asked, timeout=PATIENCE) as answer:
            text = answer.read().decode()
        samples = [each for family in openmetrics.text_string_to_metric_families(text) for each in family.samples]
        return {"".join((each.name, *each.labels.values())): each.value for each in samples}

    wait_until(lambda: (found := numbers())["satchel_runscompleted"] and found["satchel_runswaiting"], cluster.told)
    found = numbers()
    assert found["satchel_starts_total"] == 2 and found["satchel_steps_total"] >= 3
    assert found["satchel_questions_open"] == 1 and found["satchel_runs_due"] == 0
    with urllib.request.urlopen(url.replace("/metrics", "/readyz"), timeout=PATIENCE) as answer:
        assert answer.status == 200


def test_more_of_a_group_run_at_once_than_may(cluster: Cluster, root: Path) -> None:
    for number in range(3):
        file = make(root / f"counts{number}") / "workspace.yaml"
        file.write_text(f"{file.read_text()}group: customer-a\npriority: {number}\n")
    cluster.start_worker(3)
    fleet = cluster.start_dispatcher("--once", "--group-limit", "customer-a=1", str(root))
    assert fleet.process.wait(PATIENCE) == 0, cluster.told()
    runs = [run for _, run, _ in seen(cluster)]
    assert runs == [run for run in dict.fromkeys(runs) for _ in range(3)], "one after the other"
    told = [json.loads(line) for line in cluster.told().splitlines()]
    started = [os.path.basename(event["folder"]) for event in told if event["event"] == "started"]
    assert started == ["counts2", "counts1", "counts0"]


def test_runs_of_a_worker_have_a_process_each_or_are_lost_with_it(cluster: Cluster, root: Path) -> None:
    """With --isolate none. A killed one costs no run, and SIGTERM to the worker pauses all of it."""
    for number in range(3):
        make(root / f"counts{number}", size=40)
    first = cluster.start_worker(3)
    cluster.start_dispatcher("--isolate", "none", str(root))
    wait_until(lambda: len(seen(cluster)) > 6 and states(root) == ["running"] * 3, cluster.told)
    (shared,) = {pid for _, pid, _ in seen(cluster)}
    os.kill(shared, signal.SIGKILL)
    wait_until(lambda: len({pid for _, pid, _ in seen(cluster)}) == 4, cluster.told)
    first.process.send_signal(signal.SIGTERM)
    first.process.wait(PATIENCE)
    wait_until(lambda: states(root) == ["paused"] * 3)
    cluster.start_worker(3)
    wait_until(lambda: states(root) == ["completed"] * 3, cluster.told)
    assert len({pid for _, pid, _ in seen(cluster)}) == 5, "all in one of the other worker"
    done = sorted(i for *_, i in seen(cluster))
    assert {*done} == {*range(40)} and len(done) <= 3 * 40 + 3, "a step that was killed is done again, at most"


def test_a_worker_that_is_stopped_cuts_its_runs_off(cluster: Cluster, root: Path) -> None:
    """SIGTERM, as a smaller cluster and an eviction send it: each of its runs is paused, and goes on elsewhere."""
    for number in range(3):
        make(root / f"counts{number}", size=30)
    first = cluster.start_worker(3)
    cluster.start_dispatcher(str(root))
    wait_until(lambda: states(root) == ["running"] * 3, cluster.told)
    first.process.send_signal(signal.SIGTERM)
    first.process.wait(PATIENCE)
    wait_until(lambda: states(root) == ["paused"] * 3)
    pauses = [satchel.open(root / f"counts{number}").status().moment.pause for number in range(3)]
    assert [(pause.reason, pause.forced) for pause in pauses if pause] == [("signal", False)] * 3
    cluster.start_worker(3)
    wait_until(lambda: states(root) == ["completed"] * 3, cluster.told)
    assert sorted(i for *_, i in seen(cluster)) == sorted([*range(30)] * 3), "no step was done twice"


def test_runs_of_a_killed_worker_are_lost(cluster: Cluster, root: Path) -> None:
    """With all that it has started. Also the dispatcher and the scheduler die: what goes on needs none of them."""
    for number in range(2):
        make(root / f"counts{number}", size=30)
    first = cluster.start_worker(2)
    dispatcher = cluster.start_dispatcher(str(root))
    wait_until(lambda: states(root) == ["running"] * 2 and len(seen(cluster)) > 3, cluster.told)
    first.kill()
    cluster.start_worker(2)
    wait_until(lambda: len({pid for _, pid, _ in seen(cluster)}) == 4, cluster.told)
    dispatcher.kill()
    cluster.scheduler.kill()
    cluster.scheduler = cluster.start_scheduler()
    cluster.start_worker(2)
    cluster.start_dispatcher(str(root))
    wait_until(lambda: states(root) == ["completed"] * 2, cluster.told)
    done = sorted(i for *_, i in seen(cluster))
    assert {*done} == {*range(30)} and len(done) <= 2 * 30 + 2, "the step that was killed is done again, at most"
