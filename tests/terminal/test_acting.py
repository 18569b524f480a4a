"""What a person does with keys. Each act is that of the handle, and its error is shown."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
from pathlib import Path
from typing import Any

import pytest
from cli.conftest import ASKING as DOUBTFUL
from cli.conftest import Make
from textual.drivers.headless_driver import HeadlessDriver

import satchel
from satchel.runtime.faces.watch import actions
from satchel.workspace.base import UsageError

from .conftest import ASKING, WAITING, Screen, play, watching

FIELDS = """
from satchel import agent

SCHEMA = {
    "type": "object", "required": ["amount"],
    "properties": {
        "amount": {"type": "number", "description": "in euros"}, "to": {"type": "string", "default": "Ada"},
        "code": {"type": "string"},
    },
}

@agent
async def main(run):
    answer = await run.ask("How much?", schema=SCHEMA, wait_for=0)
    await run.output("answer.json", answer.decision)
"""


def answered(folder: Path) -> list[Any]:
    return [row.record["decision"] for row in satchel.open(folder).history.log(type="approval.answered")]


def test_a_question_is_answered_with_its_context_in_sight_and_a_note(make: Make) -> None:
    folder = make(ASKING)
    satchel.open(folder).run()

    async def test() -> None:
        async with watching(folder) as screen:
            await screen.until("a1: May I write to Ada?")
            await screen.press("a")
            await screen.until("limit: 250", "1 yes", "2 no", "note (may be empty)")
            await screen.press("enter")  # one Enter too many answers nothing
            await screen.until("choose an answer with the arrows first")
            await screen.press("2", "tab")
            await screen.type("not now")
            await screen.press("enter")
            await screen.until("a1 is answered: no; r resumes the run")

    play(test)
    assert answered(folder) == ["no"]
    (row,) = satchel.open(folder).history.log(type="approval.answered")
    assert row.record["note"] == "not now"


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("choices", ['["yes", "no"]', "None"])
def test_a_question_that_is_longer_than_the_screen_is_answered_half_read(make: Make, choices: str) -> None:
    text = "\\n".join(f"paragraph {number}." for number in range(60))
    folder = make(ASKING.replace('["yes", "no"]', choices).replace('"limit": 250', f'"draft": "{text}"'))
    satchel.open(folder).run()

    async def test() -> None:
        async with watching(folder) as screen:
            await screen.until("a1: May I write to Ada?")
            await screen.press("a")
            await screen.until("paragraph 0.", "a1 write to Ada  lines 1-", " of 62, Page Down")
            for _ in range(6):
                await screen.press("pagedown")
            await screen.until("paragraph 59.", "-62 of 62", gone="paragraph 0.")
            await screen.press("pageup")
            await screen.until("paragraph 40.", gone="paragraph 59.")

    play(test)


def test_an_answer_is_left_with_escape(make: Make) -> None:
    folder = make(ASKING)
    satchel.open(folder).run()

    async def test() -> None:
        async with watching(folder) as screen:
            await screen.until("a1: May I write to Ada?")
            await screen.press("5", "enter")
            await screen.until("1 yes")
            await screen.press("1", "escape")
            await screen.until("nothing was answered")

    play(test)
    assert answered(folder) == []


def test_fields_of_a_schema_are_typed_and_checked(make: Make) -> None:
    folder = make(FIELDS)
    satchel.open(folder).run()

    async def fill(screen: Screen, amount: str) -> None:
        await screen.press("a")
        await screen.until("amount: number, in euros", "to (may be empty): string", "Ada")
        await screen.type(amount)
        await screen.press("ctrl+s")

    async def test() -> None:
        async with watching(folder) as screen:
            await screen.until("a1: How much?")
            await fill(screen, "some")
            await screen.until('found "some", expected a number')
            await fill(screen, "2.5")
            await screen.until("a1 is answered")

    play(test)
    assert answered(folder) == [{"amount": 2.5, "to": "Ada"}]


REFUNDS = """
from satchel import agent

async def work(run, item):
    given = {"amount": 80, "to": "ada"}
    answer = await run.ask(f"Refund {item.text}?", arguments=given, tool="refund", wait_for=0)
    run.state[item.text] = [answer.arguments, answer.decision]

@agent
async def main(run):
    if not run.todo.items:
        await run.plan("Refunds", ["one", "two"])
    await run.todo.each(work)
