"""An edit that waits for the end of a scope costs the run nothing meanwhile: it wakes nothing, and is judged once more
only at that end."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from satchel import Item, Run, agent, step
from satchel.runtime.execution import live_edits
from satchel.runtime.execution.live_edits import LiveEdits
from satchel.runtime.live import folder_watch

from .folder import Place
from .running import Gate, going


def make(gate: Gate, most: int) -> Any:
    @step
    def note(what: str) -> str:
        gate.pass_through(what)
        return what

    async def work(run: Run[Any], item: Item) -> None:
        await note(item.text)

    @agent
    async def main(run: Run[Any]) -> None:
        await run.plan("Work", ["one", "two"])
        await run.todo.each(work, parallel=most)

    return main


@pytest.mark.parametrize("most, edited", [(1, "- [ ] three\n- [/] one"), (2, "- [-] one")])
def test_an_edit_that_waits_wakes_the_run_or_is_judged_again(
    most: int, edited: str, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged, looks, rests = 0, 0, list[float]()  # the rests are those with an edit that waits
    watch: LiveEdits
    real_notice, real_changed = live_edits.notice, LiveEdits._is_ready

    def notice(*args: Any, **options: Any) -> Any:
        nonlocal judged
        judged += 1
        return real_notice(*args, **options)

    def changed(self: LiveEdits) -> bool:
        nonlocal looks, watch
        watch = self
        looks += self._waits
        return real_changed(self)

    def timeout(seconds: float) -> Any:
        if watch._waits:
            rests.append(seconds)
        return asyncio.timeout(seconds)

    monkeypatch.setattr(live_edits, "notice", notice)
    monkeypatch.setattr(LiveEdits, "_is_ready", changed)
    monkeypatch.setattr(folder_watch, "asyncio", SimpleNamespace(**{**vars(asyncio), "timeout": timeout}))
    gate = Gate("one")
    with going(place, make(gate, most), gate) as running:
        running.reach("one")
        place.edit("todo.md", ("- [/] one", edited))
        running.until(lambda: judged, "the judgement")
        for number in range(1, 4):  # the system reports changes that are nothing to the run
            (place.folder / f"mine-{number}").write_text("a note")
            running.until(lambda number=number: looks >= number, "a look")
        assert judged == 1 and rests and {*rests} == {folder_watch._RESCAN}
        gate.open()
        assert running.end().status == "completed"
    assert judged == 2 and place.edited[0].file == "todo.md"
