"""Calls of tools and their results in a conversation: which belong together, whatever package has made the messages.

Known are the shapes of OpenAI (chat completions and responses), Anthropic and Pydantic AI. A message may be one of
them, the list of blocks in it, or several.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import Any, Literal, NamedTuple

_INSIDE = ("content", "parts")
"""Where a message keeps its blocks."""


class Mention(NamedTuple):
    """A message mentions a call: it makes it, or has its result."""

    what: Literal["call", "result"]
    id: str


def mentions(content: Any) -> Iterator[Mention]:
    """What a message says of calls, in order. What is inside a result is a tool's, and means nothing."""
    if isinstance(content, list):
        for each in content:
            yield from mentions(each)
    elif isinstance(content, dict):
        found = [Mention(what, id) for what, id in _of_block(content) if isinstance(id, str)]
        yield from found
        for name in () if found else _INSIDE:
            yield from mentions(content.get(name))


def _of_block(block: dict[str, Any]) -> list[tuple[Literal["call", "result"], Any]]:
    kind, part = str(block.get("type", "")), block.get("part_kind")
    if part is not None:  # Pydantic AI
        is_result = part == "tool-return" or (part == "retry-prompt" and block.get("tool_name"))
        id = block.get("tool_call_id")
        return [("call", id)] if part == "tool-call" else [("result", id)] if is_result else []
    if isinstance(calls := block.get("tool_calls"), list):  # chat completions
        return [("call", call.get("id")) for call in calls if isinstance(call, dict)]
    if "tool_call_id" in block:
        return [("result", block["tool_call_id"])]
    if kind.endswith("_call"):  # responses
        return [("call", block.get("call_id", block.get("id")))]
    if kind.endswith("_call_output"):
        return [("result", block.get("call_id", block.get("id")))]
    if kind.endswith("tool_use"):  # Anthropic
        return [("call", block.get("id"))]
    return [("result", block["tool_use_id"])] if "tool_use_id" in block else []


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
        for what, id in reversed([*mentions(content)]):
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
