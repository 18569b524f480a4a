"""The YAML and JSON dialects, workspace.yaml and pause.yaml: one parser for each format."""

from typing import TYPE_CHECKING

from ..base.lazy import lazily

if TYPE_CHECKING:
    from . import definition, jsontext, pause_file
    from .definition import Budget, Checkpoints, Definition, Start, Window, parse
    from .pause_file import PauseFile
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "definition": ("Budget", "Checkpoints", "Definition", "Start", "Window", "definition", "parse"),
            "jsontext": ("jsontext",),
            "pause_file": ("PauseFile", "pause_file"),
        },
    )

__all__ = [
    "Budget",
    "Checkpoints",
    "Definition",
    "PauseFile",
    "Start",
    "Window",
    "definition",
    "jsontext",
    "parse",
    "pause_file",
]
