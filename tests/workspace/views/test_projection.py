"""The readable files as views of a moment, and the names of the folders they lie in."""

from __future__ import annotations

import hashlib
import json
import re

from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import Raw

from satchel.workspace.base import stamp
from satchel.workspace.base.names import ID, check_path
from satchel.workspace.journal import StepCompleted, StepStarted
from satchel.workspace.plan import Plan
from satchel.workspace.state.agent_state import ROOT, AgentMoment
from satchel.workspace.state.run_state import Moment
from satchel.workspace.state.scope_state import Scope
from satchel.workspace.views import projection
from satchel.workspace.views.projection import folder_of

ids = st.one_of(
    st.integers(0, 999).map(str), st.sampled_from(["a", "setup", "3-a", "3-a-b", "A_b", "x" * 40, "setup-db"])
)
titles = st.one_of(
    st.text(max_size=30), st.sampled_from(["", "a", "a b", "b", "Ä ß 漢字", "../../x", "a\0b", "agent", "-"])
)
named = st.one_of(
    st.text(min_size=1, max_size=60), st.sampled_from(["agent", "Agent", "a", "A", "../x", "a/b", "CON", " ", "."])
)
scopes = st.one_of(st.tuples(ids, titles), st.tuples(named.map("_{}".format), titles), st.just((ROOT, "")))


@given(scopes, scopes)
@example(("3", "a b"), ("3-a", "b"))
@example(("3-a-b", ""), ("3", "a b"))
@example(("_agent", ""), (ROOT, ""))
@example(("_X", ""), ("_x-" + hashlib.sha256(b"_X").hexdigest()[:6], ""))
@example(("setup", "db"), ("setup-db", ""))
def test_folders_of_different_scopes_never_collide(one: tuple[str, str], other: tuple[str, str]) -> None:
    if one[0] != other[0]:
        assert folder_of(*one) != folder_of(*other)


@given(st.text(max_size=50) | scopes.map(lambda scope: scope[0]), titles)
def test_a_folder_is_always_a_safe_name_whatever_the_journal_says(key: str, title: str) -> None:
    name = folder_of(key, title)
    assert check_path(name) == name and "/" not in name and name.isascii() and len(name) < 100
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", name)


@given(st.integers(-(10**20), 10**20), st.text(max_size=30))
def test_a_files_name_is_always_safe(no: int, step: str) -> None:
    name = projection.file_stem(no, step)
    assert check_path(name) == name and "/" not in name and name.isascii()


def test_a_folder_is_named_for_people() -> None:
    assert folder_of("3", "Summarise report B") == "3-summarise-report-b"
    assert folder_of("3", "漢字") == "3"
    assert folder_of("_notes", "") == "_notes" and folder_of(ROOT, "") == "_agent"
    assert ID.match(folder_of("setup", "x"))


def moment() -> Moment:
    root = AgentMoment(data={"n": 1}, plan=Plan("- [ ] a\n"), has_plan=True)
    found = Moment(run_id="r", seq=42, epoch=3, agents={"": root})
    found.root.scopes["3"] = Scope(title="Report")
    return found


def test_state_is_json_with_the_stamp_near_its_top() -> None:
    data = projection.state_file(moment(), moment().root)
    facts = json.loads(data)
    assert facts["at"] == {"seq": 42, "epoch": 3, "sha": facts["at"]["sha"]} and facts["open"] == ["3-report"]
    assert stamp.read_json(data).untouched and data.index(b'"at"') < data.index(b'"data"')


def test_data_that_look_like_a_stamp_do_not_break_it() -> None:
    found = moment()
    found.root.data = {"at": {"seq": 1, "epoch": 1, "sha": "00000000"}}
    read = stamp.read_json(projection.state_file(found, found.root))
    assert read.untouched and read.stamp is not None and read.stamp.seq == 42
    found.run_id = '"at": {"seq": 1, "epoch": 1, "sha": "00000000"}'
    read = stamp.read_json(projection.state_file(found, found.root))
    assert read.untouched and read.stamp is not None and read.stamp.seq == 42


def done(no: int, effect: bool = False) -> StepCompleted:
    return StepCompleted(scope="3", no=no, step="read it", args=f"{no}", n=0, result=Raw(b"[1]"), effect=effect)


def test_a_long_scope_shows_its_newest_steps_and_every_effect_in_doubt() -> None:
    found = moment()
    scope = found.root.scopes["3"]
    scope.done = {done(no).key: done(no) for no in range(1, 200)}
    started = StepStarted(scope="3", no=300, step="send", args="x", n=0, idempotency_key="k")
    scope.started = {started.key: started}
    files = [*projection.step_files(found.root)]
    assert len(files) == projection.STEPS_SHOWN + 1 and len({file.path for file in files}) == len(files)
    assert files[0].record is started and files[1].path == "steps/3-report/199-read-it.json"
    assert json.loads(projection.step_file(found, started))["status"] == "in_doubt"
    assert json.loads(projection.step_file(found, done(7)))["result"] == [1]
