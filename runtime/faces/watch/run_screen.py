"""The screen of one run."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.events import Resize
from textual.screen import Screen

from ....workspace.plan import Task
from ...api import ACTIVE, Handle, RunStatus, logs_of, messages_of
from ...present import (
    agent_lines,
    approval_line,
    budget_lines,
    call_name,
    cost_lines,
    counted,
    describe_reply,
    describe_retry,
    detail,
    done_of,
    file_lines,
    inbox_line,
    json_line,
    pause_lines,
    progress,
    queue_lines,
    schedule_lines,
    since,
    size,
    timing_lines,
    usage_line,
    why_lines,
)
from .actions import Acting
from .feed import Feed, StreamedAnswer
from .lines import Bar, Line, Lines, event_line, fold, head_line, key_line, pieces, plain, task_line

VIEWS = ("overview", "plan", "timeline", "text", "questions", "messages", "details", "time")
_WIDE = 110  # columns from which the plan and the timeline are next to each other
_LOW = 16  # lines below which each view has one pane, and nothing above it but a line
_NOW = 3  # lines of what is running
_DETAIL = 3  # lines of why it is in its state
_SAID = 4  # what came of an action has at most such a part of the lines
_MESSAGES = 50
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
        self._outline = Outline()
        self._said: tuple[str, bool] = ("", False)
        self._saying = 0
        self._messages: list[tuple[str, Any]] = []
        self._messages_at = -1  # the number of the record up to which they are read
        self._drawn: list[Text] = []
        self._drawn_at = (-1, 0)  # up to which record, and how wide

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
            yield Pane("time")
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
        self._bar("now").show(*([] if self._is_low else now(self.feed, width, _NOW)))
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
                return streams(self.feed, width, is_brief=self.view == "overview")
            case "timeline":
                return timeline(self.feed)
            case "questions":
                return questions(status)
            case "messages":
                if self.feed.seq != self._messages_at:
                    self._messages_at = self.feed.seq
                    self.run_worker(self._fetch_messages(), group="messages", exclusive=True)
                return messages(self._messages, width)
            case "time":
                if (self.feed.seq, width) != self._drawn_at:
                    self._drawn_at = self.feed.seq, width
                    self.run_worker(self._fetch_timing(width), group="timing", exclusive=True)
                return drawn(self._drawn)
            case _:
                return details(status, width)

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
        is_short = sum(len(name) + 3 for name in named) > width
        for number, (name, text) in enumerate(zip(VIEWS, named, strict=True)):
            is_chosen = name == self.view
            shown = f" {number + 1} {text}" if is_chosen or not is_short else f" {number + 1}"
            shown += " " if is_short else ""
            tabs.append(shown, "bold reverse" if is_chosen else "")
        return tabs

    def _keys(self, width: int) -> Text:
        """What is of use now comes first; how to leave is always there."""
        status = self.feed.status
        found = ["a answer"] if status and status.questions else []
        if status is not None and status.state not in ("cancelled", "held", "moved", "backup", "damaged"):
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

    async def _fetch_messages(self) -> None:
        try:
            self._messages = await asyncio.to_thread(_messages_of, self._make)
        except Exception as error:  # one that no reader has foreseen must not end the screen either
            self.say(str(error) or type(error).__name__, is_error=True)
        self._changed()

    async def _fetch_timing(self, width: int) -> None:
        try:
            self._drawn = await asyncio.to_thread(_drawn, self._make, width)
        except Exception as error:  # as above
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
            case "send" | "message":
                await self.acting.send(message=name == "message")
            case "todo" | "state":
                await self.acting.edit("todo.md" if name == "todo" else "state.json")
            case _:
                await getattr(self.acting, name)()


def _messages_of(make: Callable[[], Handle]) -> list[tuple[str, Any]]:
    """The newest ones of all agents."""
    handle = make()
    moment = handle.status(brief=True).moment
    agents = [agent for agent, log, _ in logs_of(moment) if not log] if moment else []
    found = [said for agent in agents for said in messages_of(handle, moment, agent).messages] if moment else []
    return [(said.role, said.content) for said in sorted(found, key=lambda said: said.at)[-_MESSAGES:]]


def _drawn(make: Callable[[], Handle], width: int) -> list[Text]:
    """The run drawn in time, and its costs below."""
    handle = make()
    costs = cost_lines(handle.history.costs(), handle.status().budget, width)
    return [pieces(line) for line in (*timing_lines(handle.history.timing(), width), [], *costs)]


# Its panes: a title, and lines below it

_TAIL = 4000
"""Characters of a streamed answer that are folded again at each change."""

_TITLES = 12  # columns of the titles
_VALUE = 400  # characters of a value


class Content(NamedTuple):
    """What a pane shows. `at`: the line to keep in sight, -1 for the last."""

    title: str
    number: int
    line: Line
    at: int = -1


class Pane(Vertical):
    """A title, and lines that scroll."""

    DEFAULT_CSS = "Pane { height: 1fr; width: 1fr; }"

    def __init__(self, name: str, *, has_cursor: bool = False, follows: bool = False) -> None:
        super().__init__(id=name)
        self.bar, self.lines = Bar(f"{name}-title"), Lines(f"{name}-lines", has_cursor=has_cursor, follows=follows)
        self._titled, self._number = name, 0

    def compose(self) -> ComposeResult:
        yield self.bar
        yield self.lines

    def show(self, content: Content) -> None:
        self._titled, self._number = content.title, content.number
        self.lines.show(content.number, content.line, content.at)
        self._show_title()

    def on_lines_moved(self, event: Lines.Moved) -> None:
        event.stop()
        self._show_title()

    def _show_title(self) -> None:
        """With the place in the list, if that is longer than the pane."""
        seen = self.lines.seen
        is_cut = self._number > len(seen) > 0
        place = f"{seen.start + 1:,}-{seen.stop:,} of {self._number:,}" if is_cut else ""
        title = plain(self._titled, max(1, self.size.width - len(place) - 2))
        self.bar.show(Text.assemble((title, "bold underline"), "  ", (place, "dim")))


def _lines_of(title: str, found: Sequence[Text], at: int = -1) -> Content:
    return Content(title, len(found), lambda index, width: found[index].copy(), at)


def _folded(title: str, texts: Sequence[str]) -> Content:
    return Content(title, len(texts), lambda index, width: Text(texts[index]), 0)


class Outline:
    """The plan with the depth of each task, made once for each plan."""

    def __init__(self) -> None:
        self._of: tuple[str, Content] | None = None

    def content(self, status: RunStatus | None) -> Content:
        if status is None or status.plan is None or not status.plan.tasks:
            return _folded("plan", ["" if status is None else "no items yet"])
        plan = status.plan
        if self._of is None or self._of[0] != plan.text:
            self._of = plan.text, _outline(plan.tasks, *plan.progress)
        return self._of[1]


def _outline(tasks: Sequence[Task], settled: int, leaves: int) -> Content:
    depths: list[int] = []
    for task in tasks:
        depths.append(0 if task.parent is None else depths[task.parent] + 1)
    begun = next((task.index for task in tasks if task.mark == "begun" and task.is_work), None)
    first = next((task.index for task in tasks if task.is_work and not task.is_finished), 0)

    def line(index: int, width: int) -> Text:
        return task_line(tasks[index].text, tasks[index].mark, depths[index], width)

    return Content(f"plan  {done_of(settled, leaves)}", len(tasks), line, first if begun is None else begun)


def timeline(feed: Feed) -> Content:
    if not feed.seen:
        return _folded(
            "timeline", [plain(feed.problem) if feed.problem else "" if feed.status is None else "nothing yet"]
        )
    seen = [*feed.seen]
    return Content("timeline", len(seen), lambda index, width: event_line(seen[index], width))


def streams(feed: Feed, width: int, *, is_brief: bool) -> Content:
    """The answers that are being streamed, the newest last; with `is_brief` only the newest one."""
    found = [*feed.streams.values()]
    status = feed.status
    if not found and not is_brief and status is not None:
        return _left(status, width)
    shown: list[Text] = []
    for stream in found[-1:] if is_brief else found:
        if not is_brief:
            shown.append(Text(plain(f"{_where(stream)}  {stream.call}", width), "bold"))
        shown += map(Text, fold(stream.text[-_TAIL:] if is_brief else stream.text, width))
    newest = f"text  {found[-1].call}, {counted(found[-1].length, 'character')}" if found else "text"
    return _lines_of(newest if is_brief else f"text  {counted(len(found), 'answer')} being streamed", shown)


def _left(status: RunStatus, width: int) -> Content:
    """Text that a crash has cut off."""
    shown: list[Text] = []
    for each in status.streams:
        shown.append(Text(plain(each.path, width), "bold"))
        shown += map(Text, fold(each.text[-_TAIL:], width))
    title = "text  cut off by a crash; the next start keeps it" if shown else "text"
    return _lines_of(title, shown or [Text("no answer is being streamed")])


def _where(stream: StreamedAnswer) -> str:
    return f"{stream.agent}:{stream.scope}" if stream.agent else stream.scope


def questions(status: RunStatus | None) -> Content:
    asked = status.questions if status else []

    def line(index: int, width: int) -> Text:
        each = asked[index]
        said = f" ({reply})" if (reply := describe_reply(each)) else ""
        return Text(plain(f"{each.id}  {each.text}", max(1, width - len(said)))).append(said, "yellow")

    if not asked:
        return _folded("questions", ["no open question"])
    return Content("questions  Enter: read and answer", len(asked), line)


def messages(found: Sequence[tuple[str, Any]], width: int) -> Content:
    """The conversation: each message with its role."""
    shown: list[Text] = []
    for role, content in found:
        shown.append(Text(plain(role, width), "bold"))
        text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False, indent=1, default=str)
        shown += (Text(f"  {line}") for line in fold(text, max(1, width - 2)))
    return _lines_of(f"messages  the last {len(found)}" if found else "messages", shown or [Text("no messages")])


def drawn(found: Sequence[Text]) -> Content:
    return _lines_of("time and cost", found, 0) if found else _folded("time and cost", ["looking ..."])


def details(status: RunStatus | None, width: int) -> Content:
    if status is None:
        return _folded("details", ["looking ..."])
    shown: list[Text] = []
    for title, value in _details(status):
        for number, line in enumerate(fold(value[:20_000], max(10, width - _TITLES))):
            shown.append(Text.assemble((f"{'' if number else title:<{_TITLES}}", "bold"), line))
    return _lines_of("details", shown, 0)


def _details(status: RunStatus) -> Iterator[tuple[str, str]]:
    """Titles and values; both may be from strangers."""
    yield "place", status.url
    if status.definition:
        yield "agent", status.definition.agent
    for each in queue_lines(status):
        yield each.title, each.text
    why, stops = detail(status), pause_lines(status)
    below = {why.lstrip(": "), *(each.text for each in file_lines(status))}  # they have lines of their own
    if stops and status.state == "paused" and status.moment and status.moment.pause:
        why = f": {stops[0]}"  # it says more
        below.add(f"pause: {stops[0]}")
    yield "state", "\n".join([f"{status.state}{why}", *(each for each in why_lines(status) if each not in below)])
    if status.holder and status.holder.process not in why:
        yield "process", f"{status.holder.process}"
    if status.input is not None:
        yield "input", json_line(status.input, _VALUE)
    if status.result is not None:
        yield "result", json_line(status.result, _VALUE)
    for share in budget_lines(status):
        yield share.title, share.text
    moment = status.moment
    if moment is not None:
        yield "usage", usage_line(moment)
        for agent in agent_lines(moment):
            yield "agent", "  ".join(filter(None, (agent.path, agent.status, progress(agent.plan), agent.at)))
        for path, output in moment.outputs.items():
            yield "output", f"{path}  {size(output.bytes)}"
    for said in schedule_lines(status):
        yield "schedule", said
    for id, approval in status.approved.items():
        yield "approved", f"{approval_line(id, approval)}; v revokes it"
    if inbox := inbox_line(status):
        yield "inbox", inbox
    for line in file_lines(status):
        yield line.title, line.text
    for complaint in status.complaints:
        yield "note", complaint
    for remark in status.report:
        yield "opening", f"{remark.kind}: {remark.text}"
    if status.at:
        yield "last", f"record {moment.seq if moment else 0:,}, {since(status.at)}"
    if status.next:
        yield "next", status.next


def now(feed: Feed, width: int, most: int) -> list[Text]:
    """What is running: streams, effects, calls that wait to be tried again, and begun items."""
    status = feed.status
    if status is None or status.moment is None or status.state not in ACTIVE:
        return []
    found: list[Text] = []
    for stream in reversed(feed.streams.values()):
        found.append(Text(f"> {stream.call}, {counted(stream.length, 'character')}", "cyan"))
    for each in status.retries:
        found.append(Text(f"~ {describe_retry(each)}", "yellow"))
    shown = {(each.agent, each.scope, each.no) for each in status.running}
    for long in status.running:
        if (long.agent, long.scope, long.no) not in feed.streams:
            found.append(Text(f"> {long.words}", "cyan"))
    for agent in status.moment.agents.values():
        above = f"{agent.path}: " if agent.path else ""
        for key, scope in agent.scopes.items():
            for call in scope.started.values():
                if (agent.path, key, call.no) not in shown:
                    found.append(Text(f"> {above}{call_name(call)}, an effect", "cyan"))
            if scope.title:
                steps = f", {counted(len(scope.done), 'step')} done" if scope.done else ""
                found.append(Text(f"/ {above}^{key} {scope.title}{steps}", "yellow"))
    lines = [Text(plain(each.plain, width), each.style) for each in found[:most]]
    if len(found) > most > 0:
        lines[-1] = Text(f"and {len(found) - most + 1} more", "dim")
    return lines
