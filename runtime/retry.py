"""How often, and how patiently, a failed call is tried again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, TypeVar

from ..workspace.errors import AgentError, NotSerializable, StorageFailed, UsageError

if TYPE_CHECKING:
    from tenacity import RetryCallState

R = TypeVar("R")

_MISTAKES = (
    ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, NameError, NotImplementedError,
    SyntaxError, TypeError, AgentError, NotSerializable, UsageError, StorageFailed,
)  # fmt: skip
_PASSING_STATUS = (408, 409, 425, 429)


@dataclass(frozen=True, slots=True)
class Retry:
    """Exponential backoff with jitter. A server's `Retry-After` is obeyed when it asks for more.

    `attempts` in all; `first` and `longest` wait in seconds. Not tried again: programming mistakes (a TypeError will
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
        if not isinstance(error, self.on) or isinstance(error, _MISTAKES):
            return False
        status = getattr(error, "status_code", None) or getattr(getattr(error, "response", None), "status_code", None)
        return not (isinstance(status, int) and 400 <= status < 500 and status not in _PASSING_STATUS)

    def goes_on(self, error: BaseException, attempt: int) -> bool:
        """Whether there is another attempt after attempt number `attempt` has raised `error`."""
        return attempt < self.attempts and self.is_worth_it(error)

    async def run(self, once: Callable[[int], Awaitable[R]], failed: Callable[[BaseException, int], None]) -> R:
        """`await once(attempt)` until it returns. `failed` is told of every attempt that raised; the last error is
        raised."""
        from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt

        trying = AsyncRetrying(
            stop=stop_after_attempt(self.attempts), wait=self._wait, retry=retry_if_exception(self.is_worth_it),
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


def retry_after(error: BaseException) -> float:
    """The seconds a server has asked to wait (RFC 9110, 10.2.3); 0 if it has not."""
    headers = getattr(getattr(error, "response", None), "headers", None) or {}
    value = headers.get("retry-after") or headers.get("Retry-After")
    if not value:
        return 0.0
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):
        return 0.0
