"""The schemas of an agent's data, of its state.json, and of the results of its steps, for editors and all readers."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

from ... import schemas
from ...workspace.base import UsageError
from ...workspace.formats import jsontext
from ...workspace.lifecycle import Workspace
from ...workspace.state import AgentMoment
from ...workspace.views import publish, result_schemas
from ..agent import Agent
from ..steps import Closed, Codec, Step
from .own_step import OwnStep

_ELSEWHERE = re.compile(r'("\$ref": ")(?!data\.json)([a-z]+\.json)')
"""A reference from one schema to another, except to the agent's own data."""


def publish_schemas(workspace: Workspace, agent: Agent, recorded: AgentMoment) -> None:
    """Write the schema of the agent's data, and of the state.json that contains it, where an editor finds them. Data of
    an earlier version keep their schema until they are migrated. A default in it may be a secret."""
    store = workspace.store
    if recorded.has_data and recorded.data_version != agent.version:
        return
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "data.json", **agent.schema_of_data()}
    schema = workspace.redactor.value(schema)
    publish(store, f"{recorded.folder}data", jsontext.dump(schema))
    if recorded.path and not store.abilities.remote:  # see views/schema_copies.py
        below = _of_sub_agent(schemas.schema("state"), recorded.folder)
        publish(store, f"{recorded.folder}state", jsontext.dump(below))


class ResultSchemas:
    """Of one run. Each is written at the first record of a result of its type, once in a process."""

    def __init__(self, workspace: Workspace):
        self._workspace = workspace
        self._names = WeakKeyDictionary[Codec, str](), WeakKeyDictionary[Codec, str]()
        self._written = set[str]()

    def name(self, step: Step, *, keeps_unknown: bool) -> str:
        """The name for the record. Empty if the result has no type, or a type without a schema, and for methods of the
        run. `keeps_unknown`: the agent keeps keys that the type does not have."""
        codec, names = step.shape.codec, self._names[keeps_unknown]
        known = names.get(codec)
        if known is None:
            known = names[codec] = self._publish(step, "no" if keeps_unknown else "classes")
        return known

    def forget(self, name: str) -> None:
        """The code gives results another type than the record of this schema says, so a person must be able to write
        one: without the schema only the code checks it. The next record of a result of the old type writes it again."""
        if name:
            self._written.discard(name)
            with suppress(FileNotFoundError):
                self._workspace.store.remove(result_schemas.path_of(name))

    def _publish(self, step: Step, closed: Closed) -> str:
        if isinstance(step, OwnStep) and not step.is_effect:
            return ""
        try:
            schema = step.shape.codec.schema(closed)
        except UsageError:
            return ""
        if not schema:
            return ""
        made = result_schemas.encode(self._workspace.redactor.value(schema))
        if made.name not in self._written:
            self._written.add(made.name)
            store, path = self._workspace.store, result_schemas.path_of(made.name)

            def write() -> None:
                if store.version(path) is None:
                    store.replace(path, made.data, sync="no")  # torn, it is no schema, and checks nothing

            self._workspace.behind.do(path, write)
        return made.name


def _of_sub_agent(schema: dict[str, Any], folder: str) -> dict[str, Any]:
    """The same some folders deeper: its references, except to the data, are relative to the top."""
    up = "../" * folder.count("/")
    text = _ELSEWHERE.sub(rf"\g<1>{up}\g<2>", json.dumps(schema))
    found: dict[str, Any] = json.loads(text)
    return found
