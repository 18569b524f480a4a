"""Rounds of `onboarding` in which all goes wrong at seeded moments: kills, signals, pauses, emergencies, denials.

Started by test_onboarding_soak.py. Each round is a newcomer of its own. A start is a fork of this process, which has
imported everything, and its moment is the n-th call that the disk store makes to the operating system, or just before
or after an effect; some starts are real `satchel run`s under a supervisor, whose moment is a time. What follows from
which moment is seeded; how the processes interleave is not.
"""

from __future__ import annotations

import json
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from satchel import run
from satchel.runtime.cli import main as command_line
from satchel.workspace.formats import yamltext
from satchel.workspace.inspect import lease
from satchel.workspace.inspect.load import look
from satchel.workspace.store import DiskStore

sys.path.insert(0, str(Path(__file__).parents[1]))
from samples import newcomers
from samples.soak_result import Found, problems
from samples.soak_trouble import PATIENCE, Trouble, TroubledSyscalls, count_connections, ended, forked

STARTS = 40  # more than any round needs
EFFECTS = ("create_account", "set_privilege", "send")
_TROUBLES = (
    "kill",
    "kill",
    "kill at an effect",
    "kill at an effect",
    "SIGTERM",
    "SIGINT",
    "pause.yaml",
    "pause",
    "stop",
)
_SUPERVISED = ("kill the child", "kill the supervisor", "SIGTERM", "stop", "pause.yaml")


