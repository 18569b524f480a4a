"""The widgets that draw: a list of any length that makes only the lines that are seen, and a bar of a few lines. And
lines that they draw: the state of a run, an item of the plan, an event.

Both take `rich.text.Text` and no markup, so brackets of an agent's text mean nothing. `plain` and `fold` make text of
strangers safe first.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import ClassVar

from rich.cells import cell_len, chop_cells
from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widgets import Static

from ....workspace.base import lines as lines_of
from ....workspace.base import moment_of, visible
from ...api import RunStatus
from ...present import (
    MARKS,
    Piece,
    TimelineEvent,
    ago,
    colour,
    cost,
    duration,
    fraction,
    one_line,
    run_id_of,
    state_colour,
)

Line = Callable[[int, int], Text]
"""Makes the line with this number for this width."""

_ACT = 11  # columns of what happened
_TAB = 4
_LONGEST = 4000
"""Characters of a text that become one line: more than any terminal shows."""


def plain(text: str, width: int = 0) -> str:
    """A stranger's text in one line, safe to show, cut to `width` columns if that is not 0."""
    return one_line(text[:_LONGEST], width)


def fold(text: str, width: int) -> list[str]:
    """A stranger's text in lines of at most `width` columns, safe to show, broken between words where possible."""
    width = max(1, width)
    return [part for line in lines_of(text) for part in _fold_line(visible(line.expandtabs(_TAB)), width)]


def _fold_line(line: str, width: int) -> list[str]:
    if not line.isascii():
        return [line] if cell_len(line) <= width else chop_cells(line, width)
    if len(line) <= width:
        return [line]
    return textwrap.wrap(line, width, replace_whitespace=False, drop_whitespace=True, break_on_hyphens=False) or [""]


class Bar(Static):
    """A few lines of text. It has no height if it has none."""

    DEFAULT_CSS = "Bar { height: auto; width: 1fr; text-wrap: nowrap; text-overflow: ellipsis; }"

    def __init__(self, id: str) -> None:
        super().__init__("", id=id, markup=False)
        self._shown: list[Text] | None = None

    def show(self, *lines: Text) -> None:
        """Each is cut at the edge of the bar."""
        if [*lines] == self._shown:
            return
        self._shown = [*lines]
        self.display = bool(lines)
        self.update(Text("\n").join(lines))

    @property
    def text(self) -> str:
        """What it shows."""
        return "\n".join(line.plain for line in self._shown or ())


class Lines(ScrollView, can_focus=True):
    """A list of lines. With `has_cursor` one line is chosen, and Enter tells of it; else the keys scroll."""

    DEFAULT_CSS = "Lines { height: 1fr; width: 1fr; scrollbar-size: 0 0; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", show=False),
        Binding("down", "move(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown,space", "page(1)", show=False),
        Binding("home", "end(False)", show=False),
        Binding("end", "end(True)", show=False),
        Binding("enter", "choose", show=False),
    ]

    class Chosen(Message):
        """Enter was pressed at line `index`; -1 if none was chosen yet."""

        def __init__(self, lines: Lines, index: int) -> None:
            super().__init__()
            self.lines, self.index = lines, index

        @property
        def control(self) -> Lines:
            return self.lines

    class Moved(Message):
        """A person has scrolled."""

    def __init__(self, id: str, *, has_cursor: bool = False, follows: bool = False) -> None:
        """`follows`: it shows the end, or the line that `show` names, until a person scrolls."""
        super().__init__(id=id)
        self.has_cursor, self.cursor, self.count = has_cursor, 0, 0
        self._line: Line = lambda index, width: Text()
        self._follows, self._is_following, self._at = follows, follows, -1

    def show(self, count: int, line: Line, at: int = -1) -> None:
        """Show these lines. `at` is the one to keep in sight; -1: the last one."""
        self.count, self._line, self._at = count, line, at if at >= 0 else count - 1
        self.cursor = max(0, min(self.cursor, count - 1))
        self.virtual_size = Size(self.size.width, count)
        self._keep_in_sight()
        self.refresh()

    def follow(self) -> None:
        """Show the end again, or the line that is kept in sight."""
        self._is_following = self._follows
        self._keep_in_sight()

    @property
    def seen(self) -> range:
        """The numbers of the lines on the screen."""
        top = self.scroll_offset.y
        return range(top, max(top, min(self.count, top + self.size.height)))

    def on_resize(self, event: events.Resize) -> None:
        self.virtual_size = Size(self.size.width, self.count)
        self._keep_in_sight()

    def render_line(self, y: int) -> Strip:
        index, width = self.scroll_offset.y + y, self.size.width
        base = self.rich_style
        if index >= self.count:
            return Strip.blank(width, base)
        # Marked, too, for terminals without colours. Rich would forget the style of a text that is all of a line.
        mark = "" if not self.has_cursor else "> " if index == self.cursor else "  "
        text = Text(mark).append_text(self._line(index, max(1, width - len(mark))))
        if self.has_cursor and index == self.cursor:
            text.pad_right(max(0, width - text.cell_len))
            text.stylize(Style(reverse=self.has_focus, bold=True))
        text.end = ""
        return Strip(text.render(self.app.console)).adjust_cell_length(width, base).apply_style(base)

    def action_move(self, by: int) -> None:
        if self.has_cursor:
            self.go(self.cursor + by)
        else:
            self._scroll(self.scroll_offset.y + by)

    def action_page(self, by: int) -> None:
        self.action_move(by * max(1, self.size.height - 1))

    def action_end(self, is_last: bool) -> None:
        if self.has_cursor:
            self.go(self.count - 1 if is_last else 0)
        else:
            self._scroll(self.count if is_last else 0)

    def action_choose(self) -> None:
        if self.has_cursor and self.count:
            self.post_message(self.Chosen(self, self.cursor))

    def go(self, to: int) -> None:
        """Choose a line."""
        self.cursor = max(0, min(to, self.count - 1))
        self._keep_in_sight()
        self.refresh()
        self.post_message(self.Moved())

    def _scroll(self, to: int) -> None:
        last = max(0, self.count - self.size.height)
        self._is_following = self._follows and self._at == self.count - 1 and to >= last
        self.scroll_to(y=max(0, min(to, last)), animate=False)
        self.post_message(self.Moved())

    def _keep_in_sight(self) -> None:
        """Move as little as possible. A followed line that has left the screen comes to its middle."""
        if not self.has_cursor and not self._is_following:
            return
        at, top, height = self.cursor if self.has_cursor else self._at, self.scroll_offset.y, self.size.height
        if not height:
            return
        if self.has_cursor:
            top = min(max(top, at - height + 1), at)
        elif at == self.count - 1:
            top = at - height + 1
        elif not top <= at < top + height - 1:
            top = at - height // 3
        self.scroll_to(y=max(0, min(top, self.count - height)), animate=False)


