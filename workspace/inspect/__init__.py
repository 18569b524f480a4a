"""Read a workspace without taking it."""

from typing import TYPE_CHECKING

from ..base.lazy import lazily

if TYPE_CHECKING:
    from . import duplicates, lease, moved_file, pause_wish, rebuild, report, transfer_file, unchanged
    from .copies_of_sync_tools import sync_copies
    from .defining import define, read_definition
    from .discover import below, below_store
    from .lease import PATH, Lease, Process
    from .load import Look, Signature, glance, look, look_beside, read_by_glance, signature
    from .moved_file import Tombstone
    from .rebuild import begun
    from .report import Remark, Report, ReportDocument
    from .transfer_file import Kind, Manifest
    from .unchanged import is_unchanged
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "copies_of_sync_tools": ("sync_copies",),
            "defining": ("define", "read_definition"),
            "discover": ("below", "below_store"),
            "duplicates": ("duplicates",),
            "lease": ("Lease", "PATH", "Process", "lease"),
            "load": ("Look", "Signature", "glance", "look", "look_beside", "read_by_glance", "signature"),
            "moved_file": ("Tombstone", "moved_file"),
            "pause_wish": ("pause_wish",),
            "rebuild": ("begun", "rebuild"),
            "report": ("Remark", "Report", "ReportDocument", "report"),
            "transfer_file": ("Kind", "Manifest", "transfer_file"),
            "unchanged": ("is_unchanged", "unchanged"),
        },
    )

__all__ = [
    "PATH",
    "Kind",
    "Lease",
    "Look",
    "Manifest",
    "Process",
    "Remark",
    "Report",
    "ReportDocument",
    "Signature",
    "Tombstone",
    "begun",
    "below",
    "below_store",
    "define",
    "duplicates",
    "glance",
    "is_unchanged",
    "lease",
    "look",
    "look_beside",
    "moved_file",
    "pause_wish",
    "read_by_glance",
    "read_definition",
    "rebuild",
    "report",
    "signature",
    "sync_copies",
    "transfer_file",
    "unchanged",
]
