"""The schemas of an agent's data and of its state.json, for editors."""

from __future__ import annotations

import json
import re
from typing import Any

from ... import schemas
from ...workspace.formats import jsontext
from ...workspace.lifecycle import Workspace
from ...workspace.state import AgentMoment
from ...workspace.views import publish
from ..agent import Agent

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


def _of_sub_agent(schema: dict[str, Any], folder: str) -> dict[str, Any]:
    """The same some folders deeper: its references, except to the data, are relative to the top."""
    up = "../" * folder.count("/")
    text = _ELSEWHERE.sub(rf"\g<1>{up}\g<2>", json.dumps(schema))
    found: dict[str, Any] = json.loads(text)
    return found
