"""Sessions of the Claude Agent SDK in workspaces, and its questions about tools in the run."""

from __future__ import annotations

import asyncio
import itertools
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
import warm
from claude_agent_sdk import (
    ClaudeAgentOptions,
    PermissionResultDeny,
    ResultMessage,
    create_sdk_mcp_server,
    delete_session_via_store,
    get_session_messages_from_store,
    list_sessions_from_store,
    project_key_for_directory,
    query,
    tool,
)
from claude_agent_sdk.testing import run_session_store_conformance
from properties import seed
from servers import Server
from stopping import Stop, completed, interrupted

import satchel
from satchel import Key, Outcome, Run, UsageError, agent, effect, run
from satchel.adapters.claude_agent_sdk import SatchelSessionStore, ask_people
from satchel.errors import LeaseHeld

KEY: Any = {"project_key": "-home-ann", "session_id": "5f0c"}
SUB: Any = {**KEY, "subpath": "subagents/agent-1"}


def entries(*uuids: str | None) -> list[Any]:
    return [{"type": "user", **({"uuid": uuid} if uuid else {}), "text": f"entry {uuid}"} for uuid in uuids]


def test_a_contract_of_the_sdk_is_broken_on_a_disk(tmp_path: Path) -> None:
    places = (tmp_path / str(number) for number in itertools.count())
    asyncio.run(run_session_store_conformance(lambda: SatchelSessionStore(next(places))))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["seaweedfs", pytest.param("moto", marks=pytest.mark.soak)])
