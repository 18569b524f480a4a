"""The JSON Schemas in `.satchel/schemas/`: copies for editors, and those of the results of steps.

A result's schema is a small file in `.satchel/schemas/results/` for each type, named by its hash. The record of a call
names the schema of its result, and the file of the step refers to it. So editors complete a result, and every reader
checks an edited one. If the schema is missing or damaged, only the agent's code checks it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from ... import schemas
from ..base import SCHEMAS, InvalidFile, decode
from ..formats import jsontext
from ..store import Store, Sync, read_if_there

FOLDER = f"{SCHEMAS}/results"

_NAME = re.compile("[0-9a-f]{8}")
_RESULT = "-result"
"""The name of the result's own part. No class is called that."""


class ResultSchema(NamedTuple):
    name: str
    data: bytes


def result_schema(schema: Mapping[str, Any]) -> ResultSchema:
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


def result_path(name: str) -> str:
    return f"{FOLDER}/{name}.json"


def load_result(store: Store, name: str) -> dict[str, Any] | None:
    """The schema of the results alone. None if it is missing or damaged."""
    if not _NAME.fullmatch(name):  # a record may be a stranger's
        return None
    path = result_path(name)
    try:
        whole = jsontext.load(decode(store.read(path).data, path), path)
    except (FileNotFoundError, InvalidFile):
        return None
    match whole:
        case {"$defs": {"-result": dict()}}:
            return {"$ref": f"#/$defs/{_RESULT}", "$defs": whole["$defs"]}
    return None


def damaged_results(store: Store) -> list[str]:
    """The schemas of results that no reader can use. The next new result of their type writes them again."""
    names = {entry.path: entry.path.rpartition("/")[2].removesuffix(".json") for entry in store.list(FOLDER)}
    return [path for path, name in names.items() if path == result_path(name) and load_result(store, name) is None]


def torn_results(store: Store) -> list[str]:
    """The schemas of results that a power failure may have torn, since they are renamed without a sync. In a bucket
    a file appears whole, and each look is a request."""
    return [] if store.abilities.remote else damaged_results(store)


_OWN = "data"
"""The agent writes its own."""


def copy_all(store: Store) -> None:
    """The schemas of all files. Not in a bucket, where each copy would be an object in every listing and no editor
    opens a file in place: there the ones that another tool has copied are removed."""
    if store.abilities.remote:
        if copies := [entry.path for entry in store.list(SCHEMAS) if is_copy(entry.path)]:
            store.remove_many(copies)
        return
    for name in schemas.names():
        if name != _OWN or store.version(_path(name)) is None:
            publish(store, name, schemas.text(name), sync="data" if name == _OWN else "no")


def publish(store: Store, name: str, schema: str, *, sync: Sync = "data") -> None:
    """Copy a schema for editors. Edits are also checked against data.json, so that one is synced. The next opening
    repairs the others after a power failure."""
    path, data = _path(name), schema.encode()
    store.expect(path, data)
    there = read_if_there(store, path) if store.version(path) is not None else None
    if there is None or there.data != data:
        store.replace(path, data, sync=sync)


def is_copy(path: str) -> bool:
    """Whether every opening writes this file again, or removes it."""
    folder, _, name = path.rpartition("/")
    return folder == SCHEMAS and name.removesuffix(".json") in {*schemas.names()} - {_OWN} and name.endswith(".json")


def _path(name: str) -> str:
    return f"{SCHEMAS}/{name}.json"
