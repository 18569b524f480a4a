"""What people are told: the place, what is there, what should be, and the way out, in words of everyday."""

from __future__ import annotations

import pickle
import re
from functools import partial
from typing import Any

import growth
import pytest
from hypothesis import given
from hypothesis import strategies as st

from satchel.schemas import Problem, dotted, names, problems, short, validator
from satchel.workspace.journal import AnyRecord

IDENTITY = {"scope": "3-a", "no": 1, "step": "read", "args": "0" * 16, "n": 0}
COMMON = {"seq": 7, "crc": "9c1f03ab"}
LEFT_OUT = {"prev": "00000000", "commit": 6, "at": "2025-11-21T09:30:00.123Z", "epoch": 2, "opening": "0" * 16}
WORKSPACE = {"format": 1, "run_id": "digest-7f3a", "agent": "agent.py:main"}
STATE = {"format": 1, "run_id": "a", "status": "paused", "data": {}}

RECORDS: dict[str, dict[str, Any]] = {
    "opened": {
        "format": 1,
        "run_id": "a",
        "satchel": "0.1.0",
        "python": "3.11.7",
        "host": "h",
        "pid": 1,
        "why": "run",
        "found": "crash",
    },
    "closed": {"status": "failed", "reason": "x", "error": {"kind": "E", "message": "m", "where": ["a.py:3"]}},
    "step.started": {**IDENTITY, "call": "read('a')", "idempotency_key": "k", "arguments": ["a"]},
    "step.completed": {**IDENTITY, "call": "read('a')", "result": None, "ms": 1.5, "effect": True, "how": "verified"},
    "step.failed": {**IDENTITY, "call": "", "error": {"kind": "E", "message": ""}, "attempt": 1, "not_done": True},
    "step.progress": {**IDENTITY, "value": [1]},
    "scope.begun": {"scope": "3-a", "title": "A", "plan": [[0, 1, "- [/] A ^3\n"]]},
    "scope.committed": {
        "scope": "3-a",
        "plan": [[0, 1, "- [x] A ^3\n"]],
        "patch": [{"op": "add", "path": "/a~1b/0", "value": 1}, {"op": "remove", "path": ""}],
        "result": None,
        "outputs": {"out.md": {"sha256": "0" * 64, "bytes": 3}},
    },
    "plan.changed": {"plan": [], "by": "person", "why": "x"},
    "message": {"scope": "3-a", "role": "user", "content": [{"type": "text"}], "name": "x"},
    "doubt": {**IDENTITY, "id": "d1", "why": "unreached", "others": [["send", "0" * 16, 0]]},
    "resolved": {"id": "d1", "outcome": "done", "result": 3, "by": "alice"},
    "partial.promoted": {
        **IDENTITY,
        "attempt": 1,
        "file": "recovered/3-a/01-x-1.md",
        "characters": 5,
        "damaged": False,
        "cut_off_at": "2025-11-21T09:30:00Z",
        "cut_off_by": "crash",
    },
    "scope.failed": {"scope": "3-a", "error": {"kind": "E", "message": "m", "where": ["agent.py:3"]}},
    "input": {"arguments": {"topic": "x"}},
    "step.retry": {**IDENTITY, "error": {"kind": "E", "message": "m"}, "attempt": 2, "wait": 0.5},
    "agent.begun": {"agent": "a/b", "scope": "3-a", "args": "0" * 16, "call": "('x')"},
    "agent.ended": {"agent": "a/b", "error": {"kind": "E", "message": "m"}},
    "edited": {
        "file": "todo.md",
        "by": "alice",
        "sha": "0" * 64,
        "saved": "2025-11-21T09:30:00Z",
        "base": 7,
        "patch": [{"op": "add", "path": "", "value": 1}],
        "plan": [[0, 1, "- [x] A ^3\n"]],
        "outline": [[0, 3, -1, 0, 1]],
        "redone": ["3"],
        "dropped": ["_notes"],
        "says": ["x"],
        "step": {"scope": "3", "key": ["send", "0" * 16, 0], "redo": True},
    },
    "checkpoint.saved": {"file": "checkpoints/000000000042-stop.json", "why": "item", "bytes": 9, "sha256": "0" * 64},
    "rewound": {"to": 30, "by": "you@laptop", "agents": {"": {}}},
    "pruned": {"by": "alice", "up_to": 42, "base": "checkpoints/000000000042-stop.json", "files": {"a": 1}, "bytes": 9},
}


