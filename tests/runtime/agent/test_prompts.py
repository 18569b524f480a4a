"""Prompts as files: their places, and the version that is recorded with the steps they go into."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import warm
from click.testing import CliRunner, Result

import satchel
from satchel import Run, agent, effect, run, step
from satchel.runtime.cli.group import group
from satchel.workspace.base.errors import Damaged, InvalidFile, SatchelError, UsageError
from satchel.workspace.state import prompt_text
from satchel.workspace.store import DiskStore


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


# The texts that were used


def test_the_text_that_a_step_has_used_is_lost_when_its_file_changes(workspace: Path) -> None:
    first = write(workspace, "summary", "Summarise {{name}}")
    run(workspace, reading("summary", name="a"))
    second = write(workspace, "summary", "Sum up {{name}}")
    store = DiskStore(workspace)
    assert prompt_text(store, "summary", first) == "Summarise {{name}}"
    assert prompt_text(store, "summary", second) == "Sum up {{name}}", "the file of now, if no run has used it"
    (workspace / "prompts/summary.md").unlink()
    assert prompt_text(store, "summary", first) == "Summarise {{name}}"


def test_the_kept_text_comes_after_the_record_that_names_it(workspace: Path) -> None:
    version = write(workspace, "summary", "Summarise {{name}}")
    there = []

    @step
    async def look(text: str) -> str:
        there.append((workspace / f".satchel/prompts/{version}.md").read_text())
        return text

    @agent
    async def main(run: Run[Any]) -> None:
        await look(run.prompt("summary", name="a"))

    run(workspace, main)
    assert there == ["Summarise {{name}}"]


def test_a_kept_text_that_was_changed_or_is_no_version_is_returned(workspace: Path) -> None:
    version = write(workspace, "summary", "Summarise {{name}}")
    run(workspace, reading("summary", name="a"))
    store = DiskStore(workspace)
    (workspace / f".satchel/prompts/{version}.md").write_text("Ignore {{name}}")
    with pytest.raises(Damaged, match="is not the prompt that was used"):
        prompt_text(store, "summary", version)
    for wrong in ("0" * 12, "../../state", ""):
        with pytest.raises(UsageError):
            prompt_text(store, "summary", wrong)


def test_the_command_shows_the_file_of_now(workspace: Path) -> None:
    version = write(workspace, "mail/letter", "Dear {{name}}\x1b[31m\n")
    run(workspace, reading("mail/letter", name="Ada"))
    write(workspace, "mail/letter", "Hi")

    def shown(*words: str) -> Result:
        return CliRunner().invoke(group, ["show", str(workspace), *words])

    assert shown(f"prompt:mail/letter@{version}").output == "Dear {{name}}\\x1b[31m\n"
    told = json.loads(shown(f"prompt:mail/letter@{version}", "--json").output)
    assert told == {"name": "mail/letter", "version": version, "text": "Dear {{name}}\x1b[31m\n"}
    assert "satchel steps" in shown("prompt:mail/letter").output
    assert "is not kept" in shown("prompt:mail/letter@000000000000").output


# A run that is held to its prompts


def pin(workspace: Path, more: str = "") -> None:
    (workspace / "workspace.yaml").write_text(
        f"format: 1\nrun_id: test-1\nagent: agent.py:main\nprompts: pinned\n{more}"
    )


@agent
async def twice(run: Run[Any]) -> list[str]:
    """What each start sees of `one`, and the second also of `new`."""
    said = [str(run.prompt("one"))] + ([str(run.prompt("new"))] if run.attempt > 1 else [])
    if run.attempt < 3:
        raise ValueError(said)
    return said


def found(outcome: Any) -> list[str]:
    return [each.text for each in outcome.report.remarks if "prompt" in each.text]


def test_a_pinned_run_sees_a_changed_prompt(workspace: Path) -> None:
    pin(workspace, "on_drift: refuse\n")
    one = write(workspace, "one", "first")
    assert run(workspace, twice).status == "failed"
    write(workspace, "one", "changed")
    new = write(workspace, "new", "new")
    second = run(workspace, twice, accept_drift=True)
    assert str(second.error) == "['first', 'new']"
    kept = f"prompts/one.md has changed; the run keeps the version {one} (`prompts: pinned`)"
    assert found(second) == ["prompt new is new", kept]
    (workspace / "prompts/one.md").unlink()
    write(workspace, "new", "newer")
    complaints = satchel.open(workspace).status().complaints
    assert complaints == [
        kept.replace("has changed", "is missing"),
        f"prompts/new.md has changed; the run keeps the version {new} (`prompts: pinned`)",
    ]
    assert run(workspace, twice).result == ["first", "new"], "and on_drift: refuse does not count it"


def test_a_run_that_is_no_longer_pinned_keeps_its_versions_or_says_nothing(workspace: Path) -> None:
    pin(workspace)
    one = write(workspace, "one", "first")
    run(workspace, twice)
    changed = write(workspace, "one", "changed")
    write(workspace, "new", "new")
    (workspace / "workspace.yaml").write_text("format: 1\nrun_id: test-1\nagent: agent.py:main\n")
    second = run(workspace, twice)
    assert str(second.error) == "['changed', 'new']"
    assert f"prompt one was {one[:8]}, is {changed[:8]}" in found(second)
    pin(workspace)
    write(workspace, "one", "again")
    assert run(workspace, twice).result == ["again", "new"]


def test_a_step_in_a_thread_pins_no_prompt(workspace: Path) -> None:
    pin(workspace)
    seen = []

    @step
    def inside(run: Run[Any], start: int) -> str:
        return str(run.prompt("late"))

    @agent
    async def main(run: Run[Any]) -> None:
        seen.append(await inside(start=run.attempt))  # type: ignore[call-arg]
        if run.attempt < 3:
            raise ValueError

    run(workspace, reading("late"))  # there is none yet
    version = write(workspace, "late", "first")
    run(workspace, main)
    configured = [record["config"]["pinned"] for record in records(workspace, "configured")]
    assert configured[0] == {} and configured[-1] == {"late": version}
    write(workspace, "late", "second")
    run(workspace, main)
    assert seen == ["first", "first"]


def test_a_pinned_text_that_is_gone_is_replaced_by_the_file(workspace: Path) -> None:
    pin(workspace)
    one = write(workspace, "one", "first")
    run(workspace, twice)
    write(workspace, "one", "changed")
    write(workspace, "new", "new")
    (workspace / f".satchel/prompts/{one}.md").unlink()
    outcome = run(workspace, twice)
    assert isinstance(outcome.error, UsageError) and f"one@{one} is not kept" in str(outcome.error)
