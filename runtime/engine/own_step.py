"""Steps that perform their calls themselves."""

from __future__ import annotations

from typing import Any

from ..steps import P, R, Step


class OwnStep(Step[P, R]):
    """An effect, or a method of the run that its scope treats as a step: `run.ask`, `run.sleep`."""

    async def perform(self, call: Any) -> Any:
        """Perform a call without a recorded result, and record its result."""
        raise NotImplementedError