def said(name: str, value: Any, **more: Any) -> list[str]:
    return [str(problem) for problem in problems(name, value, **more)]


def test_a_problem_reads_as_a_sentence_and_survives_pickling() -> None:
    problem = Problem("line 4 (settings.model)", "12", "text", "Put it in quotes")
    assert str(problem) == "line 4 (settings.model): found 12, expected text. Put it in quotes"
    assert str(problem._replace(remedy="")) == "line 4 (settings.model): found 12, expected text"
    assert pickle.loads(pickle.dumps(problem)) == problem  # noqa: S301


def test_paths_are_written_as_people_write_them() -> None:
    assert dotted(("data", "items", 3, "a.txt")) == 'data.items[3]["a.txt"]'
    assert dotted(()) == "the top level"


@pytest.mark.parametrize("kind", RECORDS)
def test_a_record_of_the_design_is_refused(kind: str) -> None:
    assert said("record", {**COMMON, "type": kind, **RECORDS[kind]}) == []
    assert said("record", {**COMMON, **LEFT_OUT, "type": kind, **RECORDS[kind], "agent": "a/b", "later": 1}) == []


@pytest.mark.parametrize("kind", [kind for kind, fields in RECORDS.items() if "later" not in fields])
def test_a_missing_field_is_not_noticed(kind: str) -> None:
    record = {**COMMON, "type": kind, **RECORDS[kind]}
    for key in COMMON:
        found = problems("record", {k: v for k, v in record.items() if k != key})
        assert [problem.place for problem in found] == [key]


def test_one_wrong_field_is_reported_as_22_schemas_that_do_not_fit() -> None:
    record = {**COMMON, "type": "doubt", **RECORDS["doubt"], "why": "unreachd"}
    assert said("record", record) == [
        'why: found "unreachd", expected unknown_outcome, unclaimed, unreached, uncalled or lost. '
        "Did you mean unreached?"
    ]


def test_an_unknown_record_type_gets_no_suggestion() -> None:
    (only,) = said("record", {**COMMON, "type": "step.complete"})
    known = f"one of {len(AnyRecord.__args__)} known values"
    assert only == f'type: found "step.complete", expected {known}. Did you mean step.completed?'


def test_result_and_blob_exclude_each_other() -> None:
    base = {**COMMON, "type": "step.completed", **IDENTITY, "call": "", "ms": 1}
    (neither,) = said("record", base)
    (both,) = said("record", {**base, "result": 1, "blob": "0" * 64 + "-3"})
    assert "expected `result` or `blob`" in neither
    assert "found `result` and `blob`, expected only one of" in both


@pytest.mark.parametrize(
    "patch", [[{"op": "test", "path": ""}], [{"op": "add", "path": "/a"}], [{"op": "add", "path": "a"}]]
)
def test_a_patch_that_can_not_be_applied_is_let_through(patch: list[Any]) -> None:
    assert said("record", {**COMMON, "type": "scope.committed", "scope": "a", "result": 1, "patch": patch})


@pytest.mark.parametrize("splice", [[0, 1], [0, 1, "a", 2], [-1, 0, "a"], [0, 0, 1], "a"])
def test_a_splice_of_the_wrong_shape_is_let_through(splice: Any) -> None:
    assert said("record", {**COMMON, "type": "plan.changed", "by": "agent", "plan": [splice]})