@dataclass
class Round:
    folder: Path
    chance: random.Random
    moments: int
    counts: Counter[str]
    wants_approval: bool = False
    answers_live: bool = False
    troubles: tuple[str, ...] = _TROUBLES
    kills: int = 0
    killed: set[int] = field(default_factory=set)  # the forks among them
    has_answered: bool = False
    diary: list[str] = field(default_factory=list)

    @property
    def log(self) -> Path:
        return self.folder.with_suffix(".log")

    @property
    def connections(self) -> Path:
        return self.folder.with_suffix(".connections")

    @property
    def question(self) -> Path:
        return self.folder / "approvals" / "a1.yaml"

    def note(self, what: str) -> None:
        self.diary.append(what)
        self.counts[what] += 1

    def command(self, *words: object) -> int:
        """A command of the command line, in a process of its own. Its exit code."""

        def work() -> int:
            sys.argv = ["satchel", *map(str, words)]
            command_line()
            return 0

        return ended(forked(self.log, work))

    # One start

    def start(self, trouble: Trouble, *, wake: bool) -> int:
        """Its exit code, or minus the signal it died of."""
        self.note(trouble.what)
        self.counts["starts"] += 1
        listening, bell = os.pipe()

        def work() -> int:
            os.close(listening)
            count_connections(self.connections)
            syscalls = TroubledSyscalls(trouble, self.folder, bell)
            outcome = run(DiskStore(self.folder, syscalls), wake=wake)
            if outcome.error:
                traceback.print_exception(outcome.error)
            return {"completed": 0, "failed": 1, "paused": 3, "waiting": 4}.get(outcome.status, 71)

        pid = forked(self.log, work)
        os.close(bell)
        try:
            code = self.look_after(pid, listening, trouble)
        finally:
            os.close(listening)
        self.counts[f"ended with {code}"] += 1
        if code == -signal.SIGKILL:
            self.kills += 1
            self.killed.add(pid)
            self.counts["killed by satchel stop"] += trouble.what == "stop"
        elif code not in (0, 3, 4) and (code, trouble.what) not in ((-15, "SIGTERM"), (-2, "SIGINT")):
            raise AssertionError(f"a start ended with {code}")
        return code

    def look_after(self, pid: int, listening: int, trouble: Trouble) -> int:
        while True:
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                return os.waitstatus_to_exitcode(status)
            if select.select([listening], [], [], 0.002)[0] and os.read(listening, 1):
                code = self.command(trouble.what, self.folder, "--reason", "soak")
                assert code in (0, 2), f"`satchel {trouble.what}` ended with {code}"  # 2: it has just completed
            if self.answers_live and not self.has_answered and self.question.exists():
                self.answer()

    def supervised(self) -> None:
        """A real `satchel run`, to its end, with one thing that goes wrong at some time."""
        what = self.chance.choice(_SUPERVISED)
        self.note(f"supervised: {what}")
        self.counts["starts"] += 1
        delay = self.chance.uniform(0.1, 1.5)
        with self.log.open("a") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "satchel", "run", self.folder, "--quiet"], stdout=log, stderr=log
            )
        with suppress(subprocess.TimeoutExpired):
            process.wait(delay)
        held = lease.holder(DiskStore(self.folder)) if process.poll() is None else None
        children: list[str] = []
        if what == "SIGTERM":
            process.send_signal(signal.SIGTERM)
        elif what == "pause.yaml" and held is not None:
            (self.folder / "pause.yaml").touch()
        elif what == "stop":
            assert self.command("stop", self.folder) == 0
            self.kills += 1
        elif what == "kill the supervisor":
            process.send_signal(signal.SIGSTOP)
            with suppress(OSError):  # it has ended
                children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            process.kill()
        elif held is not None and held.supervisor is not None:
            with suppress(ProcessLookupError):
                os.kill(held.pid, signal.SIGKILL)  # the lock is held by it: the number is no other's
                self.kills += 1
        code = process.wait(PATIENCE)
        assert code in (0, 3, 4, -9) or (what, code) == ("SIGTERM", -15), f"satchel run ended with {code}"
        until = time.monotonic() + PATIENCE
        # Without its supervisor a child ends by itself, though it may have the workspace only after this.
        while lease.holder(DiskStore(self.folder)) is not None or any(map(lease.process_started, map(int, children))):
            assert time.monotonic() < until, "a child outlives its supervisor"
            time.sleep(0.01)

    # What a person does between two starts

    def answer(self) -> None:
        decision = "approve" if self.wants_approval else "deny"
        if self.chance.random() < 0.5:
            self.note("answered in the file")
            newcomers.type_answer(self.folder, decision)
        else:
            self.note("answered by command")
            code = self.command("answer", self.folder, "a1", decision, "--by", "Grace")
            if code == 2 and self.answers_live:
                return  # the run was just being opened or closed: once more, later
            assert code == 0, f"satchel answer ended with {code}"
        self.has_answered = True

    def mistype(self) -> None:
        """What is no answer must be refused, and must not be lost."""
        self.note("mistyped")
        newcomers.type_answer(self.folder, "aprove")
        answers_live, self.answers_live = self.answers_live, False
        code = self.start(Trouble("nothing"), wake=False)
        assert code == 4, f"with an answer that is none a start ended with {code}"
        assert 'not accepted: found "aprove"' in self.question.read_text()
        self.answers_live = answers_live

    def tamper(self) -> None:
        """After the answer is on record nothing that is typed may change it."""
        self.note("tampered with")
        other = "deny" if self.wants_approval else "approve"
        newcomers.type_answer(self.folder, other, by="Mallory")
        assert self.command("answer", self.folder, "a1", other) == 2

    def let_go_on(self) -> bool:
        """Of a paused run: whether the next start must be told to go on (`satchel resume`)."""
        if self.chance.random() < 0.3:
            self.note("left paused")
            assert self.start(Trouble("nothing"), wake=False) in (0, 3, 4)  # one that a signal has stopped goes on
        file = self.folder / "pause.yaml"
        if file.exists() and file.read_text().strip() and self.chance.random() < 0.5:
            self.note("status: resume")
            file.write_text(yamltext.set_value(file.read_text(), ("status",), "resume"))
            return False
        self.note("resume")
        return True

    # The whole

    def left_open(self) -> list[str]:
        """Connections to the directory that a process has not closed before it came to its end."""
        lines = Counter(self.connections.read_text().splitlines()) if self.connections.exists() else Counter()
        pids = {line.split()[0] for line in lines} - {str(pid) for pid in self.killed}
        self.counts["connections really opened and closed"] += sum(lines[f"{pid} closed"] for pid in pids)
        return [
            f"process {pid} opened the directory {lines[f'{pid} opened']} times and closed it {lines[f'{pid} closed']}"
            for pid in pids
            if lines[f"{pid} opened"] != lines[f"{pid} closed"]
        ]

    def play(self) -> None:
        troubles = self.chance.randint(1, 5)
        wake = False
        for number in range(STARTS):
            code = 0
            if number < troubles and self.chance.random() < 0.06:
                self.supervised()
            else:
                code = self.start(self.trouble() if number < troubles else Trouble("nothing"), wake=wake)
            moment = look(DiskStore(self.folder)).moment
            wake = False
            if moment.status == "completed" and moment.clean:
                if code < 0 or (self.folder / "pause.yaml").exists():
                    # Killed behind its last record: files may lag until the next opening. Or a wish came too late.
                    assert self.start(Trouble("nothing"), wake=False) == 0
                return
            assert moment.status != "failed" and not moment.doubts, (moment.status, moment.reason, list(moment.doubts))
            is_asked = "a1" in moment.approvals
            if is_asked and moment.status == "waiting" and not self.has_answered:
                if self.chance.random() < 0.2 and not (self.folder / "pause.yaml").exists():
                    self.mistype()
                self.answer()
            elif self.has_answered and self.question.exists() and not is_asked and self.chance.random() < 0.2:
                self.tamper()
            if (self.folder / "pause.yaml").exists():
                wake = self.let_go_on()
        raise AssertionError(f"not completed after {STARTS} starts")

    def trouble(self) -> Trouble:
        what = self.chance.choice(self.troubles)
        effect = self.chance.choice(EFFECTS) if what == "kill at an effect" else ""
        return Trouble(what, self.chance.randint(1, self.moments), effect)


