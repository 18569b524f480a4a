"""Read a workspace without taking it."""

# mypy: implicit-reexport

from ..base.lazy import on_first_use

with on_first_use(__name__):
    from . import duplicates, export_file, lease, moved_file, pause_wish, rebuild, report, transfer_file, unchanged
    from .copies_of_sync_tools import is_sync_copy, sync_copies
    from .defining import define, read_definition
    from .discover import below, below_store
    from .export_file import Exported
    from .lease import PATH, Lease, Process
    from .load import Look, Signature, another_run, glance, look, look_beside, read_by_glance, signature
    from .moved_file import Tombstone
    from .rebuild import begun
    from .report import Remark, Report, ReportDocument
    from .transfer_file import Kind, Manifest
    from .unchanged import is_unchanged