def test_a_typo_in_workspace_yaml_is_silently_ignored() -> None:
    found = said("workspace", {**WORKSPACE, "settngs": {}})
    assert found == [
        "settngs: found the unknown key `settngs`, expected `format`, `run_id`, `agent`, `kind`, `settings`, `input`, "
        "`group`, `priority`, `drain`, `idle_below`, `restart_every`, `isolate`, `keeper`, `on_drift`, `on_reference`, "
        "`recheck`, `prompts`, `references`, `windows`, `schedule`, `budget`, `checkpoints`, `keep`, `notify`, "
        "`redirect_to`, `backup` "
        "or `redact`. Did you mean `settings`?"
    ]
    assert said("workspace", {**WORKSPACE, "x-note": 1, "$schema": "y", "settings": {"any": [1]}}) == []


def test_a_misspelt_required_key_is_reported_twice() -> None:
    assert len(said("workspace", {"format": 1, "runid": "a", "agent": "agent.py:main"})) == 1
    (renamed,) = said("state", {"format": 1, "runid": "a", "status": "new", "data": {}})
    assert renamed == "runid: found the key `runid`, expected `run_id`. Rename it to `run_id`"


@pytest.mark.parametrize(
    "agent",
    [
        "/etc/agent.py:main",
        "../agent.py:main",
        "a/../agent.py:main",
        "agent.py",
        "agent:",
        ":main",
        "a b.py:main",
        "C:\\agent.py:main",
        "agent.py:main\n",
        "a..b:main",
        ".hidden/agent.py:main",
        "agent.py:main.x",
    ],
)
def test_an_agent_outside_the_workspace_is_accepted(agent: str) -> None:
    assert said("workspace", {**WORKSPACE, "agent": agent})


@pytest.mark.parametrize("agent", ["agent.py:main", "src/my-agent.py:main", "package.module:attr", "package:attr"])
def test_a_proper_agent_is_refused(agent: str) -> None:
    assert not said("workspace", {**WORKSPACE, "agent": agent})


@pytest.mark.parametrize("run_id", ["", "-a", "A", "a_b", "a" * 64, "a\n", "ä", 12, None])
def test_a_run_id_that_is_no_safe_name_is_accepted(run_id: Any) -> None:
    assert said("workspace", {**WORKSPACE, "run_id": run_id})


def test_remedies_for_slips_of_yaml() -> None:
    assert said("workspace", {**WORKSPACE, "run_id": 12})[0].endswith("Put it in quotes")
    typed = {"properties": {"a": {"type": "integer"}, "b": {"type": "boolean"}, "c": {"type": "array"}}}
    found = said("state", {**STATE, "data": {"a": "12", "b": "no", "c": "x"}}, data_schema=typed)
    assert [line.split(". ")[-1] for line in found] == [
        "Remove the quotes",
        "Write true or false, without quotes",
        "Make it a list, even of one item",
    ]


def test_problems_come_in_the_order_of_the_file() -> None:
    value = {"z": 1, "agent": 3, "run_id": "A", "format": 2}
    assert [problem.place for problem in problems("workspace", value)] == ["z", "agent", "run_id", "format"]


def test_a_file_full_of_mistakes_floods_the_screen() -> None:
    assert len(problems("workspace", {f"k{i}": i for i in range(2_000)})) == 20
    growth.stays_linear(lambda size: partial(problems, "workspace", {f"k{i}": i for i in range(size)}), 500)


def test_place_is_asked_for_every_path_even_of_missing_keys() -> None:
    found = problems("workspace", {"format": 1, "run_id": 3}, place=lambda path: f"line 9 ({dotted(path)})")
    assert {problem.place for problem in found} == {"line 9 (the top level)", "line 9 (run_id)"}


def test_the_agents_own_schema_is_used_for_data() -> None:
    own = {"type": "object", "properties": {"n": {"anyOf": [{"type": "integer"}, {"type": "null"}]}}}
    assert said("state", {**STATE, "data": {"n": None}}, data_schema=own) == []
    (only,) = said("state", {**STATE, "data": {"n": "x"}}, data_schema=own)
    assert only.startswith('data.n: found "x", expected a whole number or nothing (null)')
    assert said("state", {**STATE, "data": {"n": "x"}}) == []


