"""Make the golden folders again: workspaces as kills, pauses, questions, conflicts and so on leave them.

`python tools/make_golden.py` makes all of tests/golden, or those that are named: `python tools/make_golden.py forked
moved`. Run it after a change of a format, until that format is released. A folder that an earlier version of Satchel
has made is never made again: it shows that its runs continue. After a release add folders under other names.

Each folder is made by real commands in real processes, and each kill is a SIGKILL. An agent stops at the place that the
maker names (`here` in tools/golden/agents/outside.py); there the maker kills it, pauses it or edits its files. The
runs are in /dev/shm/ada/runs, on a machine that is called `laptop` (tools/golden/ada), so that no folder names the real
machine. What differs from one making to the next are times, process numbers and random names.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import yaml

from satchel.workspace.base import version

ROOT = Path(__file__).resolve().parents[1]
GOLDEN = ROOT / "tests" / "golden"
AGENTS, ADA = ROOT / "tools/golden/agents", ROOT / "tools/golden/ada"
HOME = Path("/dev/shm/ada/runs")
MADE_BY = "made_by.txt"
EXPECTED = yaml.safe_load((GOLDEN / "expected.yaml").read_text())
_PATIENCE = 60.0
_AT_ONCE = 4
_COPIES = re.compile(r"\.satchel/schemas/(?!results/)(.*/)?(?!data\.json$)[^/]+|\.satchel/lock|.*__pycache__.*")
"""What is left out: copies of schemas/, a file without a content, and what Python writes."""

Scenario = Callable[["Desk"], None]
SCENARIOS: dict[str, Scenario] = {}


class Process(NamedTuple):
    popen: subprocess.Popen[str]
    command: list[str]


class Desk:
    """Where Ada sits: the folder of one scenario, with the workspace `run` in it."""

    def __init__(self, name: str, home: Path):
        self.name, self.home = name, home / name
        self.run = self.home / "run"
        self.run.mkdir(parents=True)

    def write(self, agent: str, more: str = "", *, run: Path | None = None) -> None:
        """A new workspace with this agent."""
        run = run or self.run
        shutil.copy(AGENTS / f"{agent}.py", run / "agent.py")
        shutil.copy(AGENTS / "outside.py", run)
        (run / "workspace.yaml").write_text(f"format: 1\nrun_id: {self.name}-1\nagent: agent.py:main\n{more}")

    def satchel(self, *words: str, codes: tuple[int, ...] = (0,)) -> str:
        """A command that ends by itself."""
        return self._end(self._begin(words), codes)

    @contextmanager
    def at(self, place: str, *words: str, times: int = 1, codes: tuple[int, ...] = (0,)) -> Iterator[Process]:
        """The command (`run` without words) while its agent waits at the place, as often as that; after the body it
        goes on to its end."""
        process = self._begin(words or ("run", "--in-process", "run"), place)
        try:
            until(lambda: len(self.lines("here")) == times, process)
            yield process
            (self.home / "here").unlink()
            if process.popen.poll() != -signal.SIGKILL:
                self._end(process, codes)
        finally:
            process.popen.kill()
            process.popen.communicate()

    def kill_at(self, place: str, *, times: int = 1, shown: str = "workspace.yaml", says: str = "") -> None:
        """While the agent is at the place, as soon as a file (`shown`, a pattern) is there and `says` this."""
        with self.at(place, times=times) as process:
            until(lambda: any(says in path.read_text() for path in self.run.glob(shown)), process)
            process.popen.kill()
            process.popen.wait()

    def pause_at(self, place: str, reason: str = "lunch") -> None:
        """By a person, while the agent is at the place."""
        with self.at(place, codes=(3,)) as process:
            self.satchel("pause", "run", "--reason", reason)
            until(lambda: "draining" in (self.run / "pause.yaml").read_text(), process)

    def edit(self, file: str, old: str, new: str) -> None:
        text = (self.run / file).read_text()
        assert old in text, f"{self.name}: {file} has no {old!r}:\n{text}"
        (self.run / file).write_text(text.replace(old, new, 1))

    def lines(self, file: str) -> list[str]:
        path = self.home / file
        return path.read_text().splitlines() if path.exists() else []

    def segments(self) -> list[Path]:
        return sorted(self.run.glob("journal/0*.jsonl"))

    def _begin(self, words: tuple[str, ...], place: str = "") -> Process:
        command = [sys.executable, "-B", "-m", "satchel", *words]
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": "/home/ada",
            "LOGNAME": "ada",
            "TZ": "UTC",
            "LANG": "C.UTF-8",
            "PYTHONPATH": str(ADA),
            "GOLDEN_PLACE": place,
            **EXPECTED[self.name].get("environment", {}),
        }
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        return Process(subprocess.Popen(command, cwd=self.home, env=environment, **pipes), command)  # type: ignore[call-overload]

    def _end(self, process: Process, codes: tuple[int, ...]) -> str:
        said, _ = process.popen.communicate(timeout=_PATIENCE)
        if process.popen.returncode not in codes:
            raise SystemExit(f"{self.name}: {process.command} ended with {process.popen.returncode}:\n{said}")
        return str(said)


def until(condition: Callable[[], bool], process: Process) -> None:
    """Wait for what another process does; files give no notice."""
    end = time.monotonic() + _PATIENCE
    while not condition():
        if process.popen.poll() is not None or time.monotonic() > end:
            process.popen.kill()
            raise SystemExit(f"{process.command} did not come that far:\n{process.popen.communicate()[0]}")
        time.sleep(0.01)


def scenario(function: Scenario) -> Scenario:
    SCENARIOS[function.__name__.replace("_", "-")] = function
    return function


# Kills


@scenario
def killed_in_a_step(desk: Desk) -> None:
    desk.write("payments")
    desk.kill_at("C-333 is looked up", shown="journal/*", says='"type":"scope.begun","scope":"3"')


@scenario
def killed_before_an_effect(desk: Desk) -> None:
    desk.write("payments")
    desk.kill_at("B-22 is not paid yet", shown=".satchel/running.json")


@scenario
def killed_after_an_effect(desk: Desk) -> None:
    desk.write("payments")
    desk.kill_at("B-22 is paid")


@scenario
def killed_before_a_commit(desk: Desk) -> None:
    desk.write("payments")
    desk.kill_at("B-22 has a receipt")


@scenario
def killed_in_a_verified_effect(desk: Desk) -> None:
    desk.write("verified")
    desk.kill_at("B-22 is paid")


@scenario
def killed_while_streaming(desk: Desk) -> None:
    desk.write("telling")
    desk.kill_at("half is told", shown="partials/*/*.md", says="middle of")


@scenario
def recovered(desk: Desk) -> None:
    desk.write("telling")
    desk.kill_at("half is told", shown="partials/*/*.md", says="middle of")
    desk.satchel("recover", "run")


@scenario
def killed_in_parallel_items(desk: Desk) -> None:
    desk.write("parallel")
    desk.kill_at("it is paid", times=3)


@scenario
def killed_in_a_subagent(desk: Desk) -> None:
    desk.write("team")
    desk.kill_at("maps is ordered")


@scenario
def killed_in_a_task(desk: Desk) -> None:
    desk.write("desk")
    for name, text in (("a", "water the plants"), ("b", "feed the cat"), ("c", "lock the door")):
        (desk.run / "inbox").mkdir(exist_ok=True)
        (desk.run / f"inbox/{name}.md").write_text(f"{text}\n")
    desk.satchel("send", "run", "--message", "the cat is out")
    desk.kill_at("feed the cat is done")


@scenario
def killed_in_a_conversation(desk: Desk) -> None:
    desk.write("talking")
    desk.kill_at("Rain? is answered", shown="messages.jsonl")
    desk.edit("messages.jsonl", '"content":"Sun?"', '"content":"Is there sun?"')


@scenario
def killed_three_times(desk: Desk) -> None:
    desk.write("payments")
    for _ in range(3):
        desk.kill_at("B-22 is looked up", shown="journal/*", says='"type":"scope.begun","scope":"2"')
    desk.satchel("run", "--in-process", "run", codes=(3,))


# Pauses and waits


@scenario
def paused(desk: Desk) -> None:
    desk.write("payments")
    desk.pause_at("B-22 is looked up")
    with (desk.run / "pause.yaml").open("a") as file:
        file.write("# back at two\nx-table: 4\n")


@scenario
def paused_by_its_budget(desk: Desk) -> None:
    desk.write("payments", "budget: {steps: 3}\n")
    desk.satchel("run", "--in-process", "run", codes=(3,))


@scenario
def forced_to_stop(desk: Desk) -> None:
    desk.write("payments", "drain: {timeout: 0.1s, then: force}\n")
    with desk.at("B-22 is paid", codes=(3,)) as process:
        desk.satchel("pause", "run", "--reason", "the building closes")
        process.popen.wait(_PATIENCE)


@scenario
def stopped_in_an_emergency(desk: Desk) -> None:
    desk.write("payments")
    with desk.at("B-22 is paid", codes=(-signal.SIGKILL,)) as process:
        desk.satchel("stop", "run", "--reason", "smoke")
        process.popen.wait(_PATIENCE)


@scenario
def sleeping(desk: Desk) -> None:
    desk.write("waking", "settings: {noon: 2126-01-01T12:00:00+00:00}\n")
    desk.satchel("run", "--in-process", "run", codes=(5,))


@scenario
def scheduled(desk: Desk) -> None:
    desk.write("desk", "schedule:\n  - {every: 1s, name: report}\n")
    desk.satchel("send", "run", "water the plants")
    desk.pause_at("water the plants is done")
    while not [*desk.run.glob("inbox/schedule-*")]:  # until a second has begun since the pause
        desk.satchel("serve", "--once", ".", codes=(0, 3))


@scenario
def failed(desk: Desk) -> None:
    desk.write("failing")
    desk.satchel("run", "--in-process", "run", codes=(3,))
    (desk.home / "mended.txt").write_text("The bank knows B-22 now.\n")


# Questions and edits


@scenario
def waiting(desk: Desk) -> None:
    desk.write("asking")
    desk.satchel("run", "--in-process", "run", codes=(4,))


@scenario
def answered_by_hand(desk: Desk) -> None:
    desk.write("asking")
    desk.satchel("run", "--in-process", "run", codes=(4,))
    desk.satchel("answer", "run", "a1", "approve", "--by", "bob")
    desk.satchel("run", "--in-process", "run", codes=(4,))
    desk.edit("approvals/a2.yaml", "decision:", "decision: deny #")
    desk.edit("approvals/a2.yaml", "note:", "note: we have no money #")


@scenario
def edited_by_hand(desk: Desk) -> None:
    desk.write("payments")
    desk.pause_at("B-22 is not paid yet")
    desk.edit("todo.md", "- [ ] D-4444", "- [-] D-4444\n- [ ] E-5\n\nBob pays D-4444 himself.")
    desk.edit("state.json", '"paid": 70', '"paid": 71')


@scenario
def edited_in_steps(desk: Desk) -> None:
    desk.write("payments")
    desk.kill_at("B-22 is not paid yet", shown="steps/2-*/*look-up.json")
    (step,) = desk.run.glob("steps/2-*/*look-up.json")
    desk.edit(str(step.relative_to(desk.run)), '"result": 40', '"result": 44')


@scenario
def conflict(desk: Desk) -> None:
    desk.write("payments")
    desk.pause_at("B-22 is looked up")
    old = (desk.run / "state.json").read_text()
    with desk.at("C-333 is looked up", "resume", "--in-process", "run", codes=(3,)) as process:
        desk.satchel("pause", "run", "--reason", "tea")
        until(lambda: "draining" in (desk.run / "pause.yaml").read_text(), process)
    assert '"paid": 30' in old
    (desk.run / "state.json").write_text(old.replace('"paid": 30', '"paid": 1030'))
    desk.satchel("resume", "--in-process", "run", codes=(4,))


@scenario
def refused_edit(desk: Desk) -> None:
    desk.write("payments")
    desk.pause_at("B-22 is looked up")
    desk.edit("state.json", '"paid": 30', '"paid": "a lot"')
    desk.satchel("resume", "--in-process", "run", codes=(2,))


# History, places, types


@scenario
def rewound(desk: Desk) -> None:
    desk.write("payments")
    desk.satchel("run", "--in-process", "run")
    desk.satchel("rewind", "run", "--to", "^3", "--yes")


@scenario
def forked(desk: Desk) -> None:
    desk.write("payments")
    desk.satchel("run", "--in-process", "run")
    desk.satchel("fork", "run", "fork", "--at", "^3", "--run-id", "forked-2", "--yes")


@scenario
def pruned(desk: Desk) -> None:
    desk.write("payments", "keep: {history: 1, checkpoints: 2}\n")
    for place in ("B-22 has a receipt", "C-333 has a receipt", "D-4444 is looked up"):
        desk.kill_at(place)
    for _ in range(2):
        desk.satchel("recover", "run")
    desk.satchel("prune", "run")
    assert [*desk.run.glob("journal/kept-*.jsonl")], "nothing was pruned"


@scenario
def moved(desk: Desk) -> None:
    desk.write("payments")
    desk.pause_at("B-22 is looked up")
    desk.satchel("move", "run", "moved")


@scenario
def migrated(desk: Desk) -> None:
    desk.write("began")
    desk.satchel("run", "--in-process", "run", codes=(3,))
    shutil.copy(AGENTS / "growing.py", desk.run / "agent.py")


@scenario
def sealed(desk: Desk) -> None:
    desk.write("vault")
    desk.kill_at("ink is ordered")


@scenario
def completed(desk: Desk) -> None:
    desk.write("desk")
    desk.satchel("send", "run", "water the plants")
    desk.satchel("run", "--in-process", "run")
    desk.satchel("send", "run", "feed the cat")


@scenario
def cancelled(desk: Desk) -> None:
    desk.write("payments")
    desk.pause_at("B-22 is looked up")
    desk.satchel("cancel", "run", "--yes")


# Damage


@scenario
def torn(desk: Desk) -> None:
    """A power failure has left the beginning of one more line."""
    desk.write("payments")
    desk.kill_at("C-333 is looked up", shown="journal/*", says='"type":"scope.begun","scope":"3"')
    last = desk.segments()[-1]
    line = last.read_bytes().splitlines()[-1]
    last.write_bytes(last.read_bytes() + line[: len(line) // 2])


@scenario
def damaged(desk: Desk) -> None:
    """One byte of a record in the middle of the journal has changed."""
    desk.write("payments")
    desk.kill_at("C-333 is not paid yet")
    last = desk.segments()[-1]
    lines = last.read_bytes().splitlines(keepends=True)
    (at,) = (n for n, line in enumerate(lines) if b'"scope.committed"' in line and b'"scope":"2"' in line)
    lines[at] = lines[at].replace(b"receipt", b"recejpt", 1)
    last.write_bytes(b"".join(lines))
    for path in desk.run.glob("checkpoints/*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


@scenario
def without_a_journal(desk: Desk) -> None:
    desk.write("payments")
    desk.pause_at("C-333 is looked up")
    shutil.rmtree(desk.run / "journal")
    shutil.rmtree(desk.run / "checkpoints")


def make(names: list[str], golden: Path = GOLDEN, home: Path = HOME) -> None:
    """Replace these folders in `golden`. The runs are made in `home`, which must be missing or empty."""
    for name in names:
        _refuse_older(golden / name)
    home.mkdir(parents=True, exist_ok=True)
    try:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for name, size in pool.map(lambda name: _make(name, golden / name, home), names):
                print(f"{name}: {size / 1024:.0f} KB", flush=True)
    finally:
        shutil.rmtree(home)


def _make(name: str, destination: Path, home: Path) -> tuple[str, int]:
    desk = Desk(name, home)
    SCENARIOS[name](desk)
    return name, _keep(desk.home, destination)


def _refuse_older(folder: Path) -> None:
    made_by = version_of(folder)
    if made_by not in ("", version()):
        raise SystemExit(f"{folder} was made by Satchel {made_by}, and stays as it is: give the new one another name")


def version_of(folder: Path) -> str:
    """The Satchel that has made it; empty if there is none yet."""
    path = folder / MADE_BY
    return path.read_text().strip() if path.exists() else ""


def _keep(source: Path, destination: Path) -> int:
    """What git keeps of it: files, without times and without empty folders. Returns their size."""
    shutil.rmtree(destination, ignore_errors=True)
    for path in sorted(source.rglob("*")):
        name = path.relative_to(source).as_posix()
        if path.is_file() and not _COPIES.fullmatch(name.partition("/")[2]):
            (destination / name).parent.mkdir(parents=True, exist_ok=True)
            (destination / name).write_bytes(path.read_bytes())
    (destination / MADE_BY).write_text(f"{version()}\n")
    return sum(path.stat().st_size for path in destination.rglob("*") if path.is_file())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Make the golden folders again.")
    parser.add_argument("names", nargs="*", choices=[[], *SCENARIOS], help="only these")
    make(parser.parse_args().names or [*SCENARIOS])
