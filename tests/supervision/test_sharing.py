"""Runs of `serve` that share a process: each ends as it would alone, whatever one of them does to the process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import warm
from servers import Server as S3

import satchel
from satchel.runtime.present import detail
from satchel.runtime.supervision import supervisor
from satchel.runtime.supervision.child import started_at
from satchel.runtime.supervision.sharing import ShareLimits, may_share
from satchel.runtime.supervision.supervisor import Policy
from satchel.workspace.base import UsageError
from satchel.workspace.formats.definition import parse
from satchel.workspace.store import DiskStore

from .serve_in_process import Served
from .supervised import PATIENCE, is_alive, journal, lease_of, session, wait_until

AGENT = """
import asyncio, os, pathlib
from satchel import agent, step

FOLDER = pathlib.Path(__file__).parent

@step
async def begin(attempt: int) -> int:
    (FOLDER / "seen").open("a").write(f"{os.getpid()}\\n")
    return 1

def is_alone() -> bool:
    return len((FOLDER / "seen").read_text().split()) > 1

async def goes() -> None:
    while not (FOLDER / "go").exists():
        await asyncio.sleep(0.01)

@agent
async def main(run):
    await begin(run.attempt)
    print("in the log of", FOLDER.name)
    await WORK
    return os.getpid()
"""
WAITING = AGENT.replace("WORK", "goes()")
QUICK = AGENT.replace("WORK", "asyncio.sleep(0)")
BLOCKING = AGENT.replace(
    "    await WORK\n",
    """    await goes()
    import time
    (FOLDER / "blocks").touch()
    while not is_alone():
        time.sleep(0.01)
""",
)
LARGE = AGENT.replace(
    "    await WORK\n",
    """    await goes()
    held = b"" if is_alone() else b"x" * (250 << 20)
    while not is_alone():
        await asyncio.sleep(0.01)
