"""For tests of what people are told: who watches a run, and agents that end as runs end."""

from __future__ import annotations

from typing import Any

from satchel import Run, agent, effect, step


class Watching:
    """A `watch=` that keeps what a run says to it beside its work: (kind, text)."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []

    def noticed(self, kind: str, text: str) -> None:
        self.lines.append((kind, text))

    def __getattr__(self, name: str) -> Any:
        return lambda *args: None


@step
async def pay(run: Run[Any], n: int) -> None:
    run.spend(usd=0.9)


@effect
async def send() -> None:
    raise TimeoutError


@agent
async def completes(run: Run[Any]) -> str:
    return "done"


@agent
async def fails(run: Run[Any]) -> None:
    raise ValueError("no such file: brief.md")


@agent
async def doubts(run: Run[Any]) -> None:
    await send()


@agent
async def spends(run: Run[Any]) -> None:
    for n in range(4):
        await pay(n=n)
