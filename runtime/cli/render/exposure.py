"""Who can read what is stored, and whether it stays there, in plain words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ....workspace.store import Exposure

_NOT_TOLD = "not told by the server"


def as_json(found: Exposure) -> dict[str, Any]:
    return found._asdict()


def in_words(found: Exposure, *, on_disk: bool) -> Iterator[tuple[bool, str]]:
    """Lines, and whether each says that something is wrong."""
    if on_disk:
        yield False, f"others: {_others(found)}"
        return
    encrypted = f"yes ({found.encrypted})" if found.encrypted else _NOT_TOLD if found.encrypted is None else "no"
    yield False, f"encrypted at rest: {encrypted}"
    yield bool(found.public), "public: " + _said(found.public, "yes, strangers can read or change it", "no")
    yield False, "old versions: " + _said(found.versioned, "kept", "not kept")
    if found.removing:
        yield True, f"lifecycle: the rule {', '.join(found.removing)} here, and a run that lacks one can't resume"
    else:
        yield False, "lifecycle: " + _said(None if found.removing is None else True, "no rule removes objects here", "")


def _said(value: bool | None, yes: str, no: str) -> str:
    return _NOT_TOLD if value is None else yes if value else no


def _others(found: Exposure) -> str:
    if found.public:
        return "all users of this machine can look into the folder; the files that Satchel makes are closed to them"
    if found.group:
        return "the group of the folder can look into it"
    return "only its owner can look into the folder"