def soak(seed: int, rounds: int, port: int, box: Path, base: Path, fault: str) -> Counter[str]:
    """Play the rounds. AssertionError, with the diary, at the first that ends otherwise than it must."""
    counts: Counter[str] = Counter()
    moments = 170  # of a start that comes to its end
    for number in range(rounds):
        chance = random.Random(f"{seed} {number}")
        address = f"newcomer-{number}-of-{os.getpid()}@example.org"
        wait_for = chance.choice(("0", "0", "0.5"))
        folder = newcomers.make(base / f"round-{number}", port, box, f"address={address}", f"wait_for={wait_for}")
        plant(fault, folder)
        one = Round(folder, chance, moments, counts, chance.random() < 0.5, wait_for != "0")
        if fault:  # most of which show only if an effect is cut off
            one.troubles = ("kill at an effect",)
        try:
            one.play()
            found = problems(Found(folder, box, address, one.wants_approval, one.kills), counts) + one.left_open()
            assert not found, found
        except AssertionError as error:
            kept = tempfile.mkdtemp(prefix="satchel-soak-")
            shutil.copytree(folder, f"{kept}/workspace")
            said = one.log.read_text()[-3000:] if one.log.exists() else ""
            raise AssertionError(
                f"seed {seed}, round {number}: {error}\nplayed: {', '.join(one.diary)}\nkept in {kept}\n{said}"
            ) from None
        counts["rounds"] += 1
        counts["kills"] += one.kills
        counts["approved" if one.wants_approval else "denied"] += 1
        shutil.rmtree(folder)
    return counts


def plant(fault: str, folder: Path) -> None:
    """A mistake that the soak has to find."""
    if not fault:
        return
    file, was, becomes = {
        "verify": ("post.py", 'if not run.resources["mail"].find(message_id(key)):', "if True:"),
        "denial": ("privileges.py", 'if answer == "approve":', "if answer.by:"),
        "leak": ("directory.py", "with closing(", "with __import__('contextlib').nullcontext("),
    }[fault]
    text = (folder / file).read_text()
    assert text.count(was) == 1
    (folder / file).write_text(text.replace(was, becomes))


def main() -> None:
    seed, rounds, port = map(int, sys.argv[1:4])
    box, fault = Path(sys.argv[4]), sys.argv[5]
    with tempfile.TemporaryDirectory(prefix="satchel-soaking-") as base:
        try:
            counts = soak(seed, rounds, port, box, Path(base), fault)
        except AssertionError as error:
            raise SystemExit(str(error)) from None
    print(json.dumps(counts))


if __name__ == "__main__":
    main()
