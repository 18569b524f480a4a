"""Encrypt texts with a key that is not in the workspace: `sealed:1:KEY:DATA`.

AES-SIV (RFC 5297): equal texts have equal ciphertexts under one key, so a value that has not changed changes no file,
in whichever process it is sealed. Who reads the files sees which values are equal, and how long they are. They are not
bound to their place: who can write the files can put one in the place of another.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from base64 import b64decode, urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from ..base import Refused
from .redactor import hide

KEY = "SATCHEL_SEAL_KEY"
KEY_FILE = "SATCHEL_SEAL_KEY_FILE"
SEALED_PATTERN = "^sealed:1:[0-9a-f]{8}:[A-Za-z0-9_-]+=*$"

_SEALED = re.compile(f"{SEALED_PATTERN[:-1]}\\Z")
_BYTES = 32
_given: Mapping[str, str] = os.environ
_MAKE_ONE = "`openssl rand -base64 32` prints a new one"


class _Key(NamedTuple):
    name: str  # in what it has sealed; says nothing of the key
    cipher: Any


def seal(text: str) -> str:
    """`text` under the first key. Refused without a key, or without the library."""
    name, cipher = _keys()[0]
    hide(text)
    return f"sealed:1:{name}:{urlsafe_b64encode(cipher.encrypt(text.encode(), None)).decode()}"


def unseal(sealed: str) -> str:
    """The text. Refused without its key. ValueError if it was not sealed, or changed since."""
    if not _SEALED.match(sealed):
        raise ValueError("it is not sealed: print(satchel.Sealed(text).sealed) prints what to write here")
    _, _, wanted, data = sealed.split(":")
    ciphers = dict(_keys(wanted))
    if wanted not in ciphers:
        raise Refused(
            "a value is sealed with another key",
            why=f"it needs the key {wanted}, and {KEY} has {', '.join(ciphers)}",
            remedy=f"add that key to {KEY}, after the one that is to seal new values",
        )
    from cryptography.exceptions import InvalidTag

    try:
        text: bytes = ciphers[wanted].decrypt(urlsafe_b64decode(data), None)
    except InvalidTag:
        raise ValueError("it was changed after it was sealed") from None
    found = text.decode()
    hide(found)
    return found


def keys_to_hand_on() -> bytes:
    """For `take_keys` of a process that does not get this environment. A file is read there, when a key is needed."""
    found = {name: value for name in (KEY, KEY_FILE) if (value := _given.get(name))}
    if KEY_FILE in found:
        found[KEY_FILE] = os.path.abspath(found[KEY_FILE])
    return json.dumps(found).encode()


def take_keys(handed_on: bytes) -> None:
    """From now on this process has these keys, and none of its environment."""
    global _given
    _given = json.loads(handed_on)


def _keys(wanted: str = "") -> tuple[_Key, ...]:
    """All keys of this process; the first one seals. `wanted` names the one that is needed."""
    written = _given.get(KEY, "")
    if not written and (path := _given.get(KEY_FILE)):
        try:
            with open(path, encoding="ascii") as file:
                written = file.read()
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "it is not text"
            raise Refused("the key for sealed values can't be read", path=path, why=why) from None
    if not written.strip():
        none = f"neither {KEY} nor {KEY_FILE} is set"
        raise Refused(
            "there is no key for sealed values",
            why=f"a value needs the key {wanted}, and {none}" if wanted else none,
            remedy="set one of them to that key, or to the path of a file with it"
            if wanted
            else f"set one of them to the key, or to the path of a file with it; {_MAKE_ONE}",
        )
    return _made(written)


@lru_cache(maxsize=8)
def _made(written: str) -> tuple[_Key, ...]:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESSIV
    except ImportError:
        raise Refused("sealed values need cryptography", remedy="pip install 'satchel[sealed]'") from None
    found = []
    for number, word in enumerate(re.split(r"[\s,]+", written.strip()), 1):
        try:
            key = b64decode(word.replace("-", "+").replace("_", "/"), validate=True)
        except ValueError:
            key = b""
        if len(key) < _BYTES:
            raise Refused(
                f"key {number} for sealed values is not one",
                why=f"it is not {_BYTES} bytes or more in base64",
                remedy=_MAKE_ONE,
            )
        name = hashlib.sha256(b"satchel key name" + key).hexdigest()[:8]
        found.append(_Key(name, AESSIV(hashlib.sha512(b"satchel seal key" + key).digest())))
    return tuple(found)