""",
)
DEADLY = AGENT.replace("    await WORK\n", "    await goes()\n    os._exit(0)\n")
IMPORTING = "import helper\n" + AGENT.replace("WORK", "goes()").replace("return os.getpid()", "return helper.NAME")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    place = tmp_path / "runs"
    place.mkdir()
    return place


def make(folder: Path, source: str = WAITING, extra: str = "") -> Path:
    folder.mkdir()
    (folder / "workspace.yaml").write_text(f"format: 1\nrun_id: {folder.name}-1\nagent: agent.py:main\n{extra}")
    (folder / "agent.py").write_text(source)
    return folder


def pids(folder: Path) -> list[int]:
    """The processes that have run it."""
    return [int(line) for line in (folder / "seen").read_text().split()] if (folder / "seen").exists() else []


class Serve:
    """A `satchel serve --json`."""

    def __init__(self, root: Path, *words: str, place: str = ""):
        """`place`: a URL to serve in place of `root`."""
        self._said = root.parent / "said"
        with self._said.open("a") as output, root.parent.joinpath("errors").open("a") as errors:
            command = [sys.executable, "-m", "satchel", "serve", "--json", *words, place or str(root)]
            self.process = warm.Popen(command, stdout=output, stderr=errors)

    @property
    def events(self) -> list[tuple[str, str, str]]:
        rows = [json.loads(line) for line in self._said.read_text().splitlines()]
        return [(row["event"], os.path.basename(row["folder"]), row["text"]) for row in rows]

    def until(self, kind: str, *names: str) -> list[str]:
        """The texts of the first such events."""
        found: dict[str, str] = {}

        def are_there() -> bool:
            found.update({name: text for each, name, text in reversed(self.events) if each == kind and name in names})
            return len(found) == len(names)

        wait_until(are_there, self.process)
        return [found[name] for name in names]


@pytest.fixture
def serve(root: Path) -> Iterator[Callable[..., Serve]]:
    started: list[Serve] = []

    def start(*words: str, place: str = "") -> Serve:
        started.append(Serve(root, *words, place=place))
        return started[-1]

    yield start
    for each in started:
        each.process.kill()
        each.process.wait()
    clean_up(root)


def clean_up(root: Path) -> None:
    for pid in {pid for folder in root.iterdir() for pid in pids(folder)}:
        for member in session(pid):
            os.kill(member, signal.SIGKILL)


def all_in_one(*folders: Path) -> int:
    """Wait until all run, in the same process. Returns it."""
    wait_until(lambda: all(map(pids, folders)))
    (pid,) = {pids(folder)[0] for folder in folders}
    return pid


def go(*folders: Path) -> None:
    for folder in folders:
        (folder / "go").touch()


def result(folder: Path) -> Any:
    return satchel.open(folder).result.returned


def test_each_has_a_process_or_writes_to_the_log_of_another(root: Path, serve: Callable[..., Serve]) -> None:
    folders = [make(root / name) for name in "abc"]
    process = serve("--isolate", "none", "--once")
    pid = all_in_one(*folders)
    status = satchel.open(folders[0]).status()
    assert status.holder is not None and status.holder.is_shared and "other runs share" in detail(status)
    go(*folders)
    assert process.process.wait(PATIENCE) == 0
    assert [result(folder) for folder in folders] == [pid] * 3
    for folder in folders:
        mark, _, log = (folder / ".satchel" / "run.log").read_text().partition("\n")
        assert started_at(mark)
        assert log.startswith(f"in the log of {folder.name}\ncompleted") and log.count("in the log of") == 1
    assert not is_alive(pid)


def test_a_killed_process_loses_a_run_or_counts_against_one(root: Path, serve: Callable[..., Serve]) -> None:
    folders = [make(root / name) for name in "abc"]
    process = serve("--isolate", "none", "--once")
    pid = all_in_one(*folders)
    os.kill(pid, signal.SIGKILL)
    for text in process.until("alone", *"abc"):
        assert f"process {pid}, which other runs shared, died of SIGKILL" in text
    wait_until(lambda: all(len(pids(folder)) == 2 for folder in folders), process.process)
    assert len({pids(folder)[1] for folder in folders}) == 3 and not lease_of(folders[0]).is_shared
    go(*folders)
    assert process.process.wait(PATIENCE) == 0
    for folder in folders:
        openings = [line for line in journal(folder) if line["type"] == "opened"]
        assert [each["found"] for each in openings] == ["new", "crash"]
        assert not any(each.get("crashed") for each in openings)


def test_one_that_ends_its_process_ends_the_others(root: Path) -> None:
    """It is given up by what it does alone, and never shares a process again."""
    deadly, other = make(root / "a", DEADLY), make(root / "b")
    served = Served(root, at_most=4, isolate="none")
    try:
        served.until(lambda: bool(pids(deadly)) and bool(pids(other)))
        go(deadly)
        served.until_event("failed", "a")
        assert len({*pids(deadly)}) == 1 + 2, "the shared one, and as many of its own as it may end"
        assert pids(other)[0] == pids(deadly)[0] and served.server._shared.crashed == {str(deadly)}
        go(other)
        served.until(lambda: ("completed", "b") in served.kinds)
        assert len(pids(other)) == 2
    finally:
        served.end()
        clean_up(root)


def result_of(process: Serve, name: str) -> Any:
    process.until("completed", name)
    return result(process._said.parent / "runs" / name)


@pytest.mark.slow
@pytest.mark.parametrize(
    "limits, source, why",
    [
        (ShareLimits(silent=4.0), BLOCKING, "its event loop has hung"),
        (ShareLimits(memory=200 << 20), LARGE, "MiB, more than 200"),
    ],
)
def test_a_process_that_hangs_or_leaks_keeps_its_runs(root: Path, limits: ShareLimits, source: str, why: str) -> None:
    harmful, other = make(root / "a", source), make(root / "b")
    served = Served(root, at_most=4, isolate="none", share_limits=limits)
    try:
        served.until(lambda: bool(pids(harmful)) and bool(pids(other)))
        go(harmful)
        served.until(lambda: {("alone", "a"), ("alone", "b")} <= {*served.kinds})
        assert all(why in text for kind, _, text in served.events if kind in ("alone", "crashed"))
        go(other)
        served.until(lambda: {("completed", "a"), ("completed", "b")} <= {*served.kinds})
        assert len({*pids(harmful)[:1], *pids(other)[:1]}) == 1
        assert result(harmful) != result(other)
    finally:
        served.end()
        clean_up(root)


def test_an_emergency_stop_of_one_loses_its_neighbours(root: Path, serve: Callable[..., Serve]) -> None:
    folders = [make(root / name) for name in "abc"]
    process = serve("--isolate", "none")
    pid = all_in_one(*folders)
    stopped = satchel.open(folders[0]).stop(reason="wrong people")
    assert stopped.how == "stopped" and stopped.killed == (pid,)
    assert "each alone" in stopped.said and str(folders[1]) in stopped.said and str(folders[0]) not in stopped.said
    process.until("alone", "b", "c")
    process.until("paused", "a")
    go(*folders)
    process.until("completed", "b", "c")
    assert satchel.open(folders[0]).status().state == "paused" and len(pids(folders[0])) == 1


def test_a_pause_of_one_stops_its_neighbours(root: Path, serve: Callable[..., Serve]) -> None:
    paused, cancelled, other = (make(root / name) for name in "abc")
    process = serve("--isolate", "none")
    pid = all_in_one(paused, cancelled, other)
    (paused / "pause.yaml").write_text("reason: a look\n")
    satchel.open(cancelled).cancel(reason="not needed")
    process.until("paused", "a")
    process.until("cancelled", "b")
    go(other)
    assert result_of(process, "c") == pid


def test_two_with_modules_of_one_name_share_a_process(root: Path, serve: Callable[..., Serve]) -> None:
    folders = [make(root / name, IMPORTING) for name in "ab"]
    for folder in folders:
        (folder / "helper.py").write_text(f"NAME = {folder.name!r}\n")
    process = serve("--isolate", "none", "--once")
    wait_until(lambda: all(map(pids, folders)), process.process)
    go(*folders)
    assert process.process.wait(PATIENCE) == 0
    assert [result(folder) for folder in folders] == ["a", "b"]
    (text,) = [text for kind, _, text in process.events if kind == "alone"]
    assert "its own module 'helper'" in text
    assert not [kind for kind, _, _ in process.events if kind in ("refused", "failed", "crashed")]


def test_a_workspace_gets_less_isolation_than_it_asks_for(root: Path, serve: Callable[..., Serve]) -> None:
    make(root / "a")
    make(root / "b")
    make(root / "own", extra="isolate: process\n")
    make(root / "restarting", extra="restart_every: 7d\n")
    serve("--isolate", "none")
    shared = all_in_one(root / "a", root / "b")
    wait_until(lambda: pids(root / "own") and pids(root / "restarting"))
    assert len({shared, *pids(root / "own"), *pids(root / "restarting")}) == 3


def test_only_those_share_that_ask_for_it(root: Path, serve: Callable[..., Serve]) -> None:
    willing = [make(root / name, extra="isolate: none\n") for name in "ab"]
    make(root / "c")
    serve("--at-most", "3")
    pid = all_in_one(*willing)
    wait_until(lambda: pids(root / "c"))
    assert pids(root / "c") != [pid]


def test_runs_in_a_bucket_get_each_others_code_or_lose_a_process(
    root: Path, serve: Callable[..., Serve], seaweedfs: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in seaweedfs.environment().items():
        monkeypatch.setenv(name, value)
    (temporary := root.parent / "tmp").mkdir()  # a killed process of the same number has left its copies elsewhere
    monkeypatch.setenv("TMPDIR", str(temporary))
    place, folders = seaweedfs.place(), [root / name for name in "ab"]
    for folder in folders:
        make(folder, WAITING.replace("pathlib.Path(__file__).parent", f"pathlib.Path({str(folder)!r})"))
        satchel.new(folder, f"{place}/{folder.name}")
    process = serve("--isolate", "none", "--once", place=place)
    pid = all_in_one(*folders)
    assert len([*temporary.glob(f"satchel-*-{pid}-*")]) == 2
    os.kill(pid, signal.SIGKILL)
    process.until("alone", "a", "b")
    go(*folders)
    assert process.process.wait(PATIENCE) == 0
    assert {satchel.open(f"{place}/{name}").result.returned for name in "ab"} == {pids(each)[1] for each in folders}
    assert not [*temporary.glob(f"satchel-*-{pid}-*")]


def test_runs_that_a_program_supervises_share_a_process(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In threads of the program. What dies goes on alone, and at the end no process is left."""
    monkeypatch.setattr(supervisor, "Policy", lambda: Policy(first_delay=0.01, longest_delay=0.02))
    deadly, other, own = make(root / "a", DEADLY), make(root / "b"), make(root / "own", extra="isolate: process\n")
    told: list[str] = []
    try:
        with ThreadPoolExecutor(3) as pool:
            ended = [
                pool.submit(satchel.open(each).supervise, should_stop=lambda: False, isolate="none", tell=told.append)
                for each in (deadly, other, own)
            ]
            wait_until(lambda: all(map(pids, (deadly, other, own))))
            (pid,) = {pids(deadly)[0], pids(other)[0]}
            assert pids(own) != [pid]
            go(deadly)
            wait_until(lambda: len(pids(other)) == 2)
            go(other, own)
            assert [each.result().status for each in ended] == ["failed", "completed", "completed"]
        assert sum("it starts again in a process of its own" in text for text in told) == 2
        assert result(other) == pids(other)[1] and not is_alive(pid) and not is_alive(pids(other)[1])
    finally:
        clean_up(root)


