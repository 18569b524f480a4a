"""The `settings:` in workspace.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The defaults are those of workspace.yaml, in case a line was deleted."""

    sources: list[str] | str | None = None
    limit: Annotated[int, msgspec.Meta(ge=1)] = 12
    sentences: Annotated[int, msgspec.Meta(ge=1)] = 3
    model: str = "gpt-5.4-mini"
    words_per_second: Annotated[float, msgspec.Meta(ge=0)] = 60

    @property
    def paths(self) -> list[str]:
        """`sources` as a list; empty for the installed distributions."""
        if isinstance(self.sources, str):
            return [self.sources] if self.sources else []
        return self.sources or []


def read_settings(found: Mapping[str, Any]) -> Settings:
    """ValueError for an unknown setting or a wrong value; it says which."""
    try:
        return msgspec.convert(dict(found), Settings)
    except msgspec.ValidationError as error:
        raise ValueError(f"settings in workspace.yaml: {error}") from None
