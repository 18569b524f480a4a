"""The options of `run` and `resume`."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

Command = Literal["run", "resume"]


class Wish(Struct, frozen=True):
    """The fields are the parameters of the commands."""

    workspace: str | None
    as_json: bool
    traceback: bool
    quiet: bool
    accept_drift: bool
    in_process: bool
    detach: bool
    drain_timeout: float | None  # seconds
    supervised: str | None
    take_over: bool
    adopt: bool
    end_other: bool
    from_checkpoint: bool = False  # of resume
    input: dict[str, Any] | None = None  # of run

    @property
    def is_supervised(self) -> bool:
        """This process is the child of a supervisor."""
        return self.supervised is not None

    def shown(self) -> list[str]:
        """The options that say what is printed."""
        flags = {"--json": self.as_json, "--traceback": self.traceback, "--quiet": self.quiet}
        return [flag for flag, is_on in flags.items() if is_on]

    def how(self, command: Command) -> dict[str, Any]:
        """The arguments of `Handle.run` or `Handle.resume`."""
        own = {"from_checkpoint": self.from_checkpoint} if command == "resume" else {"input": self.input}
        return own | {
            "accept_drift": self.accept_drift,
            "drain_timeout": self.drain_timeout,
            "take_over": self.take_over,
            "adopt": self.adopt,
        }
