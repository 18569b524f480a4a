"""When a file that a person saves may be taken: by the clock, and by what the kernel says of who has it open."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from satchel.workspace.store import DiskStore, Syscalls
from satchel.workspace.store.disk_store import DISPLACED
from satchel.workspace.views import guarded_files
from satchel.workspace.views.guarded_files import PATIENCE, WAITS, Settling, Unsettled, until_settled

pytestmark = pytest.mark.usefixtures("somebody_saves")

NAME = "todo.md"


class Kernel(Syscalls):
    """Says what it is told of who has a file open for writing."""

    writer: bool | None = False

    def has_writer(self, path: str) -> bool | None:
        return False if ".satchel" in path else self.writer


class Clock:
    """The time of this process, and of the storage; a sleep takes no time of the test."""

    def __init__(self) -> None:
        self.now, self.began = 0.0, time.time()
        self.sleeps: Callable[[], object] = lambda: None

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.began + self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.sleeps()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(guarded_files, "time", clock)
    return clock


def settles_after(folder: Path, clock: Clock, kernel: Kernel, name: str = NAME) -> float:
    """Seconds, by looks of 0.05 s, from the first on."""
    following, began = Settling(DiskStore(folder, kernel)), clock.now
    while following.read(name) is None:
        clock.now += 0.05
        assert clock.now - began < 100, "never"
    return round(clock.now - began, 2)


@pytest.mark.parametrize(
    ("writer", "name", "text", "seconds"),
    [
        (False, NAME, "- [ ] one\n", WAITS.closed),
        (False, NAME, "- [ ] one", WAITS.closed),
        (False, "pause.yaml", "reason: x\n", WAITS.look),
        (None, NAME, "- [ ] one\n", WAITS.unknown),
        (None, NAME, "- [ ] one", WAITS.unended),
        (None, NAME, "", WAITS.unended),
        (True, NAME, "- [ ] one\n", WAITS.open),
        (True, "pause.yaml", "reason: x\n", WAITS.open_pause),
    ],
)
def test_a_file_is_taken_too_early_or_too_late(
    tmp_path: Path, clock: Clock, writer: bool | None, name: str, text: str, seconds: float
) -> None:
    (tmp_path / name).write_text(text)
    os.utime(tmp_path / name, (clock.began + 1000,) * 2)  # the storage's clock is ahead: it tells nothing
    kernel = Kernel()
    kernel.writer = writer
    took = settles_after(tmp_path, clock, kernel, name)
    assert seconds <= took < seconds + 0.11


@pytest.mark.parametrize(("writer", "age", "seconds"), [(False, 2, 0), (None, 8, WAITS.look), (True, 40, WAITS.look)])
def test_a_file_that_was_saved_long_ago_is_waited_for(
    tmp_path: Path, clock: Clock, writer: bool | None, age: float, seconds: float
) -> None:
    (tmp_path / NAME).write_text("- [ ] one")
    os.utime(tmp_path / NAME, (clock.began - age,) * 2)
    kernel = Kernel()
    kernel.writer = writer
    assert settles_after(tmp_path, clock, kernel) == seconds


def test_a_write_in_between_does_not_begin_the_wait_again(tmp_path: Path, clock: Clock) -> None:
    kernel = Kernel()
    kernel.writer = True
    (tmp_path / NAME).write_text("1")
    following = Settling(DiskStore(tmp_path, kernel))
    for number in range(5):
        (tmp_path / NAME).write_text("1" * (number + 1))
        os.utime(tmp_path / NAME, (clock.time() + 1,) * 2)
        for _ in range(int(WAITS.open / 0.5)):
            assert following.read(NAME) is None
            clock.now += 0.5
    assert (found := following.read(NAME)) and found.data == b"1" * 5


def test_a_file_that_is_saved_while_it_is_read_is_taken(tmp_path: Path, clock: Clock) -> None:
    class Meanwhile(Kernel):
        def read(self, path: str, limit: int) -> tuple[bytes, os.stat_result]:
            found = super().read(path, limit)
            Path(path).write_text("more")
            return found

    (tmp_path / NAME).write_text("1")
    following = Settling(DiskStore(tmp_path, Meanwhile()))
    for _ in range(10):
        clock.now += 1
        assert following.read(NAME) is None


def test_a_file_that_is_moved_away_for_a_moment_is_missing(tmp_path: Path, clock: Clock) -> None:
    store = DiskStore(tmp_path, Kernel())
    clock.sleeps = lambda: (tmp_path / NAME).exists() or (tmp_path / NAME).write_text("back")
    assert (found := until_settled(store, NAME)) and found.data == b"back"
    clock.sleeps = lambda: None
    (tmp_path / NAME).unlink()
    assert until_settled(store, NAME) is None


@pytest.mark.parametrize("writer", [True, False])
def test_an_opening_waits_for_ever(tmp_path: Path, clock: Clock, writer: bool) -> None:
    kernel = Kernel()
    kernel.writer = writer
    (tmp_path / NAME).write_text("1")

    def save() -> None:
        (tmp_path / NAME).write_text(f"{clock.now}")
        os.utime(tmp_path / NAME, (clock.time(),) * 2)

    clock.sleeps = save
    with pytest.raises(Unsettled) as error:
        until_settled(DiskStore(tmp_path, kernel), NAME)
    assert error.value.is_open is writer and PATIENCE <= clock.now < PATIENCE + 0.1


def test_a_forgotten_file_is_remembered(tmp_path: Path, clock: Clock) -> None:
    (tmp_path / NAME).write_text("1")
    os.utime(tmp_path / NAME, (clock.began + 60, clock.began + 60))  # its time, of whole seconds, shall tell nothing
    following = Settling(DiskStore(tmp_path, Kernel()))
    assert following.read(NAME) is None
    following.keep_only(())
    clock.now += 0.5
    assert following.read(NAME) is None, "it is seen for the first time"


# What the kernel says

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")


@linux
def test_the_kernel_is_not_asked(tmp_path: Path) -> None:
    store, path = DiskStore(tmp_path), tmp_path / NAME
    path.write_text("1")
    assert store.has_writer(NAME) is False
    with path.open():
        assert store.has_writer(NAME) is False, "a reader"
    for mode in ("a", "r+", "w"):
        with path.open(mode):
            assert store.has_writer(NAME) is True, mode
    assert store.has_writer(NAME) is False


@linux
def test_another_process_is_not_seen(tmp_path: Path) -> None:
    path = tmp_path / NAME
    code = f"f = open({str(path)!r}, 'w'); print(flush=True); input()"
    with subprocess.Popen([sys.executable, "-S", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        assert writer.stdin and writer.stdout
        writer.stdout.readline()
        assert DiskStore(tmp_path).has_writer(NAME) is True
        writer.communicate(b"\n")
    assert DiskStore(tmp_path).has_writer(NAME) is False


@linux
def test_what_is_no_file_is_waited_for(tmp_path: Path) -> None:
    store = DiskStore(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "fifo")
    assert [store.has_writer(name) for name in ("folder", "link", "fifo")] == [False] * 3
    assert store.has_writer("missing") is None


@linux
def test_a_file_system_that_calls_every_file_open_is_believed(tmp_path: Path) -> None:
    """As NFS does of files for which the server has granted no delegation."""

    class Network(Syscalls):
        def has_writer(self, path: str) -> bool | None:
            return True

    assert DiskStore(tmp_path, Network()).has_writer(NAME) is None


@linux
def test_a_file_of_another_user_is_said_to_be_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fcntl

    def refuse(fd: int, command: int, value: int = 0) -> int:
        if command == fcntl.F_SETLEASE:
            raise PermissionError(13, "Permission denied")
        return 0

    monkeypatch.setattr(fcntl, "fcntl", refuse)
    (tmp_path / NAME).write_text("1")
    assert DiskStore(tmp_path).has_writer(NAME) is None


@linux
def test_a_program_that_opens_the_file_meanwhile_kills_this_process(tmp_path: Path) -> None:
    """Without a signal of its own, a lease that is broken sends SIGIO, which ends a process."""
    path = tmp_path / NAME
    path.write_text("1")
    code = (
        "import sys, threading, time\n"
        "from satchel.workspace.store.syscalls import Syscalls\n"
        "def save():\n"
        "    while time.monotonic() < end: open(sys.argv[1], 'a').close()\n"
        "end, calls = time.monotonic() + 0.3, Syscalls()\n"
        "threading.Thread(target=save).start()\n"
        "seen = set()\n"
        "while time.monotonic() < end: seen.add(calls.has_writer(sys.argv[1]))\n"
        "assert None not in seen, seen\n"
    )
    writer = subprocess.Popen(
        ["/bin/sh", "-c", f"while [ -e {path} ]; do : >> {path}; done"], stderr=subprocess.DEVNULL
    )
    try:
        done = subprocess.run([sys.executable, "-c", code, str(path)], timeout=60)
    finally:
        writer.send_signal(signal.SIGKILL)
        writer.wait()
    assert done.returncode == 0


def test_a_bucket_is_asked_for_looks_that_tell_nothing(tmp_path: Path) -> None:
    abilities = SimpleNamespace(remote=True, conditional_replace=True)
    store = SimpleNamespace(abilities=abilities, version=lambda path: "1", read=lambda path, limit: found)
    found = SimpleNamespace(data=b"1", version="1")
    assert until_settled(store, NAME) is found  # type: ignore[arg-type, comparison-overlap]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nobody tells who has a file open")
@pytest.mark.parametrize("is_quick", [True, False])
def test_what_is_saved_while_a_file_is_about_to_be_replaced_is_lost(tmp_path: Path, is_quick: bool) -> None:
    """The new one is synced first, and a program opens the old one meanwhile."""
    path, opened = tmp_path / NAME, []

    class Slow(Syscalls):
        def sync(self, fd: int) -> None:
            super().sync(fd)
            if not opened:
                opened.append(path.open("r+b", buffering=0))

        def exchange(self, one: str, other: str) -> bool:
            if is_quick:  # and saves after the last look at it
                opened[0].write(b"mine")
            return super().exchange(one, other)

    path.write_bytes(b"once")
    store = DiskStore(tmp_path, Slow())
    guarded_files.replace(store, NAME, b"ours", store.version(NAME))
    with opened[0] as file:
        if not is_quick:
            file.write(b"mine")
    assert path.read_bytes() == b"ours"
    assert [store.read(entry.path).data for entry in store.list(DISPLACED)] == [b"mine"]


def test_a_file_that_nobody_had_open_is_kept_when_it_is_replaced(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b"once")
    store = DiskStore(tmp_path)
    guarded_files.replace(store, NAME, b"ours", store.version(NAME))
    assert (tmp_path / NAME).read_bytes() == b"ours" and not [*store.list(DISPLACED)]
