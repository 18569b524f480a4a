"""workspace.yaml: the one file a person has to write."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from satchel.workspace.base.errors import InvalidFile, NewerFormat
from satchel.workspace.formats.definition import Checkpoints, Definition, Keep, Rule, encode, parse
from satchel.workspace.formats.yamltext import dump

MINIMAL = "format: 1\nrun_id: digest-7f3a\nagent: agent.py:main\n"


def test_the_smallest_workspace_is_refused() -> None:
    assert replace(parse(MINIMAL), said={}) == Definition("digest-7f3a", "agent.py:main")


def test_a_definition_can_be_changed_by_whoever_holds_it() -> None:
    with pytest.raises(AttributeError):
        parse(MINIMAL).run_id = "other"  # type: ignore[misc]


@pytest.mark.parametrize("format_", ["2", "3", "9999999999999999999999"])
def test_a_newer_file_is_called_wrong(format_: str) -> None:
    text = f"pools: [a]\nformat: {format_}\nrun_id: {{a: b}}\n"
    with pytest.raises(NewerFormat, match="Upgrade Satchel") as caught:
        parse(text)
    assert "unknown" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "format: 1\nrun_id: 12\nagent: agent.py:main\n",
            "workspace.yaml, line 2 (run_id): found 12, expected up to 63",
        ),
        (MINIMAL + "settngs:\n  a: 1\n", "workspace.yaml, line 4 (settngs): found the unknown key `settngs`"),
        ("format: 1\nagent: agent.py:main\n", "line 1 (run_id): found nothing, expected up to 63"),
        ("format: true\nrun_id: a\nagent: agent.py:main\n", "line 1 (format): found true, expected 1. Write 1"),
        ("format: 1.0\nrun_id: A\nagent: agent.py:main\n", "line 2 (run_id)"),
        ("format: 0\nrun_id: a\nagent: agent.py:main\n", "line 1 (format): found 0, expected 1"),
        (MINIMAL + "settings: [a]\n", "line 4 (settings): found a list of 1 item, expected a mapping"),
        (MINIMAL + "settings:\n", "line 4 (settings): found nothing (null)"),
        ("format: 1\nrun_id: a\nagent: /etc/agent.py:main\n", "line 3 (agent)"),
        ("", "line 1 (the top level): found nothing (null), expected a mapping"),
        ("[]", "expected a mapping of keys to values"),
        ("format: 1\nrun_id: a: b\n", 'write run_id: "a: b"'),
    ],
)
def test_a_wrong_file_is_not_explained(text: str, said: str) -> None:
    with pytest.raises(InvalidFile) as caught:
        parse(text)
    assert said in str(caught.value)


def test_only_the_first_mistake_is_reported() -> None:
    with pytest.raises(InvalidFile) as caught:
        parse("format: 1\nrun_id: A\nagent: main\ntypo: 1\n")
    assert [problem.place for problem in caught.value.problems] == [
        "line 2 (run_id)",
        "line 3 (agent)",
        "line 4 (typo)",
    ]


def test_notes_of_ones_own_are_refused() -> None:
    assert parse("$schema: x\n" + MINIMAL + "x-team: {a: 1}\nsettings: {deep: [1]}\n").settings == {"deep": [1]}


def test_a_file_is_written_that_nobody_would_have_written() -> None:
    written = encode(Definition("digest-7f3a", "agent.py:main", {"sources": "~/notes", "at": "22:30"}), ["A digest."])
    assert written == (
        "# yaml-language-server: $schema=.satchel/schemas/workspace.json\n"
        "# A digest.\n"
        "\n"
        "format: 1\nrun_id: digest-7f3a\nagent: agent.py:main\n"
        "\n"
        'settings:\n  sources: ~/notes\n  at: "22:30"\n'
    )


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("", Checkpoints(600.0)),
        ("{}", Checkpoints(600.0)),
        ("{every: growth}", Checkpoints("growth")),
        ("{every: item}", Checkpoints("item")),
        ("{every: 90s}", Checkpoints(90.0)),
        ("{every: 30}", Checkpoints(30.0)),
    ],
)
def test_when_checkpoints_are_written_is_misread(written: str, meant: Checkpoints) -> None:
    assert parse(MINIMAL + (f"checkpoints: {written}\n" if written else "")).checkpoints == meant


@pytest.mark.parametrize("written", ["{every: never}", "{every: [item]}", "{often: 1}", "{keep: 5}", "item"])
def test_checkpoints_that_nobody_can_write_are_accepted(written: str) -> None:
    with pytest.raises(InvalidFile, match="checkpoints"):
        parse(MINIMAL + f"checkpoints: {written}\n")


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("", Keep(Rule(10_000), Rule(5), Rule(100), Rule(1000))),
        ("{checkpoints: 3}", Keep(checkpoints=Rule(3))),
        ("{history: 30d}", Keep(history=Rule(0, 2592000.0))),
        ("{history: 1e4, inbox: [100.0, 1s]}", Keep(history=Rule(10_000), inbox=Rule(100, 1.0))),
        ("{history: all}", Keep(history=Rule(0, math.inf))),
        ("{recovered: [2, 7d]}", Keep(recovered=Rule(2, 604800.0))),
        ("{inbox: [24h, 2]}", Keep(inbox=Rule(2, 86400.0))),
    ],
)
def test_what_is_kept_is_misread(written: str, meant: Keep) -> None:
    assert parse(MINIMAL + (f"keep: {written}\n" if written else "")).keep == meant


@pytest.mark.parametrize(
    "written",
    [
        "{history: 0}",
        "{history: []}",
        "{inbox: [1, 2h, 3]}",
        "{often: 1}",
        "{recovered: 1.5}",
        "all",
        "{checkpoints: [all, 3]}",
        "{history: true}",
    ],
)
def test_rules_that_nobody_can_keep_are_accepted(written: str) -> None:
    with pytest.raises(InvalidFile, match="keep"):
        parse(MINIMAL + f"keep: {written}\n")


SETTINGS = st.dictionaries(
    st.text(max_size=10),
    st.none() | st.integers() | st.text(max_size=20) | st.lists(st.text(max_size=5), max_size=3),
    max_size=3,
)


@given(st.from_regex(r"[a-z0-9][a-z0-9-]{0,62}", fullmatch=True), SETTINGS, st.lists(st.text(max_size=20), max_size=2))
def test_a_definition_is_read_back_as_another(run_id: str, settings: dict[str, Any], comments: list[str]) -> None:
    made = Definition(run_id, "agent.py:main", settings)
    try:
        assert replace(parse(encode(made, comments)), said={}) == made
    except InvalidFile as error:
        assert "invisible character" in str(error), "only a comment or a setting that no file could hold is refused"


def test_a_wrong_definition_is_written() -> None:
    with pytest.raises(InvalidFile, match="run_id"):
        encode(Definition("Not a name", "agent.py:main"))


def test_jsonschema_is_loaded_for_a_file_that_is_right() -> None:
    code = f"import sys; from satchel.workspace.formats.definition import parse; parse({MINIMAL!r})"
    code += "; assert 'jsonschema' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_settings_of_any_shape_are_kept() -> None:
    assert parse(MINIMAL + dump({"settings": {"a": {"b": [None, 1.5]}}})).settings == {"a": {"b": [None, 1.5]}}


def test_a_word_that_may_stand_for_a_length_of_time_is_not_named() -> None:
    with pytest.raises(InvalidFile, match=r"growth, item or milestone, or a length of time .*Did you mean item"):
        parse(MINIMAL + "checkpoints: {every: items}\n")


@pytest.mark.parametrize("other", ["run-2", "a-1", "r" * 40 + "-" + "9" * 22])
def test_a_file_that_differs_in_its_run_id_only_is_another_definition(other: str) -> None:
    """Reading YAML is dear, so such files are read once."""
    text = "format: 1\nrun_id: run-1\nagent: a.py:main\nsettings: {list: [1]}\n"
    first = parse(text)
    first.settings["list"].append(2)
    second = parse(text.replace("run-1", other))
    assert (first.run_id, second.run_id, second.agent) == ("run-1", other, "a.py:main")
    assert second.settings == {"list": [1]} and second.recorded["settings"] == {"list": [1]}


def test_a_run_id_is_taken_from_a_text_of_several_lines() -> None:
    text = 'format: 1\nagent: "a.py:main"\nsettings: {note: "one\n\nrun_id: run-3\n\n"}\nrun_id: other-1\n'
    assert parse(text).run_id == "other-1"
    assert parse(text.replace("run-3", "run-4")).settings == {"note": "one\nrun_id: run-4\n"}


def test_a_run_id_that_is_too_long_is_one_when_a_short_one_was_read() -> None:
    text = "format: 1\nrun_id: run-1\nagent: a.py:main\n"
    parse(text)
    with pytest.raises(InvalidFile, match="up to 63"):
        parse(text.replace("run-1", "run-" + "1" * 60))
