"""Records without secrets: the last thing that happens to a record before it is applied and written."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from ..base import DEFINITION, AgentError, Refused
from ..secrets import Redactor
from .records import AgentBegun, Edited, Migrated, PlanChanged, Resource, ScopeBegun, ScopeCommitted
from .records.line import AnyRecord

_NAMES = frozenset(
    (
        "agent",
        "agents",
        "blob",
        "calls",
        "checkpoint",
        "cut_off_at",
        "dropped",
        "due",
        "event",
        "expires",
        "file",
        "handed_to",
        "host",
        "how",
        "id",
        "idempotency_key",
        "key",
        "kind",
        "mode",
        "model",
        "moved_to",
        "name",
        "other",
        "others",
        "outcome",
        "outline",
        "outputs",
        "pause_file",
        "plan",
        "planned",
        "prompts",
        "python",
        "redone",
        "resume",
        "run_id",
        "run_nonce",
        "satchel",
        "saved",
        "schedule",
        "scope",
        "sha",
        "sha256",
        "status",
        "tier",
        "types",
        "until",
        "untaken",
        "url",
        "withdraws",
    )
)
"""Fields that name records, files, times and kinds, and those of the plan. They are compared, so a secret in one can't
be replaced. All others hold texts and values of agents and people, and so does a field that is new."""


def redacted(record: AnyRecord, redactor: Redactor) -> AnyRecord:
    """The record with each secret in its texts and values replaced. AgentError, or Refused for what a person wrote, if
    a secret is where it can't be replaced: in the agent's data, in the plan, or in a name."""
    _check(record, redactor)
    found: AnyRecord = _redacted(record, redactor)
    return found


def _redacted(value: Any, redactor: Redactor) -> Any:
    if isinstance(value, Raw):
        data = bytes(value)
        new = redactor.json(data)
        return value if new is data else Raw(new)
    if not isinstance(value, Struct):
        return redactor.value(value)
    changed = {}
    for name in value.__struct_fields__:
        old = getattr(value, name)
        if old and _is_said(value, name, old) and (new := _redacted(old, redactor)) is not old:
            changed[name] = new
    return replace(value, **changed) if changed else value


def _is_said(of: Struct, name: str, value: Any) -> bool:
    match name:
        case "args":  # of a failure; elsewhere a hash
            return isinstance(value, Raw)
        case "step":  # of an edit; elsewhere a name
            return isinstance(value, Struct)
        case "patch":  # of the agent's data it is checked
            return isinstance(of, Edited) and of.file == DEFINITION
        case "why":  # elsewhere a kind
            return isinstance(of, Resource)
    return name not in _NAMES


def _check(record: AnyRecord, redactor: Redactor) -> None:
    by_person = isinstance(record, Edited) or (isinstance(record, PlanChanged) and record.by == "person")
    error = Refused if by_person else AgentError
    if isinstance(record, ScopeCommitted | Migrated | Edited) and getattr(record, "file", "") != DEFINITION:
        for each in record.patch:
            value = each.get("value")
            value = msgspec.json.decode(value) if isinstance(value, Raw) else value
            for part in reversed(str(each["path"]).split("/")[1:]):  # each is a key, with the escapes of a JSON Pointer
                value = {part.replace("~1", "/").replace("~0", "~"): value}
            for at, rule in redactor.found_in(value, "run.state"):
                raise error(
                    f"{at} has a secret",
                    why=rule,
                    remedy="read the secret from the environment where it is used, or make it a `Sealed` value",
                )
    for splice in getattr(record, "plan", ()):
        for _, rule in redactor.found_in(splice.text):
            raise error("a line of todo.md has a secret", why=rule, remedy="name it in the plan without its value")
    names: tuple[str, ...] = ()
    match record:
        case ScopeBegun():
            names = (record.scope,)
        case AgentBegun():
            names = (record.agent,)
        case ScopeCommitted():
            names = (*record.outputs,)
    for name in names:
        redactor.check_name(name)
