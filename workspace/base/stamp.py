"""The stamp of every projection: the moment that it shows, and a hash that reveals a person's edit.

In JSON it is the key `at`; in Markdown the last line is a comment, `<!-- satchel 42.3.9c1f03ab -->`.

A copy in the folder of a checkpoint is no projection, and says so: in JSON with the key `checkpoint` before `at`, in
Markdown with `checkpoint: NAME of RUN/AGENT` in the comment.
"""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple

_BEGINS = b"<!-- satchel "
_MARKDOWN = re.compile(rb"(?:\n|\A)<!-- satchel (\d{1,15})\.(\d{1,9})\.([0-9a-f]{8}) -->\s*\Z")
_MOVED = re.compile(rb"(?:\n|\A)<!-- satchel (\d{1,15})\.(\d{1,9})\.([0-9a-f]{8}) -->[ \t]*(?:\r?\n|\Z)")
_JSON = re.compile(rb'"at": ?\{\s*"seq": ?(\d{1,15}),\s*"epoch": ?(\d{1,9}),\s*"sha": ?"([0-9a-f]{8})"\s*\}')
_BLANK = b"00000000"
_NAME = rb"(\d{12}(?:-[a-z0-9_-]+)?)"
_COPY_JSON = re.compile(rb'"checkpoint": ?"%s",\s*(?="at")' % _NAME)
_COPY_MARKDOWN = re.compile(
    rb"(?:\n|\A)<!-- satchel (\d{1,15})\.(\d{1,9})\.([0-9a-f]{8}) checkpoint: %s of (\S+) -->[ \t]*(?:\r?\n|\Z)" % _NAME
)


class Stamp(NamedTuple):
    """Journal position, the owner's epoch, and the first 8 hex digits of the SHA-256 of the rest of the file."""

    seq: int
    epoch: int
    sha: str


class Stamped(NamedTuple):
    """A file as it was read: its stamp if it has one, the content without it, and whether the hash is right."""

    stamp: Stamp | None
    body: bytes
    untouched: bool


class Copy(NamedTuple):
    """A file that was written into the folder of the checkpoint `name`, of the run and agent `of` (empty if it does not
    say), and whether it is as it was written."""

    name: str
    of: str
    untouched: bool

    @property
    def seq(self) -> int:
        """The record of the checkpoint."""
        return int(self.name[:12])


def sign_markdown(body: bytes, seq: int, epoch: int, of: str) -> bytes:
    """`body` with a stamp as its last line. The newline before the stamp belongs to the stamp, whatever `body` ends
    with.

    `of` names the run and the agent. It is part of the hash, because nothing else in the file says whose it is: the
    file of another run must not look like an older one of this run.
    """
    return b"%s\n<!-- satchel %d.%d.%s -->\n" % (body, seq, epoch, sha_of_markdown(body, of))


def sha_of_markdown(body: bytes, of: str) -> bytes:
    return _sha(of.encode() + b"\n" + body)


def read_markdown(data: bytes, of: str = "") -> Stamped:
    """A stamp that is no longer in the last line, because something was appended, still names the moment of the
    file."""
    at = data.rfind(_BEGINS)
    if at < 0:
        return Stamped(None, data, False)
    match = _MARKDOWN.search(data, max(0, at - 1))
    if match:
        body = data[: match.start()]
        found = _stamped(match, body, sha_of_markdown(body, of))
        # An editor may have changed all ends of lines.
        return found if found.untouched else found._replace(body=body.removesuffix(b"\r"))
    *_, match = (None, *_MOVED.finditer(data))
    if not match:
        return Stamped(None, data, False)
    body = data[: match.start()].removesuffix(b"\r")
    end = b"" if not body or body.endswith(b"\n") else b"\n"
    return _stamped(match, body + end + data[match.end() :], b"")


def sign_copy(body: bytes, seq: int, epoch: int, of: str, name: str) -> bytes:
    """`body` with the stamp of a copy in the folder of the checkpoint `name`."""
    sha = sha_of_markdown(body, f"{of} {name}")
    return b"%s\n<!-- satchel %d.%d.%s checkpoint: %s of %s -->\n" % (body, seq, epoch, sha, name.encode(), of.encode())


def read_copy(data: bytes) -> Copy | None:
    """The stamp of a copy that this Markdown has; None if there is none."""
    *_, match = (None, *_COPY_MARKDOWN.finditer(data)) if b" checkpoint: " in data else (None,)
    if match is None:
        return None
    name, of = match[4].decode(), match[5].decode(errors="replace")
    is_last = match.end() == len(data)
    return Copy(name, of, is_last and match[3] == sha_of_markdown(data[: match.start()], f"{of} {name}"))


def is_checkpoint(name: str) -> bool:
    """Whether a checkpoint may have this name."""
    return re.fullmatch(_NAME, name.encode()) is not None


def read_json_copy(data: bytes) -> Copy | None:
    """The stamp of a copy that this JSON has, if it is untouched; its `run_id` says of which run it is."""
    at, match = _JSON.search(data), _COPY_JSON.search(data)
    if at is None or match is None or match.end() != at.start():
        return None
    return Copy(match[1].decode(), "", read_json(data).untouched)


def sign_json(text: bytes) -> bytes:
    """`text` contains `"at": {"seq": .., "epoch": .., "sha": "00000000"}` once; this fills in the hash."""
    match = _JSON.search(text)
    assert match and match[3] == _BLANK, "the first `at` must be the blank stamp"
    return text[: match.start(3)] + _sha(text) + text[match.end(3) :]


def read_json(data: bytes) -> Stamped:
    """The hash covers the whole file with the hash itself blanked, so it reveals any change, also of the position."""
    match = _JSON.search(data)
    if not match:
        return Stamped(None, data, False)
    return _stamped(match, data, _sha(data[: match.start(3)] + _BLANK + data[match.end(3) :]))


def _stamped(match: re.Match[bytes], body: bytes, sha: bytes) -> Stamped:
    stamp = Stamp(int(match[1]), int(match[2]), match[3].decode())
    return Stamped(stamp, body, stamp.sha.encode() == sha)


def _sha(data: bytes) -> bytes:
    return hashlib.sha256(data).hexdigest()[:8].encode()
