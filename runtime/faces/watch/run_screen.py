"""The screen of one run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, ClassVar

from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.events import Resize
from textual.screen import Screen

from ...api import Handle, conversation
from ...present import why_lines
from . import panes
from .actions import Acting
from .feed import Feed
from .lines import Bar, Lines, fold, head_line, key_line, plain
from .panes import Content, Pane

VIEWS = ("overview", "plan", "timeline", "text", "questions", "messages", "details")
_WIDE = 110  # columns from which the plan and the timeline are next to each other
_LOW = 16  # lines below which each view has one pane, and nothing above it but a line
_NOW = 3  # lines of what is running
_DETAIL = 3  # lines of why it is in its state
_SAID = 4  # what came of an action has at most such a part of the lines
_MESSAGES = 200
_DRAW = 0.15  # seconds between two drawings
_SAID_FOR = 30.0  # seconds


class RunScreen(Screen[None]):
    """One run, live."""

    DEFAULT_CSS = """
    RunScreen #body { height: 1fr; layout: vertical; }
    RunScreen.wide #body { layout: horizontal; }
    RunScreen #side { height: 1fr; width: 1fr; }
    RunScreen.wide #plan { width: 2fr; margin-right: 2; }
    RunScreen.wide #side { width: 3fr; }
    RunScreen #side #text { height: 6; }
    RunScreen.wide #side #text { height: 1fr; }
    RunScreen.text #side #text { height: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(str(number + 1), f"view({number})", show=False) for number in range(len(VIEWS))),
        Binding("right", "turn(1)", show=False),
        Binding("left", "turn(-1)", show=False),
        *(
            Binding(key, f"act('{action}')", show=False)
            for key, action in (
                ("a", "answer"),
                ("p", "pause"),
                ("r", "resume"),
                ("x", "stop"),
                ("c", "cancel"),
                ("v", "revoke"),
                ("s", "send"),
                ("m", "message"),
                ("e", "todo"),
                ("E", "state"),
            )
        ),
        Binding("escape", "follow", show=False),
        Binding("b", "back", show=False),
    ]

    def __init__(self, make: Callable[[], Handle], name: str, *, is_alone: bool):
        """`is_alone`: there is no list of runs to go back to."""
        super().__init__()
        self.feed = Feed(make, self._changed)
        self.acting = Acting(self.app, self.feed, self.say, make)
        self.view = VIEWS[0]
        self._make, self._called, self._is_alone = make, name, is_alone
        self._is_changed = True
        self._outline = panes.Outline()
        self._said: tuple[str, bool] = ("", False)
        self._saying = 0
        self._messages: list[tuple[str, Any]] = []
        self._messages_at = -1  # the number of the record up to which they are read

    def compose(self) -> ComposeResult:
        yield Bar("head")
        yield Bar("detail")
        yield Bar("now")
        yield Bar("asks")
        yield Bar("tabs")
        with Horizontal(id="body"):
            yield Pane("plan", follows=True)
            with Vertical(id="side"):
                yield Pane("text", follows=True)
                yield Pane("timeline", follows=True)
            yield Pane("questions", has_cursor=True)
            yield Pane("messages", follows=True)
            yield Pane("details")
        yield Bar("said")
        yield Bar("keys")

    def on_mount(self) -> None:
        self.run_worker(self.feed.look(), group="feed", name="look")
        self.run_worker(self.feed.follow(), group="feed", name="follow")
        self.set_interval(_DRAW, self._draw_if_changed)
        self.set_interval(1.0, self._changed)  # times pass
        self.action_view(0)

    def on_resize(self, event: Resize) -> None:
        self.set_class(event.size.width >= _WIDE and event.size.height >= _LOW, "wide")
        self.call_after_refresh(self._draw)
        self._arrange()

    # What it shows

    def say(self, text: str, *, is_error: bool = False) -> None:
        """Show what came of an action, until the next one."""
        self._said = text, is_error
        self._saying += 1
        number = self._saying
        self.set_timer(_SAID_FOR, lambda: self._forget(number))
        self._draw()

    def _forget(self, number: int) -> None:
        if number == self._saying:
            self._said = "", False
            self._changed()

    def _changed(self) -> None:
        self._is_changed = True

    def _draw_if_changed(self) -> None:
        if self._is_changed and self.is_current:
            self._draw()

    def _bar(self, id: str) -> Bar:
        return self.query_one(f"#{id}", Bar)

    def _pane(self, name: str) -> Pane:
        return self.query_one(f"#{name}", Pane)

    @property
    def _is_low(self) -> bool:
        return self.size.height < _LOW

    def _draw(self) -> None:
        self._is_changed = False
        status, width = self.feed.status, self.size.width
        if not width or not self.is_mounted:
            return
        self._bar("head").show(head_line(status, self._called, width))
        why = [part for each in why_lines(status) for part in fold(each, width)] if status else []
        is_bad = status is not None and (status.problem is not None or status.state == "failed")
        most = 1 if self._is_low else _DETAIL
        if len(why) > most and self.view != "details":
            more = "  (7: all)"
            why[most - 1] = plain(why[most - 1], max(1, width - len(more))) + more
        self._bar("detail").show(*(Text(line, "red" if is_bad else "yellow") for line in why[:most]))
        self._bar("now").show(*([] if self._is_low else panes.now(self.feed, width, _NOW)))
        self._bar("asks").show(*self._asks(width))
        self._bar("tabs").show(self._tabs(width))
        said, is_error = self._said
        folded = fold(said, width)[: max(2, self.size.height // _SAID)] if said else []
        self._bar("said").show(*(Text(line, "bold red" if is_error else "bold") for line in folded))
        self._bar("keys").show(self._keys(width))
        has_text = bool(self.feed.streams)
        if self.view == "overview":
            self._pane("text").display = has_text and not self._is_low
        for pane in self.query(Pane):
            if pane.display and pane.size.width:
                pane.show(self._content(pane.id or "", pane.size.width))

    def _content(self, name: str, width: int) -> Content:
        status = self.feed.status
        match name:
            case "plan":
                return self._outline.content(status)
            case "text":
                return panes.streams(self.feed, width, is_brief=self.view == "overview")
            case "timeline":
                return panes.timeline(self.feed)
            case "questions":
                return panes.questions(status)
            case "messages":
                self._read_messages()
                return panes.messages(self._messages, width)
            case _:
                return panes.details(status, width)

    def _asks(self, width: int) -> list[Text]:
        asked = self.feed.status.questions if self.feed.status else []
        if not asked or self.view == "questions":
            return []
        more = f" (and {len(asked) - 1} more)" if len(asked) > 1 else ""
        begin = f"? {plain(asked[0].id)}: "
        end = f"{more}  a answers"
        room = max(1, width - len(begin) - len(end))
        return [Text.assemble((begin + plain(asked[0].text, room), "bold yellow"), (end, "yellow"))]

    def _tabs(self, width: int) -> Text:
        """All names, or only the chosen one where there is no room."""
        tabs = Text()
        asked = len(self.feed.status.questions) if self.feed.status else 0
        named = [f"{name} ({asked})" if name == "questions" and asked else name for name in VIEWS]
        is_short = sum(len(name) + 4 for name in named) > width
        for number, (name, text) in enumerate(zip(VIEWS, named, strict=True)):
            is_chosen = name == self.view
            shown = f" {number + 1} {text} " if is_chosen or not is_short else f" {number + 1} "
            tabs.append(shown, "bold reverse" if is_chosen else "")
        return tabs

    def _keys(self, width: int) -> Text:
        """What is of use now comes first; how to leave is always there."""
        status = self.feed.status
        found = ["a answer"] if status and status.questions else []
        if status is not None and status.state not in ("cancelled", "moved", "damaged"):
            is_new = status.moment is not None and status.moment.is_new
            starts = ["r start" if is_new else "r resume"] if status.next else []
            starts = ["r withdraw the pause"] if status.state == "draining" else starts
            found += ["p pause", "x stop"] if status.state == "running" else starts
            found += ["x stop"] if status.state == "draining" else []
            found += ["s send", "e edit todo"]
        return key_line(found, "? keys  q quit" if self._is_alone else "b back  ? keys  q quit", width)

    # Views

    def action_view(self, number: int) -> None:
        self.view = VIEWS[number]
        self._arrange()
        self.call_after_refresh(self._draw)

    def action_turn(self, by: int) -> None:
        self.action_view((VIEWS.index(self.view) + by) % len(VIEWS))

    def _arrange(self) -> None:
        """Show the panes of the view."""
        shown = {self.view} if self.view != "overview" else {"plan"} if self._is_low else {"plan", "timeline"}
        for pane in self.query(Pane):
            pane.display = pane.id in shown
        self.query_one("#side").display = bool(shown & {"text", "timeline"})
        self.set_class(self.view == "text", "text")
        first = self._pane("plan" if self.view == "overview" else self.view)
        first.lines.follow()
        if not isinstance(self.focused, Lines) or not self.focused.display or self.focused.parent is not first:
            first.lines.focus()
        self._changed()

    def action_follow(self) -> None:
        """Show again what happens."""
        self._said = "", False
        for pane in self.query(Pane):
            pane.lines.follow()
        self._draw()

    def action_back(self) -> None:
        if not self._is_alone:
            self.dismiss()

    def on_lines_chosen(self, event: Lines.Chosen) -> None:
        self._act_on("answer", event.index)

    def _read_messages(self) -> None:
        if self.feed.seq != self._messages_at:
            self._messages_at = self.feed.seq
            self.run_worker(self._fetch_messages(), group="messages", exclusive=True)

    async def _fetch_messages(self) -> None:
        try:
            self._messages = await asyncio.to_thread(_messages_of, self._make)
        except Exception as error:  # one that no reader has foreseen must not end the screen either
            self.say(str(error) or type(error).__name__, is_error=True)
        self._changed()

    # Actions

    def action_act(self, name: str) -> None:
        self._act_on(name, 0)

    @work(group="acting")
    async def _act_on(self, name: str, index: int) -> None:
        if not self.is_active:  # a form is open already
            return
        match name:
            case "answer":
                at = self._pane("questions").lines.cursor if self.view == "questions" else index
                await self.acting.answer(at)
            case "pause":
                await self.acting.pause()
            case "resume":
                await self.acting.resume()
            case "stop":
                await self.acting.stop()
            case "cancel":
                await self.acting.cancel()
            case "revoke":
                await self.acting.revoke()
            case "send" | "message":
                await self.acting.send(message=name == "message")
            case "todo":
                await self.acting.edit("todo.md")
            case "state":
                await self.acting.edit("state.json")


def _messages_of(make: Callable[[], Handle]) -> list[tuple[str, Any]]:
    return [(said.role, said.content) for said in conversation(make())[-_MESSAGES:]]