def test_a_run_that_is_started_with_more_than_its_folder_has_its_own_process(root: Path) -> None:
    folders = [make(root / name, extra="isolate: none\n") for name in "abc"]
    how: list[dict[str, Any]] = [{}, {"options": ["--quiet"]}, {"adopt": True}]
    try:
        with ThreadPoolExecutor(3) as pool:
            running = [
                pool.submit(satchel.open(each).supervise, should_stop=lambda: False, **words)
                for each, words in zip(folders, how, strict=True)
            ]
            wait_until(lambda: all(map(pids, folders)))
            assert [lease_of(each).is_shared for each in folders] == [True, True, False]
            go(*folders)
            assert [each.result().status for each in running] == ["completed"] * 3
        with pytest.raises(UsageError, match="isolate can't be 'all'"):
            satchel.open(folders[0]).supervise(isolate="all", should_stop=lambda: False)  # type: ignore[arg-type]
    finally:
        clean_up(root)


def test_which_share() -> None:
    def shares(serve: Any, line: str) -> bool:
        return may_share(serve, parse(f"format: 1\nrun_id: a-1\nagent: agent.py:main\n{line}"))

    lines = ("", "isolate: none", "isolate: process", "isolate: none\nrestart_every: 100")
    found = {serve: [shares(serve, line) for line in lines] for serve in (None, "none", "process")}
    assert found == {
        None: [False, True, False, False],
        "none": [True, True, False, False],
        "process": [False, False, False, False],
    }
    with pytest.raises(satchel.SatchelError, match="isolate"):
        shares(None, "isolate: thread")


