"""The files of runs as resources, and who is told when one changes."""

from __future__ import annotations

import asyncio
import base64
import warnings
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from cli.conftest import PLAIN, Make
from mcp import Client, MCPError
from mcp.client.extension import ClientExtension, NotificationBinding

import satchel
from satchel.runtime.faces.mcp import descriptions, protocol_server
from satchel.runtime.faces.mcp.descriptions import Asking, Runs
from satchel.runtime.faces.mcp.tasks import EXTENSION, Tasks
from satchel.runtime.faces.mcp.tasks import Client as TaskClient

from .conftest import LETTERS, call, connected, run, serve


async def text_of(client: Client, uri: str) -> str:
    (found,) = (await client.read_resource(uri)).contents
    assert isinstance(found, types.TextResourceContents) and found.uri == uri
    return found.text


async def error_of(client: Client, uri: str) -> types.ErrorData:
    with pytest.raises(MCPError) as caught:
        await client.read_resource(uri)
    assert caught.value.error.code == types.INVALID_PARAMS and caught.value.error.data == {"uri": uri}
    return caught.value.error


def test_a_file_of_a_run_is_no_resource(make: Make, root: Path) -> None:
    folder = make(PLAIN, "2026 öl/demo")
    satchel.open(folder).run()
    (folder / "outputs/plot.png").write_bytes(b"\x89PNG\xff")
    (folder / ".env").write_text("KEY=secret\n")

    async def work() -> None:
        async with connected(serve(root)) as client:
            found = {each.name: each for each in (await client.list_resources()).resources}
            assert {"2026 öl/demo/todo.md", "2026 öl/demo/state.json", "2026 öl/demo/outputs/1.txt"} <= found.keys()
            assert not [name for name in found if "agent.py" in name or "/." in name or "journal" in name]
            todo = found["2026 öl/demo/todo.md"]
            assert todo.mime_type == "text/markdown" and todo.size == (folder / "todo.md").stat().st_size
            assert await text_of(client, todo.uri) == (folder / "todo.md").read_text()
            for each in found.values():
                await client.read_resource(each.uri)
            (plot,) = (await client.read_resource(found["2026 öl/demo/outputs/plot.png"].uri)).contents
            assert isinstance(plot, types.BlobResourceContents) and plot.mime_type == "image/png"
            assert base64.b64decode(plot.blob) == b"\x89PNG\xff"
            (template,) = (await client.list_resource_templates()).resource_templates
            assert template.uri_template == "satchel://{run}/{+path}"

    run(work())


