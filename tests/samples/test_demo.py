"""`make demo` shows what it says, and would say so if it were otherwise."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

DEMO = Path(__file__).parents[2] / "tools" / "demo.py"


def play(place: Path) -> str:
    """What the demo says. A key in the environment must not make it ask a model."""
    environment = {**os.environ, "OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}
    done = subprocess.run(
        [sys.executable, DEMO], cwd=place, env=environment, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def load() -> Any:
    spec = importlib.util.spec_from_file_location("demo", DEMO)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def cut_off(demo: Any) -> Any:
    """What the demo has seen after the kill, read from what became of it."""
    (recovered,) = demo.RUN.glob("recovered/*/*.md")
    text = demo.body_of(recovered).rpartition("\n\n[recovered: ")[0]
    return demo.CutOff(recovered, demo.item_of(recovered), text)


@pytest.mark.slow
def test_the_demo_does_not_show_what_it_says_or_would_not_notice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One test, as a demo takes ten seconds."""
    monkeypatch.chdir(tmp_path)
    said = play(tmp_path)
    assert re.search(
        r"^Not done again: [2-5] finished summaries, and the first \d+ characters of the one that was cut off\. "
        r"The journal has 13 results, each of them once\.$",
        said,
        re.MULTILINE,
    )
    assert said.splitlines()[-1] == "The model was asked once, for 92 tokens. Tokens paid twice: 0."
    for line in (" [/] Summarise ", " [x] Summarise ", "/02-summarise.md\n    ---\n", "# Digest of 6 documents"):
        assert line in said, line
    assert said.index("kill -9 ") < said.index("$ satchel status ") < said.index("$ satchel resume ")

    demo = load()
    what, records = cut_off(demo), demo.journal()
    assert demo.check(what, records[:5])
    with pytest.raises(demo.Wrong, match="not in the journal any more"):
        demo.check(what, [{**records[0], "seq": 0}])
    with pytest.raises(demo.Wrong, match="no summary goes on"):
        demo.check(what._replace(text="X" * len(what.text)), [])
    (again,) = [record for record in records if record["type"] == "step.completed" and record["step"] == "find"]
    monkeypatch.setattr(demo, "journal", lambda: [*records, again])
    with pytest.raises(demo.Wrong, match="done twice"):
        demo.check(what, records[:5])
    with demo.counting() as model:
        model.asked, model.paid = 1, 1
        with pytest.raises(demo.Wrong, match="asked 2 times, for 93 tokens"):
            demo.pay_once(model)
