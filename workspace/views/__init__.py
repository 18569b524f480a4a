"""Write the readable files and keep them current, without overwriting what a person saves."""

# mypy: implicit-reexport

from ..base.lazy import deferred

if not deferred(__name__):
    from . import (
        checkpoint_folder,
        conversation,
        message_file,
        partial_files,
        projection,
        result_schemas,
        running_file,
        schema_copies,
        stable_read,
    )
    from .checkpoint_folder import CheckpointFolders, Point
    from .checkpoint_index import CheckpointIndex
    from .guarded_files import Guard
    from .message_file import MessageFile, Row
    from .partial_files import PARTIALS, RECOVERED, Marker, PartialHead
    from .projection import STATE, STEPS, TODO, folder_of, is_step_file, owner, status_of, step_path
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
