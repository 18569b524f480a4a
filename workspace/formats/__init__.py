"""The YAML and JSON dialects, and the definition of a run: one parser for each format."""

from typing import TYPE_CHECKING

from ..base.lazy import lazily

if TYPE_CHECKING:
    from . import definition, jsontext
    from .definition import Budget, Checkpoints, Definition, Start, Window, parse
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "definition": ("Budget", "Checkpoints", "Definition", "Start", "Window", "definition", "parse"),
            "jsontext": ("jsontext",),
        },
    )

__all__ = ["Budget", "Checkpoints", "Definition", "Start", "Window", "definition", "jsontext", "parse"]
