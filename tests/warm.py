"""`Popen` and `run` of `subprocess`, for a Python that has imported Satchel: a start costs 5 ms of CPU, not 240.

A process called the nursery imports Satchel once, and forks itself for each `python -m satchel ...` and `python -c ...`
that is started. The new process is a child of the one that asked, as if that had started it: it has its own pid, pipes,
signals and exit code. A warm process that starts others (a supervisor, `serve`) has a nursery of its own, so these are
warm too.

A warm process differs from a cold one in this: all modules are imported, and `/proc/PID/cmdline`, the umask and the
limits are the nursery's. Tests of these use `subprocess`. So does at least one test of each command.
"""

from __future__ import annotations

import atexit
import ctypes
import faulthandler
import gc
import importlib
import io
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, NoReturn

_PR_SET_CHILD_SUBREAPER = 36
_IMPORTED_LATE = ("jsonschema", "filelock", "rich.live", "rich.progress", "watchdog.observers", "pydantic", "asyncio")
_FOR_BUCKETS = ("fsspec", "s3fs", "boto3.session")
_OF_EXTRAS = ("satchel.runtime.faces.mcp.",)
"""What starts with these is not imported: its packages are slow, and only its own command needs them."""
_IF_NAMED = (
    "claude_agent_sdk",
    "deepagents",
    "pydantic_ai",
    "satchel.adapters.langgraph",
    "satchel.adapters.openai_agents",
)
"""What is slow to import, and imported for a process whose code names it."""
_FIRST, _IN_PROCESS = "disk", "--in-process"
_PATH = [*sys.path]
_lock = threading.Lock()
_nurseries: dict[str, _Nursery] = {}
"""What starts processes for this one, by kind: `disk`, or `bucket` for an environment that names a server, and the slow
packages that are needed."""


class _Order(NamedTuple):
    """What a nursery is asked to start. The first three file descriptors that come with it are the standard ones."""

    words: list[str]  # after the interpreter
    folder: str
    environment: dict[str, str]
    own_session: bool
    descriptors: list[int]  # the numbers that the others have in the new process
    held: list[int]  # signals that wait until the new process lets them in
    ignores_interrupt: bool  # as what `nohup` or a script's `&` has started does


class Popen(subprocess.Popen[Any]):
    def _execute_child(  # type: ignore[no-untyped-def]
        self,
        args,
        executable,
        preexec_fn,
        close_fds,
        pass_fds,
        cwd,
        env,
        startupinfo,
        creationflags,
        shell,
        p2cread,
        p2cwrite,
        c2pread,
        c2pwrite,
        errread,
        errwrite,
        restore_signals,
        gid,
        gids,
        uid,
        umask,
        start_new_session,
        process_group,
    ) -> None:
        environment = dict(os.environ if env is None else env)
        words = [] if isinstance(args, str | bytes | os.PathLike) else [os.fsdecode(word) for word in args]
        if shell or preexec_fn or executable or not _is_warm(words, environment):
            super()._execute_child(  # type: ignore[misc]
                args,
                executable,
                preexec_fn,
                close_fds,
                pass_fds,
                cwd,
                env,
                startupinfo,
                creationflags,
                shell,
                p2cread,
                p2cwrite,
                c2pread,
                c2pwrite,
                errread,
                errwrite,
                restore_signals,
                gid,
                gids,
                uid,
                umask,
                start_new_session,
                process_group,
            )
            return
        standard = [fd if fd >= 0 else default for default, fd in enumerate((p2cread, c2pwrite, errwrite))]
        folder = os.path.abspath(os.fsdecode(cwd)) if cwd else os.getcwd()
        held = [*signal.pthread_sigmask(signal.SIG_BLOCK, [])]
        ignores = signal.getsignal(signal.SIGINT) == signal.SIG_IGN
        order = _Order(words[1:], folder, environment, start_new_session, [int(fd) for fd in pass_fds], held, ignores)
        self.pid = _start(order, standard)
        self._child_created = True
        self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)  # type: ignore[attr-defined]


