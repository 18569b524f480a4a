"""`recover`: everything an opening repairs, and nothing of the agent."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

from .conftest import SLOW, Cli, Make, contents, data_of

Started = Callable[..., subprocess.Popen[str]]


def test_a_new_run_is_begun(make: Make, cli: Cli) -> None:
    folder = make()
    before = contents(folder)
    result = cli("recover", folder)
    assert result.exit_code == 0 and "there is nothing to recover" in result.stdout
    assert contents(folder) == before


def test_the_agent_is_run(make: Make, started: Started, cli: Cli) -> None:
    folder = make(SLOW)
    process = started(folder)
    process.kill()
    process.communicate()
    (folder / "agent.py").write_text("raise SystemExit(99)\n")
    result = cli("recover", folder)
    assert result.exit_code == 0
    assert "crashed or was killed" in result.stdout and "characters of an unfinished answer" in result.stdout
    (recovered,) = (folder / "recovered").rglob("*.md")
    assert "[recovered: the answer of attempt 1 was cut off after" in recovered.read_text()
    assert not Path(folder, "partials").exists()
    assert data_of(cli("check", "--json", folder))["ok"]
    told = data_of(cli("recover", "--json", folder))
    assert told["has_begun"] and told["report"][-1]["text"].startswith("nothing: ")
