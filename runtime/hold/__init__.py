"""`satchel.hold`: a program is the one writer of a workspace, without an agent function.

held_workspace  `Held`: what a program appends, puts and reads, each durable when the call returns; `hold`, and
                `remove`; and reading it without holding it
hold_opening    how a held workspace is opened and closed, and how edits of its files by people are taken
"""

# mypy: implicit-reexport

from ...workspace.base.lazy import deferred

if not deferred(__name__):
    from .held_workspace import FileEntry, Held, HeldFile, Row, entries_of, file_of, files_of, hold, remove, rows_of
