"""A workload in which named scopes get other names at each start, while their effects are on record and not committed.

Whatever crashes, and under yet another name: the run comes to its end, and every effect has acted once.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, NamedTuple

from msgspec import Raw

from satchel import Outcome, Run, agent, effect, run
from satchel.workspace.inspect import load
from satchel.workspace.journal.records import Doubt, Resolved
from satchel.workspace.store import DiskStore

from .checker import Violation
from .edited import Judge
from .memory import ROOT, Memory
from .play import playing
from .witness import Witness

DEFINITION = b"format: 1\nrun_id: renames\nagent: agent.py:main\n"
_TEXTS = ("a", "b", "c")


class Did(NamedTuple):
    """An effect has acted on the world."""

    name: str


class _Killed(BaseException):
    """Leaves the run as a kill does."""


def _start(system: Memory, version: int, dies: tuple[str, bool] = ("", False)) -> Outcome:
    """Scopes that have committed keep their names, the others are named by the version of the code. With `dies` the
    process dies in the effect of that text, or after it."""
    store = DiskStore(ROOT, system)
    known = load.look(store).moment.root.results if version > 1 else {}
    names = {
        text: next((name for name in (f"{text}{n}" for n in range(version)) if f"_{name}" in known), f"{text}{version}")
        for text in _TEXTS
    }

    @effect
    async def send(text: str) -> str:
        system.acknowledge(Did(text))
        if dies == (text, True):
            raise _Killed
        return f"sent {text}"

    async def work(run: Run[dict[str, Any]], text: str) -> None:
        run.state[text] = await send(text)
        if dies == (text, False):
            raise _Killed

    @agent
    async def main(run: Run[dict[str, Any]]) -> None:
        for text in _TEXTS:
            await run.scope(names[text], work, run, text)

    return run(store, main)


class Renaming:
    """In the shape of the workloads with edits: it has a judge of its own."""

    def files(self) -> dict[str, bytes]:
        return {"workspace.yaml": DEFINITION}

    def judge(self) -> Judge:
        return Judge(self.files(), self.files(), lambda tree: None)

    def live(self, system: Memory) -> None:
        with suppress(_Killed):
            _start(system, 1, ("b", False))
        _answer(system, _start(system, 2), [])
        with suppress(_Killed):
            _start(system, 2, ("c", True))
        _answer(system, _start(system, 3), [])
        _start(system, 3)

    def finish(self, system: Memory, witness: Witness) -> None:
        before = [fact.name for fact in witness.others if isinstance(fact, Did)]
        for _ in range(3 * len(_TEXTS)):
            outcome = _start(system, 4)
            if outcome.status == "completed":
                break
            if outcome.status != "waiting":
                raise Violation(f"the run ended as {outcome.status}: {outcome.error!r}")
            _answer(system, outcome, before)
        else:
            raise Violation("the run does not come to its end")
        data = load.look(DiskStore(ROOT, system)).moment.root.data
        if data != {text: f"sent {text}" for text in _TEXTS}:
            raise Violation(f"the run ended with {data}", "state.json")
        if sorted(did := _did(system, before)) != [*_TEXTS]:
            raise Violation(f"every effect is due once, and these have acted: {sorted(did)}")


def _did(system: Memory, before: list[str]) -> list[str]:
    return before + [each.call.fact.name for each in system.log if isinstance(each.call.fact, Did)]


def _answer(system: Memory, outcome: Outcome, before: list[str]) -> None:
    """A person says truthfully whether an effect has acted."""
    with playing(system, "answer") as play:
        for asked in outcome.doubts:
            assert isinstance(asked, Doubt)
            text = asked.scope[1]
            sent = Raw(f'"sent {text}"'.encode())
            done = Resolved(id=asked.id, outcome="done", by="a person", result=sent)
            has_acted = text in _did(system, before)
            play.journal.add(done if has_acted else Resolved(id=asked.id, outcome="not_done", by="a person"))
        play.journal.flush()
        play.workspace.close()