"""


@pytest.mark.long
def test_other_arguments_can_not_be_approved_or_are_not_checked(make: Make) -> None:
    folder = make(REFUNDS)
    satchel.open(folder).run()

    async def approve(screen: Screen, typed: str, choice: str = "1") -> None:
        await screen.press("a")
        await screen.until("amount  80", "other arguments to approve, as amount=VALUE (may be empty)")
        await screen.press(choice, "tab")
        await screen.type(typed)
        await screen.press("enter", "enter")

    async def test() -> None:
        async with watching(folder) as screen:
            await screen.until("a1: Refund one?")
            for typed, said in (
                ("amount", "a changed argument is NAME=VALUE, not 'amount'"),
                ("amout=50", "Did you mean amount?"),
                ("to='ada", "No closing quotation"),
            ):
                await approve(screen, typed)
                await screen.until(said)
            await approve(screen, "amount=50", choice="2")
            await screen.until("unless the decision is approve")
            await approve(screen, "amount=50 to='Ada Lovelace'")
            await screen.until('a1 is answered: approve with amount: 50, to: "Ada Lovelace"; r resumes the run')

    play(test)
    assert satchel.open(folder).resume().status == "waiting"
    data = json.loads((folder / "state.json").read_text())["data"]
    assert data == {"one": [{"amount": 50, "to": "Ada Lovelace"}, "approve"]}


def test_a_standing_approval_can_not_be_given_with_keys_or_the_next_question_read(make: Make) -> None:
    folder = make(REFUNDS.replace("await run.todo.each(work)", "await run.todo.each(work, parallel=2)"))
    handle = satchel.open(folder)
    handle.run()

    async def test() -> None:
        async with watching(folder) as screen:
            await screen.until("a1: Refund one?")
            await screen.press("a")
            await screen.until("Refund one?", "amount  80", "Ctrl-N next question (1 more)", "call ^1/1  refund")
            await screen.press("ctrl+n")
            await screen.until("Refund two?", "3 approve, and each later call of refund", "whatever its arguments")
            await screen.press("3", "enter")
            await screen.until("a2 is answered: approve, for later calls too")

    play(test)
    assert [*handle.status().approved] == ["a2"]


def test_a_standing_approval_is_not_shown_or_revoked_without_a_word(make: Make) -> None:
    folder = make(REFUNDS.replace('"refund"', "item.text"))
    handle = satchel.open(folder)
    handle.run()

    async def test() -> None:
        async with watching(folder) as screen:
            await screen.until("a1: Refund one?")
            await screen.press("v")
            await screen.until("there is no standing approval")
            await handle.answer_async("approve", standing=True, by="Ada")
            assert (await handle.run_async()).status == "waiting"
            await handle.answer_async("approve", standing=True, by="Ada")
            await screen.press("7")
            await screen.until("each call of one: a1, by Ada", "each call of two: a2, by Ada", "v revokes it")
            await screen.press("v")
            await screen.until("Revoke a1, which approves each call of one?")
            await screen.press("n")
            await screen.until("Revoke a2, which approves each call of two?")
            await screen.press("y")
            await screen.until("a2 is revoked: it counts for no later call", gone="each call of two")

    play(test)
    assert [*handle.status().approved] == ["a1"]


def test_an_effect_in_doubt_is_answered_with_its_result(make: Make) -> None:
    folder = make(DOUBTFUL)
    satchel.open(folder).run()

    async def test() -> None:
        async with watching(folder) as screen:
            await screen.until("d1: send")
            await screen.press("a")
            text = await screen.until("what it has returned", "it has not happened; do it")
            await screen.press("1" if "1 done" in text else "2", "tab")
            await screen.type("sent")
            await screen.press("enter", "enter")
            await screen.until("d1 is answered")

    play(test)
    (row,) = satchel.open(folder).history.log(type="resolved")
    assert (row.record["outcome"], row.record["result"]) == ("done", "sent")


def test_an_active_run_is_paused_and_quitting_stops_none(make: Make, tmp_path: Path) -> None:
    go = tmp_path / "go"
    folder = make(WAITING.replace("GO", repr(str(go))))

    async def test() -> None:
        run = asyncio.create_task(satchel.open(folder).run_async())
        async with watching(folder) as screen:
            await screen.until("stormy")
            await screen.press("q")
            await screen.when(lambda: not screen.app.is_running)
        assert not run.done()
        async with watching(folder) as screen:
            await screen.until("p pause  x stop")
            await screen.press("p")
            await screen.until("draining", "stops at its next safe point", "pause: manual, by", "r withdraw the pause")
            await screen.press("r")
            await screen.until("the pause is withdrawn", "running", "p pause  x stop")
            await screen.press("p")
            await screen.until("draining", "r withdraw the pause")
            go.touch()
            await screen.until("paused", "1/2", "r resume")
        assert (await run).status == "paused"

    play(test)


def test_stop_and_cancel_are_confirmed(make: Make) -> None:
    folder = make(ASKING)
    satchel.open(folder).run()

    async def test() -> None:
        async with watching(folder) as screen:
            await screen.until("a1: May I write to Ada?")
            await screen.press("x")
            await screen.until("Kill what runs it, now?")
            await screen.press("n")
            await screen.until("r resume", gone="Kill what runs it")
            assert satchel.open(folder).status().state == "waiting"
            await screen.press("x")
            await screen.until("Kill what runs it, now?")
            await screen.press("y")
            await screen.until("Nothing was running. No process starts", "paused")
            await screen.press("c")
            await screen.until("End this run for good?")
            await screen.press("y")
            await screen.until("cancelled", "demo-1a2b  cancelled")
            await screen.press("c")
            await screen.until("End this run for good?")
            await screen.press("y")
            await screen.until("was already cancelled")  # the error of the handle
            await screen.press("x")
            await screen.until("nothing runs it: it is cancelled")

    play(test)
    assert satchel.open(folder).status().state == "cancelled"


def test_the_run_stays_in_sight_while_its_stop_is_confirmed(make: Make) -> None:
    folder = make(ASKING)
    satchel.open(folder).run()

    async def test() -> None:
        async with watching(folder) as screen:
            await screen.until("a1: May I write to Ada?")
            await screen.press("x", "x")  # a key too many asks no second time
            await screen.until("Kill what runs it, now?", "[/] write to Ada", "demo-1a2b  waiting")
            await screen.press("n")
            await screen.until("a answer  r resume", gone="Kill what runs it")

    play(test)
    assert satchel.open(folder).status().state == "waiting"


def test_work_and_messages_are_sent_in_several_lines(make: Make) -> None:
    folder = make(ASKING)

    async def test() -> None:
        async with watching(folder) as screen:
            await screen.until("new")
            await screen.press("s")
            await screen.until("Work for the inbox")
            await screen.type("write to")
            await screen.press("enter")
            await screen.type("Barbara")
            await screen.press("ctrl+s")
            await screen.until("sent: inbox/")
            await screen.press("m")
            await screen.until("A message to the agent")
            await screen.press("escape")
            await screen.until("nothing was sent")

    play(test)
    (file,) = (folder / "inbox").iterdir()
    assert file.read_text() == "write to\nBarbara\n"


def test_a_text_that_can_not_be_sent_is_lost(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make(ASKING)

    def fails(handle: satchel.Handle, *contents: object, **options: object) -> None:
        raise OSError(5, "Input/output error")

    async def test() -> None:
        async with watching(folder) as screen:
            await screen.until("new")
            await screen.press("s")
            await screen.until("Work for the inbox")
            await screen.type("write to Ada")
            with monkeypatch.context() as patch:
                patch.setattr(satchel.Handle, "send", fails)
                await screen.press("ctrl+s")
                await screen.until("Input/output error", "Work for the inbox", "write to Ada")
            await screen.press("ctrl+s")
            await screen.until("sent: inbox/")

    play(test)
    (file,) = (folder / "inbox").iterdir()
    assert file.read_text() == "write to Ada\n"


def editor(folder: Path, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make `code` the person's editor: a shell command for the file `$1`."""
    path = folder / "editor"
    path.write_text(f"#!/bin/sh\n{code}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", str(path))


