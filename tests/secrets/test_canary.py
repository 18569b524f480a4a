"""A secret goes through everything that an agent can call, with kills, a question, a failure and a resume. Afterwards
every byte of the workspace, and of all that was printed, is searched for the halves of it."""

from __future__ import annotations

import json
import os
import signal
import sys
import zipfile
from pathlib import Path

import pytest
import warm
from servers import Server

import satchel

VALUE = 'leftc4na7y"\\ä/+=rightc4na7y'
TOKEN = "tok-9d2e4b6a8c0f1e3d5b7a9c"
HALVES = (b"leftc4na7y", b"rightc4na7y", b"tok-9d2e", b"5b7a9c")

DEFINITION = """\
format: 1
run_id: canary-1
agent: agent.py:main
redact:
  env: [CANARY]
  patterns: ['tok-[0-9a-f]{22}']
"""

AGENT = """\
import os, signal
from dataclasses import dataclass, field
from pathlib import Path

from satchel import Item, Key, Partial, Retry, Run, agent, effect, step

BOTH = os.environ["CANARY"] + " and " + os.environ["TOKEN"]
MARKS = Path(os.environ["MARKS"])


def once(name):
    mark = MARKS / name
    is_first = not mark.exists()
    mark.touch()
    return is_first


class Odd(Exception):
    def __init__(self, text):
        super().__init__(text)
        self.answer = {"body": [text]}


@dataclass
class State:
    hint: str = "none"
    seen: list[str] = field(default_factory=list)


@step
async def read(text: str, padding: str = "") -> dict:
    return {"text": text, text: [1, text]}

@step
async def large() -> str:
    return f"{BOTH} " * 5000

@step(retry=Retry(attempts=2, first=0.01))
async def fails(text: str, run: Run) -> str:
    await run.progress({"at": text})
    raise Odd(f"can't use {text}")

@step
async def breaks(text: str) -> str:
    raise OSError(5, f"with {text}", f"/tmp/{text}")

@step
async def stream(out: Partial) -> str:
    for text in ("first words " * 40, BOTH[:6], BOTH[6:20], BOTH[20:40]):
        await out.write(text)
    out.file.write()
    out.file._behind.wait()  # in a program's loop a thread writes it
    if once("streamed"):
        os.kill(os.getpid(), signal.SIGKILL)
    await out.write(BOTH[40:])
    await out.write(" last words")
    return out.text

def was_sent(text: str, key: Key) -> str:
    return f"sent {text}"

@effect(verify=was_sent)
def send(text: str, key: Key) -> str:
    if once("sent"):
        os.kill(os.getpid(), signal.SIGKILL)
    return f"sent {text}"

@effect
async def unsure(text: str) -> str:
    if once("unsure"):
        raise Odd(text)
    return text

@agent
async def helper(run: Run, text: str) -> str:
    await run.plan(f"For {text}", [f"sub {text}"])
    async def work(run: Run, item: Item) -> str:
        run.messages.add("user", {"says": BOTH})
        return text
    await run.todo.each(work)
    return text

async def work(run: Run[State], item: Item) -> dict:
    await read("x" * 40 + BOTH)
    run.state.seen.append((await read(BOTH))["text"])
    run.state.seen.append(await large())
    run.state.seen.append((await read(run.prompt("ask", key=BOTH)))["text"])
    await stream()
    for tool in (fails, breaks):
        try:
            await tool(BOTH)
        except (Odd, OSError) as error:
            run.state.seen.append(str(error))
    run.messages.add("user", BOTH)
    await run.output("report.txt", f"a report with {BOTH}")
    run.state.seen.append(await send(BOTH))
    assert await run.spawn(helper, "sub", BOTH)
    tasks = await run.inbox.take()
    run.state.seen += [task.text for task in tasks]
    answer = await run.ask(f"May {BOTH} go?", ["yes", "no"], context={"why": BOTH}, wait_for=0)
    run.state.seen.append(answer.note)
    run.state.seen.append(await unsure(BOTH))
    await run.todo.note(item.id, f"noted {BOTH}")
    await run.todo.add(f"Second {BOTH}")
    if once("failed"):
        raise Odd(f"at the end {BOTH}")
    return {"result": BOTH}

@agent(state=State)
async def main(run: Run[State], topic: str) -> str:
    if not run.todo.items:
        await run.plan(f"Use {BOTH}", [f"Read {BOTH}"])
    async def each(run: Run[State], item: Item) -> dict:
        if item.text.startswith("Second"):
            item.skip(f"no need: {BOTH}")
            return {}
        return await work(run, item)
    await run.todo.each(each)
    if once("paused"):
        await run.pause(f"look at {BOTH}")
    if once("ended"):
        raise Odd(f"the agent ends with {BOTH}")
    return BOTH
"""

