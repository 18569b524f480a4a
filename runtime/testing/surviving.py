"""Crash a run at every record, resume it, and compare how it ends with a run that nothing stopped."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ...workspace.base import arguments, read_markdown
from ...workspace.journal.records import Key, StepCompleted
from ..agent import Agent
from ..control import open as open_run
from ..execution import Outcome
from .crashing import has_crashed, resumed
from .scratch import DEFINITION

Results = dict[tuple[str, str, Key], Any]
"""The results of effects, by agent, scope and call."""


class Survived(NamedTuple):
    """How many crashes a run has survived, and how many effects were in doubt and answered `done` for a person."""

    crashes: int
    answered: int


def assert_survives(
    agent: Agent | None = None, folder: str | os.PathLike[str] | None = None, **options: Any
) -> Survived:
    """Run an agent without a crash. Then crash it after its first record, its second, and so on, each time in a new
    copy of the folder; resume it and compare. AssertionError, naming the record, if one of these ends in another way:
    status, result, the data in state.json, the plan, the questions to people, or a file in outputs/. An error that the
    agent raises without a crash is raised.

    `folder` is a workspace that has not begun; it is not changed. Without one, a workspace without settings is made.
    Without `agent`, it is the one that workspace.yaml names. `options` are those of `satchel.run`.

    An effect whose record was lost has happened, and is in doubt. If its `verify` can't say so, this answers `done`,
    with the result that it had without a crash. Not guaranteed: that your effects can be repeated in your test's world.
    Let them act on something that the test can look at, and check there that nothing happened twice under one key. In a
    running event loop call it in a thread (`asyncio.to_thread`).
    """
    arguments.no_loop("assert_survives", "call `await asyncio.to_thread(assert_survives, agent)` there")
    with tempfile.TemporaryDirectory(prefix="satchel-test-") as place:
        template = _template(Path(place), folder)
        whole = _copy(template, Path(place) / "whole")
        outcome = resumed(whole, agent, **options)
        if outcome.error is not None:
            raise outcome.error
        expected = _seen(whole, outcome)
        results = _results(whole)
        answered = 0
        for records in itertools.count(1):
            copy = _copy(template, Path(place) / "crashed")
            if not has_crashed(records, copy, agent, **options):
                return Survived(records - 1, answered)
            outcome, count = _resumed(copy, agent, results, options)
            answered += count
            differences = _differences(expected, _seen(copy, outcome))
            if differences:
                raise AssertionError("\n".join([f"after a crash behind record {records}:", *differences]))
    raise AssertionError


def _template(place: Path, folder: str | os.PathLike[str] | None) -> Path:
    if folder is not None:
        return Path(folder)
    made = place / "template"
    made.mkdir()
    (made / "workspace.yaml").write_text(DEFINITION)
    return made


def _copy(template: Path, to: Path) -> Path:
    shutil.rmtree(to, ignore_errors=True)
    return Path(shutil.copytree(template, to))


def _results(folder: Path) -> Results:
    records = (row.line.record for row in open_run(folder).log(type="step.completed"))
    return {
        (record.agent, record.scope, (record.step, record.args, record.n)): msgspec.json.decode(record.result)
        for record in records
        if isinstance(record, StepCompleted) and record.effect and len(record.result)
    }


def _resumed(folder: Path, agent: Agent | None, results: Results, options: dict[str, Any]) -> tuple[Outcome, int]:
    """The outcome, and how many effects were in doubt on the way."""
    answered: set[str] = set()
    while True:
        outcome = resumed(folder, agent, **options)
        known = {each.id: (each.agent, each.scope, (each.step, each.args, each.n)) for each in outcome.doubts}
        new = {id: results[key] for id, key in known.items() if id not in answered and key in results}
        if not new:
            return outcome, len(answered)
        for id, result in new.items():
            open_run(folder).answer("done", id, result=result, by="the test")
        answered |= new.keys()


def _seen(folder: Path, outcome: Outcome) -> dict[str, Any]:
    """What counts of the end of a run, by the words for it."""
    found = open_run(folder).result
    plan = folder / "todo.md"
    outputs = sorted(path for path in (folder / "outputs").rglob("*") if path.is_file())
    return {
        "the status": outcome.status,
        "the error": repr(outcome.error) if outcome.error else None,
        "the result": outcome.result,
        "the data in state.json": found.state,
        "todo.md": read_markdown(plan.read_bytes()).body.decode() if plan.exists() else None,
        "the questions": [*(each.question for each in outcome.approvals), *(each.step for each in outcome.doubts)],
        **{f"outputs/{path.relative_to(folder / 'outputs')}": path.read_bytes() for path in outputs},
    }


def _differences(expected: dict[str, Any], found: dict[str, Any]) -> list[str]:
    names = dict.fromkeys([*expected, *found])
    return [
        f"{name}: {found.get(name)!r}, but without a crash {expected.get(name)!r}"
        for name in names
        if expected.get(name) != found.get(name)
    ]
