"""The comparison: streamed, so a stop keeps the text written so far."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator

from satchel import Partial, step

_TEXT = """Contoso is the cheapest at 2160.00, but it delivers in eight weeks and gives two years of guarantee.
Northwind delivers first, in three weeks, and costs 300.00 more. Fabrikam costs 2328.00, delivers in four weeks,
and gives five years of guarantee as Northwind does. Order at Fabrikam: one more week saves 132.00, and
nothing else differs."""


async def write(after: str, words_per_second: float) -> AsyncIterator[str]:
    """The words of a model. `after` is the text that already exists."""
    for word in re.findall(r"\s*\S+", _TEXT.removeprefix(after)):
        await asyncio.sleep(1 / words_per_second if words_per_second else 0)
        yield word


@step
async def compare(out: Partial, prompt: str, words_per_second: float) -> str:
    async for word in write(out.recovered or "", words_per_second):
        await out.write(word)
    return out.text