def test_a_contract_of_the_sdk_is_broken_in_a_bucket(
    kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    server: Server = request.getfixturevalue(kind)
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    asyncio.run(run_session_store_conformance(lambda: SatchelSessionStore(server.place())))


@pytest.mark.parametrize(("kind", "again"), [("disk", False), ("disk", True), ("seaweedfs", True)])
def test_a_retry_adds_an_entry_twice(
    tmp_path: Path, again: bool, kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the same store, or by one in a later process. The contracts of the SDK do not test this."""
    place = str(tmp_path)
    if kind != "disk":
        server: Server = request.getfixturevalue(kind)
        place = server.place()
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)

    async def main() -> None:
        store = SatchelSessionStore(place)
        await store.append(KEY, entries("a", None, "b"))
        if again:
            store.close()
            store = SatchelSessionStore(place)
        await store.append(KEY, entries("a", "b"))
        await store.append(KEY, entries("b", "c", "c", None))  # a batch may overlap what was written in part
        assert await store.load(KEY) == entries("a", None, "b", "c", None)
        await store.append(SUB, entries("a"))
        assert await store.load(SUB) == entries("a")  # another transcript
        store.close()

    asyncio.run(main())


def test_a_store_remembers_all_transcripts_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("satchel.adapters.claude_agent_sdk._REMEMBERED", 1)

    async def main() -> None:
        store = SatchelSessionStore(tmp_path)
        for _ in range(2):
            for key in (KEY, SUB):
                await store.append(key, entries("a", "b"))
                assert len(store._known) == 1
        assert await store.load(KEY) == await store.load(SUB) == entries("a", "b")
        store.close()

    asyncio.run(main())


def test_an_entry_comes_back_changed(tmp_path: Path) -> None:
    async def main() -> None:
        odd: Any = {
            "type": "x",
            "deep": [{"": None, "é\u2028": [1e300, -0.0, True, "\ufffd", {}]}],
            "big": "a" * 200_000,
        }
        store = SatchelSessionStore(tmp_path)
        await store.append(KEY, [odd, odd])
        assert await store.load(KEY) == [odd, odd]
        store.close()

    asyncio.run(main())


@pytest.mark.parametrize("text", ["a/b", ".hidden", "..", "~", "=2F", "é ?*[#", "C:\\x", "x" * 200])
def test_a_key_is_mistaken_for_another(tmp_path: Path, text: str) -> None:
    async def main() -> None:
        store = SatchelSessionStore(tmp_path)
        key: Any = {"project_key": text, "session_id": text, "subpath": text}
        await store.append(key, entries("sub"))
        await store.append({"project_key": text, "session_id": text}, entries("main"))
        assert await store.load(key) == entries("sub")
        assert await store.list_subkeys({"project_key": text, "session_id": text}) == [text]
        assert [each["session_id"] for each in await store.list_sessions(text)] == [text]
        store.close()

    asyncio.run(main())
    assert len([*tmp_path.iterdir()]) == 1


@pytest.mark.parametrize("text", ["", "x" * 300])
def test_a_key_that_no_folder_can_have_is_cut(tmp_path: Path, text: str) -> None:
    store = SatchelSessionStore(tmp_path)
    with pytest.raises(UsageError, match="can't be the name of a folder"):
        asyncio.run(store.append({"project_key": "a", "session_id": text}, entries("a")))


def test_a_summary_misses_what_was_appended_before_a_crash(tmp_path: Path) -> None:
    """It is written after the entries, so a crash may come in between."""

    async def main() -> None:
        store = SatchelSessionStore(tmp_path)
        await store.append(KEY, [{"type": "x", "customTitle": "first"}])  # type: ignore[typeddict-unknown-key]
        place = f"{tmp_path}/-home-ann/5f0c/main"
        store.close()
        with satchel.hold(place, kind="claude-transcript") as held:
            held.append([{"type": "x", "customTitle": "second"}], log="transcript")
        [before] = await store.list_session_summaries("-home-ann")
        [session] = await store.list_sessions("-home-ann")
        assert before["mtime"] <= session["mtime"] and "first" in str(before["data"])
        await store.append(KEY, [{"type": "x"}])
        [after] = await store.list_session_summaries("-home-ann")
        assert "second" in str(after["data"])
        store.close()

    asyncio.run(main())


def test_a_transcript_that_another_process_has_deleted_swallows_entries(tmp_path: Path) -> None:
    async def main() -> None:
        one, other = SatchelSessionStore(tmp_path, idle=0), SatchelSessionStore(tmp_path, idle=0.001)
        await one.append(KEY, entries("a", "b"))
        for write in (one, other):
            await other.delete(KEY)
            await write.append(KEY, entries("a"))  # also if it was made again by another process
            await one.append(KEY, entries("b"))
            assert await other.load(KEY) == entries("a", "b")
        one.close()
        other.close()

    asyncio.run(main())


def test_two_processes_append_at_once(tmp_path: Path) -> None:
    async def main() -> None:
        other = SatchelSessionStore(tmp_path, wait=0)
        with satchel.hold(tmp_path.joinpath(*KEY.values(), "main"), kind="claude-transcript") as one:
            await one.aappend(entries("a"), log="transcript")
            with pytest.raises(LeaseHeld):
                await other.append(KEY, entries("b"))
            assert await other.load(KEY) == entries("a")  # reading needs no lock
        await other.append(KEY, entries("b"))
        assert await other.load(KEY) == entries("a", "b")
        other.close()

    asyncio.run(main())


def test_tasks_that_append_at_once_lose_or_double_entries(tmp_path: Path) -> None:
    async def main() -> None:
        store = SatchelSessionStore(tmp_path)
        await asyncio.gather(*(store.append(KEY, entries(f"{n // 2}", f"x{n}")) for n in range(20)))
        found = [each["uuid"] for each in await store.load(KEY) or []]
        assert sorted(found) == sorted([*map(str, range(10)), *(f"x{n}" for n in range(20))])
        store.close()

    asyncio.run(main())


_APPENDING = """
import asyncio, sys
from satchel.adapters.claude_agent_sdk import SatchelSessionStore

async def main():
    store = SatchelSessionStore(sys.argv[1])
    for number in range(int(sys.argv[2]), 10_000):
        batch = [{"type": "x", "uuid": f"{number}-{n}", "text": "y" * 500} for n in range(3)]
        await store.append({"project_key": "p", "session_id": "s"}, batch)
        print(number, flush=True)

asyncio.run(main())
"""


@pytest.mark.parametrize(
    "rounds", [3, pytest.param(8, marks=pytest.mark.slow), pytest.param(40, marks=pytest.mark.soak)]
)
def test_a_kill_loses_tears_or_doubles_an_entry(tmp_path: Path, rounds: int) -> None:
    """After each kill the batch that was under way is appended again, as the SDK does."""
    chance, acknowledged = random.Random(seed()), -1
    for _ in range(rounds):
        words = [sys.executable, "-c", _APPENDING, str(tmp_path), str(max(acknowledged, 0))]
        with warm.Popen(words, stdout=subprocess.PIPE, text=True) as process:
            for _ in range(chance.randint(1, 12)):
                acknowledged = int(process.stdout.readline())
            time.sleep(chance.random() * 0.02)
            process.send_signal(signal.SIGKILL)
            for line in process.stdout:
                acknowledged = int(line)
    found = asyncio.run(SatchelSessionStore(tmp_path).load({"project_key": "p", "session_id": "s"}))
    names = [each["uuid"] for each in found or []]
    whole = [f"{number}-{n}" for number in range(acknowledged + 2) for n in range(3)]
    assert names in (whole[:-3], whole)


# With Claude Code


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    claude = tmp_path / "claude"
    claude.write_text(f"#!{sys.executable} -S\n{(Path(__file__).parent / 'fake_claude.py').read_text()}")
    claude.chmod(0o755)
    place = tmp_path / "place"
    place.mkdir()
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("FAKE_CLAUDE_PROJECT", project_key_for_directory(place))
    return {"cli_path": str(claude), "cwd": str(place), "permission_mode": "default"}


SESSION = "11111111-2222-4333-8444-555555555555"


async def asked(prompt: str, **options: Any) -> str:
    async with aclosing(query(prompt=prompt, options=ClaudeAgentOptions(**options))) as messages:  # type: ignore[type-var]
        return [str(message.result) async for message in messages if isinstance(message, ResultMessage)][-1]


def working(options: dict[str, Any], store: SatchelSessionStore, wait_for: float = 0) -> satchel.Agent[Any]:
    @agent
    async def main(run: Run) -> str:
        key: Any = {"project_key": project_key_for_directory(options["cwd"]), "session_id": SESSION}
        known = await store.load(key)
        session = {"resume": SESSION} if known else {"session_id": SESSION}
        asking = ask_people(wait_for=wait_for)
        async with run.uninterrupted("a turn of Claude"):
            return await asked("Clean up", session_store=store, can_use_tool=asking, **session, **options)

    return main


def done(options: dict[str, Any]) -> list[str]:
    path = Path(options["cwd"]) / "done.txt"
    return path.read_text().splitlines() if path.exists() else []


def answered(workspace: Path, outcome: Outcome, decision: str, **more: Any) -> None:
    assert outcome.status == "waiting", outcome
    [question] = outcome.approvals
    assert question.question == "May Claude use Bash?"
    assert "make clean" in (workspace / "approvals" / f"{question.id}.yaml").read_text()
    satchel.open(workspace).answer(decision, question.id, **more)


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("decision", ["approve", "deny"])
def test_a_permission_is_asked_twice_or_lost(
    workspace: Path, tmp_path: Path, options: dict[str, Any], decision: str
) -> None:
    """The run stops without a process, and the session is continued from the store, with the answer."""
    store = SatchelSessionStore(tmp_path / "sessions")
    main = working(options, store)
    answered(workspace, run(workspace, main), decision, note="not today" if decision == "deny" else "")
    assert done(options) == []
    said = "allow" if decision == "approve" else "deny A person has denied this call. not today"
    assert completed(run(workspace, main)) == f"2 lines before; {said}"
    assert done(options) == (["make clean"] if decision == "approve" else [])
    store.close()


def test_other_arguments_are_approved_and_ignored(workspace: Path, tmp_path: Path, options: dict[str, Any]) -> None:
    store = SatchelSessionStore(tmp_path / "sessions")
    main = working(options, store)
    answered(workspace, run(workspace, main), "approve", arguments={"command": "make -n clean"})
    completed(run(workspace, main))
    assert done(options) == ["make -n clean"]
    store.close()


def test_an_answer_while_the_process_waits_comes_too_late(
    workspace: Path, tmp_path: Path, options: dict[str, Any]
) -> None:
    store = SatchelSessionStore(tmp_path / "sessions")
    main = working(options, store, wait_for=60)

    def answer() -> None:
        while not (questions := satchel.open(workspace).questions()):
            time.sleep(0.02)
        satchel.open(workspace).answer("approve", questions[0].id)

    person = threading.Thread(target=answer)
    person.start()
    assert completed(run(workspace, main)) == "0 lines before; allow"
    person.join()
    assert done(options) == ["make clean"]
    store.close()


def test_an_effect_in_a_tool_of_the_program_happens_twice(workspace: Path, options: dict[str, Any]) -> None:
    """The tool runs in the run, and after a crash Claude calls it again."""
    sent: list[str] = []

    @effect
    async def send(key: Key, to: str) -> str:
        sent.append(key)
        return f"sent to {to}"

    @tool("send", "Send a letter", {"to": str})
    async def send_tool(given: dict[str, Any]) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": await send(given["to"])}]}

    server = create_sdk_mcp_server("mail", tools=[send_tool])
    stops = True

    @agent
    async def main(run: Run) -> str:
        answer = await asked("Send", mcp_servers={"mail": server}, allowed_tools=["mcp__mail__send"], **options)
        if stops:
            raise Stop
        return answer

    interrupted(workspace, main)
    stops = False
    assert completed(run(workspace, main)) == "sent to ann"
    assert len(sent) == 1


def test_outside_a_run_everything_is_allowed(options: dict[str, Any]) -> None:
    said = asyncio.run(asked("Clean up", can_use_tool=ask_people(), **options))
    assert "error" in said and "outside a run" in said
    assert done(options) == []


def test_a_session_is_not_found_by_the_sdk(tmp_path: Path, options: dict[str, Any]) -> None:
    """Its helpers read it from the store, also in another process."""

    async def deny(*asked: Any) -> PermissionResultDeny:
        return PermissionResultDeny(message="no")

    options["can_use_tool"] = deny

    async def main() -> None:
        store = SatchelSessionStore(tmp_path / "sessions")
        await asked("Hello", session_store=store, session_id=SESSION, **options)
        store.close()
        store = SatchelSessionStore(tmp_path / "sessions")
        [session] = await list_sessions_from_store(store, directory=options["cwd"])
        assert session.session_id == SESSION and "Hello" in session.summary
        messages = await get_session_messages_from_store(store, SESSION, directory=options["cwd"])
        assert len(messages) == 2
        assert await asked("Go on", session_store=store, resume=SESSION, **options) == "2 lines before; deny no"
        key: Any = {"project_key": project_key_for_directory(options["cwd"]), "session_id": SESSION}
        assert len(await store.load(key) or []) == 4
        await delete_session_via_store(store, SESSION, directory=options["cwd"])
        assert await store.load(key) is None
        store.close()

    asyncio.run(main())
