"""Names that every room uses: of files and folders, of who starts a process, of the ways to stop and to resume."""

from __future__ import annotations

import hashlib
import os
import re
import unicodedata
from functools import lru_cache
from typing import Literal

from .errors import UsageError
from .text import visible

DEFINITION = "workspace.yaml"
"""The file that makes a folder a workspace."""

ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
"""The id of an item (`^3`, `^setup`). Also safe as the start of a folder's name."""

SCHEMAS = ".satchel/schemas"
"""The folder of the schemas for editors."""

KEEPER = "SATCHEL_KEEPER"
"""The variable that tells a process the address of its run at a keeper (runtime/keeper)."""

ANSWERS = ".satchel/answers"
"""The folder of the answers of models that no step has recorded yet (runtime/keeper)."""

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

NAME_BYTES = 255
"""The longest name of a file on a disk, in UTF-8."""

KEY_BYTES = 1024
"""The longest key in a bucket, with the prefix of the workspace."""

_PATH_BYTES = 800
"""The longest path of a new file: a bucket's prefix, and what Satchel adds to a name, must fit into a key too."""

_SLUG_LENGTH = 40
_SHOWN = 80  # characters of a path that is too long
_LEADS_OUT = frozenset(("", ".", ".."))
_FORBIDDEN = re.compile(r'[\x00-\x1f\x7f\\:*?"<>|\ud800-\udfff]')

Mode = Literal["drain", "emergency", "cancel"]
"""How a run stops: at a safe point; at once, by a kill; or at a safe point, for good."""

Resume = Literal["continue", "restart_step", "await_instructions"]
"""How it resumes: where it was; with the cut-off step from its beginning; or only with a person's instructions."""

SIGNAL = "signal"
"""The reason of a pause by a signal. It ends with the next start, so that a deployment resumes by itself."""

DRIFTED = "`on_drift: refuse` is set, and the code or settings have changed"
"""The reason of a run that was paused because of that."""

_VERSION = "0.1.0"
"""As in pyproject.toml; a test compares them. Asking the installed distribution takes 10 ms at each start."""


def slug(words: str) -> str:
    """A short lower-case ASCII name by which a person can recognise `words`. Not unique; may be empty."""
    plain = unicodedata.normalize("NFKD", words).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain)[:_SLUG_LENGTH].strip("-")


def fresh_run_id(like: str) -> str:
    """A `run_id` that no other run has: ten digits are enough for 100,000 runs of one template. It begins as `like`,
    and has 63 characters at most."""
    return f"{like[:52].rstrip('-')}-{os.urandom(5).hex()}"


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
            path=shown(path),
            remedy="use names joined by '/', without '..', without a leading '/', and without any of \\ : * ? \" < > |",
        )
    return path


def check_new(path: str) -> str:
    """`check_path` of a file that an agent or a person names: UsageError also if no disk or no bucket could hold it."""
    check_path(path)
    name = max(path.split("/"), key=_size)
    for what, found, limit in (("a name", name, NAME_BYTES), ("a path", path, _PATH_BYTES)):
        if _size(found) > limit:
            raise UsageError(
                f"{what} is too long",
                path=path if len(path) <= _SHOWN else f"{path[:_SHOWN]}…",
                why=f"it has {_size(found)} bytes in UTF-8, and may have {limit}",
                remedy="use a shorter one",
            )
    return path


def fitting(stem: str, *endings: str) -> str:
    """The beginning of a name that Satchel derives from another one: `stem`, cut so that with each of the `endings` it
    is no longer than a name can be. A cut one ends with a hash, so two names don't become one."""
    room = NAME_BYTES - max(map(_size, endings))
    if _size(stem) <= room:
        return stem
    mark = f"~{hashlib.sha256(_utf8(stem)).hexdigest()[:8]}"
    return _utf8(stem)[: room - len(mark)].decode(errors="ignore") + mark


def _size(text: str) -> int:
    return len(_utf8(text))


def _utf8(text: str) -> bytes:
    return text.encode(errors="surrogatepass")  # the name of a file may be no text


def myself() -> str:
    """The user of this process, and its machine: `you@laptop`."""
    import getpass  # slow, and few commands need it
    import socket

    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = f"uid {os.getuid()}"
    return visible(f"{user}@{socket.gethostname()}")


def version() -> str:
    return _VERSION
