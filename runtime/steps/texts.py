"""Texts that are more than their characters: a `Prompt` has the name and the version of its file, and files show a
`Sealed` text encrypted.
"""

from __future__ import annotations

from typing import Any

from ...workspace.base import UsageError


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
        from ...workspace.secrets import seal  # needs modules that few agents need

        self._set(value, seal(value))

    @classmethod
    def opened(cls, sealed: Any) -> Sealed:
        """What `sealed` stands for. ValueError if it is no sealed text."""
        if isinstance(sealed, cls):
            return sealed
        if not isinstance(sealed, str):
            raise ValueError("a sealed value is text")
        from ...workspace.secrets import unseal

        made = cls.__new__(cls)
        made._set(unseal(sealed), sealed)
        return made

    @staticmethod
    def schema() -> dict[str, Any]:
        """Of what is written for one."""
        from ...workspace.secrets import SEALED_PATTERN

        return {
            "type": "string",
            "pattern": SEALED_PATTERN,
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
