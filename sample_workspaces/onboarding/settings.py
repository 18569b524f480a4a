"""The `settings:` in workspace.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

Word = Annotated[str, msgspec.Meta(min_length=1)]


class Mail(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    host: Word = "127.0.0.1"
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)] = 8025
    sender: Word = "welcome@example.org"
    mailbox: str = ""  # a Maildir; empty if it can't be read


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The three without a default are the new colleague, so that a deleted line creates no account."""

    name: Word
    account: Word
    address: Word
    privileges: list[Word] = []
    wait_for: Annotated[float, msgspec.Meta(ge=0)] = 10
    directory: Word = "directory.db"
    mail: Mail = Mail()


def read_settings(found: Mapping[str, Any]) -> Settings:
    """ValueError for an unknown or missing setting, or a wrong value; it says which."""
    try:
        return msgspec.convert(dict(found), Settings)
    except msgspec.ValidationError as error:
        raise ValueError(f"settings in workspace.yaml: {error}") from None
