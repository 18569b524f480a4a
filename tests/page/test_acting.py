"""The forms that act, as a browser without JavaScript sends them: what they do, and what stays after a mistake."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest
from api.test_answering import GRANTING
from api.test_withdrawing import Gated, until
from api.test_withdrawing import make as hold

import satchel
from satchel.errors import StorageFailed
from satchel.workspace.journal import read
from satchel.workspace.store import DiskStore

from .conftest import PLAIN, make

pytest.importorskip("starlette")

from .acts import OURS, Person

FORMS = {
    "schema": ("run.ask('How much?', schema={'type': 'integer', 'maximum': 300}, wait_for=0)", "250", 250),
    "boolean": ("run.ask('Go?', schema={'type': 'boolean'}, wait_for=0)", "true", True),
    "enum": ("run.ask('Which?', schema={'enum': ['a: b', '7']}, wait_for=0)", '"7"', "7"),
    "text": ("run.ask('Why?', wait_for=0)", "  because: {\n of it", "because: {\n of it"),
    "object": ("run.ask('Whom?', schema={'type': 'object', 'required': ['to']}, wait_for=0)", "to: Ada", {"to": "Ada"}),
}


@pytest.fixture
def person(tmp_path: Path) -> Iterator[Person]:
    """At a run that waits for an answer."""
    make(tmp_path / "runs/team/a", GRANTING).run()
    with Person(tmp_path / "runs", "team/a") as found:
        yield found


def handle(person: Person) -> satchel.Handle:
    return satchel.open(f"{person.site.overview.url}/{person.name}")


def test_an_answer_is_not_recorded(person: Person) -> None:
    person.read()
    assert "a1 is answered: approve" in person.act("answer", question="a1", decision="approve", note="only <once>")
    (row,) = handle(person).history.log(type="approval.answered")
    assert row.record["decision"] == "approve" and row.record["note"] == "only <once>"
    assert "already answered" in person.act("answer", question="a1", decision="approve")
    assert "already answered: approve" in person.act("answer", question="a1", decision="deny"), "a denial after it"
    assert person.status == 422


def test_an_answer_that_is_recorded_is_shown_as_refused(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    """The storage fails between the record and the look that tells who continues the run."""
    person.read()

    def fails_once(self: satchel.Handle, **how: object) -> None:
        monkeypatch.undo()
        raise StorageFailed("can't be read", path="journal")

    monkeypatch.setattr(satchel.Handle, "status", fails_once)
    assert "a1 is answered: approve" in person.act("answer", question="a1", decision="approve")
    assert person.status == 200


def test_a_wrong_answer_loses_what_was_typed(person: Person) -> None:
    said = person.act("answer", question="a1", decision="aprove", note='my "note" </p>')
    assert person.status == 422 and "Did you mean approve?" in said and "Nothing was done" in said
    assert person.field("note") == 'my "note" </p>' and person.field("question") == "a1"
    assert not [*handle(person).history.log(type="approval.answered")]
    for id in ("a9", "", "../a1", "a1/../a1"):
        person.act("answer", question=id, decision="approve")
        assert person.status == 422


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("kind", FORMS)
def test_an_answer_is_not_of_its_type(tmp_path: Path, kind: str) -> None:
    call, typed, kept = FORMS[kind]
    source = (
        "from satchel import agent\n@agent\nasync def main(run):\n    await run.scope('s', ask, run)\n"
        f"async def ask(run):\n    answer = await {call}\n    run.state['said'] = answer.decision\n"
    )
    made = make(tmp_path / "runs/a", source)
    made.run()
    with Person(tmp_path / "runs", "a") as person:
        form = person.read()
        buttons = re.findall('name="decision" value="([^"]*)"', form)
        assert kind in ("boolean", "enum") or 'name="decision"' in form
        if kind in ("schema", "object"):
            person.act("answer", question="a1", decision="nonsense: [")
            assert person.status == 422 and person.field("decision") == "nonsense: ["
        elif kind != "text":
            assert typed.replace('"', "&#34;") in buttons
        assert "is answered" in person.act("answer", question="a1", decision=typed)
    assert made.run().status == "completed"
    assert json.loads((tmp_path / "runs/a/state.json").read_text())["data"] == {"said": kept}


def test_a_doubt_is_not_settled(tmp_path: Path) -> None:
    source = (
        "from satchel import agent, effect\n@effect\nasync def mail():\n    raise TimeoutError('no answer')\n"
        "@agent\nasync def main(run):\n    async def s(run):\n        run.state['r'] = await mail()\n"
        "    await run.scope('s', s, run)\n"
    )
    made = make(tmp_path / "runs/a", source)
    made.run()
    with Person(tmp_path / "runs", "a") as person:
        assert 'name="result"' in person.read()
        person.act("answer", question="d1", decision="redo", result="4711")
        assert person.status == 422 and person.field("result") == "4711", "a result of what has not happened"
        assert "is answered" in person.act("answer", question="d1", decision="done", result="4711")
    assert made.resume().status == "completed" and '"r": 4711' in (tmp_path / "runs/a/state.json").read_text()


def test_a_pause_is_another_one_than_was_typed(person: Person) -> None:
    assert "is not a time" in person.act("pause", reason="lunch & <more>", until="noonish", resume="restart_step")
    assert (person.field("reason"), person.field("until")) == ("lunch & <more>", "noonish")
    assert 'value="restart_step" selected' in person.text and re.search('<details class="act"[^>]* open>', person.text)
    assert "no way to resume" in person.act("pause", reason="x", resume="at_once")
    assert "paused" in person.act("pause", reason="lunch & <more>", until="45m", resume="restart_step")
    moment = handle(person).status().moment
    assert moment and moment.pause and (moment.pause.reason, moment.pause.resume) == ("lunch & <more>", "restart_step")
    assert moment.pause.until


def test_a_pause_can_not_be_taken_back(tmp_path: Path) -> None:
    made, gated = hold(tmp_path / "runs/a"), Gated()
    with gated.going(made) as ended, Person(tmp_path / "runs", "a") as person:
        assert "Withdraw the pause" not in person.read()
        person.act("pause", reason="lunch")
        assert "Withdraw the pause" in person.read("plan")
        said = person.act("resume")
        assert "the pause is withdrawn; process" in said and "Withdraw the pause" not in person.text
        made.cancel()
        journal = Path(made.url) / "journal"
        until(lambda: any('"mode":"cancel"' in each.read_text() for each in journal.glob("*.jsonl")))  # it knows
        assert "Withdraw the pause" not in person.read()
        person.act("resume")
        assert person.status == 422 and "a cancellation can&#39;t be withdrawn" in person.text
    assert ended[0].status == "cancelled"


def test_a_run_without_a_process_is_not_stopped_or_cancelled(person: Person) -> None:
    assert "Nothing was running" in person.act("stop", reason="wrong recipients")
    assert "mode: emergency" in (Path(handle(person).url) / "pause.yaml").read_text()
    token = person.field("form_token")
    assert "cancelled" in person.act("cancel", reason="not needed")
    assert handle(person).status().state == "cancelled"
    form = {"form_token": token}
    again = person.client.post(f"/run/{person.name}/-/act/cancel", data=form, headers=OURS)
    assert again.status_code == 422 and "already cancelled" in again.text
    assert "Resume" not in person.read() and "send-text" not in person.text


@pytest.mark.slow
def test_resume_runs_nothing_or_something_in_the_process_of_the_page(person: Person) -> None:
    """It runs in another process, which ends by itself since the run still waits."""
    assert "waiting for a person" in person.act("resume") or "active in the background" in person.act("resume")
    first, *starts = [row.record["pid"] for row in handle(person).history.log(type="opened")]
    assert first == os.getpid() and starts and os.getpid() not in starts
    Path(handle(person).url, "workspace.yaml").write_text("format: 1\nrun_id: a\n")
    said = person.act("resume")
    assert person.status == 422 and "did not start" in said and "agent" in said


def test_what_is_sent_does_not_arrive(person: Person) -> None:
    assert "The task is in inbox/" in person.act("send", text="Write to <Ada>\nand Grace", kind="task")
    assert "The message is in inbox/" in person.act("send", text="Ada is away", kind="message")
    sent = sorted(path.read_text() for path in Path(handle(person).url, "inbox").iterdir())
    assert "Write to <Ada>\nand Grace\n" in sent and any("kind: message" in text for text in sent)
    person.act("send", text=" \n")
    assert person.status == 422
    person.act("send", text="x" * (1 << 20) + "\nend")
    assert person.status == 422 and person.field("text").endswith("\nend")


def test_a_double_click_sends_twice(person: Person) -> None:
    person.read()
    once = person.field("once")
    first, second = (person.act("send", text="Write to Ada", kind="task", once=once) for _ in range(2))
    assert first == second and "The task is in inbox/" in first
    assert person.act("send", text="Write to Grace", kind="task", once=once) != first, "as after the Back button"
    person.read()
    assert person.act("send", text="Write to Ada", kind="task", once=person.field("once")) != first
    sent = sorted(path.read_text() for path in Path(handle(person).url, "inbox").iterdir())
    assert sent == ["Write to Ada\n", "Write to Ada\n", "Write to Grace\n"]
    person.act("send", text="\n", once=once)
    assert person.status == 422 and person.field("once") == once


def test_an_item_without_a_name_is_an_internal_error(person: Person) -> None:
    person.read("redo/")
    assert person.status == 200
    person.act("redo")
    assert person.status == 422


def test_an_edit_changes_another_character(person: Person) -> None:
    folder = Path(handle(person).url)
    plan = folder / "todo.md"
    plan.write_text(plan.read_text().replace("How much?", 'How much? \u202e"&lt;</textarea>\u200f'))
    person.read("edit", file="todo.md")
    assert person.field("text") == plan.read_text()
    text = person.field("text").replace("How much?", "How much??")
    said = person.act("edit", file="todo.md", text=text, version=person.field("version"))
    assert "todo.md is saved" in said and "is new" in said and plan.read_text() == text
    person.read("edit", file="todo.md")
    said = person.act("edit", file="todo.md", text=text, version=person.field("version"))
    assert "already" in said or "is saved" in said or "changes nothing" in said


def test_an_edit_of_a_completed_run_waits_unseen(tmp_path: Path) -> None:
    made = make(tmp_path / "runs/a")
    assert made.run().status == "completed"
    with Person(tmp_path / "runs", "a") as person:
        assert "Resume the run" not in person.read()
        person.read("edit", file="todo.md")
        text = person.field("text") + "- [ ] say c\n"
        person.act("edit", file="todo.md", text=text, version=person.field("version"))
        now = person.read()
        assert "Resume the run" in now and "the next start takes it" in now and "say c" in now
        made.resume()
        now = person.read()
        assert "Resume the run" not in now and "the next start takes it" not in now


def test_an_answered_run_waits_for_nobody(person: Person) -> None:
    assert "for a person: 1 open question" in person.read()
    person.act("answer", question="a1", decision="approve")
    assert ": answered, has to be resumed" in person.read() and "0 open questions" not in person.text


def test_a_wrong_edit_is_saved_or_lost(person: Person) -> None:
    folder = Path(handle(person).url)
    before = (folder / "state.json").read_bytes()
    person.read("edit", file="state.json")
    typed = person.field("text").replace('"data": {', '"data": {"a": 1,,')
    said = person.act("edit", file="state.json", text=typed, version=person.field("version"))
    assert person.status == 422 and re.search(r"line \d+, column \d+", said)
    assert person.field("text") == typed and (folder / "state.json").read_bytes() == before


def test_another_persons_save_is_overwritten_unseen(person: Person) -> None:
    plan = Path(handle(person).url) / "todo.md"
    person.read("edit", file="todo.md")
    mine, version = person.field("text").replace("How much?", "How many?"), person.field("version")
    theirs = plan.read_text().replace("How much?", "How long?")
    plan.write_text(theirs)
    said = person.act("edit", file="todo.md", text=mine, version=version)
    assert "another person" in said and plan.read_text() == theirs
    assert person.field("text") == mine and "How long?" in person.text, "both are shown"
    assert "is saved" in person.act("edit", file="todo.md", text=mine, version=person.field("version"))
    assert plan.read_text() == mine


def test_a_conflict_can_not_be_settled(tmp_path: Path) -> None:
    made = make(tmp_path / "runs/a", PLAIN.replace("await run.todo.each", "run.state\n    await run.todo.each"))
    made.run()
    state = tmp_path / "runs/a/state.json"
    with Person(tmp_path / "runs", "a") as person:
        person.read("edit", file="state.json")
        base, version = person.field("text"), person.field("version")
        state.write_text(base.replace('"data": {}', '"data": {"n": 1}'))
        made.recover()
        mine = base.replace('"data": {}', '"data": {"n": 2}')
        said = person.act("edit", file="state.json", text=mine, version=version)
        assert person.status == 422 and "conflicts with the run" in said and '"n": 1' in state.read_text()
        said = person.act("edit", file="state.json", text=person.field("text"), version=version, conflict="yes")
        assert '"n": 2' in state.read_text() and "Use the run" in person.text and str(person.status) == "200"
        sides = unescape(
            re.sub("<[^>]+>", " ", person.text.partition('<div class="versions">')[2].partition("<form")[0])
        )
        assert re.fullmatch(r"Before nothing The file \(yours\) 2 The run 1", " ".join(sides.split()))
        assert (
            "1 value of the run is replaced by yours." in person.text
            and "1 change of yours is not taken" in person.text
        )
        assert "Use the whole file" not in person.text, "it would do the same as the file where they differ"
        assert ">a</a></span></h1>" in person.text, "a narrow header has no room for the name of the run"
        person.act("merge", file="state.json", use="nonsense")
        assert person.status == 422
        person.act("merge", file="../state.json", use="theirs")
        assert person.status == 422
        person.read("merge")
        version, shown = person.field("version"), state.read_bytes()
        state.write_text(state.read_text().replace('"n": 2', '"n": 3'))
        said = person.act("merge", file="state.json", use="theirs", version=version)
        assert "has changed since" in said and made.merge().open, "a choice is about what was shown"
        state.write_bytes(shown)
        person.read("merge")
        assert "settled" in person.act("merge", file="state.json", use="theirs", version=person.field("version"))
        assert made.merge().open == [] and json.loads(state.read_text())["data"] == {"n": 2}
        assert "There is no conflict" in person.read("merge")


def test_a_rewind_or_a_redo_does_something_else(tmp_path: Path) -> None:
    made = make(tmp_path / "runs/a")
    made.run()
    with Person(tmp_path / "runs", "a") as person:
        assert "No effect was done since then" in person.read("back/^2")
        at = person.field("at")
        assert at.isdecimal() and made.history.show("^2").seq == int(at), "the record that was shown, not the item"
        assert "is at record" in person.act("rewind", at=at)
        assert made.status().state != "completed" and made.run().status == "completed"
        assert "Resume the run" not in person.read(), "there is nothing to do"
        assert "will be done again" in person.act("redo", item="^1") and "Resume the run" in person.text
        assert person.act("rewind", at="999999") and person.status == 422
        assert person.act("redo", item="^9") and person.status == 422
        assert person.read("back/x%2F..%2Fy") and person.status in (200, 404)
        assert "say a" in person.read("redo/^1")


def test_a_fork_leaves_the_root(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    make(tmp_path / "runs/a").run()
    (tmp_path / "runs/link").symlink_to(tmp_path / "outside")
    with Person(tmp_path / "runs", "a") as person:
        person.read("back/4")
        said = " ".join(person.act("fork", at="4", to="../../evil").split())
        assert "../../evil is not a path below the runs" in said
        assert "needs a name" in person.act("fork", at="4", to="")
        assert "is hidden" in person.act("fork", at="4", to=".b")
        for to in ("../b", "/etc/b", "link/b", "x/../../b", ".hidden/b", "", "a", "a/inside", "b\0c", "x\\..\\b"):
            person.act("fork", at="4", to=to)
            assert person.status in (422, 200) and (person.status == 422 or to.startswith("/")), to
        assert (
            not any((tmp_path / "outside").iterdir()) and not (tmp_path / "b").exists() and not Path("/etc/b").exists()
        )
        assert "a fork of a at record 4" in person.act("fork", at="4", to="new/b")
        assert person.text.count("new/b") > 2 and satchel.open(tmp_path / "runs/new/b").status().moment
        assert not read(DiskStore(tmp_path / "runs/a"), after=0).torn


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("act", ["pause", "stop", "cancel", "resume", "send", "answer", "edit", "merge", "fork"])
def test_an_act_needs_no_token_or_takes_any_method(person: Person, act: str) -> None:
    before = sorted(os.listdir(handle(person).url))
    url = f"/run/{person.name}/-/act/{act}"
    assert person.client.post(url, data={"reason": "x"}, headers=OURS).status_code == 403
    assert person.client.get(url).status_code in (404, 405) and person.client.put(url).status_code == 405
    assert sorted(os.listdir(handle(person).url)) == before


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize(
    "name", ["../a", "..%2fteam%2fa", "/etc", "%2fetc", "team", "team/a/journal", "team/a/..", "link", "team%00/a", "~"]
)
def test_a_path_leads_out_of_the_root(person: Person, tmp_path: Path, name: str) -> None:
    make(tmp_path / "elsewhere")
    (tmp_path / "runs/link").symlink_to(tmp_path / "elsewhere")
    person.read()
    form = {"form_token": person.field("form_token"), "reason": "x"}
    found = person.client.post(f"/run/{name}/-/act/stop", data=form, headers=OURS)
    assert found.status_code in (404, 405) and not (tmp_path / "elsewhere/pause.yaml").exists()


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("file", ["../b/todo.md", "/etc/passwd", "agent.py", "workspace.yaml", "agents/../todo.md", ""])
def test_another_file_is_shown_or_edited(person: Person, file: str) -> None:
    assert "no plan and no state" in person.read("edit", file=file) and person.status == 400
    person.read()
    assert "no plan and no state" in person.act("edit", file=file, text="x", version="")


def test_a_run_that_can_not_be_read_can_not_be_stopped(person: Person, tmp_path: Path) -> None:
    """A folder of it that is a link makes its status an error. Its process may run all the same."""
    inbox = tmp_path / "runs/team/a/inbox"
    inbox.symlink_to(tmp_path)
    text = person.read()
    assert person.status == 503 and "inbox" in text and "points outside the workspace" in text
    assert "Emergency stop: Nothing was running" in person.act("stop", reason="odd <link>"), "and the page says so"
    assert "odd <link>" in (tmp_path / "runs/team/a/pause.yaml").read_text()
    person.act("pause", until="noonish")
    assert person.status == 400 and "is not a time" in person.text, "why it was refused, not why there is no form"
    inbox.unlink()
    assert "paused" in person.read() and person.status == 200
