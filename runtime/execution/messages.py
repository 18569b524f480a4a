"""`run.messages`: the conversation of an agent. A slice of it parts no call of a tool from its results."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Any

import msgspec
from msgspec import Raw

from ...workspace.base import UsageError, arguments
from ...workspace.journal import Message
from ...workspace.views import MessageRow, conversation
from ..agent import encode
from ..engine import Session

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
        for what, id in reversed([*conversation.mentions(content)]):
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


class Messages:
    """The conversation in messages.jsonl. You can only append, inside a scope; the messages are kept with its commit.

    The cost of adding a message does not depend on the length of the conversation. The cost of reading a slice depends
    on the size of the slice.
    """

    def __init__(self, session: Session):
        self._session = session
        self._loop = asyncio.get_running_loop()

    def add(self, role: str, content: Any) -> None:
        """Add one message. `content` is text or any JSON."""
        scope = self._session.open_scope("run.messages.add()")
        arguments.text("the role of a message", role)
        redactor, data = self._session.context.redactor, encode(content, "the message")
        content = Raw(redactor.json(data))
        scope.messages.append(
            Message(agent=self._session.path, scope=scope.key, role=role, content=content, after=scope.newest_call)
        )

    def slice(
        self, last: int | None = None, tokens: int | None = None, count: Callable[[str], int] | None = None
    ) -> list[dict[str, Any]]:
        """The newest messages as `{"role": ..., "content": ...}`, oldest first, for a prompt. Includes messages that
        the current scope has added.

        At most `last` messages, and as many as fit into `tokens`; always the newest one, even if it does not fit. A
        call of a tool and its results stay together, in messages of OpenAI, Anthropic and Pydantic AI: results whose
        call does not fit are left out, but if the newest message is a result, the slice has its call, too.

        `count(text)` gives the tokens of a message; `text` is the content, or its JSON if it is not text. Without
        `count` the number is estimated: one token for 4 bytes of UTF-8 (4 characters of English), and 4 for each
        message.
        """
        for name, value in (("last", last), ("tokens", tokens)):
            if value is not None and value < 0:
                raise UsageError(
                    f"run.messages.slice() got {name}={value!r}", remedy="it must be 0 or more, or left out"
                )
        if not self._is_elsewhere():
            return self._slice(last, tokens, count or _estimate)

        async def here() -> list[dict[str, Any]]:
            return self._slice(last, tokens, count or _estimate)

        return asyncio.run_coroutine_threadsafe(here(), self._loop).result()

    def all(self) -> list[dict[str, Any]]:
        """The whole conversation, in the form of `slice`."""
        return self.slice()

    def __len__(self) -> int:
        fresh = here.messages if (here := self._session.here) else []
        return self._session.recorded.messages + len(fresh)

    def _slice(self, last: int | None, tokens: int | None, count: Callable[[str], int]) -> list[dict[str, Any]]:
        chosen: list[dict[str, Any]] = []
        pairs, taken, room = Pairs(), 0, last
        for message in self._newest_first():
            content = msgspec.json.decode(message.content)
            if tokens is not None and (room is None or len(chosen) < room):
                taken += count(content if isinstance(content, str) else bytes(message.content).decode())
                if chosen and taken > tokens:
                    room = len(chosen)
            if room is not None and len(chosen) >= room + (LOOK_BACK if pairs.lack_calls else 0):
                break
            pairs.add(content)
            chosen.append({"role": message.role, "content": content})
        return chosen[: pairs.length(len(chosen) if room is None else min(room, len(chosen)))][::-1]

    def _newest_first(self) -> Iterator[Message | MessageRow]:
        """A message is first in the scope that adds it, then in the committed ones, then in the file."""
        session = self._session
        if here := session.here:
            yield from reversed(here.messages)
        for line in reversed(session.recorded.new_messages):
            assert isinstance(line.record, Message)  # an edit has gone into the file at once
            yield line.record
        yield from session.files.messages.file.newest_first()

    def _is_elsewhere(self) -> bool:
        """Whether this is another thread, for example that of a step. The file is written on the event loop, and must
        not be written while it is read."""
        try:
            return asyncio.get_running_loop() is not self._loop
        except RuntimeError:
            return self._loop.is_running()


def _estimate(text: str) -> int:
    return 4 + -(-len(text.encode()) // 4)