def run(
    command: Sequence[Any],
    *,
    input: Any = None,
    capture_output: bool = False,
    timeout: float | None = None,
    check: bool = False,
    **options: Any,
) -> subprocess.CompletedProcess[Any]:
    if capture_output:
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    if input is not None:
        options["stdin"] = subprocess.PIPE
    with Popen(command, **options) as process:
        try:
            said, complained = process.communicate(input, timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(command, process.returncode, said, complained)
    if check:
        done.check_returncode()
    return done


def _is_warm(words: list[str], environment: Mapping[str, str]) -> bool:
    """Whether the nursery has the same Python, with the same settings."""
    if sys.platform != "linux" or words[:1] != [sys.executable]:
        return False
    words = words[2:] if words[1] == "-P" else words[1:]
    return _settings(environment) == _SETTINGS and (words[:1] == ["-c"] or words[:2] == ["-m", "satchel"])


def _settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Of Python, without those that a warm process heeds."""
    return {k: v for k, v in environment.items() if k.startswith("PYTHON") and k not in _HEEDED}


_HEEDED = ("PYTHONPATH", "PYTHONUNBUFFERED")


_SETTINGS = _settings(os.environ)


def _start(order: _Order, standard: list[int]) -> int:
    """The pid of a new child of this process."""
    with _lock:
        return _ask(_nursery(_kind(order)), order, standard)


def _ask(nursery: _Nursery, order: _Order, standard: list[int]) -> int:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(nursery.address)
        data = json.dumps(order).encode()
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)  # so that the process, an orphan for a moment, becomes ours
        try:
            socket.send_fds(connection, [len(data).to_bytes(8, "big")], [*standard, *order.descriptors])
            connection.sendall(data)
            answer = _all_of(connection)
        finally:
            _prctl(_PR_SET_CHILD_SUBREAPER, 0)
    if not answer:
        raise OSError(f"no process was started for {order.words}")
    return int(answer)


def _kind(order: _Order) -> str:
    named = [package for package in _IF_NAMED if any(package in word for word in order.words)]
    return "+".join(["bucket" if "AWS_ENDPOINT_URL" in order.environment else _FIRST, *named])


class _Nursery:
    """A process that ends with this one, however this one ends: then its `lifeline` is closed."""

    def __init__(self, address: bytes, pid: int, lifeline: int):
        self.address, self._pid, self._lifeline = address, pid, lifeline
        atexit.register(self._end)

    def _end(self) -> None:
        os.close(self._lifeline)
        os.waitpid(self._pid, 0)


def _nursery(kind: str) -> _Nursery:
    if kind not in _nurseries and "forked" in _nurseries:
        kind = "forked"
    if kind not in _nurseries:
        lifeline, ours = os.pipe()
        with _listening() as listener:
            pid = _found(kind, [listener.fileno(), lifeline])
            _nurseries[kind] = _Nursery(listener.getsockname(), pid, ours)
        os.close(lifeline)
    return _nurseries[kind]


def _found(kind: str, numbers: list[int]) -> int:
    """The pid of a new nursery. Another than the first is a warm process: it imports only what the first has not."""
    words = [kind, *map(str, numbers)]
    null = os.open(os.devnull, os.O_RDWR)
    try:
        if kind != _FIRST:
            code = "import __main__, sys; __main__._nurse(*sys.argv[2:])"
            order = _Order(
                ["-P", "-c", code, _IN_PROCESS, *words], os.getcwd(), {**os.environ}, False, numbers, [], False
            )
            return _ask(_nursery(_FIRST), order, [null, null, 2])
        process = subprocess.Popen(
            [sys.executable, os.path.abspath(__file__), *words], stdin=null, stdout=null, pass_fds=numbers
        )
        process.returncode = 0  # `_Nursery` waits for it
        return process.pid
    finally:
        os.close(null)


def _listening() -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind("")  # the system makes up a name that is no file's
    listener.listen()
    return listener


def receive(connection: socket.socket) -> tuple[Any, list[int]]:
    """A value in JSON, its length in 8 bytes before it, and the file descriptors that come with that."""
    head, descriptors, _, _ = socket.recv_fds(connection, 8, 64)
    data = b""
    while len(data) < int.from_bytes(head, "big"):
        data += connection.recv(1 << 20)
    return json.loads(data), descriptors


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _all_of(connection: socket.socket) -> bytes:
    """What is sent until all who have the other end have closed it."""
    return b"".join(iter(lambda: connection.recv(65536), b""))


# In a nursery


def _nurse(kind: str, listener: str, lifeline: str) -> NoReturn:
    _import_all(kind)
    _become(_forked(socket.socket(fileno=int(listener)), int(lifeline)))


def _import_all(kind: str) -> None:
    for name in ("satchel.schemas", "satchel.workspace", "satchel.runtime"):
        for each in pkgutil.walk_packages(importlib.import_module(name).__path__, f"{name}."):
            if not each.name.startswith(_OF_EXTRAS):
                importlib.import_module(each.name)
    place, *named = kind.split("+")
    for name in (*_IMPORTED_LATE, *(_FOR_BUCKETS if place == "bucket" else ()), *named):
        importlib.import_module(name)
    gc.collect()
    gc.freeze()


def _forked(listener: socket.socket, lifeline: int) -> _Order:
    """Forks a process for each order. Returns in the new ones only, with what each is to do."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is for the others
    while True:
        if lifeline in select.select([listener, lifeline], [], [])[0]:
            os._exit(0)
        connection, _ = listener.accept()
        with connection:
            order, descriptors = receive(connection)
            waits, go = os.pipe()
            between = os.fork()  # its end makes the new process an orphan, and so a child of the one that has asked
            if between == 0 and (pid := os.fork()):
                connection.sendall(str(pid).encode())
                os._exit(0)
            if between:
                os.waitpid(between, 0)
                for fd in (waits, go, *descriptors):
                    os.close(fd)
                continue
        listener.close()
        os.close(lifeline)
        os.close(go)
        os.read(waits, 1)  # until `between` has ended
        os.close(waits)
        _take(order := _Order(*order), descriptors)
        return order


def _take(order: _Order, descriptors: list[int]) -> None:
    """Make this process what was ordered: session, folder, environment, signals and files."""
    if order.own_session:
        os.setsid()
    high = max([*descriptors, *order.descriptors, 2]) + 1
    for number, fd in enumerate(descriptors):  # first out of the way, as the numbers may overlap
        os.dup2(fd, high + number)
        os.close(fd)
    for number, wanted in enumerate((0, 1, 2, *order.descriptors)):
        os.dup2(high + number, wanted, inheritable=True)
        os.close(high + number)
    faulthandler.enable(2)  # a segmentation fault tells where it was
    os.chdir(order.folder)
    os.environ.clear()
    os.environ.update(order.environment)
    time.tzset()
    signal.signal(signal.SIGINT, signal.SIG_IGN if order.ignores_interrupt else signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, order.held)
    is_direct = bool(order.environment.get("PYTHONUNBUFFERED"))
    for fd, name, mode in ((0, "stdin", "rb"), (1, "stdout", "wb"), (2, "stderr", "wb")):
        file = open(fd, mode, 0 if is_direct else -1, closefd=False)  # noqa: SIM115
        old = getattr(sys, name)  # it knows the language
        new = io.TextIOWrapper(
            file, old.encoding, old.errors, None, not is_direct and (fd == 2 or os.isatty(fd)), is_direct
        )
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)


