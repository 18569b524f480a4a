"""Prompts as files: `prompts/NAME.md` with placeholders, and a recorded version.

A placeholder is `{{name}}`, so the braces of JSON in a prompt have no meaning.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

from ...schemas import Problem
from ...workspace.base import InvalidFile, UsageError, check_path, decode, place
from ...workspace.store import Store

FOLDER = "prompts"
_PLACE = re.compile(r"\{\{\s*([A-Za-z_][A-Za-z0-9_]*)\s*\}\}")
_VERSION_DIGITS = 12


class Prompt(str):
    """A prompt with its values. If it is an argument of a step, the step's record has its name and version."""

    name: str
    version: str

    def __new__(cls, text: str, name: str, version: str) -> Prompt:
        made = super().__new__(cls, text)
        made.name, made.version = name, version
        return made


def read(store: Store, name: str, values: dict[str, Any]) -> Prompt:
    """The prompt `name` with `values` in its placeholders. UsageError if there is no such prompt, InvalidFile if a
    placeholder has no value."""
    path = check_path(f"{FOLDER}/{name}.md")
    try:
        data = store.read(path).data
    except FileNotFoundError:
        there = ", ".join(entry.path.removeprefix(f"{FOLDER}/") for entry in store.list(FOLDER))
        raise UsageError(
            f"there is no prompt {name!r}", path=path, remedy=f"the prompts are: {there}" if there else "write the file"
        ) from None
    text = decode(data, path)
    missing = [found for found in _PLACE.finditer(text) if found[1] not in values]
    if missing:
        raise InvalidFile(
            path,
            [
                Problem(place(text, found.start()), found[0], "a value for it", f"Call run.prompt(..., {found[1]}=...)")
                for found in missing
            ],
        )
    version = hashlib.sha256(data).hexdigest()[:_VERSION_DIGITS]
    return Prompt(_PLACE.sub(lambda found: str(values[found[1]]), text), name, version)