def edited(handle: satchel.Handle, file: str) -> str:
    opened = actions.EditorFile(handle, file)
    return opened.finish(actions.call(actions.editor(), opened.path))


@pytest.mark.parametrize("is_remote", [False, True])
def test_a_file_is_edited_with_the_editor_of_the_person(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_remote: bool
) -> None:
    folder = make(ASKING)
    satchel.open(folder).run()
    handle = satchel.open(f"file://{folder}" if not is_remote else _uploaded(folder, tmp_path.name))
    editor(tmp_path, "true", monkeypatch)
    assert edited(handle, "todo.md") == "todo.md is unchanged"
    editor(tmp_path, 'echo "- [ ] write to Edsger" >> "$1"', monkeypatch)
    said = edited(handle, "todo.md")
    assert said.startswith("todo.md is saved: ") and "write to Edsger" in said and said.endswith("next start takes it")
    status = handle.status()
    assert status.noticed and len(status.noticed.edits) == 1
    for code, failed in (("exit 3", "ended with exit code 3"), ("kill -TERM $$", "was killed by signal 15")):
        editor(tmp_path, code, monkeypatch)
        with pytest.raises(UsageError, match=f"{failed}: nothing is saved"):
            edited(handle, "state.json")
    editor(tmp_path, 'echo broken > "$1"; exit 3', monkeypatch)
    with pytest.raises(UsageError, match="exit code 3: " + ("your text is in" if is_remote else "it has saved state")):
        edited(handle, "state.json")
    editor(tmp_path, 'rm "$1"', monkeypatch)
    with pytest.raises(UsageError, match=r"state\.json is gone"):
        edited(handle, "state.json")


