"""The application, and its first screen: all runs below a root."""

from __future__ import annotations

import asyncio
import os
from typing import ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import Input

from ... import api
from ...api import STATES, Overview, SeenRun, State
from ...present import ago, cost, counted, fraction, run_id_of
from .dialogs import Help
from .lines import Bar, Lines, fold, key_line, plain, state_text
from .run_screen import RunScreen

_LOOK = 0.5
"""Seconds between two calls of the overview, which knows itself when to look again."""

_NARROW, _WIDE = 60, 100  # columns
_STATE, _ITEMS, _WANTED, _COST, _LAST = 11, 13, 19, 12, 12  # columns of the list


_PATIENCE = 5.0
"""Seconds during which a request to a bucket is repeated. The screen says that it failed, and tries again."""


class WatchApp(App[None]):
    """Shows all runs below a root, or one run if the root is a run itself."""

    CSS = """
    Screen { background: ansi_default; color: ansi_default; }
    ModalScreen { background: transparent; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "leave", show=False),
        Binding("ctrl+c", "leave", show=False, priority=True),
        Binding("ctrl+z", "suspend_process", show=False),
        Binding("question_mark", "keys", show=False),
    ]
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, overview: Overview) -> None:
        super().__init__(ansi_color=True)
        self.theme = "ansi-dark"  # the colours of the terminal, which may be light
        self._overview = overview

    def on_mount(self) -> None:
        self.push_screen(RunsScreen(self._overview))

    def action_leave(self) -> None:
        """An action that is under way ends first. The second time it is left to itself."""
        for screen in self.screen_stack:
            if isinstance(screen, RunScreen) and screen.acting.doing and not screen.acting.is_last:
                screen.acting.is_last = True
                screen.say(f"leaving after this: {screen.acting.doing}; q again leaves at once")
                return
        self.exit()

    def action_suspend_process(self) -> None:
        """Go to the background, if there is a shell that can bring it back: one that gave it a process group."""
        if os.getpgrp() != os.getsid(0):
            super().action_suspend_process()

    def action_keys(self) -> None:
        self.push_screen(Help())


class RunsScreen(Screen[None]):
    """A list of runs. Enter opens one."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter", show=False),
        Binding("o", "order", show=False),
        Binding("escape", "clear", show=False),
    ]

    def __init__(self, overview: Overview):
        super().__init__()
        self._overview = overview
        self._shown: list[SeenRun] = []
        self._number, self._problem, self._read = -1, "", ""
        self._by_need, self._chosen = True, ""
        self._has_looked = self._has_moved = False

    def compose(self) -> ComposeResult:
        yield Bar("head")
        yield Bar("detail")
        yield Bar("titles")
        yield Lines("runs", has_cursor=True)
        yield Input(placeholder="words of the folder, run, state or what it wants", id="filter", compact=True)
        yield Bar("keys")

    def on_mount(self) -> None:
        self.query_one("#filter", Input).display = False
        self.query_one(Lines).focus()
        self.run_worker(self._look(), group="look")
        self.set_interval(1.0, self._draw)  # times pass
        self._draw()

    def on_resize(self) -> None:
        self.call_after_refresh(self._draw)

    async def _look(self) -> None:
        """Keep the list current while it is on the screen."""
        loop = asyncio.get_running_loop()

        def progress(done: int, total: int) -> None:
            loop.call_soon_threadsafe(self._tell, done, total)

        while True:
            if self.is_current or not self._has_looked:
                try:
                    seen = await asyncio.to_thread(lambda: self._overview.look(progress=progress))
                    self._problem = str(seen.problem) if seen.problem else ""
                    if seen.number != self._number or not self._has_looked:
                        if not self._has_looked and [run.name for run in seen.runs] == [""]:
                            self._open(seen.runs[0], is_alone=True)
                            return
                        self._choose()
                        self._number, self._has_looked = seen.number, True
                except Exception as error:  # one that no reader has foreseen must not end the screen either
                    self._problem = str(error) or type(error).__name__
                self._read = ""
                self._draw()
            await asyncio.sleep(_LOOK)

    def _tell(self, done: int, total: int) -> None:
        if not self._has_looked:
            self._read = f"looking: {done:,} of {total:,}"
            if done == total or done % 50 == 0:
                self._choose()
                self._draw()

    def _choose(self) -> None:
        """The runs that the filter leaves, in their order. The cursor stays at its run; during the first look, at the
        first line, until a person moves it."""
        lines, seen = self.query_one(Lines), self._overview.seen
        if (self._has_looked or self._has_moved) and 0 <= lines.cursor < len(self._shown):
            self._chosen = self._shown[lines.cursor].name
        wanted = self.query_one("#filter", Input).value.lower().split()
        runs = seen.runs if seen else []
        found = [run for run in runs if not wanted or all(word in _text(run) for word in wanted)]
        if self._by_need:
            found.sort(key=lambda run: (api.by_need(run.status), run.name))
        self._shown = found
        lines.cursor = next((at for at, run in enumerate(found) if run.name == self._chosen), lines.cursor)

    def _draw(self) -> None:
        width, lines = self.size.width, self.query_one(Lines)
        if not width or not self.is_current:
            return
        self.query_one("#head", Bar).show(self._head(width))
        low = self.size.height < 16
        told = fold(self._problem, width)[: 1 if low else 3] if self._problem else []
        self.query_one("#detail", Bar).show(*(Text(line, "red") for line in told))
        titles = _row("  run", Text("state"), "items", "wanted", "cost", "last", width)
        titles.stylize("bold underline")
        self.query_one("#titles", Bar).show(titles)
        if self._shown or not self._has_looked:
            lines.show(len(self._shown), self._line)
        else:
            has_filter = bool(self.query_one("#filter", Input).value)
            nothing = "no run matches the filter" if has_filter else "there are no runs here"
            lines.show(1, lambda index, width: Text(nothing))
            lines.cursor = -1
        self.query_one("#keys", Bar).show(key_line(["Enter open", "/ filter", "o order"], "? keys  q quit", width))

    def _head(self, width: int) -> Text:
        seen = self._overview.seen
        if seen is None or not self._has_looked:
            said = self._read or "looking ..."
            return Text.assemble((plain(self._overview.url, max(8, width - len(said) - 2)), "bold"), f"  {said}")
        counts: dict[State, int] = {}
        for run in seen.runs:
            counts[run.status.state] = counts.get(run.status.state, 0) + 1
        shown = f"{len(self._shown):,} of " if len(self._shown) != len(seen.runs) else ""
        rest = f"  {shown}{counted(len(seen.runs), 'run')}"
        for state in (state for state in STATES if state in counts):
            if len(rest) + len(more := f"  {counts[state]:,} {state}") > width - 16:
                break
            rest += more
        return Text.assemble((plain(self._overview.url, max(8, width - len(rest))), "bold"), rest)

    def _line(self, index: int, width: int) -> Text:
        run = self._shown[index]
        status = run.status
        name = run.name or run_id_of(status)
        wanted = plain(api.wanted(status) or str(status.problem or ""))
        items, last = fraction(status), ago(status.at)
        return _row(name, state_text(status), items, wanted, cost(status), last, width)

    def action_filter(self) -> None:
        field = self.query_one("#filter", Input)
        field.display = True
        field.focus()

    def action_order(self) -> None:
        self._by_need = not self._by_need
        self._choose()
        self._draw()

    def action_clear(self) -> None:
        field = self.query_one("#filter", Input)
        field.value, field.display = "", False
        self.query_one(Lines).focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        self._choose()
        self._draw()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.query_one("#filter", Input).display = bool(event.value)
        self.query_one(Lines).focus()

    def on_lines_moved(self, event: Lines.Moved) -> None:
        self._has_moved = True

    def on_lines_chosen(self, event: Lines.Chosen) -> None:
        if 0 <= event.index < len(self._shown):
            self._open(self._shown[event.index], is_alone=False)

    def _open(self, run: SeenRun, *, is_alone: bool) -> None:
        self.app.push_screen(
            RunScreen(lambda: api.open(run.url, patience=_PATIENCE), run.name or run.url, is_alone=is_alone)
        )


def _text(run: SeenRun) -> str:
    """What the filter looks at."""
    status = run.status
    return f"{run.name} {run_id_of(status)} {status.state} {api.wanted(status)}".lower()


def _row(name: str, state: Text, items: str, wanted: str, cost: str, last: str, width: int) -> Text:
    """The columns that fit: the name and the state always."""
    columns: list[tuple[Text, int]] = [(state, _STATE)]
    if width >= _NARROW:
        columns += [(Text(items.rjust(_ITEMS - 2)), _ITEMS), (Text(wanted), _WANTED if width < _WIDE else 2 * _WANTED)]
    if width >= _WIDE:
        columns.append((Text(cost.rjust(_COST - 2)), _COST))
    columns.append((Text(last.rjust(_LAST - 1)), _LAST))
    room = max(8, width - sum(size for _, size in columns) - 1)
    row = Text(plain(name, room))
    row.pad_right(max(0, room + 1 - row.cell_len))
    for text, size in columns:
        cell = text.copy()
        cell.truncate(size - 1, overflow="ellipsis")
        cell.pad_right(max(0, size - cell.cell_len))
        row.append_text(cell)
    return row
