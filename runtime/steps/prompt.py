"""Prompts as files: `prompts/NAME.md` with placeholders, and a recorded version.

A placeholder is `{{name}}`, so the braces of JSON in a prompt have no meaning.
"""

from __future__ import annotations

import re
from typing import Any

from ...schemas import Problem
from ...workspace.base import InvalidFile, decode, place
from ...workspace.secrets import Redactor
from ...workspace.state import prompts
from ...workspace.store import Store

_PLACE = re.compile(r"\{\{\s*([A-Za-z_][A-Za-z0-9_]*)\s*\}\}")


class Prompt(str):
    """A prompt with its values. If it is an argument of a step, the step's record has its name and version."""

    name: str
    version: str

    def __new__(cls, text: str, name: str, version: str) -> Prompt:
        made = super().__new__(cls, text)
        made.name, made.version = name, version
        return made


def read(
    store: Store, redactor: Redactor, name: str, values: dict[str, Any], version: str = "", folder: str = ""
) -> Prompt:
    """The prompt `name` with `values` in its placeholders, in this `version`, else as the file is now. `folder` is the
    one that runs share. The text is kept when this returns. UsageError if there is no such prompt, AgentError if it has
    a secret, InvalidFile if a placeholder has no value."""
    path = prompts.path_of(name)
    if version:
        text = prompts.prompt_text(store, name, version)
    else:
        found = _now(prompts.Shelf(store, folder), name)
        text, path = decode(found.data, found.path), found.path
        version = prompts.keep(store, name, found.data, redactor)
    missing = [found for found in _PLACE.finditer(text) if found[1] not in values]
    if missing:
        raise InvalidFile(
            path,
            [
                Problem(place(text, each.start()), each[0], "a value for it", f"Call run.prompt(..., {each[1]}=...)")
                for each in missing
            ],
        )
    return Prompt(_PLACE.sub(lambda found: str(values[found[1]]), text), name, version)


def _now(shelf: prompts.Shelf, name: str) -> prompts.Text:
    try:
        return shelf.read(name)
    except FileNotFoundError:
        raise shelf.missing(name) from None
