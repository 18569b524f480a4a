"""What is outside the workspace, next to it: bank.txt has a line for each effect, and reads.txt one for each step."""

import asyncio
import os
from pathlib import Path

OUTSIDE = Path(__file__).parents[1]


def note(file: str, line: str) -> None:
    with (OUTSIDE / file).open("a") as opened:
        opened.write(f"{line}\n")


async def here(place: str) -> None:
    """A place where tools/make_golden.py has stopped the run. For all others it does nothing."""
    if os.environ.get("GOLDEN_PLACE") == place:
        note("here", place)
        while (OUTSIDE / "here").exists():  # noqa: ASYNC110  another process removes it
            await asyncio.sleep(0.01)
