"""Secrets in texts, JSON and files: what is found, and what a redacted value looks like."""

from __future__ import annotations

import json
import random
import re
from urllib.parse import quote

import pytest

from satchel.workspace.base import InvalidFile, Refused
from satchel.workspace.formats import parse
from satchel.workspace.secrets import Redactor, as_recorded, redactor_of

HEAD = "format: 1\nrun_id: r\nagent: agent.py:main\n"
VALUE = "canary-7f3a/+9=\"ä'\\"
BY_ALL = Redactor((r"sk-[a-z0-9]{8,}", r"(?<=password=)\S+"), {"KEY": VALUE, "LONG": VALUE + "-more"})


def test_without_rules_all_values_are_returned_as_they_are() -> None:
    none = redactor_of(parse(HEAD))
    value = {"a": ["b"]}
    assert not none
    assert none.value(value) is value
    assert none.json(b'{ "a": 1 }') == b'{ "a": 1 }'
    assert none.file("x.json", b"not json") == b"not json"


def test_a_value_is_found_in_any_place_of_a_text_and_the_longest_first() -> None:
    assert BY_ALL.text(f"a {VALUE}, {VALUE}-more") == "a [redacted:KEY], [redacted:LONG]"
    assert BY_ALL.text("sk-0123456789, password=abc def") == "[redacted], password=[redacted] def"


def test_a_value_is_found_with_escapes_of_json_and_of_urls() -> None:
    for text in (json.dumps(VALUE), json.dumps(VALUE, ensure_ascii=False)):
        assert BY_ALL.text(text) == '"[redacted:KEY]"'
    assert BY_ALL.text("smtp://u:canary-7f3a%2F%2B9%3D%22%C3%A4%27%5C@host") == "smtp://u:[redacted:KEY]@host"


def test_json_is_redacted_behind_any_escape_and_in_keys() -> None:
    escaped = "".join(f"\\u{ord(char):04x}" for char in VALUE)
    data = f'{{"n": 1.50, "deep": [{{"{escaped}": "x {escaped} \\u0073k-0123456789"}}]}}'.encode()
    found = BY_ALL.json(data)
    assert json.loads(found) == {"n": 1.5, "deep": [{"[redacted:KEY]": "x [redacted:KEY] [redacted]"}]}
    assert BY_ALL.json(b'{ "n" : 1 }') == b'{ "n" : 1 }'


def test_two_keys_that_look_the_same_without_their_secrets_lose_a_value() -> None:
    both = {"sk-0123456789": 1, "sk-9876543210": 2, f"{VALUE}": 3, "[redacted] 2": 4}
    found = BY_ALL.value(both)
    assert [*found.items()] == [("[redacted]", 1), ("[redacted] 2", 2), ("[redacted:KEY]", 3), ("[redacted] 2 2", 4)]
    assert BY_ALL.value(found) is found


def test_redacting_twice_is_the_same_as_once() -> None:
    greedy = Redactor((r"[A-Za-z:]{4,}", r"\[\w+"), {"REDACTED": "redacted"})
    rng = random.Random(7)
    for _ in range(500):
        text = "".join(
            rng.choice(["redacted", "[redacted]", "[redacted:KEY]", "[", "a", "secret", " ", ":"]) for _ in range(8)
        )
        once = greedy.text(text)
        assert greedy.text(once) == once, text


def test_a_secret_in_the_form_of_a_marker_is_hidden() -> None:
    both = Redactor(("sk-[a-z]{8,}",), {"KEY": "correct_horse", "NOT_SET": ""})
    assert both.text("[redacted:correct_horse]") == "[redacted:[redacted:KEY]]"
    assert both.text("[redacted:skabcdefgh]") == "[redacted:skabcdefgh]", "no secret"
    assert Redactor(("[a-z]{8,}",)).text("[redacted:abcdefgh] [redacted]") == "[[redacted]:[redacted]] [redacted]"
    assert Redactor(("[A-Z_]{5,}",), {"NOT_SET": ""}).text("[redacted:NOT_SET]") == "[redacted:NOT_SET]"


def test_a_beginning_of_a_value_at_the_end_of_a_text_is_overlooked() -> None:
    found = Redactor((), {"KEY": "ababac", "OTHER": "bacon"})
    rests = {"": 0, "x": 1, "xa": 1, "xab": 1, "ababab": 2, "xababa": 1, "xaba": 1, "baco": 0, "abac": 1, "ababac": 3}
    assert {text: found.rest(text) for text in rests} == rests


