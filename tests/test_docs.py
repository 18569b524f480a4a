"""Every page is a story that is played: its files are written, its commands typed, its output compared. That takes
minutes; `-k folder.md` plays one page.

A block opened with a language and a file name is written to that file; a `console` block is typed line by line (`$ `),
and what stands below a command must be what it prints, with `...` for anything. A block with the name of a file of a
sample is an excerpt of it, with lines `...` for what is left out.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import programs
import pytest
import uploading
import warm
from servers import Server
from waits import PATIENCE

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_BLOCK = re.compile(r"^```(\w+)(?: +([\w./-]+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def like(expected: str, found: str) -> bool:
    pattern = "".join(".*?" if part == "..." else re.escape(part) for part in re.split(r"(\.\.\.)", expected.strip()))
    return re.fullmatch(pattern, found.strip(), re.DOTALL) is not None


def check_excerpt(name: str, excerpt: str) -> None:
    left = (ROOT / name).read_text()
    for part in re.split(r"^ *\.\.\.\n", excerpt, flags=re.MULTILINE):
        _, found, left = left.partition(part.strip("\n"))
        assert found, f"{name} has not, at this place:\n{part}"


def type_in(block: str, folder: Path) -> None:
    path = f"{folder / '.bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "COLUMNS": "100", "PYTHONUNBUFFERED": "1"}  # as on a terminal
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY"):
        environment.pop(name, None)
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=folder,
            env=environment,
            timeout=120,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        found = re.sub(r"[ \t]+$", "", done.stdout, flags=re.MULTILINE)
        assert not expected.strip() or like(expected, found), f"$ {command}\n{found}\nexit code {done.returncode}"


@pytest.fixture
def typed(tmp_path: Path) -> Iterator[None]:
    """`satchel` and `aws` are found, the first as a warm process."""
    (tmp_path / ".bin").mkdir()
    aws = f"import runpy; runpy.run_path({uploading.__file__!r}, run_name='__main__')"
    with programs.found_in(tmp_path / ".bin", {"satchel": ["-m", "satchel"], "aws": ["-c", aws]}):
        yield


@pytest.fixture
def bucket(seaweedfs: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """`my-bucket` is there, and the environment knows the server."""
    seaweedfs.client.create_bucket(Bucket="my-bucket")
    for name, value in seaweedfs.environment().items():
        monkeypatch.setenv(name, value)


_LONG = ("agents.md", "bucket.md", "fleet.md", "folder.md", "metrics.md", "own-agent.md", "scaling.md", "testing.md")
"""Pages that wait for leases, for files that are being saved, for a metric to grow, and for a cluster."""

_OF_MANY = (
    "approvals.md",
    "backup.md",
    "comparing.md",
    "going-back.md",
    "keeping-small.md",
    "moving.md",
    "operating.md",
)
"""Pages of many commands."""

_ADAPTERS = ("adapters", "claude-agent-sdk", "deepagents", "langgraph", "openai-agents", "pydantic-ai")
"""Pages of which each command imports a framework, for seconds."""


@pytest.mark.usefixtures("typed")
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.slow] * (page.name in (*_LONG, *_OF_MANY) or page.stem in _ADAPTERS))
        for page in PAGES
    ],
    ids=lambda page: page.name,
)
def test_a_page_says_what_happens(page: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if page.name == "bucket.md":
        request.getfixturevalue("bucket")
    if page.name == "pydantic-ai.md":
        pytest.importorskip("pydantic_ai")
    if page.name == "langgraph.md":
        pytest.importorskip("langgraph")
    if page.name == "claude-agent-sdk.md":
        pytest.importorskip("claude_agent_sdk")
    if page.name == "fleet.md":
        pytest.importorskip("distributed")
    if page.name == "scaling.md":
        pytest.importorskip("celery")
    if page.name == "deepagents.md":
        pytest.importorskip("deepagents")
    if page.name == "openai-agents.md":
        pytest.importorskip("agents")
    for language, name, body in _BLOCK.findall(page.read_text()):
        if name.startswith("sample_workspaces/"):
            check_excerpt(name, body)
        elif name:
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(body)
        elif language == "console":
            type_in(body, tmp_path)
        elif language == "python":
            warm.run([sys.executable, "-c", body], cwd=tmp_path, check=True, timeout=PATIENCE)


def test_the_agent_of_the_readme_runs(tmp_path: Path) -> None:
    from satchel import run

    blocks = {name: body for _, name, body in _BLOCK.findall((ROOT / "README.md").read_text()) if name}
    (tmp_path / "agent.py").write_text(blocks["agent.py"])
    (tmp_path / "workspace.yaml").write_text("format: 1\nrun_id: readme-1\nagent: agent.py:main\n")
    outcome = run(tmp_path)
    assert outcome.status == "completed", outcome.error
    assert (tmp_path / "todo.md").read_text().count("- [x]") == 2
