"""Write the readable files and keep them current, without overwriting what a person saves."""

# mypy: implicit-reexport

from .. import deferred

if not deferred(__name__):
    from . import checkpoint_folder, conversation, guarded_files, partial_files, projection, running_file, schema_files
    from .checkpoint_folder import CheckpointFolders, CheckpointIndex, NewCheckpoint
    from .conversation import (
        MessageFile,
        MessageRow,
        SaidRow,
        has_text,
        page_after,
        page_before,
        place_after,
        row_at,
        search,
        texts_in,
        unwritten,
    )
    from .guarded_files import (
        BRIEF,
        PATIENCE,
        AtOnce,
        Behind,
        Settling,
        Stage,
        Unsettled,
        ViewGuard,
        behind,
        is_left_open,
        read_back,
        remove,
        replace,
        until_settled,
    )
    from .partial_files import PARTIALS, RECOVERED, PartialHead, RecoveryMarker
    from .projection import STATE, STEPS, TODO, folder_of, is_step_file, owner, status_of, step_path
    from .projector import Files, HeldDocument, MessagesDocument, Projector
    from .record_words import DOUBTS, RecordWords, describe_record, place_words
    from .schema_files import publish
