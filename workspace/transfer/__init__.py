"""Bring a run from one place to another, of any kind: all of it or nothing, and never two active copies."""

# mypy: implicit-reexport

from .. import deferred

if not deferred(__name__):
    from .copy_files import Phase, Tell, scratch_copy
    from .forking import ForkResult, fork
    from .transfer import TransferResult, copy, destination, move, restore
    from .zip_file import export
