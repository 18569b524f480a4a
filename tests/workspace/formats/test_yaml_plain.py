"""The reader of plain files: it reads something else than the full reader, or accepts what that refuses."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import examples

from satchel.workspace.base import InvalidFile
from satchel.workspace.formats import definition, yaml_plain, yamltext

PLAIN = """\
# A run.
format: 1
run_id: letter-ada

settings:
  city: Oslo, Norway (old town)
  url: http://example.org/a#b
  text: "no: # mark, it's plain"
  raw: 'say "no"'
  count: 0x1F
  ratio: 1.50
  on: yes
  nothing:
  deep:
      deeper: [1, two, true]
      none: []

agent: agent.py:main
"""

PIECES = (
    *"abzNY019-_.~/:#,\"'[]{}()&*!|>%@`?=\\ \n\t\r\u00a0\u0085\ufeff",
    *(
        "  ",
        "\n  ",
        "\n    ",
        "\n",
        ": ",
        ": ",
        ":\n",
        " #",
        "# x\n",
        "- ",
        "\n- ",
        "---\n",
        "...",
        "null",
        "true",
        "~",
    ),
    *(
        "key",
        "a: b\n",
        "a:\n  ",
        "c: [a, b]\n",
        'd: "x"\n',
        "e: 'y'\n",
        "0x1",
        "1e3",
        ".5",
        "<<",
        "\u00e9",
        "\U0001f600",
    ),
)


def read(text: str) -> str | None:
    with suppress(InvalidFile):
        return json.dumps(yamltext.load(text, "a.yaml").value)
    return None


def test_a_plain_file_is_left_to_the_slow_reader() -> None:
    assert json.dumps(yaml_plain.mapping(PLAIN)) == read(PLAIN)


@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
@examples(800)
def test_a_file_means_something_else_to_each_reader(text: str) -> None:
    found = yaml_plain.mapping(text)
    assert found is None or json.dumps(found) == read(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing\n",
        "a: 1\na: 2\n",
        "a: 1\n  b: 2\n",
        "a:\n    b: 1\n  c: 2\n",
        " a: 1\n",
        "a: b: c\n",
        "a: b # c\n",
        "a: [-]\n",
        "a: [b\n",
        "a: 'it''s'\n",
        'a: "\\n"\n',
        "a: |\n  b\n",
        "null: 1\n",
        f"a: {'9' * 5000}\n",
        "".join(f"{' ' * depth}a:\n" for depth in range(40)),
    ],
)
def test_a_file_that_is_not_plain_or_has_a_mistake_is_taken(text: str) -> None:
    assert yaml_plain.mapping(text) is None


def test_a_mistake_in_a_plain_file_is_told_without_its_line() -> None:
    with pytest.raises(InvalidFile, match=r"line 4 \(settings\)"):
        definition.parse("format: 1\nrun_id: a-1\nagent: agent.py:main\nsettings: 3\n")


def test_a_plain_file_is_read_by_pyyaml_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yamltext, "load", None)
    assert definition.parse(PLAIN).settings["city"] == "Oslo, Norway (old town)"
