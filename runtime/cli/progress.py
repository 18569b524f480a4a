"""The display of an active run: a few moving lines on a terminal, one line for each item elsewhere. On stderr."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from ...workspace.inspect import Report
from ...workspace.state import ENDS_KEPT
from ..api import Forecast, forecast
from ..present import counted, cut, duration, one_line
from .output import print_remarks

if TYPE_CHECKING:
    from rich.live import Live
    from rich.text import Text


class Quiet:
    """Shows nothing. The base of the others."""

    def __init__(self) -> None:
        self.item = ""
        self.number = self.of = 0
        self.step = ""
        self.began = self.item_began = self.step_began = time.monotonic()
        self.characters = 0
        self.opened_at = self.began
        self.ends: list[float] = []  # of the newest items of the run's own agent
        self.to_do = 0

    def opened(self, report: Report) -> None:
        """The run begins, or a finished one has recorded edits."""
        self.opened_at, self.ends = time.monotonic(), []

    def agent_begun(self, agent: str) -> None:
        """A sub-agent begins. Its items and steps are shown with its path before them."""

    def agent_ended(self, agent: str) -> None: ...

    def item_begun(self, agent: str, text: str, finished: int, of: int) -> None:
        text = named(agent, text)
        self.item, self.number, self.of = one_line(text), finished + 1, of
        self.item_began = time.monotonic()
        self.step, self.characters = "", 0

    def item_ended(self, agent: str, text: str, finished: int, of: int) -> None:
        self.item, self.step, self.characters = "", "", 0
        if not agent:
            self.ends = [*self.ends[1 - ENDS_KEPT :], time.monotonic()]
            self.to_do = of - finished

    @property
    def forecast(self) -> Forecast | None:
        """From the items of this opening, so that no pause counts."""
        return forecast(self.opened_at, self.ends, self.to_do, time.monotonic())

    def step_begun(self, agent: str, name: str) -> None:
        self.step, self.characters, self.step_began = one_line(named(agent, name), 40), 0, time.monotonic()

    def streamed(self, agent: str, name: str, characters: int) -> None:
        self.step, self.characters = one_line(named(agent, name), 40), characters

    def noticed(self, kind: str, text: str) -> None:
        """Something that a person should know now: that it is stopping, what was edited."""

    def close(self) -> None:
        """The run has stopped."""

    def _ended(self, text: str, finished: int, of: int, width: int = 0) -> str:
        took = f"  ({duration(time.monotonic() - self.item_began)})"
        line = f"{_number(finished, of)}  {one_line(text)}"
        return (cut(line, max(20, width - len(took))) if width else line) + took


class PlainLines(Quiet):
    """One line when an item begins and one when it ends: for logs, pipes and dumb terminals."""

    def opened(self, report: Report) -> None:
        super().opened(report)
        print_remarks(report.remarks, err=True)

    def item_begun(self, agent: str, text: str, finished: int, of: int) -> None:
        super().item_begun(agent, text, finished, of)
        click.echo(f"begin  {_number(self.number, self.of)}  {self.item}", err=True)

    def noticed(self, kind: str, text: str) -> None:
        click.echo(f"{kind}  {one_line(text, 300)}", err=True)

    def item_ended(self, agent: str, text: str, finished: int, of: int) -> None:
        line = self._ended(named(agent, text), finished, of)
        super().item_ended(agent, text, finished, of)
        ahead = None if agent else self.forecast
        click.echo(f"end    {line}{f'  {ahead.words}' if ahead else ''}", err=True)


class Moving(PlainLines):
    """Two lines that are drawn again a few times a second. Finished items scroll away above."""

    def __init__(self) -> None:
        super().__init__()
        self._live: Live | None = None

    def opened(self, report: Report) -> None:
        super().opened(report)
        from rich.console import Console
        from rich.live import Live

        # The agent's prints appear above the moving lines; output to a file or a pipe does not.
        self._live = Live(
            console=Console(stderr=True),
            get_renderable=self._draw,
            refresh_per_second=8,
            transient=True,
            redirect_stdout=sys.stdout.isatty(),
            redirect_stderr=True,
        )
        self._live.start()
        self._live.console.show_cursor(True)  # a kill must not leave the terminal without a cursor

    def item_begun(self, agent: str, text: str, finished: int, of: int) -> None:
        Quiet.item_begun(self, agent, text, finished, of)

    def item_ended(self, agent: str, text: str, finished: int, of: int) -> None:
        from rich.text import Text

        if self._live:
            console = self._live.console
            console.print(
                Text.assemble(("[x] ", "green"), self._ended(named(agent, text), finished, of, console.width - 4))
            )
        Quiet.item_ended(self, agent, text, finished, of)

    def noticed(self, kind: str, text: str) -> None:
        if not self._live:
            super().noticed(kind, text)
            return
        from rich.text import Text

        self._live.console.print(Text.assemble((f"{kind}  ", "yellow"), one_line(text, 300)))

    def close(self) -> None:
        if self._live:
            self._live.stop()

    def _draw(self) -> Text:
        """Called by the display's own thread: reads plain values only."""
        from rich.text import Text

        now = time.monotonic()
        item, step = self.item, self.step
        first, second = Text(), Text()
        if item:
            first.append("[/] ", "yellow").append(f"{_number(self.number, self.of)}  {item}")
        else:
            first.append("[/] ", "yellow").append("the agent is running")
        if step:
            characters = f"  {counted(self.characters, 'character')}" if self.characters else ""
            second.append(f"    {step}{characters}  {duration(now - self.step_began)}", "cyan")
        else:
            second.append("    ")
        ahead = self.forecast
        clock = f"  {duration(now - self.began)}{f', {ahead.time_left}' if ahead else ''}"
        width = self._live.console.width - len(clock) - 1 if self._live else 60
        first.truncate(max(10, width), overflow="ellipsis")
        first.append(clock, "dim")
        second.truncate(max(10, width + len(clock)), overflow="ellipsis")
        return Text("\n").join([first, second])


@contextmanager
def watching(*, quiet: bool) -> Iterator[Quiet]:
    """The watch that fits: nothing, lines, or moving ones."""
    is_moving = sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    watch = Quiet() if quiet else Moving() if is_moving else PlainLines()
    try:
        yield watch
    finally:
        watch.close()


def named(agent: str, text: str) -> str:
    return f"{agent}: {text}" if agent else text


def _number(number: int, of: int) -> str:
    return f"{number} of {of}"
