"""The attempts of a call: when and how often a failed one is tried again; and `Partial`, to which a streamed step
writes its answer, and in which the next attempt finds the text of an earlier one.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from ...workspace.base import AgentError, DoesNotFit, NotSerializable, StorageFailed, UsageError

if TYPE_CHECKING:
    from tenacity import RetryCallState

    from ...workspace.journal import PartialPromoted
    from ...workspace.secrets import RedactedStream
    from ...workspace.store import Store
    from ...workspace.views import Behind, PartialHead, Projector, RecoveryMarker


A_DAY = 86_400.0
"""No wait is longer, whatever a server says. After it the server is asked again."""

OnPartial = Literal["continue", "restart", "accept"]

RECOVERIES = 2
"""An answer is continued so many times in a row. Then it starts again, so that a bad beginning can't stay for ever."""

_MISTAKES = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    NameError,
    NotImplementedError,
    SyntaxError,
    TypeError,
    AgentError,
    DoesNotFit,
    NotSerializable,
    UsageError,
    StorageFailed,
)

_PASSING_STATUS = (408, 409, 425, 429)

_SYNC_SECONDS = 1.0

R = TypeVar("R")


class Retry(Struct, frozen=True):
    """Exponential backoff with jitter. Obeys a server's `Retry-After` or `retry-after-ms` when it asks for more.

    `attempts` in total; `first` and `longest` wait in seconds. If a server asks for more than `longest`, the run sleeps
    until then, without a process. Not tried again: programming mistakes such as a TypeError, final HTTP statuses (400,
    401, 404, ...), and errors that are not in `on`.
    """

    attempts: int = 3
    first: float = 0.5
    longest: float = 10.0
    on: tuple[type[Exception], ...] = (Exception,)

    @classmethod
    def model(cls) -> Retry:
        """For calls of a model: six attempts, up to a minute apart, because rate limits and overload pass."""
        return cls(attempts=6, first=1.0, longest=60.0)

    @classmethod
    def tool(cls) -> Retry:
        """For calls of a tool: three attempts, a short time apart."""
        return cls()

    def is_worth_it(self, error: BaseException) -> bool:
        if isinstance(error, ExceptionGroup):
            return all(map(self.is_worth_it, error.exceptions))
        if not isinstance(error, self.on) or is_mistake(error):
            return False
        status = _status(error)
        return status is None or not 400 <= status < 500 or status in _PASSING_STATUS

    def too_long(self, error: BaseException) -> float | None:
        """The seconds that a server asks to wait, if that is too long for a process to stay."""
        wait = retry_after(error)
        return wait if wait > self.longest and self.is_worth_it(error) else None

    def comes_back(self, error: BaseException, attempt: int) -> bool:
        """Whether another attempt follows, now or after a sleep, when attempt number `attempt` has raised `error`."""
        return self.too_long(error) is not None or (attempt < self.attempts and self._is_tried_again(error))

    def _is_tried_again(self, error: BaseException) -> bool:
        return self.is_worth_it(error) and self.too_long(error) is None

    async def run(
        self,
        once: Callable[[int], Awaitable[R]],
        failed: Callable[[BaseException, int], None],
        waits: Callable[[BaseException, int, float], None],
    ) -> R:
        """Call `await once(attempt)` until it returns. Calls `failed` for every attempt that raised, and raises the
        last error. Calls `waits` with the seconds before another attempt."""
        if self.attempts == 1:
            try:
                return await once(1)
            except Exception as error:
                failed(error, 1)
                raise
        from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt

        trying = AsyncRetrying(
            stop=stop_after_attempt(self.attempts),
            wait=self._wait,
            retry=retry_if_exception(self._is_tried_again),
            reraise=True,
            before_sleep=lambda state: _told(state, waits),
        )
        async for attempt in trying:
            with attempt:
                number = attempt.retry_state.attempt_number
                try:
                    return await once(number)
                except Exception as error:
                    failed(error, number)
                    raise
        raise AssertionError("tenacity ends by returning or raising")

    def _wait(self, state: RetryCallState) -> float:
        from tenacity import wait_random_exponential

        wait = wait_random_exponential(multiplier=self.first, max=self.longest)(state)
        error = state.outcome.exception() if state.outcome else None
        return max(wait, retry_after(error) if error else 0.0)


