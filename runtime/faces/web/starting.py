"""Start a run, or resume one; the form of a new one, from a sample or an existing run; the arguments of one that
never began.

The fields are the parameters of the agent, as its source says, and the settings of the template. The page imports no
agent: another process checks the arguments and makes the workspace, as `satchel new` does.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

from msgspec import UNSET, Struct, UnsetType
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from ....workspace.base import DEFINITION, InvalidFile, SatchelError, UsageError, urls
from ....workspace.formats import Definition, definition, yamltext
from ....workspace.store import Store
from ... import api
from ...api import EXIT_CODES, Handle, SeenRun, Setting, Template, is_pausing
from .site import Note, Site, run_url

PATH = "/-/new"

FIELDS = 100
"""Arguments, and settings, that have a field. The other settings keep the value of the template."""

_LISTED = 12
"""Existing runs that are offered, each with another agent; the others by name."""

_ALL = "input"
"""The field of all arguments, where the source does not tell the parameters."""


ValueKind = Literal["text", "whole", "number", "truth", "choice", "yaml"]
"""How a value is typed: as text, as a number, by a choice, or as YAML."""

_SOURCE = 1 << 20  # bytes of the source of an agent that are read
_KINDS: dict[str, ValueKind] = {"str": "text", "int": "whole", "float": "number", "bool": "truth"}
_LITERALS: dict[type, ValueKind] = {str: "text", int: "whole", float: "number", bool: "truth"}
_OPTIONS = 50


class FormField(Struct, frozen=True):
    """A field for an argument or a setting. `text`: what is in it, which is its `value`. `is_needed`: the agent has no
    default. `hint`: its type, and what an empty field means."""

    name: str
    label: str
    kind: ValueKind
    text: str
    value: Any = UNSET
    options: tuple[str, ...] = ()
    about: str = ""
    hint: str = ""
    is_needed: bool = False

    @property
    def id(self) -> str:
        return "f-" + re.sub(r"\W", lambda each: f"-{ord(each[0]):x}-", self.name)

    @property
    def is_long(self) -> bool:
        return self.kind in ("text", "yaml") and ("\n" in self.text or len(self.text) > 60 or self.kind == "yaml")


class StartForm(Struct, frozen=True):
    """The fields of a start: what the agent says of itself, its `arguments`, and the `settings` of a template. `given`:
    the arguments that workspace.yaml has."""

    about: str
    arguments: Sequence[FormField]
    settings: Sequence[FormField] = ()
    given: Mapping[str, Any] = {}


class _Source(NamedTuple):
    """What a new run is made from: its query, its template, and what it is called."""

    query: dict[str, str]
    template: Template
    said: str


def routes(site: Site) -> list[BaseRoute]:
    """The routes of this module."""
    site.templates.globals.update(start_form=start_form)
    return [
        Route(PATH, lambda request: choose(site, request), methods=["GET"]),
        Route("/-/act/new", lambda request: make(site, request), methods=["POST"]),
    ]


# The fields


def start_form(url: str) -> StartForm:
    """The arguments of a run that never began. Without fields, if its agent takes none, or can't be asked."""
    try:
        store = api.open(url).store
        said = definition.parse(store.read(DEFINITION).data)
        about, arguments = _arguments(store, said)
        return StartForm(about, arguments, given=said.input)
    except (SatchelError, OSError):  # the start says what is wrong
        return StartForm("", [])


def _arguments(store: Store, said: Definition) -> tuple[str, list[FormField]]:
    signature = signature_of(store, said.agent)
    if signature is None:
        shown = yamltext.dump(said.input).rstrip() if said.input else ""
        about = "The source of the agent does not tell which arguments it takes."
        field = FormField(
            _ALL, "Arguments", "yaml", shown, said.input, about=about, hint="YAML: name and value. Empty: none"
        )
        return "", [field] if said.agent else []
    found = []
    for each in signature.parameters[:FIELDS]:
        value = said.input.get(each.name, each.value)
        is_needed = each.default is None and each.name not in said.input
        default = "" if is_needed or value is not UNSET else f"empty: {each.default}"
        ways = ["" if each.kind == "choice" else each.annotation, default]
        found.append(
            FormField(
                f"{_ALL}.{each.name}",
                each.name,
                each.kind,
                _shown(each.kind, value),
                value,
                each.options,
                each.about,
                "; ".join(filter(None, [*ways, "as YAML" if each.kind == "yaml" else ""])),
                is_needed,
            )
        )
    return signature.about, found


def _settings(found: Sequence[Setting]) -> Iterator[FormField]:
    for each in found[:FIELDS]:
        kind: ValueKind = "yaml"
        if isinstance(each.value, bool):
            kind = "truth"
        elif isinstance(each.value, int | float):
            kind = "number"
        elif isinstance(each.value, str):
            kind = "text"
        hint = {"truth": "", "number": "a number", "text": "", "yaml": "as YAML"}
        yield FormField(
            f"set.{each.name}", each.name, kind, _shown(kind, each.value), each.value, (), each.about, hint[kind]
        )


