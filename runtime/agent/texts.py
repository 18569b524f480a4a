"""Texts that are more than their characters: a `Prompt` has the name and the version of its file, and files show a
`Sealed` text encrypted with a key that is not in the workspace: `sealed:1:KEY:DATA`.

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

from ...workspace.base import Refused, UsageError
from ...workspace.secrets import hide

KEY = "SATCHEL_SEAL_KEY"
KEY_FILE = "SATCHEL_SEAL_KEY_FILE"
_PATTERN = "^sealed:1:[0-9a-f]{8}:[A-Za-z0-9_-]+=*$"

_SEALED = re.compile(f"{_PATTERN[:-1]}\\Z")
_BYTES = 32
_given: Mapping[str, str] = os.environ
_MAKE_ONE = "`openssl rand -base64 32` prints a new one"


class Prompt(str):
    """A prompt with its values. If it is an argument of a step, the step's record has its name and version."""

    name: str
    version: str

    def __new__(cls, text: str, name: str, version: str) -> Prompt:
        made = super().__new__(cls, text)
        made.name, made.version = name, version
        return made


class Sealed:
    """A text that is in the state, in arguments or in results, and that files and records show encrypted:
    `sealed:1:...`. `value` is the text, `sealed` what is written. Never changes; replace it by another one.

    The key comes from SATCHEL_SEAL_KEY, or from the file that SATCHEL_SEAL_KEY_FILE names: 32 bytes or more in base64.
    Of several keys, with spaces or commas between them, the first seals, and each opens what it has sealed. Refused
    without a key, without that of a sealed value, or without the library (`pip install 'satchel[sealed]'`). Equal texts
    look equal under one key, and their length shows.
    """

    __slots__ = ("sealed", "value")

    value: str
    sealed: str

    def __init__(self, value: str):
        if not isinstance(value, str):
            raise TypeError(f"a sealed value is text, not {type(value).__qualname__}")
        try:
            value.encode()
        except UnicodeEncodeError:  # which has the text
            remedy = "give a text without half characters (surrogates)"
            raise UsageError("a sealed value is not text", remedy=remedy) from None
        self._set(value, _seal(value))

    @classmethod
    def opened(cls, sealed: Any) -> Sealed:
        """What `sealed` stands for. ValueError if it is no sealed text."""
        if isinstance(sealed, cls):
            return sealed
        if not isinstance(sealed, str):
            raise ValueError("a sealed value is text")
        made = cls.__new__(cls)
        made._set(_unseal(sealed), sealed)
        return made

    @staticmethod
    def schema() -> dict[str, Any]:
        """Of what is written for one."""
        return {
            "type": "string",
            "pattern": _PATTERN,
            "patternErrorMessage": "a sealed text; print(satchel.Sealed(text).sealed) prints one",
            "writeOnly": True,
            "description": "A sealed text: only who has the key can read it.",
        }

    def _set(self, value: str, sealed: str) -> None:
        object.__setattr__(self, "value", value)
        object.__setattr__(self, "sealed", sealed)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError("a Sealed never changes: put another one in its place")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sealed) and self.value == other.value

    def __hash__(self) -> int:
        return hash(self.value)

    def __repr__(self) -> str:
        return f"<{self.sealed[:24]}...>"

    def __reduce__(self) -> Any:
        return Sealed.opened, (self.sealed,)  # a pickle has no text either

    def __copy__(self) -> Sealed:
        return self

    def __deepcopy__(self, memo: Any) -> Sealed:
        return self

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        written = core_schema.plain_serializer_function_ser_schema(lambda value: value.sealed, when_used="json")
        return core_schema.no_info_plain_validator_function(cls.opened, serialization=written)

    @classmethod
    def __get_pydantic_json_schema__(cls, core: Any, handler: Any) -> dict[str, Any]:
        return cls.schema()


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


class _Key(NamedTuple):
    name: str  # in what it has sealed; says nothing of the key
    cipher: Any


def _seal(text: str) -> str:
    """`text` under the first key. Refused without a key, or without the library."""
    name, cipher = _keys()[0]
    hide(text)
    return f"sealed:1:{name}:{urlsafe_b64encode(cipher.encrypt(text.encode(), None)).decode()}"


def _unseal(sealed: str) -> str:
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
