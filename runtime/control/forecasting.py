"""How fast a run does the items of its plan, and how long the rest takes: an estimate from those that ended last."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from ...workspace.base import duration
from ...workspace.state import ENDS_KEPT, Moment

_UNITS = (("a second", 1.0), ("a minute", 60.0), ("an hour", 3600.0), ("a day", 86400.0))


class Forecast(NamedTuple):
    """An estimate, from the time that the last items took together. Items that run in parallel are counted so."""

    each: float  # seconds an item
    left: float  # seconds until the plan is finished

    @property
    def words(self) -> str:
        """`2.5 items a minute, about 3 min left`."""
        return f"{self.rate}, {self.time_left}"

    @property
    def rate(self) -> str:
        unit, seconds = next((each for each in _UNITS if each[1] >= self.each), _UNITS[-1])
        many = seconds / self.each
        said = f"{many:,.0f}" if many >= 9.95 else f"{many:.1f}".removesuffix(".0")
        return f"{said} item{'' if said == '1' else 's'} {unit}"

    @property
    def time_left(self) -> str:
        if self.left < 60:
            return f"about {math.ceil(self.left)} s left"
        if self.left < 3600:
            return f"about {math.ceil(self.left / 60)} min left"
        return f"about {duration(self.left)} left"


def forecast(began: float, ends: Sequence[float], to_do: int, now: float) -> Forecast | None:
    """The times are seconds of one clock: when the process `began`, when the newest items ended, and now. None as long
    as none has ended, and when nothing is left to do."""
    first, *rest = (began, *ends) if len(ends) < ENDS_KEPT else ends
    if not rest or to_do < 1:
        return None
    # What runs now counts as soon as it takes longer than the others. Then its end is not known.
    each = max((rest[-1] - first) / len(rest), (now - first) / (len(rest) + 1), 1e-6)
    running = min(max(0.0, now - rest[-1]), each / 2)
    return Forecast(each, each * to_do - running)


def forecast_of(moment: Moment, now: float) -> Forecast | None:
    """The same of the agent of a run that is running; `now` in seconds since the epoch."""
    if moment.clean or not moment.root.ended_at:
        return None  # the process that has it has not recorded that yet
    began, *ends = [datetime.fromisoformat(each).timestamp() for each in (moment.opened_at, *moment.root.ended_at)]
    settled, leaves = moment.root.plan.progress
    return forecast(began, ends, leaves - settled, now)