def test_serve_takes_any_word_for_isolate(root: Path) -> None:
    with pytest.raises(UsageError, match="isolate can't be 'thread'"):
        satchel.serve(root, isolate="thread")  # type: ignore[arg-type]


def test_the_end_of_serve_leaves_runs_or_processes(root: Path, serve: Callable[..., Serve]) -> None:
    folders = [make(root / name) for name in "ab"]
    process = serve("--isolate", "none")
    pid = all_in_one(*folders)
    process.process.send_signal(signal.SIGTERM)
    assert process.process.wait(PATIENCE) == 0
    assert sorted(each[:2] for each in process.events[-2:]) == [("paused", "a"), ("paused", "b")]
    wait_until(lambda: not is_alive(pid))
    go(*folders)
    again = serve("--isolate", "none", "--once")
    assert again.process.wait(PATIENCE) == 0
    again.until("completed", "a", "b")


def test_a_killed_serve_leaves_runs_that_go_on(root: Path, serve: Callable[..., Serve]) -> None:
    folders = [make(root / name) for name in "ab"]
    process = serve("--isolate", "none")
    pid = all_in_one(*folders)
    process.process.kill()
    wait_until(lambda: not is_alive(pid))
    assert [satchel.open(folder).status().state for folder in folders] == ["paused"] * 2
    assert not any(line.get("forced") for folder in folders for line in journal(folder) if line["type"] == "paused")


