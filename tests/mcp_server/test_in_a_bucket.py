"""Runs in a bucket, with a real server: the same tools, tasks and files."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from servers import SeaweedFS

import satchel
from satchel.runtime.faces.mcp import descriptions, protocol_server

from .conftest import LETTERS, ask, call, connected, refusal, run, serve, until
from .test_resources import text_of
from .test_tasks import accept

pytestmark = pytest.mark.slow


@pytest.fixture
def bucket(seaweedfs: SeaweedFS, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A root with one run."""
    for name, value in seaweedfs.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    place: str = seaweedfs.place()
    bucket, _, prefix = place.removeprefix("s3://").partition("/")
    files = {"workspace.yaml": "format: 1\nrun_id: letters-1\nagent: agent.py:main\n", "agent.py": LETTERS}
    for name, text in files.items():
        key = f"{prefix}/2026/letters/{name}".lstrip("/")
        seaweedfs.client.put_object(Bucket=bucket, Key=key, Body=text.encode())
    return place


def test_a_run_in_a_bucket_is_not_served(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol_server, "_LOOK_REMOTELY", 0.1)
    handle = satchel.open(f"{bucket}/2026/letters")

    async def work() -> None:
        server = serve(bucket, "start,answer,resume")
        async with connected(server, has_tasks=True, can_ask=True) as client:
            (line,) = (await call(client, "list_runs"))["runs"]
            assert line["run"] == "2026/letters" and line["task_id"] is None
            assert "there are: 2026/letters" in await refusal(client, "status", run="letters")
            await handle.run_async()
            task = (await call(client, "status", run="2026/letters"))["task_id"]
            asked = await ask(client, "tasks/get", task)
            assert [*asked["inputRequests"]] == ["a1"] and task.startswith("2026%2Fletters.")
            uri = descriptions.uri("2026/letters", "state.json")
            assert '"waiting"' in await text_of(client, uri)
            listed = (await client.list_resources()).resources
            assert uri in [each.uri for each in listed] and not [each for each in listed if "agent.py" in each.name]
            async with client.listen(resource_subscriptions=[uri]) as subscription:
                answering = asyncio.create_task(keep_answering(client, task))
                event: Any = await anext(subscription.__aiter__())
                assert event.uri == uri
                ended = await answering
            assert ended["result"]["structuredContent"]["result"] == {"letters": 2, "copies": 1}

    run(work())
    assert [row.record["decision"] for row in handle.history.log(type="approval.answered")] == ["yes", "yes"]


async def keep_answering(client: Any, task: str) -> dict[str, Any]:
    """The completed task. Between the answers the run is resumed in the background."""
    while (found := await until(client, task, "input_required", "completed"))["status"] != "completed":
        await asyncio.sleep(0.5)  # the watcher has looked
        answers = {id: accept(decision="yes") for id in found["inputRequests"]}
        await ask(client, "tasks/update", task, input_responses=answers)
    return found
