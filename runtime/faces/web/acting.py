"""The forms that act: pause, resume, cancel, stop, answer, revoke, send; and what all forms share.

Each is a plain form, so it works without JavaScript. It calls a method of the handle, as a command does, and leads back
to the run with a note about the outcome. After a mistake the same form is shown again, with what was typed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from hashlib import sha256
from itertools import islice
from typing import Any, NamedTuple

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from ....workspace.base import SatchelError, UsageError
from ....workspace.inbound import APPROVE, properties_of
from ....workspace.state import folder_of_agent
from ...api import Handle, OpenQuestion, Seen, SeenRun, by_need, value_of
from ...present import describe_answer, describe_revocation, describe_stop
from . import starting
from .site import Note, Site, run_url


class RunForm(Struct, frozen=True):
    """A form about one run, as it came from the browser."""

    site: Site
    request: Request
    run: SeenRun
    handle: Handle
    typed: dict[str, str]

    @property
    def name(self) -> str:
        return self.site.name_of(self.run)

    def text(self, field: str) -> str:
        return self.typed.get(field, "").strip()

    def is_on(self, field: str) -> bool:
        return self.typed.get(field) == "yes"


class Done(NamedTuple):
    """What an act has done, and the page that shows it: of the run, or below it, and the place on it; or the page of
    another run."""

    note: Note
    below: str = ""
    name: str = ""
    anchor: str = ""


class Act(NamedTuple):
    """What a form does. If that is refused, the `template` shows the form again, with what `again` gives."""

    do: Callable[[RunForm], Done]
    again: Callable[[RunForm, SatchelError], dict[str, Any]]
    template: str = "act/again.html"


def act_routes(site: Site, acts: Mapping[str, Act]) -> list[BaseRoute]:
    """A route for each act, by its name."""
    made = list[BaseRoute]()
    for name, act in acts.items():
        path = f"/run/{{name:path}}/-/act/{name}"
        made.append(Route(path, lambda request, act=act: _act(site, request, act), methods=["POST"]))
    return made


def form_of(site: Site, request: Request, typed: Mapping[str, str]) -> RunForm:
    """The run that a request is about, and what was typed."""
    run = site.find(request.path_params["name"])
    return RunForm(site, request, run, site.handle(run), dict(typed))


def _act(site: Site, request: Request, act: Act) -> Response:
    form = form_of(site, request, dict(request.state.form))
    try:
        done = act.do(form)
    except SatchelError as error:
        facts = {"typed": form.typed, "error": error, "name": form.name, **act.again(form, error)}
        if "status" not in facts:
            try:
                facts["status"] = form.handle.status(brief=True)
            except SatchelError:  # then the form can't be shown, but why it was refused can
                raise error from None
        return site.page(request, act.template, 422, **facts)
    note = f"?note={site.notes.keep(done.note)}"
    return RedirectResponse(f"{run_url(done.name or form.name)}{done.below}{note}{done.anchor}", 303)


def said(*lines: str, is_bad: bool = False) -> Done:
    """An outcome that the page of the run shows."""
    return Done(Note(tuple(lines), is_bad))


# What acts

_KINDS = ("continue", "restart_step", "await_instructions")
_AGENTS = 40
_OPTIONS = 50
_FIELDS = 100
"""Arguments that have a field. The others stay as they were asked."""

_LIMIT = "limit-"
"""Before the name of a limit, in the name of its field."""

_SHORT = 80
"""Characters of a value that fits into one line."""


def routes(site: Site) -> list[BaseRoute]:
    """The routes of this module."""
    site.templates.filters.update(FILTERS)
    return act_routes(site, ACTS)


def pause(asked: RunForm) -> Done:
    kind: Any = asked.text("resume") or "continue"
    if kind not in _KINDS:
        raise UsageError(f"{kind!r} is no way to resume")
    reason, until = asked.text("reason") or "manual", asked.text("until") or None
    done = asked.handle.pause(reason=reason, until=until, resume=kind)
    return said(f"Pause: {done.said}.")


def cancel(asked: RunForm) -> Done:
    done = asked.handle.cancel(reason=asked.text("reason") or "cancelled")
    return said(f"Cancel: {done.said}.")


def stop(asked: RunForm) -> Done:
    done = asked.handle.stop(reason=asked.text("reason") or "emergency")
    return said(f"Emergency stop: {describe_stop(done)}.", is_bad=done.how == "failed")


def resume(asked: RunForm) -> Done:
    is_new = asked.handle.status(brief=True).state == "new"
    given = starting.arguments_of(starting.start_form(asked.run.url), asked.typed) if is_new else None
    return Done(starting.go_on(asked.handle, accept_drift=asked.is_on("accept_drift"), input=given))


def _resume_again(asked: RunForm, error: SatchelError) -> dict[str, Any]:
    wrong = starting.beside(error, starting.start_form(asked.run.url))
    return {"form": "act/stop.html", "open": "resume", "wrong_fields": wrong}


def raise_budget(asked: RunForm) -> Done:
    """Raise the limits that are used up, and resume."""
    typed = {name.removeprefix(_LIMIT): text for name, text in asked.typed.items() if name.startswith(_LIMIT)}
    done = asked.handle.files.raise_budget({kind: value_of(text.strip()) for kind, text in typed.items()})
    return Done(starting.go_on_after(asked.handle, f"In workspace.yaml {', '.join(done.says)}."))


def answer(asked: RunForm) -> Done:
    id = asked.text("question")
    decision, result = asked.typed.get("change") or asked.typed.get("decision", ""), asked.text("result")
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
    lines = [f"{describe_answer(done)}."]
    if not done.is_recorded:
        return said(*lines)
    if not done.waits_for and not done.questions and asked.handle.status(brief=True).holder is None:
        lines.append("No process runs the run. Resume it, if `satchel serve` does not.")
    if done.questions:
        return Done(Note(tuple(lines)), anchor=f"#question-{done.questions[0].id}")
    return Done(Note(tuple(lines), next_run=_next_to_ask(asked)))


def _answer_again(asked: RunForm, error: SatchelError) -> dict[str, Any]:
    status = asked.handle.status()
    each = next((each for each in status.questions if each.id == asked.text("question")), None)
    return {"form": "act/questions.html" if each else "act/nothing.html", "each": each, "status": status}


def count_asked(seen: Seen | None) -> int:
    """How many questions are open below the root, for the title of the list."""
    return sum(len(run.status.questions) for run in seen.runs) if seen else 0


def _next_to_ask(asked: RunForm) -> str:
    """Another run that asks something, as far as the last look at all runs has shown; empty if none does."""
    seen = asked.site.overview.seen
    runs = sorted(seen.runs if seen else (), key=lambda run: by_need(run.status))
    asking = (run for run in runs if run.status.questions and run.url != asked.run.url)
    return next((asked.site.name_of(run) for run in asking), "")


def revoke(asked: RunForm) -> Done:
    id = asked.text("question")
    if not id:
        raise UsageError("name the question")
    done = asked.handle.revoke(id, by=asked.text("by") or None)
    return said(f"{describe_revocation(done)}.")


def send(asked: RunForm) -> Done:
    kind = "message" if asked.text("kind") == "message" else "task"
    text, once = asked.typed.get("text", ""), asked.text("once")
    if not text.strip():
        raise UsageError("write what to do")
    # Another text from the same form, as after the Back button of the browser, is another task
    key = f"page-{sha256(json.dumps([once, kind, text]).encode()).hexdigest()}" if once else ""
    (sent,) = asked.handle.send(text, message=kind == "message", key=key)
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
    names = islice(dict.fromkeys((*values, *schemas)), _FIELDS)
    return [_field(name, values, schemas.get(name)) for name in names]


def _field(name: str, values: Mapping[str, Any], schema: Any) -> Argument:
    schema = schema if isinstance(schema, dict) else {}
    value = values.get(name)
    text = "" if name not in values else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    is_text = isinstance(value, str) or schema.get("type") == "string"
    options = ["true", "false"] if schema.get("type") == "boolean" else schema.get("enum")
    if not isinstance(options, list) or not all(isinstance(each, str) for each in options) or text not in options:
        options = []
    is_long = len(text) > _SHORT or "\n" in _as_sent(text)
    return Argument(name, text, tuple(options[:_OPTIONS]), is_text, is_long)


def _as_sent(text: str) -> str:
    """A text as a browser sends it that was not touched: HTML has no other line ends, and no NUL."""
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd")


def _changes(asked: RunForm, id: str) -> dict[str, str] | None:
    """The arguments whose fields differ from what was asked, as on a command line."""
    if not any(name.startswith("argument-") for name in asked.typed):
        return None
    each = next((each for each in asked.handle.questions() if each.id == id), None)
    changes = {}
    for argument in argument_fields(each) if each else ():
        typed = _as_sent(asked.typed.get(argument.field, argument.value))
        if typed != _as_sent(argument.value):
            changes[argument.name] = json.dumps(typed, ensure_ascii=False) if argument.is_text else typed
    if asked.typed.get("change") and not changes:
        raise UsageError("no argument has another value", remedy="change one, or approve the call as it was asked")
    if changes and not asked.typed.get("change"):
        raise UsageError(
            f"another value is typed for {', '.join(changes)}",
            why="this button approves the call as it was asked",
            remedy="press `Approve with these changes`, or type the value that was asked again",
        )
    return changes or None


def capitalize_first(text: str) -> str:
    return text[:1].upper() + text[1:]


def editable_agents(agents: Mapping[str, Any]) -> list[str]:
    """The folders of the first agents of a run, its own first."""
    return [folder_of_agent(path) for path in islice(agents, _AGENTS)]


ACTS = {
    "pause": Act(pause, lambda asked, error: {"form": "act/stop.html", "open": "pause"}),
    "resume": Act(resume, _resume_again),
    "raise_budget": Act(
        raise_budget, lambda asked, error: {"form": "act/budget.html", "status": asked.handle.status()}
    ),
    "cancel": Act(cancel, lambda asked, error: {"form": "act/stop.html", "open": "cancel"}),
    "stop": Act(stop, lambda asked, error: {"form": "act/stop.html", "open": "stop"}),
    "answer": Act(answer, _answer_again),
    "revoke": Act(revoke, lambda asked, error: {"form": "run/approved.html"}),
    "send": Act(send, lambda asked, error: {"form": "act/send.html"}),
}

FILTERS: dict[str, Callable[..., Any]] = {
    "answer_kind": answer_kind,
    "argument_fields": argument_fields,
    "asked": count_asked,
    "capitalize_first": capitalize_first,
    "editable_agents": editable_agents,
}
"""The filters of the templates in act/."""
