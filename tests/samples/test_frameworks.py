"""The programs of docs/frameworks.md: a session service of Google ADK and a session repository of Strands, each
with its framework, killed and started again.

`make frameworks` installs each into a virtual environment of its own, because their dependencies exclude each other and
those of other tests. Without it these tests are skipped.
"""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

import satchel

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/frameworks.md").read_text()
FILES = dict(re.findall(r"^```python ([\w/.]+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
SAYS = re.compile(r"^```text\n\$ (python (?P<folder>\w+)/talk\.py .*?)^```$", re.MULTILINE | re.DOTALL)

pytestmark = pytest.mark.slow


@pytest.fixture(params=["adk", "strands"])
def framework(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path]:
    """Its name, and the Python that has it. Its programs are in `tmp_path`."""
    python = ROOT / f".venv-{request.param}/bin/python"
    if not python.exists():
        pytest.skip("`make frameworks` installs it")
    for path, text in FILES.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    return request.param, python


def talk(framework: tuple[str, Path], folder: Path, *words: str) -> subprocess.Popen[str]:
    name, python = framework
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}", "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(
        [python, "-W", "ignore", f"{name}/talk.py", *words],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )


def told(program: subprocess.Popen[str]) -> list[str]:
    said = program.communicate(timeout=120)[0]
    return [line for line in said.splitlines() if line]


def test_the_programs_do_not_say_what_the_page_says(framework: tuple[str, Path], tmp_path: Path) -> None:
    (shown,) = (found[1] for found in SAYS.finditer(PAGE) if found["folder"] == framework[0])
    played = re.split(r"^\$ ", shown, flags=re.MULTILINE)
    assert len(played) >= 2
    for command, *expected in (each.splitlines() for each in played if each.startswith("python")):
        program = talk(framework, tmp_path, *command.split()[2:])
        assert told(program) == expected and program.returncode == -signal.SIGKILL
    for run in satchel.open_all(tmp_path):
        assert run.check().ok and run.status().state == "held"


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 5))])
def test_what_was_told_before_a_kill_is_lost(framework: tuple[str, Path], tmp_path: Path, seed: int) -> None:
    chance, answered = random.Random(seed), 0
    for _ in range(3):
        with talk(framework, tmp_path, *map(str, range(5))) as program:
            assert program.stdout is not None
            for _ in range(chance.randint(1, 4)):  # Strands shows a model the last 40 messages
                while not (line := program.stdout.readline()).strip():
                    assert line or program.poll() is None
                assert int(line.partition(":")[0]) in (answered + 1, answered + 2), "lost, or doubled"
                answered = int(line.partition(":")[0])
            time.sleep(chance.random() * 0.01)
            program.kill()
            for line in (line for line in program.stdout if re.match(r"\d+: ", line)):
                answered = int(line.partition(":")[0])
    reply, _ = told(talk(framework, tmp_path, "last"))
    assert int(reply.partition(":")[0]) in (answered + 1, answered + 2)
