"""What people and programs put in: edits, answers, and files in the inbox."""

# mypy: implicit-reexport

from ..base.lazy import deferred

if not deferred(__name__):
    from . import saving
    from .saving import being_saved