def test_a_process_that_was_told_to_end_gets_new_runs(root: Path, serve: Callable[..., Serve]) -> None:
    folders = [make(root / name) for name in "ab"]
    process = serve("--isolate", "none")
    pid = all_in_one(*folders)
    os.kill(pid, signal.SIGTERM)
    process.until("paused", "a", "b")
    wait_until(lambda: not is_alive(pid))
    make(root / "c", QUICK)
    process.until("completed", "c")
    assert pids(root / "c") != [pid]


@pytest.mark.slow
def test_a_stop_that_is_late_is_not_enforced(root: Path, serve: Callable[..., Serve]) -> None:
    """The run itself can't be cut off, so its process is killed, and its neighbour goes on alone."""
    late = make(root / "a", BLOCKING.replace("while not is_alone()", "while True"))
    other = make(root / "b")
    served = Served(root, at_most=4, isolate="none", share_limits=ShareLimits(silent=1000.0), drain_timeout=0.1)
    try:
        served.until(lambda: bool(pids(late)) and bool(pids(other)))
        go(late)
        served.until((late / "blocks").exists)
        (late / "pause.yaml").write_text("reason: a look\n")
        assert served.until_event("late", "a").endswith("and with it the runs that share it")
        go(other)
        served.until(lambda: {("paused", "a"), ("completed", "b")} <= {*served.kinds})
        assert DiskStore(late).version("pause.yaml") is not None
    finally:
        served.end()
        clean_up(root)


LEAVING = AGENT.replace("    await WORK\n", "    os.chdir('/')\n    await goes()\n")
THREADS = AGENT.replace(
    "    await WORK\n",
    """    import time
    def waits():
        while not (FOLDER / "go").exists():
            time.sleep(0.05)
    await asyncio.gather(*[asyncio.to_thread(waits) for _ in range(64)])
""",
)


@pytest.mark.parametrize("source", [LEAVING, THREADS])
def test_one_that_changes_the_directory_or_uses_many_threads_keeps_others_from_running(
    root: Path, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root.parent)
    monkeypatch.setattr(subprocess, "Popen", warm.Popen)
    harmful = make(root / "a", source)
    served = Served(Path(root.name), at_most=4, isolate="none")
    try:
        served.until(lambda: bool(pids(harmful)))
        other = make(root / "b", QUICK)
        served.until(lambda: ("completed", "b") in served.kinds or ("refused", "b") in served.kinds)
        assert ("completed", "b") in served.kinds
        go(harmful)
        served.until(lambda: ("completed", "a") in served.kinds)
        assert pids(harmful) == pids(other)
    finally:
        go(harmful)
        served.end()
        clean_up(root)


def test_help_forgets_isolation() -> None:
    done = subprocess.run([sys.executable, "-m", "satchel", "serve", "--help"], capture_output=True, text=True)
    assert "--isolate [process|none]" in done.stdout and "--supervised" not in done.stdout
