"""Read a workspace without taking it."""

# mypy: implicit-reexport

from ..base.lazy import deferred

if not deferred(__name__):
    from . import discovery, lease, rebuild, report, transfer_file
    from .discovery import below, below_store, is_sync_copy, sync_copies
    from .lease import PATH, Lease, Process
    from .load import (
        Look,
        Signature,
        another_run,
        glance,
        is_unchanged,
        listed_at_stop,
        look,
        look_beside,
        read_by_glance,
        signature,
    )
    from .rebuild import begun
    from .report import Remark, Report, ReportDocument
    from .transfer_file import ExportResult, Kind, Manifest, Tombstone, define, read_definition
