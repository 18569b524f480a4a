"""The forms of a run. Those that act: pause, resume, cancel, stop, answer, revoke, send. Those that correct: edit the
plan and the data, settle conflicts, rewind, redo, fork; and the pages that show them.

Each is a plain form, so it works without JavaScript. It calls a method of the handle, as a command does, and leads back
to the run with a note about the outcome. After a mistake the same form is shown again, with what was typed.
"""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from hashlib import sha256
from itertools import islice
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from ....workspace.base import Conflicting, SatchelError, UsageError, check_path, urls
from ....workspace.inbound import APPROVE, properties_of
from ....workspace.state import folder_of_agent
from ...api import OpenQuestion, Seen, by_need, value_of
from ...present import choice_line, describe_answer, describe_revocation, describe_stop, offered_choices, side_texts
from . import starting
from .site import Note, RunRequest, Site, run_url


class RunForm(RunRequest, frozen=True):
    """A form about one run, as it came from the browser."""

    typed: dict[str, str]

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


def _form_of(site: Site, request: Request) -> RunForm:
    """The run that a request is about, and what was typed."""
    run = site.find(request.path_params["name"])
    return RunForm(site, request, run, site.handle(run), dict(getattr(request.state, "form", ())))


def _act(site: Site, request: Request, act: Act) -> Response:
    form = _form_of(site, request)
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
    if not done.waits_for and not done.questions:
        with suppress(SatchelError):  # the answer is on record, even if the run can't be looked at now
            if asked.handle.status(brief=True).holder is None:
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


# What corrects: the plan and the data

LIMIT = 1 << 20
"""Bytes of a file that can be edited on the page."""

_LINES = 200
_TOLD = 12
_FOUND = 200  # errors of files


def editor(asked: RunForm) -> Response:
    """A file in a field, with the version that was read."""
    file = asked.query.get("file", "todo.md")
    draft = asked.handle.files.draft(file)
    _check_text(file, draft.text)
    return _page(
        asked,
        "act/editor.html",
        file=file,
        text=draft.text,
        file_version=draft.version,
        now="",
        conflicts=False,
        error=None,
    )


def edit(asked: RunForm) -> Done:
    file, text, version = asked.text("file"), asked.typed.get("text", ""), asked.typed.get("version", "")
    is_conflict = asked.is_on("conflict")
    draft = asked.handle.files.draft(file)
    if "\r\n" in draft.text:  # a browser sends any line end as the same
        text = text.replace("\n", "\r\n")
    done = asked.handle.files.edit(file, text, version=version, conflict=is_conflict)
    if not done.says:
        return said(f"{file}: that changes nothing.", *done.notes)
    taken = f"{done.waits_for} takes it at its next safe point" if done.waits_for else "the next start takes it"
    if is_conflict:
        return Done(Note((f"{file} is saved, and conflicts with the run.",)), "/-/merge")
    return said(f"{file} is saved; {taken}.", *done.says[:_TOLD], *done.notes[:_TOLD])


def _edit_again(asked: RunForm, error: SatchelError) -> dict[str, Any]:
    file, text, version = asked.text("file"), asked.typed.get("text", ""), asked.typed.get("version", "")
    facts: dict[str, Any] = {"file": file, "text": text, "now": "", "file_version": version, "conflicts": False}
    if isinstance(error, Conflicting):
        now = asked.handle.files.draft(file)
        is_saved = now.version != version and "another person" in error.what
        facts["now"] = difference(now.text, text)
        facts["file_version"] = now.version if is_saved else version  # it is shown now, so it may be replaced
        facts["conflicts"] = not is_saved
    return facts


def _check_text(file: str, text: str) -> None:
    if len(text.encode()) > LIMIT:
        raise UsageError("is too large for the page", path=file, remedy="edit it with an editor")
    if "\0" in text or "\r" in text.replace("\r\n", ""):
        raise UsageError("has characters that a browser changes", path=file, remedy="edit it with an editor")


def difference(old: str, new: str) -> str:
    """The lines that differ, each with its sign."""
    lines = [*difflib.unified_diff(old.splitlines(), new.splitlines(), n=1, lineterm="")][2:]
    more = [f"and {len(lines) - _LINES} more lines"] if len(lines) > _LINES else []
    return "\n".join([*lines[:_LINES], *more])


def conflicts(asked: RunForm) -> Response:
    """The conflicts of files and the run: the versions of each place, and what each choice does."""
    return _page(asked, "act/merge.html", **_merging(asked), error=None)


def _merging(asked: RunForm) -> dict[str, Any]:
    return {"merging": asked.handle.merge(), "version_of": asked.handle.store.version}


def merge(asked: RunForm) -> Done:
    use: Any = asked.text("use") or ""
    file = asked.text("file")
    if asked.typed.get("version", "") != (asked.handle.store.version(file) or ""):
        raise UsageError(
            "has changed since you have read it here", path=file, remedy="look at the versions again, then choose"
        )
    done = asked.handle.merge(use, files=[file])
    note = Note((f"{', '.join(done.settled)}: settled.", *(each.text for each in done.report[1:_TOLD])))
    return Done(note, "/-/merge" if done.open else "")