def _shown(kind: ValueKind, value: Any) -> str:
    if value is UNSET or (value is None and kind != "yaml"):
        return ""
    if isinstance(value, str) and kind != "yaml":
        return value
    try:
        is_short = not isinstance(value, dict | list) or len(json.dumps(value)) < 60
        return json.dumps(value, ensure_ascii=False) if is_short else yamltext.dump(value).rstrip()
    except (TypeError, ValueError, UsageError):  # a default that JSON can't have
        return ""


class Wrong(UsageError):
    """Values that were typed can't be taken: the reason by the name of the field."""

    def __init__(self, fields: Mapping[str, str]):
        super().__init__("some values can't be taken", remedy="correct the fields that say so")
        self.fields = dict(fields)


def read(fields: Sequence[FormField], typed: Mapping[str, str]) -> dict[str, Any]:
    """The values that differ from what was in the fields, by their labels. Wrong names those that can't be."""
    found, wrong = dict[str, Any](), dict[str, str]()
    for each in fields:
        text = typed.get(each.name, each.text).replace("\r\n", "\n")
        is_empty = not (text if each.kind == "text" else text.strip())
        if is_empty and each.is_needed:
            wrong[each.name] = "the agent needs a value"
        if text == each.text or (is_empty and (each.kind != "text" or not isinstance(each.value, str))):
            continue
        try:
            found[each.label] = _value(each, text)
        except UsageError as error:
            wrong[each.name] = str(error)
    if wrong:
        raise Wrong(wrong)
    return found


def _value(field: FormField, text: str) -> Any:
    word = text.strip()
    match field.kind:
        case "text":
            return text
        case "choice" if text in field.options:
            return text
        case "truth" if word in ("true", "false"):
            return word == "true"
        case "whole" | "number" if re.fullmatch(r"[+-]?[0-9]{1,100}", word):
            return int(word)
        case "number" if re.fullmatch(r"[+-]?[0-9.]{1,40}([eE][+-]?[0-9]{1,3})?", word):
            try:
                if math.isfinite(number := float(word)):
                    return number
            except ValueError:
                pass
        case "yaml":
            try:
                return api.value_of(word) if "\n" not in word else yamltext.load(text, field.label).value
            except InvalidFile as error:
                raise UsageError("that is no YAML", why=error.problems[0].found) from None
    wanted = {"whole": "a whole number", "number": "a number", "truth": "true or false", "choice": "one of the choices"}
    raise UsageError(f"{text[:80]!r} is not {wanted[field.kind]}")


def arguments_of(form: StartForm, typed: Mapping[str, str]) -> dict[str, Any] | None:
    """The arguments by parameter, if they differ from those of workspace.yaml; None if they do not."""
    found = read(form.arguments, typed)
    if [each.name for each in form.arguments] != [_ALL]:
        return {**form.given, **found} if found else None
    given = next(iter(found.values()), None)
    if given is not None and not isinstance(given, dict):
        raise Wrong({_ALL: "write a name and a value for each argument, as in `topic: tides`"})
    return given


def beside(error: SatchelError, form: StartForm) -> dict[str, str]:
    """The field that an error of the agent's own check is about, with what it says."""
    if isinstance(error, Wrong):
        return error.fields
    named = re.search(r"the (?:argument|setting) '([^']+)'", str(error))
    fields = [*form.arguments, *form.settings]
    return {each.name: str(error) for each in fields if named and each.label == named[1]}


# What an agent takes, as its source says. Nothing is imported: a person may ask before its code runs. An agent of an
# installed module is not looked up, since that would import its packages, and neither is one that is no plain function
# of its file. The types of what a person types are judged where the agent is loaded; here they only say which field is
# shown


class AgentParameter(Struct, frozen=True):
    """A parameter: its `annotation` and its `default` as they are written (None: an argument is needed), and the
    `value` of a default that is plain. `about`: what its annotation or the docstring says of it."""

    name: str
    kind: ValueKind
    annotation: str = ""
    default: str | None = None
    value: Any | UnsetType = UNSET
    options: tuple[str, ...] = ()
    about: str = ""


class AgentSignature(Struct, frozen=True):
    """An agent: the beginning of its docstring, and its parameters without the run."""

    about: str
    parameters: tuple[AgentParameter, ...]


