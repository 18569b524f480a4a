"""`redact:` in a run: what the agent gets, where a secret is an error, and what people may type."""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import satchel
from satchel import Run, agent, effect, run, step
from satchel.workspace.base.errors import AgentError, Refused

KEY = "canary-7f3a9b"


@pytest.fixture
def guarded(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KEY", KEY)
    with (workspace / "workspace.yaml").open("a") as file:
        file.write("redact: {env: [KEY]}\n")
    return workspace


def everything(folder: Path) -> str:
    return "".join(path.read_text() for path in folder.rglob("*") if path.is_file())


def test_the_agent_gets_something_else_than_a_reentry(guarded: Path, crash: type[BaseException]) -> None:
    got: list[Any] = []

    @step
    async def read(text: str) -> dict[str, str]:
        return {"text": f"with {text}"}

    @step
    async def fails(text: str) -> str:
        raise LookupError(f"not {text}")

    @agent
    async def main(run: Run) -> None:
        async def work(run: Run) -> str:
            got.append(await read(KEY))
            try:
                await fails(KEY)
            except LookupError as error:
                got.append(str(error))
            if len(got) == 2:
                raise crash
            return KEY

        got.append(await run.scope("all", work, run))

    with pytest.raises(crash):
        run(guarded, main)
    assert run(guarded, main).status == "completed"
    assert got == [{"text": "with [redacted:KEY]"}, "not [redacted:KEY]"] * 2 + ["[redacted:KEY]"]
    assert KEY not in everything(guarded)


def test_calls_that_differ_only_in_a_secret_are_one(guarded: Path, calls: list[str]) -> None:
    @effect
    async def act(text: str) -> str:
        calls.append(text)
        return text

    @agent
    async def main(run: Run) -> None:
        await act(KEY)
        await act("[redacted:KEY]")

    assert run(guarded, main).status == "completed"
    assert calls == [KEY, "[redacted:KEY]"]


@pytest.mark.parametrize("where", ["state", "first state", "name", "output", "agent", "reference"])
def test_a_secret_that_can_not_be_replaced_is_written(guarded: Path, where: str) -> None:
    @agent(state=dict)
    async def other(run: Run) -> None: ...

    async def work(run: Run[dict[str, Any]]) -> None:
        run.state["deep"] = [{"token": f"is {KEY}"}] if where == "state" else "fine"
        if where == "output":
            await run.output("picture", b"\xff" + KEY.encode())
        if where == "agent":
            await run.spawn(other, KEY)
        if where == "reference":
            run.refer(f"https://me:{KEY}@example.org/x")

    @dataclass
    class First:
        a: str = KEY

    @agent(state=dict if where != "first state" else First)
    async def main(run: Run[dict[str, Any]]) -> None:
        await run.scope(KEY if where == "name" else "work", work, run)

    outcome = run(guarded, main)
    assert outcome.status == "failed" and isinstance(outcome.error, AgentError), outcome
    said = str(outcome.error)
    assert "has a secret: it contains the value of KEY" in said or "no text, so it can't be redacted" in said
    assert where != "state" or said.startswith("run.state.deep[0].token has a secret")
    assert KEY not in said and KEY not in everything(guarded)


@pytest.mark.parametrize("key", ["a/b~c-secret", "tok-1234"])
def test_a_secret_that_is_a_key_of_the_state_is_written(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setenv("KEY", "a/b~c-secret")
    with (workspace / "workspace.yaml").open("a") as file:
        file.write("redact: {env: [KEY], patterns: ['^tok-[0-9]+$']}\n")

    @agent(state=dict)
    async def main(run: Run[dict[str, Any]]) -> None:
        async def work() -> None:
            run.state[key] = {"count": 1}

        await run.scope("work", work)

    outcome = run(workspace, main)
    assert str(outcome.error).startswith("run.state.[redacted")
    assert key not in everything(workspace).replace("~1", "/").replace("~0", "~")


@pytest.mark.parametrize("name", ["todo.md", "state.json"])
def test_a_secret_that_a_person_types_comes_into_the_journal(guarded: Path, name: str) -> None:
    @agent(state=dict)
    async def main(run: Run[dict[str, Any]]) -> None:
        if not run.todo.items:
            await run.plan("P", ["one"])
        await run.ask("Go?", wait_for=0)

    assert run(guarded, main).status == "waiting"
    path = guarded / name
    before = path.read_text()
    if name == "todo.md":
        path.write_text(before.replace("one", f"one {KEY}"))
    else:
        path.write_text(json.dumps(json.loads(before) | {"data": {"a": KEY}}))
    with pytest.raises(Refused, match=f"{name}: has a secret: it contains the value of KEY"):
        run(guarded, main, wake=True)
    assert KEY not in everything(guarded)
    assert "[redacted:KEY]" in (guarded / name.replace(".", ".rejected.")).read_text()
    assert run(guarded, main, wake=True).status == "waiting"


@pytest.mark.parametrize("typed", ['"%s"', '{"n": "%s"}', '{"n": "' + "x" * 32 + '%s"}'])
def test_a_secret_in_an_edit_with_another_mistake_is_kept(guarded: Path, typed: str) -> None:
    @dataclass
    class Count:
        n: int = 0

    @agent(state=Count)
    async def main(run: Run[Count]) -> None:
        await run.ask("Go?", wait_for=0)

    assert run(guarded, main).status == "waiting"
    before = (guarded / "state.json").read_text()
    (guarded / "state.json").write_text(before.replace('{\n    "n": 0\n  }', typed % KEY))
    with pytest.raises(Refused, match=r"state\.json: has a secret: it contains the value of KEY"):
        run(guarded, main, wake=True)
    assert (guarded / "state.rejected.txt").exists() and KEY[:6] not in everything(guarded)


def test_settings_with_a_secret_are_taken_for_an_edit_without_the_variable(
    guarded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (guarded / "workspace.yaml").open("a") as file:
        file.write(f"settings: {{mail: 'smtp://me:{KEY}@host', other: 1}}\n")

    @agent
    async def main(run: Run) -> None:
        assert run.settings["mail"] == f"smtp://me:{KEY}@host"
        await run.ask("Go?", wait_for=0)

    assert run(guarded, main).status == "waiting"
    definition = (guarded / "workspace.yaml").read_text()
    monkeypatch.delenv("KEY")
    satchel.open(guarded).answer("yes", by="ada")
    (guarded / "workspace.yaml").write_text(definition.replace("other: 1", "other: 2"))
    assert run(guarded, main).status == "completed"
    (guarded / "workspace.yaml").unlink()
    assert KEY not in everything(guarded)


@pytest.mark.parametrize("how", ["asked", "typed"])
def test_a_reason_with_a_secret_is_in_pause_yaml(guarded: Path, how: str) -> None:
    @agent
    async def main(run: Run) -> None: ...

    reason, by = f"because of {KEY}", f"ada {KEY}"
    if how == "asked":
        satchel.open(guarded).pause(reason=reason, by=by)
    else:
        (guarded / "pause.yaml").write_text(f"reason: {reason}\nby: {by}\n")
    assert run(guarded, main).status == "paused"
    said = (guarded / "pause.yaml").read_text()
    assert 'reason: "because of [redacted:KEY]"' in said and 'by: "ada [redacted:KEY]"' in said
    assert KEY not in everything(guarded)


def test_a_model_with_a_secret_is_taken_for_drift(guarded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (guarded / "workspace.yaml").open("a") as file:
        file.write(f"settings: {{model: 'http://me:{KEY}@host/m'}}\non_drift: refuse\n")

    @agent
    async def main(run: Run) -> None:
        await run.ask("Go?", wait_for=0)

    for _ in range(2):
        assert run(guarded, main, wake=True).status == "waiting"
    monkeypatch.delenv("KEY")
    assert run(guarded, main, wake=True).status == "waiting"
    assert "".join(path.read_text() for path in guarded.glob("journal/*")).count('"configured"') == 1


class Slotted(Exception):
    __slots__ = ("told",)

    def __str__(self) -> str:
        return str(self.told)


def test_an_exception_keeps_a_secret_outside_its_args_and_its_dict(guarded: Path) -> None:
    got: list[str] = []

    @step
    async def fails(kind: str, text: str) -> None:
        if kind == "slotted":
            error: Exception = Slotted()
            error.told = text  # type: ignore[attr-defined]
            raise error
        raise {"import": ImportError, "syntax": SyntaxError}[kind](f"with {text}")

    @agent
    async def main(run: Run) -> None:
        for kind in ("slotted", "import", "syntax"):
            with pytest.raises((Slotted, ImportError, SyntaxError)) as caught:
                await fails(kind, KEY)
            got.append(str(caught.value))

    assert run(guarded, main).status == "completed"
    assert got == ["[redacted:KEY]", "with [redacted:KEY]", "with [redacted:KEY]"]


def test_an_outcome_shows_or_carries_the_secrets(guarded: Path) -> None:
    @agent
    async def main(run: Run) -> None: ...

    outcome = run(guarded, main)
    assert "redactor" not in repr(outcome) and "_saved" not in repr(outcome)
    assert KEY.encode() not in pickle.dumps(outcome)


def test_a_value_of_three_characters_redacts_everything(guarded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @agent
    async def main(run: Run) -> None: ...

    monkeypatch.setenv("KEY", "abc")
    with pytest.raises(Refused, match="names KEY under `redact:`, whose value has only 3 characters"):
        run(guarded, main)
    assert not (guarded / "journal").exists()


@pytest.mark.parametrize("pinned", ["", "prompts: pinned\n"])
def test_the_text_of_a_prompt_with_a_secret_is_kept(guarded: Path, pinned: str) -> None:
    with (guarded / "workspace.yaml").open("a") as file:
        file.write(pinned)

    @step
    async def ask(prompt: str) -> str:
        return prompt

    @agent
    async def main(run: Run) -> str:
        return await ask(run.prompt("summary", key=KEY))

    (guarded / "prompts").mkdir()
    path = guarded / "prompts/summary.md"
    path.write_text(f"use {KEY} or {{{{key}}}}")
    outcome = run(guarded, main)
    assert outcome.status == "failed"
    assert "prompts/summary.md: has a secret: it contains the value of KEY" in str(outcome.error)
    path.write_text("use {{key}}")
    outcome = run(guarded, main)
    assert (outcome.status, outcome.result) == ("completed", "use [redacted:KEY]")
    assert KEY not in everything(guarded)


def test_a_secret_leaks_from_an_agent_that_can_not_be_imported(guarded: Path) -> None:
    (guarded / "agent.py").write_text('import os\nraise ValueError("no " + os.environ["KEY"])\n')
    outcome = run(guarded)
    assert (outcome.status, str(outcome.error)) == ("failed", "no [redacted:KEY]")
    assert KEY not in everything(guarded)
