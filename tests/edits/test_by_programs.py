"""`RunFiles.edit`: what a program saves for a person is checked first, and merged as an editor's save is."""

from __future__ import annotations

import asyncio
import json

import pytest

import satchel
from satchel.workspace.base.errors import Conflicting, InvalidFile, Refused, SatchelError, UsageError

from .folder import Place, world
from .running import Gate, going
from .test_while_running import make


def test_an_edit_is_not_what_the_run_continues_with(stopped: Place) -> None:
    handle = satchel.open(stopped.folder)
    draft = handle.files.draft()
    edited = handle.files.edit("todo.md", draft.text.replace("[ ] three", "[ ] trois"), version=draft.version)
    assert any("'trois'" in line for line in edited.says) and not edited.waits_for
    state = handle.files.draft("state.json")
    whole = json.loads(state.text)
    whole["data"]["n"] = 100
    said = asyncio.run(handle.files.edit_async("state.json", json.dumps(whole, indent=2), version=state.version)).says
    assert said == ("data.n is now 100",)
    assert stopped.run().status == "completed" and stopped.root.data["n"] == 102
    assert {record.file for record in stopped.edited} == {"todo.md", "state.json"} and "trois" in stopped.text()


def test_a_sub_agents_plan_does_not_reach_its_parents(finished: Place) -> None:
    handle = satchel.open(finished.folder)
    file = "agents/bob/todo.md"
    draft = handle.files.draft(file)
    edited = handle.files.edit(file, draft.text.replace("[x] bob 1", "[ ] bob 1"), version=draft.version)
    assert any("will be done again" in line for line in edited.says)
    assert any("will run again" in line for line in edited.says), "its parent's item has to spawn it"


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("state.json", '{"data": {"n": 1,, }}', "line 1, column 18"),
        ("state.json", ('"n": 1', '"n": "many"'), "line .*data.n"),
        ("state.json", '{"data": {}, "status": "completed"}', "can't be changed here"),
        ("state.json", " \n", "can't be empty"),
        ("todo.md", "\n", "can't be empty"),
        ("todo.md", "- [x] one ^1\n- [x] two ^1\n", "line 2"),
        ("todo.md", "- [ ] a\0b\n", "not text"),
        ("todo.md", "- [ ] half of a character \ud800\n", "surrogates"),
        ("workspace.yaml", "format: 1\n", "no plan and no state"),
        ("../other/todo.md", "- [ ] x\n", "no plan and no state"),
        ("/etc/passwd", "root", "no plan and no state"),
        ("journal/../todo.md", "- [ ] x\n", "no plan and no state"),
    ],
)
def test_a_wrong_text_is_saved(stopped: Place, file: str, text: str | tuple[str, str], said: str) -> None:
    handle = satchel.open(stopped.folder)
    text = text if isinstance(text, str) else stopped.text(file).replace(*text)
    before = stopped.hash()
    with pytest.raises(SatchelError, match=said):
        handle.files.edit(
            file, text, version=handle.files.draft(file).version if file in ("todo.md", "state.json") else ""
        )
    assert stopped.hash() == before
    if "/" in file:
        with pytest.raises(UsageError):
            handle.files.draft(file)


def test_a_secret_is_saved(stopped: Place) -> None:
    stopped.put("workspace.yaml", stopped.text("workspace.yaml") + "redact: {patterns: ['tok-[a-z]+']}\n")
    handle = satchel.open(stopped.folder)
    draft = handle.files.draft()
    with pytest.raises(Refused, match="has a secret") as refused:
        handle.files.edit("todo.md", draft.text.replace("three", "use tok-abcdef"), version=draft.version)
    assert "tok-abc" not in str(refused.value) and "tok-" not in stopped.text()


def test_a_text_without_a_change_is_written(stopped: Place) -> None:
    handle = satchel.open(stopped.folder)
    draft, before = handle.files.draft(), stopped.hash()
    assert handle.files.edit("todo.md", draft.text, version=draft.version).says == ()
    stopped.run()
    after = stopped.hash()
    assert handle.files.edit("todo.md", draft.text, version=draft.version).says == (), (
        "the run has moved on, the person not"
    )
    assert before != after == stopped.hash()


def test_another_persons_save_is_lost(stopped: Place) -> None:
    handle = satchel.open(stopped.folder)
    draft = handle.files.draft()
    stopped.edit("todo.md", ("[ ] three", "[ ] drei"))
    theirs = stopped.get("todo.md")
    mine = draft.text.replace("[ ] three", "[ ] trois")
    with pytest.raises(Conflicting, match="another person"):
        handle.files.edit("todo.md", mine, version=draft.version)
    assert stopped.get("todo.md") == theirs
    assert handle.files.edit("todo.md", mine, version=handle.files.draft().version).says, (
        "it was read, so it may be replaced"
    )
    assert "trois" in stopped.text()


def test_an_edit_from_an_older_moment_undoes_the_run(stopped: Place) -> None:
    handle = satchel.open(stopped.folder)
    draft = handle.files.draft()
    assert stopped.run().status == "completed"
    world.fresh()
    edited = handle.files.edit(
        "todo.md", draft.text.replace("[ ] three", "[ ] three\n- [ ] four"), version=draft.version
    )
    assert any("'four') is new" in line or "'four' is new" in line for line in edited.says)
    assert stopped.run().status == "completed"
    assert {call.split()[1].strip("!").lower() for call in world.fresh()} == {"four"}


def test_a_contradiction_is_saved_unasked_or_can_not_be_settled(stopped: Place) -> None:
    handle = satchel.open(stopped.folder)
    draft = handle.files.draft("state.json")
    whole = json.loads(draft.text)
    whole["data"]["n"] = 100
    text = json.dumps(whole)
    assert stopped.run().status == "completed"
    before = stopped.hash()
    with pytest.raises(Conflicting, match="conflicts with the run"):
        handle.files.edit("state.json", text, version=draft.version)
    assert stopped.hash() == before
    assert handle.files.edit("state.json", text, version=draft.version, conflict=True).says
    assert [each.path for each in handle.merge().open] == ["state.json"]
    assert handle.merge("theirs").settled == ("state.json",) and stopped.root.data["n"] == 100


def test_a_plan_is_not_taken_before_the_first_start(place: Place) -> None:
    handle = satchel.open(place.folder)
    assert handle.files.draft() == satchel.results.Draft("todo.md", "", "")
    with pytest.raises(Refused, match="exists before the first run"):
        handle.files.edit("state.json", '{"data": {}}', version="")
    with pytest.raises(InvalidFile):
        handle.files.edit("todo.md", "- [ ] one ^1\n- [ ] two ^1\n", version="")
    assert handle.files.edit("todo.md", "- [ ] mine\n", version="").says
    with pytest.raises(Conflicting):
        handle.files.edit("todo.md", "- [ ] yours\n", version="")
    assert place.run().status == "completed" and "[x] mine" in place.text()


def test_an_edit_does_not_reach_a_running_agent(place: Place) -> None:
    gate = Gate("one 1")
    with going(place, make(gate, "one", "two"), gate) as running:
        running.reach("one 1")
        handle = satchel.open(place.folder)
        draft = handle.files.draft()
        edited = handle.files.edit("todo.md", draft.text.replace("[ ] two", "[ ] zwei"), version=draft.version)
        assert edited.waits_for and edited.says
        running.until_told("todo.md was saved")
        gate.open()
        running.until_taken()
    assert "zwei" in place.text() and [call for call in gate.calls if call.startswith("zwei")]
