"""The format of workspace.yaml: which run a workspace holds and which agent works in it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..schemas import problems, schema
from . import yamltext
from .errors import InvalidFile, NewerFormat
from .names import DEFINITION

FORMAT = 1

_EDITOR = "# yaml-language-server: $schema=.satchel/schemas/workspace.json"


@dataclass(frozen=True, slots=True)
class Definition:
    """What workspace.yaml says. `agent` is `FILE.py:NAME`, or `PACKAGE.MODULE:NAME`; it is not imported here."""

    run_id: str
    agent: str
    settings: dict[str, Any] = field(default_factory=dict)
    format: int = FORMAT


def parse(source: str | bytes, path: str = DEFINITION) -> Definition:
    """What the file says. InvalidFile lists all that is wrong with it, with lines; NewerFormat if it is newer."""
    text = yamltext.decode(source, path) if isinstance(source, bytes) else source
    document = yamltext.load(text, path)
    value = document.value
    # Before anything else: what an older Satchel calls an unknown key may be what the newer format is about.
    match value:
        case {"format": int(number)} if number > FORMAT and not isinstance(number, bool):
            raise NewerFormat(
                f"has format {number}, and this Satchel reads {FORMAT}",
                path=path,
                why="it was written by or for a newer one",
                remedy="upgrade Satchel; nothing was touched",
            )
    if not _is_plainly_valid(value) and (found := problems("workspace", value, place=document.place)):
        raise InvalidFile(path, found)
    return Definition(value["run_id"], value["agent"], value.get("settings", {}))


def encode(definition: Definition, comments: Sequence[str] = ()) -> str:
    """The file, with `comments` above its keys, a line each. InvalidFile if `parse` would refuse it."""
    head = [_EDITOR, *(f"# {line}".rstrip() for comment in comments for line in comment.splitlines() or [""])]
    identity = {"format": definition.format, "run_id": definition.run_id, "agent": definition.agent}
    text = "\n".join(head) + "\n\n" + yamltext.dump(identity)
    if definition.settings:
        text += "\n" + yamltext.dump({"settings": definition.settings})
    parse(text)
    return text


def _is_plainly_valid(value: Any) -> bool:
    """Whether the schema would find nothing; False if that takes the schema to tell.

    Every command reads this file, and loading jsonschema to find nothing would take longer than all the rest of it.
    """
    keys = schema("workspace")["properties"]
    return (
        isinstance(value, dict)
        and value.keys() <= {"format", "run_id", "agent", "settings"}
        and type(value.get("format")) is int
        and value["format"] == FORMAT
        and all(
            isinstance(value.get(key), str) and re.fullmatch(keys[key]["pattern"].removesuffix("$"), value[key])
            for key in ("run_id", "agent")
        )
        and isinstance(value.get("settings", {}), dict)
    )
