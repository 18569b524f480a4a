"""Kills a run that takes tasks from its inbox, and hands the rest on when it pauses, at every call that it makes to the
disk. Started by test_inbox_killed.py.

Whoever the tasks are handed to takes them away at once, as another run would. In the end each task was done once: by
this run, or over there.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

from satchel import InboxTask, NotDone, Run, agent, effect, run
from satchel.workspace import inbox
from satchel.workspace.edits import look
from satchel.workspace.store import DiskStore, Syscalls

TASKS = ("a", "b", "c", "d")
_MOMENTS = ("write", "sync", "sync_data", "sync_folder", "rename", "link", "unlink", "open_new", "mkdir", "rmdir")


def kill_at(moment: int) -> list[int]:
    """From now on every call of this process counts, also those to the other folder. Returns the count so far."""
    count = [0]

    def counted(real: Any) -> Any:
        def call(*args: Any) -> Any:
            count[0] += 1
            if count[0] == moment:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args)

        return call

    for name in _MOMENTS:
        setattr(Syscalls, name, counted(getattr(Syscalls, name)))
    return count


def make_agent(outside: Path) -> Any:
    def was_done(text: str) -> str:
        if text not in (outside.read_text().splitlines() if outside.exists() else ()):
            raise NotDone
        return text

    @effect(verify=was_done)
    def act(text: str) -> str:
        with outside.open("a") as file:
            file.write(f"{text}\n")
        return text

    @agent
    async def main(run: Run) -> None:
        async def work(run: Run, task: InboxTask) -> None:
            heard = [each.text for each in await run.inbox.take("message")]
            run.state.setdefault("done", []).append(await act(task.text))
            run.state["heard"] = run.state.get("heard", []) + heard
            if task.text == "b" and not outside.with_name("paused").exists():
                outside.with_name("paused").touch()
                os.kill(os.getpid(), signal.SIGINT)

        await run.inbox.each(work)

    return main


def new_workspace(base: Path) -> Path:
    folder = base / "run"
    (folder / "inbox").mkdir(parents=True)
    (base / "queue").mkdir()
    (folder / "workspace.yaml").write_text("format: 1\nrun_id: killed-1\nagent: agent.py:main\nredirect_to: ../queue\n")
    for text in TASKS:
        (folder / f"inbox/{text}.md").write_text(text)
    (folder / "inbox/m.yaml").write_bytes(inbox.message("hurry"))
    return folder


def child(base: Path, moment: int) -> tuple[int, int]:
    """Run in a fork until the end or until the kill: how it ended, and how many calls it has made if it did."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 70
        try:
            count = kill_at(moment)
            outcome = run(DiskStore(base / "run"), make_agent(base / "outside"))
            code = {"completed": 0, "paused": 3}.get(outcome.status, 71)
            os.write(theirs, b"%d" % count[0])
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(theirs)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with open(ours, "rb") as pipe:
        return code, int(pipe.read() or 0)


def consume(base: Path) -> list[str]:
    """What the other one finds, it takes and forgets."""
    found = [path for path in (base / "queue").iterdir() if path.is_file() and not path.name.startswith(".")]
    texts = [path.read_text() for path in found]
    for path in found:
        path.unlink()
    return texts


def play(base: Path, moment: int) -> tuple[list[str], bool]:
    """What was done by whom, and whether the kill came."""
    folder = new_workspace(base)
    code, _ = child(base, moment)
    was_killed = code == -signal.SIGKILL
    consumed = consume(base)
    for _ in range(4):
        code, _ = child(base, -1)
        consumed += consume(base)
        if code == 0:
            break
    assert code == 0, code
    done = (base / "outside").read_text().splitlines() if (base / "outside").exists() else []
    left = [path.name for path in (folder / "inbox").iterdir() if path.is_file()]
    assert not left, left
    state = (folder / "state.json").read_text()
    assert state.count('"hurry"') == 1, state
    return done + consumed, was_killed


def main(part: int, parts: int) -> None:
    look.LOOK_AGAIN = 0.0
    with tempfile.TemporaryDirectory() as scratch:
        base = Path(scratch)
        new_workspace(base / "whole")
        code, moments = child(base / "whole", -1)
        assert (code, sorted(consume(base / "whole"))) == (3, ["c", "d"]), "it must pause and hand on what is left"
        kills = 0
        for moment in range(1 + part, moments + 1, parts):
            done, was_killed = play(base / "killed", moment)
            if sorted(done) != sorted(TASKS):
                kept = tempfile.mkdtemp(prefix="satchel-killed-")
                shutil.copytree(base / "killed", f"{kept}/killed")
                raise SystemExit(f"killed at call {moment} of {moments}: done were {done}; kept in {kept}")
            kills += was_killed
            shutil.rmtree(base / "killed")
        print(f"{kills} kills at {moments} moments")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
