"""What all forms that act share: the form as it came, the outcome, and the same form again after a mistake."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from ....workspace.base import SatchelError
from ...api import Handle, SeenRun
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
    """What an act has done, and the page that shows it: of the run, or below it; or the page of another run."""

    note: Note
    below: str = ""
    name: str = ""


class Again(Exception):
    """An act that was refused: the template of its form, and what that needs."""

    def __init__(self, error: SatchelError, template: str = "act/again.html", **facts: Any):
        super().__init__(str(error))
        self.error, self.template, self.facts = error, template, facts


Act = Callable[[RunForm], Done]


def routes(site: Site, acts: Mapping[str, Act]) -> list[Route]:
    """A route for each act, by its name."""
    made = []
    for name, act in acts.items():
        path = f"/run/{{name:path}}/-/act/{name}"
        made.append(Route(path, lambda request, act=act: _answer(site, request, act), methods=["POST"]))
    return made


def asked(site: Site, request: Request, typed: Mapping[str, str]) -> RunForm:
    """The run that a request is about, and what was typed."""
    run = site.find(request.path_params["name"])
    return RunForm(site, request, run, site.handle(run), dict(typed))


def _answer(site: Site, request: Request, act: Act) -> Response:
    form = asked(site, request, dict(request.state.form))
    try:
        done = act(form)
    except Again as again:
        facts = {"typed": form.typed, "error": again.error, "name": form.name, **again.facts}
        if "status" not in facts:
            try:
                facts["status"] = form.handle.status(brief=True)
            except SatchelError:  # then the form can't be shown, but why it was refused can
                raise again.error from None
        return site.page(request, again.template, 422, **facts)
    note = f"?note={site.notes.keep(done.note)}"
    return RedirectResponse(f"{run_url(done.name or form.name)}{done.below}{note}", 303)


def said(*lines: str, is_bad: bool = False) -> Done:
    """An outcome that the page of the run shows."""
    return Done(Note(tuple(lines), is_bad))
