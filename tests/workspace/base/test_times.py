"""Times that programs have written."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from satchel.workspace.base.text import moment_of


@pytest.mark.parametrize("text", ["2026-11-22T21:30:00Z", "2026-11-22T22:30:00+01:00", "2026-11-22T21:30:00"])
def test_a_time_of_another_zone_is_another_time(text: str) -> None:
    assert moment_of(text) == datetime(2026, 11, 22, 21, 30, tzinfo=UTC)


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01T00:00:00Z", "0001-01-01T00:00:00+14:00"])
def test_what_is_no_time_is_an_error(text: str) -> None:
    assert moment_of(text) is None
