"""Read a workspace without taking it."""

# mypy: implicit-reexport

from .. import deferred

if not deferred(__name__):
    from . import discovery, lease, report, transfer_file
    from .discovery import FolderTree, Stamp, below, below_store, is_sync_copy, stamp_of, sync_copies
    from .lease import PATH, Lease, Process
    from .load import (
        Look,
        Signature,
        another_run,
        begun,
        glance,
        held,
        is_unchanged,
        listed_at_stop,
        look,
        look_beside,
        read_by_glance,
        refuse_lost_definition,
        signature,
    )
    from .report import Remark, Report, ReportDocument
    from .transfer_file import (
        BackupMark,
        BackupNote,
        BackupState,
        ExportResult,
        Kind,
        LostPlace,
        Manifest,
        Restored,
        Tombstone,
        define,
        goes_along,
        is_passing,
        read_definition,
    )
