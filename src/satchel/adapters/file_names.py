"""Names for the disk: of folders for what users call their threads, and of files for any path."""

from __future__ import annotations

import hashlib
import re
from contextlib import suppress

__all__ = ["folder_name", "held_path", "virtual_path"]

_UNFIT = re.compile(r'[\x00-\x1f\x7f\\:*?"<>|\ud800-\udfff]|%(?=[0-9A-F]{2}|\+\Z)|[ .]\Z|\.(?=rejected)')
"""What a name in files/ can't have: characters, an ending, what looks escaped, or like a person's version that
Satchel has kept."""

_NAME_BYTES = 200


def folder_name(text: str) -> str:
    """A name that every disk and bucket can hold, at most 51 characters; different for different texts. A short text of
    small letters, digits, `_` and `-` is its own name."""
    shown = re.sub("[^a-z0-9_]+", "-", text.lower())[:40].strip("-")
    if text and shown == text and not re.search("-[0-9a-f]{10}$", text):
        return text
    return f"{shown}-{hashlib.blake2b(text.encode(errors='surrogatepass'), digest_size=5).hexdigest()}".lstrip("-")


def held_path(path: str) -> str:
    """A path in files/ that every disk can hold, for any path: what a name can't have is `%3F`, as in a URL, and a long
    name is in parts, which are folders with `%+` at their ends. Different for different paths."""
    names = list[str]()
    for name in path.strip("/").split("/"):
        part = ""
        for piece in re.findall("%[0-9A-F]{2}|.", _UNFIT.sub(_escape, name), re.S):
            if len((part + piece).encode()) > _NAME_BYTES:
                names.append(part + "%+")
                part = ""
            part += piece
        names.append(part)
    return "/".join(names)


def virtual_path(path: str) -> str:
    """The path that `held_path` was given, with `/` before it. A person may have made a file with a name that
    `held_path` never gives: that is its own."""
    with suppress(UnicodeDecodeError):
        plain = re.sub("(%[0-9A-F]{2})+", _unescape, path.replace("%+/", ""))
        if held_path(plain) == path:
            return f"/{plain}"
    return f"/{path}"


def _escape(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in found[0].encode(errors="surrogatepass"))


def _unescape(found: re.Match[str]) -> str:
    return bytes.fromhex(found[0].replace("%", "")).decode(errors="surrogatepass")
