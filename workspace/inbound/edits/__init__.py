"""People's edits of the readable files: found, merged, asked about, or refused."""

# mypy: implicit-reexport

from ...base.lazy import deferred

if not deferred(__name__):
    from . import detection, rejection
    from .detection import cut_off, editable, judge, notice, notice_saved, reopen_parents, untaken
    from .findings import (
        CheckData,
        ConflictChoice,
        ConflictPlace,
        Edit,
        FileConflict,
        Noticed,
        RejectedFile,
        Side,
        with_choices,
    )
    from .held_files import saved_files
    from .message_edits import CutOff
    from .rejection import is_known, not_settled, reject
