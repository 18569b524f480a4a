"""A run as a task: the extension `io.modelcontextprotocol/tasks` of the specification of 2026-07-28.

The server keeps nothing about tasks. The id leads to the run, and everything else is read from its files, so a task
outlives every kill of the server.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Literal, NamedTuple

import mcp_types as types
import msgspec
from mcp import MCPError

from ....workspace.base import DEFINITION, LeaseHeld, SatchelError, visible
from ....workspace.inbound import APPROVE, properties_of
from ...api import ACTIVE, OVER, Handle, OpenQuestion, RunStatus
from ...present import choice_meaning, not_called
from . import descriptions, tools
from .descriptions import Asking

EXTENSION = "io.modelcontextprotocol/tasks"
STARTING = ("start", "resume")
"""The tools whose result may be a task."""

_OFTEN, _REMOTELY, _SELDOM = 1_000, 5_000, 10_000
"""Milliseconds until the next look at a run that works, on a disk and in a bucket, and at one that waits."""

_STOPPING, _LOOK = 2.0, 0.2
"""Seconds in which a run that has asked a question stops, and between two looks."""

_RESUME = "resume-"
_CONTEXT = 2000  # characters
_ARGUMENT = "argument."
_PRIMITIVE = ("string", "integer", "number", "boolean")

Status = Literal["working", "input_required", "completed", "failed", "cancelled"]


class Client(NamedTuple):
    """What a client can do: handle tasks, and ask its user."""

    has_tasks: bool
    can_ask: bool


class Tasks:
    """The tasks of a server. Methods block."""

    def __init__(self) -> None:
        self._created: dict[str, str] = {}  # only saves reading the first record again

    def get(self, asking: Asking, task: str, client: Client) -> dict[str, Any]:
        """The task with this id, with its result, its questions or its error."""
        handle, run_status = self.find(asking, task)
        name = asking.runs.name(handle)
        status = status_of(run_status)
        wanted = _input_requests(asking, name, run_status, client) if status == "input_required" else {}
        found = self.summary(asking, task, handle, run_status)
        match status:
            case "input_required":
                found["inputRequests"] = wanted
            case "completed":
                found["result"] = _result(descriptions.status(name, handle.status(), asking.allowed))
            case "failed":
                why = str(run_status.problem or descriptions.next_of(name, run_status, asking.allowed))
                found["error"] = {"code": types.INTERNAL_ERROR, "message": descriptions.error(why)}
        return found

    def summary(self, asking: Asking, task: str, handle: Handle, run_status: RunStatus) -> dict[str, Any]:
        """The same without what depends on the status."""
        name = asking.runs.name(handle)
        created = self._created.get(task) or _created(handle, run_status)
        self._created[task] = created
        status = status_of(run_status)
        often = _REMOTELY if asking.runs.is_remote else _OFTEN
        is_working = status == "working" and run_status.state != "sleeping"
        return {
            "taskId": task,
            "status": status,
            "createdAt": created,
            "lastUpdatedAt": run_status.at or created,
            "statusMessage": visible(_message(name, run_status, asking)),
            "ttlMs": None,
            "pollIntervalMs": often if is_working else _SELDOM,
        }

    def find(self, asking: Asking, task: str) -> tuple[Handle, RunStatus]:
        """The run of a task. A run whose folder was renamed has another id."""
        try:
            handle = asking.runs.find(descriptions.run_of_task(task))
        except SatchelError:
            raise _unknown(task) from None
        run_status = handle.status(brief=True)
        known = descriptions.task_id(asking.runs.name(handle), run_status.moment)
        if run_status.state == "interrupted":
            run_status = handle.status()  # which also says why
        is_unreadable = run_status.moment is None and descriptions.is_task_id(task)
        if known != task and not is_unreadable:
            raise _unknown(task)
        return handle, run_status

    def is_known(self, asking: Asking, task: str) -> bool:
        """Whether there is such a task."""
        try:
            self.find(asking, task)
        except MCPError:
            return False
        return True

    def update(self, asking: Asking, task: str, responses: Mapping[str, Any]) -> None:
        """Take answers to what the task asks. What it does not ask, or no longer asks, is ignored."""
        handle, run_status = self.find(asking, task)
        is_answered = False
        open_ones = {each.id for each in run_status.questions}
        for key, response in responses.items():
            content = _accepted(response)
            if content is None:
                continue
            if key == _key_of_resume(run_status) and content.get("resume") is True:
                _need(asking, "resume")
                _begin(handle)
            elif key in open_ones:
                _need(asking, "answer")
                _answer(asking, handle, key, content, run_status)
                is_answered = True
        if is_answered and "resume" in asking.allowed and _comes_to_rest(handle):
            _begin(handle)

    def cancel(self, asking: Asking, task: str) -> None:
        """Cancel the run. One that is over stays as it is."""
        handle, run_status = self.find(asking, task)
        if run_status.state in OVER:
            return
        _need(asking, "cancel")
        try:
            stopping = handle.cancel(by=asking.by)
        except SatchelError as error:
            raise MCPError(types.INVALID_REQUEST, descriptions.error(str(error))) from error
        if stopping.status == "paused" and asking.allowed & {"start", "resume"}:
            with suppress(LeaseHeld):
                tools.begin(handle)  # its agent undoes what it must


def status_of(run_status: RunStatus) -> Status:
    """The status of a task. A failed agent is a result: `failed` is for what is wrong with the workspace."""
    match run_status.state:
        case "completed" | "failed" | "held":
            return "completed"
        case "cancelled":
            return "cancelled"
        case "damaged" | "moved" | "backup":
            return "failed"
    if run_status.questions or _waits_to_be_resumed(run_status):
        return "input_required"
    return "working"


def _waits_to_be_resumed(run_status: RunStatus) -> bool:
    """Whether it rests until a person resumes it."""
    match run_status.state:
        case "waiting":
            return True
        case "paused":
            pause = run_status.moment.pause if run_status.moment else None
            return not (pause and (pause.until or pause.mode == "cancel"))
        case "interrupted":
            return not run_status.is_supervised
    return False


def _key_of_resume(run_status: RunStatus) -> str | None:
    """Another one for each time that it has to be resumed."""
    if run_status.questions or run_status.moment is None or not _waits_to_be_resumed(run_status):
        return None
    return f"{_RESUME}{run_status.moment.seq}"


def _message(name: str, run_status: RunStatus, asking: Asking) -> str:
    why = not_called(run_status) or (run_status.moment.reason if run_status.moment else "")
    reason = f" ({why})" if why else ""
    progress = descriptions.progress(descriptions.items(run_status))
    return f"{run_status.state}{reason}{progress}. {descriptions.next_of(name, run_status, asking.allowed)}"


def _created(handle: Handle, run_status: RunStatus) -> str:
    """When the run began, as far as its journal goes back."""
    if run_status.moment is not None:
        with suppress(SatchelError):
            return next((row.line.at for row in handle.history.log()), run_status.at)
    return handle.store.trace(DEFINITION).at or run_status.at


def _input_requests(asking: Asking, name: str, run_status: RunStatus, client: Client) -> dict[str, Any]:
    """What the client is to ask its user. Nothing that it could not answer then."""
    if not client.can_ask:
        return {}
    if run_status.questions:
        asked = run_status.questions if "answer" in asking.allowed else []
        return {each.id: _elicitation(name, each) for each in asked}
    key = _key_of_resume(run_status)
    if key is None or "resume" not in asking.allowed:
        return {}
    text = f"{name} is {_message(name, run_status, asking).partition('. ')[0]}. Resume it?"
    return {key: _form(text, {"resume": {"type": "boolean", "title": "Resume the run"}}, ["resume"])}


def _elicitation(name: str, asked: OpenQuestion) -> dict[str, Any]:
    question = asked.question
    text = f"{name} asks: {question.text}"
    if question.is_doubt and not question.is_unclaimed:
        text += "".join(f"\n\n{choice!r}: {choice_meaning(question, choice)}." for choice in question.choices)
    if (context := question.facts.get("context")) is not None:
        told = context if isinstance(context, str) else msgspec.json.encode(context).decode()
        text += f"\n\n{told[:_CONTEXT]}"
    if question.may_change:
        text += f"\n\narguments: {msgspec.json.encode(question.arguments).decode()[:_CONTEXT]}"
    if not question.may_change and (fields := _fields(question.schema)) is not None:
        return _form(text, *fields)
    decision = {"title": "Decision", **_decision(asked)}
    note = {"type": "string", "title": "Note"}
    return _form(text, {"decision": decision, **_arguments(asked), "note": note}, ["decision"])


def _arguments(asked: OpenQuestion) -> dict[str, Any]:
    """A field for each argument that can be changed in a form, with its value now."""
    values, found = asked.arguments or {}, {}
    for name, schema in properties_of(asked.schema).items() if asked.question.may_change else ():
        if isinstance(schema, dict) and schema.get("type") in _PRIMITIVE:
            default = {"default": values[name]} if name in values else {}
            found[f"{_ARGUMENT}{name}"] = {"title": name, **schema, **default}
    return found


def _fields(schema: Any) -> tuple[dict[str, Any], list[str]] | None:
    """The fields of an answer that is a flat object, with the names of those that are required: as a form has them."""
    if not isinstance(schema, dict) or schema.get("type") != "object" or not schema.get("properties"):
        return None
    fields = schema["properties"]
    is_flat = all(isinstance(each, dict) and each.get("type") in _PRIMITIVE for each in fields.values())
    return (fields, [*schema.get("required", ())]) if is_flat else None


def _decision(asked: OpenQuestion) -> dict[str, Any]:
    """The schema of another answer. A form has only flat fields: what does not fit is typed as JSON."""
    if asked.choices:
        return {"type": "string", "enum": [*asked.choices]}
    schema = asked.question.schema
    if not isinstance(schema, dict):
        return {"type": "string"}
    kind = schema.get("type")
    if kind in _PRIMITIVE:
        return {"type": kind}
    return {"type": "string", "description": f"As JSON: {msgspec.json.encode(schema).decode()[:_CONTEXT]}"}


def _form(text: str, fields: dict[str, Any], required: list[str]) -> dict[str, Any]:
    schema = {"type": "object", "properties": fields, "required": required}
    return {
        "method": "elicitation/create",
        "params": {"mode": "form", "message": visible(text), "requestedSchema": schema},
    }


def _accepted(response: Any) -> Mapping[str, Any] | None:
    """What a user has typed into a form; None if the user did not."""
    if not isinstance(response, Mapping) or response.get("action") != "accept":
        return None
    content = response.get("content")
    return content if isinstance(content, Mapping) else {}


def _answer(asking: Asking, handle: Handle, id: str, content: Mapping[str, Any], run_status: RunStatus) -> None:
    (asked,) = (each for each in run_status.questions if each.id == id)
    is_form = not asked.question.may_change and _fields(asked.question.schema) is not None
    decision: Any = dict(content) if is_form else content.get("decision")
    if isinstance(decision, str) and "description" in _decision(asked):
        with suppress(msgspec.DecodeError):  # then the error says what was expected
            decision = msgspec.json.decode(decision)
    changes = None
    if asked.question.may_change and decision == APPROVE:
        known = asked.arguments or {}
        typed = {key.removeprefix(_ARGUMENT): each for key, each in content.items() if key.startswith(_ARGUMENT)}
        changes = {name: each for name, each in typed.items() if name in known or each not in (None, "")}
    try:
        note = "" if is_form else str(content.get("note") or "")
        handle.answer(decision, id, arguments=changes, by=asking.by, note=note)
    except SatchelError as error:
        raise MCPError(types.INVALID_PARAMS, descriptions.error(str(error), content)) from error


def _comes_to_rest(handle: Handle) -> bool:
    """Whether an answered run waits to be resumed. One that has just asked may be about to stop; one that waits for its
    answers goes on. If this gives up too early, the task asks to be resumed."""
    until = time.monotonic() + _STOPPING
    while (now := handle.status(brief=True)).state in ACTIVE and not now.questions:
        if time.monotonic() > until:
            return False
        time.sleep(_LOOK)
        handle.store.refresh()
    return now.state == "waiting" and not now.questions


def _begin(handle: Handle) -> None:
    try:
        tools.begin(handle, resume=True)
    except LeaseHeld:
        pass  # another process has resumed it
    except SatchelError as error:
        raise MCPError(types.INVALID_REQUEST, descriptions.error(str(error))) from error


def _need(asking: Asking, action: str) -> None:
    if action not in asking.allowed:
        raise MCPError(types.INVALID_REQUEST, not_allowed(action))


def not_allowed(action: str) -> str:
    """What a client is told that calls a tool which is not there."""
    return f"{action} is not allowed here: the person who runs this server can start it with `--allow {action}`"


def _result(found: Any) -> dict[str, Any]:
    """What the call that has started the run would have returned at its end."""
    result = tools.told(found)
    result.is_error = found.state == "failed"
    return result.model_dump(by_alias=True, mode="json", exclude_none=True)


def _unknown(task: str) -> MCPError:
    found = descriptions.error(repr(task), task)
    return MCPError(types.INVALID_PARAMS, f"there is no task {found}; the tool list_runs shows the ids of all runs")
