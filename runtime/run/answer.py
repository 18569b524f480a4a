"""`Answer`: what `run.ask` returns. A typo in a comparison can't turn a denial into an approval, and no agent
uses arguments that a person has replaced."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, NoReturn

from msgspec import Struct

from ...workspace.base import UsageError
from ...workspace.people.approvals import with_changes


class Answer(Struct, frozen=True, dict=True, rename={"_decision": "decision", "_arguments": "arguments"}):
    """A person's answer.

    `answer == "approve"` compares the decision. If the question had choices, a comparison with another text raises
    UsageError, because a typo must not turn a denial into an approval. An `Answer` has no boolean value.

    If the question had `arguments`, `changed` are those that the person has changed, with their new values. Read
    `arguments` before the decision then: UsageError otherwise, so that the old ones are not used.
    """

    _decision: Any
    by: str  # who answered, as far as known; "the default" if the question had expired
    note: str
    at: datetime  # when it was recorded
    how: Literal["file", "command", "expired", "standing"]
    choices: tuple[str, ...] = ()
    changed: dict[str, Any] = {}
    _arguments: dict[str, Any] | None = None

    @property
    def decision(self) -> Any:
        """The choice, the text, or the value that fits the schema."""
        if self.changed and "has_read" not in self.__dict__:
            raise UsageError(
                "the decision was read before the arguments",
                why=f"{self.by} has said {with_changes(str(self._decision), self.changed)}",
                remedy="read `answer.arguments` first, and make the call with them",
            )
        return self._decision

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments to make the call with: those that were asked, with the changes. JSON's own types."""
        if self._arguments is None:
            raise UsageError("the question was asked without `arguments`")
        self.__dict__["has_read"] = True
        return dict(self._arguments)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Answer):
            mine, others = ((each._decision, each.by, each.note, each.at, each.changed) for each in (self, other))
            return mine == others
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
