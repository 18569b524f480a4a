"""A call that waits to be tried again is on record, in the status, and on the screen of its run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import satchel
from satchel import Retry, Run, agent, effect, run, step
from satchel.runtime.cli.summary import PlainLines

TWICE = Retry(attempts=3, first=0.01)


class Overloaded(Exception):
    status_code = 503


def records(workspace: Path) -> list[dict[str, Any]]:
    lines = [line for path in sorted(workspace.glob("journal/*.jsonl")) for line in path.read_text().splitlines()]
    return [record for record in map(json.loads, lines) if record["type"] == "step.retry"]


@pytest.mark.parametrize("kind", ["step", "effect"])
def test_a_wait_before_a_retry_is_seen_nowhere(workspace: Path, capsys: pytest.CaptureFixture[str], kind: str) -> None:
    seen: list[list[tuple[str, int, str]]] = []
    make: Any = step(retry=TWICE) if kind == "step" else effect(retry=TWICE, not_done=(Overloaded,))

    @agent
    async def main(run: Run[Any]) -> str:
        @make
        async def ask(topic: str) -> str:
            run._session.journal.flush()  # else durable in a moment
            status = satchel.open(str(workspace)).status()
            seen.append([(each.step, each.attempt, each.error) for each in status.retries])
            if len(seen) < 3:
                raise Overloaded("503")
            return topic

        found: str = await ask("tides")
        return found

    outcome = run(workspace, main, watch=PlainLines())
    assert outcome.result == "tides", outcome.error
    first, second = records(workspace)
    assert (first["attempt"], second["attempt"], first["error"]["message"]) == (1, 2, "503")
    waits = [("ask", 1, "Overloaded: 503")], [("ask", 2, "Overloaded: 503")]
    assert seen == ([[], *waits] if kind == "step" else [[], [], []]), "an effect begins anew"
    assert satchel.open(str(workspace)).status().retries == []
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("retry")]
    assert said == [f"retry  ask: asking again in {each['wait']:.3g} s: Overloaded: 503" for each in (first, second)]