def test_a_text_with_many_secrets_is_compared_with_its_record_for_ever() -> None:
    recorded = ", ".join(["[redacted]"] * 60) + " end"
    assert as_recorded(recorded, recorded.replace("[redacted]", "tok")) == recorded
    assert as_recorded(recorded, recorded.replace("end", "END")) == recorded.replace("end", "END")
    assert as_recorded("[redacted][redacted:A] b [redacted]", "xy b b") == "[redacted][redacted:A] b [redacted]"
    assert as_recorded("a [redacted]", "a ") == "a "


def test_a_file_stays_what_it_is() -> None:
    line = json.dumps({"a": VALUE}).encode()
    assert BY_ALL.file("journal/1.jsonl", line + b"\n" + line + b"\n").splitlines() == [b'{"a":"[redacted:KEY]"}'] * 2
    assert BY_ALL.file("state.json", line) == b'{"a":"[redacted:KEY]"}'
    assert BY_ALL.file("state.json", line[:-1]) == b'{"a": "[redacted:KEY]"'  # torn
    assert BY_ALL.file("todo.md", f"- [ ] {VALUE}".encode()) == b"- [ ] [redacted:KEY]"
    assert BY_ALL.file("picture", b"\xff" + VALUE.encode()) == b"\xff[redacted:KEY]"


def test_what_is_found_is_named_by_its_place_and_rule_and_not_by_its_text() -> None:
    found = [*BY_ALL.found_in({"a": ["x", f"my {VALUE}"], "sk-0123456789": 1}, "run.state")]
    assert found == [
        ("run.state.a[1]", "it contains the value of KEY"),
        ("run.state.[redacted]", "it contains what pattern 1 of `redact:` matches"),
    ]
    assert not [*BY_ALL.found_in(["[redacted:KEY]", "[redacted]", 5, None])]


def test_values_are_those_of_the_environment() -> None:
    definition = parse(HEAD + "redact: {env: [A_KEY, NOT_SET, EMPTY], patterns: ['x{3}']}\n")
    found = redactor_of(definition, {"A_KEY": "abcd", "EMPTY": "", "OTHER": "zzzz"})
    assert found.text("abcd zzzz xxx") == "[redacted:A_KEY] zzzz [redacted]"
    with pytest.raises(Refused, match=r"names A_KEY .* only 3 characters"):
        redactor_of(definition, {"A_KEY": "abc"})


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        (
            "{patterns: ['ok', 'a(']}",
            r"line 4 \(redact.patterns\[1\]\): found \"a\(\", expected a regular.*unterminated",
        ),
        ("{patterns: ['a*']}", "expected a pattern that does not match the empty text"),
        ("{env: ['A B']}", "expected the name of an environment variable"),
        ("{envs: [A]}", "Did you mean `env`"),
    ],
)
def test_a_bad_rule_is_refused_with_its_place_and_reason(rules: str, said: str) -> None:
    with pytest.raises(InvalidFile) as caught:
        parse(f"{HEAD}redact: {rules}\n")
    assert re.search(said, str(caught.value)), caught.value


@pytest.mark.parametrize(
    "value", ["pässwörd", "日本語の秘密", "it's\\ä\"b\n", "caf\udce9-latin", "\x00\x7f\x80ab"], ids=ascii
)
def test_a_value_hides_in_the_repr_of_bytes(value: str) -> None:
    """As in the text of an error that quotes what was sent. A variable may also be no text (`surrogateescape`)."""
    redactor = Redactor((), {"KEY": value})
    data = value.encode(errors="surrogateescape")
    for shown in (repr(data), repr(bytearray(data)), repr([data]), repr({"a": data}), f"sent {data!r} and '"):
        assert redactor.text(shown) == shown.replace(repr(data)[2:-1], "[redacted:KEY]"), shown
    for shown in (repr(b"'" + data), repr(b"\"'" + data), repr(value), json.dumps(value), quote(data), quote(data, "")):
        assert "[redacted:KEY]" in redactor.text(shown), shown
    assert redactor.data(b"\xff" + data) == b"\xff[redacted:KEY]"
