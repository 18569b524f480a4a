"""What is recorded and then crashed at every call: a name, the files a person has put there, and a history."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from satchel.workspace.lifecycle.opening import Why

from . import agents, inboxes, pipelined
from .answering import Answering
from .editing import EDITINGS, Editing
from .holding import Holding
from .memory import Memory
from .pauses import Pausing
from .play import Play, playing
from .returns import Returning
from .witness import Witness


def _definition(run_id: str) -> bytes:
    return f"format: 1\nrun_id: {run_id}\nagent: agent.py:main\n".encode()


class Workload(NamedTuple):
    """`finish`, in place of `go_on`, is what a later process does that has opened the workspace itself.

    Of an `editing` people have edited the files, or several agents are at work: these files and its own judge count.
    """

    name: str
    files: dict[str, bytes]
    live: Callable[[Memory], None]
    finish: Callable[[Memory, Witness], None] | None = None
    editing: Editing | Answering | Pausing | Returning | Holding | None = None
    every: int = 1  # of its calls, this many are gone over for one that is crashed at
    is_new: bool = False  # its folder was made a moment ago, so a power failure may take all of it
    takes: Why = "run"  # what the processes after a crash open it for, unless they only recover it


def go_on(play: Play) -> None:
    """What any later process does: finish the next item, whatever state it is in."""
    play.start()
    scope = play.begin()
    if scope is None:
        return
    play.step(scope, "read")
    play.effect(scope, "send")
    play.commit(scope, talk=True)


def _commits(system: Memory) -> None:
    with playing(system) as play:
        play.start()
        for _ in range(2):
            scope = play.begin()
            assert scope
            play.step(scope, "read")
            play.together(scope, "left", "right")
            play.commit(scope, talk=True)
        play.add_item("Tidy up")
        go_on(play)
        play.workspace.close("paused", "enough")
    with playing(system) as play:
        go_on(play)
        play.workspace.close("completed")
    with playing(system, "recover") as play:
        play.workspace.close()


def _just_made(system: Memory) -> None:
    with playing(system) as play:
        play.start()
        go_on(play)


def _travelling(system: Memory) -> None:
    """Commits that wait for company: nothing that can be seen may be of one that is lost."""
    with playing(system) as play:
        play.start()
        for talk in (True, False):
            scope = play.begin()
            assert scope
            play.step(scope, "read")
            play.commit(scope, talk=talk, travels=True)
        play.add_item("Tidy up")
        scope = play.begin()
        assert scope
        play.effect(scope, "send")
        play.commit(scope, outputs=play.output("report.md", "whole\n"), travels=True)
        scope = play.begin()
        assert scope
        play.commit(scope, talk=True, travels=True)
        play.workspace.close("paused", "enough")


def _effects(system: Memory) -> None:
    with playing(system) as play:
        play.start()
        scope = play.begin()
        assert scope
        play.step(scope, "read")
        play.effect(scope, "send")
        play.effect(scope, "pay", "raises")
        play.effect(scope, "book", "never")
    with playing(system, "answer") as play:
        play.effect(scope, "pay")
        play.workspace.close()
    with playing(system) as play:
        play.start()
        play.effect(scope, "book")
        play.commit(scope)
        go_on(play)


def _streams(system: Memory) -> None:
    with playing(system) as play:
        play.start()
        scope = play.begin()
        assert scope
        play.stream(scope, "draft", 7)
        play.stream(scope, "answer", 8, "never")
    with playing(system) as play:
        play.stream(scope, "answer", 2, "never")
    with playing(system) as play:
        play.stream(scope, "answer", 1)
        play.commit(scope)
        scope = play.begin()
        assert scope
        play.stream(scope, "more", 2, "never")


def _growth(system: Memory) -> None:
    """Segments rotate, checkpoints fall due and old ones go; results are long enough for blobs."""
    with playing(system) as play:
        play.start()
        for number in range(9):
            play.add_item(f"Extra {number}")
        for number in range(5):
            scope = play.begin()
            assert scope
            play.step(scope, "read", 1500)
            play.step(scope, "big", 70_000 if number == 1 else 30)
            play.workspace.checkpoint("milestone")
            play.commit(scope, talk=number % 2 == 0, size=70_000 if number == 2 else 900)
    with playing(system) as play:
        for _ in range(4):
            go_on(play)
            play.workspace.checkpoint("milestone")
        play.workspace.close("paused")
    with playing(system) as play:
        go_on(play)


def _prunes(system: Memory) -> None:
    """Old records go during a run and at its stops, and so do their blobs and checkpoints."""
    with playing(system) as play:
        play.start()
        for number in range(7):
            play.add_item(f"Extra {number}")
        for number in range(4):
            scope = play.begin()
            assert scope
            play.step(scope, "read", 1500)
            play.step(scope, "big", 70_000 if number == 0 else 30)
            play.effect(scope, "send")
            play.commit(scope, talk=True, size=900)
            play.workspace.checkpoint_if_due()
        play.workspace.close("paused")
    with playing(system) as play:
        for _ in range(3):
            go_on(play)
            play.workspace.checkpoint("milestone")
            play.workspace.checkpoint_if_due()
        play.workspace.close("paused")
    with playing(system) as play:
        go_on(play)
        play.workspace.close("paused")


_KEEPS_LITTLE = {"workspace.yaml": _definition("prunes") + b"keep: {history: 1, checkpoints: 1}\n"}


def _outputs(system: Memory) -> None:
    with playing(system) as play:
        play.start()
        for number in range(3):
            scope = play.begin()
            assert scope
            made = play.output("report.md", f"version {number}\n" * 300)
            made |= play.output(f"parts/{number}.md", f"part {number}\n")
            play.step(scope, "read", 70_000 if number == 0 else 20)
            play.commit(scope, outputs=made, talk=True)
        play.workspace.close("completed")


def _plan_of_a_person(system: Memory) -> None:
    with playing(system) as play:
        play.start()
        for _ in range(2):
            go_on(play)


_PLAN = b"# Mail\r\n\r\n- [ ] Call back\r\n- [ ] Call back\r\n  - [ ] Find the number\r\n\r\nThanks.\r\n"

_OTHERS = {"asks-people": Answering(), "pauses": Pausing(), "returns": Returning(), "holds": Holding()}
_EVERY = {"asks-people": 4, "pauses": 4, "returns": 4, "obeys-once": 8, "tree": 12, "tree-pipelined": 12}

WORKLOADS = {
    each.name: each._replace(files={"workspace.yaml": _definition(each.name), **each.files})
    for each in (
        Workload("commits", {}, _commits),
        Workload("just-made", {}, _just_made, is_new=True),
        Workload("travelling", {}, _travelling),
        Workload("effects", {}, _effects),
        Workload("streams", {}, _streams),
        Workload("growth", {}, _growth),
        Workload("prunes", _KEEPS_LITTLE, _prunes),
        Workload("outputs", {}, _outputs),
        Workload("persons-plan", {"todo.md": _PLAN}, _plan_of_a_person),
        Workload("agent", {}, agents.live, agents.finish),
        Workload("parallel", {}, partial(agents.live, parallel=3), partial(agents.finish, parallel=3)),
        Workload("pipelined", {}, pipelined.live, pipelined.finish),
        Workload("inbox", inboxes.FILES, inboxes.live, inboxes.finish),
    )
} | {
    name: Workload(
        name, {}, each.live, each.finish, each, _EVERY.get(name, 1), takes="hold" if name == "holds" else "run"
    )
    for name, each in {**EDITINGS, **_OTHERS}.items()
}
"""Each is a run of another name, so no two share a state."""
