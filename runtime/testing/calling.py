"""Call a step or an effect as a plain function: nothing is recorded."""

from __future__ import annotations

import inspect
from contextlib import aclosing
from typing import Any, cast

from ...workspace.base import UsageError
from ...workspace.views import RecoveryMarker
from ..steps import Partial, R, Step

KEY = "test-key"
"""The idempotency key that an effect gets, unless the test gives another."""


class MemoryPartial(Partial):
    """A `Partial` without a file. `text` is what the step has written, behind the `recovered` text of an earlier
    attempt; `pieces` are its writes. A message arrives after so many of them: `interrupted_after`."""

    def __init__(
        self,
        recovered: str | None = None,
        marker: RecoveryMarker | None = None,
        *,
        interrupted_after: int | None = None,
    ):
        self._recovered, self.marker, self.ended, self.was_interrupted = recovered, marker, False, False
        self._is_continued, self.has_restarted = not recovered, False
        self.pieces: list[str] = []
        self._hears = lambda: interrupted_after is not None and len(self.pieces) >= interrupted_after

    async def write(self, text: str) -> None:
        if not isinstance(text, str):
            raise TypeError(f"a partial is text, not {type(text).__qualname__}")
        if not self._is_continued:
            self._restart()
        self.pieces.append(text)

    @property
    def has_new(self) -> bool:
        return bool(self.pieces)

    @property
    def text(self) -> str:
        self._is_continued = True
        return (self._recovered or "") + "".join(self.pieces)


async def call(step: Step[..., R], /, *args: Any, **kwargs: Any) -> R:
    """Call the function of a step or an effect once, in this task, and return its result. Nothing is recorded, retried
    or verified.

    What Satchel would fill in may be given by name; otherwise a `Partial` is a new `MemoryPartial`, and a `Key` is
    "test-key". UsageError for a parameter that needs a run, and for what is neither step nor effect.
    """
    if not isinstance(step, Step):
        name = getattr(step, "__name__", step)
        raise UsageError(f"{name} is neither a step nor an effect", remedy="call it as it is")
    shape, given = step.shape, dict(kwargs)
    if shape.partial:
        given.setdefault(shape.partial, MemoryPartial())
    if shape.key:
        given.setdefault(shape.key, KEY)
    if shape.run and shape.run not in given:
        raise UsageError(
            f"{step.name} needs a run", remedy=f"give it one: call({step.name}, ..., {shape.run}=run), see fake_run"
        )
    injected = {name: given.pop(name) for name in (shape.partial, shape.key, shape.run) if name}
    positional, named = shape.unbind(shape.bind(step.name, args, given), injected)
    found: Any = step.function(*positional, **named)
    if step.is_generator:
        out = injected.get(shape.partial or "") or MemoryPartial()
        async with aclosing(found):
            async for part in found:
                await out.write(part)
        return cast(R, out.text)
    result: R = await found if inspect.isawaitable(found) else found
    return result
