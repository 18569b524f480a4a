"""A secret that arrives in pieces, and exceptions."""

from __future__ import annotations

import random

import pytest
from properties import seed

from satchel.workspace.secrets import RedactedStream, Redactor, scrub

BOTH = Redactor((r"(?<=password=)\S{4,}", r"tok-[0-9]{12,}"), {"KEY": "secret-value", "MORE": "secret-other"})


def test_a_piece_of_a_secret_is_shown_wherever_the_text_is_cut() -> None:
    text = "secrecy: secret-value, secretsecret-other tok-123456789012345 x password=hunter2 " + "plain words " * 40
    whole = BOTH.text(text * 3)
    rng = random.Random(seed())
    for _ in range(100):
        stream, shown, at = RedactedStream(BOTH), "", 0
        while at < len(text) * 3:
            step = rng.choice([1, 2, 7, 300])
            shown += stream.add((text * 3)[at : at + step])
            at += step
            assert whole.startswith(shown)
        assert shown + stream.end() == whole


def test_without_patterns_only_the_beginning_of_a_value_waits() -> None:
    stream = RedactedStream(Redactor((), {"KEY": "secret-value"}))
    assert stream.add("this is sec") == "this is "
    assert stream.add("ond and secret-valu") == "second and "
    assert stream.add("e.") == "[redacted:KEY]."
    assert (stream.add("secret"), stream.end()) == ("", "secret")


ANCHORED = (
    r"^user=\w+",
    r"(?m)^pass: .*$",
    r"\Akey.",
    r"(?m)\w+;$",
    r"end\Z",
    r"last$",
    r"(?<=id )\d+",
    r"(?<!no )tok\d",
    r"\bab\b",
    r"aaa",
)
WORDS = [
    "user=ann",
    "pass: x y",
    "key1",
    "x;",
    "end",
    "last",
    "id 12",
    "no tok1",
    "tok1",
    "ab",
    "aaaaaaa",
    "secret-value",
]
WORDS += ["\n", " ", " ", "a", "[redacted]", "[redacted:KEY]", "\nuser=bob", "words " * 20]


@pytest.mark.parametrize("patterns", [ANCHORED, *((each,) for each in ANCHORED)], ids=lambda each: each[0])
@pytest.mark.parametrize("values", [{}, {"KEY": "secret-value", "OTHER": "last-one"}], ids=["", "with values"])
def test_a_pattern_finds_something_else_in_a_stream(patterns: tuple[str, ...], values: dict[str, str]) -> None:
    """Also one with `^` or `$`: the beginning of a piece, or of what a long stream keeps, is not that of the text."""
    redactor = Redactor(patterns, values)
    rng = random.Random(seed())
    for _ in range(10):
        before = "".join(rng.choices(WORDS, k=rng.choice([0, 0, 3])))
        text = "".join(rng.choices(WORDS, k=rng.choice([3, 30, 1500])))
        stream, shown, at = RedactedStream(redactor), redactor.text(before), 0
        stream.follow(shown)
        whole = redactor.text(shown + text)
        if not whole.startswith(shown):
            continue  # a secret begins in what was shown before the stream
        while at < len(text):
            step = rng.choice([1, 7, 300, 5000])
            shown += stream.add(text[at : at + step])
            at += step
            assert whole.startswith(shown)
        assert shown + stream.end() == whole


def test_what_is_found_in_a_text_is_not_what_is_replaced() -> None:
    redactor = Redactor(ANCHORED, {"KEY": "secret-value"})
    rng = random.Random(seed())
    for _ in range(300):
        text, parts, at = "".join(rng.choices(WORDS, k=rng.randrange(30))), [], 0
        for begin, end, marker in redactor.spans(text):
            parts += [text[at:begin], marker]
            at = end
        assert "".join([*parts, text[at:]]) == redactor.text(text)


def test_a_long_stream_keeps_little_of_its_text() -> None:
    stream = RedactedStream(BOTH)
    shown = sum(len(stream.add("some plain words ")) for _ in range(5000))
    assert shown == 17 * 5000 - 256 and len(stream._raw) < 6000


class Refuses(Exception):
    @property
    def args(self) -> tuple[str]:  # type: ignore[override]
        return ("secret-value",)


def test_an_exception_keeps_a_secret_in_its_parts() -> None:
    cause = OSError(2, "no secret-value", "/secret-value")
    error = ExceptionGroup("both", [ValueError({"a": ["secret-value"]}), Refuses()])
    error.__cause__, cause.__context__ = cause, error  # a circle
    error.add_note("see secret-value")
    scrub(error, BOTH)
    assert str(cause) == "[Errno 2] no [redacted:KEY]: '/[redacted:KEY]'"
    assert error.exceptions[0].args == ({"a": ["[redacted:KEY]"]},)
    assert error.__notes__ == ["see [redacted:KEY]"]
