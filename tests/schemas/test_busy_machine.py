"""What is checked on a machine that has no time for it."""

from __future__ import annotations

import itertools
import time
from types import SimpleNamespace

import pytest

from satchel.schemas import validator


def test_a_good_schema_is_refused_because_others_use_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own work counts, and not how long it had to wait for its turn."""
    turns = itertools.count(time.monotonic(), 10 * validator.LIMIT)
    busy = SimpleNamespace(monotonic=turns.__next__, thread_time=time.thread_time)
    monkeypatch.setattr(validator, "time", busy)
    schema = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}
    of = ("the schema", "correct it")
    assert validator.check_foreign(schema, {"number": 1}, str, of) == []
    assert len(validator.check_foreign(schema, {"number": "1"}, str, of)) == 1