def signature_of(store: Store, reference: str) -> AgentSignature | None:
    """That of the agent `agent.py:main`. None if its source does not tell."""
    path, _, name = reference.partition(":")
    if not path.endswith(".py"):
        return None
    try:
        tree = ast.parse(store.read(path, limit=_SOURCE).data)
    except (FileNotFoundError, InvalidFile, SyntaxError, ValueError, RecursionError, MemoryError):
        return None  # the start says what is wrong
    for node in reversed(tree.body):  # the last one counts
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            said = ast.get_docstring(node) or ""
            return AgentSignature(said.partition("\n\n")[0], tuple(_parameters(node, said))[1:])
    return None


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef, said: str) -> Iterator[AgentParameter]:
    given = function.args
    plain = [*given.posonlyargs, *given.args]
    defaults: list[ast.expr | None] = [None] * (len(plain) - len(given.defaults))
    for each, default in zip(plain, [*defaults, *given.defaults], strict=True):
        yield _parameter(each, default, said)
    if given.vararg:
        yield AgentParameter(given.vararg.arg, "yaml", f"a list of {_values_of(given.vararg)}", "[]", [])
    for each, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        yield _parameter(each, default, said)
    if given.kwarg:
        yield AgentParameter(given.kwarg.arg, "yaml", f"a mapping to {_values_of(given.kwarg)}", "{}", {})


def _values_of(argument: ast.arg) -> str:
    return ast.unparse(argument.annotation) if argument.annotation else "values"


