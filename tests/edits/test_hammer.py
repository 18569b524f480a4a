"""Two thousand edits at random moments of a run that is going, saved in every way that editors save."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from satchel.workspace import journal
from satchel.workspace.record import Edited, Opened
from satchel.workspace.store import DiskStore

from . import hammer

_TESTS = Path(__file__).parent.parent
_PATIENCE = 300.0


def _start(*words: object, edits: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "edits.hammer", *map(str, words)]
    environment = os.environ | {"HAMMER_EDITS": str(edits)}
    return subprocess.Popen(
        command, cwd=_TESTS, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


@pytest.mark.parametrize(
    ("seed", "edits"), [(1, 60), pytest.param(2, 2000, marks=pytest.mark.slow)], ids=["60", "2000"]
)
def test_an_edit_of_a_running_plan_is_lost(tmp_path: Path, seed: int, edits: int) -> None:
    print("seed", seed, "edits", edits)
    folder = tmp_path / "w"
    folder.mkdir()
    (folder / "workspace.yaml").write_text("format: 1\nrun_id: hammer\nagent: agent.py:main\n")
    (folder / "todo.md").write_text(hammer.plan())
    running = _start("run", folder, edits=edits)
    editing = None
    try:
        while "^t1\n" in (text := (folder / "todo.md").read_text()) and "satchel" not in text:
            assert running.poll() is None, running.communicate()[0]
        editing = _start("edit", folder, seed, edits=edits)
        told = editing.communicate(timeout=_PATIENCE)[0]
        assert editing.returncode == 0, told
        said = running.communicate(timeout=_PATIENCE)[0]
    finally:
        for process in (running, editing):
            if process is not None and process.poll() is None:
                process.kill()
                process.communicate()
    assert running.returncode == 0, said
    again = _start("run", folder, edits=edits)  # the last saves may have come when it had looked for the last time
    said = again.communicate(timeout=_PATIENCE)[0]
    assert again.returncode == 0, said

    left = sorted(path.name for path in folder.iterdir() if "rejected" in path.name or path.name == "conflicts")
    assert not left, (left, (folder / left[0]).read_text() if left[0].endswith("txt") else "")
    text, state = (folder / "todo.md").read_text(), (folder / "state.json").read_text()
    lost = []
    saved = [line.split() for line in (tmp_path / "saved.log").read_text().splitlines()]
    assert len(saved) == edits
    for kind, word, *id in saved:
        wanted = {
            "remark": f"\n### Remark {word} of a person  \n", "item": f"- [x] Extra {word} ^",
            "note": f"  - a note, {word}\n",
            "reword": f"- [x] Task {word} ^{id[0] if id else ''}\n", "data": f'    "{word}": {word.strip("E")}',
        }[kind]  # fmt: skip
        if (state if kind == "data" else text).count(wanted) != 1:
            lost.append(f"{kind} {word}")
    assert not lost, f"{len(lost)} of {edits} edits: {lost[:20]}"
    items = re.findall(r"^- \[(.)\] (?:Task|Extra) .* \^(\w+)$", text, flags=re.MULTILINE)
    extra = sum(kind == "item" for kind, *_ in saved)
    assert len(items) == hammer.ITEMS + extra and {mark for mark, _ in items} == {"x"}
    done = Counter((tmp_path / "done.log").read_text().splitlines())
    assert done == {f"{what} {id}": 1 for what in ("step", "effect") for _, id in items}, "each once, and all of them"
    assert text.startswith(hammer.INTRO), "the text outside"
    assert _without_edits(text) == hammer.plan().replace("[ ] Task", "[x] Task")

    records = [line.record for line in journal.read(DiskStore(folder), after=0).lines]
    second = [number for number, record in enumerate(records) if isinstance(record, Opened)][1]
    taken = sum(isinstance(record, Edited) for record in records[:second])
    print(f"{taken} times edits were taken while it was running, {len(records)} records")
    assert taken >= edits // 100, "most of them while it was running"


def _without_edits(text: str) -> str:
    text = re.sub(r"\n<!-- satchel [^\n]*-->\n\Z", "", text)
    text = re.sub(r"^- \[x\] Extra .*\n|^  - a note, .*\n|^### Remark .*  \n", "", text, flags=re.MULTILINE)
    text = re.sub(r"^(- \[.\] Task) .* \^t(\d+)$", r"\1 \2 ^t\2", text, flags=re.MULTILINE)
    return text
