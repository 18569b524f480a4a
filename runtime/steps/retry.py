"""How often, and how patiently, a failed call is tried again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

from ...workspace.base import AgentError, DoesNotFit, NotSerializable, StorageFailed, UsageError

if TYPE_CHECKING:
    from tenacity import RetryCallState

R = TypeVar("R")

_MISTAKES = (
    ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, NameError, NotImplementedError,
    SyntaxError, TypeError, AgentError, DoesNotFit, NotSerializable, UsageError, StorageFailed,
)  # fmt: skip
_PASSING_STATUS = (408, 409, 425, 429)


@dataclass(frozen=True, slots=True)
class Retry:
    """Exponential backoff with jitter. A server's `Retry-After` is obeyed when it asks for more.

    `attempts` in all; `first` and `longest` wait in seconds. A server that asks for more than `longest` puts the run to
    sleep until then, with no process (`sleeping`). Not tried again: programming mistakes (a TypeError will
    not go away), HTTP statuses that mean no (400, 401, 404, ...), and what is not one of `on`.
    """

    attempts: int = 3
    first: float = 0.5
    longest: float = 10.0
    on: tuple[type[Exception], ...] = (Exception,)

    @classmethod
    def model(cls) -> Retry:
        """For calls of a model: rate limits and overload pass, if one waits."""
        return cls(attempts=6, first=1.0, longest=60.0)

    @classmethod
    def tool(cls) -> Retry:
        """For calls of a tool: soon, and not often."""
        return cls()

    def is_worth_it(self, error: BaseException) -> bool:
        if isinstance(error, ExceptionGroup):
            return all(map(self.is_worth_it, error.exceptions))
        if not isinstance(error, self.on) or is_mistake(error):
            return False
        status = _status(error)
        return status is None or not 400 <= status < 500 or status in _PASSING_STATUS

    def too_long(self, error: BaseException) -> float | None:
        """The seconds that a server has asked to wait, if that is longer than a process should stay for."""
        wait = retry_after(error)
        return wait if wait > self.longest and not is_mistake(error) else None

    def comes_back(self, error: BaseException, attempt: int) -> bool:
        """Whether there is another attempt after attempt number `attempt` has raised `error`, now or after a sleep."""
        return self.too_long(error) is not None or (attempt < self.attempts and self._is_tried_again(error))

    def _is_tried_again(self, error: BaseException) -> bool:
        return self.is_worth_it(error) and self.too_long(error) is None

    async def run(self, once: Callable[[int], Awaitable[R]], failed: Callable[[BaseException, int], None]) -> R:
        """`await once(attempt)` until it returns. `failed` is told of every attempt that raised; the last error is
        raised."""
        if self.attempts == 1:
            try:
                return await once(1)
            except Exception as error:
                failed(error, 1)
                raise
        from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt

        trying = AsyncRetrying(
            stop=stop_after_attempt(self.attempts), wait=self._wait, retry=retry_if_exception(self._is_tried_again),
            reraise=True,
        )  # fmt: skip
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


A_DAY = 86_400.0
"""Nobody is waited for longer, whatever a server says: then it is asked again."""

ONCE = Retry(attempts=1)
"""Of a step that says nothing of retries."""


def is_mistake(error: BaseException) -> bool:
    """An error of the program, which no patience helps against."""
    if isinstance(error, BaseExceptionGroup):
        return any(map(is_mistake, error.exceptions))
    return isinstance(error, _MISTAKES)


def _status(error: BaseException) -> int | None:
    """The HTTP status, as the errors of openai, anthropic, httpx, requests, aiohttp and urllib tell it."""
    for told in (error, getattr(error, "response", None)):
        for name in ("status_code", "status", "code"):
            if isinstance(status := getattr(told, name, None), int):
                return status
    return None


def retry_after(error: BaseException) -> float:
    """The seconds a server has asked to wait (RFC 9110, 10.2.3), at most a day; 0 if it has not."""
    headers = getattr(getattr(error, "response", None), "headers", None) or getattr(error, "headers", None)
    if not headers:
        return 0.0
    from email.message import Message  # most errors have no headers, and most agents no errors
    from email.utils import parsedate_to_datetime

    if not isinstance(headers, Mapping | Message):
        return 0.0
    value = headers.get("retry-after") or headers.get("Retry-After")
    if not value:
        return 0.0
    try:
        return min(max(0.0, float(value)), A_DAY)
    except ValueError:
        pass
    try:
        return min(max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds()), A_DAY)
    except (ValueError, TypeError):
        return 0.0
