"""Where a slice of a conversation may begin: it parts no call of a tool from its results."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from ...workspace.formats import tool_calls

LOOK_BACK = 256
"""So many messages before a slice are searched for the calls of its results. What is not there is nowhere."""


class Pairs:
    """Where a slice may begin so that it parts no call from its results. Gets the messages one by one, the newest
    first."""

    def __init__(self) -> None:
        self._count = 0
        self._results: dict[
            str, int
        ] = {}  # the number of the message that has the result of a call, for lack of the call
        self._parted: list[int] = [0]  # how many more pairs than before are parted by a slice of so many messages

    @property
    def lack_calls(self) -> bool:
        """Whether the call of a result has not come yet."""
        return bool(self._results)

    def add(self, content: Any) -> None:
        self._parted.append(0)
        for what, id in reversed([*tool_calls.mentions(content)]):
            if what == "result":
                self._results.setdefault(id, self._count)
            elif (newer := self._results.pop(id, self._count)) < self._count:
                self._parted[newer + 1] += 1
                self._parted[self._count + 1] -= 1
        self._count += 1

    def length(self, most: int) -> int:
        """The length of the longest slice of at most so many messages. If each parts a pair: of the shortest that parts
        none, so that at least the newest message is in it."""
        whole = [length for length, parted in enumerate(accumulate(self._parted)) if length and not parted]
        return next((each for each in reversed(whole) if each <= most), next(iter(whole), most)) if most else 0
