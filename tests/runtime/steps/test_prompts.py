"""Prompts as files: their places, and the version that is recorded with the steps they go into."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import warm

from satchel import Run, agent, effect, run, step
from satchel.workspace.base.errors import InvalidFile, SatchelError, UsageError


def write(workspace: Path, name: str, text: str) -> str:
    """Make a prompt; returns its version."""
    path = workspace / "prompts" / f"{name}.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def records(workspace: Path, kind: str) -> list[dict[str, Any]]:
    lines = [line for path in sorted(workspace.glob("journal/*.jsonl")) for line in path.read_text().splitlines()]
    return [record for record in map(json.loads, lines) if record["type"] == kind]


@step
async def ask(text: str) -> str:
    return text


@step
async def ask_by_itself(run: Run[Any], name: str) -> str:
    return run.prompt("summary", name=name)


def reading(prompt: str, /, **values: Any) -> Any:
    @agent
    async def main(run: Run[Any]) -> str:
        return str(await ask(run.prompt(prompt, **values)))

    return main


def test_values_are_put_into_their_places_and_other_braces_stay(workspace: Path) -> None:
    write(workspace, "summary", 'Summarise {{ name }} in {{count}} words as {"text": {}} { name }.\n')
    outcome = run(workspace, reading("summary", name="{{count}}", count=3))
    assert outcome.result == 'Summarise {{count}} in 3 words as {"text": {}} { name }.\n', outcome.error


def test_a_prompt_may_lie_in_a_folder(workspace: Path) -> None:
    write(workspace, "mail/letter", "Dear {{name}}")
    assert run(workspace, reading("mail/letter", name="Ada")).result == "Dear Ada"


def test_the_version_is_recorded_with_the_step_that_gets_it(workspace: Path) -> None:
    version = write(workspace, "summary", "Summarise {{name}}")
    run(workspace, reading("summary", name="a"))
    assert records(workspace, "step.completed")[0]["prompts"] == {"summary": version}
    log = warm.run(
        [sys.executable, "-m", "satchel", "log", str(workspace)], capture_output=True, text=True, check=True
    ).stdout
    assert f"[prompt summary@{version}]" in log


def test_the_version_is_recorded_with_the_step_or_effect_that_reads_it(workspace: Path) -> None:
    version = write(workspace, "summary", "Summarise {{name}}")

    @effect
    async def send(text: str) -> None: ...

    @agent
    async def main(run: Run[Any]) -> None:
        await ask_by_itself(name="a")  # type: ignore[call-arg]
        await ask("no prompt")
        await send(run.prompt("summary", name="a"))

    outcome = run(workspace, main)
    assert outcome.status == "completed", outcome.error
    found = [(record["step"], record.get("prompts")) for record in records(workspace, "step.completed")]
    assert found == [("ask_by_itself", {"summary": version}), ("ask", None), ("send", {"summary": version})]
    assert records(workspace, "step.started")[0]["prompts"] == {"summary": version}


def test_a_changed_prompt_is_another_call_with_another_version(workspace: Path, crash: Any) -> None:
    @agent
    async def main(run: Run[Any]) -> str:
        found = await ask(run.prompt("summary", name="a"))
        if run.attempt == 1:
            raise crash
        return str(found)

    first = write(workspace, "summary", "Summarise {{name}}")
    with pytest.raises(crash):
        run(workspace, main)
    second = write(workspace, "summary", "Sum up {{name}}")
    assert run(workspace, main).result == "Sum up a"
    versions = [record["prompts"]["summary"] for record in records(workspace, "step.completed")]
    assert versions == [first, second]


def test_a_sub_agent_reads_the_prompts_of_the_workspace(workspace: Path) -> None:
    version = write(workspace, "summary", "Summarise {{name}}")
    child = reading("summary", name="b")

    @agent
    async def main(run: Run[Any]) -> str:
        return str(await run.spawn(child, "child"))

    assert run(workspace, main).result == "Summarise b"
    assert records(workspace, "step.completed")[0]["prompts"] == {"summary": version}


def test_a_prompt_that_is_not_there_names_those_that_are(workspace: Path) -> None:
    write(workspace, "summary", "a")
    write(workspace, "letter", "a")
    error = run(workspace, reading("sumary")).error
    assert isinstance(error, UsageError)
    assert "prompts/sumary.md" in str(error) and "summary" in str(error) and "letter" in str(error)


def test_without_any_prompts_the_error_says_what_to_do(workspace: Path) -> None:
    error = run(workspace, reading("summary")).error
    assert isinstance(error, UsageError) and "prompts/summary.md" in str(error) and "rite the file" in str(error)


def test_a_place_without_a_value_is_told_with_its_line(workspace: Path) -> None:
    write(workspace, "summary", "Summarise\n  {{name}} in {{count}} words\n")
    error = run(workspace, reading("summary", count=3)).error
    assert isinstance(error, InvalidFile)
    assert "prompts/summary.md" in str(error) and "line 2" in str(error) and "name=" in str(error)
    assert "count=" not in str(error)


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "..", "", "a/../../secret", "a\\b", "a\0"])
def test_a_name_that_leads_out_is_refused(workspace: Path, name: str) -> None:
    (workspace.parent / "secret.md").write_text("secret")
    error = run(workspace, reading(name)).error
    assert isinstance(error, SatchelError) and "secret" not in str(getattr(error, "why", ""))


def test_a_link_that_leads_out_is_refused(workspace: Path) -> None:
    (workspace.parent / "secret.md").write_text("secret")
    (workspace / "prompts").mkdir()
    (workspace / "prompts" / "link.md").symlink_to(workspace.parent / "secret.md")
    assert isinstance(run(workspace, reading("link")).error, SatchelError)


def test_a_prompt_that_is_not_text_is_refused(workspace: Path) -> None:
    (workspace / "prompts").mkdir()
    (workspace / "prompts" / "broken.md").write_bytes(b"\xff\xfe")
    error = run(workspace, reading("broken")).error
    assert isinstance(error, SatchelError) and "prompts/broken.md" in str(error)