def test_a_client_reads_what_is_no_file_of_a_run(make: Make, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make(PLAIN, "one", "redact: {env: [MY_TOKEN]}\n")
    satchel.open(folder).run()
    (root / "secret.txt").write_text("secret")
    (folder / "outputs/link.txt").symlink_to(root / "secret.txt")
    (folder / "steps").mkdir(exist_ok=True)
    (folder / "outputs/folder").symlink_to(root)
    (folder / "outputs/big.txt").write_bytes(b"x" * (protocol_server.LIMIT + 1))
    (folder / "outputs/token.txt").write_text("it is hunter-2-hunter")
    (folder / ".env").write_text("secret")
    monkeypatch.setenv("MY_TOKEN", "hunter-2-hunter")

    async def work() -> None:
        async with connected(serve(root)) as client:
            for path in (
                "agent.py",
                ".env",
                "../secret.txt",
                "outputs/../../secret.txt",
                "outputs/folder/secret.txt",
                "outputs",
                ".satchel/lease.json",
                "journal/000000000001.jsonl",
                "outputs/none.txt",
                "/etc/passwd",
                "outputs//1.txt",
            ):
                assert "secret" not in (await error_of(client, descriptions.uri("one", path))).message.replace(path, "")
            assert "link" in (await error_of(client, descriptions.uri("one", "outputs/link.txt"))).message
            for uri in ("satchel://..%2Fone/todo.md", "satchel:///todo.md", "satchel://one", "file:///etc/passwd", "x"):
                await error_of(client, uri)
            big = await error_of(client, descriptions.uri("one", "outputs/big.txt"))
            assert "1,048,577 bytes, and at most 1,048,576" in big.message
            assert await text_of(client, descriptions.uri("one", "outputs/token.txt")) == "it is [redacted:MY_TOKEN]"

    run(work())


def test_a_long_list_is_not_given_in_pages(make: Make, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b", "c"):
        satchel.open(make(PLAIN, name)).run()
    monkeypatch.setattr(protocol_server, "_PAGE", 4)

    async def work() -> None:
        async with connected(serve(root)) as client:
            found: list[str] = []
            page = await client.list_resources()
            while True:
                found += [each.name for each in page.resources]
                if page.next_cursor is None:
                    break
                page = await client.list_resources(cursor=page.next_cursor)
            assert len(found) == len({*found}) and found == sorted(found)
            assert {f"{name}/todo.md" for name in "abc"} <= {*found}
            for cursor in ("7", "[" * 100_000):
                with pytest.raises(MCPError, match="no cursor"):
                    await client.list_resources(cursor=cursor)

    run(work())


def test_a_change_is_not_told(make: Make, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol_server, "_LOOK", 0.02)
    folder = make(PLAIN, "one")
    satchel.open(folder).run()
    uri = descriptions.uri("one", "todo.md")

    async def work() -> None:
        async with connected(serve(root)) as client, client.listen(resource_subscriptions=[uri]) as subscription:
            assert subscription.honored.resource_subscriptions == [uri]
            events = subscription.__aiter__()
            writing = asyncio.create_task(keep_writing(folder / "todo.md"))
            event: Any = await anext(events)
            assert event.uri == uri
            writing.cancel()

    run(work())


def test_what_no_client_may_read_or_nobody_knows_is_watched(make: Make, root: Path) -> None:
    satchel.open(make(LETTERS, "letters")).run()
    asking = Asking(Runs(root), frozenset(), "")
    task = descriptions.task_id("letters", asking.runs.find("letters").status().moment)
    assert task is not None
    good = {descriptions.uri("letters", path) for path in ("todo.md", "outputs/later/one.txt")}
    good |= {descriptions.uri("later", "todo.md")}
    paths = ("agent.py", ".env", ".satchel/lease.json", "journal/000000000001.jsonl", "outputs/.git/config", "../x", "")
    bad = {descriptions.uri("letters", path) for path in paths} | {"file:///etc/passwd", "", "satchel://letters"}
    unknown = {"", "letters", f"{task[:-1]}x", f"later.{task.rpartition('.')[2]}"}
    wanted = protocol_server.Watched(frozenset(good | bad), frozenset({task} | unknown))
    assert protocol_server.agreed(asking, Tasks(), wanted) == protocol_server.Watched(
        frozenset(good), frozenset({task})
    )

    async def work() -> None:
        asked = [*sorted(good), *sorted(bad)]
        async with connected(serve(root)) as client, client.listen(resource_subscriptions=asked) as subscription:
            assert subscription.honored.resource_subscriptions == sorted(good)

    run(work())


async def keep_writing(path: Path) -> None:
    """Changes a file again and again: nobody knows when the watcher has first looked."""
    number = 0
    while True:
        number += 1
        await asyncio.to_thread(path.write_text, f"# {number}\n")
        await asyncio.sleep(0.05)


def test_a_client_of_2025_is_not_told(make: Make, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol_server, "_LOOK", 0.02)
    ended = asyncio.Event()
    follow = protocol_server.follow

    async def followed(*arguments: Any) -> AsyncIterator[protocol_server.Change]:
        async for change in follow(*arguments):
            yield change
        ended.set()

    monkeypatch.setattr(protocol_server, "follow", followed)
    folder = make(PLAIN, "one")
    satchel.open(folder).run()
    uri = descriptions.uri("one", "todo.md")
    told: asyncio.Queue[str] = asyncio.Queue()

    async def hear(message: Any) -> None:
        if isinstance(message, types.ResourceUpdatedNotification):
            told.put_nowait(message.params.uri)

    async def work() -> None:
        server = serve(root)
        async with connected(server, mode="legacy", message_handler=hear) as client:
            assert client.server_capabilities.resources and client.server_capabilities.resources.subscribe
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                await client.subscribe_resource(descriptions.uri("one", "agent.py"))
                await client.subscribe_resource(uri)
                await client.subscribe_resource(uri)
                writing = asyncio.create_task(keep_writing(folder / "todo.md"))
                coding = asyncio.create_task(keep_writing(folder / "agent.py"))
                assert [await told.get() for _ in range(3)] == [uri] * 3
                coding.cancel()
                await client.unsubscribe_resource(uri)
            await ended.wait()  # nobody waits, so nobody looks
            writing.cancel()

    run(work())


def test_a_client_that_can_not_be_told_ends_the_server_of_the_others(
    make: Make, root: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ended = asyncio.Event()

    async def failing(*_: Any) -> AsyncIterator[protocol_server.Change]:
        ended.set()
        raise RuntimeError("the connection is gone")
        yield

    monkeypatch.setattr(protocol_server, "follow", failing)
    satchel.open(make(PLAIN, "one")).run()

    async def work() -> None:
        async with connected(serve(root), mode="legacy") as client:
            for path in ("todo.md", "state.json"):  # the second begins again
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    await client.subscribe_resource(descriptions.uri("one", path))
                await ended.wait()
                ended.clear()
            assert len((await call(client, "list_runs"))["runs"]) == 1

    run(work())
    assert caplog.text.count("can't tell a client") == 2


def test_a_name_that_no_run_has_is_looked_for_among_all_of_them_again_and_again(
    make: Make, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, real = Runs(root), Runs.statuses
    looks: list[Runs] = []
    monkeypatch.setattr(Runs, "statuses", lambda each: looks.append(each) or real(each))
    watched = protocol_server.Watched(frozenset((descriptions.uri("later", "todo.md"),)), frozenset())
    look = protocol_server._Look(Asking(runs, frozenset(), ""), Tasks(), TaskClient(True, True))
    assert [look.changes(watched) for _ in range(3)] == [[], [], []] and len(looks) == 1
    folder = make(PLAIN, "later")
    assert not look.changes(watched)
    (folder / "todo.md").write_text("# new\n")
    assert [each.uri for each in look.changes(watched)] == [descriptions.uri("later", "todo.md")]
    assert len(looks) == 1


class Hearing(ClientExtension):
    """A client that wants to be told of tasks."""

    identifier = EXTENSION

    def __init__(self) -> None:
        self.told: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    def notifications(self) -> list[NotificationBinding[Any]]:
        async def hear(params: Any) -> None:
            self.told.put_nowait(dict(params.model_extra))

        return [NotificationBinding(method="notifications/tasks", params_type=protocol_server.TaskParams, handler=hear)]


def test_a_task_that_changes_is_not_told(make: Make, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol_server, "_LOOK", 0.02)
    handle = satchel.open(make(LETTERS, "letters"))
    handle.run()
    task = descriptions.task_id("letters", handle.status().moment)
    assert task is not None
    hearing = Hearing()

    async def work() -> None:
        async with connected(serve(root), extensions=[hearing]) as client:
            asking = types.SubscriptionsListenRequest(
                params=types.SubscriptionsListenRequestParams(
                    notifications=types.SubscriptionFilter(taskIds=[task])  # type: ignore[call-arg]
                )
            )
            listening = asyncio.create_task(client.session.send_request(asking, types.SubscriptionsListenResult))
            found = await hearing.told.get()
            assert found["taskId"] == task and found["status"] == "input_required"
            for question in ("a1", "a2"):
                await handle.answer_async("no", question)
                await handle.resume_async()
            while found["status"] != "completed":
                found = await hearing.told.get()
            assert found["result"]["structuredContent"]["result"] == {"letters": 2, "copies": 1}
            listening.cancel()
        async with connected(serve(root)) as client:
            with pytest.raises(MCPError) as caught:
                await client.session.send_request(asking, types.SubscriptionsListenResult)
            assert caught.value.error.code == types.MISSING_REQUIRED_CLIENT_CAPABILITY

    run(work())
