"""A deep agent: two files and an effect at once, edits that each add a line, a list of tasks, a subagent's report."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from deep_models import Answering, outputs, rounds
from deepagents import create_deep_agent
from langchain.agents.middleware import TodoListMiddleware
from langchain_core.tools import tool

import killing
import satchel
from satchel import Key, NotDone, Run, agent, effect
from satchel.adapters.deepagents import SatchelBackend, SatchelMiddleware, ainvoke

LOG = "# Log\r\n"
EDIT = ("edit_file", {"file_path": "/a b/log.md", "old_string": "# Log\n", "new_string": "# Log\n- more\n"})
TURNS = rounds(
    [
        ("write_todos", {"todos": [{"content": "look", "status": "in_progress"}]}),
        ("write_file", {"file_path": "/a b/log.md", "content": LOG}),
        ("write_file", {"file_path": "/gone.md", "content": "x"}),
        ("look", {"of": "a"}),
        ("send", {"to": "ann"}),
    ],
    [EDIT, ("task", {"description": "report", "subagent_type": "general-purpose"})],
    [EDIT, ("delete", {"file_path": "/gone.md"}), ("look", {"of": "b"})],
    [
        ("write_todos", {"todos": [{"content": "look", "status": "completed"}]}),
        ("read_file", {"file_path": "/a b/log.md"}),
    ],
)


def make_agent(outside: Path) -> Any:
    def note(what: str) -> None:
        with outside.with_suffix(".log").open("a") as file:
            file.write(f"{what}\n")
        killing.tick()

    def answer(messages: Any) -> Any:
        is_sub = any(each.type == "human" and each.content == "report" for each in messages)
        note("model of the subagent" if is_sub else f"model {sum(each.type == 'ai' for each in messages)}")
        return "reported" if is_sub else TURNS(messages)

    @tool
    async def look(of: str) -> str:
        """Look at it."""
        note(f"look {of}")
        return of.upper()

    def was_sent(to: str, key: str) -> str:
        if f"{to} {key}" not in (outside.read_text().splitlines() if outside.exists() else []):
            raise NotDone
        return f"sent to {to}"

    @tool
    @effect(verify=was_sent)
    async def send(key: Key, to: str) -> str:
        """Send it."""
        note(f"send {to}")
        with outside.open("a") as file:
            file.write(f"{to} {key}\n")
        killing.tick()
        return f"sent to {to}"

    @agent
    async def main(run: Run[Any]) -> list[Any]:
        backend = SatchelBackend(outside.parent / "files")
        durable: Any = [SatchelMiddleware(todos=backend), TodoListMiddleware()]
        model = Answering(answer=answer, tick=killing.tick)
        helper = create_deep_agent(model, tools=[look, send], backend=backend, middleware=durable)
        try:
            done = await ainvoke(helper, {"messages": [("user", "Look and send")]})
        finally:
            backend.close()
        return outputs(done["messages"])

    return main


def result(folder: Path, outside: Path) -> dict[str, Any]:
    held = satchel.open(outside.parent / "files")
    files = {
        each.path: held.held_file(each.path).data for each in held.held_files()
    }  # a kill may come before it is shown
    effects = [line.split() for line in outside.read_text().splitlines()]
    assert len({key for _, key in effects}) == len(effects)
    lines = [
        json.loads(line) for path in sorted((folder / "journal").iterdir()) for line in path.read_text().splitlines()
    ]
    return {
        "files": files,
        "effects": [name for name, _ in effects],
        "result": next(line["result"] for line in reversed(lines) if "result" in line and line["type"] == "closed"),
        "calls": sorted(set(outside.with_suffix(".log").read_text().splitlines())),
    }


def wrong(folder: Path, outside: Path) -> str:
    """Whether a process has called something twice, or again although it was on record when it started."""
    log, before = outside.with_suffix(".log"), outside.with_suffix(".before")
    lines = log.read_text().splitlines() if log.exists() else []
    seen, recorded = json.loads(before.read_text()) if before.exists() else (0, [])
    before.write_text(json.dumps([len(lines), _recorded(folder)]))
    called = Counter(lines[seen:])
    again = [what for what in called if called[what] > 1 or what in recorded]
    return f"called again although it was on record, or twice in one process: {again}" if again else ""


def _recorded(folder: Path) -> list[str]:
    found = list[str]()
    for path in sorted((folder / "journal").glob("*.jsonl")):
        for line in path.read_text().splitlines():
            record = json.loads(line) if line.endswith("}") else {"type": "torn by the kill"}
            if record["type"] in ("step.completed", "effect.done") and record.get("step") in ("look", "send"):
                [of] = json.loads(f"{{{record['call'][1:-1]}}}").values()
                found.append(f"{record['step']} {of}")
    return found


SUBJECT = killing.Subject(make_agent, result, wrong=wrong)
