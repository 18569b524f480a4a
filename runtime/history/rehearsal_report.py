"""Try new code against a run without doing anything: its open work is entered over a copy, in a process of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from ...workspace.base import DEFINITION, SatchelError, UsageError, arguments
from ...workspace.formats import decoder
from ...workspace.inspect import define, look
from ...workspace.secrets import hiding, redactor_of
from ...workspace.store import DiskStore, Store
from ...workspace.transfer import scratch_copy
from ..agent import Agent, keys_to_hand_on, load
from ..engine import Rehearsal, RehearsalFinding
from ..execution import Start, check_recorded, running
from ..live import Interruption

Verdict = Literal["same", "gone", "again", "leaves", "asks", "refused", "fails"]

SEVERITY: tuple[Verdict, ...] = ("same", "gone", "again", "leaves", "asks", "refused", "fails")
"""The verdicts, the best first."""

_SECONDS = 60.0
"""A run whose code has not come to its end after this time fails its rehearsal."""

_KEPT = (
    "HOME",
    "LANG",
    "LANGUAGE",
    "LD_LIBRARY_PATH",
    "LOGNAME",
    "PATH",
    "PYTHONHOME",
    "PYTHONPATH",
    "SHELL",
    "TEMP",
    "TERM",
    "TMP",
    "TMPDIR",
    "TZ",
    "USER",
    "VIRTUAL_ENV",
)
"""What the process gets of the environment, with `LC_*`. Secrets are not among them. The keys of sealed values come
on its stdin: they open only what is on record, and a rehearsal answers with that."""

_FOLDERS = ("journal", "checkpoints", "approvals", "inbox", "steps", "partials", "recovered", "outputs", "agents")
_OF_A_RUN = (*_FOLDERS, DEFINITION, "todo.md", "state.json", "messages.jsonl", "pause.yaml")
"""What is not code in a folder where a run lies, too."""


class RehearsalResult(Struct, frozen=True):
    """What a run would do with the code. `same`: what it would do with the code it had, as far as the record tells.
    `gone`: an effect that was done is not called any more. `again`: finished steps run again. `leaves`: the agent
    returns, and items of its plan stay open. `asks`: a person is asked about an effect. `refused`: the start is
    refused. `fails`: the code can't be imported, or raises.
    """

    url: str
    run_id: str
    verdict: Verdict
    findings: list[RehearsalFinding] = field(default_factory=list)
    problem: str = ""  # why it is refused or fails


_rehearsed = decoder(RehearsalResult)


def rehearse(place: Store, code: str | os.PathLike[str] | None = None) -> RehearsalResult:
    """See `RunHistory.rehearse`."""
    folder, run_id = _code(code), ""
    try:
        described = define(place)
        run_id = described.run_id
        with _copied(place, folder, described.agent) as copy:
            found = _in_own_process(copy, folder)
    except (SatchelError, OSError) as error:
        return RehearsalResult(place.url, run_id, "refused", problem=str(error))
    return replace(found, url=place.url, run_id=run_id, problem=found.problem.replace(copy, place.url))


def rehearse_all(places: Sequence[Store], code: str | os.PathLike[str] | None) -> Iterator[RehearsalResult]:
    """The same for several runs, in their order, as many at once as there are processors."""
    _code(code)
    with ThreadPoolExecutor(os.cpu_count() or 1, "satchel-rehearse") as threads:
        yield from threads.map(lambda place: rehearse(place, code), places)


def rehearse_here(store: Store, agent: Agent | None = None) -> RehearsalResult:
    """Rehearse over this folder, in this process. The folder is changed: it is a copy. Neither it nor the result has
    the text of a sealed value, if the agent does not write it out."""
    arguments.no_loop("rehearse", "call `await asyncio.to_thread(rehearse, folder, agent)` there")
    with hiding():
        found = _entered(store, agent)
        shown = redactor_of(define(store)).text
        findings = [replace(each, words=shown(each.words), item=shown(each.item)) for each in found.findings]
        return replace(found, findings=findings, problem=shown(found.problem))


def _entered(store: Store, agent: Agent | None) -> RehearsalResult:
    rehearsal, run_id = Rehearsal(), define(store).run_id
    start = Start(
        store=store,
        interruption=Interruption(),
        agent=agent,
        wake=True,
        accept_drift=True,
        take_over=True,
        adopt=True,
        rehearsal=rehearsal,
    )
    try:
        if (moment := look(store).moment).is_over:
            check_recorded(store, agent or load(store, define(store).agent), moment)
            return RehearsalResult(store.url, run_id, "same")
        outcome, _ = running.with_signals(start)
    except SatchelError as error:
        return RehearsalResult(store.url, run_id, "refused", rehearsal.found, str(error))
    except (Exception, SystemExit) as error:
        return RehearsalResult(store.url, run_id, "fails", rehearsal.found, f"{type(error).__name__}: {error}")
    if outcome.status == "completed":
        rehearsal.at_return(outcome.open_items)
    problem = f"{type(outcome.error).__name__}: {outcome.error}" if outcome.error is not None else ""
    refused = look(store).moment.reason if outcome.status == "paused" and not rehearsal.found else ""
    kinds: list[Verdict] = ["same" if each.kind == "next" else each.kind for each in rehearsal.found]
    kinds += ["fails"] if problem else ["refused"] if refused else ["same"]
    return RehearsalResult(store.url, run_id, max(kinds, key=SEVERITY.index), rehearsal.found, problem or refused)


@contextmanager
def _copied(store: Store, code: Path | None, agent: str) -> Iterator[str]:
    """A copy of the run with the code, in a temporary folder."""
    folder = os.path.realpath(tempfile.mkdtemp(prefix="satchel-rehearsal-"))
    try:
        scratch_copy(store, DiskStore(folder))
        if code is not None:
            _lay_over(code, Path(folder), agent)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _lay_over(code: Path, folder: Path, agent: str) -> None:
    """Put the files of the code there, without those of a run that lies in the same folder. If the agent is among them,
    they replace the code: a module that they lack is gone."""

    def no_code(at: str, names: list[str]) -> set[str]:
        of_a_run = {name for name in names if name.startswith(".") or name in _OF_A_RUN} if Path(at) == code else set()
        return of_a_run | {name for name in names if name == "__pycache__" or not _is_plain(Path(at, name))}

    if (code / agent.partition(":")[0]).is_file():
        for module in folder.rglob("*.py"):
            module.unlink()
    for path in [Path(at, name) for at, folders, files in os.walk(folder) for name in (*folders, *files)]:
        if path.is_symlink() and (code / path.relative_to(folder)).exists():
            path.unlink()  # else the copy would be written where it leads to
    shutil.copytree(code, folder, ignore=no_code, dirs_exist_ok=True)


def _is_plain(path: Path) -> bool:
    """Not a link to nothing, nor a socket or the like: editors leave such."""
    return path.is_file() or path.is_dir()


def _code(code: str | os.PathLike[str] | None) -> Path | None:
    if code is None:
        return None
    folder = Path(code)
    if not folder.is_dir():
        why = "it is a file" if folder.exists() else "there is no such folder"
        raise UsageError(
            f"the code can't be read from {os.fspath(code)!r}", why=why, remedy="name the folder that has it"
        )
    return folder.resolve()


def _in_own_process(copy: str, code: Path | None) -> RehearsalResult:
    words = [sys.executable, "-m", "satchel", "rehearse", "--here", "--json", copy]
    environment = {name: value for name, value in os.environ.items() if name in _KEPT or name.startswith("LC_")}
    if code is not None:
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(code), environment.get("PYTHONPATH"))))
    try:
        done = subprocess.run(
            words, env=environment, cwd=copy, input=keys_to_hand_on(), capture_output=True, timeout=_SECONDS
        )
    except subprocess.TimeoutExpired:
        return RehearsalResult(copy, "", "fails", problem=f"the code has not come to its end within {_SECONDS:.0f} s")
    with suppress(msgspec.DecodeError):
        said = done.stdout.splitlines()[-1:]  # a process that the agent has started may have written before
        found: RehearsalResult = _rehearsed.decode(b"".join(said))
        return found
    last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
    how = f"exit code {done.returncode}" if done.returncode >= 0 else f"signal {-done.returncode}"
    return RehearsalResult(copy, "", "fails", problem=": ".join([f"the process ended with {how}", *last]))