@pytest.mark.parametrize(
    "hostile",
    [
        {"$ref": "https://example.com/x.json"},
        {"$ref": "file:///etc/passwd"},
        {"$ref": "#"},
        {"type": 5},
        {"properties": 3},
        {"patternProperties": {"(": {}}},
        {"allOf": [{"$ref": "#"}]},
    ],
)
def test_a_hostile_schema_in_the_workspace_crashes_or_fetches(hostile: dict[str, Any]) -> None:
    (only,) = problems("state", {**STATE, "data": {"a": 1}}, data_schema=hostile)
    assert "data.json" in only.place


def test_alternatives_are_explained_by_the_one_that_was_meant() -> None:
    own = {
        "oneOf": [
            {
                "type": "object",
                "required": ["url"],
                "properties": {"kind": {"const": "web"}, "url": {"type": "string"}},
            },
            {
                "type": "object",
                "required": ["path"],
                "properties": {"kind": {"const": "file"}, "path": {"type": "string"}},
            },
        ]
    }
    (only,) = said("state", {**STATE, "data": {"kind": "file", "path": 3}}, data_schema=own)
    assert only == "data.path: found 3, expected text. Put it in quotes"


def test_what_is_no_mapping_crashes_the_choice_between_keys() -> None:
    valid = {"format": 1, "run_id": "r-1", "agent": "agent.py:main"}
    assert len(said("workspace", {**valid, "schedule": [3]})) == 1
    own = {"properties": {"n": {"oneOf": [{"required": ["a"]}, {"minimum": 0, "required": ["b"]}]}}}
    (only,) = said("state", {**STATE, "data": {"n": 3}}, data_schema=own)
    assert "more than one of them" in only


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(st.sampled_from(names()), JSON)
def test_a_value_of_the_wrong_shape_crashes_the_check(name: str, value: Any) -> None:
    for problem in problems(name, value):
        assert "\n" not in str(problem)
        assert len(str(problem)) < 1000


@given(st.sampled_from(sorted(RECORDS)), st.data())
def test_a_record_with_a_field_replaced_crashes_the_check(kind: str, data: st.DataObject) -> None:
    record = {**COMMON, "type": kind, **RECORDS[kind]}
    key = data.draw(st.sampled_from(sorted(record)))
    for problem in problems("record", {**record, key: data.draw(JSON)}):
        assert str(problem)


@given(JSON)
def test_short_is_longer_than_a_line(value: Any) -> None:
    assert "\n" not in short(value)
    assert len(short(value)) < 500


def test_short_prints_an_enormous_number() -> None:
    assert short(10**5000) == "a very large number"


@pytest.mark.parametrize(
    ("pattern", "text", "is_quick"),
    [
        ("^[a-z]*$", "a", True),
        ("^[A-Z]{2}[0-9]{4}$", "a", False),
        ("^x-", "a" * 1001, False),
        ("^x-", "x-1", True),
        ("^(a+)+$", "a", False),
        ("a?a?aa", "aa", False),
    ],
)
def test_a_pattern_of_a_stranger_is_trusted_although_it_may_take_years(pattern: str, text: str, is_quick: bool) -> None:
    assert validator._is_quick(pattern, text) == is_quick
    schema = {"properties": {"a": {"pattern": pattern}}}
    found = problems("state", STATE | {"data": {"a": text}}, data_schema=schema)
    assert bool(found) == (re.search(pattern, text) is None)


def test_a_secret_in_the_wrong_place_is_quoted() -> None:
    for secret in ("whsec_c2VjcmV0", 3):
        told = problems(
            "workspace",
            {
                "format": 1,
                "run_id": "a",
                "agent": "a.py:main",
                "notify": [{"webhook": "https://example.org", "secret": secret}],
            },
        )
        assert len(told) == 1 and told[0].place == "notify[0].secret" and told[0].found == "something else"
