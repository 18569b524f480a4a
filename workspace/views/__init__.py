"""Write the readable files and keep them current, without overwriting what a person saves."""

from typing import TYPE_CHECKING

from ..base.lazy import lazily

if TYPE_CHECKING:
    from . import message_file, partial_files, projection, schema_copies, stable_read
    from .guarded_files import Guard
    from .message_file import MessageFile, Row
    from .partial_files import PARTIALS, RECOVERED, Marker, PartialHead
    from .projection import STATE, STEPS, TODO, folder_of, is_step_file, owner, status_of
    from .projector import Files, Projector
    from .schema_copies import publish
    from .stable_read import (
        BRIEF,
        PATIENCE,
        Settling,
        Stage,
        Unsettled,
        is_left_open,
        read_back,
        remove,
        replace,
        until_settled,
    )
    from .write_behind import AtOnce, Behind, behind
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "guarded_files": ("Guard",),
            "message_file": ("MessageFile", "Row", "message_file"),
            "partial_files": ("Marker", "PARTIALS", "PartialHead", "RECOVERED", "partial_files"),
            "projection": ("STATE", "STEPS", "TODO", "folder_of", "is_step_file", "owner", "projection", "status_of"),
            "projector": ("Files", "Projector"),
            "schema_copies": ("publish", "schema_copies"),
            "stable_read": (
                "BRIEF",
                "PATIENCE",
                "Settling",
                "Stage",
                "Unsettled",
                "is_left_open",
                "read_back",
                "remove",
                "replace",
                "stable_read",
                "until_settled",
            ),
            "write_behind": ("AtOnce", "Behind", "behind"),
        },
    )

__all__ = [
    "BRIEF",
    "PARTIALS",
    "PATIENCE",
    "RECOVERED",
    "STATE",
    "STEPS",
    "TODO",
    "AtOnce",
    "Behind",
    "Files",
    "Guard",
    "Marker",
    "MessageFile",
    "PartialHead",
    "Projector",
    "Row",
    "Settling",
    "Stage",
    "Unsettled",
    "behind",
    "folder_of",
    "is_left_open",
    "is_step_file",
    "message_file",
    "owner",
    "partial_files",
    "projection",
    "publish",
    "read_back",
    "remove",
    "replace",
    "schema_copies",
    "stable_read",
    "status_of",
    "until_settled",
]
