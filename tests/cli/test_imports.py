"""What a command loads: one that only looks must not pay for running agents."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from satchel import run

_COMMAND = """
import sys
from satchel.__main__ import main
try:
    main()
finally:
    print(*sorted(sys.modules), file=sys.stderr)
"""

_HEAVY = {"asyncio", "fsspec", "jsonschema", "satchel.runtime.execution", "satchel.runtime.engine.session"}


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "demo"
    folder.mkdir()
    (folder / "workspace.yaml").write_text("format: 1\nrun_id: demo-1\nagent: agent.py:main\n")
    (folder / "agent.py").write_text(
        "from satchel import agent, step\n"
        "@step\ndef one() -> int:\n    return 1\n"
        "async def work(run, item):\n    run.state['one'] = await one()\n"
        "@agent\nasync def main(run):\n    await run.plan('Demo', ['a'])\n    await run.todo.each(work)\n"
    )
    assert run(folder).status == "completed"
    return folder


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize(
    "words",
    [
        "status",
        "ls",
        "log",
        "steps",
        "show latest",
        "diff ^1",
        "blame state.json",
        "answer",
        "pause",
        "send hello",
        "recover",
        "prune --dry-run",
    ],
)
def test_a_command_that_does_not_run_agents_loads_what_does(demo: Path, words: str) -> None:
    name, *rest = words.split()
    place = demo.parent if name == "ls" else demo
    done = subprocess.run(
        [sys.executable, "-c", _COMMAND, name, str(place), *rest], capture_output=True, text=True, timeout=60
    )
    assert "satchel.runtime.cli.group" in done.stderr, done.stderr
    assert not _HEAVY & {*done.stderr.split()}, done.stderr[:500]


def test_an_error_that_is_imported_loads_what_raises_it() -> None:
    command = "import sys; from satchel.errors import RecordedError, Refused, UsageError; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, timeout=60)
    assert "satchel.errors" in done.stdout and not _HEAVY & {*done.stdout.split()}
