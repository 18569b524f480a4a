"""Private attributes of classes of attrs: no JSON contains them, so a result that would lose one is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest

import satchel
from satchel import Run, agent, run, step


@attrs.define
class Found:
    page: int
    _token: str = ""


@pytest.mark.parametrize("where", ["step", "list", "agent"])
@pytest.mark.parametrize("token", ["", "t-1"])
def test_a_private_attribute_of_a_result_is_lost(workspace: Path, where: str, token: str) -> None:
    found = Found(1, token)

    @step
    async def one() -> Found:
        return found

    @step
    async def many() -> list[Found]:
        return [Found(0), found]

    if where == "agent":

        @agent
        async def main(run: Run[Any]) -> Found:
            return found

    else:

        @agent
        async def main(run: Run[Any]) -> None:
            await (one() if where == "step" else many())

    outcome = run(workspace, main)
    if not token:
        assert outcome.status == "completed", outcome.error
        return
    assert outcome.status == "failed" and isinstance(outcome.error, satchel.errors.NotSerializable)
    said = str(outcome.error)
    place = {"step": "the result of one._token", "list": "the result of many[1]._token"}.get(where, "._token")
    assert f"{place} can't be kept: another value comes back from its JSON" in said
