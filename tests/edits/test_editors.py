"""Files saved as people save them: by the real editors, in a process of their own."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from waits import PATIENCE

from satchel.workspace.base.errors import SatchelError
from satchel.workspace.views import guarded_files
from satchel.workspace.views.guarded_files import Waits

from .folder import Place, world

Save = Callable[[Place], None]


def _needs(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed here; .ci/run installs it")
    return found


def _nano(place: Place) -> None:
    """Typed at, in a terminal: search and replace, then save and leave."""
    command = [_needs("nano"), "--ignorercfiles", str(place.folder / "todo.md")]
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ["TERM"] = "xterm"
        os.execv(command[0], command)
    try:
        for keys in (b"\x1c", b"[x] two\r", b"[ ] two\r", b"y", b"\x0f", b"\r", b"\x18"):
            _drain(terminal)
            os.write(terminal, keys)
        deadline = time.monotonic() + PATIENCE
        while os.waitpid(pid, os.WNOHANG) == (0, 0):
            assert time.monotonic() < deadline, "nano does not end"
            _drain(terminal)
    finally:
        os.close(terminal)


def _drain(terminal: int, quiet: float = 0.3) -> None:
    """Read until it has shown all it has to."""
    try:
        while select.select([terminal], [], [], quiet)[0]:
            if not os.read(terminal, 4096):
                return
    except OSError:  # it has ended
        return


def _vim(*settings: str) -> Save:
    def save(place: Place) -> None:
        command = [_needs("vim"), "-u", "NONE", "-i", "NONE", "-es", "-N"]
        command += [word for setting in settings for word in ("-c", f"set {setting}")]
        command += ["-c", r"%s/\[x\] two/[ ] two/", "-c", "wq", str(place.folder / "todo.md")]
        subprocess.run(command, check=True, timeout=PATIENCE, stdin=subprocess.DEVNULL)

    return save


def _sed(place: Place) -> None:
    subprocess.run([_needs("sed"), "-i", r"s/\[x\] two/[ ] two/", str(place.folder / "todo.md")], check=True)


def _truncate_and_write(place: Place) -> None:
    """As VS Code does."""
    data = place.get("todo.md").replace(b"[x] two", b"[ ] two")
    fd = os.open(place.folder / "todo.md", os.O_WRONLY | os.O_TRUNC)
    for start in range(0, len(data), 7):
        os.write(fd, data[start : start + 7])
    os.close(fd)


def _with_other_ends_of_lines(place: Place) -> None:
    place.put("todo.md", place.get("todo.md").replace(b"[x] two", b"[ ] two").replace(b"\n", b"\r\n"))


EDITORS: dict[str, Save] = {
    "nano": _nano,
    "vim, in place": _vim("backupcopy=yes"),
    "vim, renaming": _vim("backupcopy=no"),
    "vim, keeping a backup": _vim("backupcopy=no", "backup", "writebackup"),
    "sed -i": _sed,
    "truncated and written": _truncate_and_write,
    "with a carriage return": _with_other_ends_of_lines,
}


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("editor", EDITORS)
def test_an_edit_of_a_real_editor_is_missed(finished: Place, editor: str) -> None:
    EDITORS[editor](finished)
    outcome = finished.run()
    assert outcome.status == "completed", outcome.error
    assert world.fresh() == ["read two", "join TWO"], "the item is done again, its effect is not"
    assert len(finished.edited) == 1 and finished.edited[0].base is not None
    assert finished.is_at_the_moment() and "[x] two ^2" in finished.text()


@pytest.mark.parametrize("line", ["- [ ] four", "- [ ] four\\n- [ ] five\\n"])
def test_a_line_appended_by_a_shell_is_lost(finished: Place, line: str) -> None:
    subprocess.run(f"printf -- '{line}\\n' >> {finished.folder}/todo.md", shell=True, check=True)
    assert finished.run().status == "completed"
    assert "send FOUR!" in world.fresh() and "- [x] four" in finished.text() and finished.is_at_the_moment()
    assert finished.text().count("<!--") == 1


def test_an_agent_that_writes_the_plan_anew_loses_what_was_done(finished: Place) -> None:
    finished.put("todo.md", "- [x] one\n- [x] two\n- [x] ask bob\n- [x] three\n- [ ] four")
    assert finished.run().status == "completed"
    assert world.fresh() == ["read four", "join FOUR", "send FOUR!"]


def test_backups_and_swap_files_are_taken_for_something(stopped: Place) -> None:
    for name in ("todo.md~", ".todo.md.swp", "#todo.md#", "4913", "state.json.bak", "todo (conflicted copy).md"):
        stopped.put(name, b"rubbish")
        stopped.put(f"steps/2-two/{name}", b"rubbish")
    stopped.put("steps/2-two/01-read.json~", stopped.get("steps/2-two/01-read.json"))
    stopped.run()
    assert not stopped.edited and stopped.get("todo.md~") == b"rubbish"


# A reader that comes in the middle


def _slowly(path: Path, data: bytes, pieces: int, pause: float) -> threading.Thread:
    """Save in place, in pieces. Returns when it has begun."""
    begun = threading.Event()

    def write() -> None:
        fd = os.open(path, os.O_WRONLY | os.O_TRUNC)
        size = -(-len(data) // pieces)
        for start in range(0, len(data), size):
            os.write(fd, data[start : start + size])
            begun.set()
            time.sleep(pause)
        os.close(fd)

    thread = threading.Thread(target=write)
    thread.start()
    begun.wait()
    return thread


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("path", ["todo.md", "state.json"])
@pytest.mark.parametrize(("pieces", "pause"), [(30, 0.01), (8, 0.1), (3, 0.25)])
def test_half_of_a_slow_save_is_obeyed(
    stopped: Place, monkeypatch: pytest.MonkeyPatch, path: str, pieces: int, pause: float
) -> None:
    monkeypatch.setattr(guarded_files, "WAITS", Waits())
    data = stopped.get(path).replace(b"[ ] three", b"[x] three").replace(b'"n": 1', b'"n": 9')
    thread = _slowly(stopped.folder / path, data, pieces, pause)
    stopped.recover()
    thread.join()
    (record,) = stopped.edited
    assert record.says == ({"todo.md": "the item 'three' counts as done", "state.json": "data.n is now 9"}[path],)
    assert stopped.is_at_the_moment()


def test_a_file_that_never_holds_still_is_obeyed(stopped: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    before = stopped.substance()
    number = 0

    def sleep(seconds: float) -> None:
        nonlocal number
        number += 1
        stopped.put("todo.md", f"- [ ] {number}\n")

    stopped.put("todo.md", "- [ ] 0\n")
    clock = SimpleNamespace(monotonic=lambda: number * 0.05, sleep=sleep, time=time.time)
    monkeypatch.setattr(guarded_files, "WAITS", Waits())
    monkeypatch.setattr(guarded_files, "time", clock)
    with pytest.raises(SatchelError, match="is being saved"):
        stopped.recover()
    assert stopped.substance() == before and stopped.text() == f"- [ ] {number}\n"


def test_a_slow_save_of_the_definition_is_obeyed_by_half(stopped: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarded_files, "WAITS", Waits())
    path = stopped.folder / "workspace.yaml"
    stopped.put("workspace.yaml", path.read_text() + "settings:\n  a: 1\n  b: 2\n")
    stopped.recover()
    data = path.read_bytes().replace(b"a: 1", b"a: 3")
    thread = _slowly(path, data, 2, 0.3)
    with pytest.raises(SatchelError):
        stopped.recover()
    thread.join()
    stopped.recover()
    assert stopped.edited[-1].says == ("settings.a is now 3",)
