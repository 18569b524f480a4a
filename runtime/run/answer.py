"""`Answer`: what `run.ask` returns. A typo in a comparison can't turn a denial into an approval."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, NoReturn

from msgspec import Struct

from ...workspace.base import UsageError


class Answer(Struct, frozen=True):
    """A person's answer. `decision` is the choice, the text, or the value that fits the schema.

    `answer == "approve"` compares the decision. If the question had choices, a comparison with another text raises
    UsageError, because a typo must not turn a denial into an approval. An `Answer` has no boolean value.
    """

    decision: Any
    by: str  # who answered, as far as known; "the default" if the question had expired
    note: str
    at: datetime  # when it was recorded
    how: Literal["file", "command", "expired"]
    choices: tuple[str, ...] = ()

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Answer):
            return (self.decision, self.by, self.note, self.at) == (other.decision, other.by, other.note, other.at)
        if self.choices and other not in self.choices:
            raise UsageError(
                f"an answer was compared with {other!r}",
                why=f"it can only be one of {', '.join(self.choices)}",
                remedy="compare it with one of them",
            )
        return bool(self.decision == other)

    def __ne__(self, other: object) -> bool:  # a Struct's own would compare its fields
        return not self == other

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> NoReturn:
        example = self.choices[0] if self.choices else "..."
        raise TypeError(f"an `Answer` has no boolean value: write `answer == {example!r}`")
