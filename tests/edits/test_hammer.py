"""Edits at random moments of a run that is going, saved in every way that editors save: two thousand in a soak."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
import warm
from places import on_disk
from properties import ROUNDS

from satchel.workspace import journal
from satchel.workspace.journal import Edited, Opened
from satchel.workspace.store import DiskStore

from . import hammer

_START = "import sys; sys.path.insert(0, sys.argv.pop(1)); from edits import hammer; hammer.main(*sys.argv[1:])"
_PATIENCE = 300.0

__all__ = ["on_disk"]


def _start(*words: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _START, str(Path(__file__).parents[1]), *map(str, words)]
    return warm.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.mark.long
@pytest.mark.parametrize(("seed", "edits", "items"), [(1, 60, 100), (2, 150 * ROUNDS, 300)], ids=["few", "many"])
@pytest.mark.slow
def test_an_edit_of_a_running_plan_is_lost(tmp_path: Path, seed: int, edits: int, items: int) -> None:
    print("seed", seed, "edits", edits)
    folder = tmp_path / "w"
    folder.mkdir()
    (folder / "workspace.yaml").write_text("format: 1\nrun_id: hammer\nagent: agent.py:main\n")
    (folder / "todo.md").write_text(hammer.plan(items))
    running = _start("run", folder)
    editing = None
    try:
        state = folder / "state.json"
        while not (state.exists() and '"data": {' in state.read_text()):  # before that there is nothing to edit
            assert running.poll() is None, running.communicate()[0]
            time.sleep(0.01)
        editing = _start("edit", folder, seed, edits)
        told = editing.communicate(timeout=_PATIENCE)[0]
        assert editing.returncode == 0, told
        said = running.communicate(timeout=_PATIENCE)[0]
    finally:
        for process in (running, editing):
            if process is not None and process.poll() is None:
                process.kill()
                process.communicate()
    assert running.returncode == 0, said
    again = _start("run", folder)  # the last saves may have come when it had looked for the last time
    said = again.communicate(timeout=_PATIENCE)[0]
    assert again.returncode == 0, said

    rejected = [*folder.glob("*.rejected*")]
    reasons = [path.read_text() for path in rejected if path.suffix == ".txt"]
    assert all("was saved twice at the same time" in reason for reason in reasons), reasons
    assert not (folder / "conflicts").exists()
    kept = "".join(path.read_text() for path in rejected)  # of two saves in one moment the earlier one is kept there
    text, state = (folder / "todo.md").read_text(), (folder / "state.json").read_text()
    lost = []
    saved = [line.split() for line in (tmp_path / "saved.log").read_text().splitlines()]
    assert len(saved) == edits
    for kind, word, *id in saved:
        wanted = {
            "remark": f"\n### Remark {word} of a person  \n",
            "item": f"- [x] Extra {word} ^",
            "note": f"  - a note, {word}\n",
            "reword": f"- [x] Task {word} ^{id[0] if id else ''}\n",
            "data": f'    "{word}": {word.strip("E")}',
        }[kind]
        if (state if kind == "data" else text).count(wanted) != 1 and not (kind == "data" and wanted in kept):
            lost.append(f"{kind} {word}")
    assert not lost, f"{len(lost)} of {edits} edits: {lost[:20]}"
    listed = re.findall(r"^- \[(.)\] (?:Task|Extra) .* \^(\w+)$", text, flags=re.MULTILINE)
    extra = sum(kind == "item" for kind, *_ in saved)
    assert len(listed) == items + extra and {mark for mark, _ in listed} == {"x"}
    done = Counter((tmp_path / "done.log").read_text().splitlines())
    assert done == {f"{what} {id}": 1 for what in ("step", "effect") for _, id in listed}, "each once, and all of them"
    assert text.startswith(hammer.INTRO), "the text outside"
    assert _without_edits(text) == hammer.plan(items).replace("[ ] Task", "[x] Task")

    records = [line.record for line in journal.read(DiskStore(folder), after=0).lines]
    openings = [number for number, record in enumerate(records) if isinstance(record, Opened)]
    first = records[: openings[1]] if openings[1:] else records  # a run that is whole is not opened again
    taken = sum(isinstance(record, Edited) for record in first)
    print(f"{taken} times edits were taken while it was running, {len(records)} records")
    assert taken >= edits // 100, "most of them while it was running"


def _without_edits(text: str) -> str:
    text = re.sub(r"\n<!-- satchel [^\n]*-->\n\Z", "", text)
    text = re.sub(r"^- \[x\] Extra .*\n|^  - a note, .*\n|^### Remark .*  \n", "", text, flags=re.MULTILINE)
    text = re.sub(r"^(- \[.\] Task) .* \^t(\d+)$", r"\1 \2 ^t\2", text, flags=re.MULTILINE)
    return text
