"""`serve` over storage that fails: what failed for that goes on when there is room again, and what did not does not."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import pytest
import warm

from satchel.runtime.live.supervisor_link import _Lossy
from satchel.runtime.supervision import known_run, lookout, run_server
from satchel.workspace.base.errors import StorageFailed
from satchel.workspace.store import DiskStore

from .serve_in_process import Served
from .supervised import WAITING, is_alive, make, seen, wait_until

COUNTING = """
import pathlib
from satchel import agent, step

@step
async def note(number: int) -> int:
    print("number", number)
    with pathlib.Path(__file__).with_name("noted").open("a") as file:
        file.write(f"{number}\\n")
    BETWEEN
    return number

@agent
async def main(run):
    run_on = [await note(number) for number in range(4)]
"""

FULL = """
import errno, os, pathlib
from satchel.workspace.store.syscalls import Syscalls

def write(self, fd, data, real=Syscalls.write):
    if pathlib.Path(FOLDER, "full").exists():
        real(self, fd, data[: len(data) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    real(self, fd, data)

Syscalls.write = write
"""
"""For the head of an agent.py: the disk is full while there is a file `full`."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "runs").mkdir()
    return tmp_path / "runs"


@pytest.fixture
def serve(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Served]]:
    monkeypatch.setattr(run_server, "_FIRST", 0.05)
    monkeypatch.setattr(run_server, "_LONGEST", 0.1)
    monkeypatch.setattr(subprocess, "Popen", warm.Popen)
    started: list[Served] = []

    def start() -> Served:
        started.append(Served(root))
        return started[-1]

    yield start
    for served in started:
        served.end()


def noted(folder: Path) -> list[int]:
    return [int(line) for line in (folder / "noted").read_text().split()]


def status(folder: Path) -> str:
    return str(json.loads((folder / "state.json").read_text())["status"])


def test_a_full_disk_ends_a_run_for_good(root: Path, serve: Callable[[], Served]) -> None:
    source = FULL.replace("FOLDER", repr(str(root / "a"))) + COUNTING.replace(
        "BETWEEN", 'pathlib.Path(__file__).with_name("full").touch() if number == 2 else None'
    )
    folder = make(root / "a", source)
    served = serve()
    said = served.until_event("storage", "a")
    assert "No space left on device" in said and "it starts again in" in said
    assert "journal/" in said, "it is told what could not be written"
    served.until_event("storage", "a")
    (folder / "agent.py").write_text(source.replace("if number == 2", "if False"))
    (folder / "full").unlink()
    served.until_event("completed", "a")
    assert noted(folder)[:3] == [0, 1, 2] and set(noted(folder)[3:]) == {2, 3} and status(folder) == "completed"


def test_an_error_of_the_agent_is_tried_again(root: Path, serve: Callable[[], Served]) -> None:
    """Also one that looks like the storage's."""
    make(root / "a", COUNTING.replace("BETWEEN", "raise OSError(28, 'No space left on device')"))
    served = serve()
    assert "No space left on device" in served.until_event("failed", "a")
    for _ in range(3):
        served.turn()
    assert served.events == []


def test_what_was_refused_is_not_named(root: Path, serve: Callable[[], Served]) -> None:
    make(root / "a", "x = 1\n")
    served = serve()
    assert "main" in served.until_event("refused", "a")


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize(
    ("how", "code"), [*((f"import os; os._exit({code})", code) for code in (0, 1, 3, 5)), ("raise SystemExit(0)", 1)]
)
def test_an_agent_that_ends_its_process_has_completed(
    root: Path, serve: Callable[[], Served], how: str, code: int
) -> None:
    """It is a crash, whatever its exit code: with growing delays, and given up."""
    make(root / "a", COUNTING.replace("BETWEEN", how))
    served = serve()
    assert f"died with exit code {code} after" in served.until_event("crashed", "a")
    assert "giving up after 2 crashes" in served.until_event("failed", "a")
    assert status(root / "a") == "failed"
    for _ in range(3):
        served.turn()
    assert served.events == []


def test_a_log_that_can_not_be_written_ends_the_run(tmp_path: Path) -> None:
    """It lies on the disk that is full; what the agent prints is nothing that it may fail for."""
    with open("/dev/full", "wb") as full:
        assert _Lossy(full.fileno(), "wb", closefd=False).write(b"abc") == 3
    folder = make(tmp_path / "a", COUNTING.replace("BETWEEN", "pass"))
    program = (
        "import os, sys; from satchel.runtime.supervision.child import Child\n"
        "full = open('/dev/full', 'wb')\n"
        f"child = Child(['run', {str(folder)!r}], is_only=False, patience=None, given=b'', output=full)\n"
        "code = os.waitpid(child.pid, 0)\n"
        "child._process.returncode = os.waitstatus_to_exitcode(code[1])\n"
        "print(child.poll(), child.last_word)\n"
    )
    done = warm.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "0 Word(code=0, text='')\n", done.stderr
    assert status(folder) == "completed"


def test_a_workspace_that_is_renamed_while_it_runs_is_lost(
    root: Path, serve: Callable[[], Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And when it gets its old name back, too."""
    monkeypatch.setattr(known_run, "_SILENCE", 0.1)  # what the server has claimed has another name now
    waiting = 'import asyncio; await asyncio.sleep(0 if (pathlib.Path(__file__).parent / "go").exists() else 0.1)'
    source = COUNTING.replace("range(4)", "range(1000)").replace("BETWEEN", waiting)
    folder = make(root / "a", source)
    served = serve()
    served.until(lambda: (folder / "noted").exists() and len(noted(folder)) > 1)
    for before, after in (("a", "b"), ("b", "a")):
        served.events.clear()
        (root / before).rename(root / after)
        served.until(lambda before=before: any(name == before for _, name in served.kinds))  # type: ignore[misc]
        served.until_event("started", after)
        (root / after / "noted").unlink()
        wait_until(lambda after=after: (root / after / "noted").exists())  # type: ignore[misc]
    (folder / "go").touch()
    served.until_event("completed", "a")


def test_a_folder_that_can_not_be_read_for_a_moment_is_given_up(
    root: Path, serve: Callable[[], Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    make(root / "a", COUNTING.replace("BETWEEN", "pass"))

    def fails(*_: object, **__: object) -> None:
        raise OSError(116, os.strerror(116))

    served = serve()
    with monkeypatch.context() as patched:
        patched.setattr(lookout, "judge", fails)
        for _ in range(3):
            served.turn()
    assert served.events == [("storage", "a", f"can't be read (OSError: [Errno 116] {os.strerror(116)})")]
    served.until_event("completed", "a")


@pytest.mark.parametrize("ends", ["started again", "stopped"])
def test_a_run_that_dies_while_its_folder_can_not_be_read_keeps_its_place_for_ever(
    root: Path, serve: Callable[[], Served], monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    monkeypatch.setattr(known_run, "_SILENCE", math.inf)  # its own claim, which it can't release, is not waited for
    folder = make(root / "a", WAITING.replace('os.environ.get("SEEN", "seen")', repr(str(root / "seen"))))
    served = serve()
    served.until(lambda: len(seen(root)) == 1)
    with monkeypatch.context() as patched:
        patched.setattr(DiskStore, "version", mock.Mock(side_effect=StorageFailed("can't be inspected")))
        patched.setattr(DiskStore, "remove", mock.Mock(side_effect=StorageFailed("can't be removed")))
        served.turn()
        assert served.server.wake_at > time.monotonic(), "it looks again and again without a rest"
        os.kill(seen(root)[0], signal.SIGKILL)
        served.until(lambda: not is_alive(seen(root)[0]))
        for _ in range(3):
            served.turn()
        if ends == "stopped":
            served.server.ask(signal.SIGTERM)
    if ends == "stopped":
        served.until(lambda: not served.server.running)
    else:
        served.until(lambda: len(seen(root)) == 2)
    assert (folder / "workspace.yaml").exists()


@pytest.mark.parametrize("error", [StorageFailed("can't be inspected"), OSError(116, os.strerror(116))])
def test_a_signal_is_lost_while_the_folder_can_not_be_read(
    root: Path, serve: Callable[[], Served], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    make(root / "a", WAITING.replace('os.environ.get("SEEN", "seen")', repr(str(root / "seen"))))
    served = serve()
    served.turn()  # it is started, and nothing has looked at it since
    with monkeypatch.context() as patched:
        patched.setattr(DiskStore, "version", mock.Mock(side_effect=error))
        served.server.ask(signal.SIGTERM)
    served.until(lambda: not served.server.running)
    assert [kind for kind, _, _ in served.events] == ["started", "paused"]


def test_a_full_disk_below_its_own_output_ends_serve(root: Path) -> None:
    for name in "ab":
        make(root / name, COUNTING.replace("BETWEEN", "pass"))
    with open("/dev/full", "wb") as full:
        words = [sys.executable, "-m", "satchel", "serve", "--once", "--json", root]
        warm.run(words, stdout=full, stderr=subprocess.PIPE)
    assert [status(root / name) for name in "ab"] == ["completed", "completed"]


@pytest.mark.parametrize(("places", "at_most", "code"), [pytest.param(24, 12, 0, marks=pytest.mark.slow), (10, 12, 9)])
def test_once_ends_well_while_work_is_left(root: Path, places: int, at_most: int, code: int) -> None:
    """So many files may be open: enough for some runs at a time, or for none."""
    for number in range(12):
        make(root / f"{number}", COUNTING.replace("BETWEEN", "pass"))
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({places}, {places})); "
    command = f"import runpy, sys; {limit}sys.argv[0] = 'satchel'; runpy.run_module('satchel', run_name='__main__')"
    words = [sys.executable, "-c", command, "serve", "--once", "--at-most", str(at_most), "--json", str(root)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    left = [str(each) for each in range(12) if not (root / f"{each}/state.json").exists()]
    assert done.returncode == code and bool(left) == bool(code), (done.stdout[-600:], done.stderr[-600:])
    assert all(f"/{name}" in done.stderr for name in left), done.stderr


@pytest.mark.slow
def test_a_real_full_disk_ends_its_runs_for_good(tmp_path: Path) -> None:
    """The whole command, over a small file system of its own. What the agents print goes there, too."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", disk], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting is not allowed")
    try:
        source = COUNTING.replace("range(4)", "range(400)").replace("BETWEEN", "print('x' * 100, flush=True)")
        for name in "ab":  # what the agents write themselves lies elsewhere: else it would be they that fail
            make(
                disk / name,
                source.replace('pathlib.Path(__file__).with_name("noted")', f"pathlib.Path({str(tmp_path / name)!r})"),
            )
        (disk / "ballast").write_bytes(bytes(1824 << 10))
        with (tmp_path / "said").open("w") as output:
            process = subprocess.Popen([sys.executable, "-m", "satchel", "serve", "--json", disk], stdout=output)

        def events() -> list[tuple[str, str]]:
            rows = [json.loads(line) for line in (tmp_path / "said").read_text().splitlines()]
            return [(row["event"], os.path.basename(row["folder"])) for row in rows]

        try:
            wait_until(lambda: {("storage", "a"), ("storage", "b")} <= {*events()}, process)
            (disk / "ballast").unlink()
            wait_until(lambda: {("completed", "a"), ("completed", "b")} <= {*events()}, process)
            assert "failed" not in {kind for kind, _ in events()}
            for name in "ab":
                numbers = [int(line) for line in (tmp_path / name).read_text().split()]
                assert sorted({*numbers}) == [*range(400)] and len(numbers) < 420
        finally:
            process.kill()
            process.wait()
    finally:
        subprocess.run(["umount", "-l", disk], check=True)
