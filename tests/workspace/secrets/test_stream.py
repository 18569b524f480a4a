"""A secret that arrives in pieces, and exceptions."""

from __future__ import annotations

import random

from satchel.workspace.secrets import RedactedStream, Redactor, scrub

BOTH = Redactor((r"(?<=password=)\S{4,}", r"tok-[0-9]{12,}"), {"KEY": "secret-value", "MORE": "secret-other"})


def test_a_piece_of_a_secret_is_shown_wherever_the_text_is_cut() -> None:
    text = "secrecy: secret-value, secretsecret-other tok-123456789012345 x password=hunter2 " + "plain words " * 40
    whole = BOTH.text(text * 3)
    seed = random.randrange(1 << 30)
    rng = random.Random(seed)
    for _ in range(100):
        stream, shown, at = RedactedStream(BOTH), "", 0
        while at < len(text) * 3:
            step = rng.choice([1, 2, 7, 300])
            shown += stream.add((text * 3)[at : at + step])
            at += step
            assert whole.startswith(shown), seed
        assert shown + stream.end() == whole, seed


def test_without_patterns_only_the_beginning_of_a_value_waits() -> None:
    stream = RedactedStream(Redactor((), {"KEY": "secret-value"}))
    assert stream.add("this is sec") == "this is "
    assert stream.add("ond and secret-valu") == "second and "
    assert stream.add("e.") == "[redacted:KEY]."
    assert (stream.add("secret"), stream.end()) == ("", "secret")


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
