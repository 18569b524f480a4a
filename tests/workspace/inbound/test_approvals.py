"""approvals/ID.yaml: what people in a hurry, editors and strangers make of the form, and what is made of that."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from properties import examples

from satchel import schemas
from satchel.workspace.base import time_text
from satchel.workspace.base.errors import InvalidFile
from satchel.workspace.formats import yamltext
from satchel.workspace.inbound import Question, find_question, form, nothing_has_come, open_questions
from satchel.workspace.inbound.form import read_reply
from satchel.workspace.inspect.load import look
from satchel.workspace.inspect.report import Remark, Report
from satchel.workspace.journal import (
    NOTHING,
    ApprovalAnswered,
    ApprovalAsked,
    Doubt,
    Line,
    ScopeBegun,
    ScopeCommitted,
    StepStarted,
)
from satchel.workspace.lifecycle.opening import opened
from satchel.workspace.state.question_state import RecordedAnswer
from satchel.workspace.state.run_state import Moment
from satchel.workspace.store import DiskStore, Syscalls

DEFINITION = "format: 1\nrun_id: test-1\nagent: agent.py:main\n"
AT = "2026-11-22T05:00:00.000Z"
CALL: dict[str, Any] = {"scope": "", "no": 1, "step": "ask", "args": "0" * 16, "n": 0}
Asked = Callable[..., Path]


@pytest.fixture
def asked(tmp_path: Path) -> Asked:
    """Asks a question, stops, and gives its file."""
    (tmp_path / "workspace.yaml").write_text(DEFINITION)

    def ask(id: str = "a1", **facts: Any) -> Path:
        facts = {"question": "Grant admin rights?", "choices": ("approve", "deny")} | facts
        with opened(DiskStore(tmp_path), "run", Report()) as workspace:
            workspace.journal.add(ApprovalAsked(**{**CALL, "no": int(id[1:]), "n": int(id[1:])}, id=id, **facts))
            workspace.journal.flush()
            workspace.close("waiting", "a person is asked")
        return tmp_path / f"approvals/{id}.yaml"

    return ask


def fill_in(path: Path, *changes: tuple[str, str]) -> bytes:
    """Change lines of the file, some time ago."""
    text = path.read_text()
    for old, new in changes:
        assert re.search(old, text, re.MULTILINE), old
        text = re.sub(old, lambda match, new=new: new, text, count=1, flags=re.MULTILINE)
    return save(path, text.encode())


def save(path: Path, data: bytes) -> bytes:
    path.write_bytes(data)
    os.utime(path, (time.time() - 60,) * 2)
    return data


def recover(path: Path) -> tuple[Moment, list[Remark]]:
    report = Report()
    with opened(DiskStore(path.parent.parent), "recover", report) as workspace:
        workspace.close()
    return workspace.moment, report.remarks


def answer(path: Path) -> Any:
    """What is on record after an opening; None if nothing."""
    found = recover(path)[0].answered.get(path.stem)
    return None if found is None else msgspec.json.decode(found.decision)


def test_the_form_does_not_say_what_can_be_answered(asked: Asked) -> None:
    path = asked(context=Raw(b'{"user": "ada", "diff": "one\\ntwo\\n"}'))
    text = path.read_text()
    assert "#     approve\n#     deny\n" in text and "\ndecision:\nby:\nnote:\n" in text
    assert "\ncontext:\n  user: ada\n  diff: |\n    one\n    two\n" in text
    assert schemas.problems("approval", yamltext.load(text, "a1").value) == []
    assert form.is_signed(path.read_bytes()) and answer(path) is None and path.read_text() == text


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize(
    ("typed", "decision"),
    [
        ("approve", "approve"),
        ("deny  # not now", "deny"),
        ('" deny "', "deny"),
        ("'approve'", "approve"),
        ("|\n  deny\n", "deny"),
        (">-\n  approve", "approve"),
        ("", None),
        ("null", None),
        ("~", None),
        ('""', None),
        ("Approve", "approve"),
        ("DENY", "deny"),
    ],
)
def test_an_answer_is_not_taken_as_it_was_meant(asked: Asked, typed: str, decision: str | None) -> None:
    path = asked()
    fill_in(path, ("^decision:$", f"decision: {typed}"))
    assert answer(path) == decision
    assert "# not accepted" not in path.read_text()


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize(
    ("choices", "typed", "decision"),
    [
        (("1", "3"), "3", "3"),
        (("yes", "no"), "no", "no"),
        (("true", "false"), "false", "false"),
        (("1.0", "1"), "1.0", "1.0"),
        (("22:30",), "22:30", "22:30"),
        (("null", "x"), "null", "null"),
        ((), "4711", "4711"),
        ((), "  some words ", "some words"),
        ((), "0x10", "0x10"),
        ((), "|\n  two\n  lines\n", "two\nlines"),
        (("Yes", "yes"), "yes", "yes"),
        (("Yes", "yes"), "Yes", "Yes"),
    ],
)
def test_a_text_that_yaml_reads_as_something_else_is_refused(
    asked: Asked, choices: tuple[str, ...], typed: str, decision: str
) -> None:
    path = asked(choices=choices)
    fill_in(path, ("^decision:$", f"decision: {typed}"))
    assert answer(path) == decision


@pytest.mark.sampled(every=5)
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ([("^decision:$", "decision: aprove")], 'found "aprove", expected one of: approve, deny. Did you mean'),
        ([("^decision:$", "decision: aprove")], "Did you mean approve?"),
        ([("^decision:$", "decision: [approve]")], "found a list of 1 item, expected one of: approve, deny"),
        ([("^decision:$", "decision: true")], "found true, expected one of"),
        ([("^decision:$", "decision: approve, deny")], "expected one of: approve, deny"),
        ([("^decision:$", "decision: approve\ndecision: deny")], 'column 1: found the key "decision" a second'),
        ([("^decision:$", "\tdecision: approve")], "found a tab, expected spaces"),
        ([("^decision:$", "decision: 'approve")], "found a quote that is never closed"),
        ([("^decision:$", "decision:approve")], "found no space after the colon"),
        ([("^decision:$", "decision: approve"), ("^by:$", "by: [me]")], "found a list of 1 item, expected"),
        ([("^decision:$", "decison: approve")], "decision"),
        ([("^decision:$", "decision: *deny")], "an alias in YAML"),
        ([("^decision:$", "decision: deny"), ("^question: .*$", "question: Deny?")], "an answer to another question"),
        ([("^decision:$", "decision: deny"), ("^  user: ada$", "  user: eve")], "an answer to another question"),
        ([("^decision:$", "decision: deny"), ("^choices: .*$", "choices: [deny]")], "an answer to another question"),
        ([("^decision:$", "decision: deny"), ("^run_id: .*$", "run_id: other-1")], 'found "other-1" as `run_id`'),
        ([("^decision:$", "decision: deny"), ("^id: a1$", "id: a2")], 'found "a2" as `id`'),
        ([("^decision:$", "decision: deny"), ("^asked_at: .*$", f'asked_at: "{AT}"')], "an answer to another question"),
        ([("^decision:$", "decision: deny"), ("^status: open$", "status: answered")], "expected open: no answer is"),
        ([("^decision:$", "decision: deny"), ("^format: 1$", "format: 2")], "expected 1"),
        ([("^decision:$", "decision: deny\nresult: 5")], "found a result, expected no result: no effect is in doubt"),
    ],
)
def test_what_can_t_be_taken_is_obeyed_or_lost(asked: Asked, changes: list[tuple[str, str]], said: str) -> None:
    path = asked(context=Raw(b'{"user": "ada"}'))
    written = fill_in(path, *changes)
    _, remarks = recover(path)
    assert find_question(look(DiskStore(path.parent.parent)).moment, "a1") is not None
    assert any(remark.kind == "wanted" and path.name in remark.text for remark in remarks)
    shown = path.read_text()
    told = [line for line in shown.splitlines() if line.startswith("# not accepted: ")]
    assert said in "\n".join(told), shown
    ours = re.compile("^# (not accepted:|satchel) .*\n", re.MULTILINE)
    assert ours.sub("", shown) == ours.sub("", written.decode()), "a person's words stay"
    assert answer(path) is None and path.read_text() == shown, "looking again adds nothing"
    save(path, path.read_bytes() + b"# a word\n")
    assert answer(path) is None and path.read_text().count("# not accepted: ") == len(told)


def test_a_reason_outlives_what_it_was_about(asked: Asked) -> None:
    path = asked()
    fill_in(path, ("^decision:$", "decision: aprove"))
    assert answer(path) is None and "# not accepted" in path.read_text()
    fill_in(path, ("^decision: aprove$", "decision: approve"))
    assert answer(path) == "approve" and "# not accepted" not in path.read_text()


def test_the_line_in_a_reason_is_another_one(asked: Asked) -> None:
    path = asked()
    fill_in(path, ("^decision:$", "decision: 'approve"))
    recover(path)
    lines = path.read_text().splitlines()
    (number,) = re.findall(r"# not accepted: line (\d+)", lines[0])
    assert lines[int(number) - 1] == "decision: 'approve"


def test_the_remark_in_a_form_without_a_value_names_a_line() -> None:
    told = form.refused(b"# later\n", [schemas.Problem("line 1", "nothing", "a decision", "Write one")])
    assert told is not None
    assert told.startswith(b"# not accepted: found nothing, expected a decision. Write one\n# later\n")


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize(
    "make",
    [
        lambda data: data.replace(b"\n", b"\r\n"),
        lambda data: b"\xef\xbb\xbf" + data,
        lambda data: b"---\n" + data,
        lambda data: data.replace(b"# The rest", b"x-mine: a note\n\n# Mine"),
        lambda data: data.rpartition(b"# satchel")[0],
        lambda data: data.rstrip(b"\n"),
        lambda data: data + b"\n\n# more\n",
        lambda data: b"# first\n" + data.replace(b"choices: [approve, deny]", b"choices:\n- approve\n- 'deny'"),
    ],
)
def test_an_editor_s_ways_change_the_question(asked: Asked, make: Callable[[bytes], bytes]) -> None:
    path = asked()
    blank = path.read_bytes()
    save(path, make(blank))
    assert answer(path) is None and "# not accepted" not in path.read_text()
    save(path, make(blank.replace(b"\ndecision:", b"\ndecision: deny")))
    assert answer(path) == "deny"
    again = path.read_bytes()
    assert again.count(b"# answered: deny, by ") == 1
    assert again.startswith(b"\xef\xbb\xbf") == make(b"x").startswith(b"\xef")
    assert recover(path) and path.read_bytes() == again


@pytest.mark.parametrize(
    "data", [b"", b"\0" * 300, b" \n", b"\xff\xfea\0", b"[]", b"decision: deny\n", b"x" * 70_000_000, b"- a\n- b\n"]
)
def test_what_is_no_form_answers_or_stops_the_opening(asked: Asked, data: bytes) -> None:
    path = asked()
    blank = path.read_bytes()
    save(path, data)
    assert answer(path) is None
    assert (path.read_bytes() == blank) == (not data.strip(b" \n\0")), "an empty file is laid out again, another kept"
    path.unlink()
    assert answer(path) is None and path.read_bytes() == blank


def test_a_folder_in_the_file_s_place_stops_the_opening(asked: Asked) -> None:
    path = asked()
    fill_in(path, ("^decision:$", "decision: deny"))
    path.rename(path.with_suffix(".old"))
    path.mkdir()
    _, remarks = recover(path)
    assert any(remark.kind == "wanted" and "approvals/a1.yaml" in remark.text for remark in remarks)
    path.rmdir()
    path.with_suffix(".old").rename(path)
    assert answer(path) == "deny"


def test_the_second_person_overrules_the_first(asked: Asked) -> None:
    path = asked()
    fill_in(path, ("^decision:$", "decision: deny"), ("^by:$", "by: Ada"))
    assert answer(path) == "deny"
    fill_in(path, ("^decision: deny$", "decision: approve"), ("^by: Ada$", "by: Eve"), ("^status: .*$", "status: open"))
    assert answer(path) == "deny"
    shown = path.read_text()
    assert shown.startswith("# answered: deny, by Ada, ") and "no effect any more" in shown.splitlines()[0]
    assert "\ndecision: approve\nby: Eve\n" in shown, "what was written stays"
    assert answer(path) == "deny" and path.read_text() == shown
    save(path, b"\tbroken: [")
    assert answer(path) == "deny" and path.read_text().startswith("# answered: deny, by Ada, ")


def test_an_answer_by_an_editor_that_moves_the_old_file_away_first_is_overwritten(asked: Asked, tmp_path: Path) -> None:
    """The form seems to be missing, and is laid out anew while the editor saves."""
    path = asked()

    class Slow(Syscalls):
        saves: Callable[[], object] = staticmethod(lambda: None)

        def sync(self, fd: int) -> None:
            self.saves()
            super().sync(fd)

    system = Slow()
    with opened(DiskStore(tmp_path, system), "answer", Report()) as workspace:
        data = path.read_text().replace("decision:\n", "decision: approve\n")
        path.unlink()
        system.saves = lambda: path.write_text(data)
        workspace.desk.write_questions()
    assert path.read_text() == data and answer(path) == "approve"


def test_a_file_that_was_answered_and_removed_comes_back(asked: Asked) -> None:
    path = asked()
    fill_in(path, ("^decision:$", "decision: deny"))
    assert answer(path) == "deny"
    path.unlink()
    assert answer(path) == "deny" and not path.exists()


def test_a_crash_between_the_record_and_the_file_takes_the_answer_twice(asked: Asked) -> None:
    path = asked()
    written = fill_in(path, ("^decision:$", "decision: deny"))
    assert answer(path) == "deny"
    save(path, written)
    before = look(DiskStore(path.parent.parent)).moment.answered
    recover(path)
    assert look(DiskStore(path.parent.parent)).moment.answered == before
    assert path.read_text().startswith("# answered: deny")


@pytest.mark.parametrize("end", [20, 500])
def test_a_withdrawn_form_that_was_cut_off_stays_a_mistake(asked: Asked, end: int) -> None:
    path = asked()
    asked("a2", withdraws=("a1",))
    cut_off = save(path, path.read_bytes()[:end])
    recover(path)
    assert not path.exists() and path.with_name("a1.rejected.yaml").read_bytes() == cut_off
    assert path.with_name("a2.yaml").exists()


def test_a_withdrawn_form_is_not_marked_once_a_program_has_closed_it(asked: Asked, tmp_path: Path) -> None:
    path = asked()
    with opened(DiskStore(tmp_path), "recover", Report()) as workspace:
        again = {**CALL, "no": 2, "n": 2, "choices": ("approve", "deny")}
        workspace.journal.add(ApprovalAsked(**again, id="a2", question="Grant admin rights?", withdraws=("a1",)))
        workspace.journal.flush()
        with path.open("a"):
            workspace.desk.write_questions()
            assert not path.read_text().startswith("# withdrawn")
        workspace.desk.write_questions()
        assert path.read_text().startswith("# withdrawn")
        workspace.close()


def test_the_form_of_another_run_is_an_answer(asked: Asked, tmp_path: Path) -> None:
    """Its number is that of a question here, and its words may be the same."""
    path = asked()
    other = path.read_text().replace("run_id: test-1", "run_id: test-2").replace("\ndecision:", "\ndecision: approve")
    save(path, other.encode())
    assert answer(path) is None and "`run_id`" in path.read_text()


def test_a_number_that_a_file_has_is_given_away_again(asked: Asked, tmp_path: Path) -> None:
    path = asked()
    save(path.with_name("a2.yaml"), b"anything")
    with opened(DiskStore(tmp_path), "recover", Report()) as workspace:
        free = workspace.desk.free_id
        assert [free("a"), free("a"), free("d")] == ["a3", "a4", "d1"]
        workspace.close()


def test_an_effect_in_doubt_is_asked_about_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "workspace.yaml").write_text(DEFINITION)
    path = tmp_path / "approvals/d1.yaml"
    call = {**CALL, "scope": "_mail", "step": "send", "call": '("to":"ada")'}
    with opened(DiskStore(tmp_path), "run", Report()) as workspace:
        workspace.journal.add(ScopeBegun(scope="_mail", title="mail"))
        workspace.journal.add(StepStarted(**call, idempotency_key="k"))
        workspace.journal.add(Doubt(**call, id="d1", why="unknown_outcome", cause="a crash"))
        workspace.journal.flush()
        workspace.close("waiting", "a person is asked")
    text = path.read_text()
    assert "Has it happened?" in text and "choices: [done, redo]" in text and "\ndecision:\nresult:\nby:\n" in text
    fill_in(path, ("^decision:$", "decision: redo"), ("^result:$", "result: 5"))
    assert recover(path)[0].doubts and "expected no result, unless `decision` is done" in path.read_text()
    fill_in(path, ("^decision: redo$", "decision: done"), ("^result: 5$", "result: {id: 4711}"))
    moment, remarks = recover(path)
    assert not moment.doubts and moment.root.scopes["_mail"].done["send", "0" * 16, 0].result == Raw(b'{"id":4711}')
    assert any(remark.kind == "edited" and "approvals/d1.yaml: done, by " in remark.text for remark in remarks)


def test_a_scope_that_ends_leaves_its_question_open(tmp_path: Path) -> None:
    (tmp_path / "workspace.yaml").write_text(DEFINITION)
    with opened(DiskStore(tmp_path), "run", Report()) as workspace:
        workspace.journal.add(ScopeBegun(scope="_s", title="s"))
        workspace.journal.add(ApprovalAsked(**{**CALL, "scope": "_s"}, id="a1", question="Now?"))
        workspace.journal.flush()
        workspace.desk.write_questions()
        workspace.journal.add(ScopeCommitted(scope="_s"))
        workspace.close("paused", "enough")
    path = tmp_path / "approvals/a1.yaml"
    assert path.read_text().startswith("# withdrawn: ") and "\nstatus: withdrawn\n" in path.read_text()
    again = fill_in(path, ("^decision:$", "decision: yes"))
    assert answer(path) is None and path.read_bytes() == again


def test_a_form_that_a_person_has_laid_out_anew_stays_open(tmp_path: Path) -> None:
    """Its words are YAML, however they are written; one that says that it is of another run is not touched."""
    (tmp_path / "workspace.yaml").write_text(DEFINITION)
    (tmp_path / "approvals").mkdir()
    mine, other = tmp_path / "approvals/a1.yaml", tmp_path / "approvals/a2.yaml"
    mine.write_text('{"status": "open", "run_id": "test-1", "id": "a1"}\n')
    other.write_text("status: open\nrun_id: another\nx-of: test-1\n")
    before = other.read_bytes()
    with opened(DiskStore(tmp_path), "run", Report()) as workspace:
        workspace.close("paused", "enough")
    assert mine.read_text().startswith("# withdrawn: ") and other.read_bytes() == before


def test_nothing_has_come_misses_what_has(asked: Asked, tmp_path: Path) -> None:
    path, store, now = asked(), DiskStore(tmp_path), datetime.now(UTC)

    def come() -> list[str] | None:
        return nothing_has_come(store, look(store).moment, now)

    assert come() == []
    fill_in(path, ("^decision:$", "decision: aprove"))
    assert come() is None
    recover(path)
    assert come() is not None and "Did you mean approve?" in (come() or [""])[0]
    path.unlink()
    assert come() is None


def test_a_question_expires_early_or_never(asked: Asked, tmp_path: Path) -> None:
    later = time_text(datetime.now(UTC) + timedelta(hours=1))
    path = asked(expires=later, default=Raw(b'"deny"'))
    assert answer(path) is None
    moment, store = look(DiskStore(tmp_path)).moment, DiskStore(tmp_path)
    assert nothing_has_come(store, moment, datetime.now(UTC)) == []
    assert nothing_has_come(store, moment, datetime.now(UTC) + timedelta(hours=2)) is None
    (question,) = open_questions(moment)
    assert not question.has_expired(datetime.now(UTC)) and question.has_expired(datetime.now(UTC) + timedelta(hours=2))
    overdue = asked("a2", question="And this?", expires=AT, default=Raw(b'"deny"'))
    found = recover(overdue)[0].answered["a2"]
    assert (found.decision, found.how, found.by) == (Raw(b'"deny"'), "expired", "the default")


@pytest.mark.parametrize("expires", ["soon", "2020-01-01", "2020-01-01T00:00:00", "9" * 40])
def test_a_stranger_s_time_breaks_an_opening(asked: Asked, expires: str) -> None:
    path = asked(expires=expires)
    assert answer(path) is None
    path = asked("a2", expires=expires, default=Raw(b'"deny"'))
    recover(path)


def test_old_answers_make_every_checkpoint_longer() -> None:
    moment = Moment(run_id="r")
    for number in range(1, 501):
        id = f"a{number}"
        asked = ApprovalAsked(**{**CALL, "n": number}, id=id, question="?")
        moment.apply([Line(2 * number, 2 * number, AT, 1, asked)])
        moment.apply([Line(2 * number + 1, 1, AT, 1, ApprovalAnswered(id=id, decision=Raw(b"1"), by="x"))])
    assert len(moment.answered) == 200 and "a500" in moment.answered and len(moment.root.scopes[""].done) == 500
    assert moment.approvals_asked == 500 and len(moment.asked_at) == 1


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=10), inner, max_size=3)
    ),
    max_leaves=8,
)
_LINE = (
    st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20)
    .map(str.strip)
    .filter(lambda text: bool(text) and len(text.splitlines()) == 1)
)


@examples(60)
@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), st.lists(_LINE, unique=True, max_size=4), _JSON)
def test_a_form_comes_back_as_another_question(text: str, choices: list[str], context: Any) -> None:
    context = msgspec.json.decode(msgspec.json.encode(context))
    raw = Raw(msgspec.json.encode(context)) if context is not None else NOTHING
    facts = {"context": context} if context is not None else {}
    asked = ApprovalAsked(**CALL, id="a1", question=text, choices=tuple(choices), context=raw)
    question = Question("a1", text, asked, tuple(choices), None, "", "An item: é", AT, "", facts)
    data = form.blank(question, "run-1")
    assert form.is_signed(data) and read_reply(question, "run-1", data) is None
    for choice in choices or ["an answer"]:
        filled = form.fill_in(data, {"decision": choice, "by": "Ada: #1"})
        reply = read_reply(question, "run-1", filled)
        assert reply is not None and (reply.decision, reply.by) == (choice, "Ada: #1")
        shown = form.answered(filled, RecordedAnswer(decision=Raw(b'"x"'), by="eve", at=AT))
        assert shown is not None and form.is_signed(shown)
        with pytest.raises(InvalidFile):
            read_reply(question, "run-1", shown)
