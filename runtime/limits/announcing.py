"""Messages about a run: a line for people who watch it, a notice for others."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Protocol

from ...workspace.base import SatchelError
from ...workspace.inspect import report
from ...workspace.journal.records import EndStatus
from ...workspace.lifecycle import Workspace
from ...workspace.people.approvals import Question, open_questions
from ...workspace.state import Moment
from .budget import BY
from .notices import Event, Notice, Notices


class Watching(Protocol):
    """The receiver of lines about a run while it is active."""

    def noticed(self, kind: str, text: str) -> None: ...


class Announcer:
    """For one opening of a run. `is_silent`: only the watch is told, because nothing may leave a replay."""

    def __init__(self, workspace: Workspace, watch: Watching | None, *, is_silent: bool = False):
        self._workspace, self._watch = workspace, watch
        self._notices = Notices(lambda: () if is_silent else workspace.definition.notify)

    def tell(self, event: Event, text: str) -> None:
        """A message about an active run."""
        moment, text = self._workspace.moment, self._workspace.redactor.text(text)
        if self._watch:
            self._watch.noticed(event, text)
        url = self._workspace.store.url
        self._notices.send(Notice(event, f"{moment.run_id}: {text}", f"{text}\n\n{url}", _facts(moment, url)))

    def ended(self, status: EndStatus) -> None:
        """The run has stopped, durably. Its caller gets the outcome; this is for other people."""
        moment, url = self._workspace.moment, self._workspace.store.url
        if status != "sleeping":
            body, facts = "\n".join(told(status, moment, url)), _facts(moment, url) | _ending(status, moment, url)
            self._notices.send(Notice(status, f"{moment.run_id}: {status}", body, facts))

    def say_problems(self) -> None:
        """Report which notices were not sent."""
        for problem in self._notices.problems():
            self._workspace.report.add("done", problem)
            if self._watch:
                self._watch.noticed("notice", problem)

    async def finish(self) -> None:
        """Give the last notices a few seconds. Another process may own the workspace by now."""
        if self._notices.is_sending:
            await asyncio.to_thread(self._notices.wait)
        known = len(self._workspace.report.remarks)
        self.say_problems()
        if len(self._workspace.report.remarks) > known:
            with suppress(SatchelError):  # only its words for `status` are lost
                report.amend(self._workspace.store, self._workspace.report)


def told(status: EndStatus, moment: Moment, url: str) -> Iterator[str]:
    """The text of a notice: why the run stopped, and how to resume it."""
    settled, leaves = moment.root.plan.progress
    match status:
        case "paused" if moment.pause is not None:
            until = f", until {moment.pause.until}" if moment.pause.until else ""
            yield f"Paused: {moment.pause.reason}, by {moment.pause.by}{until}."
            if moment.pause.by == BY:
                yield "Raise the budget in workspace.yaml first."
            yield f"To resume: satchel resume {url}"
        case "waiting":
            yield "Waiting for a person:"
            for question in open_questions(moment):
                choices = f" ({', '.join(question.choices)})" if question.choices else ""
                yield f"{question.id}: {question.text}{choices}\n    answer in {url}/{question.path}"
        case "failed":
            why = f"{moment.error.kind}: {moment.error.message}" if moment.error else moment.reason
            yield f"Failed: {why}"
            yield f"To try again: satchel resume {url}"
        case _:
            yield f"{status.capitalize()}{f': {moment.reason}' if moment.reason else ''}."
    if leaves:
        yield f"{settled} of {leaves} items done."


def _facts(moment: Moment, url: str) -> dict[str, Any]:
    """What a webhook says of the run at any time."""
    settled, leaves = moment.root.plan.progress
    return {"run_id": moment.run_id, "workspace": url, "items": {"done": settled, "total": leaves}}


def _ending(status: EndStatus, moment: Moment, url: str) -> dict[str, Any]:
    """What a webhook says of a stop. `command` is the command line that continues the run, or answers the question if a
    decision is added."""
    resume = {"command": shlex.join(["satchel", "resume", url])}
    match status:
        case "paused" if moment.pause is not None:
            pause = moment.pause
            return {"reason": pause.reason, "by": pause.by, "until": pause.until or None, **resume}
        case "waiting":
            return {"questions": [_asked(question, url) for question in open_questions(moment)]}
        case "failed":
            error = {"kind": moment.error.kind, "message": moment.error.message} if moment.error else None
            return {"reason": moment.reason, "error": error, **resume}
        case _:
            return {"reason": moment.reason}


def _asked(question: Question, url: str) -> dict[str, Any]:
    return {
        "id": question.id,
        "text": question.text,
        "choices": question.choices,
        "schema": question.schema,
        "arguments": question.arguments,
        "context": question.facts.get("context"),
        "file": f"{url}/{question.path}",
        "command": shlex.join(["satchel", "answer", url, question.id]),
    }