def joined(parts: Sequence[Text], gap: str = "  ") -> Text:
    """The parts that say something, in one line."""
    return Text(gap).join(part for part in parts if part.plain)


def key_line(keys: Sequence[str], end: str, width: int) -> Text:
    """The keys that fit, the most useful first. `end` is always there: it says how to leave."""
    line = ""
    for each in keys:
        if len(line) + len(each) + 2 + len(end) > width:
            break
        line += f"{each}  "
    return Text(f"{line}{end}".ljust(width), "reverse")


# Statuses and events


def state_text(status: RunStatus) -> Text:
    return Text(status.state, f"bold {state_colour(status.state) or ''}".strip())


def clock(at: str) -> str:
    """The local time of a record with its zone: `14:05:09 CET`; with the date if that is not today."""
    then = moment_of(at)
    try:
        local = then.astimezone() if then else None
    except (ValueError, OverflowError):
        local = None
    if local is None:
        return " " * 8
    is_today = local.date() == datetime.now().astimezone().date()
    return f"{local:%H:%M:%S %Z}" if is_today else f"{local:%Y-%m-%d %H:%M:%S %Z}"


def task_line(line: str, mark: str, depth: int, width: int) -> Text:
    """An item of the plan."""
    box, tone = MARKS.get(mark, MARKS["open"])
    style = "dim" if tone == "rest" else colour(tone) or ""
    text = Text("  " * min(depth, 8))
    text.append(box, f"bold {style}" if mark == "begun" else style)
    said = plain(line, max(1, width - text.cell_len - 1))
    return text.append(" ").append(said, {"begun": "bold", "cancelled": "dim"}.get(mark, ""))


def event_line(told: TimelineEvent, width: int) -> Text:
    """One line of the timeline."""
    style = colour(told.words.tone) or ""
    took = f"  {duration(told.took / 1000)}" if told.took else ""
    line = Text.assemble((f"{clock(told.at)} ", "dim"), (f"{plain(told.words.act, _ACT):<9} ", style))
    said = plain(" ".join((told.words.text, *told.files)), max(1, width - line.cell_len - len(took)))
    return line.append(said, style).append(took, "dim")


def pieces(line: Iterable[Piece]) -> Text:
    """A line of words with tones."""
    return Text.assemble(*((visible(text), "dim" if tone == "rest" else colour(tone) or "") for text, tone in line))


def head_line(status: RunStatus | None, name: str, width: int) -> Text:
    """The first line about a run: who, state, progress, cost, last activity. The name gives way to the rest."""
    if status is None:
        return joined([Text(plain(name, max(8, width - 12)), "bold"), Text("looking ...")])
    ahead = status.forecast
    parts = [state_text(status), Text(fraction(status)), Text(ahead.words if ahead else ""), Text(cost(status))]
    parts.append(Text(ago(status.at), "dim"))
    rest = joined(parts)
    return joined([Text(plain(run_id_of(status) or name, max(8, width - rest.cell_len - 2)), "bold"), rest])
