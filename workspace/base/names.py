"""Names of files and folders: which are valid, and how to make a readable one from a person's words."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

from .errors import UsageError
from .textfile import visible

DEFINITION = "workspace.yaml"
"""The file that makes a folder a workspace."""

ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
"""The id of an item (`^3`, `^setup`). Also safe as the start of a folder's name."""

SCHEMAS = ".satchel/schemas"
"""The folder of the schemas for editors."""

OF_A_RUN = frozenset(
    (
        "journal",
        "checkpoints",
        "state.json",
        ".satchel",
        "outputs",
        "partials",
        "recovered",
        "steps",
        "messages.jsonl",
        "messages.rejected.jsonl",
        "pause.yaml",
        "approvals",
        "conflicts",
    )
)
"""Names at the top of a workspace that belong to its run, not to its definition and code."""

_SLUG_LENGTH = 40
_LEADS_OUT = frozenset(("", ".", ".."))
_FORBIDDEN = re.compile(r'[\x00-\x1f\x7f\\:*?"<>|\ud800-\udfff]')


def slug(words: str) -> str:
    """A short lower-case ASCII name by which a person can recognise `words`. Not unique; may be empty."""
    plain = unicodedata.normalize("NFKD", words).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain)[:_SLUG_LENGTH].strip("-")


def is_name(name: str) -> bool:
    """Whether `name` can be a file's or folder's name on every system."""
    return name not in _LEADS_OUT and "/" not in name and not name.endswith((" ", ".")) and not _FORBIDDEN.search(name)


def shown(name: str) -> str:
    """A name or path, possibly a stranger's, in one line that is safe to print."""
    return visible(name).replace("\t", r"\t").replace("\n", r"\n")


@lru_cache(4096)  # the same few paths are asked about again and again
def check_path(path: str) -> str:
    """Return `path` if it is a plain relative path that stays below its root on every system; otherwise UsageError.

    Looks only at the text; the disk store handles symbolic links.
    """
    if not all(map(is_name, path.split("/"))):
        raise UsageError(
            "not a path inside the workspace",
            path=path,
            remedy="use names joined by '/', without '..', without a leading '/', and without any of \\ : * ? \" < > |",
        )
    return path
