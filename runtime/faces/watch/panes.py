"""The parts of the screen of one run: a title, and lines below it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Vertical

from ....workspace.plan import Task
from ...api import ACTIVE, RunStatus
from ...present import (
    agent_lines,
    approval_line,
    budget_lines,
    call_name,
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
    schedule_lines,
    since,
    size,
    usage_line,
    why_lines,
)
from .feed import Feed, StreamedAnswer
from .lines import Bar, Line, Lines, event_line, fold, plain, task_line

_TAIL = 4000
"""Characters of a streamed answer that are folded again at each change."""

_DETAIL = 12  # columns of the titles
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


def _lines(title: str, found: Sequence[Text], at: int = -1) -> Content:
    return Content(title, len(found), lambda index, width: found[index].copy(), at)


def _folded(title: str, texts: Sequence[str], at: int = 0) -> Content:
    return Content(title, len(texts), lambda index, width: Text(texts[index]), at)


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
    return _lines(newest if is_brief else f"text  {counted(len(found), 'answer')} being streamed", shown)


def _left(status: RunStatus, width: int) -> Content:
    """Text that a crash has cut off."""
    shown: list[Text] = []
    for each in status.streams:
        shown.append(Text(plain(each.path, width), "bold"))
        shown += map(Text, fold(each.text[-_TAIL:], width))
    title = "text  cut off by a crash; the next start keeps it" if shown else "text"
    return _lines(title, shown or [Text("no answer is being streamed")])


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
    return _lines(f"messages  the last {len(found)}" if found else "messages", shown or [Text("no messages")])


def details(status: RunStatus | None, width: int) -> Content:
    if status is None:
        return _folded("details", ["looking ..."])
    shown: list[Text] = []
    for title, value in _details(status):
        for number, line in enumerate(fold(value[:20_000], max(10, width - _DETAIL))):
            shown.append(Text.assemble((f"{'' if number else title:<{_DETAIL}}", "bold"), line))
    return _lines("details", shown, 0)


def _details(status: RunStatus) -> Iterator[tuple[str, str]]:
    """Titles and values; both may be from strangers."""
    yield "place", status.url
    if status.definition:
        yield "agent", status.definition.agent
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
