"""What people and programs put in: edits, answers, and files in the inbox."""

# mypy: implicit-reexport

from ..base.lazy import deferred

if not deferred(__name__):
    from . import open_files
    from .open_files import being_saved