def _parameter(argument: ast.arg, default: ast.expr | None, said: str) -> AgentParameter:
    kind, options, note = _kind_of(argument.annotation)
    value: Any = UNSET
    if default is not None:
        with suppress(ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            value = ast.literal_eval(default)
    if argument.annotation is None and value is not UNSET:
        kind = _LITERALS.get(type(value), "yaml")
    return AgentParameter(
        argument.arg,
        kind,
        _written_type(argument.annotation),
        None if default is None else ast.unparse(default),
        value,
        options,
        note or _about(argument.arg, said),
    )


def _written_type(written: ast.expr | None) -> str:
    """An annotation as it is written, without the notes of an `Annotated`."""
    match written:
        case None:
            return ""
        case ast.Subscript(value=ast.Name("Annotated") | ast.Attribute(attr="Annotated"), slice=ast.Tuple(elts=parts)):
            return ast.unparse(parts[0])
        case ast.Constant(value=str(text)):
            return text
    return ast.unparse(written)


def _kind_of(written: ast.expr | None) -> tuple[ValueKind, tuple[str, ...], str]:
    """How a value of an annotation is typed, the options of a choice, and the text of an `Annotated`."""
    match written:
        case ast.Constant(value=str(text)):
            try:
                return _kind_of(ast.parse(text, mode="eval").body)
            except (SyntaxError, ValueError, RecursionError):
                return "yaml", (), ""
        case ast.BinOp(op=ast.BitOr(), left=one, right=ast.Constant(value=None)):
            return _kind_of(one)
        case ast.BinOp(op=ast.BitOr(), left=ast.Constant(value=None), right=one):
            return _kind_of(one)
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return _KINDS.get(name, "yaml"), (), ""
        case ast.Subscript(value=ast.Name(id=name) | ast.Attribute(attr=name), slice=inside):
            parts = inside.elts if isinstance(inside, ast.Tuple) else [inside]
            if name == "Optional":
                return _kind_of(inside)
            if name == "Annotated":
                notes = [each.value for each in parts[1:] if isinstance(each, ast.Constant)]
                kind, options, _ = _kind_of(parts[0])
                return kind, options, next((each for each in notes if isinstance(each, str)), "")
            values = [each.value if isinstance(each, ast.Constant) else None for each in parts]
            if name == "Literal" and all(isinstance(each, str) for each in values):
                return "choice", tuple(str(each) for each in values[:_OPTIONS]), ""
    return "yaml", (), ""


def _about(name: str, said: str) -> str:
    """The line of a docstring about a parameter: `name: text`, `name (type): text`, `:param name: text`."""
    found = re.search(rf"^\s*(?::param )?`?{re.escape(name)}`?(?: \([^)\n]*\))?:\s+(\S.*)$", said, re.MULTILINE)
    return found[1].strip() if found else ""


# Going on

_SAID = {code: status for status, code in EXIT_CODES.items() if status != "failed"}


def go_on(handle: Handle, *, accept_drift: bool = False, input: Mapping[str, Any] | None = None) -> Note:
    """Resume a run, or start it, in the background, by another process: the page itself runs no code of a workspace.
    UsageError if it did not start."""
    if is_pausing(handle):
        done = handle.withdraw()
        return Note((f"Resume: {done.said}.",), done.status != "withdrawn")
    begun = handle.detach(resume=handle.status(brief=True).state != "new", accept_drift=accept_drift, input=input)
    if begun.exit_code is None:
        return Note((f"The run is active in the background: process {begun.pid}.",))
    if begun.exit_code not in _SAID:
        raise UsageError("the run did not start", why=begun.said.strip() or f"exit code {begun.exit_code}")
    return Note((f"The run is {_SAID[begun.exit_code]}.",))


def go_on_after(handle: Handle, done: str) -> Note:
    """What was done before stays done, although the run may not start."""
    try:
        begun = go_on(handle)
        return Note((done, *begun.lines), begun.is_bad)
    except SatchelError as error:
        holder = None
        with suppress(SatchelError):
            holder = handle.status(brief=True).holder  # `satchel serve` may have been faster
        said = f"It is active: {holder.process}." if holder else f"It did not start: {error}"
        return Note((done, said), holder is None)


# A new run


def choose(site: Site, request: Request, typed: Mapping[str, str] | None = None) -> Response:
    """What there is to begin from; with `sample` or `run` the form."""
    query = request.query_params
    if not query.get("sample") and not query.get("run"):
        return site.page(
            request, "new.html", samples=_samples(), runs=[*_runs(site)], is_remote=site.overview.is_remote
        )
    return _form(site, request, _source(site, query), {})


def _samples() -> list[tuple[str, str]]:
    return [(each.name, each.summary().removesuffix("See README.md in this folder.").strip()) for each in api.samples()]


def _runs(site: Site) -> Iterator[SeenRun]:
    """Some runs, each with an agent that the ones before it do not have."""
    agents = set[str]()
    seen = site.runs()
    for run in seen.runs if seen and not site.overview.is_remote else ():
        said = run.status.definition
        if said and said.agent and said.agent not in agents and len(agents) < _LISTED:
            agents.add(said.agent)
            yield run


def _source(site: Site, query: Mapping[str, str]) -> _Source:
    if sample := query.get("sample", ""):
        found = next((each for each in api.samples() if each.name == sample), None)
        if found is None:
            raise UsageError(f"there is no sample {sample[:80]!r}", remedy="choose one of the list")
        return _Source({"sample": sample}, found, f"the sample {sample}")
    run = site.find(query.get("run", "").strip())
    if urls.is_remote(run.url):
        raise UsageError(
            "a new run can't be made from a run in a bucket",
            why="its template must be on the machine of the page",
            remedy="copy its definition, code and documents into a folder, and use `satchel new`",
        )
    name = site.name_of(run)
    return _Source({"run": name}, Template(Path(run.url).name, Path(run.url)), f"the run {name}")


def _fields(source: _Source) -> StartForm:
    text = source.template.definition()
    said = definition.parse(text)
    if not said.agent:
        raise UsageError("a workspace that programs hold has no agent to start", path=source.said)
    about, arguments = _arguments(source.template.store(), said)
    return StartForm(about, arguments, [*_settings(api.settings_of(text))], said.input)


def _form(
    site: Site, request: Request, source: _Source, typed: Mapping[str, str], error: SatchelError | None = None
) -> Response:
    form = _fields(source)
    wrong = beside(error, form) if error else {}
    if isinstance(error, _WrongName):
        wrong = {"name": str(error)}
    facts = {"form": form, "typed": dict(typed), "error": error, "wrong_fields": wrong, "source": source}
    return site.page(request, "new_run.html", 422 if error else 200, suggested=_free_name(site, source), **facts)


class _WrongName(UsageError):
    """No run can be made with this name."""


def _free_name(site: Site, source: _Source) -> str:
    """A name that no run has that was seen."""
    seen = site.overview.seen
    taken = {site.name_of(run) for run in seen.runs} if seen else set()
    name = re.sub(r"-[0-9]{1,9}$", "", next(iter(source.query.values())))
    return next(each for number in range(1, len(taken) + 3) if (each := f"{name}-{number}") not in taken)


def make(site: Site, request: Request) -> Response:
    """Make the workspace, start it, and lead to its page."""
    typed = dict(request.state.form)
    source = _source(site, typed)
    form = _fields(source)
    name = typed.get("name", "").strip()
    try:
        place = _place(site, name)
        wrong, settings, given = dict[str, str](), dict[str, Any](), None
        try:
            settings = read(form.settings, typed)
        except Wrong as error:
            wrong |= error.fields
        try:
            given = arguments_of(form, typed)
        except Wrong as error:
            wrong |= error.fields
        if wrong:
            raise Wrong(wrong)
        made = api.new_aside(str(source.template.store().url), place, input=given, settings=settings)
    except SatchelError as error:
        return _form(site, request, source, typed, error)
    site.runs(patience=None, now=True)
    note = site.notes.keep(go_on_after(api.open(place), f"The run {made.run_id} was made from {source.said}."))
    return RedirectResponse(f"{run_url(name)}?note={note}", 303)


def _place(site: Site, name: str) -> str:
    try:
        return api.new_place(site.overview.url, name)
    except UsageError as error:
        raise _WrongName(error.what, why=error.why, remedy=error.remedy) from None
