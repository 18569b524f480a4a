"""When and how often a failed call is tried again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct

from ...workspace.base import AgentError, DoesNotFit, NotSerializable, StorageFailed, UsageError

if TYPE_CHECKING:
    from tenacity import RetryCallState

R = TypeVar("R")

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


def _told(state: RetryCallState, waits: Callable[[BaseException, int, float], None]) -> None:
    error = state.outcome.exception() if state.outcome else None
    if error is not None and state.next_action is not None:
        waits(error, state.attempt_number, state.next_action.sleep)


A_DAY = 86_400.0
"""No wait is longer, whatever a server says. After it the server is asked again."""

ONCE = Retry(attempts=1)
"""The default of a step."""


def is_mistake(error: BaseException) -> bool:
    """A programming mistake, which a retry can't solve."""
    if isinstance(error, BaseExceptionGroup):
        return any(map(is_mistake, error.exceptions))
    return isinstance(error, _MISTAKES)


def _status(error: BaseException) -> int | None:
    """The HTTP status in an error of openai, anthropic, httpx, requests, aiohttp or urllib."""
    for told in (error, getattr(error, "response", None)):
        for name in ("status_code", "status", "code"):
            if isinstance(status := getattr(told, name, None), int):
                return status
    return None


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