def test_a_saved_edit_that_the_run_can_not_take_is_called_taken(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make(ASKING)
    satchel.open(folder).run()
    before = (folder / "state.json").read_bytes()
    handle = satchel.open(folder)
    editor(tmp_path, """sed -i 's/"data": {/"data": {{/' "$1" """, monkeypatch)
    with pytest.raises(UsageError, match=r"state\.json is saved, but the run can't take it: .*line \d+, column \d+"):
        edited(handle, "state.json")
    assert b'"data": {{' in (folder / "state.json").read_bytes()
    (folder / "state.json").write_bytes(before)
    editor(tmp_path, 'echo >> "$1"', monkeypatch)
    assert edited(handle, "todo.md") == "todo.md is saved; nothing in it waits for the run"


def test_an_edit_that_an_active_run_refuses_while_the_editor_is_open_is_called_unchanged(
    make: Make, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    folder = make(WAITING.replace("GO", repr(str(go))))
    state = folder / "state.json"

    async def test() -> None:
        run = asyncio.create_task(satchel.open(folder).run_async())
        async with watching(folder) as screen:
            await screen.until("stormy")
            opened = await asyncio.to_thread(actions.EditorFile, satchel.open(folder), "state.json")
            state.write_text("broken")
            await screen.when((folder / "state.rejected.txt").exists)
            await screen.when(lambda: state.read_text() != "broken")
            with pytest.raises(UsageError, match=r"has not taken your edit of state.json: state.rejected.txt says why"):
                await asyncio.to_thread(opened.finish)
            go.touch()
            assert (await run).status == "completed"

    play(test)


def _uploaded(folder: Path, name: str) -> str:
    """The same workspace in a storage that has no files for an editor."""
    from satchel.runtime import api

    url = f"memory://watched/{name}"
    api.open(folder).copy(url)
    return url


def test_a_text_that_can_not_be_sent_back_is_kept(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make(ASKING)
    satchel.open(folder).run()
    handle = satchel.open(_uploaded(folder, tmp_path.name))
    editor(tmp_path, 'printf "{" > "$1"', monkeypatch)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    with pytest.raises(UsageError, match="your text is in") as caught:
        edited(handle, "state.json")
    kept = Path(str(caught.value).partition("your text is in ")[2].partition("state.json")[0]) / "state.json"
    assert kept.read_text() == "{"


def test_an_editor_that_is_not_known_or_not_there_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.delenv("EDITOR", raising=False)
    with pytest.raises(UsageError, match="neither VISUAL nor EDITOR is set"):
        actions.editor()
    monkeypatch.setenv("EDITOR", "vim 'unclosed")
    with pytest.raises(UsageError, match="EDITOR is no command: No closing quotation"):
        actions.editor()
    assert "does not start (No such file" in actions.call(["no-such-editor"], os.devnull)


def test_ctrl_c_is_for_the_editor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.getsignal(signal.SIGINT)
    editor(tmp_path, 'kill -INT $PPID; echo saved > "$1"', monkeypatch)
    assert actions.call(actions.editor(), str(tmp_path / "text")) == ""
    assert (tmp_path / "text").read_text() == "saved\n" and signal.getsignal(signal.SIGINT) is before


def test_the_screen_is_back_after_an_editor_that_fails(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make(ASKING)
    (tmp_path / "text").write_text("no program")
    seen: list[str] = []
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setattr(HeadlessDriver, "can_suspend", True)  # there is no terminal to give away
    monkeypatch.setattr(HeadlessDriver, "suspend_application_mode", lambda driver: seen.append("away"))
    monkeypatch.setattr(HeadlessDriver, "resume_application_mode", lambda driver: seen.append("back"))

    async def test() -> None:
        async with watching(folder) as screen:
            await screen.until("new")
            for command, said in (
                ("false", "the editor 'false' ended with exit code 1: nothing is saved"),
                ("not-there --wait", "the editor 'not-there' does not start"),
                (str(tmp_path / "text"), "Permission denied"),
                ("true", "todo.md is unchanged"),
            ):
                monkeypatch.setenv("EDITOR", command)
                await screen.press("e")
                await screen.until(said)
                assert seen == ["away", "back"]
                seen.clear()
            monkeypatch.setenv("EDITOR", "'unbalanced")
            await screen.press("e")
            await screen.until("EDITOR is no command: No closing quotation")
            assert not seen

    play(test)
