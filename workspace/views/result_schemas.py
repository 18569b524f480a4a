"""The JSON Schemas of the results of steps: one small file in `.satchel/schemas/results/` for each type, named by its
hash.

The record of a call names the schema of its result, and the file of the step refers to it. So editors complete a
result, and every reader checks an edited one. If the schema is missing or damaged, only the agent's code checks it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from ..base import SCHEMAS, InvalidFile, decode
from ..formats import jsontext
from ..store import Store

FOLDER = f"{SCHEMAS}/results"

_NAME = re.compile("[0-9a-f]{8}")
_RESULT = "-result"
"""The name of the result's own part. No class is called that."""


class ResultSchema(NamedTuple):
    name: str
    data: bytes


def encode(schema: Mapping[str, Any]) -> ResultSchema:
    """The file for results with this schema: a schema of the step's whole file, in which `result` is of that type, or
    null where it is not known."""
    own = {key: value for key, value in schema.items() if key != "$defs"}
    parts = {**schema.get("$defs", {}), _RESULT: own}
    name = hashlib.sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()[:8]
    whole = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"results/{name}.json",
        "title": "A file in steps/, with the type of its result",
        "allOf": [{"$ref": "../step.json"}],
        "properties": {"result": {"anyOf": [{"$ref": f"#/$defs/{_RESULT}"}, {"type": "null"}]}},
        "$defs": parts,
    }
    return ResultSchema(name, jsontext.dump(whole).encode())


def path_of(name: str) -> str:
    return f"{FOLDER}/{name}.json"


def load(store: Store, name: str) -> dict[str, Any] | None:
    """The schema of the results alone. None if it is missing or damaged."""
    if not _NAME.fullmatch(name):  # a record may be a stranger's
        return None
    path = path_of(name)
    try:
        whole = jsontext.load(decode(store.read(path).data, path), path)
    except (FileNotFoundError, InvalidFile):
        return None
    match whole:
        case {"$defs": {"-result": dict()}}:
            return {"$ref": f"#/$defs/{_RESULT}", "$defs": whole["$defs"]}
    return None
