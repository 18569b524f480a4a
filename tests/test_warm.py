"""A warm process is what a cold one is, to the one that starts it and to itself."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import warm
from supervision import supervised

_TELLING = """
import json, os, signal, sys
print("complained", file=sys.stderr)
told = {
    "words": sys.argv, "folder": os.getcwd(), "path": sys.path, "environment": dict(os.environ),
    "read": sys.stdin.read(),
    "parent": os.getppid(), "session": os.getsid(0) == os.getpid(), "signals": str(signal.getsignal(signal.SIGINT)),
    "files": sorted(int(fd) for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}")),
    "encodings": [(each.encoding, each.errors, each.line_buffering) for each in (sys.stdin, sys.stdout, sys.stderr)],
}
print(json.dumps(told))
sys.exit(7)
"""
Run = Callable[..., "subprocess.CompletedProcess[Any]"]


@pytest.mark.parametrize("is_safe", [False, True])
def test_a_warm_process_sees_another_world(tmp_path: Path, is_safe: bool) -> None:
    reading, writing = os.pipe()
    command = [sys.executable, *(["-P"] if is_safe else []), "-c", _TELLING, "--in-process", "ü\udcff"]
    try:
        (cold, said), (here, also_said) = (_told(run, command, tmp_path, reading) for run in (subprocess.run, warm.run))
    finally:
        os.close(reading)
        os.close(writing)
    assert here == cold and cold["parent"] == os.getpid() and reading in cold["files"]
    assert said == also_said == "complained\n"


def _told(run: Run, command: list[str], folder: Path, descriptor: int) -> tuple[dict[str, Any], str]:
    done = run(
        command,
        cwd=folder,
        env={**os.environ, "COLOUR": "blue", "PYTHONPATH": f"/one:{folder}"},
        input="typed",
        capture_output=True,
        text=True,
        timeout=60,
        pass_fds=(descriptor,),
        start_new_session=True,
    )
    assert done.returncode == 7, done.stderr
    return json.loads(done.stdout), done.stderr


@pytest.mark.parametrize(
    "ending",
    [
        "sys.exit(3)",
        "sys.exit('no')",
        "sys.exit()",
        "raise KeyError('x')",
        "os.kill(os.getpid(), 2)",
        "os._exit(5)",
        "import atexit; atexit.register(print, 'last')",
        "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.1), print('later'))).start()",
    ],
)
def test_a_warm_process_ends_otherwise(ending: str) -> None:
    command = [sys.executable, "-c", f"import os, sys; print('first')\n{ending}"]
    cold, here = (run(command, capture_output=True, text=True, timeout=60) for run in (subprocess.run, warm.run))
    assert (here.returncode, here.stdout) == (cold.returncode, cold.stdout)
    assert here.stderr.splitlines()[-1:] == cold.stderr.splitlines()[-1:]


def test_a_warm_process_outlives_its_signals() -> None:
    with warm.Popen([sys.executable, "-c", "import time; time.sleep(1000)"]) as process:
        assert os.waitpid(process.pid, os.WNOHANG) == (0, 0), "it is not a child of this process"
        process.kill()
        assert process.wait(60) == -signal.SIGKILL


def test_a_child_of_a_warm_process_is_not_its_own(tmp_path: Path) -> None:
    """A supervisor sees that its child was killed, starts it again, and passes a signal on to it."""
    folder = supervised.make(tmp_path / "w", supervised.WAITING)
    process = supervised.supervise(folder)
    try:
        supervised.wait_until(lambda: supervised.seen(folder), process)
        (child,) = supervised.seen(folder)
        assert os.getsid(child) == child
        os.kill(child, signal.SIGKILL)
        supervised.wait_until(lambda: len(supervised.seen(folder)) == 2, process)
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=60)
        assert process.returncode == 3 and f"process {child} died of SIGKILL" in said, said
    finally:
        supervised.clean_up([folder], [process])