ONCE = Retry(attempts=1)
"""The default of a step."""


def is_mistake(error: BaseException) -> bool:
    """A programming mistake, which a retry can't solve."""
    if isinstance(error, BaseExceptionGroup):
        return any(map(is_mistake, error.exceptions))
    return isinstance(error, _MISTAKES)


def is_limited(error: BaseException) -> bool:
    """Whether a server has too many requests, or asks to wait."""
    return _status(error) == 429 or retry_after(error) > 0


def retry_after(error: BaseException) -> float:
    """The seconds that a server asks to wait, at most a day: `retry-after-ms`, which servers of models send, or
    `Retry-After` (RFC 9110, 10.2.3). 0 if it does not ask."""
    headers = getattr(getattr(error, "response", None), "headers", None) or getattr(error, "headers", None)
    if not headers:
        return 0.0
    from email.message import Message  # most errors have no headers, and most agents no errors
    from email.utils import parsedate_to_datetime

    if not isinstance(headers, Mapping | Message):
        return 0.0
    told = {str(name).lower(): value for name, value in headers.items()}  # not every mapping ignores the case
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        with suppress(ValueError, TypeError):
            return min(max(0.0, float(told.get(name, "")) * unit), A_DAY)
    with suppress(ValueError, TypeError):
        at = parsedate_to_datetime(told.get("retry-after", ""))
        return min(max(0.0, (at - datetime.now(UTC)).total_seconds()), A_DAY)
    return 0.0


class Partial:
    """One streamed answer. A step gets it by annotating a parameter with it.

    `recovered` is the text of an earlier attempt of an equal call, or None; it may be empty. `marker` says when and by
    what that attempt was cut off; use `str(marker)` in a prompt. `text` is the whole answer so far, including the
    recovered text. A step that writes before it has read one of these two does not continue that text: its answer
    starts again, unless it declares its `on_partial`. `interrupted` says that a message has arrived. A file in
    partials/ follows within the 5% rule, so a kill loses only the last moments. Not guaranteed: what a power failure
    leaves of it. Satchel recognises which part is whole.
    """

    def __init__(
        self,
        store: Store,
        behind: Behind,
        projector: Projector,
        path: str,
        head: PartialHead,
        recovered: str | None,
        marker: RecoveryMarker | None,
        watch: Callable[[str, int], None] | None,
        hears: Callable[[], bool],
        redacted: RedactedStream | None,
        *,
        is_continued: bool,
    ):
        """`is_continued`: the step declares that it continues the recovered text, whether it reads it or not."""
        self._recovered, self.marker = recovered, marker
        self._is_continued, self.has_restarted = is_continued or not recovered, False
        self._projector, self._watch, self._hears = projector, watch, hears
        self.ended = self.was_interrupted = False
        self._parts = [recovered] if recovered else []
        self._redacted = redacted
        if redacted is not None:
            redacted.follow(recovered or "")
        self._shown = self._parts if redacted is None else [*self._parts]  # what may be seen of it
        self._length = len(recovered or "")
        self.file = PartialFile(store, behind, path, head, lambda: self.shown)

    async def write(self, text: str) -> None:
        """Add `text` to the answer. The file has it before this returns, within the 5% rule; in a program's own loop
        and in a bucket a thread writes it, a moment later."""
        if not isinstance(text, str):
            raise TypeError(f"a partial is text, not {type(text).__qualname__}")
        if self.ended:
            raise AgentError(
                "written to a Partial whose step has ended",
                remedy="await every task that writes before the step returns",
            )
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise NotSerializable(
                f"{text!r} can't be streamed",
                why="half of a surrogate pair is not text",
                remedy="write satchel.clean(text)",
            ) from error
        if not self._is_continued:
            self._restart()
            self._length = 0
            self._parts.clear()
            self._shown.clear()
            if self._redacted is not None:
                self._redacted.follow("")
        self._parts.append(text)
        if self._redacted is not None:
            text = self._redacted.add(text)
            self._shown.append(text)
        self._show(text)

    def _restart(self) -> None:
        """The step writes a whole answer: it does not know that there is a recovered text."""
        self._recovered, self._is_continued, self.has_restarted = None, True, True

    def _show(self, text: str) -> None:
        self._length += len(text)
        self._projector.mark(self.file)
        if self._watch:
            self._watch(text, self._length)

    def end(self) -> None:
        """The step has returned: show what was held back, because it could have been the beginning of a secret."""
        if self._redacted is not None and (rest := self._redacted.end()):
            self._shown.append(rest)
            self._show(rest)

    @property
    def recovered(self) -> str | None:
        """The text of an earlier attempt. Who reads it continues it."""
        self._is_continued = True
        return self._recovered

    @property
    def continuation(self) -> list[dict[str, str]]:
        """The messages that ask a model for the rest of the recovered text, to be added to those of its request: the
        text as its own, and a prompt with the marker. Empty if there is no text."""
        if not (text := self.recovered):
            return []
        cut_off = f"Your answer was cut off ({self.marker})." if self.marker else "Your answer was cut off."
        prompt = f"{cut_off} Continue with its next character. Repeat and explain nothing."
        return [{"role": "assistant", "content": text}, {"role": "user", "content": prompt}]

    @property
    def interrupted(self) -> bool:
        """Whether a message waits in the inbox of the run, as far as this process has noticed; from then on True. Cheap
        enough to ask after every token. A step that has got True may return what it has: its record says that the
        answer was interrupted. Take the message with `run.inbox.take("message")` after the step. Always False in a
        sub-agent, which has no inbox."""
        self.was_interrupted = self.was_interrupted or self._hears()
        return self.was_interrupted

    @property
    def has_new(self) -> bool:
        """Whether this attempt has written anything that may be seen."""
        return self._length > len(self._recovered or "")

    @property
    def text(self) -> str:
        """The whole answer so far. Who reads it before the first write continues the recovered text."""
        self._is_continued = True
        return _joined(self._parts)

    @property
    def shown(self) -> str:
        """`text` without secrets, and without an end that may be the beginning of one."""
        return _joined(self._shown)


