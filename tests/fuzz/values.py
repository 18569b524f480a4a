"""What a hostile hand puts into a file: values, texts, names and whole files."""

from __future__ import annotations

import json
from random import Random
from typing import Any

HUGE = "9" * 6000
DEEP = 3000  # levels
TEXTS = [
    "", " ", "\n", "a\nb", "\t", "..", "../../outside/secret.txt", "/etc/passwd", "a/b", "/", "a\\b", "a\0b", "~",
    "-", "--help", "CON", "x" * 300, "x" * 70_000, "\x1b]0;owned\x07\x1b[2J", "\x9b31m", "\u202egnp.exe",
    "\u2066a\u2069", "\u2028", "\ufeff", "\x7f", "\u0085", "\U000e0041", "é" * 50, "日本" * 30, "٣", "[red]x[/red][/]",
    "%s%n{0}", "${HOME}", "$(touch x)", "null", "true", "0x" + "f" * 3600, "1e999", ".inf", "<<", "*a", "&a b",
    "!!python/object:os.system x", "{a: {b: ", "^1", "^" + "9" * 40, "_inbox-t1", "_", "_agent", "999999999999999999",
    "-1", "1.5", "99999999d", "9" * 400 + "d", "99999999999999h", "1e5s", "25:61", "a" * 40 + "!", "http://[",
    "file:///etc/passwd", "s3://x/y", "memory://x", "<!-- satchel 9.9.00000000 -->", "---", "```", "- [ ] x",
    "> " * 500 + "x", "helper", "helper/helper", "d1", "a1", "digest.py:main", "0 0 30 2 *", "0 0 29 2 1#5",
    "* * * * *", "60 * * * *", "Europe/../../../etc/passwd", "LMT", "os:system", "../../evil.py:main",
]  # fmt: skip
TIMES = [
    "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999Z", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59",
    "0001-01-01", "9999-12-31", "2026-02-30T00:00:00Z", "2026-11-01T00:00:00", "2026-11-01", "2026-W01-1", "soon",
    "20261101T000000Z", "2026-11-01T00:00:00.000000001Z", "2026-11-01T24:00:00Z", "1969-12-31T23:59:59Z", "",
    "2036-01-01T00:00:00Z", "2026-11-01T00:00:00+00:00:01", "2026-11-01T00:00:00\u202e", "٢٠٢٦-11-01T00:00:00Z",
]  # fmt: skip
NUMBERS = [
    "0", "-0", "-1", "1", "2", "3", "1e999", "-1e999", "1e308", "1.5", "-0.0", "1e-400", "NaN", "Infinity",
    "0x" + "f" * 3600, "2147483648", "4294967296", "9223372036854775808", "-9223372036854775809", "1000000000000",
    "999999999999", HUGE, "1" + "0" * 40, "1" + "0" * 400, "1e400", "253402300800", "99999999999999999999.0", "1.0",
    "00", "+1", "1_000",
]  # fmt: skip
SCHEMAS: list[Any] = [
    True, False, {}, {"$ref": "http://["}, {"$ref": "#/no"}, {"$ref": "#"}, {"$ref": "data.json"},
    {"$ref": "record.json"}, {"$ref": "file:///etc/passwd"}, {"$ref": "http://127.0.0.1:9/x"}, {"$ref": 5},
    {"$dynamicRef": "#x"}, {"$id": "http://["}, {"$id": "record.json", "$ref": "#/$defs/time"},
    {"allOf": [{"$ref": "#"}]}, {"pattern": "("}, {"pattern": "^(a+)+$"}, {"type": "array"}, {"type": "no"},
    {"type": 5}, {"additionalProperties": {"pattern": "^(a|a)*$"}}, {"patternProperties": {"^(a+)+$": False}},
    {"properties": {"word": {"pattern": "^(a+)+$"}}}, {"minimum": "x"}, {"propertyNames": {"pattern": "^([a-z]+)*$"}},
    {"multipleOf": 1e-320}, {"multipleOf": 0}, {"multipleOf": 10**400}, {"const": 10**5000}, {"enum": []},
    {"uniqueItems": True}, {"properties": {"n": {"multipleOf": 1e-300}}}, {"properties": {"n": {"maximum": 1e308}}},
    {"$schema": "http://["}, {"$schema": "x"}, {"not": {}}, {"if": {}, "then": {"$ref": "#"}},
    {"unevaluatedProperties": False}, {"format": "regex"}, {"properties": {"word": {"pattern": "\\p{L}"}}},
    {"oneOf": [{}, {}]}, {"oneOf": [{}], "discriminator": {"propertyName": "n", "mapping": {"2": "http://["}}},
    {"oneOf": [{}], "discriminator": {"propertyName": "word", "mapping": {"a": "#/x", "b": 5}}},
    {"contains": {}, "minContains": -1}, {"dependentRequired": {"n": 5}}, {"$vocabulary": 5},
    {"$anchor": "(", "$ref": "#("}, {"title": 5, "description": ["x"], "examples": 5},
]  # fmt: skip
MARKDOWN = [
    "> " * 20_000, "- " * 3000 + "[ ] x", "[" * 20_000, "*a_ " * 5000, "<!-- " * 5000, "`" * 5001, "![](" * 5000,
    "- [ ] a ^1\n" * 50, "- [ ] a\n" * 3000, "".join(f"{'  ' * n}- [ ] a\n" for n in range(120)),
    "- [x] read ^1\n- [ ] read ^1\n", "<!-- satchel 1.1.00000000 -->\n",
    "<!-- satchel 999999999999999.999999999.00000000 -->\n", "- [/] x ^" + "9" * 60, "\r- [ ] a\r\n- [ ] b\r",
    "\t- [ ] a", "- [ ]", "- [ ] \x1b[2J\u202e", "&#27;[2J &#x202e;\n- [ ] &#0;",
    "1. [ ] one\n100000000000. [ ] two\n", "<<<<<<< yours\n- [ ] a\n=======\n- [x] a\n>>>>>>> the run's\n",
    "| a |\n|-|\n" * 2000, "[a]: b\n" * 3000, "\\" * 9000, "~~~\n- [ ] a\n",
]  # fmt: skip
YAML = [
    "*a", "&a [*a]", "!!python/object/apply:os.system [x]", "<<: *a", "- " * 3000, "[" * 2000, "{a: " * 2000,
    "? " * 1000, "a: b: c", "|\n" + " " * 50 + "x", "%YAML 1.1", "---\n---", "...", "\t", "\"\\UFFFFFFFF\"",
    '"\\ud800"', "0x" + "f" * 3600, "0o" + "7" * 5000, "1e999", ".nan", HUGE, "no", "22:30", "1:2:3", "2026-02-30",
    "99999999d", "=", "<<", "a" * 300_000, "'" * 999, "@", "`", "#", "{a: 1, a: 1}", "- a\n" * 3000,
    "a: &x {}\nb: *x", "\x1b[2J", "\u202e", "\ufeff", "x: |+\n\n\n" + "\n" * 5000, "\u2028", "!<tag:x> y", "{[a]: b}",
    "? {a: b}\n: c",
]  # fmt: skip
JUNK = [
    b"", b"\0" * 5000, b"\xff\xfe\0", b"null", b"[]", b"5", b"NaN", HUGE.encode(), b"[" * DEEP + b"]" * DEEP,
    b'{"a":' * 50_000, b'{"at": {"seq": 1, "epoch": 1, "sha": "00000000"}}', b'{"a": 1, "a": 2}', b'{"format": 2}',
    b'"\\ud800"', b"{}", b"\n" * 3000, b"---\nformat: 2\n---\n", b"---\nformat: 1e999\n---\n", b"---\n" * 3000,
    b"\xef\xbb\xbf{}", b'{"x":1e999}', b"true", b" ", b"\x1b[2J",
]  # fmt: skip
NAMES = [
    b"\xff\xfe.md", b"a\x1b[2J.md", "a\u202egnp.yaml".encode(), b"x" * 250 + b".md", b".rejected.md",
    b"a.rejected.yaml", b"-rf.md", b"a b.md", b"*.yaml", b"t1.yaml", b"con.json", b"NUL", b"a\nb.yaml", b"~a.md",
    b"todo (conflicted copy).md", b"000000000001 (1).jsonl", b"000000000017.jsonl", b"999999999999.jsonl", b"0.jsonl",
    b"999999999999-x.json", b"000000000009-x_unclean.json", b"moved.yaml", b"leaving.json", b"moving.json",
    b"99-x.json", b"1-a", b"_agent", b"workspace.yaml", b"state.json", b"d1.yaml", b"a1.yaml", b"d" * 200 + b".yaml",
]  # fmt: skip
FOLDERS = [
    "", "journal", "checkpoints", "steps", "steps/2-mail", "partials/2-mail", "recovered/2-mail", "approvals",
    "inbox", "inbox/open", "inbox/open/done-00", "inbox/done", "agents", "agents/helper",
    "agents/helper/steps/1-look", "agents/../x", "conflicts", "outputs", ".satchel", ".satchel/tmp", ".satchel/blobs",
    ".satchel/schemas", ".satchel/displaced", "prompts",
]  # fmt: skip
STRANGE = [
    "pause.yaml", "state.json", "todo.md", "messages.jsonl", ".satchel/lease.json", ".satchel/report.json",
    ".satchel/running.json", ".satchel/moving.json", "moved.yaml", "journal/leaving.json", "approvals/d1.yaml",
    "approvals/a1.yaml",
    "steps/2-mail/02-post.json", "partials/2-mail/09-talk.md", "agents/helper/state.json", "agents/helper/todo.md",
    "inbox/new.yaml", "inbox/new.md", "checkpoints/000000000030-x.json", ".satchel/supervised.json",
]  # fmt: skip
"""Files that may be there or not, and that a stranger may bring."""


class Text(str):
    """Stands for these very characters, where a tree is written as JSON."""


def scalar(random: Random) -> Any:
    """A value of any kind, seldom a good one."""
    match random.randrange(8):
        case 0:
            return Text(random.choice(NUMBERS))
        case 1:
            return random.choice(
                [None, True, False, [], {}, [[]], {"": None}, Text('"\\ud800"'), Text("[" * DEEP + "]" * DEEP)]
            )
        case 2 | 3:
            return random.choice(TIMES)
        case 4:
            return random.randrange(-2, 50)
        case _:
            return random.choice(TEXTS)


def dumped(tree: Any) -> str:
    """As JSON, compact, with the `Text`s as they are."""
    raw: list[str] = []

    def hidden(value: Any) -> Any:
        if isinstance(value, Text):
            raw.append(value)
            return f"@@{len(raw) - 1}@@"
        if isinstance(value, dict):
            return {key: hidden(each) for key, each in value.items()}
        return [hidden(each) for each in value] if isinstance(value, list) else value

    text = json.dumps(hidden(tree), separators=(",", ":"), ensure_ascii=False, default=str)
    for number, each in enumerate(raw):
        text = text.replace(f'"@@{number}@@"', each)
    return text
