"""How facts are put."""

from __future__ import annotations

import pytest

from satchel.runtime.cli.output import listed
from satchel.runtime.present import counted, cut, duration, since, size
from satchel.workspace.base import visible


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (counted(1, "step"), "1 step"),
        (counted(0, "step"), "0 steps"),
        (counted(1200, "step"), "1,200 steps"),
        (size(999), "999 bytes"),
        (size(1000), "1.0 kB"),
        (size(999_600), "1.0 MB"),
        (size(25_000_000), "25 MB"),
        (size(3 * 10**12), "3.0 TB"),
        (duration(0.04), "0.0 s"),
        (duration(-3), "0.0 s"),
        (duration(12.4), "12 s"),
        (duration(185), "3 min 5 s"),
        (duration(7800), "2 h 10 min"),
        (duration(3 * 86400), "3 days"),
        (listed(["a", "b", "c"]), "a, b and c"),
        (listed([]), ""),
        (cut("abcdef", 4), "abc…"),
        (cut("日本語日本語", 6), "日本…"),
        (cut("abc", 3), "abc"),
        (since("no time"), "no time"),
        (visible("a\x1b[31m\u202eb\x00\tc\n\udcff"), "a\\x1b[31m\\u202eb\\x00\tc\n\\udcff"),
    ],
)
def test_a_fact_is_put_wrongly(said: str, expected: str) -> None:
    assert said == expected
