"""workspace.yaml is a person's file. Its content counts as it is; changes are recorded."""

from __future__ import annotations

from ....schemas import short
from ...base import DEFINITION, Refused
from ...formats import Definition, parse
from ...journal.records import Edited
from ...secrets import as_recorded
from ...state import json_patch
from ...store import Content
from .findings import Edit, Looking, StillMoving
from .origin import sha


def look(looking: Looking, definition: Definition) -> None:
    known = looking.moment.definition
    says: dict[str, object] = as_recorded(known, looking.redactor.value(definition.recorded))
    if known is None:
        if looking.store.has_writer(DEFINITION) is not False:
            _settled(looking, definition)
        looking.noticed.definition = says
        return
    change = json_patch.diff(known, says)
    if not change:
        return
    found = _settled(looking, definition)
    trace = looking.store.trace(DEFINITION)
    told = []
    for each in change:
        value = f" is now {short(each['value'])}" if "value" in each else " is removed"
        told.append(str(each["path"])[1:].replace("/", ".") + value + _without_effect(looking, str(each["path"])))
    record = Edited(file=DEFINITION, by=trace.by, saved=trace.at, sha=sha(found.data), patch=change, says=tuple(told))
    looking.noticed.edits.append(Edit(record))


def _without_effect(looking: Looking, place: str) -> str:
    root = looking.moment.root
    has_begun = root.has_data or root.input is not None
    return "; the run keeps the arguments it began with" if has_begun and place.split("/")[1] == "input" else ""


def _settled(looking: Looking, definition: Definition) -> Content:
    """The file, which must still have the content that was read before."""
    try:
        found = looking.steady(DEFINITION)
    except StillMoving:
        if looking.held is not None:
            raise
        found = None
    if found is None or parse(found.data).said != definition.said:
        raise Refused("is changing at this moment", path=DEFINITION, remedy="wait until it is saved, then run again")
    return found
