"""The forms that act: pause, resume, cancel, stop, answer, revoke, send; and the emergency stop of all runs below ROOT.

Each is a plain form, so it works without JavaScript. It calls a method of the handle, as a command does, and leads back
to the run with a note about the outcome. After a mistake the same form is shown again, with what was typed. The
emergency stop is a page that says what it will kill, and one press.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from hashlib import sha256
from itertools import islice
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from ....workspace.base import SatchelError, UsageError
from ....workspace.inbound.approvals import APPROVE, properties_of, with_changes
from ....workspace.state import folder_of_agent
from ... import api
from ...api import EXIT_CODES, OpenQuestion, is_pausing, say_revoked
from ...present import counted, describe_stop
from ...supervision.emergency import StopResult
from . import forms
from .forms import Act, Again, Done, RunForm, said
from .site import Note, Site

_KINDS = ("continue", "restart_step", "await_instructions")
_AGENTS = 40
_OPTIONS = 50
_SHORT = 80
"""Characters of a value that fits into one line."""


def routes(site: Site) -> list[BaseRoute]:
    """The routes of this module."""
    site.templates.filters.update(FILTERS)
    return [*forms.routes(site, ACTS), *stop_all_routes(site)]


def pause(asked: RunForm) -> Done:
    kind: Any = asked.text("resume") or "continue"
    try:
        if kind not in _KINDS:
            raise UsageError(f"{kind!r} is no way to resume")
        reason, until = asked.text("reason") or "manual", asked.text("until") or None
        done = asked.handle.pause(reason=reason, until=until, resume=kind)
    except SatchelError as error:
        raise Again(error, form="act/stop.html", open="pause") from None
    return said(f"Pause: {done.said}.")


def cancel(asked: RunForm) -> Done:
    try:
        done = asked.handle.cancel(reason=asked.text("reason") or "cancelled")
    except SatchelError as error:
        raise Again(error, form="act/stop.html", open="cancel") from None
    return said(f"Cancel: {done.said}.")


def stop(asked: RunForm) -> Done:
    try:
        done = asked.handle.stop(reason=asked.text("reason") or "emergency")
    except SatchelError as error:
        raise Again(error, form="act/stop.html", open="stop") from None
    return said(f"Emergency stop: {describe_stop(done)}.", is_bad=done.how == "failed")


_SAID = {code: status for status, code in EXIT_CODES.items() if status != "failed"}


def resume(asked: RunForm) -> Done:
    """In the background, by another process: the page itself runs no code of a workspace."""
    try:
        if is_pausing(asked.handle):
            done = asked.handle.withdraw()
            return said(f"Resume: {done.said}.", is_bad=done.status != "withdrawn")
        is_new = asked.handle.status(brief=True).state == "new"
        begun = asked.handle.detach(resume=not is_new, accept_drift=asked.is_on("accept_drift"))
        if begun.exit_code is not None and begun.exit_code not in _SAID:
            raise UsageError("the run did not start", why=begun.said.strip() or f"exit code {begun.exit_code}")
    except SatchelError as error:
        raise Again(error, form="act/stop.html", open="resume") from None
    if begun.exit_code is None:
        return said(f"The run is active in the background: process {begun.pid}.")
    return said(f"The run is {_SAID[begun.exit_code]}.")


def answer(asked: RunForm) -> Done:
    id = asked.text("question")
    decision, result = asked.typed.get("decision", ""), asked.text("result")
    try:
        if not id:
            raise UsageError("name the question")
        done = asked.handle.answer(
            decision,
            id,
            arguments=_changes(asked, id) if decision == APPROVE else None,
            standing=asked.is_on("standing") and decision == APPROVE,
            result=result or None,
            by=asked.text("by") or None,
            note=asked.text("note"),
            typed=True,
        )
    except SatchelError as error:
        status = asked.handle.status()
        each = next((each for each in status.questions if each.id == id), None)
        form = "act/questions.html" if each else "act/nothing.html"
        raise Again(error, form=form, each=each, status=status) from None
    if not done.is_recorded:
        return said(f"{id}: the answer is in {done.file}. {done.waits_for} takes it at the latest when the run stops.")
    words = with_changes(_words(done.answer.decision), done.answer.arguments) if done.answer else ""
    words += ", for later calls too" if done.answer and done.answer.standing else ""
    lines = [f"{id} is {'already ' if done.was_before else ''}answered: {words}."]
    if not done.waits_for and not done.questions and asked.handle.status(brief=True).holder is None:
        lines.append("No process runs the run. Resume it, if `satchel serve` does not.")
    return said(*lines)


def revoke(asked: RunForm) -> Done:
    id = asked.text("question")
    try:
        if not id:
            raise UsageError("name the question")
        done = asked.handle.revoke(id, by=asked.text("by") or None)
    except SatchelError as error:
        raise Again(error, form="run/approved.html") from None
    return said(f"{say_revoked(done)}.")


def send(asked: RunForm) -> Done:
    kind = "message" if asked.text("kind") == "message" else "task"
    try:
        text, once = asked.typed.get("text", ""), asked.text("once")
        if not text.strip():
            raise UsageError("write what to do")
        # Another text from the same form, as after the Back button of the browser, is another task
        key = f"page-{sha256(json.dumps([once, kind, text]).encode()).hexdigest()}" if once else ""
        (sent,) = asked.handle.send(text, message=kind == "message", key=key)
    except SatchelError as error:
        raise Again(error, form="act/send.html") from None
    return said(f"The {kind} is in {sent.file}.")


class Kind(NamedTuple):
    """How a question is answered on the page: by a press on one of the `choices`, or in a field."""

    choices: tuple[str, ...] = ()
    says: str = ""
    is_short: bool = False
    schema: str = ""


def answer_kind(asked: OpenQuestion) -> Kind:
    """The field for an answer. What a schema describes is typed as YAML, and checked when it is sent."""
    schema = asked.schema
    if asked.choices or schema is None or isinstance(schema, bool):
        return Kind(asked.choices)
    of, text = schema.get("type"), json.dumps(schema, indent=2, ensure_ascii=False)
    if isinstance(of, str) and of in ("integer", "number"):
        return Kind(says=of, is_short=True, schema=text)
    if of == "boolean":
        return Kind(("true", "false"), schema=text)
    options = schema.get("enum")
    if isinstance(options, list) and 0 < len(options) <= 12 and all(isinstance(each, str) for each in options):
        return Kind(tuple(map(json.dumps, options)), schema=text)
    return Kind(says=f"{of if isinstance(of, str) else 'a value'}, as YAML", schema=text)


class Argument(NamedTuple):
    """A field for an argument of a question, with the value that was asked. What is no text is typed as YAML."""

    name: str
    value: str
    options: tuple[str, ...]
    is_text: bool
    is_long: bool

    @property
    def field(self) -> str:
        return f"argument-{self.name}"


def argument_fields(asked: OpenQuestion) -> list[Argument]:
    """A field for each argument that a person may change."""
    values = asked.arguments if asked.question.may_change else None
    if values is None:
        return []
    schemas = properties_of(asked.schema)
    return [_field(name, values, schemas.get(name)) for name in dict.fromkeys((*values, *schemas))]


def _field(name: str, values: Mapping[str, Any], schema: Any) -> Argument:
    schema = schema if isinstance(schema, dict) else {}
    value = values.get(name)
    text = "" if name not in values else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    is_text = isinstance(value, str) or schema.get("type") == "string"
    options = ["true", "false"] if schema.get("type") == "boolean" else schema.get("enum")
    if not isinstance(options, list) or not all(isinstance(each, str) for each in options) or text not in options:
        options = []
    return Argument(name, text, tuple(options[:_OPTIONS]), is_text, len(text) > _SHORT or "\n" in text)


def _changes(asked: RunForm, id: str) -> dict[str, str] | None:
    """The arguments whose fields differ from what was asked, as on a command line."""
    if not any(name.startswith("argument-") for name in asked.typed):
        return None
    each = next((each for each in asked.handle.questions() if each.id == id), None)
    changes = {}
    for argument in argument_fields(each) if each else ():
        typed = asked.typed.get(argument.field, argument.value).replace("\r\n", "\n")
        if typed != argument.value.replace("\r\n", "\n"):
            changes[argument.name] = json.dumps(typed, ensure_ascii=False) if argument.is_text else typed
    return changes or None


def capitalize_first(text: str) -> str:
    return text[:1].upper() + text[1:]


def editable_agents(agents: Mapping[str, Any]) -> list[str]:
    """The folders of the first agents of a run, its own first."""
    return [folder_of_agent(path) for path in islice(agents, _AGENTS)]


def _words(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


ACTS: dict[str, Act] = {
    "pause": pause,
    "resume": resume,
    "cancel": cancel,
    "stop": stop,
    "answer": answer,
    "revoke": revoke,
    "send": send,
}

FILTERS: dict[str, Callable[..., Any]] = {
    "answer_kind": answer_kind,
    "argument_fields": argument_fields,
    "capitalize_first": capitalize_first,
    "editable_agents": editable_agents,
}
"""The filters of the templates in act/."""


PATH = "/-/stop-all"

_NAMED = 40
"""Active runs that the page names before it kills them."""

_IDLE = 500
"""Runs without a process that are named afterwards, one a line. All the others are."""

_ORDER = ("failed", "elsewhere", "draining", "stopped", "idle", "new")
"""What a person may have to do something about comes first."""


def stop_all_routes(site: Site) -> list[BaseRoute]:
    """The routes of the emergency stop."""

    def page(show: Callable[[Site, Request], Response]) -> Callable[[Request], Response]:
        return lambda request: show(site, request)

    return [Route(PATH, page(confirm), methods=["GET"]), Route("/-/act/stop-all", page(stop_all), methods=["POST"])]


def confirm(site: Site, request: Request) -> Response:
    """What will be killed, and the form. After a stop also what became of each run."""
    return site.page(request, "stop_all.html", **_facts(site))


def stop_all(site: Site, request: Request) -> Response:
    """Kill what runs below the root, as `satchel stop --all` does: found now, not from the last look of the list."""
    typed = dict(request.state.form)
    try:
        places = api.open_all(site.overview.url)
        stopped = api.stop_all(places, reason=typed.get("reason", "").strip() or "emergency")
    except SatchelError as error:
        return site.page(request, "stop_all.html", 422, typed=typed, error=error, **_facts(site))
    is_bad = any(each.how == "failed" for each in stopped)
    site.runs(patience=None, now=not site.overview.is_remote)  # the page that follows shall not name what is dead
    note = site.notes.keep(Note(tuple(told(site, stopped)), is_bad))
    return RedirectResponse(f"{PATH}?note={note}", 303)


def told(site: Site, stopped: list[StopResult]) -> list[str]:
    """A line about all, and one for each run."""
    if not stopped:
        return ["There is no run to stop."]
    count = Counter[str](each.how for each in stopped)
    words = {
        "failed": "not stopped",
        "elsewhere": "asked to stop on another machine",
        "draining": "stopping",
        "stopped": "stopped",
        "idle": "not running",
        "new": "never begun and left alone",
    }
    rest = max(0, count["idle"] - _IDLE)
    begun = [each for each in stopped if each.how != "new"]
    shown = sorted(begun, key=lambda each: _ORDER.index(each.how))[: len(begun) - rest]
    lines = [
        f"Of {counted(len(stopped), 'run')}: {', '.join(f'{count[how]} {words[how]}' for how in _ORDER if count[how])}."
    ]
    lines += [f"{site.name_at(each.url)}: {describe_stop(each)}." for each in shown]
    return [*lines, f"And {rest} more that were not running."] if rest else lines


def _facts(site: Site) -> dict[str, Any]:
    """The runs that a process runs, by name, and how many there are. `seen` is None before the first look."""
    seen = site.runs()
    runs = seen.runs if seen else []
    active = [site.name_of(run) for run in runs if run.status.holder is not None]
    return {"seen": seen, "active": active, "named": active[:_NAMED], "others": len(runs) - len(active)}
