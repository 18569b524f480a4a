"""The page that `make bench` writes: what was measured, where, how, and the tables."""

from __future__ import annotations

import os
import platform
import sqlite3
import subprocess
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import NamedTuple

from ..measuring import REPOSITORY, file_system


class Row(NamedTuple):
    """The results of one subject."""

    name: str
    steps: int  # in each round
    rounds: list[dict[str, float]]  # see Pairing.found
    kept: float  # bytes a step in all files, when it has ended
    syncs: float | None  # a step; None if they could not be counted
    repeated: int  # steps, after a SIGKILL in the middle of one
    of: int  # steps in what was killed halfway


class ManyRow(NamedTuple):
    """The results of many runs at once."""

    name: str
    runs: int
    per_minute: float
    cpu: float  # seconds a run
    memory: float  # bytes a run


_STEPS = {
    "nothing.loop": "a bare loop: one line of JSON, appended and synced",
    "satchel.strict": "**Satchel**, a step",
    "satchel.pipelined": '**Satchel**, a step of an agent with `durability="pipelined"`',
    "dbos.steps": "DBOS, a step of a workflow, on SQLite",
    "dbos.with_wal": "the same, the database switched to a write-ahead log",
    "prefect.tasks": "Prefect, a task of a flow with `persist_result=True`",
}
_ITEMS = {
    "satchel.items": "**Satchel**, an item of one step",
    "langgraph.sync": 'LangGraph, a node, SQLite saver, `durability="sync"`',
    "langgraph.default": 'the same with its default, `durability="async"`',
}
_GROWING = {
    "satchel.growing": "**Satchel**, an item of one step that adds to the list",
    "langgraph.growing": "LangGraph, a node, `Annotated[list, operator.add]`, `sync`",
    "langgraph.delta": "the same with its `DeltaChannel` (beta)",
}
_FRAMEWORKS = {
    "langgraph.sync": 'LangGraph, a node, SQLite saver, `durability="sync"`',
    "langgraph.satchel": "**Satchel**, the same with `SatchelSaver`",
    "sessions.sqlite": "OpenAI Agents SDK, a turn, `SQLiteSession`",
    "sessions.satchel": "**Satchel**, the same with `SatchelSession`",
    "files.own": "deepagents, a file of 200 bytes, `FilesystemBackend`",
    "files.satchel": "**Satchel**, the same with `SatchelBackend`",
    "turns.bare": "Pydantic AI, a turn with a call of a tool, nothing kept",
    "turns.satchel": "**Satchel**, the same with `SatchelDurability`",
}
_MANY = {
    "many.serve_process": "**Satchel**, `serve`: a process for each run",
    "many.serve_none": "**Satchel**, `serve --isolate none`: a process for each core",
    "many.pool": "**Satchel**, a `Pool`: one event loop",
    "many.fleet": "**Satchel**, `fleet` on 2 workers of Dask: a process for each run",
    "many.dbos_sqlite": "DBOS, workflows of a queue, on SQLite",
    "many.dbos_postgres": "the same on Postgres, which counts, too",
    "many.prefect": "Prefect, flows in one event loop, with the server that it starts",
}
LABELS = {**_STEPS, **_ITEMS, **_GROWING, **_FRAMEWORKS, **_MANY}
_PACKAGES = (
    "satchel",
    "dbos",
    "prefect",
    "langgraph",
    "langgraph-checkpoint-sqlite",
    "openai-agents",
    "deepagents",
    "pydantic-ai-slim",
)

_TEXT = (Path(__file__).parent / "page.md").read_text()


def page(rows: Sequence[Row], many: Sequence[ManyRow], folder: Path) -> str:
    """Markdown. `folder` is on the disk that was measured."""
    by_name = {row.name: row for row in rows}
    syncs = [each["sync"] * 1e6 for row in rows for each in row.rounds] or [0.0]  # of many runs alone
    growing = next((row.steps for row in rows if row.name in _GROWING), 0)
    return _TEXT.format(
        date=f"{datetime.now(UTC):%Y-%m-%d}",
        machine=_machine(folder),
        versions=", ".join(_versions()),
        sync=_spread(syncs, "{:,.0f}"),
        rounds=max((len(row.rounds) for row in rows), default=0),
        counted=", counted by strace" if any(row.syncs is not None for row in rows) else " (not counted: no strace)",
        few=max((row.of for row in rows), default=0),
        list=f"{growing * 0.2:,.0f}",
        steps=_table(_STEPS, by_name),
        items=_table(_ITEMS, by_name),
        growing=_table(_GROWING, by_name),
        frameworks=_table(_FRAMEWORKS, by_name),
        many=_many_table(many),
    )


def refreshed(text: str, page: str) -> str:
    """`text` with the row of each subject as it is in `page`."""
    rows = {label: line for line in page.splitlines() if (label := label_of(line))}
    return "\n".join(rows.get(label_of(line), line) for line in text.split("\n"))


def label_of(line: str) -> str:
    """The label of the subject in a row; empty if the line is none."""
    label = line.split("|")[1].strip() if line.startswith("| ") else ""
    return label if label in LABELS.values() else ""


def _table(labels: dict[str, str], rows: dict[str, Row]) -> str:
    lines = [
        "| | time, in syncs | CPU, µs | written, bytes | kept, bytes | syncs | done again |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, label in labels.items():
        if (row := rows.get(name)) is None:
            lines.append(f"| {label} | not measured | | | | | |")
            continue
        cells = (
            _spread([each["step"] / each["sync"] for each in row.rounds], "{:.1f}"),
            _spread([each["cpu"] * 1e6 for each in row.rounds], "{:,.0f}"),
            f"{median(each['written'] for each in row.rounds):,.0f}",
            f"{row.kept:,.0f}",
            "" if row.syncs is None else f"{max(row.syncs, 0.0):.1f}",
            f"{row.repeated} of {row.of // 2 - 1}",
        )
        lines.append(f"| {label} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _many_table(rows: Sequence[ManyRow]) -> str:
    lines = ["| | runs at once | runs a minute | CPU a run, s | memory a run, MB |", "| --- | --- | --- | --- | --- |"]
    by_name = {row.name: row for row in rows}
    for name, label in _MANY.items():
        if (row := by_name.get(name)) is None:
            lines.append(f"| {label} | not measured | | | |")
        else:
            cells = f"{row.runs} | {row.per_minute:,.0f} | {row.cpu:.3f} | {row.memory / 1e6:.2f}"
            lines.append(f"| {label} | {cells} |")
    return "\n".join(lines)


def _spread(values: Sequence[float], form: str) -> str:
    show: Callable[[float], str] = form.format
    return f"{show(median(values))} ({show(min(values))} to {show(max(values))})"


def _machine(folder: Path) -> str:
    load = os.getloadavg()[0]
    return (
        f"{platform.system()} {platform.release().split('-')[0]}, Python {platform.python_version()}, {os.cpu_count()} "
        f"cores, {file_system(folder)}, load {load:.1f} at its end"
    )


def _versions() -> list[str]:
    found = []
    for package in _PACKAGES:
        try:
            found.append(f"{package} {version(package)}{_commit() if package == 'satchel' else ''}")
        except PackageNotFoundError:
            continue
    return [*found, f"SQLite {sqlite3.sqlite_version}"]


def _commit() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    return f" (commit {done.stdout.strip()})" if done.returncode == 0 else ""