def check(asked: RunForm) -> Response:
    """What is wrong with the files of the run, and what the next start would do about it."""
    found = asked.handle.check()
    return asked.page("check.html", found=found, most=_FOUND)


# Earlier moments


def back(asked: RunForm) -> Response:
    """What a rewind to a moment would do, and the forms for it and for a fork."""
    at = asked.request.path_params["at"]
    return _page(asked, "act/going_back.html", **_going_back(asked, at), error=None)


def _going_back(asked: RunForm, at: str) -> dict[str, Any]:
    planned, refused = None, ""
    try:
        planned = asked.handle.history.rewind(to=_moment(at), dry_run=True)
    except SatchelError as error:
        refused = str(error)
    proposed = f"{asked.name}-{at.strip('^').partition('/')[0]}" if at else asked.name
    return {"at": at, "item": "", "planned": planned, "refused": refused, "proposed": proposed}


def rewind(asked: RunForm) -> Done:
    at = _moment(asked.text("at"))
    done = asked.handle.history.rewind(to=at, forget=asked.is_on("forget"), reuse=asked.is_on("reuse"))
    return said(f"The run is at record {done.to} again. Resume continues it.", *done.says[:_TOLD])


def fork(asked: RunForm) -> Done:
    at, to = _moment(asked.text("at")), asked.text("to").strip("/")
    place = _below(asked.site, to)
    done = asked.handle.history.fork(place, at=at, effects=asked.is_on("effects"), reuse=asked.is_on("reuse"))
    asked.site.overview.look(now=True)
    note = Note((f"This is {done.run_id}, a fork of {asked.name} at record {done.seq}. Resume continues it.",))
    return Done(note, name=to)


def redo_page(asked: RunForm) -> Response:
    """What doing an item again would do."""
    return _page(asked, "act/going_back.html", **_redoing(asked, asked.request.path_params["item"]), error=None)


def _redoing(asked: RunForm, item: str) -> dict[str, Any]:
    redoing, refused = None, ""
    try:
        redoing = asked.handle.history.redo(item, dry_run=True)
    except SatchelError as error:
        refused = str(error)
    return {"at": "", "item": item, "redoing": redoing, "refused": refused}


def redo(asked: RunForm) -> Done:
    done = asked.handle.history.redo(asked.text("item"), effects=asked.is_on("effects"))
    return said(f"Item {done.item} ({done.title}) will be done again. Resume continues the run.")


def _moment(at: str) -> int | str:
    return int(at) if at.isascii() and at.isdecimal() and len(at) < 16 else at


def _below(site: Site, name: str) -> str:
    """The place of a new run below the root. UsageError if it would be elsewhere, also through a link."""
    if not name:
        raise UsageError("the new run needs a name")
    try:
        check_path(name)
    except UsageError as error:
        raise UsageError("is not a path below the runs", path=name, remedy=error.remedy) from None
    if any(part.startswith(".") for part in name.split("/")):
        raise UsageError("is hidden, so the run would not be in the list", path=name, remedy="choose another name")
    root = site.overview.url
    place = urls.join(root, name)
    if not site.overview.is_remote and os.path.realpath(place) != place:
        raise UsageError("leads out of the root", path=name, remedy="choose another name")
    return place


def _page(asked: RunForm, template: str, **facts: Any) -> Response:
    return asked.site.page(asked.request, template, name=asked.name, **facts)


def _back_again(asked: RunForm, error: SatchelError) -> dict[str, Any]:
    return _going_back(asked, asked.text("at"))


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
    "edit": Act(edit, _edit_again, "act/editor.html"),
    "merge": Act(merge, lambda asked, error: _merging(asked), "act/merge.html"),
    "rewind": Act(rewind, _back_again, "act/going_back.html"),
    "fork": Act(fork, _back_again, "act/going_back.html"),
    "redo": Act(redo, lambda asked, error: _redoing(asked, asked.text("item")), "act/going_back.html"),
}

FILTERS: dict[str, Callable[..., Any]] = {
    "answer_kind": answer_kind,
    "argument_fields": argument_fields,
    "asked": count_asked,
    "capitalize_first": capitalize_first,
    "editable_agents": editable_agents,
}
"""The filters of the templates in act/."""


def routes(site: Site) -> list[BaseRoute]:
    """The routes of this module: the forms, and the pages that show them."""
    site.templates.filters.update(FILTERS)
    site.templates.globals |= {"choice_line": choice_line, "offered_choices": offered_choices, "side_texts": side_texts}
    below = "/run/{name:path}/-"
    made = [
        Route(f"{below}/act/{name}", lambda request, act=act: _act(site, request, act), methods=["POST"])
        for name, act in ACTS.items()
    ]
    pages = {"edit": editor, "merge": conflicts, "check": check, "back/{at}": back, "redo/{item:path}": redo_page}
    for path, show in pages.items():
        made.append(Route(f"{below}/{path}", lambda request, show=show: show(_form_of(site, request))))
    return [*made]
