"""The forms that correct a run: edit its plan and data, check its files, settle conflicts, rewind, redo, fork."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ....workspace.base import Conflicting, SatchelError, UsageError, check_path, urls
from ...present import choice_line, offered_choices, side_texts
from .acting import Act, Done, RunForm, act_routes, form_of, said
from .site import Note, Site

LIMIT = 1 << 20
"""Bytes of a file that can be edited on the page."""

_LINES = 200
_TOLD = 12
_FOUND = 200  # errors of files


def routes(site: Site) -> list[BaseRoute]:
    """The routes of this module: the forms, and the pages that show them."""
    site.templates.globals |= {"choice_line": choice_line, "offered_choices": offered_choices, "side_texts": side_texts}

    def page(show: Callable[[RunForm], Response]) -> Callable[[Request], Response]:
        return lambda request: show(form_of(site, request, {}))

    below = "/run/{name:path}/-"
    return [
        *act_routes(site, ACTS),
        Route(f"{below}/edit", page(editor)),
        Route(f"{below}/merge", page(conflicts)),
        Route(f"{below}/check", page(check)),
        Route(f"{below}/back/{{at}}", page(back)),
        Route(f"{below}/redo/{{item:path}}", page(redo_page)),
    ]


# The plan and the data


def editor(asked: RunForm) -> Response:
    """A file in a field, with the version that was read."""
    file = asked.request.query_params.get("file", "todo.md")
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
    return asked.site.run_page(asked.request, "check.html", asked.run, asked.handle, found=found, most=_FOUND)


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
    "edit": Act(edit, _edit_again, "act/editor.html"),
    "merge": Act(merge, lambda asked, error: _merging(asked), "act/merge.html"),
    "rewind": Act(rewind, _back_again, "act/going_back.html"),
    "fork": Act(fork, _back_again, "act/going_back.html"),
    "redo": Act(redo, lambda asked, error: _redoing(asked, asked.text("item")), "act/going_back.html"),
}
