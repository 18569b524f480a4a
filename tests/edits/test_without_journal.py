"""Going on without journal/: from workspace.yaml, todo.md and state.json, if their stamps agree."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable

import pytest

from satchel.workspace.base.errors import Conflicting, Damaged, InvalidFile, Refused, SatchelError
from satchel.workspace.inspect.report import Report
from satchel.workspace.journal import Resolved, blobs
from satchel.workspace.lifecycle.opening import opened

from .folder import Place, world


def lose(place: Place, *folders: str) -> None:
    for folder in folders or ("journal", "checkpoints"):
        shutil.rmtree(place.folder / folder, ignore_errors=True)


def resolve(place: Place, *, done: bytes | None = None) -> None:
    with opened(place.store, "answer", Report()) as workspace:
        (id,) = workspace.moment.doubts
        outcome = "not_done" if done is None else "done"
        kept = blobs.keep(place.store, done or b"null", workspace.journal.epoch)
        workspace.journal.add(Resolved(id=id, outcome=outcome, by="me", result=kept.result))  # type: ignore[arg-type]
        workspace.close()


def test_a_finished_run_is_not_known_as_finished(finished: Place) -> None:
    lose(finished)
    outcome = finished.run()
    assert outcome.status == "completed" and world.fresh() == []
    assert any("the journal is missing" in remark.text for remark in outcome.report.remarks)
    assert finished.moment.is_finished and finished.is_at_the_moment()
    finished.run()
    assert finished.moment.attempt == 1 and world.fresh() == []


def test_the_messages_are_lost(finished: Place) -> None:
    messages = finished.get("messages.jsonl")
    lose(finished)
    finished.recover()
    assert finished.get("messages.jsonl") == messages
    finished.edit("todo.md", ("- [x] three ^4", "- [x] three ^4\n- [ ] four"))
    finished.run()
    assert finished.get("messages.jsonl").startswith(messages) and "FOUR!" in finished.text("messages.jsonl")
    finished.recover()
    assert finished.get("messages.jsonl").count(b"\n") == 4


def test_lost_messages_are_taken_for_none(finished: Place) -> None:
    lose(finished)
    finished.recover()
    finished.recover()
    (finished.folder / "messages.jsonl").unlink()
    with pytest.raises(SatchelError):
        finished.run()


@pytest.mark.parametrize("mark", [" ", "x", "-"])
def test_a_begun_item_is_gone_on_with_unasked(stopped: Place, mark: str) -> None:
    lose(stopped)
    for _ in range(2):
        with pytest.raises(Conflicting, match="was begun, and the journal"):
            stopped.run()
    assert world.fresh() == [] and not stopped.there("journal/*")
    stopped.edit("todo.md", ("[/] two", f"[{mark}] two"))
    assert stopped.run().status == "completed"
    assert ("send TWO!" in world.fresh()) == (mark == " "), "a person has said so"


def test_the_begun_item_of_a_grandchild_is_gone_on_with(place: Place) -> None:
    place.run("carol 1")
    lose(place)
    with pytest.raises(Conflicting, match=r"item 3.*'ask carol' in agents/bob/todo.md, 'carol 1' in agents/bob/agents"):
        place.run()
    world.fresh()
    for path, item in (
        ("todo.md", "ask bob"),
        ("agents/bob/todo.md", "ask carol"),
        ("agents/bob/agents/carol/todo.md", "carol 1"),
    ):
        place.edit(path, (f"[/] {item}", f"[{'x' if item == 'carol 1' else ' '}] {item}"))
    assert place.run().status == "completed"
    assert {"send BOB 1!", "send CAROL 1!"}.isdisjoint(calls := world.fresh()) and "send CAROL 2!" in calls


def test_an_unticked_effect_is_done_again_unasked(finished: Place) -> None:
    lose(finished)
    finished.edit("todo.md", ("[x] two", "[ ] two"))
    outcome = finished.run()
    assert (outcome.status, [doubt.why for doubt in outcome.doubts]) == ("waiting", ["unknown_outcome"])
    assert "the journal was lost" in outcome.doubts[0].cause and "send TWO!" not in world.fresh()
    resolve(finished)
    assert finished.run().status == "completed"
    assert world.fresh() == ["send TWO!"]
    finished.edit("todo.md", ("[x] two", "[ ] two"))
    assert finished.run().status == "completed", "what is known since is not asked again"
    assert world.fresh() == ["read two", "join TWO"]


def test_an_unticked_effect_that_has_happened_is_done(finished: Place) -> None:
    lose(finished)
    finished.edit("todo.md", ("[x] two", "[ ] two"))
    finished.run()
    resolve(finished, done=b'"it has"')
    assert finished.run().status == "completed" and "send TWO!" not in world.fresh()


def test_an_unticked_effect_is_not_verified(place: Place) -> None:
    place.put("todo.md", "- [ ] one\n- [ ] post it\n")
    place.run()
    lose(place)
    place.edit("todo.md", ("[x] post it", "[ ] post it"))
    world.fresh()
    assert place.run().status == "completed"
    assert world.fresh() == ["read post it", "join POST IT", "verify POST IT!"]
    lose(place)
    place.edit("todo.md", ("[x] post it", "[ ] post it"))
    world.sent.clear()
    assert place.run().status == "completed"
    assert world.fresh()[2:] == ["verify POST IT!", "post POST IT!"]


def test_a_killed_process_may_have_begun_more_than_the_files_show(place: Place) -> None:
    place.run("two")
    place.edit("todo.md", ("[/] two ^2", "[ ] two"))  # as it was a moment earlier, all stamps agreeing
    place.recover()
    place.put("todo.md", place.get("todo.md"))
    text = place.root.plan.text.replace(" ^2", "")
    from satchel.workspace.base.stamp import sign_markdown

    at = json.loads(place.get("state.json"))["at"]
    place.put("todo.md", sign_markdown(text.encode(), at["seq"], at["epoch"], "run-1/"))
    place.put(".satchel/lease.json", "{}")
    lose(place)
    world.fresh()
    outcome = place.run()
    assert outcome.status == "waiting" and "send TWO!" not in world.fresh()


def test_a_begun_item_is_asked_about_though_a_checkpoint_knows_it(stopped: Place) -> None:
    lose(stopped, "journal")
    assert stopped.run().status == "completed"
    assert not {"read two", "send TWO!"} & {*world.fresh()}


def test_an_older_checkpoint_hides_what_it_knows_of_effects(stopped: Place) -> None:
    for path in stopped.there("checkpoints/*.json"):
        stopped.put(f"aside/{path}", stopped.get(path))
    stopped.recover()
    lose(stopped)
    shutil.copytree(stopped.folder / "aside/checkpoints", stopped.folder / "checkpoints")
    stopped.edit("todo.md", ("[/] two", "[ ] two"))
    assert stopped.run().status == "completed"
    assert world.fresh()[:2] == ["read two", "join TWO"] and "send TWO!" not in world.fresh()


def test_a_newer_checkpoint_is_overruled_by_older_files(stopped: Place) -> None:
    old = {path: stopped.get(path) for path in ("todo.md", "state.json")}
    stopped.recover()
    for path, data in old.items():
        stopped.put(path, data)
    lose(stopped, "journal")
    with pytest.raises(Damaged, match="the journal is missing"):
        stopped.run()
    assert all(stopped.get(path) == data for path, data in old.items())


Spoil = Callable[[Place], object]
SPOILT: dict[str, Spoil] = {
    "todo.md stands elsewhere": lambda place: place.put("todo.md", place.get("aside/todo.md")),
    "state.json stands elsewhere": lambda place: place.put("state.json", place.get("aside/state.json")),
    "a sub-agent stands elsewhere": lambda place: place.put(
        "agents/bob/state.json", place.get("aside/agents/bob/state.json")
    ),
    "todo.md is missing": lambda place: (place.folder / "todo.md").unlink(),
    "state.json is missing": lambda place: (place.folder / "state.json").unlink(),
    "a sub-agent is missing": lambda place: shutil.rmtree(place.folder / "agents/bob"),
    "a sub-agent's state is empty": lambda place: place.put("agents/bob/state.json", b""),
    "state.json is empty": lambda place: place.put("state.json", b""),
    "state.json is cut off": lambda place: place.put("state.json", place.get("state.json")[:-30]),
    "todo.md has no stamp": lambda place: place.put("todo.md", place.without_stamp("todo.md")),
    "state.json has no stamp": lambda place: place.put("state.json", place.without_stamp("state.json")),
    "state.json is of another run": lambda place: place.edit("state.json", ('"run-1"', '"run-2"')),
}


@pytest.mark.parametrize("how", SPOILT)
def test_files_that_do_not_agree_are_gone_on_from(finished: Place, how: str) -> None:
    for path in ("todo.md", "state.json", "agents/bob/state.json"):
        finished.put(f"aside/{path}", finished.get(path))
    finished.recover()
    lose(finished)
    SPOILT[how](finished)
    before = {path: finished.get(path) for path in finished.there("**/*.*") if (finished.folder / path).is_file()}
    with pytest.raises((Damaged, Refused, InvalidFile)) as refusal:
        finished.run()
    assert isinstance(refusal.value, InvalidFile) or refusal.value.remedy
    after = {path: finished.get(path) for path in before}
    assert {path for path in before if before[path] != after[path]} <= {".satchel/report.json"}
    assert world.fresh() == [] and not finished.there("journal/*")


def test_a_sub_agents_lost_plan_lets_its_effects_be_done_again(place: Place) -> None:
    place.run("three")
    lose(place)
    (place.folder / "agents/bob/todo.md").unlink()
    place.edit("todo.md", ("[x] ask bob", "[ ] ask bob"), ("[/] three", "[ ] three"))
    world.fresh()
    assert place.run().status == "waiting" and "send BOB 1!" not in world.fresh()


def test_data_edited_without_a_journal_are_not_validated(stopped: Place) -> None:
    lose(stopped)
    stopped.edit("todo.md", ("[/] two", "[x] two"))
    stopped.set_data(lambda data: data.update(n=13))
    with pytest.raises(SatchelError, match="13 brings bad luck"):
        stopped.run()
    assert '"n": 13' in stopped.text("state.rejected.json")


def test_data_edited_without_a_journal_are_lost(stopped: Place) -> None:
    lose(stopped)
    stopped.edit("todo.md", ("[/] two", "[x] two"))
    stopped.set_data(lambda data: data.update(n=40))
    assert stopped.run().status == "completed" and stopped.root.data["n"] == 41


@pytest.mark.parametrize("at", range(8))
def test_a_crash_while_the_journal_begins_anew_forgets_what_is_in_doubt(
    finished: Place, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    from satchel.workspace.store import DiskStore

    lose(finished)
    finished.edit("todo.md", ("[x] two", "[ ] two"))
    left = at

    class Crash(BaseException): ...

    def crash(name: str) -> None:
        real = getattr(DiskStore, name)

        def wrapped(self: DiskStore, *args: object, **options: object) -> object:
            nonlocal left
            left -= 1
            if left < 0:
                raise Crash
            return real(self, *args, **options)

        patched.setattr(DiskStore, name, wrapped)

    with monkeypatch.context() as patched:
        for name in ("replace", "create_log", "remove"):
            crash(name)
        with pytest.raises(Crash):
            finished.recover()
    assert finished.run().status == "waiting" and "send TWO!" not in world.fresh()
