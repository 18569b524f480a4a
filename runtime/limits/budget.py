"""What a run has used of its budget, in numbers and in words. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Literal

from msgspec import Struct

from ...workspace.base import DEFINITION, Refused, UsageError, usd
from ...workspace.formats import Budget
from ...workspace.state import Moment

BY = "the budget"
"""The requester of a pause because a budget is used up."""

_VERY_LARGE = 1e15

NEARLY = 0.8
"""A person is warned from this share of a budget on."""

Kind = Literal["steps", "tokens", "usd", "time"]


class Share(Struct, frozen=True):
    """How much of one limit is used. `time` in seconds."""

    kind: Kind
    used: float
    limit: float

    @property
    def is_used_up(self) -> bool:
        return self.used >= self.limit

    @property
    def is_nearly(self) -> bool:
        """Whether to warn a person, who can still act."""
        return NEARLY * self.limit <= self.used < self.limit

    @property
    def reason(self) -> str:
        """The reason of the pause: `cost: the budget of $5.00 is used up ($5.02)`."""
        return f"cost: the budget of {self._limit} is used up ({self._amount(self.used)})"

    @property
    def words(self) -> str:
        """`$4.10 of $5.00`, `800 of 1000 tokens`."""
        return f"{self._amount(self.used)} of {self._limit}"

    @property
    def _limit(self) -> str:
        said = self._amount(self.limit)
        return f"{said} {self.kind}" if self.kind in ("steps", "tokens") else said

    def _amount(self, value: float) -> str:
        if self.kind == "usd" and value < _VERY_LARGE:
            return usd(value)
        return f"{_number(value)} s" if self.kind == "time" else _number(value)


def shares(budget: Budget, steps: int, tokens: int, usd: float, seconds: float) -> Iterator[Share]:
    """The share of each limit."""
    used: tuple[tuple[Kind, float, float | None], ...] = (
        ("steps", steps, budget.steps),
        ("tokens", tokens, budget.tokens),
        ("usd", usd, budget.usd),
        ("time", seconds, budget.time),
    )
    for kind, so_much, limit in used:
        if limit is not None:
            yield Share(kind, so_much, limit)


def shares_of(budget: Budget, moment: Moment, now: datetime) -> list[Share]:
    """What a run has used by `now`, as far as it is durable."""
    usage = moment.usage
    return list(shares(budget, usage.steps, usage.tokens, usage.usd, at_work(moment, now)))


def at_work(moment: Moment, now: datetime) -> float:
    """Seconds in which a process had the run, including the current one."""
    since = datetime.fromisoformat(moment.opened_at) if moment.opened_at and not moment.clean else now
    return moment.usage.seconds + max(0.0, (now - since).total_seconds())


def check(budget: Budget, moment: Moment) -> None:
    """Refused if the budget that paused a stopped run is still used up."""
    if moment.pause is None or moment.pause.by != BY:
        return
    for share in shares_of(budget, moment, datetime.fromisoformat(moment.last_at)):
        if share.is_used_up:
            raise Refused(
                f"the run can't continue: {share.reason}",
                path=DEFINITION,
                remedy=f"raise `budget: {share.kind}:` in {DEFINITION}, then type `satchel resume`",
            )


def checked(tokens: Any, usd: Any, output_tokens: Any, model: Any) -> tuple[int, float]:
    """The tokens and the money of `run.spend`. UsageError if its arguments are no valid cost."""
    for name, value in (("tokens", tokens), ("output_tokens", output_tokens)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise UsageError(
                f"run.spend() got {name}={value!r}", remedy="give the number of used tokens: a whole number, 0 or more"
            )
    if output_tokens > tokens:
        raise UsageError(
            f"run.spend() got output_tokens={output_tokens} of tokens={tokens}",
            remedy="give all tokens as `tokens`; `output_tokens` are those of them that the model has written",
        )
    if isinstance(usd, bool) or not isinstance(usd, int | float) or not math.isfinite(usd) or usd < 0:
        raise UsageError(f"run.spend() got usd={usd!r}", remedy="give the cost: a number, 0 or more")
    if not isinstance(model, str):
        raise UsageError(f"run.spend() got model={model!r}", remedy="give the name of the model, a text")
    return tokens, float(usd)


def _number(value: float) -> str:
    if value >= _VERY_LARGE:  # a stranger's: it may be too large for a float
        return "a very large number"
    return f"{value:.10g}" if value >= 1e6 else f"{value:.4g}" if value < 1000 else f"{value:.1f}".removesuffix(".0")