class PartialFile:
    """The file of one partial, as the projector sees it."""

    def __init__(self, store: Store, behind: Behind, path: str, head: PartialHead, text: Callable[[], str]):
        self.path, self.head = path, head
        self._store, self._behind, self._text = store, behind, text
        self._synced = time.monotonic()
        # The file is there from the start, so that an answer cut off before its first word is noticed too.
        self.write()

    def write(self) -> None:
        """Writes without a sync, so that it can follow nearly every token; with a sync about every second."""
        from ...workspace.journal import now
        from ...workspace.views import partial_files as format

        began = time.monotonic()
        sync: Literal["no", "data"] = "no"
        if began - self._synced >= _SYNC_SECONDS:
            sync, self._synced = "data", began
        self.head = replace(self.head, at=now())
        data = format.encode_partial(self.head, self._text())
        self._behind.do(self.path, lambda: self._store.replace(self.path, data, sync=sync))

    def remove(self) -> None:
        self._behind.do(self.path, lambda: self._store.remove(self.path))


def recover(
    store: Store, promoted: list[PartialPromoted], on_partial: OnPartial
) -> tuple[str | None, RecoveryMarker | None]:
    """The text and marker of earlier attempts for the next one. The text is None if it must start again."""
    from ...workspace.views import partial_files as format

    if not promoted:
        return None, None
    last = promoted[-1]
    marker = format.marker_of(last)
    if on_partial == "restart" or len(promoted) % (RECOVERIES + 1) == 0:
        return None, marker
    try:
        parsed = format.parse_recovered(store.read(last.file).data)
    except FileNotFoundError:
        parsed = None
    if parsed is None:
        return None, replace(marker, damaged=True, characters=0)
    return parsed[1], replace(marker, characters=len(parsed[1]))  # a person may have edited it


def _told(state: RetryCallState, waits: Callable[[BaseException, int, float], None]) -> None:
    error = state.outcome.exception() if state.outcome else None
    if error is not None and state.next_action is not None:
        waits(error, state.attempt_number, state.next_action.sleep)


def _status(error: BaseException) -> int | None:
    """The HTTP status in an error of openai, anthropic, httpx, requests, aiohttp or urllib."""
    for told in (error, getattr(error, "response", None)):
        for name in ("status_code", "status", "code"):
            if isinstance(status := getattr(told, name, None), int):
                return status
    return None


def _joined(parts: list[str]) -> str:
    if len(parts) > 1:
        parts[:] = ["".join(parts)]
    return parts[0] if parts else ""