FOLLOW = """\
import asyncio, logging, sys
import satchel
logging.basicConfig(level=logging.DEBUG)
async def main():
    async for event in satchel.stream(sys.argv[1], wake=True, input=eval(sys.argv[2])):
        print(event)
asyncio.run(main())
"""


def leaks(place: str, data: bytes) -> list[str]:
    forms = {data, data.replace(b"\\\\", b"\\")}
    return [
        f"{place}: ...{each[max(0, each.find(half) - 60) : each.find(half) + 40]!r}"
        for half in HALVES
        for each in forms
        if half in each
    ]


def go_through_everything(url: str, marks: Path) -> list[str]:
    """Run it until it completes; what was printed on the way and contains a secret."""
    marks.mkdir()
    found: list[str] = []
    environment = {**os.environ, "CANARY": VALUE, "TOKEN": TOKEN, "MARKS": str(marks), "PYTHONUNBUFFERED": "1"}

    def do(*words: str, code: int | None = None) -> str:
        done = warm.run([sys.executable, *words], env=environment, capture_output=True, timeout=120)
        found.extend(leaks(f"{words[:3]}, printed", done.stdout + done.stderr))
        assert code is None or done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
        return (done.stdout + done.stderr).decode()

    def command(*words: str, code: int | None = None) -> str:
        return do("-m", "satchel", *words, code=code)

    do("-c", FOLLOW, url, repr({"topic": f"about {VALUE}"}), code=-signal.SIGKILL)
    command("status", url)
    take = ("--take-over",) if url.startswith("s3") else ()
    command("send", url, f"a task with {VALUE}", code=0)
    do("-c", FOLLOW.replace("wake", "take_over=True, wake"), url, "None", code=-signal.SIGKILL)
    for _ in range(9):
        said = command("resume", *take, "--traceback", url)
        for question in satchel.open(url).questions():
            decision = "yes" if "yes" in question.choices else "redo"
            command("answer", url, question.id, decision, "--note", f"because of {VALUE}", "--by", "ada", code=0)
        if said.startswith("completed") or "\ncompleted" in said:
            for words in (["log", "--json"], ["log"], ["status", "--json"], ["check"], ["steps", "--json"]):
                command(*words, url)
            command("show", url, "40"), command("diff", url, "20", "40"), command("blame", url, "state.json")
            command("export", url, str(marks / "export.zip"), code=0)
            with zipfile.ZipFile(marks / "export.zip") as exported:
                assert len(exported.namelist()) > 10
                for name in exported.namelist():
                    found += leaks(f"{name}, exported", exported.read(name) + name.encode())
            (marks / "export.zip").unlink()
            return found
    raise AssertionError(said)


ALL_MARKS = {"streamed", "sent", "unsure", "failed", "paused", "ended"}


@pytest.mark.slow
def test_a_secret_leaks_from_a_run_in_a_folder(tmp_path: Path) -> None:
    folder, marks = tmp_path / "ws", tmp_path / "marks"
    folder.mkdir()
    (folder / "workspace.yaml").write_text(DEFINITION + "settings: " + json.dumps({"key": VALUE}) + "\n")
    (folder / "agent.py").write_text(AGENT)
    (folder / "prompts").mkdir()
    (folder / "prompts/ask.md").write_text("use {{key}}")
    found = go_through_everything(str(folder), marks)
    assert {path.name for path in marks.iterdir()} == ALL_MARKS
    read = [path for path in folder.rglob("*") if path.is_file() and path != folder / "workspace.yaml"]
    for path in read:
        found += leaks(str(path.relative_to(folder)), path.read_bytes() + os.fsencode(path.name))
    assert not found, "\n".join(found)
    assert len(read) > 15
    journal = b"".join(path.read_bytes() for path in folder.glob("journal/*"))
    assert journal.count(b"[redacted:CANARY]") > 30
    checked = satchel.open(folder).check()  # here without the variable
    assert not checked.problems and not checked.planned
    (recovered,) = folder.glob("recovered/*/*.md")
    assert "first words" in recovered.read_text()


@pytest.mark.slow
def test_a_secret_leaks_from_a_run_in_a_bucket(
    seaweedfs: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in seaweedfs.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    url = seaweedfs.place()
    bucket, _, prefix = url.removeprefix("s3://").partition("/")
    for name, text in (("workspace.yaml", DEFINITION), ("agent.py", AGENT), ("prompts/ask.md", "{{key}}")):
        seaweedfs.client.put_object(Bucket=bucket, Key=f"{prefix}/{name}", Body=text.encode())
    found = go_through_everything(url, tmp_path / "marks")
    assert {path.name for path in (tmp_path / "marks").iterdir()} == ALL_MARKS
    keys = [each["Key"] for each in seaweedfs.client.list_objects_v2(Bucket=bucket, Prefix=prefix)["Contents"]]
    for key in keys:
        found += leaks(key, seaweedfs.client.get_object(Bucket=bucket, Key=key)["Body"].read() + key.encode())
    assert not found, "\n".join(found)
    assert len(keys) > 15