def _become(order: _Order) -> NoReturn:
    """Run what was ordered, and end as the interpreter does, but without taking itself apart: that costs most of it."""
    code: object = 0
    try:
        _work(order)
    except SystemExit as end:
        code = end.code or 0
        if not isinstance(code, int):
            print(code, file=sys.stderr)
            code = 1
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        code = 1
        if isinstance(error, KeyboardInterrupt):
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(ValueError, OSError):
            stream.flush()
    os._exit(int(code) & 0xFF)


def _work(order: _Order) -> None:
    if not {_IN_PROCESS, "--supervised"} & {*order.words}:
        _found_nursery(order.descriptors)
    words, sys.path[:] = order.words, [*filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)), *_PATH]
    if words[0] == "-P":
        words = words[1:]
    else:
        sys.path.insert(0, order.folder if words[0] == "-m" else "")
    subprocess.Popen = Popen  # type: ignore[misc]
    if words[0] == "-c":
        sys.argv = ["-c", *words[2:]]
        exec(compile(words[1], "<string>", "exec"), {"__name__": "__main__"})  # noqa: S102
    else:
        import runpy

        sys.argv = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)


def _found_nursery(descriptors: list[int]) -> None:
    """A nursery for what this process starts: forked now, as it has no threads yet. It keeps none of its files."""
    listener = _listening()
    lifeline, ours = os.pipe()
    pid = os.fork()
    if pid:
        os.close(lifeline)
        with listener:
            _nurseries["forked"] = _Nursery(listener.getsockname(), pid, ours)
        return
    os.close(ours)
    os.setsid()  # so that it is no part of the session of a run
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2, *descriptors):
        os.dup2(null, fd)
    _become(_forked(listener, lifeline))


if __name__ == "__main__":
    del _PATH[0]  # where this file is
    _nurse(*sys.argv[1:])
